//! Losses in chunks: labels and shares that lie among those of other chunks, and gradients that are added up over them.

use crate::host::harness::graphs::{again, chain, numbers, tokens};
use crate::host::{CAPABILITY, Format, compare_in, prepare};
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Term, Training};
use gpumem_core::program::loss::{Chunks, LossOptions, Reduction};
use gpumem_core::train::Descent;
use gpumem_core::train::optim::{Adam, Optimizer, Sgd};
use gpumem_core::{Half, Precision, Update};
use std::borrow::Cow;

const WEIGHTS: Cow<'static, [f64]> = Cow::Borrowed(&[0.5, 2.0, 0.0, 1.25, 3.0]);

/// Options of five classes: a divisor that is known, one that is counted, and targets of every kind.
fn options() -> Vec<LossOptions> {
    let of = LossOptions::DEFAULT;
    vec![
        of.clone(),
        LossOptions { number: Some(0.1), reduction: Reduction::Sum, ..of.clone() },
        LossOptions { weights: WEIGHTS, ignored: Some(3), number: Some(0.2), ..of.clone() },
        LossOptions { probabilities: true, number: Some(0.2), ..of },
    ]
}

fn compare(what: &str, loss: &[Term], formats: &[Format], parts: u64, (graph, output): (&Graph, NodeId)) {
    for &format in formats {
        let (optimizer, update) = match parts {
            1 => (Optimizer::Adam(Adam { lr: 0.01, ..Adam::DEFAULT }), Update::Fused),
            _ => (Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT }), Update::Separate),
        };
        let descent = Descent { micro_batches: parts, ..Descent::PLAIN }.at(format.0);
        let skips_overflow = format.0.scales_loss();
        let moments = optimizer.moments();
        let training = Training { loss, moments, update, skips_overflow, input_gradient: false, descent };
        let case = (what, graph, output, training, 3, optimizer);
        prepare(&[format], case);
        let (orders, tolerance) = if format.0 == Precision::F32 { (0..2, 1e-4) } else { (0..1, 2e-2) };
        compare_in(format, orders, case, 1, 5, tolerance);
    }
}

fn terms(options: LossOptions, chunks: Chunks) -> [Term; 1] {
    [Term { weight: -0.3, options: LossOptions { chunks, ..options }, ..Term::CROSS_ENTROPY }]
}

/// Chunks of different sizes that one block goes through, and such that take many.
#[test]
fn options_of_chunks() {
    let f32 = (Precision::F32, CAPABILITY);
    for options in options() {
        for (steps, chunks) in [(7, 3), (91, 2)] {
            let mut graph = Graph::default();
            let input = graph.input(numbers(&[steps, 6])).unwrap();
            let output = chain(&mut graph, input, "Tanh | Linear(6) | Tanh | Linear(5)");
            for parts in [1, 3] {
                let what = format!("{steps} steps in {chunks} chunks and {parts} parts, {options:?}");
                compare(&what, &terms(options.clone(), Chunks::Count(chunks)), &[f32], parts, (&graph, output));
            }
        }
    }
}

/// Rows with gaps, gradients in 16 bits that are added to, and weights that an embedding uses as well.
#[test]
fn chunks_in_16_bits() {
    let formats = [Precision::Bf16, Precision::Mixed(Half::F16)].map(|precision| (precision, CAPABILITY));
    for options in [LossOptions::DEFAULT, LossOptions { ignored: Some(3), ..LossOptions::DEFAULT }] {
        let mut graph = Graph::default();
        let input = graph.input(tokens(9)).unwrap();
        let hidden = chain(&mut graph, input, "Embedding(5, 8) | Tanh");
        let output = again(&mut graph, hidden, "Tied(bias = true)", 0);
        for chunks in [Chunks::Count(4), Chunks::Twice(4)] {
            let what = format!("tied, {chunks:?}");
            compare(&what, &terms(options.clone(), chunks), &formats, 1, (&graph, output));
        }
    }
}
