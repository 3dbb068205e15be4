//! Losses of pairs of vectors and of sequences: against PyTorch, against their definitions, and what they do where there is nothing to
//! compare.

mod harness;

use gpumem_core::Update;
use gpumem_core::error::Error;
use gpumem_core::graph::{Graph, NodeId, Type};
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::program::loss::{LossOptions, Reduction};
use gpumem_core::program::{Action, Measure, Slot};
use gpumem_core::shape::Shape;
use gpumem_core::train::optim::{Optimizer, Sgd};
use harness::graphs::{chain, layer};
use harness::{Loaded, Truth, assert_close};

const STAY: Optimizer = Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT });

fn training(loss: &[Term]) -> Training<'_> {
    Training {
        loss,
        moments: 0,
        update: Update::Separate,
        skips_overflow: false,
        input_gradient: true,
        descent: gpumem_core::train::Descent::PLAIN,
    }
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

/// A graph with this many inputs of a shape, each behind a layer that passes it on.
fn passed_on(count: usize, dims: &[u64], layers: &str) -> (Graph, Vec<NodeId>) {
    let mut graph = Graph::default();
    let inputs: Vec<NodeId> = (0..count).map(|_| graph.input(Type::numbers(Shape::new(dims))).unwrap()).collect();
    let values = inputs.into_iter().map(|input| chain(&mut graph, input, layers)).collect();
    (graph, values)
}

fn ctc(target_length: u64, change: impl Fn(&mut LossOptions)) -> Term {
    let mut term = Term { lengths: Some(1), ..Term::of(Measure::Ctc) };
    term.options.target_length = target_length;
    change(&mut term.options);
    term
}

/// A file of `truth/losses` on these terms.
fn check_golden(file: &str, names: &[&str], term: Term) {
    let truth = Truth::read(&format!("losses/{file}.safetensors"));
    let shape = truth.shape(&format!("input.{}", names[0]));
    let (graph, values) = passed_on(names.len(), &shape[1..], "LeakyRelu(1.0)");
    let term = Term { and: values.get(1).copied(), from: Some(values[0]), ..term };
    let mut loaded = Loaded::new(&graph, values[0], training(std::slice::from_ref(&term)), shape[0], STAY);
    let input = |index: usize| if index == 0 { "input".to_string() } else { format!("input{index}") };
    for (index, name) in names.iter().enumerate() {
        loaded.set(&input(index), truth.words(&format!("input.{name}")));
    }
    loaded.set("target", truth.words("input.target"));
    if term.lengths.is_some() {
        loaded.set("target1", truth.words("input.lengths"));
    }
    assert_close(&format!("{file} output"), &[loaded.step().unwrap()], &truth.floats("output"), 1e-5);
    for (index, name) in names.iter().enumerate() {
        let found = loaded.get(&format!("{}.gradient", input(index))).unwrap();
        assert_close(&format!("{file} {name}"), &found, &truth.floats(&format!("grad_input.{name}")), 1e-5);
    }
}

#[test]
fn cosine_embedding_beside_pytorch() {
    check_golden("cosine_embedding_mean", &["x", "y"], Term::of(Measure::CosineEmbedding));
    let mut term = Term::of(Measure::CosineEmbedding);
    (term.options.number, term.options.reduction) = (Some(0.3), Reduction::Sum);
    check_golden("cosine_embedding_sum", &["x", "y"], term);
}

#[test]
fn ctc_beside_pytorch() {
    check_golden("ctc_mean", &["x"], ctc(5, |_| {}));
    check_golden("ctc_sum", &["x"], ctc(5, |it| (it.blank, it.reduction) = (2, Reduction::Sum)));
    check_golden("ctc_zero_infinity", &["x"], ctc(5, |it| it.zero_infinity = true));
    check_golden("ctc_long", &["x"], ctc(60, |_| {}));
}

/// Numbers between -2 and 2 that f32 holds.
fn wave(length: usize, by: f64) -> Vec<f64> {
    (0..length).map(|i| 2.0 * ((i as f64 * by).sin() * 4096.0).round() / 4096.0).collect()
}

fn narrow(numbers: &[f64]) -> Vec<u32> {
    numbers.iter().map(|&number| (number as f32).to_bits()).collect()
}

/// Checks a gradient against the central difference of a formula.
fn check_slopes(what: &str, x: &[f64], gradient: &[f32], formula: impl Fn(&[f64]) -> f64) {
    for i in 0..x.len() {
        let moved = |by: f64| {
            let mut x = x.to_vec();
            x[i] += by;
            formula(&x)
        };
        let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
        let found = f64::from(gradient[i]);
        assert!((found - slope).abs() <= 1e-5 * slope.abs().max(1.0), "{what}: {i}: {found}, not {slope}");
    }
}

