//! wav2vec 2.0: a transformer that hears speech as it was recorded, and says which letter each 20 ms of it are.
//!
//! A. Baevski, H. Zhou, A. Mohamed and M. Auli, "wav2vec 2.0: A Framework for Self-Supervised Learning of Speech Representations"
//! (arXiv:2006.11477), in the size base, as `Wav2Vec2ForCTC` of transformers has it: ten seconds of 16000 samples each, and 31 letters and
//! signs besides the blank. Seven convolutions make 499 steps of the samples. What tells steps apart is one more convolution, over 128
//! steps, whose weight is a length for each of its taps times a direction: weight norm. Layers normalise after they add. Parameters and
//! operations were counted on transformers' module.
//!
//! A target is what was said, up to 200 letters, as `u32`: class 0, the blank, ends one that is shorter. It needs no letter for each step:
//! `Ctc` sums over all ways to write it. The loss is the sum over samples, as `ctc_loss_reduction` says.
//!
//! The original has one parameter more, `wav2vec2.masked_spec_embed`, 768 numbers that stand in for steps which its own training hides.
//! Here nothing is hidden, and no step skips layers at random (`layerdrop`).
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
    /// What is below the head.
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
            // As many taps as that have no middle: the padding gives a step too many.
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
