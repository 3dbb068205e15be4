//! CLIP: images and texts in one space.
//!
//! A. Radford and others, "Learning Transferable Visual Models From Natural Language Supervision" (arXiv:2103.00020), as transformers'
//! `CLIPModel` of `clip-vit-base-patch32`: a vision transformer on patches of 32 x 32 pixels, and a causal transformer on 77 tokens of a
//! text. The embedding of an image is the output at its class token, that of a text the output at its last token, the end of the text,
//! which has the largest index of the vocabulary. Both are projected to 512 features and divided by their length. Parameters and operations
//! were counted on transformers' module.
//!
//! The outputs are the image, the text, and the image times `exp(logit_scale)`: the products of the last with texts are `logits_per_text`.
//! The loss of CLIP compares each image of a batch with each text, whereas the loss of this network compares a sample with its own target.
//! A training step takes targets of both embeddings, such as those of a teacher, and `logit_scale` does not change.
//!
//! Names are those of transformers. `logit_scale` and `class_embedding` have one axis more here, of length 1.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::clip::ClipVitB32;
//!
//! let parameters: u64 = ClipVitB32::<1>::LAYERS.iter().map(|layer| layer.parameters).sum();
//! assert_eq!(parameters, 151_277_313);
//! ```

use gpumem::{blocks, network};

blocks! {
    /// The transformers of both halves.
    pub mod clip_blocks {
        fn encoder(width: usize, heads: usize, causal: bool) -> Block {
            [repeat(12, layers(width, heads, causal))]
        }

        fn layers(width: usize, heads: usize, causal: bool) -> Block {
            [
                Add([], [LayerNorm(name = "layer_norm1"), self_attn(width, heads, causal)]),
                Add([], [LayerNorm(name = "layer_norm2"), mlp(width)]),
            ]
        }

        fn self_attn(width: usize, heads: usize, causal: bool) -> Block {
            [
                Attention(
                    Linear(width, name = "q_proj"), Linear(width, name = "k_proj"), Linear(width, name = "v_proj"),
                    heads = heads, causal = causal,
                ),
                Linear(width, name = "out_proj"),
            ]
        }

        fn mlp(width: usize) -> Block {
            [Linear(4 * width, name = "fc1"), QuickGelu, Linear(width, name = "fc2")]
        }
    }
}

network! {
    /// transformers' `CLIPModel` of `clip-vit-base-patch32`.
    pub struct ClipVitB32<const BATCH: usize>;

    use blocks clip_blocks;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: AdamW { lr: 5e-4, weight_decay: 0.2 },
        loss: Mse(from = image_embeds, target = image_target) + Mse(from = text_embeds, target = text_target),
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>, text: Tokens<77>) -> (Features<512>, Features<512>, Features<512>) {
        [
            from(image), vision_model(), Linear(512, bias = false, name = "visual_projection"), L2Norm(-1), tap(image_embeds),
            from(text), text_model(from(text)), Linear(512, bias = false, name = "text_projection"), L2Norm(-1),
            tap(text_embeds),
            Outputs(
                from(image_embeds), from(text_embeds),
                // ln(1 / 0.07)
                Mul(from(image_embeds), [Constant([1.0]), Scale(init = 2.6592, parameter = "logit_scale"), Exp]),
            ),
        ]
    }

    fn vision_model() -> Block {
        [embeddings(), LayerNorm(name = "pre_layrnorm"), encoder(768, 12, false), Select(0), LayerNorm(name = "post_layernorm")]
    }

    fn embeddings() -> Block {
        [
            Conv2d(768, 32, stride = 32, bias = false, name = "patch_embedding"), Reshape((768, 49)), Transpose(1, 2),
            ClassToken(parameter = "class_embedding"), Add([], PositionEmbedding(50, name = "position_embedding")),
        ]
    }

    fn text_model(text: Block) -> Block {
        [
            text_embeddings(), encoder(512, 8, true), LayerNorm(name = "final_layer_norm"),
            Take([], [text, ArgMax]), Flatten,
        ]
    }

    #[name = "embeddings"]
    fn text_embeddings() -> Block {
        [Add(Embedding(49408, 512, name = "token_embedding"), PositionEmbedding(77, 512, name = "position_embedding"))]
    }
}
