//! Transformers whose branches end with a learned factor for each channel (LayerScale), as timm has them.

use gpumem::network;

network! {
    /// timm's `vit_small_patch14_dinov2` for images of 224 x 224, with a head: Oquab et al., "DINOv2" (arXiv:2304.07193).
    pub struct DinoV2Small<const BATCH: usize>;

    const TRAIN: Train = Train { batch: BATCH, optimizer: AdamW { lr: 1e-3, weight_decay: 0.05 }, loss: CrossEntropy };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            Conv2d(384, 14, stride = 14), Reshape((384, 256)), Transpose(1, 2), ClassToken, Add([], PositionEmbedding(257)),
            repeat(12, [
                Add([], [LayerNorm(eps = 1e-6), Linear(1152), Attention([], heads = 6), Linear(384), Scale(init = 1e-5)]),
                Add([], [LayerNorm(eps = 1e-6), Linear(1536), Gelu, Linear(384), Scale(init = 1e-5)]),
            ]),
            LayerNorm(eps = 1e-6), Select(0), Linear(1000),
        ]
    }
}

network! {
    /// timm's `cait_xxs24_224`: Touvron et al., "Going deeper with image transformers" (arXiv:2103.17239).
    pub struct CaiTXxs24<const BATCH: usize>;

    const TRAIN: Train = Train { batch: BATCH, optimizer: AdamW { lr: 1e-3, weight_decay: 0.05 }, loss: CrossEntropy };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            Conv2d(192, 16, stride = 16), Reshape((192, 196)), Transpose(1, 2), Add([], PositionEmbedding(196)),
            repeat(24, [
                Add([], [LayerNorm(eps = 1e-6), talking_heads(), Scale(init = 1e-5)]),
                Add([], [LayerNorm(eps = 1e-6), mlp()]),
            ]),
            tap(patches),
            Parameter((1, 192), init = TruncatedNormal(0.02)),
            repeat(2, [
                Add([], [Concat([], from(patches), dim = 1), LayerNorm(eps = 1e-6), class_attention(), Scale(init = 1e-5)]),
                Add([], [LayerNorm(eps = 1e-6), mlp()]),
            ]),
            Concat([], from(patches), dim = 1), LayerNorm(eps = 1e-6), Select(0), Linear(1000),
        ]
    }

    fn mlp() -> Block {
        [Linear(768), Gelu, Linear(192), Scale(init = 1e-5)]
    }

    /// Attention whose scores are mixed between the heads before and after the softmax.
    fn talking_heads() -> Block {
        [
            Linear(576), Reshape((196, 3, 4, 48)), Permute((0, 2, 3, 1, 4)),
            MatMul(
                [
                    MatMul([Select(0), Affine(0.14433756729740643)], [Select(1)], transpose_b),
                    Permute((0, 2, 3, 1)), Linear(4, 4), Permute((0, 3, 1, 2)), Softmax,
                    Permute((0, 2, 3, 1)), Linear(4, 4), Permute((0, 3, 1, 2)),
                ],
                [Select(2)],
            ),
            Permute((0, 2, 1, 3)), Reshape((196, 192)), Linear(192),
        ]
    }

    /// Attention of the first token to all.
    fn class_attention() -> Block {
        [Attention([Slice(0, 1, dim = 1), Linear(192)], [Linear(192)], [Linear(192)], heads = 4), Linear(192)]
    }
}
