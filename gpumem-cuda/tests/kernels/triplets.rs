//! Losses of three values, of two of which one is to be larger, of what is found in a batch, and of terms that are multiplied with numbers of
//! their own, against the CPU backend.

use crate::gradients;
use crate::host::harness::graphs::{chain, numbers};
use crate::host::harness::{Truth, assert_close, compile};
use crate::host::{CAPABILITY, Simulated, compare_in, kernels_in};
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::memory::budget::Line;
use gpumem_core::memory::place::place;
use gpumem_core::program::loss::{Chunks, LossOptions, Mining, Over, Reduction, Weighting};
use gpumem_core::program::{Class, Measure, StateWord, Tensor};
use gpumem_core::shape::Shape;
use gpumem_core::{Loss, Precision};
use std::borrow::Cow;

fn network(count: usize, dims: &[u64], layers: &str) -> (Graph, Vec<NodeId>) {
    let mut graph = Graph::default();
    let inputs: Vec<NodeId> = (0..count).map(|_| graph.input(numbers(dims)).unwrap()).collect();
    let values = inputs.into_iter().map(|input| chain(&mut graph, input, layers)).collect();
    (graph, values)
}

/// A term of these values, whose targets are those of these numbers.
fn term(measure: Measure, values: &[NodeId], change: impl Fn(&mut LossOptions)) -> Term {
    let [from, and, third] = [0, 1, 2].map(|number| values.get(number).copied());
    let mut term = Term { weight: 0.7, from, and, third, ..Term::of(measure) };
    change(&mut term.options);
    let number = usize::from(term.options.target(measure, Shape::new(&[4, 4])).is_some());
    term.weights = (term.options.weighting != Weighting::None).then_some(number);
    term
}

fn compare(what: &str, terms: &[Term], precision: Precision, (graph, output): (&Graph, NodeId), batch: u64) {
    let (training, optimizer) = gradients();
    let training = Training { loss: terms, ..training };
    let (orders, tolerance) = if precision == Precision::F32 { (0..2, 1e-5) } else { (0..1, 1e-2) };
    let what = format!("{what} in {precision:?}");
    let case = (what.as_str(), graph, output, training, batch, optimizer);
    compare_in((precision, CAPABILITY), orders, case, 1, 3, tolerance);
}

/// Norms of several degrees, with and without the third side; in the place of what they are of, and beside another term.
#[test]
fn triples() {
    for (dims, layers, degree, swap) in
        [(&[7][..], "Linear(5)", 2.0, false), (&[2, 300], "Sigmoid", 1.0, true), (&[3, 4], "Tanh", 3.0, true)]
    {
        let (graph, values) = network(3, dims, layers);
        let first = term(Measure::TripletMargin, &values, |it| (it.second, it.swap) = (Some(degree), swap));
        let what = format!("triples of {dims:?}");
        compare(&what, std::slice::from_ref(&first), Precision::F32, (&graph, values[0]), 3);
        let turned = [values[2], values[0], values[1]];
        let sum = |it: &mut LossOptions| (it.number, it.reduction) = (Some(0.25), Reduction::Sum);
        let second = term(Measure::TripletMargin, &turned, sum);
        compare(&what, &[first.clone(), second.clone()], Precision::F32, (&graph, values[0]), 3);
        // What arrives in 16 bits is what was given.
        let (graph, values) = network(3, dims, "LeakyRelu(1.0)");
        let again = term(Measure::TripletMargin, &values, |it| it.second = Some(degree.min(2.0)));
        compare(&what, &[again], Precision::Bf16, (&graph, values[0]), 3);
    }
}

#[test]
fn rankings() {
    for (dims, margin) in [(&[7][..], 0.3), (&[3, 5, 30], 0.0)] {
        let (graph, values) = network(2, dims, "Tanh");
        let one = term(Measure::MarginRanking, &values, |it| it.number = Some(margin));
        let other = term(Measure::MarginRanking, &[values[1], values[0]], |it| it.reduction = Reduction::Sum);
        let what = format!("rankings of {dims:?}");
        compare(&what, std::slice::from_ref(&one), Precision::F32, (&graph, values[0]), 3);
        compare(&what, &[one, Term { target: 1, ..other }], Precision::F32, (&graph, values[0]), 3);
    }
}

