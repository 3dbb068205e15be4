//! GPT-2 small, a token at a time with a cache, beside the whole sequence.

use gpumem::prelude::*;
use gpumem_zoo::gpt2::gpt2_blocks;

macro_rules! gpt2 {
    ($(#[$doc:meta])* $name:ident, $steps:literal, $infer:expr) => {
        network! {
            $(#[$doc])*
            pub struct $name;

            use blocks gpt2_blocks;

            const INFER: Infer = $infer;

            fn forward(tokens: Tokens<$steps>) -> TokenLogits<$steps, 50257> {
                let wte = Embedding(50257, 768, name = "wte");
                [
                    Add(wte, PositionEmbedding(1024, 768, name = "wpe")),
                    repeat(12, h(768, 12)), LayerNorm(name = "ln_f"), Tied(wte),
                ]
            }
        }
    };
}

gpt2! {
    /// All tokens at once.
    Whole, 40, Infer { batch: 1 }
}

gpt2! {
    /// One at a time, or sixteen.
    Cached, 1024, Infer { batch: 1, cache: 64, chunk: 16 }
}

#[test]
fn decoding_gives_the_logits_of_the_whole_sequence() {
    let device = gpumem::Cpu::with_threads(2).unwrap();
    let mut whole = Whole::on(&device).unwrap();
    let mut net = Cached::on(&device).unwrap();
    net.copy_from(&mut whole).unwrap();
    let tokens: Vec<u32> = (0..40).map(|index| index * index * 2357 % 50257).collect();
    let all = whole.forward(&Tensor::from_vec(tokens.clone()).unwrap()).unwrap();
    let all: Vec<&[f32]> = all.as_slice().chunks(50257).collect();
    let largest = all[39].iter().fold(0.0_f32, |largest, logit| largest.max(logit.abs()));
    assert!(largest > 0.5, "the logits say nothing: {largest}");
    // A prompt in chunks, and then one token after the other.
    let mut logits = net.extend(&[&tokens[..35]]).unwrap();
    for step in 35..=40 {
        let difference = logits
            .iter()
            .zip(all[step - 1])
            .fold(0.0_f32, |most, (found, expected)| most.max((found - expected).abs()));
        assert!(difference <= 1e-5 * largest, "step {step}: {difference} beside {largest}");
        if step < 40 {
            logits = net.extend(&[&tokens[step..=step]]).unwrap();
        }
    }
}
