//! Losses and the gradients that they start from.

use crate::gradients;
use crate::host::harness::graphs::{chain, layer, numbers, plan};
use crate::host::harness::{Truth, assert_close};
use crate::host::{CAPABILITY, Simulated, compare_in, kernels_in};
use gpumem_core::error::Error;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::memory::budget::Line;
use gpumem_core::memory::place::place;
use gpumem_core::operation::Operations;
use gpumem_core::program::loss::{LossOptions, Over, Reduction};
use gpumem_core::program::{Action, Class, Measure, Operand, Slot, StateWord, Tensor};
use gpumem_core::{Loss, Precision};
use gpumem_cuda::operations::{Context, LaunchContext, calls};
use std::borrow::Cow;

/// Compares a network with these terms of a loss.
fn compare(what: &str, terms: &[Term], precision: Precision, (graph, output): (&Graph, NodeId)) {
    let (training, optimizer) = gradients();
    let training = Training { loss: terms, ..training };
    let (orders, tolerance) = if precision == Precision::F32 { (0..3, 1e-5) } else { (0..1, 1e-2) };
    let what = format!("{what} in {precision:?}");
    let case = (what.as_str(), graph, output, training, 3, optimizer);
    compare_in((precision, CAPABILITY), orders, case, 2, 5, tolerance);
}

/// The output of a small network, and a value before it.
fn network(dims: &[u64], classes: &str) -> (Graph, NodeId, NodeId) {
    let mut graph = Graph::default();
    let input = graph.input(numbers(dims)).unwrap();
    let hidden = layer(&mut graph, input, "Tanh");
    let output = chain(&mut graph, hidden, classes);
    (graph, hidden, output)
}

/// The kernels of a network's loss.
fn entries(terms: &[Term], batch: u64, (graph, output): (&Graph, NodeId)) -> Vec<&'static str> {
    let (training, optimizer) = gradients();
    let training = Training { loss: terms, ..training };
    let program = lower(graph, &[output], &Options { training: Some(training) }).unwrap();
    let placed = crate::host::harness::compile(&program, batch);
    let kernels = kernels_in(&placed, batch, Precision::F32, optimizer);
    kernels.into_iter().filter(|kernel| kernel.file == "loss.cu").map(|kernel| kernel.entry).collect()
}

/// One block goes through few elements, and a second one adds up what many blocks have left of more.
#[test]
fn few_elements_and_many() {
    let small = [
        (Measure::CrossEntropy, "cross_entropy"),
        (Measure::Mse, "mse"),
        (Measure::Mean, "mean"),
        (Measure::Dot, "dot"),
        (Measure::BceWithLogits, "elements"),
    ];
    for (measure, entry) in small {
        // 129 rows, and 8193 elements: one more than one block takes.
        let few = if measure == Measure::CrossEntropy { [&[42, 5], &[43, 5]] } else { [&[2730, 1], &[2731, 1]] };
        for (dims, is_small) in few.into_iter().zip([true, false]) {
            let (graph, _, output) = network(dims, "Sigmoid");
            let term = Term { weight: -0.3, ..Term::of(measure) };
            let terms = [term];
            let found = entries(&terms, 3, (&graph, output));
            let many: &[&str] = match measure {
                Measure::CrossEntropy => &["cross_entropy_rows", "loss_total"],
                Measure::Mse => &["mse_partial", "loss_total"],
                Measure::Mean => &["mean_partial", "loss_total"],
                Measure::Dot => &["dot_partial", "loss_total"],
                _ => &["elements_partial", "loss_total"],
            };
            let expected = if is_small { vec![entry] } else { many.to_vec() };
            assert_eq!(found, expected, "{measure:?} of {dims:?}");
            compare(&format!("{measure:?} of {dims:?}"), &terms, Precision::F32, (&graph, output));
        }
    }
    // Long rows, and many elements in few rows.
    for (dims, expected) in [(&[1024][..], 1), (&[1025], 2), (&[6, 900], 1), (&[7, 900], 2)] {
        let (graph, _, output) = network(dims, "Sigmoid");
        assert_eq!(entries(&[Term::CROSS_ENTROPY], 3, (&graph, output)).len(), expected, "{dims:?}");
        compare(&format!("{dims:?}"), &[Term::CROSS_ENTROPY], Precision::F32, (&graph, output));
    }
}

const MEASURES: [Measure; 4] = [Measure::CrossEntropy, Measure::Mse, Measure::Mean, Measure::Dot];

