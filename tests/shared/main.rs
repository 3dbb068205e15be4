//! Values that all samples share: parameters of a network's own, and what is computed from them, in joins and attentions.

#[path = "../golden/mod.rs"]
mod golden;

use golden::{close, lines_of, numbers, spread};
use gpumem::prelude::*;
use gpumem::{Cpu, Kind};

/// Networks with these bodies, each in three kinds of step.
macro_rules! networks {
    ($($name:ident [$split:ident $again:ident] ($input:ty => $output:ty) { $($body:tt)* })*) => {
        $(
            networks! { @ $name {} ($input => $output) { $($body)* } }
            networks! { @ $split { micro_batches: 2 } ($input => $output) { $($body)* } }
            networks! { @ $again { update: Separate, checkpoint: Norms } ($input => $output) { $($body)* } }
        )*

        /// Two steps beside PyTorch in float64.
        #[test]
        fn steps_with_shared_values_are_those_of_pytorch() {
            $(
                networks! { @check $name $name }
                networks! { @check $split $name }
                networks! { @check $again $name }
            )*
        }
    };
    (@check $network:ident $name:ident) => {
        check::<$network>(stringify!($name), |net| {
            let (x, t) = (numbers(50), numbers(51));
            (0..2).map(|_| net.train_step(&x, &t).unwrap()).collect()
        });
    };
    (@ $name:ident { $($settings:tt)* } ($input:ty => $output:ty) { $($body:tt)* }) => {
        network! {
            pub struct $name;

            const TRAIN: Train = Train { batch: 4, optimizer: Sgd { lr: 0.5 }, loss: Mse, $($settings)* };

            fn forward(x: $input) -> $output { $($body)* }
        }
    };
}

networks! {
    Prompt [PromptSplit PromptAgain] (Sequence<3, 4> => Sequence<5, 4>) {
        [Concat(Parameter((2, 4), parameter = "prompt"), [], dim = 1), Linear(12, name = "qkv"), Attention([], heads = 2), Linear(4, name = "out")]
    }
    Queries [QueriesSplit QueriesAgain] (Sequence<3, 4> => Sequence<5, 4>) {
        [
            tap(memory),
            Parameter((5, 4), parameter = "queries"),
            Add([], [Linear(12, name = "qkv"), Attention([], heads = 2), Linear(4, name = "own")]),
            LayerNorm(name = "norm"),
            Attention(Linear(4, name = "q"), [from(memory), Linear(4, name = "k")], [from(memory), Linear(4, name = "v")], heads = 2),
            Linear(4, name = "out"),
        ]
    }
    Computed [ComputedSplit ComputedAgain] (Sequence<3, 4> => Sequence<3, 6>) {
        [MatMul(Tanh, [MatMul(Parameter((6, 2), parameter = "a"), Parameter((2, 4), parameter = "b")), Tanh], transpose_b)]
    }
    Adjacency [AdjacencySplit AdjacencyAgain] (Sequence<3, 4> => Sequence<5, 4>) {
        [Linear(4, name = "map"), MatMul([Parameter((5, 3), parameter = "graph"), Softmax], [])]
    }
    Squared [SquaredSplit SquaredAgain] (Sequence<3, 4> => Sequence<3, 4>) {
        let root = Parameter((4, 4), parameter = "root");
        [MatMul([], [root, MatMul([], [])])]
    }
    Upsampled [UpsampledSplit UpsampledAgain] (Image<2, 6, 5> => Map<3, 6, 5>) {
        [Conv2d(3, 1, name = "conv"), Add([], [Parameter((3, 2, 3), parameter = "grid"), Upsample(size = (6, 5), mode = "bilinear")]), Tanh]
    }
    Filtered [FilteredSplit FilteredAgain] (Image<2, 6, 5> => Map<6, 3, 2>) {
        [
            Convolve2d([], [Parameter((4, 2, 3, 3), parameter = "filters"), Tanh], padding = 1),
            Tanh,
            Convolve2d([], Parameter((6, 2, 2, 2), parameter = "groups"), stride = 2, groups = 2),
            Add([], Parameter((6, 1, 1), parameter = "shift")),
        ]
    }
    FilteredSignal [FilteredSignalSplit FilteredSignalAgain] (Signal<2, 7> => Signal<3, 7>) {
        [Convolve1d([], [Parameter((3, 2, 3), parameter = "filters"), Tanh], padding = 2, dilation = 2)]
    }
    FilteredVolume [FilteredVolumeSplit FilteredVolumeAgain] (Volume<2, 3, 4, 5> => Volume<3, 3, 4, 5>) {
        [Convolve3d([], [Parameter((3, 2, 3, 3, 3), parameter = "filters"), Tanh], padding = 1)]
    }
    SideBySide [SideBySideSplit SideBySideAgain] (Sequence<3, 4> => Sequence<3, 9>) {
        [
            Linear(4, name = "map"),
            Concat([], Concat(Parameter((3, 2), parameter = "one"), [Parameter((3, 3), parameter = "other"), Affine(2.0)])),
        ]
    }
}

/// Trains a network that begins as the golden does, and compares losses and parameters.
fn check<N: Network>(name: &str, train: impl FnOnce(&mut Net<N, Cpu>) -> Vec<f32>) {
    let expected = lines_of(include_str!("expected.txt"), name);
    let mut net = Net::<N, Cpu>::load(&Cpu::with_threads(2).unwrap()).unwrap();
    let own = net.tensors().filter(|tensor| tensor.kind == Kind::Parameter).count();
    assert_eq!(own + 1, expected.len(), "{name}");
    for (salt, (key, _)) in expected.iter().enumerate().skip(1) {
        let shift = if *key == "norm.weight" { 1.0 } else { 0.0 };
        let count = net.get(key).unwrap().len();
        net.set(key, &(0..count).map(|index| shift + spread(index, salt)).collect::<Vec<f32>>()).unwrap();
    }
    close(&format!("{name}: losses"), &train(&mut net), &expected[0].1, 4e-6);
    for (key, values) in &expected[1..] {
        close(&format!("{name}: {key}"), &net.get(key).unwrap(), values, 4e-6);
    }
}
