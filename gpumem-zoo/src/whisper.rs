//! Whisper: a transformer that reads speech and writes it as text.
//!
//! A. Radford and others, "Robust Speech Recognition via Large-Scale Weak Supervision" (arXiv:2212.04356), in the size tiny, as
//! transformers' `WhisperForConditionalGeneration`: half a minute of sound as 3000 spectra of 80 bands, and 448 tokens of text. Two
//! convolutions halve the sound's time steps. Its positions are sines that are not trained, and are part of the state dict. Without a state
//! dict, set `embed_positions.weight` of the encoder, which is initialised at random and not trained. The head shares its weights with the
//! embedding of the tokens. Targets of -100 are padding. Parameters and operations were counted on transformers' module.
//!
//! Names are those of transformers.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::whisper::WhisperTiny;
//!
//! let last = WhisperTiny::<1>::LAYERS.iter().rfind(|layer| layer.kind == "Linear").unwrap();
//! assert_eq!(last.path, "model.decoder.layers[3].fc2");
//! ```

use gpumem::{blocks, network};

blocks! {
    /// Layers of encoder and decoder.
    pub mod whisper_blocks {
        fn layers(width: usize, heads: usize) -> Block {
            [
                Add([], [LayerNorm(name = "self_attn_layer_norm"), self_attn(width, heads, false)]),
                Add([], [LayerNorm(name = "final_layer_norm"), wide(width)]),
            ]
        }

        #[name = "layers"]
        fn decoder_layers(width: usize, heads: usize, heard: Block) -> Block {
            [
                Add([], [LayerNorm(name = "self_attn_layer_norm"), self_attn(width, heads, true)]),
                Add([], [LayerNorm(name = "encoder_attn_layer_norm"), encoder_attn(width, heads, heard)]),
                Add([], [LayerNorm(name = "final_layer_norm"), wide(width)]),
            ]
        }

        fn self_attn(width: usize, heads: usize, causal: bool) -> Block {
            [
                Attention(
                    Linear(width, name = "q_proj"), Linear(width, bias = false, name = "k_proj"),
                    Linear(width, name = "v_proj"), heads = heads, causal = causal,
                ),
                Linear(width, name = "out_proj"),
            ]
        }

        fn encoder_attn(width: usize, heads: usize, heard: Block) -> Block {
            [
                Attention(
                    Linear(width, name = "q_proj"), [heard, Linear(width, bias = false, name = "k_proj")],
                    [heard, Linear(width, name = "v_proj")], heads = heads,
                ),
                Linear(width, name = "out_proj"),
            ]
        }

        #[name = ""]
        fn wide(width: usize) -> Block {
            [Linear(4 * width, name = "fc1"), Gelu, Linear(width, name = "fc2")]
        }

        fn model(inside: Block) -> Block {
            [inside]
        }

        fn encoder(inside: Block) -> Block {
            [inside, LayerNorm(name = "layer_norm")]
        }

        fn decoder(inside: Block) -> Block {
            [inside, LayerNorm(name = "layer_norm")]
        }
    }
}

network! {
    /// Whisper tiny: 4 layers of 384 features each.
    pub struct WhisperTiny<const BATCH: usize>;

    use blocks whisper_blocks;

    const TRAIN: Train = Train { batch: BATCH, optimizer: AdamW { lr: 1.5e-3 }, loss: CrossEntropy { ignore_index: -100 } };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(sound: Signal<80, 3000>, text: Tokens<448>) -> TokenLogits<448, 51865> {
        let words = Embedding(51865, 384, padding_idx = 50257, name = "embed_tokens");
        [
            model([
                from(sound),
                encoder([
                    Conv1d(384, 3, padding = 1, name = "conv1"), Gelu,
                    Conv1d(384, 3, stride = 2, padding = 1, name = "conv2"), Gelu, Transpose(1, 2),
                    Add([], freeze(PositionEmbedding(1500, 384, name = "embed_positions"))), repeat(4, layers(384, 6)),
                ]),
                tap(heard),
                from(text),
                decoder([
                    Add(words, PositionEmbedding(448, 384, name = "embed_positions")),
                    repeat(4, decoder_layers(384, 6, from(heard))),
                ]),
            ]),
            Tied(words),
        ]
    }
}
