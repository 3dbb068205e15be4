//! Inference with a cache: what is computed token by token, or some tokens at a time, is what the whole sequence gives.

#[path = "generate/states.rs"]
mod states;

use gpumem::prelude::*;
use gpumem::{Cpu, Error, Generate, Generated, Line, Serving, greedy};

network! {
    /// Positions of a table, and dropout, which is gone without training.
    pub struct Learned;

    const TRAIN: Train = Train { batch: 2, optimizer: AdamW { lr: 0.01 }, loss: CrossEntropy, seed: 5 };
    const INFER: Infer = Infer { batch: 2, cache: 12, chunk: 5 };

    fn forward(tokens: Tokens<12>) -> TokenLogits<12, 17> {
        let embedding = Embedding(17, 24, name = "wte");
        [
            Add(embedding, PositionEmbedding(12, 24)), Dropout(0.1), repeat(2, block(24)), LayerNorm, Tied(embedding),
        ]
    }

    fn block(width: usize) -> Block {
        [
            Add([], [LayerNorm, CausalSelfAttention(3, dropout = 0.1)]),
            Add([], [LayerNorm, Linear(4 * width), Gelu, Linear(width)]),
        ]
    }
}

macro_rules! rotating {
    ($(#[$doc:meta])* $name:ident, $steps:literal, $($constants:tt)*) => {
        network! {
            $(#[$doc])*
            pub struct $name;

            $($constants)*

            fn forward(tokens: Tokens<$steps>) -> TokenLogits<$steps, 11> {
                [Embedding(11, 16), repeat(2, block()), RmsNorm, Linear(11, bias = false)]
            }

            fn block() -> Block {
                [
                    Add([], [
                        RmsNorm, CausalSelfAttention(4, kv_heads = 2, rotary = 100.0, bias = false, window = 9),
                    ]),
                    Add([], [RmsNorm, gated()]),
                ]
            }

            fn gated() -> Block {
                [Mul([Linear(20, bias = false), Silu], [Linear(20, bias = false)]), Linear(16, bias = false)]
            }
        }
    };
}

rotating!(
    /// Rotary positions, shared heads and a window that hides nothing of 8 tokens; a longer sequence than in training.
    Rotating, 8,
    const TRAIN: Train = Train { batch: 1, loss: CrossEntropy, seed: 7 };
    const INFER: Infer = Infer { cache: 20, chunk: 4 };
);
rotating!(
    /// The same for all of the 20 at once.
    Whole, 20,
    const INFER: Infer = Infer { batch: 1 };
);

network! {
    /// Queries, keys and values apart, heads in an axis of their own on the way, without training.
    pub struct Apart;

    const INFER: Infer = Infer { batch: 1, cache: 9, chunk: 1 };

    fn forward(tokens: Tokens<9>) -> TokenLogits<9, 6> {
        [
            Embedding(6, 8), MultiHeadAttention(2, causal), Reshape(9, 2, 4), Transpose(1, 2), Softmax,
            Transpose(1, 2), Reshape(9, 8), Concat([], [Slice(2, 6, dim = 2)]), Linear(6),
        ]
    }
}

network! {
    /// Trained and used at the batch of whoever names it.
    pub struct Generic<const BATCH: usize>;

    const TRAIN: Train = Train { batch: BATCH, precision: Mixed(Bf16), loss: CrossEntropy };
    const INFER: Infer = Infer { batch: BATCH, precision: Bf16, cache: 10, chunk: 4 };

    fn forward(tokens: Tokens<6>) -> TokenLogits<6, 9> {
        [Embedding(9, 8), CausalSelfAttention(2, rotary = 50.0), Linear(9)]
    }
}

network! {
    /// Positions that are sines and cosines.
    pub struct Waves;

    const TRAIN: Train = Train { batch: 2, loss: CrossEntropy, seed: 3 };
    const INFER: Infer = Infer { batch: 2, cache: 9, chunk: 4 };

    fn forward(tokens: Tokens<9>) -> TokenLogits<9, 7> {
        [Embedding(7, 8), Add([], SinusoidalPositions(interleaved)), CausalSelfAttention(2), Linear(7)]
    }
}

/// Tokens that depend on a number.
fn tokens(count: usize, classes: u32, seed: u32) -> Vec<u32> {
    (0..count as u32).map(|index| (index * index + 3 * index * seed + seed) % classes).collect()
}

fn assert_near(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= 1e-5 * expected.abs().max(1.0), "{found} is not {expected}");
    }
}

