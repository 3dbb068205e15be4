//! `lengths` and `segments`: a padded batch is what each of its sequences is alone, and rows of documents are those documents.

use gpumem::cards::RTX_3060;
use gpumem::prelude::*;
use gpumem::{Cpu, Kind, Line};

/// An encoder of 6 steps whose samples may end before.
macro_rules! encoder {
    ($name:ident, { $($settings:tt)* }) => {
        network! {
            pub struct $name;

            const TRAIN: Train = Train { optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy, seed: 5, $($settings)* };

            fn forward(text: Tokens<6>, n: Lengths<6>) -> Logits<3> {
                [Add(Embedding(11, 8), PositionEmbedding(6, 8)), lengths(n, [repeat(2, TransformerBlock(8, 2, 16)), Mean(1)]), Linear(3)]
            }
        }
    };
}

encoder!(Padded, { batch: 4 });
encoder!(Split, { batch: 4, micro_batches: 2 });
encoder!(Again, { batch: 4, checkpoint: Cheap });
encoder!(Least, { batch: 4, checkpoint: Budget(0.8) });

const TEXT: [[u32; 6]; 4] = [[1, 2, 3, 4, 5, 6], [7, 8, 9, 0, 0, 0], [1, 0, 0, 0, 0, 0], [3, 3, 10, 10, 2, 0]];
const LENGTHS: [u32; 4] = [6, 3, 1, 5];

fn text(padding: u32) -> Vec<u32> {
    let padded = |(text, n): (&[u32; 6], u32)| {
        text.map(|token| token)
            .iter()
            .enumerate()
            .map(move |(step, &token)| if step < n as usize { token } else { padding })
            .collect::<Vec<u32>>()
    };
    TEXT.iter().zip(LENGTHS).flat_map(padded).collect()
}

fn spread(index: usize, salt: usize) -> f32 {
    ((index * 7919 + salt * 104_729) % 1009) as f32 / 504.5 - 1.0
}

fn close(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= 2e-6 * expected.abs().max(1.0), "{what}: {found}, expected {expected}");
    }
}

/// Losses of three steps, weights after them, and outputs.
macro_rules! trained {
    ($name:ident, $padding:expr) => {{
        let mut net = $name::on(&Cpu::with_threads(2).unwrap()).unwrap();
        let inputs = (Tensor::from_vec(text($padding)).unwrap(), Tensor::from_vec(LENGTHS.to_vec()).unwrap());
        let labels = Tensor::from_vec(vec![0u32, 2, 1, 2]).unwrap();
        let mut all: Vec<f32> = (0..3).map(|_| net.train_step((&inputs.0, &inputs.1), &labels).unwrap()).collect();
        all.extend(net.get("linear.weight").unwrap());
        all.extend(net.forward((&inputs.0, &inputs.1)).unwrap().as_slice());
        all
    }};
}

/// Other padding, a batch in parts, and what is computed a second time change nothing.
#[test]
fn a_padded_batch_is_what_its_samples_are() {
    let expected = trained!(Padded, 0);
    close("other padding", &trained!(Padded, 9), &expected);
    close("a batch in parts", &trained!(Split, 9), &expected);
    close("recomputed", &trained!(Again, 9), &expected);
    close("with less memory", &trained!(Least, 9), &expected);
}

network! {
    /// The encoder for sequences of 3 steps.
    pub struct Short;

    const TRAIN: Train = Train { batch: 1, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy };

    fn forward(text: Tokens<3>) -> Logits<3> {
        [Add(Embedding(11, 8), PositionEmbedding(6, 8)), repeat(2, TransformerBlock(8, 2, 16)), Mean(1), Linear(3)]
    }
}

