//! Losses whose terms are multiplied with numbers that are handed in: against PyTorch, and against the terms of each sample alone.

mod harness;

use gpumem_core::graph::{Graph, NodeId, Type};
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::program::Measure;
use gpumem_core::program::loss::{Chunks, LossOptions, Over, Reduction, Weighting};
use gpumem_core::shape::Shape;
use gpumem_core::train::Descent;
use gpumem_cpu::Cpu;
use harness::given::{self, STAY};
use harness::graphs::chain;
use harness::{Loaded, Truth, assert_close};
use std::borrow::Cow;

fn training(loss: &[Term]) -> Training<'_> {
    given::training(loss, STAY, Descent::PLAIN)
}

fn bits(numbers: impl IntoIterator<Item = f32>) -> Vec<u32> {
    numbers.into_iter().map(f32::to_bits).collect()
}

fn passed_on(count: usize, dims: &[u64]) -> (Graph, Vec<NodeId>) {
    let mut graph = Graph::default();
    let inputs: Vec<NodeId> = (0..count).map(|_| graph.input(Type::numbers(Shape::new(dims))).unwrap()).collect();
    let values = inputs.into_iter().map(|input| chain(&mut graph, input, "LeakyRelu(1.0)")).collect();
    (graph, values)
}

#[test]
fn weights_and_masks_beside_pytorch() {
    for (file, measure, weighting, number) in [
        ("weights_cross_entropy", Measure::CrossEntropy, Weighting::Samples, Some(0.1)),
        ("mask_cross_entropy", Measure::CrossEntropy, Weighting::Mask, Some(0.1)),
        ("weights_mse", Measure::Mse, Weighting::Samples, None),
        ("mask_huber", Measure::Huber, Weighting::Mask, Some(0.5)),
    ] {
        let truth = Truth::read(&format!("losses/{file}.safetensors"));
        let shape = truth.shape("input.x");
        let (graph, values) = passed_on(1, &shape[1..]);
        let options = LossOptions { weighting, number, ..LossOptions::DEFAULT };
        let term = Term { weights: Some(1), options, ..Term::of(measure) };
        let mut loaded = Loaded::new(&graph, values[0], training(std::slice::from_ref(&term)), shape[0], STAY);
        loaded.set("input", truth.words("input.x"));
        loaded.set("target", truth.words("input.target"));
        loaded.set("target1", truth.words("input.weights"));
        assert_close(file, &[loaded.step().unwrap()], &truth.floats("output"), 1e-6);
        let found = loaded.get("input.gradient").unwrap();
        assert_close(file, &found, &truth.floats("grad_input.x"), 1e-5);
        assert_close(file, &[loaded.evaluate().unwrap()], &truth.floats("output"), 1e-6);
    }
}

