//! GPT-2: a transformer that predicts the next token.
//!
//! A. Radford, J. Wu, R. Child, D. Luan, D. Amodei and I. Sutskever, "Language Models are Unsupervised Multitask Learners" (OpenAI, 2019),
//! in the sizes small, medium, large and XL, with 1024 tokens and without dropout, as in nanoGPT and transformers' `GPT2LMHeadModel`. The
//! head shares its weights with the embedding of the tokens. Among the largest tensors are the logits, 50257 for each token.
//!
//! Names are those of transformers without the prefix `transformer.`. Shapes are equal too: its `Conv1D` stores the transposed matrix,
//! `[in, out]`.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::gpt2::Gpt2;
//!
//! let parameters: u64 = Gpt2::<1>::LAYERS.iter().map(|layer| layer.parameters).sum();
//! assert_eq!(parameters, 124_439_808);
//! ```

use gpumem::{blocks, network};

blocks! {
    /// A layer, `h`, and its two halves.
    pub mod gpt2_blocks {
        fn h(width: usize, heads: usize) -> Block {
            [
                Add([], [LayerNorm(name = "ln_1"), attn(width, heads)]),
                Add([], [LayerNorm(name = "ln_2"), mlp(width)]),
            ]
        }

        fn attn(width: usize, heads: usize) -> Block {
            [Linear(3 * width, transposed, name = "c_attn"), CausalAttention(heads), Linear(width, transposed, name = "c_proj")]
        }

        fn mlp(width: usize) -> Block {
            [
                Linear(4 * width, transposed, name = "c_fc"), Gelu(approximate = "tanh"),
                Linear(width, transposed, name = "c_proj"),
            ]
        }
    }
}

network! {
    /// GPT-2 small: 12 layers of 768 features.
    pub struct Gpt2<const BATCH: usize>;

    use blocks gpt2_blocks;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: AdamW { lr: 6e-4, betas: (0.9, 0.95), weight_decay: 0.1 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(tokens: Tokens<1024>) -> TokenLogits<1024, 50257> {
        let wte = Embedding(50257, 768, name = "wte");
        [
            Add(wte, PositionEmbedding(1024, 768, name = "wpe")),
            repeat(12, h(768, 12)), LayerNorm(name = "ln_f"), Tied(wte),
        ]
    }
}

network! {
    /// GPT-2 medium: 24 layers of 1024 features.
    pub struct Gpt2Medium<const BATCH: usize>;

    use blocks gpt2_blocks;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: AdamW { lr: 6e-4, betas: (0.9, 0.95), weight_decay: 0.1 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(tokens: Tokens<1024>) -> TokenLogits<1024, 50257> {
        let wte = Embedding(50257, 1024, name = "wte");
        [
            Add(wte, PositionEmbedding(1024, 1024, name = "wpe")),
            repeat(24, h(1024, 16)), LayerNorm(name = "ln_f"), Tied(wte),
        ]
    }
}

network! {
    /// GPT-2 large: 36 layers of 1280 features.
    pub struct Gpt2Large<const BATCH: usize>;

    use blocks gpt2_blocks;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: AdamW { lr: 6e-4, betas: (0.9, 0.95), weight_decay: 0.1 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(tokens: Tokens<1024>) -> TokenLogits<1024, 50257> {
        let wte = Embedding(50257, 1280, name = "wte");
        [
            Add(wte, PositionEmbedding(1024, 1280, name = "wpe")),
            repeat(36, h(1280, 20)), LayerNorm(name = "ln_f"), Tied(wte),
        ]
    }
}

network! {
    /// GPT-2 XL: 48 layers of 1600 features.
    pub struct Gpt2Xl<const BATCH: usize>;

    use blocks gpt2_blocks;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: AdamW { lr: 6e-4, betas: (0.9, 0.95), weight_decay: 0.1 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(tokens: Tokens<1024>) -> TokenLogits<1024, 50257> {
        let wte = Embedding(50257, 1600, name = "wte");
        [
            Add(wte, PositionEmbedding(1024, 1600, name = "wpe")),
            repeat(48, h(1600, 25)), LayerNorm(name = "ln_f"), Tied(wte),
        ]
    }
}