/// Batches of less and of more than a block has warps, and vectors of less and of more than it has threads.
#[test]
fn what_is_found_in_a_batch() {
    for (batch, length, reduction) in [(5, 7, Reduction::Mean), (40, 3, Reduction::Sum), (12, 300, Reduction::Mean)] {
        let (graph, values) = network(1, &[length], "Tanh");
        let hardest = |it: &mut LossOptions| {
            (it.mining, it.number, it.reduction) = (Mining::Hardest, Some(2.0), reduction);
        };
        let one = term(Measure::TripletMargin, &values, hardest);
        let what = format!("{batch} of {length}");
        compare(&what, std::slice::from_ref(&one), Precision::F32, (&graph, values[0]), batch);
        let again = Term { weight: 0.3, target: 1, ..one.clone() };
        compare(&what, &[one, again], Precision::F32, (&graph, values[0]), batch);
    }
}

/// What the CPU backend's goldens have, on the kernels.
#[test]
fn mined_triplets_beside_pytorch() {
    for (file, margin) in [("mined", 0.2), ("mined_many", 1.0)] {
        let path = format!("{}/../gpumem-cpu/tests/truth/losses/{file}.safetensors", env!("CARGO_MANIFEST_DIR"));
        let truth = Truth::parse(&std::fs::read(path).unwrap());
        let (samples, length) = (truth.shape("input.x")[0], truth.shape("input.x")[1]);
        let (graph, values) = network(1, &[length], "LeakyRelu(1.0)");
        let hardest = |it: &mut LossOptions| (it.mining, it.number) = (Mining::Hardest, Some(margin));
        let loss = &[Term { weight: 1.0, ..term(Measure::TripletMargin, &values, hardest) }];
        let (training, optimizer) = gradients();
        let program = lower(&graph, &values, &Options { training: Some(Training { loss, ..training }) }).unwrap();
        let compiled = crate::host::harness::graphs::plan(&program, samples, Precision::F32);
        let placed = place(&compiled).unwrap();
        let format = (Precision::F32, CAPABILITY);
        let mut simulated = Simulated::new(placed, samples, compiled.budget[Line::Arena], optimizer, format, 0);
        let mut state = [0; StateWord::COUNT];
        state[StateWord::LossScale as usize] = 1f32.to_bits();
        let id = |is: &dyn Fn(&Tensor) -> bool| program.tensors.iter().position(is).unwrap();
        simulated.write(id(&|it| it.class == Class::State), &state);
        simulated.write(id(&|it| it.class == Class::Input), truth.words("input.x"));
        simulated.write(id(&|it| it.name == "target"), truth.words("input.target"));
        simulated.step();
        let mut floats = |id: usize| simulated.read(id).into_iter().map(f32::from_bits).collect::<Vec<f32>>();
        assert_close(file, &floats(program.results[0] as usize), &truth.floats("output"), 1e-5);
        assert_close(file, &floats(id(&|it| it.name == "input.gradient")), &truth.floats("grad_input.x"), 1e-5);
    }
}

