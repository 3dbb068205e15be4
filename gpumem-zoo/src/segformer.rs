//! SegFormer: a transformer that classifies each pixel.
//!
//! E. Xie and others, "SegFormer: Simple and Efficient Design for Semantic Segmentation with Transformers" (arXiv:2105.15203), as
//! transformers' `SegformerForSemanticSegmentation` in the size B0, with 150 classes and images of 256 x 256. Keys and values come from a
//! smaller map than queries. There are no position embeddings; convolutions see positions through their padding. The head joins the maps of
//! all four stages. Blocks are dropped at random with a probability that grows with the depth, to 0.1. Each class is for 4 x 4 pixels, and
//! targets of 255 are ignored. transformers' training resizes the output to the image's size before the loss.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::segformer::SegFormerB0;
//!
//! assert_eq!(SegFormerB0::<8>::LAYERS.last().unwrap().output_shape, [150, 64, 64]);
//! ```

use gpumem::network;

network! {
    /// transformers' `SegformerForSemanticSegmentation(SegformerConfig(num_labels=150))`.
    pub struct SegFormerB0<const BATCH: usize>;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: AdamW { lr: 6e-5, weight_decay: 0.01 },
        loss: CrossEntropy { ignore_index: 255 },
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 256, 256>) -> Map<150, 64, 64> {
        [
            segformer([
                stage_1(name = "stages"), tap(first), stage_2(name = "stages"), tap(second), stage_3(name = "stages"), tap(third),
                stage_4(name = "stages"), tap(fourth),
            ]),
            decode_head([
                from(first), linear_projections(32, 64), tap(finest), from(second), linear_projections(64, 32), tap(finer),
                from(third), linear_projections(160, 16), tap(coarser), from(fourth), linear_projections(256, 8),
                Concat([], from(coarser), from(finer), from(finest)),
                Conv2d(256, 1, bias = false, name = "linear_fuse"), BatchNorm2d(name = "batch_norm"), Relu, Dropout(0.1),
                Conv2d(150, 1, name = "classifier"),
            ]),
        ]
    }

    fn segformer(inside: Block) -> Block {
        [inside]
    }

    fn decode_head(inside: Block) -> Block {
        [inside]
    }

    #[name = ""]
    fn stage_1() -> Block {
        [
            patch_embeddings(32, 7, 4), blocks(32, 1, 64, 8, true, 0.0), blocks(32, 1, 64, 8, true, 0.1 / 7.0),
            map(32, 64),
        ]
    }

    #[name = ""]
    fn stage_2() -> Block {
        [
            patch_embeddings(64, 3, 2), blocks(64, 2, 32, 4, true, 0.2 / 7.0), blocks(64, 2, 32, 4, true, 0.3 / 7.0),
            map(64, 32),
        ]
    }

    #[name = ""]
    fn stage_3() -> Block {
        [
            patch_embeddings(160, 3, 2), blocks(160, 5, 16, 2, true, 0.4 / 7.0), blocks(160, 5, 16, 2, true, 0.5 / 7.0),
            map(160, 16),
        ]
    }

    #[name = ""]
    fn stage_4() -> Block {
        [
            patch_embeddings(256, 3, 2), blocks(256, 8, 8, 1, false, 0.6 / 7.0), blocks(256, 8, 8, 1, false, 0.1),
            map(256, 8),
        ]
    }

    /// A map as rows, one for each pixel.
    #[name = ""]
    fn rows(channels: usize) -> Block {
        [Reshape((channels, -1)), Transpose(1, 2)]
    }

    #[name = ""]
    fn columns(channels: usize, side: usize) -> Block {
        [Transpose(1, 2), Reshape((channels, side, side))]
    }

    #[name = ""]
    fn map(channels: usize, side: usize) -> Block {
        [LayerNorm(name = "layer_norm"), columns(channels, side)]
    }

    fn patch_embeddings(channels: usize, size: usize, stride: usize) -> Block {
        [
            Conv2d(channels, size, stride = stride, padding = size / 2, name = "proj"), rows(channels),
            LayerNorm(name = "layer_norm"),
        ]
    }

    fn blocks(channels: usize, heads: usize, side: usize, ratio: usize, reduces: bool, drop: f64) -> Block {
        [
            Add([], [
                LayerNorm(name = "layernorm_before"), attention(channels, heads, side, ratio, reduces), DropPath(drop),
            ]),
            Add([], [LayerNorm(name = "layernorm_after"), mlp(channels, side), DropPath(drop)]),
        ]
    }

    fn attention(channels: usize, heads: usize, side: usize, ratio: usize, reduces: bool) -> Block {
        [
            tap(queries), if reduces { sequence_reduction(channels, side, ratio) } else { [] }, tap(keys),
            Attention(
                [from(queries), Linear(channels, name = "q_proj")], [from(keys), Linear(channels, name = "k_proj")],
                [from(keys), Linear(channels, name = "v_proj")],
                heads = heads,
            ),
            Linear(channels, name = "o_proj"),
        ]
    }

    fn sequence_reduction(channels: usize, side: usize, ratio: usize) -> Block {
        [
            columns(channels, side), Conv2d(channels, ratio, stride = ratio, name = "sequence_reduction"),
            rows(channels), LayerNorm(name = "layer_norm"),
        ]
    }

    fn mlp(channels: usize, side: usize) -> Block {
        [Linear(4 * channels, name = "fc1"), dwconv(4 * channels, side), Gelu, Linear(channels, name = "fc2")]
    }

    fn dwconv(channels: usize, side: usize) -> Block {
        [
            columns(channels, side), Conv2d(channels, 3, padding = 1, groups = channels, name = "dwconv"),
            rows(channels),
        ]
    }

    fn linear_projections(channels: usize, side: usize) -> Block {
        [
            rows(channels), Linear(256, name = "proj"), columns(256, side),
            Upsample(size = 64, mode = "bilinear"),
        ]
    }
}
