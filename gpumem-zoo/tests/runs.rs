//! Networks of the zoo run on the CPU.
#![allow(missing_docs)]

use gpumem::{Cpu, Net, Network, Tensor, network};
use gpumem_zoo::lenet::LeNet5;

#[test]
fn lenet_learns_a_batch() {
    let mut net = Net::<LeNet5<4>, _>::load(&Cpu::with_threads(2).unwrap()).unwrap();
    let images = Tensor::from_fn(|index| ((index * 7919) % 1009) as f32 / 504.5 - 1.0);
    let targets = [3, 1, 4, 1].into();
    let first = net.train_step(&images, &targets).unwrap();
    let mut last = first;
    for _ in 0..100 {
        last = net.train_step(&images, &targets).unwrap();
    }
    assert!(last < first / 2.0, "{first} to {last}");

    // The forward pass alone, of one image.
    let mut served = LeNet5::<1>::infer_on(&Cpu::new()).unwrap();
    served.copy_from(&mut net).unwrap();
    let logits = net.forward(&images).unwrap();
    let image = Tensor::from_fn(|index| images.as_slice()[index]);
    let (alone, first) = (served.forward(&image).unwrap(), &logits.as_slice()[..10]);
    for (alone, first) in alone.as_slice().iter().zip(first) {
        assert!((alone - first).abs() < 1e-4, "{alone} and {first}");
    }
}

network! {
    /// A small network of the zoo's layers.
    pub struct Small;

    use blocks gpumem_zoo::{efficientnet::efficientnet_blocks, resnet::resnet_bottleneck_layers};

    const TRAIN: Train = Train { batch: 2, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy };

    fn forward(image: Image<3, 16, 16>) -> Logits<10> {
        [layer2(2, 16, 4), inverted(512, 1, 3, 1, 8, 1e-5), GlobalAvgPool, Linear(10, name = "fc")]
    }
}

#[test]
fn blocks_of_the_zoo_are_for_other_crates() {
    let paths: Vec<_> = Small::LAYERS.iter().filter(|layer| layer.parameters != 0).map(|layer| layer.path).collect();
    assert_eq!(paths[0], "layer2[0].conv1");
    assert!(paths.contains(&"block[3].0"));
}
