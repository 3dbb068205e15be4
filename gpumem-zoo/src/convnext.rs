//! ConvNeXt: a convolutional network with the design of a transformer.
//!
//! Z. Liu and others, "A ConvNet for the 2020s" (arXiv:2201.03545), as torchvision's `convnext_tiny`: depthwise convolutions over 7 x 7
//! pixels, normalisation of each pixel's channels, two linear layers, and a learned scale; blocks are dropped at random with a probability
//! that grows with the depth, to 0.1.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::convnext::ConvNeXtTiny;
//!
//! assert_eq!(ConvNeXtTiny::<8>::LAYERS.last().unwrap().output_shape, [1000]);
//! ```

use gpumem::network;

network! {
    /// torchvision's `convnext_tiny`.
    pub struct ConvNeXtTiny<const BATCH: usize>;

    use blocks crate::modules;

    const TRAIN: Train = Train { batch: BATCH, optimizer: AdamW { lr: 1e-3, weight_decay: 0.05 }, loss: CrossEntropy };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [features(), GlobalAvgPool, classifier()]
    }

    fn features() -> Block {
        [
            item([
                Conv2d(96, 4, stride = 4, name = "0"),
                Permute((0, 2, 3, 1)), LayerNorm(96, eps = 1e-6, name = "1"), Permute((0, 3, 1, 2)),
            ]),
            item([
                item(residual(96, 0.000000)),
                item(residual(96, 0.005882)),
                item(residual(96, 0.011765)),
            ]),
            item(narrower(96, 192)),
            item([
                item(residual(192, 0.017647)),
                item(residual(192, 0.023529)),
                item(residual(192, 0.029412)),
            ]),
            item(narrower(192, 384)),
            item([
                item(residual(384, 0.035294)),
                item(residual(384, 0.041176)),
                item(residual(384, 0.047059)),
                item(residual(384, 0.052941)),
                item(residual(384, 0.058824)),
                item(residual(384, 0.064706)),
                item(residual(384, 0.070588)),
                item(residual(384, 0.076471)),
                item(residual(384, 0.082353)),
            ]),
            item(narrower(384, 768)),
            item([
                item(residual(768, 0.088235)),
                item(residual(768, 0.094118)),
                item(residual(768, 0.100000)),
            ]),
        ]
    }

    fn classifier() -> Block {
        [LayerNorm(eps = 1e-6, name = "0"), Linear(1000, name = "2")]
    }

    #[name = ""]
    fn narrower(from: usize, to: usize) -> Block {
        [
            Permute((0, 2, 3, 1)), LayerNorm(from, eps = 1e-6, name = "0"), Permute((0, 3, 1, 2)),
            Conv2d(to, 2, stride = 2, name = "1"),
        ]
    }

    #[name = ""]
    fn residual(channels: usize, drop: f64) -> Block {
        [Add(
            [],
            [
                block([
                    Conv2d(channels, 7, padding = 3, groups = channels, name = "0"), Permute((0, 2, 3, 1)),
                    LayerNorm(channels, eps = 1e-6, name = "2"), Linear(channels, 4 * channels, name = "3"), Gelu,
                    Linear(4 * channels, channels, name = "5"),
                    Permute((0, 3, 1, 2)),
                ]),
                Scale(init = 1e-6, parameter = "layer_scale"), DropPath(drop),
            ],
        )]
    }
}