/// A loss, how many values it is of, the shape of one, and its options.
type Case = (Measure, usize, &'static [u64], fn(&mut LossOptions));

const CASES: &[Case] = &[
    (Measure::CrossEntropy, 1, &[43, 3], |_| {}),
    (Measure::CrossEntropy, 1, &[3, 4, 2], |it| (it.number, it.ignored) = (Some(0.1), Some(1))),
    (Measure::CrossEntropy, 1, &[3], |it| it.probabilities = true),
    (Measure::Nll, 1, &[3], |it| it.weights = Cow::Borrowed(&[0.5, 2.0, 0.25])),
    (Measure::Mse, 1, &[3, 300], |_| {}),
    (Measure::Mean, 1, &[5], |_| {}),
    (Measure::Huber, 1, &[5], |it| it.number = Some(0.25)),
    (Measure::BceWithLogits, 1, &[3, 2, 2], |it| it.weights = Cow::Borrowed(&[0.5, 2.0, 1.5])),
    (Measure::CosineEmbedding, 2, &[2, 4], |it| it.number = Some(0.2)),
    (Measure::TripletMargin, 3, &[2, 4], |_| {}),
    (Measure::MarginRanking, 2, &[3], |_| {}),
    (Measure::Ctc, 1, &[6, 4], |it| (it.target_length, it.zero_infinity) = (2, true)),
];

/// Weights for each sample, and masks for each term: the sum of what a mask leaves takes a launch of its own.
#[test]
fn weights_and_masks() {
    for &(measure, count, dims, options) in CASES {
        for weighting in [Weighting::Samples, Weighting::Mask] {
            if measure == Measure::Ctc && weighting == Weighting::Mask {
                continue;
            }
            let (graph, values) = network(count, dims, if measure == Measure::Ctc { "LogSoftmax" } else { "Sigmoid" });
            let change = |it: &mut LossOptions| {
                options(it);
                it.weighting = weighting;
            };
            let one = term(measure, &values, change);
            let what = format!("{weighting:?} of {measure:?} of {dims:?}");
            compare(&what, std::slice::from_ref(&one), Precision::F32, (&graph, values[0]), 3);
            let (training, optimizer) = gradients();
            let training = Training { loss: std::slice::from_ref(&one), ..training };
            let program = lower(&graph, &values, &Options { training: Some(training) }).unwrap();
            let kernels = kernels_in(&compile(&program, 3), 3, Precision::F32, optimizer);
            let sums = kernels.iter().filter(|kernel| kernel.entry == "sum_of_numbers").count();
            assert_eq!(sums, usize::from(weighting == Weighting::Mask), "{what}");
        }
    }
}

/// Every loss of several values by its row, of fewer and of more elements than a block has threads, with all factors of terms.
#[test]
fn several_values() {
    let of_several = |loss: &&Loss| matches!(loss.row().over, Over::Pairs | Over::Triples | Over::Rankings);
    for &loss in Loss::ALL.iter().filter(of_several) {
        for dims in [&[7][..], &[2, 301]] {
            let (graph, values) = network(loss.row().over.values(), dims, "Sigmoid");
            for weighting in [Weighting::None, Weighting::Samples, Weighting::Mask] {
                let one = term(loss.into(), &values, |it| it.weighting = weighting);
                let what = format!("{loss:?} of {dims:?} with {weighting:?}");
                compare(&what, &[one], Precision::F32, (&graph, values[0]), 3);
            }
        }
    }
}

/// Rows with gaps in 16 bits, two terms that share a gradient, chunks of logits, and parts of a batch.
#[test]
fn weights_in_16_bits_and_in_parts() {
    for weighting in [Weighting::Samples, Weighting::Mask] {
        let (graph, values) = network(1, &[6, 7], "Linear(5)");
        let weighted = |it: &mut LossOptions| it.weighting = weighting;
        let one = term(Measure::CrossEntropy, &values, weighted);
        let what = format!("{weighting:?}");
        compare(&what, std::slice::from_ref(&one), Precision::Bf16, (&graph, values[0]), 3);
        let again = Term { weight: 0.3, target: 2, weights: Some(3), ..one.clone() };
        compare(&what, &[one.clone(), again], Precision::F16, (&graph, values[0]), 3);
        let chunks = Term { options: LossOptions { chunks: Chunks::Count(3), ..one.options.clone() }, ..one };
        let (training, optimizer) = gradients();
        let training = Training { loss: &[chunks], input_gradient: false, ..training };
        let case = (what.as_str(), &graph, values[0], training, 3, optimizer);
        compare_in((Precision::F32, CAPABILITY), 0..2, case, 2, 3, 1e-5);
    }
}