/// Sequences of vectors, with several targets and a margin.
#[test]
fn slopes_of_cosine_embedding() {
    let (x, y) = (wave(30, 1.7), wave(30, 2.9));
    let targets = [1.0, -1.0, -1.0, 1.0, -1.0, 0.0];
    for (margin, reduction) in [(0.0, Reduction::Mean), (-0.4, Reduction::Sum), (0.9, Reduction::Mean)] {
        let (graph, values) = passed_on(2, &[2, 5], "LeakyRelu(1.0)");
        let mut term = Term { from: Some(values[0]), and: Some(values[1]), ..Term::of(Measure::CosineEmbedding) };
        (term.options.number, term.options.reduction) = (Some(margin), reduction);
        let mut loaded = Loaded::new(&graph, values[0], training(&[term]), 3, STAY);
        loaded.set("input", &narrow(&x));
        loaded.set("input1", &narrow(&y));
        loaded.set("target", &bits(&targets));
        let formula = |x: &[f64], y: &[f64]| {
            let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
            let term = |pair: usize| {
                let (x, y) = (&x[pair * 5..][..5], &y[pair * 5..][..5]);
                let cosine = dot(x, y) / (dot(x, x) * dot(y, y)).sqrt();
                match targets[pair] {
                    1.0 => 1.0 - cosine,
                    -1.0 => (cosine - margin).max(0.0),
                    _ => 0.0,
                }
            };
            (0..6).map(term).sum::<f64>() / if reduction == Reduction::Mean { 6.0 } else { 1.0 }
        };
        let (loss, expected) = (f64::from(loaded.step().unwrap()), formula(&x, &y));
        assert!((loss - expected).abs() < 1e-6 * expected.max(1.0), "{loss}, not {expected}");
        check_slopes("x", &x, &loaded.get("input.gradient").unwrap(), |x| formula(x, &y));
        check_slopes("y", &y, &loaded.get("input1.gradient").unwrap(), |y| formula(&x, y));
    }
}

/// Vectors that have nothing in common are as far apart as the margin asks, and are still driven apart: as by PyTorch's `clamp`.
#[test]
fn a_cosine_at_the_margin_has_a_slope() {
    let (graph, values) = passed_on(2, &[2], "LeakyRelu(1.0)");
    let term = Term { from: Some(values[0]), and: Some(values[1]), ..Term::of(Measure::CosineEmbedding) };
    let mut loaded = Loaded::new(&graph, values[0], training(&[term]), 2, STAY);
    loaded.set("input", &narrow(&[2.0, 0.0, 0.0, 1.0]));
    loaded.set("input1", &narrow(&[0.0, 4.0, -8.0, 0.0]));
    loaded.set("target", &bits(&[-1.0, -1.0]));
    assert_eq!(loaded.step().unwrap(), 0.0);
    assert_close("x", &loaded.get("input.gradient").unwrap(), &[0.0, 0.25, -0.5, 0.0], 1e-6);
    assert_close("y", &loaded.get("input1.gradient").unwrap(), &[0.125, 0.0, 0.0, 0.0625], 1e-6);
}

/// One value is not trained, and the other's gradient overwrites it; a second term adds to it.
#[test]
fn one_side_of_a_pair() {
    let (x, y) = (wave(12, 1.3), wave(12, 0.7));
    let gradients = |terms: &[f64], input_gradient: bool| {
        let mut graph = Graph::default();
        let [input, other] = [0, 1].map(|_| graph.input(Type::numbers(Shape::new(&[4]))).unwrap());
        let value = layer(&mut graph, input, "Linear(4, bias = false)");
        let weight = format!("{}.weight", graph.rows[0].path);
        let pair = Term { from: Some(other), and: Some(value), ..Term::of(Measure::CosineEmbedding) };
        let terms: Vec<Term> = terms.iter().map(|&weight| Term { weight, ..pair.clone() }).collect();
        let training = Training { input_gradient, ..training(&terms) };
        let program = lower(&graph, &[value], &Options { training: Some(training) }).unwrap();
        let losses = program.operations.iter().filter(|operation| matches!(operation.action, Action::Loss(_)));
        let over: Vec<bool> =
            losses.map(|loss| loss.written(Slot::InputGradient(1)) == loss.read(Slot::Input(1))).collect();
        assert_eq!(over, vec![terms.len() == 1; terms.len()]);
        let mut loaded = Loaded::new(&graph, value, training, 3, STAY);
        loaded.set("input", &narrow(&x));
        loaded.set("input1", &narrow(&y));
        loaded.set(&weight, &bits(&wave(16, 0.9).iter().map(|&x| x as f32).collect::<Vec<f32>>()));
        loaded.set("target", &bits(&[1.0, -1.0, 1.0]));
        (loaded.step().unwrap(), loaded.get(&format!("{weight}.gradient")).unwrap())
    };
    let (loss, gradient) = gradients(&[1.5], false);
    assert!(gradient.iter().all(|slope| *slope != 0.0));
    for (terms, input_gradient) in [(&[1.5][..], true), (&[1.0, 0.5], false), (&[0.5, 0.5, 0.5], true)] {
        let (again, found) = gradients(terms, input_gradient);
        assert_close("loss", &[again], &[loss], 1e-6);
        assert_close("gradient", &found, &gradient, 1e-6);
    }
}