/// A sample of 3 steps gives what a network of 3 steps gives.
#[test]
fn a_padded_sequence_is_a_shorter_one() {
    let device = Cpu::with_threads(2).unwrap();
    let (mut padded, mut short) = (Padded::on(&device).unwrap(), Short::on(&device).unwrap());
    let names: Vec<String> = padded
        .tensors()
        .filter(|tensor| tensor.kind == Kind::Parameter)
        .map(|tensor| tensor.name.to_string())
        .collect();
    for (salt, name) in names.iter().enumerate() {
        let count = padded.get(name).unwrap().len();
        let begin: Vec<f32> = (0..count).map(|index| 0.6 * spread(index, salt)).collect();
        padded.set(name, &begin).unwrap();
        short.set(name, &begin).unwrap();
    }
    let inputs = (Tensor::from_vec(text(4)).unwrap(), Tensor::from_vec(LENGTHS.to_vec()).unwrap());
    let found = padded.forward((&inputs.0, &inputs.1)).unwrap();
    let expected = short.forward(&Tensor::from_vec(vec![7u32, 8, 9]).unwrap()).unwrap();
    close("sample 1", &found.as_slice()[3..6], expected.as_slice());
}

/// A length beyond the sequence is refused before anything is computed, whatever part of the batch it is in.
#[test]
fn lengths_that_are_too_large() {
    let said = "length 7 at position 3 is too large: it must be below 7";
    macro_rules! refused {
        ($name:ident) => {{
            let mut net = $name::on(&Cpu::with_threads(1).unwrap()).unwrap();
            let (text, labels) = (Tensor::from_vec(text(0)).unwrap(), Tensor::from_vec(vec![0u32; 4]).unwrap());
            let lengths = Tensor::from_vec(vec![6u32, 0, 1, 7]).unwrap();
            let before = net.get("linear.weight").unwrap();
            assert_eq!(net.train_step((&text, &lengths), &labels).unwrap_err().to_string(), said);
            assert_eq!(net.forward((&text, &lengths)).unwrap_err().to_string(), said);
            assert_eq!(net.get("linear.weight").unwrap(), before);
            let lengths = Tensor::from_vec(vec![6u32, 0, 1, 6]).unwrap();
            assert!(net.train_step((&text, &lengths), &labels).unwrap().is_finite());
        }};
    }
    refused!(Padded);
    refused!(Split);
}

/// A number for each step, and a loss of those that count.
macro_rules! of_steps {
    ($name:ident, $loss:expr, { $($settings:tt)* }) => {
        network! {
            pub struct $name;

            const TRAIN: Train = Train { batch: 4, optimizer: Sgd { lr: 0.1 }, loss: $loss, seed: 5, $($settings)* };

            fn forward(x: Sequence<6, 4>, n: Lengths<6>) -> Sequence<6, 2> { [lengths(n, [Gru(4), Add([], MultiHeadAttention(2))]), Linear(2)] }
        }
    };
}

of_steps!(Steps, Huber { delta: 0.5 }(lengths = n) + 0.3 * L1(lengths = n), {});
of_steps!(StepsSplit, Huber { delta: 0.5 }(lengths = n) + 0.3 * L1(lengths = n), { micro_batches: 2 });
of_steps!(StepsSingle, Huber { delta: 0.5 }(lengths = n) + 0.3 * L1(lengths = n), { micro_batches: 4 });

/// No part of a batch knows the lengths of the others, which a mean is divided by.
#[test]
fn losses_of_steps_that_count() {
    macro_rules! trained {
        ($name:ident, $padding:expr) => {{
            let mut net = $name::on(&Cpu::with_threads(1).unwrap()).unwrap();
            let x = Tensor::from_fn(|index| spread(index, 3));
            let lengths = Tensor::from_vec(LENGTHS.to_vec()).unwrap();
            let target = Tensor::from_fn(|index| match (index / 2 % 6) as u32 >= LENGTHS[index / 12] {
                true => $padding,
                false => spread(index, 4),
            });
            let mut all: Vec<f32> = (0..3).map(|_| net.train_step((&x, &lengths), &target).unwrap()).collect();
            all.push(net.eval_loss((&x, &lengths), &target).unwrap());
            all.extend(net.get("linear.weight").unwrap());
            all
        }};
    }
    let expected = trained!(Steps, 0.0);
    assert!(expected[3] < expected[0]);
    close("other targets of padding", &trained!(Steps, f32::NAN), &expected);
    close("two parts", &trained!(StepsSplit, 7.0), &expected);
    close("four parts", &trained!(StepsSingle, 7.0), &expected);
}