/// Weights of five classes.
const WEIGHTS: Cow<'static, [f64]> = Cow::Borrowed(&[0.5, 2.0, 0.0, 1.25, 3.0]);

/// Losses with their options, of five classes. Those of elements come from their rows.
fn with_options() -> Vec<Term> {
    let term = |measure, change: &dyn Fn(&mut LossOptions)| {
        let mut term = Term { weight: -0.3, ..Term::of(measure) };
        change(&mut term.options);
        term
    };
    let mut terms = vec![
        term(Measure::Mse, &|it| it.reduction = Reduction::Sum),
        term(Measure::KlDiv, &|it| (it.log_target, it.reduction) = (true, Reduction::BatchMean)),
        term(Measure::Nll, &|_| {}),
        term(Measure::Nll, &|it| (it.weights, it.ignored) = (WEIGHTS, Some(1))),
        term(Measure::CrossEntropy, &|it| it.number = Some(0.1)),
        term(Measure::CrossEntropy, &|it| (it.weights, it.reduction) = (WEIGHTS, Reduction::Sum)),
        term(Measure::CrossEntropy, &|it| (it.weights, it.number, it.ignored) = (WEIGHTS, Some(0.2), Some(3))),
        term(Measure::CrossEntropy, &|it| (it.probabilities, it.number) = (true, Some(0.2))),
        term(Measure::CrossEntropy, &|it| (it.probabilities, it.weights) = (true, WEIGHTS)),
    ];
    for &loss in Loss::ALL.iter().filter(|loss| loss.row().over == Over::Elements) {
        let (measure, row) = (Measure::from(loss), loss.row());
        // Targets are any numbers. Some have no logarithm, but all may be logarithms.
        terms.push(term(measure, &|it| it.log_target = row.divergence));
        if let Some(number) = row.number {
            let least = (number.least == 0.0 && !number.above).then_some(0.0);
            let numbers = [Some(0.25), least].into_iter().flatten();
            terms.extend(numbers.map(|number| term(measure, &|it| it.number = Some(number))));
        }
        if row.weights.is_some() {
            let weights = [Cow::Borrowed(&[2.5][..]), WEIGHTS];
            terms.extend(weights.map(|weights| term(measure, &|it| it.weights = weights.clone())));
        }
    }
    terms
}

#[test]
fn options() {
    for term in with_options() {
        // A vector, a sequence and maps; some take more than one block. All logits are positive, so that likelihoods do not cancel.
        for (dims, layers) in
            [(&[5][..], "Sigmoid"), (&[43, 5], "Sigmoid"), (&[5, 4, 3], "Sigmoid"), (&[5, 43, 1], "Sigmoid")]
        {
            let (graph, _, output) = network(dims, layers);
            let what = format!("{:?} {:?} of {dims:?}", term.measure, term.options);
            compare(&what, std::slice::from_ref(&term), Precision::F32, (&graph, output));
        }
    }
}

/// Rows with gaps in 16 bits, in a gradient of their own that two terms share as well.
#[test]
fn options_in_rows_with_gaps() {
    for term in with_options() {
        let (graph, _, output) = network(&[7], "Linear(5)");
        let what = format!("{:?} {:?}", term.measure, term.options);
        compare(&what, std::slice::from_ref(&term), Precision::Bf16, (&graph, output));
        let again = Term { target: 1, ..term.clone() };
        compare(&what, &[term, again], Precision::F16, (&graph, output));
    }
}

/// What the positions are divided by takes a launch of its own where one block is not enough.
#[test]
fn launches_of_counted_positions() {
    let term = |ignored| Term { options: LossOptions { ignored, ..LossOptions::DEFAULT }, ..Term::CROSS_ENTROPY };
    for (dims, ignored, expected) in [
        (&[42, 5], Some(1), &["cross_entropy"][..]),
        (&[43, 5], Some(1), &["loss_divisor", "cross_entropy_rows_counted", "loss_total_counted"]),
        (&[43, 5], None, &["cross_entropy_rows", "loss_total"]),
    ] {
        let (graph, _, output) = network(dims, "Sigmoid");
        assert_eq!(entries(&[term(ignored)], 3, (&graph, output)), expected);
    }
}

