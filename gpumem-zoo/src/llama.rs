//! Llama and networks like it: transformers with rotary positions, shared keys and values, and gates.
//!
//! TinyLlama-1.1B (P. Zhang and others, arXiv:2401.02385), Llama-3.2-1B (A. Grattafiori and others, "The Llama 3 Herd of Models",
//! arXiv:2407.21783), Qwen2-0.5B (A. Yang and others, arXiv:2407.10671), Mistral-7B-v0.3 (A. Jiang and others, arXiv:2310.06825), which has
//! no sliding window, and Gemma-2B (Gemma Team, arXiv:2403.08295), on 2048 tokens, as in transformers. Normalisation is by the root of the
//! mean square ([`RmsNorm`](gpumem::layers::RmsNorm)), positions turn queries and keys within the attention, and several heads of queries
//! share one of keys and values. Except in TinyLlama and Mistral, the head shares its weights with the embedding of the tokens. Parameters
//! and operations were counted on transformers' modules with the published configurations.
//!
//! Names are those of transformers. Two networks differ slightly from the originals. Llama-3.2's rotary positions are not scaled
//! (`rope_type` `llama3`). Gemma's `RMSNorm` stores its weights minus 1, and the network here stores the weights themselves.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::llama::Qwen500M;
//!
//! let projection = Qwen500M::<1>::LAYERS.iter().find(|layer| layer.kind == "Linear").unwrap();
//! assert_eq!(projection.path, "model.layers[0].self_attn.q_proj");
//! ```

use gpumem::{blocks, network};

blocks! {
    /// A layer of a decoder.
    pub mod llama_blocks {
        fn layers(width: usize, attention: Block, between: usize, activation: Block, eps: f64) -> Block {
            [
                Add([], [
                    RmsNorm(eps = eps, name = "input_layernorm"),
                    self_attn([attention, Linear(width, bias = false, name = "o_proj")]),
                ]),
                Add([], [
                    RmsNorm(eps = eps, name = "post_attention_layernorm"),
                    mlp([
                        Mul(
                            [Linear(between, bias = false, name = "gate_proj"), activation],
                            Linear(between, bias = false, name = "up_proj"),
                        ),
                        Linear(width, bias = false, name = "down_proj"),
                    ]),
                ]),
            ]
        }

        #[name = ""]
        fn attention(heads: usize, kv_heads: usize, head: usize, base: f64, bias: bool) -> Block {
            [
                Concat(
                    Linear(heads * head, bias = bias, name = "q_proj"), Linear(kv_heads * head, bias = bias, name = "k_proj"),
                    Linear(kv_heads * head, bias = bias, name = "v_proj"),
                ),
                CausalAttention(heads, kv_heads = kv_heads, rotary = base),
            ]
        }

        fn self_attn(inside: Block) -> Block {
            [inside]
        }

        fn mlp(inside: Block) -> Block {
            [inside]
        }
    }
}

network! {
    /// TinyLlama-1.1B: 22 layers of 2048 features.
    pub struct TinyLlama<const BATCH: usize>;

    use blocks llama_blocks;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: AdamW { lr: 3e-4, betas: (0.9, 0.95), weight_decay: 0.1 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(text: Tokens<2048>) -> TokenLogits<2048, 32000> {
        [
            model([
                Embedding(32000, 2048, name = "embed_tokens"),
                repeat(22, layers(2048, attention(32, 4, 64, 10000.0, false), 5632, Silu, 1e-5)),
                RmsNorm(eps = 1e-5, name = "norm"),
            ]),
            Linear(32000, bias = false, name = "lm_head"),
        ]
    }

    fn model(inside: Block) -> Block {
        [inside]
    }
}

network! {
    /// Llama-3.2-1B: 16 layers of 2048 features.
    pub struct Llama1B<const BATCH: usize>;

    use blocks llama_blocks;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: AdamW { lr: 3e-4, betas: (0.9, 0.95), weight_decay: 0.1 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(text: Tokens<2048>) -> TokenLogits<2048, 128256> {
        let words = Embedding(128256, 2048, name = "embed_tokens");
        [
            model([
                words,
                repeat(16, layers(2048, attention(32, 8, 64, 500000.0, false), 8192, Silu, 1e-5)),
                RmsNorm(eps = 1e-5, name = "norm"),
            ]),
            Tied(words),
        ]
    }

    fn model(inside: Block) -> Block {
        [inside]
    }
}

network! {
    /// Qwen2-0.5B: 24 layers of 896 features, with biases of queries, keys and values.
    pub struct Qwen500M<const BATCH: usize>;

    use blocks llama_blocks;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: AdamW { lr: 3e-4, betas: (0.9, 0.95), weight_decay: 0.1 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(text: Tokens<2048>) -> TokenLogits<2048, 151936> {
        let words = Embedding(151936, 896, name = "embed_tokens");
        [
            model([
                words,
                repeat(24, layers(896, attention(14, 2, 64, 1000000.0, true), 4864, Silu, 1e-6)),
                RmsNorm(eps = 1e-6, name = "norm"),
            ]),
            Tied(words),
        ]
    }

    fn model(inside: Block) -> Block {
        [inside]
    }
}

network! {
    /// Mistral-7B-v0.3: 32 layers of 4096 features.
    pub struct Mistral7B<const BATCH: usize>;

    use blocks llama_blocks;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: AdamW { lr: 3e-4, betas: (0.9, 0.95), weight_decay: 0.1 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(text: Tokens<2048>) -> TokenLogits<2048, 32768> {
        [
            model([
                Embedding(32768, 4096, name = "embed_tokens"),
                repeat(32, layers(4096, attention(32, 8, 128, 1000000.0, false), 14336, Silu, 1e-5)),
                RmsNorm(eps = 1e-5, name = "norm"),
            ]),
            Linear(32768, bias = false, name = "lm_head"),
        ]
    }

    fn model(inside: Block) -> Block {
        [inside]
    }
}

network! {
    /// Gemma-2B: 18 layers of 2048 features, eight heads of queries on one of keys and values.
    pub struct Gemma2B<const BATCH: usize>;

    use blocks llama_blocks;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: AdamW { lr: 3e-4, betas: (0.9, 0.95), weight_decay: 0.1 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(text: Tokens<2048>) -> TokenLogits<2048, 256000> {
        let words = Embedding(256000, 2048, name = "embed_tokens");
        [
            model([
                words, Affine(45.254834),
                repeat(18, layers(2048, attention(8, 1, 256, 10000.0, false), 16384, Gelu(approximate = "tanh"), 1e-6)),
                RmsNorm(eps = 1e-6, name = "norm"),
            ]),
            Tied(words),
        ]
    }

    fn model(inside: Block) -> Block {
        [inside]
    }
}
