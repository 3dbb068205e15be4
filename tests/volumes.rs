//! Networks of volumes, in the language.
#![allow(missing_docs)]

use gpumem::{Cpu, Net, Network, Tensor, network};

network! {
    /// From clips to clips of two channels.
    pub struct Clips;

    const TRAIN: Train = Train { batch: 3, optimizer: Adam { lr: 0.02 }, loss: Mse };

    fn forward(clip: Volume<1, 4, 6, 5>) -> Volume<2, 4, 6, 5> {
        [
            Conv3d(1, 6, 3, padding = 1, bias = false), BatchNorm3d(6), Relu(inplace),
            MaxPool3d(2), Conv3d(8, (1, 3, 3), padding = "same", groups = 2), Dropout3d(0.0), Tanh,
            ConvTranspose3d(4, 2, stride = 2, output_padding = (0, 0, 1)), AdaptiveAvgPool3d((4, 5, 5)),
            ConvTranspose3d(2, (1, 2, 1)), AvgPool3d(3, 1, padding = 1, count_include_pad = false),
        ]
    }
}

#[test]
fn a_network_of_volumes_learns() {
    let mut net = Net::<Clips, _>::load(&Cpu::with_threads(2).unwrap()).unwrap();
    let clips = Tensor::from_fn(|index| ((index * 7919) % 1009) as f32 / 504.5 - 1.0);
    let targets = Tensor::from_fn(|index| (index as f32 / 40.0).sin());
    let first = net.train_step(&clips, &targets).unwrap();
    let mut last = first;
    for _ in 0..150 {
        last = net.train_step(&clips, &targets).unwrap();
    }
    assert!(last < first / 2.0, "{first} to {last}");
}

#[test]
fn layers_have_shapes_parameters_and_operations_of_volumes() {
    let found: Vec<_> = Clips::LAYERS.iter().filter(|layer| layer.macs > 0).collect();
    // Out times in times taps, at each position of a plain one, and of what a transposed one reads.
    let expected = [
        (&[6, 4, 6, 5][..], 6 * 27, 6 * 27 * 120),
        (&[8, 2, 3, 2], 8 * 3 * 9 + 8, 8 * 3 * 9 * 12),
        (&[4, 4, 6, 5], 8 * 4 * 8 + 4, 8 * 4 * 8 * 12),
        (&[2, 4, 6, 5], 4 * 2 * 2 + 2, 4 * 2 * 2 * 100),
    ];
    assert_eq!(found.len(), expected.len());
    for (layer, (shape, parameters, macs)) in found.iter().zip(expected) {
        assert_eq!((layer.output_shape, layer.parameters, layer.macs), (shape, parameters, macs), "{}", layer.path);
    }
}
