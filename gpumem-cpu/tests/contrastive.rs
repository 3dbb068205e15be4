//! Losses of all vectors of a batch: against PyTorch, against their definitions with all products at once, and where they are refused.

mod harness;

use gpumem_core::Update;
use gpumem_core::graph::{Graph, NodeId, Type};
use gpumem_core::lower::{LowerError, Options, Term, Training, lower};
use gpumem_core::program::loss::LossOptions;
use gpumem_core::program::{Action, Measure, Slot};
use gpumem_core::shape::Shape;
use gpumem_core::train::Descent;
use gpumem_core::train::optim::{Optimizer, Sgd};
use harness::given::{self, STAY};
use harness::graphs::{chain, learned};
use harness::{Loaded, Truth, assert_close};

fn training(loss: &[Term]) -> Training<'_> {
    given::training(loss, STAY, Descent::PLAIN)
}

fn bits(numbers: &[f64]) -> Vec<u32> {
    numbers.iter().map(|&number| (number as f32).to_bits()).collect()
}

/// Two inputs of vectors that layers pass on, and a term that compares them.
fn network(length: u64, layers: &str, measure: Measure, names: &[&str]) -> (Graph, NodeId, Term) {
    let mut graph = Graph::default();
    let inputs = [0, 1].map(|_| graph.input(Type::numbers(Shape::new(&[length]))).unwrap());
    let values = inputs.map(|input| chain(&mut graph, input, layers));
    let mut number = |name: &str| names.contains(&name).then(|| learned(&mut graph, name));
    let (scale, bias) = (number("scale"), number("bias"));
    let term = Term { from: Some(values[0]), and: Some(values[1]), scale, bias, ..Term::of(measure) };
    (graph, values[0], term)
}

/// A file of `truth/losses`.
fn check_golden(file: &str, measure: Measure) {
    let truth = Truth::read(&format!("losses/{file}.safetensors"));
    let shape = truth.shape("input.x").to_vec();
    let names: Vec<&str> = truth.names().filter_map(|name| name.strip_prefix("input.")).collect();
    let (graph, output, term) = network(shape[1], "LeakyRelu(1.0)", measure, &names);
    let mut loaded = Loaded::new(&graph, output, training(std::slice::from_ref(&term)), shape[0], STAY);
    let tensor = |name: &str| match name {
        "x" => "input".to_string(),
        "y" => "input1".to_string(),
        other => other.to_string(),
    };
    for name in &names {
        loaded.set(&tensor(name), truth.words(&format!("input.{name}")));
    }
    assert_close(&format!("{file} output"), &[loaded.step().unwrap()], &truth.floats("output"), 1e-6);
    for name in &names {
        let found = loaded.get(&format!("{}.gradient", tensor(name))).unwrap();
        assert_close(&format!("{file} {name}"), &found, &truth.floats(&format!("grad_input.{name}")), 1e-5);
    }
    assert_close(&format!("{file} without an update"), &[loaded.evaluate().unwrap()], &truth.floats("output"), 1e-6);
}

#[test]
fn losses_of_batches_beside_pytorch() {
    check_golden("contrastive", Measure::Contrastive);
    check_golden("contrastive_scale", Measure::Contrastive);
    check_golden("siglip", Measure::Siglip);
    check_golden("siglip_learned", Measure::Siglip);
    check_golden("nt_xent", Measure::NtXent);
    check_golden("nt_xent_scale", Measure::NtXent);
}

/// A loss as it is written, with all products at once: its value, and its gradients of `x`, `y`, the scale's logarithm and the bias.
struct Dense {
    loss: f64,
    gradients: [Vec<f64>; 2],
    scale: f64,
    bias: f64,
}

/// Vectors that are compared, and numbers of the comparison.
struct Given<'a> {
    x: &'a [f64],
    y: &'a [f64],
    length: usize,
    scale: f64,
    bias: f64,
}

/// `dloss / dproducts` of rows whose right column is named, as the mean of their cross entropies times `share`.
fn cross_entropies(products: &[Vec<f64>], right: &[usize], share: f64) -> (f64, Vec<Vec<f64>>) {
    let mut loss = 0.0;
    let slopes = products.iter().zip(right).map(|(row, &right)| {
        let sum: f64 = row.iter().map(|s| s.exp()).sum();
        loss += (sum.ln() - row[right]) * share / products.len() as f64;
        let slope = |(j, s): (usize, &f64)| s.exp() / sum - f64::from(u8::from(j == right));
        row.iter().enumerate().map(|pair| slope(pair) * share / products.len() as f64).collect()
    });
    let slopes = slopes.collect();
    (loss, slopes)
}