/// What the logits say of a target: of all ways to go through the classes, those whose labels it is.
fn likelihood(logits: &[f64], classes: usize, steps: usize, blank: usize, target: &[usize]) -> f64 {
    let of_step = |step: usize, class: usize| {
        let logits = &logits[step * classes..][..classes];
        logits[class].exp() / logits.iter().map(|x| x.exp()).sum::<f64>()
    };
    let ways = (0..classes.pow(steps as u32))
        .map(|way| -> Vec<usize> { (0..steps).map(|step| way / classes.pow(step as u32) % classes).collect() });
    let is_of_target = |way: &Vec<usize>| {
        let mut labels = way.clone();
        labels.dedup();
        labels.retain(|&label| label != blank);
        labels == target
    };
    ways.filter(is_of_target)
        .map(|way| way.iter().enumerate().map(|(step, &class)| of_step(step, class)).product::<f64>())
        .sum()
}

/// Targets as words, each ended in a way of its own, and what counts of them.
const TARGETS: [([u32; 3], &[usize], u32); 5] = [
    ([1, 2, 1], &[1, 2, 1], 4),
    ([1, 1, u32::MAX], &[1, 1], 4),
    ([2, 0, 1], &[2], 3),
    ([-100i32 as u32, 2, 2], &[], 4),
    ([0, 0, 0], &[], 1),
];

/// The gradient of logits is that of the definition.
#[test]
fn slopes_of_ctc() {
    let logits = wave(5 * 12, 1.1);
    for (reduction, with_lengths) in [(Reduction::Mean, true), (Reduction::Sum, true), (Reduction::Sum, false)] {
        let (graph, values) = passed_on(1, &[4, 3], "LogSoftmax");
        let mut term = ctc(3, |it| it.reduction = reduction);
        term.lengths = term.lengths.filter(|_| with_lengths);
        let mut loaded = Loaded::new(&graph, values[0], training(&[term]), 5, STAY);
        loaded.set("input", &narrow(&logits));
        loaded.set("target", &TARGETS.map(|(words, ..)| words).concat());
        if with_lengths {
            loaded.set("target1", &TARGETS.map(|(_, _, steps)| steps));
        }
        let formula = |logits: &[f64]| {
            let of = |(sample, (_, target, steps)): (usize, ([u32; 3], &[usize], u32))| {
                let steps = if with_lengths { steps as usize } else { 4 };
                let loss = -likelihood(&logits[sample * 12..][..12], 3, steps, 0, target).ln();
                if reduction == Reduction::Mean { loss / target.len().max(1) as f64 / 5.0 } else { loss }
            };
            TARGETS.into_iter().enumerate().map(of).sum::<f64>()
        };
        let (loss, expected) = (f64::from(loaded.step().unwrap()), formula(&logits));
        assert!((loss - expected).abs() < 1e-6 * expected, "{loss}, not {expected}");
        check_slopes("logits", &logits, &loaded.get("input.gradient").unwrap(), formula);
    }
}

