//! Mamba: a language model whose layers scan the text with selective state spaces, without attention.
//!
//! A. Gu and T. Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces" (arXiv:2312.00752), in the size of
//! `state-spaces/mamba-130m-hf`, on 1024 tokens, as transformers' `MambaForCausalLM`. Each layer doubles its width, and reads four tokens
//! with a convolution. From these it computes the step sizes of the scan, the inputs of its states and their outputs. The head shares its
//! weights with the embedding of the tokens. Parameters and operations were counted on transformers' module, which runs step by step if
//! mamba_ssm is not installed.
//!
//! Names are those of transformers.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::mamba::Mamba130M;
//!
//! let last = Mamba130M::<1>::LAYERS.iter().rfind(|layer| layer.kind == "StepSizes").unwrap();
//! assert_eq!(last.path, "backbone.layers[23].mixer.dt_proj");
//! ```

use gpumem::{blocks, network};

blocks! {
    /// A layer. Its arguments are the outer and the inner width, the states of each channel, and the width from which step sizes are
    /// computed.
    pub mod mamba_blocks {
        fn layers(width: usize, inner: usize, states: usize, rank: usize) -> Block {
            Add([], [RmsNorm(eps = 1e-5, name = "norm"), mixer(width, inner, states, rank)])
        }

        fn mixer(width: usize, inner: usize, states: usize, rank: usize) -> Block {
            [
                Linear(2 * inner, bias = false, name = "in_proj"),
                Mul(
                    [
                        Slice(0, inner, dim = -1),
                        // A causal convolution: no token sees later ones. The padding adds three outputs at the end, which are cut off.
                        Transpose(1, 2), Conv1d(inner, 4, padding = 3, groups = inner, name = "conv1d"),
                        Slice(0, -3, dim = -1), Silu, Transpose(1, 2),
                        scan(inner, states, rank),
                    ],
                    [Slice(inner, dim = -1), Silu],
                ),
                Linear(width, bias = false, name = "out_proj"),
            ]
        }

        #[name = ""]
        fn scan(inner: usize, states: usize, rank: usize) -> Block {
            [
                SelectiveScan(
                    [],
                    [
                        Linear(rank + 2 * states, bias = false, name = "x_proj"), tap(selected),
                        Slice(0, rank, dim = -1), StepSizes(inner, name = "dt_proj"),
                    ],
                    [from(selected), Slice(rank, rank + states, dim = -1)],
                    [from(selected), Slice(rank + states, dim = -1)],
                    name = "",
                ),
            ]
        }

        fn backbone(inside: Block) -> Block {
            [inside]
        }
    }
}

network! {
    /// Mamba-130M: 24 layers of 768 features.
    pub struct Mamba130M<const BATCH: usize>;

    use blocks mamba_blocks;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: AdamW { lr: 6e-4, betas: (0.9, 0.95), weight_decay: 0.1 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(text: Tokens<1024>) -> TokenLogits<1024, 50280> {
        let words = Embedding(50280, 768, name = "embeddings");
        [
            backbone([words, repeat(24, layers(768, 1536, 16, 48)), RmsNorm(eps = 1e-5, name = "norm_f")]),
            Tied(words),
        ]
    }
}