/// A loss, how many values it is of, and the shape of one; and how its options are changed.
type Case = (Measure, &'static [u64], fn(&mut LossOptions));

/// Every loss of samples, of values that have several terms.
const CASES: &[Case] = &[
    (Measure::CrossEntropy, &[3, 4], |_| {}),
    (Measure::CrossEntropy, &[4, 2, 3], |it| it.ignored = Some(1)),
    (Measure::CrossEntropy, &[4], |it| it.probabilities = true),
    (Measure::Nll, &[4], |it| it.weights = Cow::Borrowed(&[0.5, 2.0, 1.0, 0.25])),
    (Measure::Mse, &[3, 2], |_| {}),
    (Measure::Mean, &[5], |_| {}),
    (Measure::L1, &[5], |_| {}),
    (Measure::SmoothL1, &[5], |_| {}),
    (Measure::Huber, &[5], |it| it.number = Some(0.5)),
    (Measure::BceWithLogits, &[5], |_| {}),
    (Measure::BceWithLogits, &[2, 3, 1], |it| it.weights = Cow::Borrowed(&[0.5, 2.0])),
    (Measure::KlDiv, &[5], |it| it.log_target = true),
    (Measure::CosineEmbedding, &[2, 4], |_| {}),
    (Measure::TripletMargin, &[2, 4], |it| it.swap = true),
    (Measure::MarginRanking, &[3], |it| it.number = Some(0.2)),
    (Measure::Ctc, &[5, 4], |it| it.target_length = 2),
];

/// The loss, and all gradients, of these samples.
fn run(case: &Case, samples: &[usize], change: impl Fn(&mut LossOptions), weights: &[f32]) -> (f64, Vec<Vec<f32>>) {
    let &(measure, dims, options) = case;
    let values = measure.row().over.values();
    let (graph, nodes) = passed_on(values, dims);
    let [from, and, third] = [0, 1, 2].map(|number| nodes.get(number).copied());
    let mut term = Term { from, and, third, ..Term::of(measure) };
    options(&mut term.options);
    change(&mut term.options);
    let is_weighted = term.options.weighting != Weighting::None;
    let target = term.options.target(measure, Shape::new(dims));
    let number = usize::from(target.is_some());
    term.weights = is_weighted.then_some(number);
    let mut loaded = Loaded::new(&graph, nodes[0], training(&[term]), samples.len() as u64, STAY);
    let input = |index: usize| if index == 0 { "input".to_string() } else { format!("input{index}") };
    let elements = Shape::new(dims).elements().unwrap() as usize;
    let each = |count: usize, from: &dyn Fn(usize) -> u32| -> Vec<u32> {
        samples.iter().flat_map(|sample| (0..count).map(move |i| sample * count + i)).map(from).collect()
    };
    for index in 0..values {
        let from = |i: usize| (((i * 37 + index * 11) % 23) as f32 / 8.0 - 1.4).to_bits();
        loaded.set(&input(index), &each(elements, &from));
    }
    if let Some((shape, is_indices)) = target {
        let count = shape.elements().unwrap() as usize;
        let words = match (is_indices, measure) {
            (true, _) => each(count, &|i| (i * 5 % 3) as u32 + u32::from(measure == Measure::Ctc)),
            (false, Measure::CosineEmbedding | Measure::MarginRanking) => {
                each(count, &|i| (if i % 3 == 0 { -1f32 } else { 1.0 }).to_bits())
            }
            (false, _) => each(count, &|i| ((i % 7) as f32 / 7.0).to_bits()),
        };
        loaded.set("target", &words);
    }
    if is_weighted {
        loaded.set(if number == 0 { "target" } else { "target1" }, &bits(weights.iter().copied()));
    }
    let loss = f64::from(loaded.step().unwrap());
    let again = f64::from(loaded.evaluate().unwrap());
    assert!(
        loss.is_nan() && again.is_nan() || (loss - again).abs() <= 1e-6 * loss.abs().max(1e-3),
        "{loss}, then {again}"
    );
    (loss, (0..values).map(|index| loaded.get(&format!("{}.gradient", input(index))).unwrap()).collect())
}

/// The sum of the losses of single samples, each times its weight.
#[test]
fn weights_of_samples() {
    const WEIGHTS: [f32; 3] = [0.5, 0.0, 2.25];
    for case in CASES {
        let sum = |it: &mut LossOptions| it.reduction = Reduction::Sum;
        let alone: Vec<(f64, Vec<Vec<f32>>)> = (0..3).map(|sample| run(case, &[sample], sum, &[])).collect();
        let weighted = |it: &mut LossOptions| (it.reduction, it.weighting) = (Reduction::Sum, Weighting::Samples);
        let (loss, gradients) = run(case, &[0, 1, 2], weighted, &WEIGHTS);
        let expected: f64 = alone.iter().zip(WEIGHTS).map(|((loss, _), weight)| loss * f64::from(weight)).sum();
        let what = format!("{:?} of {:?}", case.0, case.1);
        assert!((loss - expected).abs() <= 1e-5 * expected.abs().max(1.0), "{what}: {loss}, not {expected}");
        for (value, gradient) in gradients.iter().enumerate() {
            let each =
                alone.iter().zip(WEIGHTS).flat_map(|((_, all), weight)| all[value].iter().map(move |x| x * weight));
            assert_close(&what, gradient, &each.collect::<Vec<f32>>(), 1e-5);
        }
        // The mean is divided as without weights.
        let mean = |it: &mut LossOptions| it.weighting = Weighting::Samples;
        let (mean, of_mean) = run(case, &[0, 1, 2], mean, &WEIGHTS);
        let ones = |it: &mut LossOptions| it.weighting = Weighting::Samples;
        if case.0 != Measure::Ctc && expected != 0.0 {
            let terms = terms_of(case);
            assert!((mean * 3.0 * terms - expected).abs() <= 1e-5 * expected.abs().max(1.0), "{what}: {mean}");
            let scaled: Vec<f32> = gradients[0].iter().map(|x| x / (3.0 * terms) as f32).collect();
            assert_close(&what, &of_mean[0], &scaled, 1e-5);
        }
        // Ones change nothing, but for what a mean over fewer positions is divided by.
        let (plain, _) = run(case, &[0, 1, 2], |_| {}, &[]);
        let mut options = LossOptions::DEFAULT;
        (case.2)(&mut options);
        if options.ignored.is_none() && (options.weights.is_empty() || case.0 == Measure::BceWithLogits) {
            let (found, _) = run(case, &[0, 1, 2], ones, &[1.0; 3]);
            assert!((found - plain).abs() <= 1e-6 * plain.abs().max(1.0), "{what}: {found}, not {plain}");
        }
    }
}

/// Terms of a sample.
fn terms_of(&(measure, dims, _): &Case) -> f64 {
    let all = dims.iter().product::<u64>() as f64;
    match (measure.row().over, dims) {
        (Over::Positions, [classes, _, _]) => all / *classes as f64,
        (Over::Positions | Over::Pairs | Over::Triples, [.., classes]) => all / *classes as f64,
        _ => all,
    }
}

/// A mask of one number is the mean of what it leaves: ones and zeros in any places, times any number.
#[test]
fn masks() {
    for case in CASES.iter().filter(|(measure, ..)| *measure != Measure::Ctc) {
        let each = terms_of(case) as usize;
        let mask = |it: &mut LossOptions| it.weighting = Weighting::Mask;
        let all = vec![0.75; 3 * each];
        let (of_all, gradients) = run(case, &[0, 1, 2], mask, &all);
        let sum = |it: &mut LossOptions| it.reduction = Reduction::Sum;
        let (plain, slopes) = run(case, &[0, 1, 2], sum, &[]);
        let what = format!("a mask of {:?} of {:?}", case.0, case.1);
        let count = all.len() as f64;
        assert!((of_all - plain / count).abs() <= 1e-5 * of_all.abs().max(1.0), "{what}: {of_all}, not {plain}");
        let scaled: Vec<f32> = slopes[0].iter().map(|x| x / count as f32).collect();
        assert_close(&what, &gradients[0], &scaled, 1e-5);
        // Only the second sample counts.
        let second: Vec<f32> = (0..3 * each).map(|i| f32::from(u8::from(i / each == 1))).collect();
        let (found, gradients) = run(case, &[0, 1, 2], mask, &second);
        let (alone, slopes) = run(case, &[1], sum, &[]);
        let expected = alone / each as f64;
        assert!((found - expected).abs() <= 1e-5 * expected.abs().max(1.0), "{what}: {found}, not {expected}");
        let elements = slopes[0].len();
        let scaled: Vec<f32> = slopes[0].iter().map(|x| x / each as f32).collect();
        assert_close(&what, &gradients[0][elements..2 * elements], &scaled, 1e-5);
        assert!(gradients[0][..elements].iter().chain(&gradients[0][2 * elements..]).all(|x| *x == 0.0), "{what}");
    }
}

/// Nothing left: the mean of nothing, as PyTorch's 0 / 0.
#[test]
fn masks_that_leave_nothing() {
    let mask = |it: &mut LossOptions| it.weighting = Weighting::Mask;
    assert!(run(&CASES[4], &[0, 1], mask, &[0.0; 12]).0.is_nan());
}

/// Parts of a batch divide by what the mask of all comes to, and chunks of logits read their own places of it.
#[test]
fn parts_and_chunks() {
    let options = LossOptions { weighting: Weighting::Mask, ..LossOptions::DEFAULT };
    let (graph, values) = passed_on(1, &[2, 3]);
    let of = |term: &Term, parts: u64| {
        let descent = Descent { micro_batches: parts, ..Descent::PLAIN };
        let training = Training { descent, input_gradient: false, ..training(std::slice::from_ref(term)) };
        lower(&graph, &values, &Options { training: Some(training) })
    };
    // Nothing is trained, so that there is no step; what is refused is said before.
    let term = Term { weights: Some(1), options: options.clone(), ..Term::of(Measure::CrossEntropy) };
    assert!(of(&term, 2).unwrap_err().message.contains("no parameters"));
    let missing = Term { weights: None, options, ..Term::of(Measure::CrossEntropy) };
    let said = "the terms of the loss are multiplied with a target that it has not";
    assert_eq!(of(&missing, 1).unwrap_err().message, said);

    let mut graph = Graph::default();
    let input = graph.input(Type::numbers(Shape::new(&[6, 3]))).unwrap();
    let output = chain(&mut graph, input, "Tanh | Linear(5)");
    let run = |chunks: u64, weighting: Weighting| {
        let options = LossOptions { weighting, chunks: Chunks::Count(chunks), ..LossOptions::DEFAULT };
        let loss = &[Term { weights: Some(1), options, ..Term::of(Measure::CrossEntropy) }];
        let training = Training { input_gradient: false, ..training(loss) };
        let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
        let mut loaded = Loaded::of(&Cpu::with_threads(2).unwrap(), &program, 2, STAY).unwrap();
        loaded.initialise(3);
        loaded.set("input", &bits((0..36).map(|i| (i as f32 * 0.7).sin())));
        loaded.set("target", &(0..12).map(|i| i * 3 % 5).collect::<Vec<u32>>());
        let count = if weighting == Weighting::Mask { 12 } else { 2 };
        loaded.set("target1", &bits((0..count).map(|i| (i * 5 % 7) as f32 / 3.0)));
        let loss = loaded.step().unwrap();
        let weight =
            program.tensors.iter().find(|tensor| tensor.name.ends_with("weight.gradient")).unwrap().name.clone();
        (loss, loaded.get(&weight).unwrap())
    };
    for weighting in [Weighting::Samples, Weighting::Mask] {
        let (loss, gradient) = run(1, weighting);
        let (again, found) = run(4, weighting);
        assert_close("loss", &[again], &[loss], 1e-6);
        assert_close("gradient", &found, &gradient, 1e-5);
    }
}
