//! Low-rank adapters: what training makes of them beside PyTorch, what a budget has for them, and weights that took them in.
#![deny(warnings)]

mod base;

use gpumem::prelude::*;
use gpumem::{Cpu, Kind, Line};
use std::collections::BTreeMap;

/// A network with this around its layers.
macro_rules! network_with {
    ($name:ident, $($settings:tt)*) => {
        network! {
            pub struct $name;

            const TRAIN: Train = Train {
                batch: 3, optimizer: AdamW { lr: 0.01, weight_decay: 0.1 }, loss: CrossEntropy, $($settings)*
            };

            fn forward(words: Tokens<4>) -> TokenLogits<4, 5> {
                [
                    lora(2, 6.0, [
                        Embedding(7, 8, name = "embed"), Linear(8, name = "inner"), Tanh,
                        Add([], MultiHeadAttention(2, name = "attn")),
                        Linear(6, bias = false, transposed, name = "out"), Gelu,
                    ]),
                    Linear(5, name = "head"),
                ]
            }
        }
    };
}

network_with!(Tuned,);
network_with!(Halves, precision: Mixed(Bf16));

network! {
    /// The same without adapters.
    pub struct Plain;

    const TRAIN: Train = Train { batch: 3, optimizer: AdamW { lr: 0.01, weight_decay: 0.1 }, loss: CrossEntropy };

    fn forward(words: Tokens<4>) -> TokenLogits<4, 5> {
        [
            freeze([
                Embedding(7, 8, name = "embed"), Linear(8, name = "inner"), Tanh,
                Add([], MultiHeadAttention(2, name = "attn")),
                Linear(6, bias = false, transposed, name = "out"), Gelu,
            ]),
            Linear(5, name = "head"),
        ]
    }
}

network! {
    /// Adapters of some maps, by the names of layers and of what they are in.
    pub struct Chosen;

    const TRAIN: Train = Train { batch: 3, optimizer: Sgd { lr: 0.1 }, loss: Mse };

    fn forward(x: Sequence<4, 8>) -> Sequence<4, 8> {
        [lora(rank = 4, alpha = 4, repeat(2, [block()]), targets = "first, attn.qkv, layers.*")]
    }

    fn block() -> Block {
        [Linear(8, name = "first"), Linear(8, name = "second"), CausalSelfAttention(2, name = "attn"), layers([Linear(8)])]
    }

    fn layers(inside: Block) -> Block {
        [inside]
    }
}

/// The parameters in the order in which `golden.py` numbers them.
const ORDER: [&str; 18] = [
    "embed.weight",
    "inner.weight",
    "inner.bias",
    "attn.in_proj_weight",
    "attn.in_proj_bias",
    "attn.out_proj.weight",
    "attn.out_proj.bias",
    "out.weight",
    "inner.lora_A.weight",
    "inner.lora_B.weight",
    "attn.lora_A.weight",
    "attn.lora_B.weight",
    "attn.out_proj.lora_A.weight",
    "attn.out_proj.lora_B.weight",
    "out.lora_A.weight",
    "out.lora_B.weight",
    "head.weight",
    "head.bias",
];

fn words() -> <Tuned as Network>::Input {
    Tensor::from_fn(|index| (index * 5 % 7) as u32)
}

fn target() -> <Tuned as Network>::Target {
    Tensor::from_fn(|index| (index * 3 % 5) as u32)
}

fn close(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(0.0f32, |most, value| most.max(value.abs()));
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= 1e-5 * scale, "{what}: {found}, expected {expected}");
    }
}

/// A network that was given the numbers of `golden.py`.
fn begun() -> Net<Tuned, Cpu> {
    let mut net = Tuned::on(&Cpu::with_threads(2).unwrap()).unwrap();
    for (salt, name) in ORDER.iter().enumerate() {
        let count = net.get(name).unwrap().len();
        let spread = |index: usize| (((index * 7919 + salt * 104_729) % 1009) as f64 / 1009.0 - 0.5) as f32;
        net.set(name, &(0..count).map(spread).collect::<Vec<f32>>()).unwrap();
    }
    net
}

#[test]
fn training_is_pytorchs() {
    let lines = include_str!("expected.txt").lines().map(|line| line.split_once(' ').unwrap());
    let numbers = |text: &str| text.split(' ').map(|number| number.parse().unwrap()).collect();
    let expected: BTreeMap<&str, Vec<f32>> = lines.map(|(name, values)| (name, numbers(values))).collect();
    let mut net = begun();
    let frozen: Vec<Vec<f32>> = ORDER[..8].iter().map(|name| net.get(name).unwrap()).collect();
    let losses: Vec<f32> = (0..5).map(|_| net.train_step(&words(), &target()).unwrap()).collect();
    close("losses", &losses, &expected["losses"]);
    close("output", net.forward(&words()).unwrap().as_slice(), &expected["output"]);
    for (name, values) in expected.iter().filter(|(name, _)| ORDER.contains(name)) {
        close(name, &net.get(name).unwrap(), values);
    }
    for (name, values) in ORDER.iter().zip(frozen) {
        assert_eq!(net.get(name).unwrap(), values, "{name}");
    }
}

