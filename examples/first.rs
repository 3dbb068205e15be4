//! The first training of the README, which has this program.

use gpumem::prelude::*;

network! {
    pub struct Mlp;

    const TRAIN: Train = Train { batch: 32, optimizer: AdamW { lr: 1e-3 }, loss: CrossEntropy, cards: [RTX_3060] };

    fn forward(features: Features<64>) -> Logits<10> {
        [Linear(128), Relu, Dropout(0.1), Linear(10)]
    }
}

fn main() -> Result<(), gpumem::Error> {
    let device = gpumem::default_device()?; // a card, if the feature `cuda` is on; else the CPU
    let mut net = Mlp::on(&device)?; // one allocation
    println!("{}", net.summary());
    let features = Tensor::from_fn(|index| (index % 7) as f32);
    let labels = Tensor::from_fn(|index| index as u32 % 10);
    for step in 0..100 {
        let loss = net.train_step(&features, &labels)?; // features: Tensor<f32, (D<32>, D<64>)>
        if step % 10 == 0 {
            println!("step {step}: loss {loss}");
        }
    }
    println!("{}", net.forward(&features)?.softmax());
    Ok(())
}
