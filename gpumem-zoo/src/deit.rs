//! DeiT with distillation: a vision transformer that also learns from a teacher's answers.
//!
//! H. Touvron, M. Cord, M. Douze, F. Massa, A. Sablayrolles and H. Jégou, "Training data-efficient image transformers & distillation
//! through attention" (arXiv:2012.12877), as timm's `deit_tiny_distilled_patch16_224`, `deit_small_distilled_patch16_224` and
//! `deit_base_distilled_patch16_224`. Besides the class token there is a second token with a head of its own, which is trained on the
//! teacher's class: a training step takes the labels and the teacher's labels. In inference the output is the mean of both heads. DeiT
//! without distillation is [`vit`](crate::vit). Parameters and operations were counted on timm's modules.
//!
//! Tokens and positions have a first dimension of 1 in the state dict, but not here.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::deit::DeitS16;
//!
//! let parameters: u64 = DeitS16::<1>::LAYERS.iter().map(|layer| layer.parameters).sum();
//! assert_eq!(parameters, 22_436_432);
//! ```

use gpumem::{blocks, network};

blocks! {
    /// The transformer of all sizes.
    pub mod deit_blocks {
        fn patch_embed(width: usize) -> Block {
            [Conv2d(width, 16, stride = 16, name = "proj")]
        }

        fn blocks(width: usize, heads: usize) -> Block {
            [
                Add([], [LayerNorm(eps = 1e-6, name = "norm1"), attn(width, heads)]),
                Add([], [LayerNorm(eps = 1e-6, name = "norm2"), mlp(width)]),
            ]
        }

        fn attn(width: usize, heads: usize) -> Block {
            [Linear(3 * width, name = "qkv"), Attention([], heads = heads), Linear(width, name = "proj")]
        }

        fn mlp(width: usize) -> Block {
            [Linear(4 * width, name = "fc1"), Gelu, Linear(width, name = "fc2")]
        }
    }
}

network! {
    /// timm's `deit_tiny_distilled_patch16_224`.
    pub struct DeitTi16<const BATCH: usize>;

    use blocks deit_blocks;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: AdamW { lr: 5e-4, weight_decay: 0.05 },
        loss: 0.5 * CrossEntropy { label_smoothing: 0.1 }(from = class) + 0.5 * CrossEntropy(from = distilled, target = teacher),
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            patch_embed(192), Reshape((192, 196)), Transpose(1, 2), ClassToken(parameter = "dist_token"),
            ClassToken(parameter = "cls_token"), Add([], PositionEmbedding(198, parameter = "pos_embed")),
            repeat(12, blocks(192, 3)), LayerNorm(eps = 1e-6, name = "norm"), tap(seen),
            Select(0), Linear(1000, name = "head"), tap(class),
            from(seen), Select(1), Linear(1000, name = "head_dist"), tap(distilled),
            Add(from(class), from(distilled)), Affine(0.5),
        ]
    }
}

network! {
    /// timm's `deit_small_distilled_patch16_224`.
    pub struct DeitS16<const BATCH: usize>;

    use blocks deit_blocks;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: AdamW { lr: 5e-4, weight_decay: 0.05 },
        loss: 0.5 * CrossEntropy { label_smoothing: 0.1 }(from = class) + 0.5 * CrossEntropy(from = distilled, target = teacher),
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            patch_embed(384), Reshape((384, 196)), Transpose(1, 2), ClassToken(parameter = "dist_token"),
            ClassToken(parameter = "cls_token"), Add([], PositionEmbedding(198, parameter = "pos_embed")),
            repeat(12, blocks(384, 6)), LayerNorm(eps = 1e-6, name = "norm"), tap(seen),
            Select(0), Linear(1000, name = "head"), tap(class),
            from(seen), Select(1), Linear(1000, name = "head_dist"), tap(distilled),
            Add(from(class), from(distilled)), Affine(0.5),
        ]
    }
}

network! {
    /// timm's `deit_base_distilled_patch16_224`.
    pub struct DeitB16<const BATCH: usize>;

    use blocks deit_blocks;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: AdamW { lr: 5e-4, weight_decay: 0.05 },
        loss: 0.5 * CrossEntropy { label_smoothing: 0.1 }(from = class) + 0.5 * CrossEntropy(from = distilled, target = teacher),
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            patch_embed(768), Reshape((768, 196)), Transpose(1, 2), ClassToken(parameter = "dist_token"),
            ClassToken(parameter = "cls_token"), Add([], PositionEmbedding(198, parameter = "pos_embed")),
            repeat(12, blocks(768, 12)), LayerNorm(eps = 1e-6, name = "norm"), tap(seen),
            Select(0), Linear(1000, name = "head"), tap(class),
            from(seen), Select(1), Linear(1000, name = "head_dist"), tap(distilled),
            Add(from(class), from(distilled)), Affine(0.5),
        ]
    }
}