/// A position whose target is no class at all, and the only one: the mean of nothing, and no gradient.
#[test]
fn no_position_counts() {
    let ignored = -100i32 as u32;
    let options = LossOptions { ignored: Some(ignored), ..LossOptions::DEFAULT };
    for measure in [Measure::CrossEntropy, Measure::Nll] {
        let term = Term { options: options.clone(), ..Term::of(measure) };
        let (loss, gradient) = loss_with(term.clone(), &[0.5; 1500], ignored);
        assert!(loss.is_nan());
        assert_eq!(gradient, [0.0; 1500]);
        assert!(loss_with(term, &[0.5; 1500], 1499).0.is_finite());
    }
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn every_measure_with_a_weight() {
    for measure in MEASURES {
        let terms = [Term { weight: -0.3, ..Term::of(measure) }];
        for precision in [Precision::F32, Precision::F16] {
            let (graph, _, output) = network(&[7], "LayerNorm");
            compare(&format!("{measure:?}"), &terms, precision, (&graph, output));
        }
    }
    for (dims, layers) in [(&[6, 5][..], "LayerNorm"), (&[5, 4, 3], "Sigmoid")] {
        let (graph, _, output) = network(dims, layers);
        compare(layers, &[Term::CROSS_ENTROPY], Precision::F32, (&graph, output));
    }
}

/// The first term writes the loss, the others add to it; so do gradients of what is measured twice.
fn check_pair(first: Measure, second: Measure, precisions: &[Precision]) {
    let (graph, hidden, output) = network(&[5], "Sigmoid");
    let own = Term { weight: 0.5, from: Some(hidden), target: 1, ..Term::of(second) };
    let again = Term { weight: 2.0, target: 2, ..Term::of(second) };
    let what = format!("{first:?} and {second:?}");
    let terms = [Term::of(first), own, again];
    for &precision in precisions {
        compare(&what, &terms, precision, (&graph, output));
    }
}

#[test]
fn terms_with_targets_of_their_own() {
    for [first, second] in [[0, 1], [1, 2], [2, 3], [3, 0]].map(|pair| pair.map(|index: usize| MEASURES[index])) {
        check_pair(first, second, &[Precision::F32, Precision::Bf16]);
    }
}

/// In 32 bits: a loss whose terms cancel shows how each was rounded to 16.
#[test]
#[ignore = "a sweep: run by .ci/run"]
fn every_pair_of_measures() {
    let all = |first| MEASURES.iter().for_each(|&second| check_pair(first, second, &[Precision::F32]));
    MEASURES.into_iter().for_each(all);
}

/// What nothing that is trained depends on has a loss, and no gradient.
#[test]
fn a_term_without_a_gradient() {
    let mut graph = Graph::default();
    let [input, other] = [7, 5].map(|features| graph.input(numbers(&[features])).unwrap());
    let output = layer(&mut graph, input, "Linear(5)");
    let (training, optimizer) = gradients();
    for measure in MEASURES {
        let constant = Term { weight: 0.5, from: Some(other), target: 1, ..Term::of(measure) };
        let loss = &[Term::MSE, constant];
        let training = Training { loss, input_gradient: false, ..training };
        let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
        let losses = program.operations.iter().filter(|operation| matches!(operation.action, Action::Loss(_)));
        let have: Vec<bool> = losses.map(|loss| loss.written(Slot::InputGradient(0)).is_some()).collect();
        assert_eq!(have, [true, false]);
        let case = ("a constant", &graph, output, training, 3, optimizer);
        compare_in((Precision::F32, CAPABILITY), 0..3, case, 1, 5, 1e-5);
    }
}

#[test]
fn a_gradient_is_not_added_to_the_logits() {
    let (graph, _, output) = network(&[5], "Linear(5)");
    let (training, optimizer) = gradients();
    let mut program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
    let loss = program.operations.iter_mut().find(|operation| matches!(operation.action, Action::Loss(_))).unwrap();
    let tensor = loss.read(Slot::Input(0)).unwrap();
    assert_eq!(loss.written(Slot::InputGradient(0)), Some(tensor), "the gradient overwrites the logits");
    loss.accumulate = true;
    loss.reads.push(Operand { slot: Slot::InputGradient(0), tensor });
    let placed = crate::host::harness::compile(&program, 3);
    let setting = LaunchContext {
        rank: 0,
        batch: 3,
        precision: Precision::F32,
        optimizer,
        capability: CAPABILITY,
        multiprocessors: 132,
        tf32: false,
        deterministic: false,
        library: false,
        cudnn: false,
        operations: &Operations::NONE,
    };
    let is_loss = |operation: &&gpumem_core::program::Operation| matches!(operation.action, Action::Loss(_));
    let operation = placed.program.operations.iter().find(is_loss).unwrap();
    let error = calls(&Context { placed: &placed, operation, setting }).unwrap_err();
    assert_eq!(error, Error::Damaged("the loss adds to the gradient that overwrites its logits"));
}

/// Rows of logits that lie 128 bytes apart or a multiple of that, in whole packs of 16 bytes and not.
#[test]
fn logits_in_rows_with_gaps() {
    for (dims, layers, has_bias) in [(&[7][..], "Linear(5)", true), (&[3, 9], "Linear(69, bias = false)", false)] {
        let (graph, _, output) = network(dims, layers);
        let training = Training { loss: &[Term::CROSS_ENTROPY], ..gradients().0 };
        let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
        let gaps: Vec<u64> = program.tensors.iter().map(|tensor| tensor.pitch).filter(|&pitch| pitch > 0).collect();
        assert_eq!(gaps, [if has_bias { 64 } else { 128 }]);
        // A second term adds to a gradient of its own.
        let again = Term { weight: 0.5, target: 1, ..Term::CROSS_ENTROPY };
        for terms in [&[Term::CROSS_ENTROPY][..], &[Term::CROSS_ENTROPY, again.clone()]] {
            for precision in [Precision::Bf16, Precision::F16] {
                compare(layers, terms, precision, (&graph, output));
            }
        }
    }
}

/// A pair of values of these layers, which overwrite what they are or not.
fn pair(dims: &[u64], layers: &str) -> (Graph, [NodeId; 2]) {
    let mut graph = Graph::default();
    let inputs = [0, 1].map(|_| graph.input(numbers(dims)).unwrap());
    let values = inputs.map(|input| chain(&mut graph, input, layers));
    (graph, values)
}

/// Two vectors, or sequences of them, of less than a warp and more than a block; 16 bits; two terms.
#[test]
fn pairs() {
    for (dims, layers, number, reduction) in [
        (&[7][..], "Linear(5)", Some(0.2), Reduction::Mean),
        (&[3, 4], "Sigmoid", Some(0.2), Reduction::Sum),
        (&[2, 301], "Sigmoid", None, Reduction::Mean),
    ] {
        let (graph, [x, y]) = pair(dims, layers);
        let options = LossOptions { number, reduction, ..LossOptions::DEFAULT };
        let term = Term { weight: 0.7, from: Some(x), and: Some(y), options, ..Term::of(Measure::CosineEmbedding) };
        let found = entries(std::slice::from_ref(&term), 3, (&graph, x));
        assert_eq!(found, ["loss_total"]);
        let again = Term { weight: 0.5, from: Some(y), and: Some(x), target: 1, ..term.clone() };
        let what = format!("pairs of {dims:?}");
        compare(&what, std::slice::from_ref(&term), Precision::F32, (&graph, x));
        let several = [Term::MSE, term, again].map(numbered);
        compare(&what, &several, Precision::F32, (&graph, x));
        // What arrives in 16 bits is what was given.
        let (graph, [x, y]) = pair(dims, "LeakyRelu(1.0)");
        for precision in [Precision::Bf16, Precision::F16] {
            let terms: Vec<Term> = several.iter().map(|term| between(term, [x, y])).collect();
            compare(&what, &terms[1..2], precision, (&graph, x));
            compare(&what, &terms, precision, (&graph, x));
        }
    }
}

/// A term of other values, in the order of their numbers.
fn between(term: &Term, [x, y]: [NodeId; 2]) -> Term {
    let [from, and] = if term.from < term.and { [x, y] } else { [y, x] };
    Term { from: term.from.map(|_| from), and: term.and.map(|_| and), ..term.clone() }
}

/// A term with a target of its own.
fn numbered(term: Term) -> Term {
    let is_mse = term.measure == Measure::Mse;
    Term { target: if is_mse { 2 } else { term.target }, ..term }
}

/// One value is not trained.
#[test]
fn one_side_of_a_pair() {
    let mut graph = Graph::default();
    let [input, other] = [7, 5].map(|features| graph.input(numbers(&[features])).unwrap());
    let output = layer(&mut graph, input, "Linear(5)");
    let (training, optimizer) = gradients();
    for [from, and] in [[output, other], [other, output]] {
        let loss = &[Term { from: Some(from), and: Some(and), ..Term::of(Measure::CosineEmbedding) }];
        let training = Training { loss, input_gradient: false, ..training };
        let case = ("one side", &graph, output, training, 3, optimizer);
        compare_in((Precision::F32, CAPABILITY), 0..3, case, 2, 5, 1e-5);
    }
}

/// Labels in a step of 1, and lengths from 0 on: some targets end early or are empty, and some need more steps than there are.
#[test]
fn sequences() {
    let term = |target_length, blank, lengths| {
        let options = LossOptions { target_length, blank, zero_infinity: true, ..LossOptions::DEFAULT };
        Term { weight: 0.7, lengths, options, ..Term::of(Measure::Ctc) }
    };
    for (dims, layers, term) in [
        (&[9, 4][..], "Linear(5) | LogSoftmax", term(4, 0, None)),
        (&[9, 4], "Linear(5) | LogSoftmax", term(4, 4, Some(1))),
        // The gradient overwrites what it is of.
        (&[9, 4], "Linear(5)", term(3, 2, None)),
        // More states than a warp, and more classes than states.
        (&[40, 9], "LogSoftmax", term(25, 7, None)),
        (&[3, 70], "LogSoftmax", term(2, 69, None)),
        // Longer targets than there are steps.
        (&[4, 5], "LogSoftmax", term(30, 3, Some(1))),
    ] {
        let (graph, _, output) = network(dims, layers);
        let sum = Term {
            weight: 0.5,
            options: LossOptions { reduction: Reduction::Sum, ..term.options.clone() },
            ..term.clone()
        };
        let what = format!("a sequence of {dims:?}");
        compare(&what, std::slice::from_ref(&term), Precision::F32, (&graph, output));
        compare(&what, &[term.clone(), sum.clone()], Precision::F32, (&graph, output));
        // What arrives in 16 bits is what was given.
        let mut graph = Graph::default();
        let input = graph.input(numbers(&[dims[0], dims[1].max(5)])).unwrap();
        let output = layer(&mut graph, input, "LeakyRelu(1.0)");
        compare(&what, std::slice::from_ref(&term), Precision::Bf16, (&graph, output));
        compare(&what, &[term, sum], Precision::F16, (&graph, output));
    }
}

/// More states than a block has threads.
#[test]
fn a_long_target() {
    let options = LossOptions { target_length: 260, blank: 5, ..LossOptions::DEFAULT };
    let term = Term { options, ..Term::of(Measure::Ctc) };
    let (graph, _, output) = network(&[520, 6], "LogSoftmax");
    let (training, optimizer) = gradients();
    let training = Training { loss: &[term], ..training };
    compare_in(
        (Precision::F32, CAPABILITY),
        0..1,
        ("a long target", &graph, output, training, 1, optimizer),
        1,
        5,
        1e-5,
    );
}

/// What the CPU backend's goldens have, on the kernels: labels that come again, one after the other and apart.
#[test]
fn sequences_beside_pytorch() {
    for (file, options) in [
        ("ctc_mean", LossOptions::DEFAULT),
        ("ctc_sum", LossOptions { blank: 2, reduction: Reduction::Sum, ..LossOptions::DEFAULT }),
        ("ctc_zero_infinity", LossOptions { zero_infinity: true, ..LossOptions::DEFAULT }),
        ("ctc_long", LossOptions::DEFAULT),
    ] {
        let path = format!("{}/../gpumem-cpu/tests/truth/losses/{file}.safetensors", env!("CARGO_MANIFEST_DIR"));
        let truth = Truth::parse(&std::fs::read(path).unwrap());
        let target_length = truth.shape("input.target")[1];
        let options = LossOptions { target_length, ..options };
        let term = Term { lengths: Some(1), options, ..Term::of(Measure::Ctc) };
        let [labels, lengths] = ["input.target", "input.lengths"].map(|name| truth.words(name));
        let (loss, gradient) = measured(term, truth.shape("input.x"), truth.words("input.x"), &[labels, lengths]);
        assert_close(&format!("{file} loss"), &[loss], &truth.floats("output"), 1e-5);
        assert_close(&format!("{file} gradient"), &gradient, &truth.floats("grad_input.x"), 1e-5);
    }
}

/// An infinite loss has no gradient that is a number, where it counts.
#[test]
fn targets_longer_than_their_steps() {
    let options = LossOptions { target_length: 2, ..LossOptions::DEFAULT };
    let term = Term { lengths: Some(1), options, ..Term::of(Measure::Ctc) };
    let x = [0.5f32.ln().to_bits(); 6];
    let run = |steps: u32| measured(term.clone(), &[1, 3, 2], &x, &[&[1, 1], &[steps]]);
    let (loss, gradient) = run(2);
    assert_eq!(loss, f32::INFINITY);
    assert_eq!(gradient.iter().map(|slope| slope.is_nan()).collect::<Vec<_>>(), [true, true, true, true, false, false]);
    assert_eq!(run(0), (f32::INFINITY, vec![0.0; 6]));
    assert!((run(3).0 - 1.5 * 2f32.ln()).abs() < 1e-6);
}

/// The cross entropy of 1500 logits on the kernels, and its gradient.
fn loss_of(logits: &[f32], target: u32) -> (f32, Vec<f32>) {
    loss_with(Term::CROSS_ENTROPY, logits, target)
}

/// The same of another loss.
fn loss_with(term: Term, logits: &[f32], target: u32) -> (f32, Vec<f32>) {
    let bits: Vec<u32> = logits.iter().map(|x| x.to_bits()).collect();
    measured(term, &[1, logits.len() as u64], &bits, &[&[target]])
}

/// The loss of numbers of this shape, batch and all, and its gradient.
fn measured(term: Term, shape: &[u64], x: &[u32], targets: &[&[u32]]) -> (f32, Vec<f32>) {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&shape[1..])).unwrap();
    let output = layer(&mut graph, input, "LeakyRelu(1.0)");
    let (training, optimizer) = gradients();
    let training = Training { loss: &[term], ..training };
    let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
    let compiled = plan(&program, shape[0], Precision::F32);
    let placed = place(&compiled).unwrap();
    let format = (Precision::F32, CAPABILITY);
    let mut simulated = Simulated::new(placed, shape[0], compiled.budget[Line::Arena], optimizer, format, 0);
    let mut state = [0; StateWord::COUNT];
    state[StateWord::LossScale as usize] = 1f32.to_bits();
    let id = |is: &dyn Fn(&Tensor) -> bool| program.tensors.iter().position(is).unwrap();
    simulated.write(id(&|it| it.class == Class::State), &state);
    simulated.write(id(&|it| it.class == Class::Input), x);
    for (index, words) in targets.iter().enumerate() {
        let name = if index == 0 { "target".to_string() } else { format!("target{index}") };
        simulated.write(id(&|it| it.name == name), words);
    }
    simulated.step();
    let mut floats = |id: usize| simulated.read(id).into_iter().map(f32::from_bits).collect::<Vec<f32>>();
    (floats(program.results[0] as usize)[0], floats(id(&|it| it.name == "input.gradient")))
}

