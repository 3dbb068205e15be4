//! A language model of state spaces.

use crate::check;
use gpumem::network;

network! {
    /// A Mamba of transformers: `hidden_size` 256, 4 layers.
    pub struct MambaNarrow;

    const TRAIN: Train = Train { batch: 1, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(text: Tokens<16>) -> TokenLogits<16, 32000> {
        let words = Embedding(32000, 256, name = "embeddings");
        [words, repeat(4, layers(256, 512, 16, 16)), RmsNorm(eps = 1e-5, name = "norm_f"), Tied(words)]
    }

    fn layers(width: usize, inner: usize, states: usize, rank: usize) -> Block {
        Add([], [RmsNorm(eps = 1e-5, name = "norm"), mixer(width, inner, states, rank)])
    }

    fn mixer(width: usize, inner: usize, states: usize, rank: usize) -> Block {
        [
            Linear(2 * inner, bias = false, name = "in_proj"),
            Mul(
                [
                    Slice(0, inner, dim = -1), Transpose(1, 2),
                    Conv1d(inner, 4, padding = 3, groups = inner, name = "conv1d"), Slice(0, -3, dim = -1), Silu, Transpose(1, 2),
                    SelectiveScan(
                        [],
                        [
                            Linear(rank + 2 * states, bias = false, name = "x_proj"), tap(selected),
                            Slice(0, rank, dim = -1), StepSizes(inner, name = "dt_proj"),
                        ],
                        [from(selected), Slice(rank, rank + states, dim = -1)],
                        [from(selected), Slice(rank + states, dim = -1)],
                    ),
                ],
                [Slice(inner, dim = -1), Silu],
            ),
            Linear(width, bias = false, name = "out_proj"),
        ]
    }
}

/// PyTorch's peak is that of the loop over steps, whose states are all kept.
#[test]
fn parameters_and_operations_are_those_of_pytorch() {
    check::<MambaNarrow>(9_944_320, 318_029_824, [598_487_048, 638_264_496]);
}