/// The logits of each step of the sequences, as passes give them that take so many tokens each.
fn assert_continued<N: Generate>(net: &mut Net<N, Cpu>, samples: &[Vec<u32>], all: &[f32], passes: &[usize]) {
    let (steps, classes) = (samples[0].len(), all.len() / samples.len() / samples[0].len());
    net.truncate(0).unwrap();
    let mut done = 0;
    for &taken in passes {
        let given: Vec<&[u32]> = samples.iter().map(|sample| &sample[done..done + taken]).collect();
        let logits = net.extend(&given).unwrap();
        done += taken;
        let last = |sample: usize| &all[(sample * steps + done - 1) * classes..][..classes];
        let expected: Vec<f32> = (0..samples.len()).flat_map(last).copied().collect();
        assert_near(&logits, &expected);
    }
    assert_eq!(net.cached(), done as u64);
}

/// Both samples, in passes of all kinds: one token, a whole chunk, a part of one, several.
#[test]
fn learned_positions() {
    let device = Cpu::new();
    let mut whole = Learned::on(&device).unwrap();
    let mut net = Learned::infer_on(&device).unwrap();
    net.copy_from(&mut whole).unwrap();
    let samples = [tokens(12, 17, 1), tokens(12, 17, 4)];
    let all = whole.forward(&Tensor::from_fn(|index| samples[index / 12][index % 12])).unwrap();
    for passes in [vec![12], vec![1; 12], vec![5, 7], vec![4, 1, 6, 1], vec![11, 1]] {
        assert_continued(&mut net, &samples, all.as_slice(), &passes);
    }
    // The first steps of a sequence as one pass.
    let first = net.forward(&Tensor::from_fn(|index| samples[index / 5][index % 5])).unwrap();
    let expected = [0, 1].map(|sample| &all.as_slice()[sample * 12 * 17..][..5 * 17]).concat();
    assert_near(first.as_slice(), &expected);
    assert_eq!(net.cached(), 5);
}

#[test]
fn sines_and_cosines_of_positions() {
    let device = Cpu::new();
    let mut whole = Waves::on(&device).unwrap();
    let mut net = Waves::infer_on(&device).unwrap();
    net.copy_from(&mut whole).unwrap();
    let samples = [tokens(9, 7, 1), tokens(9, 7, 4)];
    let all = whole.forward(&Tensor::from_fn(|index| samples[index / 9][index % 9])).unwrap();
    for passes in [vec![9], vec![1; 9], vec![3, 6], vec![5, 1, 3]] {
        assert_continued(&mut net, &samples, all.as_slice(), &passes);
    }
}

/// Longer than the sequence of training, where the window of 9 hides the first ones.
#[test]
fn rotary_positions() {
    let device = Cpu::with_threads(2).unwrap();
    let mut trained = Rotating::on(&device).unwrap();
    let mut net = Rotating::infer_on(&device).unwrap();
    let mut whole = Whole::on(&device).unwrap();
    net.copy_from(&mut trained).unwrap();
    whole.copy_from(&mut trained).unwrap();
    let sequence = tokens(20, 11, 2);
    let all = whole.forward(&Tensor::from_fn(|index| sequence[index])).unwrap();
    for first in [1, 4, 7, 20] {
        net.truncate(0).unwrap();
        let mut logits = net.extend(&[&sequence[..first]]).unwrap();
        for step in first..=20 {
            assert_near(&logits, &all.as_slice()[(step - 1) * 11..][..11]);
            if step < 20 {
                logits = net.extend(&[&sequence[step..=step]]).unwrap();
            }
        }
    }
}

/// What follows a prompt is what the most likely token of the whole sequence is, again and again; it ends with the cache.
#[test]
fn a_prompt_is_continued() {
    let device = Cpu::new();
    let mut net = Rotating::infer_on(&device).unwrap();
    let mut whole = Whole::on(&device).unwrap();
    whole.copy_from(&mut net).unwrap();
    let mut sequence = tokens(6, 11, 3);
    let prompt = sequence.clone();
    let generated: Vec<Generated> = net.generate(&[&prompt], greedy).unwrap().collect::<Result<_, Error>>().unwrap();
    assert_eq!(generated.len(), 20 - 6 + 1);
    for Generated { tokens, logits } in &generated {
        let all = whole.forward(&Tensor::from_fn(|index| sequence.get(index).copied().unwrap_or(0))).unwrap();
        assert_near(logits, &all.as_slice()[(sequence.len() - 1) * 11..][..11]);
        assert_eq!(tokens, &[greedy(logits)]);
        sequence.extend(tokens);
    }
    // A part of it is taken back, and goes on differently.
    net.truncate(10).unwrap();
    let other = net.extend(&[&[1, 2]]).unwrap();
    let changed = [&sequence[..10], &[1, 2]].concat();
    assert_near(&other, &{
        net.truncate(0).unwrap();
        net.extend(&[&changed]).unwrap()
    });
    assert_eq!(net.cached(), 12);
    assert_eq!(net.generate(&[&prompt], greedy).unwrap().take(2).count(), 2);
}

