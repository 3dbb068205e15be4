//! Vision transformers: an image is a sequence of patches.
//!
//! A. Dosovitskiy and others, "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale" (arXiv:2010.11929), as
//! torchvision's `vit_b_16` and timm's `vit_small_patch16_224`. The two libraries name their modules differently, and each network has the
//! names of its library. DeiT (H. Touvron and others, arXiv:2012.12877) without distillation is this network with another training: timm's
//! `deit_small_patch16_224` loads into [`VitS16`].
//!
//! The class token and the positions have a first dimension of 1 in the state dicts, but not here.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::vit::VitB16;
//!
//! let parameters: u64 = VitB16::<8>::LAYERS.iter().map(|layer| layer.parameters).sum();
//! assert_eq!(parameters, 86_567_656);
//! ```

use gpumem::network;

network! {
    /// torchvision's `vit_b_16`.
    pub struct VitB16<const BATCH: usize>;

    const TRAIN: Train = Train { batch: BATCH, optimizer: AdamW { lr: 3e-3, weight_decay: 0.3 }, loss: CrossEntropy };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            Conv2d(768, 16, stride = 16, name = "conv_proj"), Reshape((768, 196)), Transpose(1, 2),
            ClassToken(parameter = "class_token"), encoder(), Select(0), heads(),
        ]
    }

    fn encoder() -> Block {
        [Add([], PositionEmbedding(197, parameter = "pos_embedding")), layers(), LayerNorm(eps = 1e-6, name = "ln")]
    }

    fn layers() -> Block {
        [
            encoder_layer(name = "encoder_layer_0"), encoder_layer(name = "encoder_layer_1"), encoder_layer(name = "encoder_layer_2"),
            encoder_layer(name = "encoder_layer_3"), encoder_layer(name = "encoder_layer_4"), encoder_layer(name = "encoder_layer_5"),
            encoder_layer(name = "encoder_layer_6"), encoder_layer(name = "encoder_layer_7"), encoder_layer(name = "encoder_layer_8"),
            encoder_layer(name = "encoder_layer_9"), encoder_layer(name = "encoder_layer_10"), encoder_layer(name = "encoder_layer_11"),
        ]
    }

    fn encoder_layer() -> Block {
        [
            Add([], [LayerNorm(eps = 1e-6, name = "ln_1"), MultiHeadAttention(12, name = "self_attention")]),
            Add([], [LayerNorm(eps = 1e-6, name = "ln_2"), mlp()]),
        ]
    }

    fn mlp() -> Block {
        [Linear(3072, name = "0"), Gelu, Linear(768, name = "3")]
    }

    fn heads() -> Block {
        [Linear(1000, name = "head")]
    }
}

network! {
    /// timm's `vit_small_patch16_224`.
    pub struct VitS16<const BATCH: usize>;

    const TRAIN: Train = Train { batch: BATCH, optimizer: AdamW { lr: 1e-3, weight_decay: 0.05 }, loss: CrossEntropy };
    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            patch_embed(), Reshape((384, 196)), Transpose(1, 2), ClassToken(parameter = "cls_token"),
            Add([], PositionEmbedding(197, parameter = "pos_embed")),
            repeat(12, blocks()), LayerNorm(eps = 1e-6, name = "norm"), Select(0), Linear(1000, name = "head"),
        ]
    }

    fn patch_embed() -> Block {
        [Conv2d(384, 16, stride = 16, name = "proj")]
    }

    fn blocks() -> Block {
        [
            Add([], [LayerNorm(eps = 1e-6, name = "norm1"), attn()]),
            Add([], [LayerNorm(eps = 1e-6, name = "norm2"), mlp()]),
        ]
    }

    fn attn() -> Block {
        [Linear(1152, name = "qkv"), Attention([], heads = 6), Linear(384, name = "proj")]
    }

    fn mlp() -> Block {
        [Linear(1536, name = "fc1"), Gelu, Linear(384, name = "fc2")]
    }
}