of_steps!(ByLengths, Huber { delta: 0.5 }(lengths = n), {});
of_steps!(ByMask, Huber { delta: 0.5 }(mask = m), {});
of_steps!(Both, 0.25 * Huber { delta: 0.5 }(mask = m) + 0.75 * Huber { delta: 0.5 }(lengths = n), {});
of_steps!(BothSplit, 0.25 * Huber { delta: 0.5 }(mask = m) + 0.75 * Huber { delta: 0.5 }(lengths = n), { micro_batches: 2 });

network! {
    pub struct Halves;

    const BODY: Train = Train {
        batch: 4, micro_batches: 2, optimizer: Sgd { lr: 0.1 }, loss: Mse(from = inner, lengths = n), trains: "body*", seed: 5,
    };
    const HEAD: Train = Train { batch: 4, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy, trains: "head*", seed: 5 };

    fn forward(x: Sequence<6, 4>, n: Lengths<6>) -> Logits<3> {
        [Linear(2, name = "body"), tap(inner), lengths(n, Mean(1)), Linear(3, name = "head")]
    }
}

/// A step is handed the lengths that only its loss reads.
#[test]
fn lengths_of_one_of_several_steps() {
    let mut net = Halves::on(&Cpu::with_threads(1).unwrap()).unwrap();
    let x = Tensor::from_fn(|index| spread(index, 3));
    let lengths = Tensor::from_vec(LENGTHS.to_vec()).unwrap();
    let target = Tensor::from_fn(|index| match (index / 2 % 6) as u32 >= LENGTHS[index / 12] {
        true => f32::NAN,
        false => spread(index, 4),
    });
    let losses = [(); 5].map(|()| Halves::body(&mut net).train_step((&x, &lengths), &target).unwrap());
    assert!(losses.iter().all(|loss| loss.is_finite()) && losses[4] < losses[0], "{losses:?}");
    let labels = Tensor::from_vec(vec![0u32, 2, 1, 2]).unwrap();
    assert!(Halves::head(&mut net).train_step((&x, &lengths), &labels).unwrap().is_finite());
}

/// A mask that is 1 before the end of each sample is its length, and terms of both kinds have divisors of their own.
#[test]
fn lengths_and_masks_of_losses() {
    macro_rules! trained {
        ($name:ident, $target:expr) => {{
            let mut net = $name::on(&Cpu::with_threads(1).unwrap()).unwrap();
            let x = Tensor::from_fn(|index| spread(index, 3));
            let lengths = Tensor::from_vec(LENGTHS.to_vec()).unwrap();
            let mut all: Vec<f32> = (0..3).map(|_| net.train_step((&x, &lengths), $target).unwrap()).collect();
            all.push(net.eval_loss((&x, &lengths), $target).unwrap());
            all.extend(net.get("linear.weight").unwrap());
            all
        }};
    }
    let target = Tensor::from_fn(|index| spread(index, 4));
    let mask = Tensor::from_fn(|index| f32::from(u8::from(((index / 2 % 6) as u32) < LENGTHS[index / 12])));
    let expected = trained!(ByLengths, &target);
    assert!(expected[3] < expected[0]);
    close("a mask", &trained!(ByMask, (&target, &mask)), &expected);
    close("both", &trained!(Both, (&target, &mask)), &expected);
    close("both in two parts", &trained!(BothSplit, (&target, &mask)), &expected);
}

network! {
    pub struct Generic<const BATCH: usize>;

    const TRAIN: Train = Train { batch: BATCH, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy };

    fn forward(text: Tokens<6>, n: Lengths<6>) -> Logits<3> {
        [Embedding(11, 8), lengths(n, [MultiHeadAttention(2), Lstm(4, bidirectional = true), Max(1)]), Linear(3)]
    }
}

network! {
    /// As wide, without lengths.
    pub struct Plain;

    const TRAIN: Train = Train { batch: 64, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy };

    fn forward(text: Tokens<512>) -> Logits<3> {
        [Embedding(11, 8), TransformerBlock(8, 2, 16), Mean(1), Linear(3)]
    }
}

network! {
    pub struct Counted;

    const TRAIN: Train = Train { batch: 64, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy };

    fn forward(text: Tokens<512>, n: Lengths<512>) -> Logits<3> {
        [Embedding(11, 8), lengths(n, [TransformerBlock(8, 2, 16), Mean(1)]), Linear(3)]
    }
}