fn dense(measure: Measure, of: &Given<'_>) -> Dense {
    let Given { x, y, length, scale, bias } = *of;
    let rows = |of: &[f64]| -> Vec<Vec<f64>> { of.chunks(length).map(<[f64]>::to_vec).collect() };
    let (x, y) = (rows(x), rows(y));
    let samples = x.len();
    let (left, right) = match measure {
        Measure::NtXent => ([x.clone(), y.clone()].concat(), [x, y].concat()),
        _ => (x, y),
    };
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut products: Vec<Vec<f64>> = left.iter().map(|a| right.iter().map(|b| scale * dot(a, b)).collect()).collect();
    let plain = products.clone();
    let (loss, slopes) = match measure {
        Measure::Contrastive => {
            let own: Vec<usize> = (0..samples).collect();
            let turned: Vec<Vec<f64>> = (0..samples).map(|j| products.iter().map(|row| row[j]).collect()).collect();
            let (a, mut slopes) = cross_entropies(&products, &own, 0.5);
            let (b, of_turned) = cross_entropies(&turned, &own, 0.5);
            for (i, row) in slopes.iter_mut().enumerate() {
                row.iter_mut().enumerate().for_each(|(j, slope)| *slope += of_turned[j][i]);
            }
            (a + b, slopes)
        }
        Measure::NtXent => {
            products.iter_mut().enumerate().for_each(|(i, row)| row[i] = f64::NEG_INFINITY);
            let other: Vec<usize> = (0..2 * samples).map(|i| (i + samples) % (2 * samples)).collect();
            cross_entropies(&products, &other, 1.0)
        }
        _ => {
            let mut loss = 0.0;
            let slopes = products.iter().enumerate().map(|(i, row)| {
                let slope = |(j, s): (usize, &f64)| {
                    let z = if i == j { 1.0 } else { -1.0 };
                    loss += (1.0 + (-z * (s + bias)).exp()).ln() / samples as f64;
                    -z / (1.0 + (z * (s + bias)).exp()) / samples as f64
                };
                row.iter().enumerate().map(slope).collect()
            });
            let slopes: Vec<Vec<f64>> = slopes.collect();
            (loss, slopes)
        }
    };
    let mut of_left = vec![vec![0.0; length]; left.len()];
    let mut of_right = vec![vec![0.0; length]; right.len()];
    let (mut of_scale, mut of_bias) = (0.0, 0.0);
    for (i, row) in slopes.iter().enumerate() {
        for (j, &slope) in row.iter().enumerate() {
            of_bias += slope;
            // A product that is left out has no slope.
            of_scale += slope * plain[i][j];
            for k in 0..length {
                of_left[i][k] += scale * slope * right[j][k];
                of_right[j][k] += scale * slope * left[i][k];
            }
        }
    }
    let mut gradients = [of_left.concat(), of_right.concat()];
    if measure == Measure::NtXent {
        let all: Vec<f64> = gradients[0].iter().zip(&gradients[1]).map(|(a, b)| a + b).collect();
        let (x, y) = all.split_at(samples * length);
        gradients = [x.to_vec(), y.to_vec()];
    }
    Dense { loss, gradients, scale: of_scale, bias: of_bias }
}

/// Vectors of length 1 that f32 holds nearly.
fn directions(samples: usize, length: usize, by: f64) -> Vec<f64> {
    let mut all: Vec<f64> =
        (0..samples * length).map(|i| (i as f64 * by).sin() + 0.3 * (i as f64 * 0.31).cos()).collect();
    for row in all.chunks_mut(length) {
        let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt();
        row.iter_mut().for_each(|x| *x = f64::from((*x / norm) as f32));
    }
    all
}

/// Batches of less than a tile, whole tiles, and one sample more or less than that, with a weight.
#[test]
fn tiles_come_to_what_all_products_do() {
    let measures = [Measure::Contrastive, Measure::Siglip, Measure::NtXent];
    for samples in [2usize, 3, 63, 64, 65, 127, 128, 129, 257] {
        for measure in measures {
            let (x, y) = (directions(samples, 5, 1.7), directions(samples, 5, 2.9));
            let (log_scale, bias) = (2.0f64, -3.0);
            let names: &[&str] = if measure == Measure::Siglip { &["scale", "bias"] } else { &["scale"] };
            let (graph, output, term) = network(5, "LeakyRelu(1.0)", measure, names);
            let term = Term { weight: 0.75, ..term };
            let mut loaded = Loaded::new(&graph, output, training(&[term]), samples as u64, STAY);
            loaded.set("input", &bits(&x));
            loaded.set("input1", &bits(&y));
            loaded.set("scale", &bits(&[log_scale]));
            if measure == Measure::Siglip {
                loaded.set("bias", &bits(&[bias]));
            }
            let given = Given { x: &x, y: &y, length: 5, scale: log_scale.exp(), bias };
            let expected = dense(measure, &given);
            let narrow = |of: &[f64]| -> Vec<f32> { of.iter().map(|&number| (0.75 * number) as f32).collect() };
            let what = |of: &str| format!("{of} of {measure:?} of {samples}");
            assert_close(&what("loss"), &[loaded.step().unwrap()], &narrow(&[expected.loss]), 1e-6);
            for (name, gradient) in ["input", "input1"].iter().zip(&expected.gradients) {
                let found = loaded.get(&format!("{name}.gradient")).unwrap();
                assert_close(&what(name), &found, &narrow(gradient), 1e-5);
            }
            // A sum whose terms cancel.
            let close = |name: &str, found: f32, expected: f64| {
                let far = (f64::from(found) - 0.75 * expected).abs();
                assert!(far < 1e-5 * (1.0 + expected.abs()), "{}: {found}, not {}", what(name), 0.75 * expected);
            };
            close("scale", loaded.get("scale.gradient").unwrap()[0], expected.scale);
            if measure == Measure::Siglip {
                close("bias", loaded.get("bias.gradient").unwrap()[0], expected.bias);
            }
        }
    }
}