/// As PyTorch: no way leads to the target, or there is no step.
#[test]
fn targets_longer_than_their_steps() {
    let run = |words: [u32; 2], steps: u32, zero_infinity: bool| {
        let (graph, values) = passed_on(1, &[3, 2], "LeakyRelu(1.0)");
        let term = ctc(2, |it| it.zero_infinity = zero_infinity);
        let mut loaded = Loaded::new(&graph, values[0], training(&[term]), 1, STAY);
        loaded.set("input", &bits(&[0.5f32.ln(); 6]));
        loaded.set("target", &words);
        loaded.set("target1", &[steps]);
        (loaded.step().unwrap(), loaded.get("input.gradient").unwrap())
    };
    // The same label twice takes a blank between.
    let (loss, gradient) = run([1, 1], 2, false);
    assert_eq!(loss, f32::INFINITY);
    assert!(gradient[..4].iter().all(|slope| slope.is_nan()));
    assert_eq!(gradient[4..], [0.0; 2]);
    assert_eq!(run([1, 1], 2, true), (0.0, vec![0.0; 6]));
    assert_eq!(run([1, 1], 0, false), (f32::INFINITY, vec![0.0; 6]));
    assert_eq!(run([1, 1], 0, true), (0.0, vec![0.0; 6]));
    assert_eq!(run([0, 1], 0, false), (0.0, vec![0.0; 6]));
    let (loss, gradient) = run([1, 1], 3, false);
    assert!((loss - 1.5 * 2f32.ln()).abs() < 1e-6, "{loss}");
    let expected = [0.25, -0.25, -0.25, 0.25, 0.25, -0.25];
    assert_close("gradient", &gradient, &expected, 1e-6);
}

/// Labels and lengths are looked at before a step; what follows a negative label is not.
#[test]
fn labels_and_lengths_that_are_too_large() {
    let (graph, values) = passed_on(1, &[4, 3], "LogSoftmax");
    let mut loaded = Loaded::new(&graph, values[0], training(&[ctc(2, |_| {})]), 2, STAY);
    loaded.set("input", &[0; 24]);
    let mut step = |labels: [u32; 4], lengths: [u32; 2]| {
        loaded.set("target", &labels);
        loaded.set("target1", &lengths);
        loaded.step()
    };
    assert!(step([1, 2, u32::MAX, 2], [4, 0]).is_ok());
    let error = step([1, 2, 3, 1], [4, 4]).unwrap_err();
    assert_eq!(error, Error::Index { what: "label", position: 2, value: 3, limit: 3 });
    let error = step([1, 2, 2, 1], [4, 5]).unwrap_err();
    assert_eq!(error, Error::Index { what: "input length", position: 1, value: 5, limit: 5 });
    assert_eq!(error.to_string(), "input length 5 at position 1 is too large: it must be below 5");
}

/// The plan counts a row of states for each step and three more, in f32: PyTorch keeps as many and makes as many again.
#[test]
fn what_a_sequence_keeps() {
    let (graph, values) = passed_on(1, &[50, 7], "LogSoftmax");
    let program = lower(&graph, &values, &Options { training: Some(training(&[ctc(10, |_| {})])) }).unwrap();
    let loss = program.operations.iter().find(|operation| matches!(operation.action, Action::Loss(_))).unwrap();
    let kept = program.tensor(loss.written(Slot::Saved(0)).unwrap());
    assert_eq!(kept.elements(4), Some(4 * 53 * 21));
    assert!(kept.elements(4).unwrap() < 2 * 4 * 50 * 21);
    assert_eq!(kept.first, kept.last);
}

/// What no macro would write: two values of one loss that there are not, or that do not go together.
#[test]
fn losses_that_cannot_be_lowered() {
    let refused = |dims: &[u64], count: usize, term: &dyn Fn(&[NodeId]) -> Term| {
        let (graph, values) = passed_on(count, dims, "LeakyRelu(1.0)");
        let term = term(&values);
        lower(&graph, &values, &Options { training: Some(training(&[term])) }).unwrap_err().message
    };
    let pair = |_: &[NodeId]| Term::of(Measure::CosineEmbedding);
    assert_eq!(refused(&[4], 1, &pair), "the loss compares two values, and there is one");
    let same = |values: &[NodeId]| Term { and: Some(values[0]), ..Term::of(Measure::CosineEmbedding) };
    assert_eq!(refused(&[4], 1, &same), "the loss compares a value with itself");
    assert_eq!(refused(&[4, 5, 6], 2, &pair), "the loss measures values of another shape");
    let blank = |_: &[NodeId]| ctc(2, |it| it.blank = 3);
    let said = "the loss of a sequence has no labels, or a blank that is no class";
    assert_eq!(refused(&[4, 3], 1, &blank), said);
    assert_eq!(refused(&[4, 3], 1, &|_| ctc(0, |_| {})), said);
    assert_eq!(refused(&[4], 1, &|_| ctc(2, |_| {})), "the loss measures values of another shape");
}