fn arena(budget: gpumem::Budget) -> u64 {
    budget[Line::Arena]
}

/// A number a sample, in both halves of the input buffer, each in a place of 256 bytes: of 64 samples exactly one. Nothing else.
#[test]
fn lengths_take_four_bytes_a_sample() {
    let [counted, plain] = [<Counted as Network>::BUDGET, <Plain as Network>::BUDGET];
    for line in Line::ALL {
        let is_more = matches!(line, Line::BatchIo | Line::Arena | Line::Total);
        let more = if is_more { 2 * 4 * 64 } else { 0 };
        assert_eq!(counted[line], plain[line] + more, "{line:?}");
    }
    assert!(arena(counted) < RTX_3060.usable());
}

#[test]
fn networks_that_are_generic_over_the_batch() {
    let mut net = Generic::<2>::on(&Cpu::with_threads(1).unwrap()).unwrap();
    let text = Tensor::from_vec(vec![1u32, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0]).unwrap();
    let lengths = Tensor::from_vec(vec![6u32, 0]).unwrap();
    let labels = Tensor::from_vec(vec![1u32, 2]).unwrap();
    let losses: Vec<f32> = (0..20).map(|_| net.train_step((&text, &lengths), &labels).unwrap()).collect();
    assert!(losses[19] < losses[0], "{losses:?}");
    // A sample without steps is the bias alone.
    let bias = net.get("linear.bias").unwrap();
    assert_eq!(&net.forward((&text, &lengths)).unwrap().as_slice()[3..], &bias[..]);
}

network! {
    /// Rows of documents, of tokens with positions.
    pub struct Rows;

    const INFER: Infer = Infer { batch: 2 };

    fn forward(text: Tokens<6>, rows: Segments<6>) -> TokenLogits<6, 5> {
        [segments(rows, [Add(Embedding(11, 8), PositionEmbedding(6, 8)), repeat(2, TransformerBlock(8, 2, 16, causal = true)), Linear(5)])]
    }
}

network! {
    /// A document of 4 tokens alone.
    pub struct Document;

    const INFER: Infer = Infer { batch: 1 };

    fn forward(text: Tokens<4>) -> TokenLogits<4, 5> {
        [Add(Embedding(11, 8), PositionEmbedding(6, 8)), repeat(2, TransformerBlock(8, 2, 16, causal = true)), Linear(5)]
    }
}

#[test]
fn documents_in_a_row_are_those_alone() {
    let device = Cpu::with_threads(2).unwrap();
    let (mut rows, mut alone) = (Rows::on(&device).unwrap(), Document::on(&device).unwrap());
    let names: Vec<String> =
        rows.tensors().filter(|tensor| tensor.kind == Kind::Parameter).map(|tensor| tensor.name.to_string()).collect();
    for (salt, name) in names.iter().enumerate() {
        let count = rows.get(name).unwrap().len();
        let begin: Vec<f32> = (0..count).map(|index| 0.6 * spread(index, salt)).collect();
        rows.set(name, &begin).unwrap();
        alone.set(name, &begin).unwrap();
    }
    let expected = alone.forward(&Tensor::from_vec(vec![7u32, 1, 8, 2]).unwrap()).unwrap();
    let text = Tensor::from_vec(vec![3u32, 3, 7, 1, 8, 2, 7, 1, 8, 2, 9, 10]).unwrap();
    let segments = Tensor::from_vec(vec![0u32, 0, 1, 1, 1, 1, 4, 4, 4, 4, 6, 7]).unwrap();
    let found = rows.forward((&text, &segments)).unwrap();
    close("the second of a row", &found.as_slice()[10..30], expected.as_slice());
    close("the first of a row", &found.as_slice()[30..50], expected.as_slice());
    let falls = Tensor::from_vec(vec![0u32, 0, 1, 1, 1, 1, 4, 4, 3, 4, 6, 7]).unwrap();
    let said = "segment 3 at position 8 comes after 4: segments of a sample must not fall; number them in order, as 0, 0, 1, 1, 1, 2";
    assert_eq!(rows.forward((&text, &falls)).unwrap_err().to_string(), said);
}