/// Numbers that are written count as learned ones of the same value, and defaults are those of the page.
#[test]
fn numbers_that_are_written() {
    let (x, y) = (directions(9, 4, 1.3), directions(9, 4, 0.7));
    for (measure, number, second, scale, bias) in [
        (Measure::Contrastive, None, None, 1.0 / 0.07, 0.0),
        (Measure::Contrastive, Some(0.5), None, 2.0, 0.0),
        (Measure::Siglip, None, None, 10.0, -10.0),
        (Measure::Siglip, Some(0.25), Some(-1.5), 4.0, -1.5),
        (Measure::NtXent, None, None, 2.0, 0.0),
    ] {
        let (graph, output, mut term) = network(4, "LeakyRelu(1.0)", measure, &[]);
        (term.options.number, term.options.second) = (number, second);
        let mut loaded = Loaded::new(&graph, output, training(&[term]), 9, STAY);
        loaded.set("input", &bits(&x));
        loaded.set("input1", &bits(&y));
        let expected = dense(measure, &Given { x: &x, y: &y, length: 4, scale, bias });
        assert_close("loss", &[loaded.step().unwrap()], &[expected.loss as f32], 1e-6);
        let narrow: Vec<f32> = expected.gradients[1].iter().map(|&slope| slope as f32).collect();
        assert_close("y", &loaded.get("input1.gradient").unwrap(), &narrow, 1e-5);
    }
}

/// What others are compared with is not overwritten; several terms add up; one side alone may be trained.
#[test]
fn gradients_are_tensors_of_their_own() {
    let (x, y) = (directions(70, 4, 1.3), directions(70, 4, 0.7));
    let run = |weights: &[f64], input_gradient: bool, is_trained: [bool; 2]| {
        let mut graph = Graph::default();
        let inputs = [0, 1].map(|_| graph.input(Type::numbers(Shape::new(&[4]))).unwrap());
        let scale = {
            let first = chain(&mut graph, inputs[0], "Tanh");
            let _ = first;
            learned(&mut graph, "scale")
        };
        let mut values = inputs;
        for (value, is_trained) in values.iter_mut().zip(is_trained) {
            *value = chain(&mut graph, *value, if is_trained { "Linear(4, bias = false)" } else { "LeakyRelu(1.0)" });
        }
        let term =
            Term { from: Some(values[0]), and: Some(values[1]), scale: Some(scale), ..Term::of(Measure::Contrastive) };
        let terms: Vec<Term> = weights.iter().map(|&weight| Term { weight, ..term.clone() }).collect();
        let training = Training { input_gradient, ..training(&terms) };
        let program = lower(&graph, &values, &Options { training: Some(training) }).unwrap();
        for loss in program.operations.iter().filter(|operation| matches!(operation.action, Action::Loss(_))) {
            for number in [0, 1] {
                let gradient = loss.written(Slot::InputGradient(number));
                assert!(gradient.is_none() || gradient != loss.read(Slot::Input(number)));
                assert_eq!(gradient.is_some(), input_gradient || is_trained[usize::from(number)]);
            }
        }
        let mut loaded = Loaded::new(&graph, values[0], training, 70, STAY);
        loaded.set("input", &bits(&x));
        loaded.set("input1", &bits(&y));
        loaded.set("scale", &bits(&[1.5]));
        let matrix: Vec<f64> = (0..16).map(|i| f64::from(u8::from(i % 5 == 0)) + 0.1 * (i as f64).sin()).collect();
        let names: Vec<String> = graph.parameters.iter().map(|parameter| parameter.name.clone()).collect();
        names.iter().filter(|name| *name != "scale").for_each(|name| loaded.set(name, &bits(&matrix)));
        let loss = loaded.step().unwrap();
        let gradients: Vec<Vec<f32>> =
            names.iter().map(|name| loaded.get(&format!("{name}.gradient")).unwrap()).collect();
        (loss, gradients)
    };
    for is_trained in [[true, true], [true, false], [false, true]] {
        let (loss, gradients) = run(&[1.5], false, is_trained);
        assert!(gradients.iter().flatten().all(|slope| *slope != 0.0));
        for (weights, input_gradient) in [(&[1.5][..], true), (&[1.0, 0.5], false), (&[0.5, 0.5, 0.5], true)] {
            let (again, found) = run(weights, input_gradient, is_trained);
            assert_close("loss", &[again], &[loss], 1e-6);
            found.iter().zip(&gradients).for_each(|(found, gradient)| assert_close("gradient", found, gradient, 1e-5));
        }
    }
}