/// Names are those of the network without adapters, and PEFT's; only adapters and what is outside have states.
#[test]
fn names_are_the_originals_and_pefts() {
    let net = Tuned::on(&Cpu::new()).unwrap();
    let of = |kind: Kind| net.tensors().filter(move |tensor| tensor.kind == kind).map(|tensor| tensor.name);
    let mut names: Vec<&str> = of(Kind::Parameter).collect();
    let mut expected = ORDER.to_vec();
    names.sort_unstable();
    expected.sort_unstable();
    assert_eq!(names, expected);
    assert!(of(Kind::OptimizerState).all(|name| name.contains("lora_") || name.starts_with("head")));
    assert_eq!(of(Kind::OptimizerState).count(), 2 * 10);
    assert_eq!(net.shape("attn.lora_B.weight"), Some(&[24, 2][..]));

    let chosen = Chosen::on(&Cpu::new()).unwrap();
    let adapters: Vec<&str> = chosen.names().filter(|name| name.ends_with("lora_A.weight")).collect();
    let expected = [0, 1].map(|block| {
        ["first", "attn.qkv", "layers.linear"].map(|layer| format!("block[{block}].{layer}.lora_A.weight"))
    });
    assert_eq!(adapters, expected.concat());
}

/// At first an adapter adds nothing: its B is 0, and its A is drawn as PyTorch's is.
#[test]
fn adapters_begin_as_pefts_do() {
    let mut net = Tuned::on(&Cpu::new()).unwrap();
    assert!(net.get("inner.lora_B.weight").unwrap().iter().all(|&value| value == 0.0));
    let a = net.get("inner.lora_A.weight").unwrap();
    let bound = 1.0 / 8.0f32.sqrt();
    assert!(a.iter().all(|value| value.abs() <= bound) && a.iter().any(|value| value.abs() > bound / 2.0), "{a:?}");
    let mut plain = Plain::on(&Cpu::new()).unwrap();
    plain.copy_from(&mut net).unwrap();
    assert_eq!(plain.forward(&words()).unwrap().as_slice(), net.forward(&words()).unwrap().as_slice());
}

/// A network without adapters computes the same once its weights have taken them in.
#[test]
fn merged_weights_compute_the_same() {
    let mut net = begun();
    net.train_step(&words(), &target()).unwrap();
    let merged: Vec<&str> = net.merged_tensors().map(|tensor| tensor.name).collect();
    let mut plain = Plain::on(&Cpu::new()).unwrap();
    let names = plain.tensors().filter(|tensor| tensor.kind == Kind::Parameter);
    assert_eq!(names.map(|tensor| tensor.name).collect::<Vec<_>>(), merged);
    plain.copy_from(&mut net).unwrap();
    let adapted = net.forward(&words()).unwrap();
    let without = plain.forward(&words()).unwrap();
    assert!(
        adapted.as_slice().iter().zip(without.as_slice()).any(|(a, b)| (a - b).abs() > 0.01),
        "adapters do nothing"
    );
    plain.copy_merged_from(&mut net).unwrap();
    close("output", plain.forward(&words()).unwrap().as_slice(), adapted.as_slice());
    // The original's weight, `[in, out]`, and what the adapter adds to it.
    let [w, a, b] = ["out.weight", "out.lora_A.weight", "out.lora_B.weight"].map(|name| net.get(name).unwrap());
    let found = net.get_merged("out.weight").unwrap();
    for (index, (found, w)) in found.iter().zip(w).enumerate() {
        let (input, output) = (index / 6, index % 6);
        let product: f32 = (0..2).map(|rank| b[output * 2 + rank] * a[rank * 8 + input]).sum();
        assert!((found - (w + 3.0 * product)).abs() < 1e-5);
    }
    assert_eq!(net.get_merged("head.weight").unwrap(), net.get("head.weight").unwrap());
}

/// What is frozen has its weights and nothing more: no states, no gradients and, in 16 bits, no master copies.
#[test]
fn budgets_have_states_of_adapters_only() {
    const FROZEN: u64 = 7 * 8 + 8 * 8 + 8 + 24 * 8 + 24 + 8 * 8 + 8 + 8 * 6;
    const TRAINED: u64 = 2 * (8 + 8) + 2 * (8 + 24) + 2 * (8 + 8) + 2 * (8 + 6) + 5 * 6 + 5;
    let count: u64 = Tuned::LAYERS.iter().map(|layer| layer.parameters).sum();
    assert_eq!(count, FROZEN + TRAINED);
    // Tensors begin at multiples of 256 bytes.
    let rounded = |tensors: u64, bytes: u64| bytes..=bytes + 255 * tensors;
    let line = |budget: &gpumem::Budget, line: Line| budget[line];
    assert!(rounded(18, 4 * (FROZEN + TRAINED)).contains(&line(&Tuned::BUDGET, Line::Weights)));
    assert!(rounded(20, 8 * TRAINED).contains(&line(&Tuned::BUDGET, Line::Optimizer)));
    assert!(rounded(18, 2 * (FROZEN + TRAINED)).contains(&line(&Halves::BUDGET, Line::Weights)));
    assert!(rounded(20, 8 * TRAINED).contains(&line(&Halves::BUDGET, Line::Optimizer)));
    assert!(rounded(10, 4 * TRAINED).contains(&line(&Halves::BUDGET, Line::Master)));
}
