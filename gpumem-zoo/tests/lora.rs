//! Does Llama-3.2-1B fine-tune on an RTX 3060? Its blocks with adapters, without a change to its file.
#![allow(missing_docs)]

use gpumem::{Network, network};
use gpumem_zoo::llama::Llama1B;
use gpumem_zoo::torch_name;

network! {
    /// Llama-3.2-1B with adapters of queries and values, 512 tokens at a time.
    pub struct TunedLlama;

    use blocks gpumem_zoo::llama::llama_blocks;

    const TRAIN: Train = Train {
        batch: 1,
        optimizer: AdamW { lr: 2e-4 },
        loss: CrossEntropy,
        precision: Mixed(Bf16),
        cards: [RTX_3060],
    };

    fn forward(text: Tokens<512>) -> TokenLogits<512, 128256> {
        let words = Embedding(128256, 2048, name = "embed_tokens");
        lora(8, 16.0, targets = "q_proj, v_proj", [
            model([
                words,
                repeat(16, layers(2048, inline_attention(32, 8, 64, 500000.0, false), 8192, Silu, 1e-5)),
                RmsNorm(eps = 1e-5, name = "norm"),
            ]),
            Tied(words),
        ])
    }

    fn model(inside: Block) -> Block {
        [inside]
    }
}

/// Names of parameters and their shapes, as state dicts have them.
fn parameters<N: Network>() -> Vec<(String, Vec<u64>)> {
    let program = gpumem_core::program::Program::decode(N::PROGRAM.program).unwrap();
    let is_it = |tensor: &&gpumem_core::program::Tensor| tensor.class == gpumem_core::program::Class::Parameter;
    let all = program.tensors.iter().filter(is_it);
    all.map(|tensor| (torch_name(&tensor.name), tensor.shape.dims().to_vec())).collect()
}

#[test]
fn weights_are_the_originals_and_adapters_pefts() {
    let (original, tuned) = (parameters::<Llama1B<1>>(), parameters::<TunedLlama>());
    let (adapters, base): (Vec<_>, Vec<_>) = tuned.into_iter().partition(|(name, _)| name.contains(".lora_"));
    assert_eq!(base, original);
    // As PEFT saves them, but for its own `base_model.model.` in front.
    let of_layer = |layer: usize| {
        [("q_proj", 2048), ("v_proj", 512)].map(|(name, width)| {
            let stem = format!("model.layers.{layer}.self_attn.{name}");
            [(format!("{stem}.lora_A.weight"), vec![8, 2048]), (format!("{stem}.lora_B.weight"), vec![width, 8])]
        })
    };
    let expected: Vec<_> = (0..16).flat_map(|layer| of_layer(layer).concat()).collect();
    assert_eq!(adapters, expected);
}
