//! MLP-Mixer: an image classifier of linear layers alone, alternately over patches and over features.
//!
//! I. Tolstikhin and others, "MLP-Mixer: An all-MLP Architecture for Vision" (arXiv:2105.01601), as timm's
//! `mixer_s16_224` and `mixer_b16_224`: patches of 16 x 16 pixels, eight or twelve layers.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::mixer::MixerS16;
//!
//! assert_eq!(MixerS16::<8>::LAYERS.last().unwrap().output_shape, [1000]);
//! ```

use gpumem::{blocks, network};

blocks! {
    /// The stem, and a layer, which is called `blocks`.
    pub mod mixer_blocks {
        fn stem(channels: usize) -> Block {
            [Conv2d(channels, 16, stride = 16, name = "proj")]
        }

        fn blocks(tokens: usize, between_tokens: usize, channels: usize, between_channels: usize) -> Block {
            [
                Add([], [
                    LayerNorm(eps = 1e-6, name = "norm1"), Transpose(1, 2), mlp_tokens(between_tokens, tokens),
                    Transpose(1, 2),
                ]),
                Add([], [LayerNorm(eps = 1e-6, name = "norm2"), mlp_channels(between_channels, channels)]),
            ]
        }

        fn mlp_tokens(between: usize, features: usize) -> Block {
            [Linear(between, name = "fc1"), Gelu, Linear(features, name = "fc2")]
        }

        fn mlp_channels(between: usize, features: usize) -> Block {
            [Linear(between, name = "fc1"), Gelu, Linear(features, name = "fc2")]
        }
    }
}

network! {
    /// timm's `mixer_s16_224`.
    pub struct MixerS16<const BATCH: usize>;

    use blocks mixer_blocks;

    const TRAIN: Train = Train { batch: BATCH, optimizer: AdamW { lr: 1e-3, weight_decay: 0.1 }, loss: CrossEntropy };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            stem(512), Reshape((512, 196)), Transpose(1, 2),
            repeat(8, blocks(196, 256, 512, 2048)),
            LayerNorm(eps = 1e-6, name = "norm"), Mean(1), Linear(1000, name = "head"),
        ]
    }
}

network! {
    /// timm's `mixer_b16_224`.
    pub struct MixerB16<const BATCH: usize>;

    use blocks mixer_blocks;

    const TRAIN: Train = Train { batch: BATCH, optimizer: AdamW { lr: 1e-3, weight_decay: 0.1 }, loss: CrossEntropy };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            stem(768), Reshape((768, 196)), Transpose(1, 2),
            repeat(12, blocks(196, 384, 768, 3072)),
            LayerNorm(eps = 1e-6, name = "norm"), Mean(1), Linear(1000, name = "head"),
        ]
    }
}
