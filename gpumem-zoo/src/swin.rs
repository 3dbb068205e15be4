//! Swin: a vision transformer whose attention is within windows, which are shifted in every second layer.
//!
//! Z. Liu and others, "Swin Transformer: Hierarchical Vision Transformer using Shifted Windows" (arXiv:2103.14030), as torchvision's
//! `swin_t`: windows of 7 x 7 positions with a table of biases for their distances; in every second layer the map is rolled by 3, and a
//! mask separates positions that share a window only because of the roll. Between stages four neighbours become one position. Blocks are
//! dropped at random with a probability that grows with the depth, to 0.2.
//!
//! Names are those of torchvision.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::swin::SwinT;
//!
//! assert_eq!(SwinT::<8>::LAYERS.last().unwrap().output_shape, [1000]);
//! ```

use gpumem::network;

network! {
    /// torchvision's `swin_t`.
    pub struct SwinT<const BATCH: usize>;

    use blocks crate::modules;

    const TRAIN: Train = Train { batch: BATCH, optimizer: AdamW { lr: 1e-3, weight_decay: 0.05 }, loss: CrossEntropy };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [features(), LayerNorm(768, name = "norm"), Mean((1, 2)), Linear(1000, name = "head")]
    }

    fn features() -> Block {
        [
            item([Conv2d(96, 4, stride = 4, name = "0"), Permute((0, 2, 3, 1)), LayerNorm(96, name = "2")]),
            item([item(layer(56, 96, 3, false, 0.0)), item(layer(56, 96, 3, true, 0.2 / 11.0))]),
            item(merged(28, 96)),
            item([item(layer(28, 192, 6, false, 0.4 / 11.0)), item(layer(28, 192, 6, true, 0.6 / 11.0))]),
            item(merged(14, 192)),
            item([
                item(layer(14, 384, 12, false, 0.8 / 11.0)), item(layer(14, 384, 12, true, 1.0 / 11.0)),
                item(layer(14, 384, 12, false, 1.2 / 11.0)), item(layer(14, 384, 12, true, 1.4 / 11.0)),
                item(layer(14, 384, 12, false, 1.6 / 11.0)), item(layer(14, 384, 12, true, 1.8 / 11.0)),
            ]),
            item(merged(7, 384)),
            item([item(layer(7, 768, 24, false, 2.0 / 11.0)), item(layer(7, 768, 24, false, 0.2))]),
        ]
    }

    #[name = ""]
    fn layer(side: usize, channels: usize, heads: usize, moves: bool, drop: f64) -> Block {
        [
            Add([], [LayerNorm(channels, name = "norm1"), attn(side, channels, heads, moves), DropPath(drop)]),
            Add([], [LayerNorm(channels, name = "norm2"), mlp(channels), DropPath(drop)]),
        ]
    }

    fn attn(side: usize, channels: usize, heads: usize, moves: bool) -> Block {
        [
            if moves { Roll((-3, -3), (1, 2)) } else { [] },
            Reshape((side / 7, 7, side / 7, 7, channels)), Permute((0, 1, 3, 2, 4, 5)), Reshape((-1, 49, channels)),
            Attention(Linear(channels, 3 * channels, name = "qkv"), position_bias(side, heads, moves), heads = heads),
            Linear(channels, channels, name = "proj"),
            Reshape((side / 7, side / 7, 7, 7, channels)), Permute((0, 1, 3, 2, 4, 5)), Reshape((side, side, channels)),
            if moves { Roll((3, 3), (1, 2)) } else { [] },
        ]
    }

    #[name = ""]
    fn position_bias(side: usize, heads: usize, moves: bool) -> Block {
        [
            if moves {
                Add(
                    RelativePositionBias(heads, size = 7, parameter = "relative_position_bias_table"),
                    ShiftedWindowMask(side, 7, 3),
                )
            } else {
                RelativePositionBias(heads, size = 7, parameter = "relative_position_bias_table")
            },
        ]
    }

    fn mlp(channels: usize) -> Block {
        [
            Linear(channels, 4 * channels, name = "0"), Gelu,
            Linear(4 * channels, channels, name = "3"),
        ]
    }

    /// Joins the features of four neighbours, and maps them to one position with half as many.
    #[name = ""]
    fn merged(side: usize, channels: usize) -> Block {
        [
            Reshape((side, 2, side, 2, channels)), Permute((0, 1, 3, 4, 2, 5)), Reshape((side, side, 4 * channels)),
            LayerNorm(4 * channels, name = "norm"), Linear(4 * channels, 2 * channels, bias = false, name = "reduction"),
        ]
    }
}
