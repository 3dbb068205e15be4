//! DDPM: a network that removes noise from images, step by step.
//!
//! J. Ho, A. Jain and P. Abbeel, "Denoising Diffusion Probabilistic Models" (arXiv:2006.11239), for images of CIFAR-10, as diffusers'
//! `UNet2DModel` of `google/ddpm-cifar10-32`. It predicts the noise in an image after a number of noise steps, and is trained with the mean
//! squared error. Maps of 16 x 16 pixels have attention, and so have those of 4 x 4 in the middle. Parameters and operations were counted
//! on diffusers' module.
//!
//! Names are those of diffusers.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::ddpm::DdpmCifar10;
//!
//! let last = DdpmCifar10::<1>::LAYERS.iter().rfind(|layer| layer.kind == "Linear").unwrap();
//! assert_eq!(last.path, "up_blocks[3].resnets[2].time_emb_proj");
//! ```

use gpumem::{blocks, network};

blocks! {
    /// The blocks of all levels.
    pub mod ddpm_blocks {
        fn resnets(width: usize, step: Block, shortcut: Block) -> Block {
            [
                Add(shortcut, [
                    Add(
                        [
                            GroupNorm(32, eps = 1e-6, name = "norm1"), Silu,
                            Conv2d(width, 3, padding = 1, name = "conv1"),
                        ],
                        [step, Silu, Linear(width, name = "time_emb_proj"), Reshape(width, 1, 1)],
                    ),
                    GroupNorm(32, eps = 1e-6, name = "norm2"), Silu, Conv2d(width, 3, padding = 1, name = "conv2"),
                ]),
            ]
        }

        fn attentions(width: usize, side: usize) -> Block {
            [attention(width, side)]
        }

        #[name = ""]
        fn attention(width: usize, side: usize) -> Block {
            [
                Add([], [
                    GroupNorm(32, eps = 1e-6, name = "group_norm"), Reshape(width, side * side), Transpose(1, 2),
                    Attention(Linear(width, name = "to_q"), Linear(width, name = "to_k"), Linear(width, name = "to_v")),
                    to_out(Linear(width, name = "0")), Transpose(1, 2), Reshape(width, side, side),
                ]),
            ]
        }

        fn to_out(inside: Block) -> Block {
            [inside]
        }

        fn downsamplers(width: usize) -> Block {
            [item([Pad((0, 1, 0, 1)), Conv2d(width, 3, stride = 2, name = "conv")])]
        }

        fn upsamplers(width: usize) -> Block {
            [item([Upsample(2), Conv2d(width, 3, padding = 1, name = "conv")])]
        }

        fn time_embedding(width: usize) -> Block {
            [Linear(width, name = "linear_1"), Silu, Linear(width, name = "linear_2")]
        }

        #[name = "[]"]
        fn item(inside: Block) -> Block {
            [inside]
        }

        fn down_blocks(inside: Block) -> Block {
            [inside]
        }

        fn mid_block(inside: Block) -> Block {
            [inside]
        }

        fn up_blocks(inside: Block) -> Block {
            [inside]
        }
    }
}

network! {
    /// DDPM of images of 32 x 32 pixels: maps of 128, 256, 256 and 256 channels.
    pub struct DdpmCifar10<const BATCH: usize>;

    use blocks ddpm_blocks;

    const TRAIN: Train = Train { batch: BATCH, optimizer: Adam { lr: 2e-4 }, loss: Mse };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 32, 32>, time: Tokens<1>) -> Map<3, 32, 32> {
        [
            from(time), SinusoidalEmbedding(128, shift = 1.0), time_embedding(512), tap(step),
            from(image), Conv2d(128, 3, padding = 1, name = "conv_in"), tap(a0),
            down_blocks([
                resnets(128, from(step), []), tap(a1), resnets(128, from(step), []), tap(a2), downsamplers(128), tap(b0),
            ]),
            down_blocks([
                resnets(256, from(step), Conv2d(256, 1, name = "conv_shortcut")), attentions(256, 16), tap(b1),
                resnets(256, from(step), []), attentions(256, 16), tap(b2), downsamplers(256), tap(c0),
            ]),
            down_blocks([
                resnets(256, from(step), []), tap(c1), resnets(256, from(step), []), tap(c2), downsamplers(256), tap(d0),
            ]),
            down_blocks([resnets(256, from(step), []), tap(d1), resnets(256, from(step), []), tap(d2)]),
            mid_block([
                resnets(256, from(step), []), item(item(attention(256, 4)), name = "attentions"), resnets(256, from(step), []),
            ]),
            up_blocks([
                Concat([], from(d2)), resnets(256, from(step), Conv2d(256, 1, name = "conv_shortcut")),
                Concat([], from(d1)), resnets(256, from(step), Conv2d(256, 1, name = "conv_shortcut")),
                Concat([], from(d0)), resnets(256, from(step), Conv2d(256, 1, name = "conv_shortcut")),
                upsamplers(256),
            ]),
            up_blocks([
                Concat([], from(c2)), resnets(256, from(step), Conv2d(256, 1, name = "conv_shortcut")),
                Concat([], from(c1)), resnets(256, from(step), Conv2d(256, 1, name = "conv_shortcut")),
                Concat([], from(c0)), resnets(256, from(step), Conv2d(256, 1, name = "conv_shortcut")),
                upsamplers(256),
            ]),
            up_blocks([
                Concat([], from(b2)), resnets(256, from(step), Conv2d(256, 1, name = "conv_shortcut")), attentions(256, 16),
                Concat([], from(b1)), resnets(256, from(step), Conv2d(256, 1, name = "conv_shortcut")), attentions(256, 16),
                Concat([], from(b0)), resnets(256, from(step), Conv2d(256, 1, name = "conv_shortcut")), attentions(256, 16),
                upsamplers(256),
            ]),
            up_blocks([
                Concat([], from(a2)), resnets(128, from(step), Conv2d(128, 1, name = "conv_shortcut")),
                Concat([], from(a1)), resnets(128, from(step), Conv2d(128, 1, name = "conv_shortcut")),
                Concat([], from(a0)), resnets(128, from(step), Conv2d(128, 1, name = "conv_shortcut")),
            ]),
            GroupNorm(32, eps = 1e-6, name = "conv_norm_out"), Silu, Conv2d(3, 3, padding = 1, name = "conv_out"),
        ]
    }
}
