//! Weights in 8 and 4 bits under low-rank adapters: the step is that of the numbers that the codes say.

use super::close;
use gpumem::prelude::*;
use gpumem::{Cpu, Kind, Line};
use gpumem_core::Role;
use gpumem_core::number::Coding;
use gpumem_core::program::{Action, Class, Op, Operation, Pass, Program, Slot};

/// A network with adapters, or the same one with its base in codes.
macro_rules! network_of {
    ($name:ident, { $($settings:tt)* }, { $($option:tt)* } $(, #[$attribute:meta])*) => {
        network! {
            pub struct $name;

            const TRAIN: Train = Train {
                batch: 4, optimizer: AdamW { lr: 0.01 }, loss: CrossEntropy, seed: 5, $($settings)*
            };

            fn forward(words: Tokens<4>) -> TokenLogits<4, 5> {
                let twice = Linear(24, name = "twice");
                [
                    lora(2, 6.0, $($option)* [
                        Embedding(7, 24, name = "embed"), twice, Tanh, repeat(2, block()),
                        Linear(17, bias = false, transposed, name = "out"), Gelu, Linear(24, name = "back"), twice,
                    ]),
                    Linear(5, name = "head"),
                ]
            }

            $(#[$attribute])*
            fn block() -> Block {
                Add([], [LayerNorm, MultiHeadAttention(2, name = "attn"), Linear(24, name = "fc"), Gelu])
            }
        }
    };
}

network_of!(Whole, {}, { targets = "twice, attn, out", });
network_of!(Eight, {}, { targets = "twice, attn, out", base = Int8, });
network_of!(Four, {}, { base = Nf4, targets = "twice, attn, out", });
network_of!(FourDouble, {}, { base = Nf4Double, targets = "twice, attn, out", });
network_of!(FourByHand, {}, { base = Nf4, targets = "twice, attn, out", }, #[checkpoint]);
network_of!(FourLean, { checkpoint: Budget(0.8) }, { base = Nf4, targets = "twice, attn, out", });
network_of!(FourInParts, { micro_batches: 2 }, { base = Nf4, targets = "twice, attn, out", });
network_of!(WholeInParts, { micro_batches: 2 }, { targets = "twice, attn, out", });
network_of!(HalfWhole, { precision: Mixed(Bf16) }, { targets = "twice, attn, out", });
network_of!(HalfFour, { precision: Mixed(Bf16) }, { base = Nf4, targets = "twice, attn, out", });

/// The weights that are kept in codes, and their elements.
const CODED: [(&str, u64); 9] = [
    ("twice.weight", 24 * 24),
    ("block[0].attn.in_proj_weight", 72 * 24),
    ("block[0].attn.out_proj.weight", 24 * 24),
    ("block[0].fc.weight", 24 * 24),
    ("block[1].attn.in_proj_weight", 72 * 24),
    ("block[1].attn.out_proj.weight", 24 * 24),
    ("block[1].fc.weight", 24 * 24),
    ("out.weight", 24 * 17),
    ("back.weight", 17 * 24),
];

fn words() -> <Four as Network>::Input {
    Tensor::from_fn(|index| (index * 5 % 7) as u32)
}

fn target() -> <Four as Network>::Target {
    Tensor::from_fn(|index| (index * 3 % 5) as u32)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// What the codes of some numbers say.
fn said(coding: Coding, values: &[f32]) -> Vec<f32> {
    let (codes, scales) = coding.quantize(values);
    let mut said = vec![0.0; values.len()];
    coding.dequantize(&codes, &scales, &mut said);
    said
}

/// Steps of two networks that hold the same numbers, one of them as codes: the same bits.
macro_rules! same_steps {
    ($whole:ident, $coded:ident, $cpu:expr) => {{
        let (mut whole, mut coded) = ($whole::on(&$cpu).unwrap(), $coded::on(&$cpu).unwrap());
        whole.copy_from(&mut coded).unwrap();
        for (name, _) in CODED {
            assert_eq!(bits(&whole.get(name).unwrap()), bits(&coded.get(name).unwrap()), "{name}");
        }
        for step in 0..4 {
            let [found, expected] =
                [coded.train_step(&words(), &target()).unwrap(), whole.train_step(&words(), &target()).unwrap()];
            assert_eq!(found.to_bits(), expected.to_bits(), "{}, step {step}", stringify!($coded));
        }
        let names: Vec<String> = whole.names().map(String::from).collect();
        assert_eq!(names, coded.names().collect::<Vec<_>>());
        for name in &names {
            assert_eq!(bits(&coded.get(name).unwrap()), bits(&whole.get(name).unwrap()), "{name}");
        }
        let [found, expected] = [coded.eval_loss(&words(), &target()), whole.eval_loss(&words(), &target())];
        assert_eq!(found.unwrap().to_bits(), expected.unwrap().to_bits());
        let [found, expected] = [coded.forward(&words()).unwrap(), whole.forward(&words()).unwrap()];
        assert_eq!(bits(found.as_slice()), bits(expected.as_slice()));
    }};
}

#[test]
fn steps_are_those_of_what_codes_say() {
    let cpu = Cpu::with_threads(2).unwrap();
    same_steps!(Whole, Eight, cpu);
    same_steps!(Whole, Four, cpu);
    same_steps!(Whole, FourDouble, cpu);
    same_steps!(Whole, FourByHand, cpu);
    same_steps!(Whole, FourLean, cpu);
    same_steps!(WholeInParts, FourInParts, cpu);
    same_steps!(HalfWhole, HalfFour, Cpu::new().emulate());
}

/// A weight that is set has the nearest codes; names and shapes are those of the network without codes.
#[test]
fn weights_are_set_and_read_as_numbers() {
    let (mut whole, mut four, mut eight) =
        (Whole::on(&Cpu::new()).unwrap(), Four::on(&Cpu::new()).unwrap(), Eight::on(&Cpu::new()).unwrap());
    // Before anything is set, too: drawn as without codes.
    for (name, _) in CODED {
        let drawn = whole.get(name).unwrap();
        assert_eq!(bits(&four.get(name).unwrap()), bits(&said(Coding::Nf4, &drawn)), "{name}");
        assert_eq!(bits(&eight.get(name).unwrap()), bits(&said(Coding::Int8, &drawn)), "{name}");
        assert_eq!(four.shape(name), whole.shape(name));
    }
    for (salt, (name, elements)) in CODED.into_iter().enumerate() {
        let spread = |index: u64| ((index * 7919 + salt as u64 * 104_729) % 1009) as f32 / 1009.0 - 0.5;
        let values: Vec<f32> = (0..elements).map(spread).collect();
        four.set(name, &values).unwrap();
        eight.set(name, &values).unwrap();
        let (of_four, of_eight) = (four.get(name).unwrap(), eight.get(name).unwrap());
        let error = |found: &[f32]| found.iter().zip(&values).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(error(&of_four) < 0.152 * 0.5 && error(&of_four) > 0.05, "{name}: {}", error(&of_four));
        assert!(error(&of_eight) < 0.5 / 254.0 * 1.001, "{name}: {}", error(&of_eight));
        assert_eq!(bits(&of_four), bits(&said(Coding::Nf4, &values)));
    }
    let length = four.set("back.weight", &[0.0; 5]).unwrap_err();
    assert_eq!(length.to_string(), whole.set("back.weight", &[0.0; 5]).unwrap_err().to_string());
    assert!(four.get("back.weight.absmax").is_err());
    assert_eq!(
        four.tensors().map(|it| (it.name, it.shape)).collect::<Vec<_>>(),
        whole.tensors().map(|it| (it.name, it.shape)).collect::<Vec<_>>()
    );
}

/// Scales in codes are off by little, and by about as much again where a weight is set to what it was read as: codes stay what they are.
#[test]
fn scales_in_codes() {
    let (mut four, mut double) = (Four::on(&Cpu::new()).unwrap(), FourDouble::on(&Cpu::new()).unwrap());
    for (salt, (name, elements)) in CODED.into_iter().enumerate() {
        // Blocks of several sizes.
        let spread = |index: u64| {
            let value = ((index * 7919 + salt as u64 * 104_729) % 1009) as f32 / 1009.0 - 0.5;
            value * (1 + index / 64 % 5) as f32
        };
        let values: Vec<f32> = (0..elements).map(spread).collect();
        four.set(name, &values).unwrap();
        double.set(name, &values).unwrap();
        let (plain, once) = (four.get(name).unwrap(), double.get(name).unwrap());
        assert_eq!(bits(&once), bits(&said(Coding::Nf4Double, &values)));
        double.set(name, &once).unwrap();
        let twice = double.get(name).unwrap();
        // Of the largest distance of a scale from the mean of all, which is less than the largest scale: half of what is between two codes.
        let bound = 2.5 * 0.45 / 64.0;
        for (found, from, most) in [(&once, &plain, bound), (&twice, &once, 2.0 * bound)] {
            let off = found.iter().zip(from).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off > 0.0 && off <= most, "{name}: {off} of {most}");
        }
        let codes = |values: &[f32]| Coding::Nf4Double.quantize(values).0;
        assert_eq!(codes(&once), codes(&twice), "{name}");
    }
    assert!(double.get("back.weight.absmax").is_err());
}

/// A training that was saved as numbers under its names goes on as if it had not been.
#[test]
fn training_goes_on_from_its_numbers() {
    let (mut first, mut second) = (Four::on(&Cpu::new()).unwrap(), Four::on(&Cpu::new()).unwrap());
    for _ in 0..3 {
        first.train_step(&words(), &target()).unwrap();
    }
    let saved: Vec<String> = first.names().map(String::from).collect();
    for name in &saved {
        second.set(name, &vec![0.25; first.get(name).unwrap().len()]).unwrap();
        second.set(name, &first.get(name).unwrap()).unwrap();
    }
    second.set_steps(first.steps().unwrap()).unwrap();
    for _ in 0..3 {
        let losses = [&mut first, &mut second].map(|net| net.train_step(&words(), &target()).unwrap().to_bits());
        assert_eq!(losses[0], losses[1]);
    }
    for name in &saved {
        assert_eq!(bits(&first.get(name).unwrap()), bits(&second.get(name).unwrap()), "{name}");
    }
}

/// An adapter is added to what the codes say.
#[test]
fn adapters_are_merged_with_what_codes_say() {
    let mut four = Four::on(&Cpu::new()).unwrap();
    for _ in 0..3 {
        four.train_step(&words(), &target()).unwrap();
    }
    let w = four.get("out.weight").unwrap();
    let [a, b] = ["out.lora_A.weight", "out.lora_B.weight"].map(|name| four.get(name).unwrap());
    let merged = four.get_merged("out.weight").unwrap();
    assert!(w.iter().zip(&merged).any(|(w, merged)| (w - merged).abs() > 1e-3), "the adapter does nothing");
    for (index, (merged, w)) in merged.iter().zip(&w).enumerate() {
        let (input, output) = (index / 17, index % 17);
        let product: f32 = (0..2).map(|rank| b[output * 2 + rank] * a[rank * 24 + input]).sum();
        assert!((merged - (w + 3.0 * product)).abs() < 1e-5);
    }
    assert_eq!(four.get_merged("back.weight").unwrap(), four.get("back.weight").unwrap());
    // The network without codes takes them in, and computes the same but for roundings.
    let mut whole = Whole::on(&Cpu::new()).unwrap();
    whole.copy_from(&mut four).unwrap();
    for (name, _) in CODED {
        whole.set(name, &four.get_merged(name).unwrap()).unwrap();
    }
    let adapters: Vec<String> =
        whole.names().filter(|name| name.ends_with("lora_B.weight")).map(String::from).collect();
    for name in adapters {
        let count = whole.get(&name).unwrap().len();
        whole.set(&name, &vec![0.0; count]).unwrap();
    }
    close("output", whole.forward(&words()).unwrap().as_slice(), four.forward(&words()).unwrap().as_slice());
}

/// A byte or half a byte an element, and 4 bytes a block; no states, no gradients, no master copies.
#[test]
fn budgets_count_codes_and_scales() {
    let elements: u64 = CODED.iter().map(|(_, elements)| elements).sum();
    let scales = |block: u64| CODED.iter().map(|(_, elements)| elements.div_ceil(block)).sum::<u64>();
    let coded = |bits: u64, block: u64| elements * bits / 8 + 4 * scales(block);
    let [whole, eight, four, half, half_four] =
        [Whole::BUDGET, Eight::BUDGET, Four::BUDGET, HalfWhole::BUDGET, HalfFour::BUDGET];
    assert_eq!(eight[Line::Weights], whole[Line::Weights] - 4 * elements + coded(8, 256));
    assert_eq!(four[Line::Weights], whole[Line::Weights] - 4 * elements + coded(4, 64));
    assert_eq!(half_four[Line::Weights], half[Line::Weights] - 2 * elements + coded(4, 64));
    // The mean, a scale for each 256 blocks, and codes of blocks, four to a word.
    let words = |elements: u64| {
        let blocks = elements.div_ceil(64);
        1 + blocks.div_ceil(256) + blocks.div_ceil(4)
    };
    let double = elements / 2 + 4 * CODED.iter().map(|(_, elements)| words(*elements)).sum::<u64>();
    assert_eq!(FourDouble::BUDGET[Line::Weights], whole[Line::Weights] - 4 * elements + double);
    for line in [Line::Master, Line::Gradients, Line::Optimizer, Line::Buffers, Line::BatchIo] {
        assert_eq!((eight[line], four[line], half_four[line]), (whole[line], whole[line], half[line]), "{line:?}");
    }
    let json = gpumem::report::json::<Four>();
    assert!(
        json.contains(&format!("\"weights\":{}", four[Line::Weights]))
            || json.contains(&format!("\"weights\": {}", four[Line::Weights])),
        "{json}"
    );
    // Parameters are elements.
    let count = |layers: &[gpumem::LayerInfo]| layers.iter().map(|layer| layer.parameters).sum::<u64>();
    assert_eq!(count(Four::LAYERS), count(Whole::LAYERS));
}

/// The operations and tensors of a training step.
fn program<N: Network>() -> Program {
    Program::decode(N::PROGRAM.program).unwrap()
}

/// Each map reads codes and scales, forward and backward, and no tensor of the plan has a weight in numbers.
#[test]
fn no_weight_is_in_numbers() {
    for program in [program::<Four>(), program::<FourByHand>(), program::<FourInParts>(), program::<HalfFour>()] {
        let of_codes = |pass: Pass| {
            let is_it = |operation: &&Operation| matches!(operation.action, Action::Run { op: Op::CodedProduct(_), pass: its } if its == pass);
            program.operations.iter().filter(is_it).collect::<Vec<_>>()
        };
        let (forward, backward) = (of_codes(Pass::Forward), of_codes(Pass::Backward));
        // One weight is read twice, and what its first use reads is not trained.
        assert_eq!((forward.len(), backward.len()), (CODED.len() + 1, CODED.len()), "{program}");
        for operation in forward.iter().chain(&backward) {
            let [codes, scales] = [1, 2].map(|input| program.tensor(operation.read(Slot::Input(input)).unwrap()));
            assert_eq!((codes.role, scales.role), (Role::Nf4, Role::Scale));
        }
        let transient = |tensor: &&gpumem_core::program::Tensor| tensor.class == Class::Transient && !tensor.batched;
        let shapes = CODED.map(|(name, _)| program.tensors.iter().find(|tensor| tensor.name == name).unwrap().shape);
        assert!(program.tensors.iter().filter(transient).all(|tensor| !shapes.contains(&tensor.shape)), "{program}");
    }
}

network! {
    /// A language model that keeps what went before.
    pub struct Speaker;

    const TRAIN: Train = Train { batch: 1, optimizer: AdamW { lr: 0.01 }, loss: CrossEntropy, seed: 7 };
    const INFER: Infer = Infer { batch: 1, cache: 9, chunk: 4 };

    fn forward(text: Tokens<9>) -> TokenLogits<9, 6> {
        lora(2, 4.0, [Embedding(6, 16), CausalSelfAttention(2, rotary = 100.0), Linear(6)], base = Nf4)
    }
}

/// Token by token, and some at a time: what the whole sequence gives.
#[test]
fn sequences_go_on_with_weights_in_codes() {
    let mut whole = Speaker::on(&Cpu::new()).unwrap();
    let mut net = Speaker::infer_on(&Cpu::new()).unwrap();
    let text: Vec<u32> = (0..9).map(|index| index * index % 6).collect();
    let target = Tensor::from_fn(|index| index as u32 % 6);
    let input = Tensor::from_fn(|index| text[index]);
    for _ in 0..3 {
        whole.train_step(&input, &target).unwrap();
    }
    net.copy_from(&mut whole).unwrap();
    let all = whole.forward(&input).unwrap();
    for passes in [vec![1; 9], vec![4, 4, 1], vec![9], vec![3, 6]] {
        net.truncate(0).unwrap();
        let mut done = 0;
        for taken in passes {
            let logits = net.extend(&[&text[done..done + taken]]).unwrap();
            done += taken;
            close("logits", &logits, &all.as_slice()[(done - 1) * 6..][..6]);
        }
    }
}

#[test]
fn adapters_have_states_and_nothing_else_has() {
    let net = Four::on(&Cpu::new()).unwrap();
    let states = net.tensors().filter(|tensor| tensor.kind == Kind::OptimizerState);
    assert!(states.map(|tensor| tensor.name).all(|name| name.contains("lora_") || name.starts_with("head")));
}
