//! Does Llama-3.2-1B fine-tune on an RTX 3060, and Mistral-7B on which card? Their blocks with adapters, without a change to their file, over
//! weights of 16, 8 and 4 bits: a table of `docs/guide/making-it-fit.md` is made here.
#![allow(missing_docs)]

mod pages;

use gpumem::cards::{Card, RTX_3060, RTX_4060, RTX_4090};
use gpumem::weights::torch_name;
use gpumem::{Line, Network, network};
use gpumem_core::memory::budget::budget_at;
use gpumem_core::program::{Class, Program, Tensor};
use gpumem_core::{Precision, Role};
use gpumem_zoo::llama::Llama1B;
use std::fmt::Write as _;

/// Llama-3.2-1B with adapters of queries and values, 512 tokens at a time.
macro_rules! llama {
    ($name:ident, $($option:tt)*) => {
        network! {
            pub struct $name;

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
                lora(8, 16.0, targets = "q_proj, v_proj", $($option)* [
                    model([
                        words,
                        repeat(16, layers(2048, attention(32, 8, 64, 500000.0, false), 8192, Silu, 1e-5)),
                        RmsNorm(eps = 1e-5, name = "norm"),
                    ]),
                    Tied(words),
                ])
            }

            fn model(inside: Block) -> Block {
                [inside]
            }
        }
    };
}

llama!(TunedLlama,);
llama!(TunedLlama8, base = Int8,);
llama!(TunedLlama4, base = Nf4,);
llama!(TunedLlama4Double, base = Nf4Double,);

/// Mistral-7B with adapters of queries and values, 512 tokens at a time.
macro_rules! mistral {
    ($name:ident, $($option:tt)*) => {
        network! {
            pub struct $name;

            use blocks gpumem_zoo::llama::llama_blocks;

            const TRAIN: Train = Train {
                batch: 1,
                optimizer: AdamW { lr: 2e-4 },
                loss: CrossEntropy,
                precision: Mixed(Bf16),
            };

            fn forward(text: Tokens<512>) -> TokenLogits<512, 32768> {
                lora(8, 16.0, targets = "q_proj, v_proj", $($option)* [
                    model([
                        Embedding(32768, 4096, name = "embed_tokens"),
                        repeat(32, layers(4096, attention(32, 8, 128, 1000000.0, false), 14336, Silu, 1e-5)),
                        RmsNorm(eps = 1e-5, name = "norm"),
                    ]),
                    Linear(32768, bias = false, name = "lm_head"),
                ])
            }

            fn model(inside: Block) -> Block {
                [inside]
            }
        }
    };
}

mistral!(TunedMistral,);
mistral!(TunedMistral8, base = Int8,);
mistral!(TunedMistral4, base = Nf4,);
mistral!(TunedMistral4Double, base = Nf4Double,);

/// Names of parameters and their shapes, as state dicts have them.
fn parameters<N: Network>() -> Vec<(String, Vec<u64>)> {
    let program = Program::decode(N::PROGRAM.program).unwrap();
    let is_it = |tensor: &&Tensor| tensor.class == Class::Parameter && tensor.role != Role::Scale;
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
    let tuned = parameters::<TunedLlama>();
    assert_eq!([parameters::<TunedLlama8>(), parameters::<TunedLlama4>()], [tuned.clone(), tuned]);
}

const CARDS: [Card; 3] = [RTX_4060, RTX_3060, RTX_4090];

/// Bytes of frozen parameters, with scales, and of adapters with their master copies.
fn weights<N: Network>() -> [u64; 2] {
    let (program, precision) = (Program::decode(N::PROGRAM.program).unwrap(), N::PROGRAM.precision);
    let mut bytes = [0; 2];
    for tensor in program.tensors.iter().filter(|tensor| tensor.class == Class::Parameter) {
        let master = tensor.role.master(precision).filter(|_| tensor.trained).map_or(0, |format| format.bytes());
        bytes[usize::from(tensor.trained)] += tensor.stored(1).unwrap() * (tensor.role.bytes(precision) + master);
    }
    bytes
}

/// The most samples that a card has room for.
fn most<N: Network>(card: &Card) -> u64 {
    let needs = |batch: u64| {
        let budget = budget_at(N::PROGRAM.tables, batch, N::PROGRAM.precision).unwrap();
        budget.with_reserve(card.reserve())[Line::Total]
    };
    (1..).take_while(|batch| needs(*batch) <= card.usable()).last().unwrap_or(0)
}

