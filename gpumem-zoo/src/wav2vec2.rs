//! wav2vec 2.0: a transformer that reads recorded speech, and classifies each 20 ms of it as a letter.
//!
//! A. Baevski, H. Zhou, A. Mohamed and M. Auli, "wav2vec 2.0: A Framework for Self-Supervised Learning of Speech Representations"
//! (arXiv:2006.11477), in the size base, as transformers' `Wav2Vec2ForCTC`: ten seconds of 16000 samples each, and 31 letters and signs
//! besides the blank. Seven convolutions turn the samples into 499 time steps. Positions come from one more convolution, over 128 steps,
//! whose weight has weight norm with a length for each tap. Layers normalise after the residual sums. Parameters and operations were
//! counted on transformers' module.
//!
//! A target is the text that was said, up to 200 letters, as `u32`: class 0, the blank, ends a shorter one. It is not aligned to steps:
//! `Ctc` sums over all alignments. The loss is the sum over samples, like the original's `ctc_loss_reduction`.
//!
//! The original has one parameter more, `wav2vec2.masked_spec_embed`, 768 numbers that replace masked steps in its training. Here no steps
//! are masked, and no layers are skipped at random (`layerdrop`).
//!
//! Names are those of transformers.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::wav2vec2::Wav2Vec2Base;
//!
//! let places = Wav2Vec2Base::<1>::LAYERS.iter().find(|layer| layer.path.contains("pos_conv") && layer.parameters > 0);
//! assert_eq!(places.unwrap().path, "wav2vec2.encoder.pos_conv_embed.conv");
//! ```

use gpumem::{blocks, network};

blocks! {
    /// The network without the head.
    pub mod wav2vec2_blocks {
        fn wav2vec2(layers: usize, width: usize, heads: usize) -> Block {
            [feature_extractor(512), Transpose(1, 2), feature_projection(width), encoder(layers, width, heads)]
        }

        fn feature_extractor(channels: usize) -> Block {
            [
                conv_layers(channels, 10, 5, GroupNorm(channels, name = "layer_norm")),
                repeat(4, conv_layers(channels, 3, 2, [])), repeat(2, conv_layers(channels, 2, 2, [])),
            ]
        }

        fn conv_layers(channels: usize, size: usize, stride: usize, norm: Block) -> Block {
            [Conv1d(channels, size, stride = stride, bias = false, name = "conv"), norm, Gelu]
        }

        fn feature_projection(width: usize) -> Block {
            [LayerNorm(name = "layer_norm"), Linear(width, name = "projection"), Dropout(0.1)]
        }

        fn encoder(count: usize, width: usize, heads: usize) -> Block {
            [
                Add([], pos_conv_embed(width)), LayerNorm(name = "layer_norm"), Dropout(0.1),
                repeat(count, layers(width, heads)),
            ]
        }

        fn pos_conv_embed(width: usize) -> Block {
            // An even number of taps has no middle, so the padding adds one step too many.
            [
                Transpose(1, 2), Conv1d(width, 128, padding = 64, groups = 16, weight_norm = 2, name = "conv"),
                Pad((0, -1)), Gelu, Transpose(1, 2),
            ]
        }

        fn layers(width: usize, heads: usize) -> Block {
            [
                Add([], [attention(width, heads), Dropout(0.1)]), LayerNorm(name = "layer_norm"),
                Add([], feed_forward(width)), LayerNorm(name = "final_layer_norm"),
            ]
        }

        fn attention(width: usize, heads: usize) -> Block {
            [
                Attention(
                    Linear(width, name = "q_proj"), Linear(width, name = "k_proj"), Linear(width, name = "v_proj"),
                    heads = heads, dropout = 0.1,
                ),
                Linear(width, name = "out_proj"),
            ]
        }

        fn feed_forward(width: usize) -> Block {
            [
                Linear(4 * width, name = "intermediate_dense"), Gelu, Dropout(0.1),
                Linear(width, name = "output_dense"), Dropout(0.1),
            ]
        }
    }
}

network! {
    /// transformers' `Wav2Vec2ForCTC` of `wav2vec2-base-960h`: 12 layers of 768 features.
    pub struct Wav2Vec2Base<const BATCH: usize>;

    use blocks wav2vec2_blocks;

    const TRAIN: Train = Train { batch: BATCH, optimizer: AdamW { lr: 1e-4 }, loss: Ctc { target_length: 200, reduction: Sum } };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(sound: Signal<1, 160000>) -> TokenLogits<499, 32> {
        [wav2vec2(12, 768, 12), Dropout(0.1), Linear(32, name = "lm_head"), LogSoftmax]
    }
}
