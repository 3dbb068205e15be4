//! T5: a transformer that reads a text and writes another one.
//!
//! C. Raffel and others, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer" (arXiv:1910.10683), in the
//! size small, as transformers' `T5ForConditionalGeneration`, on 512 tokens and an answer of 128. Positions are learned biases for
//! distances in 32 buckets, which the first layer's attention computes and all others share
//! ([`RelativePositionBias`](gpumem::layers::RelativePositionBias)); scores are not scaled. The head shares its weights with the embedding
//! of both texts. Targets of -100 are padding. Parameters and operations were counted on transformers' module.
//!
//! There is no attention mask, so a text must have all of its tokens.
//!
//! Names are those of transformers.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::t5::T5Small;
//!
//! let last = T5Small::<1>::LAYERS.iter().rfind(|layer| layer.kind == "Linear").unwrap();
//! assert_eq!(last.path, "decoder.block[5].layer[2].DenseReluDense.wo");
//! ```

use gpumem::{blocks, network};

blocks! {
    /// Layers of encoder and decoder.
    pub mod t5_blocks {
        fn block(width: usize, heads: usize, bias: Block) -> Block {
            [layer(self_attention(width, heads, bias, false)), layer(dense_relu_dense(width))]
        }

        #[name = "block"]
        fn decoder_block(width: usize, heads: usize, bias: Block, read: Block) -> Block {
            [
                layer(self_attention(width, heads, bias, true)), layer(enc_dec_attention(width, heads, read)),
                layer(dense_relu_dense(width)),
            ]
        }

        fn layer(inside: Block) -> Block {
            [Add([], [RmsNorm(eps = 1e-6, name = "layer_norm"), inside, Dropout(0.1)])]
        }

        #[name = "SelfAttention"]
        fn self_attention(width: usize, heads: usize, bias: Block, causal: bool) -> Block {
            [
                Attention(
                    Linear(width, bias = false, name = "q"), Linear(width, bias = false, name = "k"),
                    Linear(width, bias = false, name = "v"), bias, heads = heads, causal = causal, dropout = 0.1, scale = 1.0,
                ),
                Linear(width, bias = false, name = "o"),
            ]
        }

        #[name = "EncDecAttention"]
        fn enc_dec_attention(width: usize, heads: usize, read: Block) -> Block {
            [
                Attention(
                    Linear(width, bias = false, name = "q"), [read, Linear(width, bias = false, name = "k")],
                    [read, Linear(width, bias = false, name = "v")], heads = heads, dropout = 0.1, scale = 1.0,
                ),
                Linear(width, bias = false, name = "o"),
            ]
        }

        #[name = "DenseReluDense"]
        fn dense_relu_dense(width: usize) -> Block {
            [Linear(4 * width, bias = false, name = "wi"), Relu, Dropout(0.1), Linear(width, bias = false, name = "wo")]
        }

        fn encoder(inside: Block) -> Block {
            [inside, RmsNorm(eps = 1e-6, name = "final_layer_norm"), Dropout(0.1)]
        }

        fn decoder(inside: Block) -> Block {
            [inside, RmsNorm(eps = 1e-6, name = "final_layer_norm"), Dropout(0.1)]
        }
    }
}

network! {
    /// T5 small: 6 layers of 512 features each.
    pub struct T5Small<const BATCH: usize>;

    use blocks t5_blocks;

    const TRAIN: Train = Train { batch: BATCH, optimizer: AdamW { lr: 3e-4 }, loss: CrossEntropy { ignore_index: -100 } };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(text: Tokens<512>, answer: Tokens<128>) -> TokenLogits<128, 32128> {
        let words = Embedding(32128, 512, name = "shared");
        [
            from(text), words, Dropout(0.1),
            encoder([
                block(512, 8, [RelativePositionBias(8, buckets = 32, name = "relative_attention_bias"), tap(around)]),
                repeat(5, block(512, 8, from(around))),
            ]),
            tap(read), from(answer), words, Dropout(0.1),
            decoder([
                decoder_block(
                    512, 8,
                    [
                        RelativePositionBias(8, buckets = 32, bidirectional = false, name = "relative_attention_bias"),
                        tap(before),
                    ],
                    from(read),
                ),
                repeat(5, decoder_block(512, 8, from(before), from(read))),
            ]),
            // 1 / sqrt(512), because the weight is shared with the word embedding.
            Affine(0.04419417382415922), Tied(words),
        ]
    }
}