#[test]
fn other_ways_to_attend() {
    let device = Cpu::new();
    let mut net = Apart::on(&device).unwrap();
    let sequence = tokens(9, 6, 1);
    let together = net.extend(&[&sequence]).unwrap();
    net.truncate(0).unwrap();
    let steps: Vec<Vec<f32>> = sequence.iter().map(|token| net.extend(&[&[*token]]).unwrap()).collect();
    assert_eq!(steps.last(), Some(&together));
    let first = net.infer(&Tensor::from_fn(|_| sequence[0])).unwrap();
    assert_eq!(first.as_slice(), &steps[0]);
}

#[test]
fn what_cannot_be_is_an_error() {
    let device = Cpu::new();
    let mut net = Learned::infer_on(&device).unwrap();
    let length = |error: Error, what: &str, expected: u64, found: u64| {
        assert_eq!(error, Error::Length { what: what.into(), expected, found });
    };
    let one = [3; 8];
    length(net.extend(&[&one]).unwrap_err(), "the list of samples", 2, 1);
    let list = "each sample's list of tokens";
    length(net.extend(&[&[], &[]]).unwrap_err(), list, 1, 0);
    length(net.extend(&[&one, &one[1..]]).unwrap_err(), list, 8, 7);
    net.extend(&[&one, &one]).unwrap();
    length(net.extend(&[&one, &one]).unwrap_err(), "the rest of the cache (12 steps)", 4, 8);
    let bad = net.extend(&[&[1, 2, 3], &[1, 2, 17]]).unwrap_err();
    assert_eq!(bad, Error::Index { what: "token", position: 5, value: 17, limit: 17 });
    assert_eq!(net.cached(), 8);
    let bad = net.generate(&[&[1; 7], &[1, 1, 1, 1, 1, 1, 99]], greedy).map(|_| ()).unwrap_err();
    assert_eq!(bad, Error::Index { what: "token", position: 13, value: 99, limit: 17 });
    // A choice that is no token is an error once.
    let chosen: Vec<bool> = net.generate(&[&one, &one], |_| 99).unwrap().map(|next| next.is_ok()).collect();
    assert_eq!(chosen, [true, false]);
    let shared = Learned::shared_on(&device).map(|_| ()).unwrap_err().to_string();
    assert!(shared.contains("`INFER` keeps a cache, for which a training step has no room"), "{shared}");
}

/// A network that is generic over its batch, in 16 bits for which the CPU stands in.
#[test]
fn any_batch_and_another_format() {
    let device = Cpu::new().emulate();
    let mut net = Generic::<3>::infer_on(&device).unwrap();
    let mut whole = Generic::<3>::on(&device).unwrap();
    net.copy_from(&mut whole).unwrap();
    let samples = [1, 2, 3].map(|seed| tokens(6, 9, seed));
    let given: Vec<&[u32]> = samples.iter().map(Vec::as_slice).collect();
    let found = net.extend(&given).unwrap();
    let all = whole.forward(&Tensor::from_fn(|index| samples[index / 6][index % 6])).unwrap();
    let expected: Vec<f32> = (0..3).flat_map(|sample| &all.as_slice()[(sample * 6 + 5) * 9..][..9]).copied().collect();
    assert_near(&found, &expected);
    let cached = |batch: u64| batch * 2 * (10 * 8 * 2);
    assert_eq!(<Serving<Generic<3>> as Network>::BUDGET[Line::Cache], cached(3));
    assert_eq!(<Serving<Generic<8>> as Network>::BUDGET[Line::Cache], cached(8));
    // What was kept is of the network as it was.
    assert_eq!(net.cached(), 6);
    net.set("embedding.weight", &[0.0; 72]).unwrap();
    assert_eq!(net.cached(), 0);
    net.extend(&given).unwrap();
    net.reset().unwrap();
    assert_eq!(net.cached(), 0);
}

/// Keys and values of both layers, at 4 bytes each.
#[test]
fn the_cache_is_a_line_of_the_budget() {
    let budget = <Serving<Learned> as Network>::BUDGET;
    assert_eq!(budget[Line::Cache], 2 * 2 * (2 * 12 * 24 * 4));
    assert_eq!(Learned::BUDGET[Line::Cache], 0);
    assert_eq!(<Serving<Rotating> as Network>::BUDGET[Line::Cache], 2 * 2 * (20 * 8 * 4));
    let parts: u64 = Line::parts().map(|part| budget[part]).sum();
    assert!(parts <= budget[Line::Arena] && budget[Line::Arena] < parts + 64 * 256);
    fn generates<N: Generate>() {}
    assert!(Learned::CACHED.unwrap().one_step.is_some(), "one step has a program of its own");
    generates::<Serving<Learned>>();
    generates::<Apart>();
}