/// A scale is learned in the same step, when the backward pass is over, whenever updates come.
#[test]
fn a_scale_is_updated_once() {
    let (x, y) = (directions(20, 4, 1.3), directions(20, 4, 0.7));
    let after = |update: Update| {
        let (graph, output, term) = network(4, "LeakyRelu(1.0)", Measure::Contrastive, &["scale"]);
        let terms = [Term { weight: 0.5, ..term.clone() }, Term { weight: 0.25, ..term }];
        let training = Training { update, ..training(&terms) };
        let optimizer = Optimizer::Sgd(Sgd { lr: 1.0, ..Sgd::DEFAULT });
        let mut loaded = Loaded::new(&graph, output, training, 20, optimizer);
        loaded.set("input", &bits(&x));
        loaded.set("input1", &bits(&y));
        loaded.set("scale", &bits(&[1.5]));
        loaded.step().unwrap();
        loaded.get("scale").unwrap()[0]
    };
    let expected = dense(Measure::Contrastive, &Given { x: &x, y: &y, length: 4, scale: 1.5f64.exp(), bias: 0.0 });
    for update in [Update::Fused, Update::Separate] {
        let (found, expected) = (f64::from(after(update)), 1.5 - 0.75 * expected.scale);
        assert!((found - expected).abs() < 1e-5, "{found}, not {expected}");
    }
}

/// Bytes are linear in the batch: no tensor has as many elements as there are pairs.
#[test]
fn bytes_are_linear() {
    let (graph, output, term) = network(512, "LeakyRelu(1.0)", Measure::Contrastive, &["scale"]);
    let program = lower(&graph, &[output], &Options { training: Some(training(&[term])) }).unwrap();
    let loss = program.operations.iter().find(|operation| matches!(operation.action, Action::Loss(_))).unwrap();
    let own = |slot| program.tensor(loss.written(slot).unwrap()).elements(4096).unwrap();
    assert_eq!([own(Slot::Saved(0)), own(Slot::Workspace)], [2 * 4096, 4 * 4096]);
    let largest = program.tensors.iter().map(|tensor| tensor.elements(4096).unwrap()).max().unwrap();
    assert_eq!(largest, 4096 * 512);
}

/// What no macro would write.
#[test]
fn losses_of_batches_that_cannot_be_lowered() {
    let lowered = |graph: &Graph, output: NodeId, term: Term, parts: u64| {
        let descent = Descent { micro_batches: parts, ..Descent::PLAIN };
        let training = Training { descent, ..training(std::slice::from_ref(&term)) };
        lower(graph, &[output], &Options { training: Some(training) })
    };
    let (graph, output, term) = network(4, "LeakyRelu(1.0)", Measure::Siglip, &["scale"]);
    assert!(lowered(&graph, output, term.clone(), 1).is_ok());
    let LowerError { message, row } = lowered(&graph, output, term.clone(), 2).unwrap_err();
    let said = "a part of a batch knows none of the others, and `Siglip` compares all of them; remove `micro_batches`, or use \
                `checkpoint: Auto`";
    assert_eq!((message.as_str(), row), (said, None));
    let said = "the scale or the bias of the loss is not one number for all samples";
    let samples = Term { bias: Some(output), ..term.clone() };
    assert_eq!(lowered(&graph, output, samples, 1).unwrap_err().message, said);
    let same = Term { and: term.from, ..term };
    assert_eq!(lowered(&graph, output, same, 1).unwrap_err().message, "the loss compares a value with itself");
    let mut graph = Graph::default();
    let inputs = [0, 1].map(|_| graph.input(Type::numbers(Shape::new(&[2, 4]))).unwrap());
    let values = inputs.map(|input| chain(&mut graph, input, "LeakyRelu(1.0)"));
    let options = LossOptions::DEFAULT;
    let term = Term { from: Some(values[0]), and: Some(values[1]), options, ..Term::of(Measure::NtXent) };
    let said = "the loss measures values of another shape";
    assert_eq!(lowered(&graph, values[0], term, 1).unwrap_err().message, said);
}