/// Classes whose logits are minus infinity count for nothing, wherever they are; NaN and infinity reach the loss.
#[test]
fn logits_that_are_not_finite() {
    let (least, nan) = (f32::NEG_INFINITY, f32::NAN);
    let with = |odd: &[(usize, f32)]| {
        let mut logits: Vec<f32> = (0..1500).map(|c| (c * 37 % 101) as f32 / 10.0 - 5.0).collect();
        odd.iter().for_each(|&(at, x)| logits[at] = x);
        logits
    };
    // What thread 0 sees first, and all that the last thread sees.
    let masked: Vec<(usize, f32)> = (0..9).chain(1020..1024).map(|at| (at, least)).collect();
    let logits = with(&masked);
    let sum: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
    let (loss, gradient) = loss_of(&logits, 700);
    let close = |a: f32, b: f64| (f64::from(a) - b).abs() < 1e-6 * b.abs().max(1e-3);
    assert!(close(loss, sum.ln() - f64::from(logits[700])), "{loss}");
    for (c, (&found, &x)) in gradient.iter().zip(&logits).enumerate() {
        let expected = f64::from(x).exp() / sum - f64::from(u8::from(c == 700));
        assert!(close(found, expected), "{c}: {found}, not {expected}");
    }
    assert_eq!(loss_of(&logits, 3).0, f32::INFINITY, "the right class is impossible");
    let odd: [&[(usize, f32)]; 3] =
        [&[(1400, nan)], &[(0, least), (1, nan), (2, least), (3, least)], &[(5, f32::INFINITY)]];
    for odd in odd {
        assert!(loss_of(&with(odd), 700).0.is_nan(), "{odd:?}");
    }
    assert!(loss_of(&[least; 1500], 700).0.is_nan());
}