fn row<N: Network>(text: &mut String, base: &str) {
    let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    let ([base_bytes, adapters], budget) = (weights::<N>(), N::BUDGET);
    // Nothing is left out of the table but a few words.
    assert_eq!(base_bytes + adapters, budget[Line::Weights] + budget[Line::Master], "{}", N::NAME);
    assert!(budget[Line::Gradients] == 0 && budget[Line::Buffers] + budget[Line::BatchIo] < 1 << 14);
    let numbers =
        [base_bytes, adapters, budget[Line::Optimizer], budget[Line::Activations], budget[Line::Arena]].map(mib);
    let samples: Vec<String> = CARDS.iter().map(|card| most::<N>(card).to_string()).collect();
    writeln!(text, "| {base} | {} | {} |", numbers.join(" | "), samples.join(" | ")).unwrap();
}

#[test]
fn what_bits_of_the_base_leave() {
    let names: Vec<String> = CARDS.iter().map(|card| card.name.replace("GeForce ", "")).collect();
    let mut text = format!(
        "| base | frozen weights | adapters | optimizer | activations | arena | {} |\n| --- | ---: | ---: | ---: | ---: | ---: |{}\n",
        names.join(" | "),
        " ---: |".repeat(CARDS.len())
    );
    row::<TunedLlama>(&mut text, "Llama-3.2-1B, 16 bits");
    row::<TunedLlama8>(&mut text, "`base = Int8`");
    row::<TunedLlama4>(&mut text, "`base = Nf4`");
    row::<TunedLlama4Double>(&mut text, "`base = Nf4Double`");
    row::<TunedMistral>(&mut text, "Mistral-7B, 16 bits");
    row::<TunedMistral8>(&mut text, "`base = Int8`");
    row::<TunedMistral4>(&mut text, "`base = Nf4`");
    row::<TunedMistral4Double>(&mut text, "`base = Nf4Double`");
    pages::check("../docs/guide/making-it-fit.md", "bases", &text);
}

/// 4 bits and a scale for each 64 elements, or 8 and one for each 256, exactly. Activations are the same where the peak is that of the tied head;
/// where it is that of a product with codes, the scratch memory is missing that a product of the library's has there.
#[test]
fn bytes_of_bases() {
    let maps = |sizes: &[u64], layers: u64| sizes.iter().sum::<u64>() * layers;
    let llama = maps(&[2048 * 2048, 512 * 2048, 512 * 2048, 2048 * 2048, 3 * 8192 * 2048], 16);
    let mistral = maps(&[4096 * 4096, 1024 * 4096, 1024 * 4096, 4096 * 4096, 3 * 14336 * 4096], 32) + 32768 * 4096;
    let saved = |whole: [u64; 2], coded: [u64; 2]| whole[0] - coded[0];
    assert_eq!(saved(weights::<TunedLlama>(), weights::<TunedLlama4>()), 2 * llama - llama * 9 / 16);
    assert_eq!(saved(weights::<TunedLlama>(), weights::<TunedLlama8>()), 2 * llama - llama * 65 / 64);
    assert_eq!(saved(weights::<TunedMistral>(), weights::<TunedMistral4>()), 2 * mistral - mistral * 9 / 16);
    assert_eq!(saved(weights::<TunedMistral>(), weights::<TunedMistral8>()), 2 * mistral - mistral * 65 / 64);
    // A byte for each scale, 4 for each 256 of them, and 4 for the mean of each weight's.
    let double = |elements: u64, weights: u64| elements / 2 + elements / 64 + elements / (64 * 64) + 4 * weights;
    assert_eq!(saved(weights::<TunedLlama>(), weights::<TunedLlama4Double>()), 2 * llama - double(llama, 16 * 7));
    let of_mistral = double(mistral, 32 * 7 + 1);
    assert_eq!(saved(weights::<TunedMistral>(), weights::<TunedMistral4Double>()), 2 * mistral - of_mistral);
    assert_eq!(TunedLlama4::BUDGET[Line::Activations], TunedLlama::BUDGET[Line::Activations]);
    let scratch = 32 << 20;
    assert_eq!(TunedMistral4::BUDGET[Line::Activations] + scratch, TunedMistral::BUDGET[Line::Activations]);
    assert_eq!(TunedLlama::PROGRAM.precision, Precision::Mixed(gpumem::Half::Bf16));
    // Llama-3.2-1B on an RTX 3060, 512 tokens at a time.
    let mib = |budget: gpumem::Budget| budget[Line::Total] >> 20;
    assert_eq!([TunedLlama::BUDGET, TunedLlama8::BUDGET, TunedLlama4::BUDGET].map(mib), [3310, 2396, 1976]);
}
