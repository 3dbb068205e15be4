//! Small inputs that libraries have answered wrongly, with the right answers in double precision.

use super::harness::given::{Everyone, Given, STAY, assert_right, forward, step, training};
use super::harness::graphs::{again, chain, layer, numbers, tokens};
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::program::loss::Reduction;
use gpumem_core::program::{Measure, Program};
use gpumem_core::train::optim::{AdamW, Optimizer, Sgd};
use gpumem_core::train::{Clip, Descent, Schedule};
use std::borrow::Cow;
use std::f64::consts::PI;

/// Six digits are known of most.
const DIGITS: f64 = 1e-5;

/// A label that does not count.
const IGNORED: u32 = -100i32 as u32;

fn network(dims: &[u64], layers: &str) -> (Graph, NodeId) {
    let mut graph = Graph::default();
    let input = graph.input(numbers(dims)).unwrap();
    let output = chain(&mut graph, input, layers);
    (graph, output)
}

/// The outputs of a forward pass.
fn outputs(
    everyone: Everyone,
    (dims, layers): (&[u64], &str),
    batch: u64,
    given: &[(&str, &[f32])],
) -> Vec<(String, Vec<f32>)> {
    let (graph, output) = network(dims, layers);
    let all = everyone(&forward(&graph, output), batch, STAY).into_iter();
    let found = all.map(|(who, mut net)| {
        given.iter().for_each(|(name, values)| net.set(name, values));
        net.run();
        (format!("{who}: {layers}"), net.result())
    });
    found.collect()
}

/// The layers of one sample, compared with an output.
fn check_output(everyone: Everyone, dims: &[u64], layers: &str, given: &[(&str, &[f32])], expected: &[f64]) {
    for (who, found) in outputs(everyone, (dims, layers), 1, given) {
        assert_right(&who, &found, expected, DIGITS, 1e-6);
    }
}

/// A step of a network in which nothing is updated, run with these numbers.
fn stepped(
    everyone: Everyone,
    (dims, layers): (&[u64], &str),
    (term, batch): (Term, u64),
    give: impl Fn(&mut dyn Given),
) -> Vec<(String, Box<dyn Given>)> {
    let (graph, output) = network(dims, layers);
    let mut all = everyone(&step(&graph, output, &[term]), batch, STAY);
    for (_, net) in &mut all {
        give(&mut **net);
        net.run();
    }
    all
}

/// The step of a network in which parameters are updated.
fn updating((graph, output): (&Graph, NodeId), loss: &[Term], optimizer: Optimizer, descent: Descent) -> Program {
    let training = Training { input_gradient: false, ..training(loss, optimizer, descent) };
    lower(graph, &[output], &Options { training: Some(training) }).unwrap()
}

fn counted(count: usize) -> Vec<f32> {
    (0..count).map(|index| index as f32).collect()
}

pub fn cross_entropy_with_weights_and_smoothing(everyone: Everyone) {
    let mut term = Term::CROSS_ENTROPY;
    (term.options.weights, term.options.number) = (Cow::Borrowed(&[0.2, 0.3][..]), Some(0.1));
    term.options.ignored = Some(IGNORED);
    let logits = [1.0, 3.0, 2.0, 0.4, 0.5, -1.0];
    let all = [0.0, 0.0, 0.470891, -0.470891, -0.0447945, 0.0447945];
    for (rows, loss, gradient) in [(3, 1.14808, &all[..]), (2, 1.70084, &[0.0, 0.0, 0.784818, -0.784818])] {
        let found = stepped(everyone, (&[2], "LeakyRelu(1.0)"), (term.clone(), rows as u64), |net| {
            net.set("input", &logits[..2 * rows]);
            net.set_words("target", &[IGNORED, 1, 0][..rows]);
        });
        for (who, mut net) in found {
            assert_right(&who, &net.result(), &[loss], DIGITS, 0.0);
            assert_right(&who, &net.get("input.gradient"), gradient, DIGITS, 0.0);
        }
    }
}

pub fn means_of_windows_over_the_end(everyone: Everyone) {
    let five: Vec<f32> = (1..=5).map(|x| x as f32).collect();
    check_output(everyone, &[1, 5], "AvgPool1d(2, ceil_mode = true)", &[("input", &five)], &[1.5, 3.5, 5.0]);
    let map = counted(36);
    let last = [("true", [10.1667, 16.0, 17.0, 8.75]), ("false", [30.5, 32.0, 34.0, 35.0])];
    for (counts, expected) in last {
        let pool = format!("AvgPool2d(3, stride = 2, padding = 1, ceil_mode = true, count_include_pad = {counts})");
        for (who, found) in outputs(everyone, (&[1, 6, 6], &pool), 1, &[("input", &map)]) {
            assert_eq!(found.len(), 16, "{who}");
            assert_right(&who, &found[12..], &expected, DIGITS, 0.0);
        }
    }
}

pub fn no_window_begins_in_the_padding(everyone: Everyone) {
    let pool = "MaxPool2d(3, stride = 3, padding = 1, ceil_mode = true)";
    check_output(everyone, &[1, 5, 5], pool, &[("input", &counted(25))], &[6.0, 9.0, 21.0, 24.0]);
}

pub fn one_maximum_of_several_windows(everyone: Everyone) {
    let mut map: Vec<f32> = (1..=24).map(|x| x as f32).collect();
    map[7] = 88.0;
    let layers: (&[u64], &str) = (&[1, 4, 6], "MaxPool2d(3, stride = 2, padding = 1)");
    check_output(everyone, layers.0, layers.1, &[("input", &map)], &[88.0, 88.0, 12.0, 88.0, 88.0, 24.0]);
    let found = stepped(everyone, layers, (Term::DOT, 1), |net| {
        net.set("input", &map);
        net.set("target", &[1.0; 6]);
    });
    let mut expected = [0.0; 24];
    (expected[7], expected[11], expected[23]) = (4.0, 1.0, 1.0);
    for (who, mut net) in found {
        assert_right(&who, &net.get("input.gradient"), &expected, 0.0, 0.0);
    }
}

pub fn running_statistics(everyone: Everyone) {
    let x: Vec<f32> = (0..48).map(|i| (i / 12 + 4 * (i / 4 % 3) + i % 4 + 1) as f32).collect();
    let names = ["weight", "bias", "running_mean", "running_var"].map(|name| format!("batchnorm1d0.{name}"));
    let [weight, bias, mean, variance] = names.each_ref().map(String::as_str);
    let layers: (&[u64], &str) = (&[3, 4], "BatchNorm1d");
    let found = stepped(everyone, layers, (Term::MSE, 4), |net| {
        for (name, value) in [(weight, 1.0), (bias, 0.0), (mean, 0.0), (variance, 1.0)] {
            net.set(name, &[value; 3]);
        }
        net.set("input", &x);
        net.set("target", &[0.0; 48]);
    });
    for (who, mut net) in found {
        assert_right(&who, &net.get(mean), &[0.4, 0.8, 1.2], DIGITS, 0.0);
        assert_right(&who, &net.get(variance), &[7.0 / 6.0; 3], DIGITS, 0.0);
    }
    let given: [(&str, &[f32]); 5] =
        [("input", &x), (weight, &[1.0; 3]), (bias, &[0.0; 3]), (mean, &[0.4, 0.8, 1.2]), (variance, &[7.0 / 6.0; 3])];
    for (who, found) in outputs(everyone, layers, 4, &given) {
        assert_right(&who, &found[..4], &[0.55549, 1.48131, 2.40712, 3.33294], DIGITS, 0.0);
    }
}

pub fn rows_of_large_numbers_are_normalised(everyone: Everyone) {
    let layer = "LayerNorm(elementwise_affine = false)";
    let near = [40000.0, 40001.0, 40002.0, 40003.0];
    check_output(everyone, &[4], layer, &[("input", &near)], &[-1.34164, -0.447212, 0.447212, 1.34164]);
    let large = [1e30, 2e30, 3e30, 4e30];
    check_output(everyone, &[4], layer, &[("input", &large)], &[-1.34164, -0.447214, 0.447214, 1.34164]);
    // As shares of the root of the mean square.
    let expected = [1.0, 2.0, 3.0, 4.0].map(|x: f64| x / 7.5f64.sqrt());
    check_output(everyone, &[4], "RmsNorm(elementwise_affine = false)", &[("input", &large)], &expected);
    let expected = [1.0, 2.0, 3.0, 4.0].map(|x: f64| x / 30f64.sqrt());
    check_output(everyone, &[4], "L2Norm(1)", &[("input", &large)], &expected);
    check_output(everyone, &[4, 1, 1], "L2Norm(1)", &[("input", &large)], &expected);
    let small = [1e-25, 2e-25, 3e-25, 4e-25];
    check_output(everyone, &[4], "L2Norm(1, eps = 1e-30)", &[("input", &small)], &expected);
    check_output(everyone, &[4, 1, 1], "L2Norm(1, eps = 1e-30)", &[("input", &small)], &expected);
}

pub fn signals_of_another_length(everyone: Everyone) {
    let five = counted(5);
    for (layer, expected) in [
        ("Upsample(1.5, mode = \"linear\")", [0.0, 0.5, 1.16667, 1.83333, 2.5, 3.16667, 3.83333]),
        ("Upsample(size = 7, mode = \"linear\")", [0.0, 0.571429, 1.28571, 2.0, 2.71429, 3.42857, 4.0]),
    ] {
        check_output(everyone, &[1, 5], layer, &[("input", &five)], &expected);
    }
}

pub fn transposed_convolution_of_ones(everyone: Everyone) {
    let options = "stride = 2, padding = 1, output_padding = 1, dilation = 2, bias = false";
    let layer = format!("ConvTranspose1d(1, 3, {options})");
    let given: [(&str, &[f32]); 2] = [("input", &[1.0; 6]), ("convtranspose1d0.weight", &[1.0; 3])];
    let expected = [0.0, 2.0, 0.0, 3.0, 0.0, 3.0, 0.0, 3.0, 0.0, 3.0, 0.0, 2.0, 0.0, 1.0];
    check_output(everyone, &[1, 6], &layer, &given, &expected);
}

pub fn table_that_is_the_head_too(everyone: Everyone) {
    let mut graph = Graph::default();
    let input = graph.input(tokens(2)).unwrap();
    let embedded = layer(&mut graph, input, "Embedding(3, 2)");
    let output = again(&mut graph, embedded, "Tied", 0);
    let table = [0.5, -1.0, 1.5, 0.25, -0.75, 2.0];
    let optimizer = Optimizer::Sgd(Sgd { lr: 1.0, ..Sgd::DEFAULT });
    let descent = Descent { clip: Some(Clip::GlobalNorm(0.1)), ..Descent::PLAIN };
    let program = updating((&graph, output), &[Term::CROSS_ENTROPY], optimizer, descent);
    for (who, mut net) in everyone(&program, 1, optimizer) {
        net.set("embedding0.weight", &table);
        net.set_words("input", &[0, 2]);
        net.set_words("target", &[1, 0]);
        net.run();
        assert_right(&who, &net.result(), &[4.04942], DIGITS, 0.0);
        let gradient = net.get("embedding0.weight.gradient");
        let norm = gradient.iter().map(|&g| f64::from(g) * f64::from(g)).sum::<f64>().sqrt();
        assert_right(&who, &[norm as f32], &[3.21057], DIGITS, 0.0);
        let expected = [0.494149, -0.945992, 1.5054, 0.239161, -0.719281, 1.92281];
        assert_right(&who, &net.get("embedding0.weight"), &expected, DIGITS, 0.0);
    }
}

pub fn sequences_with_a_label_twice(everyone: Everyone) {
    let logits = [0.0, 1.0, 2.0, 1.0, 0.0, -1.0, 0.5, 0.5, 0.0];
    let twice = [0.0900306, -0.755272, 0.665241, -0.334759, 0.244728, 0.0900306, 0.383652, -0.616348, 0.232697];
    let none = [u32::MAX; 2];
    for (steps, target, loss, gradient) in
        [(3, [1, 1], 2.77323, Some(&twice[..])), (3, none, 3.77323, None), (2, [1, 1], 0.0, Some(&[0.0; 6]))]
    {
        let mut term = Term::of(Measure::Ctc);
        (term.options.target_length, term.options.reduction) = (2, Reduction::Sum);
        term.options.zero_infinity = steps == 2;
        let found = stepped(everyone, (&[steps, 3], "LogSoftmax"), (term, 1), |net| {
            net.set("input", &logits[..3 * steps as usize]);
            net.set_words("target", &target);
        });
        for (who, mut net) in found {
            assert_right(&who, &net.result(), &[loss], DIGITS, 0.0);
            let found = net.get("input.gradient");
            gradient.iter().for_each(|expected| assert_right(&who, &found, expected, DIGITS, 0.0));
        }
    }
}

pub fn labels_that_do_not_count_in_micro_batches(everyone: Everyone) {
    let (graph, output) = network(&[2, 2], "Linear(3, bias = false)");
    let mut term = Term::CROSS_ENTROPY;
    term.options.ignored = Some(IGNORED);
    let optimizer = Optimizer::Sgd(Sgd { lr: 1.0, ..Sgd::DEFAULT });
    let descent = Descent { micro_batches: 3, ..Descent::PLAIN };
    let program = updating((&graph, output), &[term], optimizer, descent);
    let inputs = [[1.0, 2.0, 0.0, 1.0], [2.0, -1.0, 1.0, 1.0], [0.5, 0.5, -1.0, 2.0]];
    let labels = [[0, 2], [IGNORED; 2], [1, IGNORED]];
    for (who, mut net) in everyone(&program, 1, optimizer) {
        net.set("linear0.weight", &[0.1, -0.2, 0.3, 0.4, -0.5, 0.6]);
        for part in 0..3 {
            // The number of labels that count in the whole batch.
            net.set("divisor0", &[3.0]);
            net.set("input", &inputs[part]);
            net.set_words("target", &labels[part]);
            if part < 2 { net.part(part as u64) } else { net.run() }
        }
        assert_right(&who, &net.result(), &[1.24991], DIGITS, 0.0);
        let expected = [0.344118, 0.268533, 0.223653, 0.0294347, -0.66777, 0.502032];
        assert_right(&who, &net.get("linear0.weight"), &expected, DIGITS, 0.0);
    }
}

/// A weight whose gradient is the input.
fn weight_of(everyone: Everyone, optimizer: Optimizer, descent: Descent) -> Vec<(String, Box<dyn Given>)> {
    let (graph, output) = network(&[2], "Linear(1, bias = false)");
    let program = updating((&graph, output), &[Term::DOT], optimizer, descent);
    let mut all = everyone(&program, 1, optimizer);
    all.iter_mut().for_each(|(_, net)| net.set("target", &[1.0]));
    all
}

pub fn decay_apart_from_the_gradient(everyone: Everyone) {
    let optimizer = Optimizer::AdamW(AdamW { lr: 0.1, eps: 1e-3, weight_decay: 0.1, ..AdamW::DEFAULT });
    let steps =
        [([1e-3, 2.0], [0.94, -2.07995]), ([-2e-3, 1.0], [0.953028, -2.15231]), ([5e-4, -3.0], [0.951282, -2.12259])];
    for (who, mut net) in weight_of(everyone, optimizer, Descent::PLAIN) {
        net.set("linear0.weight", &[1.0, -2.0]);
        for (gradient, expected) in steps {
            net.set("input", &gradient);
            net.run();
            assert_right(&who, &net.get("linear0.weight"), &expected, DIGITS, 0.0);
        }
    }
}

pub fn gradient_of_a_vector_of_zeros(everyone: Everyone) {
    let mut term = Term::MSE;
    term.options.reduction = Reduction::Sum;
    check_output(everyone, &[3], "L2Norm(1)", &[("input", &[0.0; 3])], &[0.0; 3]);
    let found = stepped(everyone, (&[3], "L2Norm(1)"), (term, 1), |net| {
        net.set("input", &[0.0; 3]);
        net.set("target", &[1.0, -2.0, 0.5]);
    });
    for (who, mut net) in found {
        assert_right(&who, &net.get("input.gradient"), &[-2e12, 4e12, -1e12], DIGITS, 0.0);
    }
}

pub fn what_is_no_number_stays_none(everyone: Everyone) {
    let check = |dims: &[u64], layers: &str, given: &[(&str, &[f32])], expected: &[bool]| {
        for (who, found) in outputs(everyone, (dims, layers), 1, given) {
            let is_none: Vec<bool> = found.iter().map(|x| x.is_nan()).collect();
            assert_eq!(is_none, expected, "{who}: {found:?}");
        }
    };
    let map = [f32::NAN, -1.0, 2.0, 3.0, -4.0, 5.0, 0.5, 7.0];
    for layer in ["Relu", "Relu6", "Hardtanh", "LeakyRelu"] {
        check(&[4], layer, &[("input", &map[..4])], &[true, false, false, false]);
        let linear: [(&str, &[f32]); 3] =
            [("input", &map[..4]), ("linear0.weight", &[0.5; 8]), ("linear0.bias", &[0.25; 2])];
        check(&[4], &format!("Linear(2) | {layer}"), &linear, &[true; 2]);
        let convolution: [(&str, &[f32]); 3] =
            [("input", &map), ("conv2d0.weight", &[0.5; 3]), ("conv2d0.bias", &[0.25; 3])];
        let firsts: Vec<bool> = (0..24).map(|index| index % 8 == 0).collect();
        check(&[1, 2, 4], &format!("Conv2d(3, 1) | {layer}"), &convolution, &firsts);
    }
    check(&[1, 2, 4], "MaxPool2d(2)", &[("input", &map)], &[true, false]);
    check(&[1, 2, 4], "AdaptiveMaxPool2d([1; 2])", &[("input", &map)], &[true, false]);
    check(&[2, 4], "Max(1)", &[("input", &map)], &[true, false, false, false]);
    check(&[2, 4], "Max(2)", &[("input", &map)], &[true, false]);
}

pub fn schedule_of_steps_in_micro_batches(everyone: Everyone) {
    let schedule = Schedule::Cosine { warmup: 5, total: 15, min: 0.0 };
    let optimizer = Optimizer::Sgd(Sgd { lr: 1.0, ..Sgd::DEFAULT });
    let plain = Descent { micro_batches: 4, ..Descent::PLAIN };
    let run = |net: &mut dyn Given| {
        net.set("linear0.weight", &[0.0; 2]);
        for part in 0..4 {
            net.set("input", &[1.0, -2.0]);
            net.set("target", &[1.0]);
            if part < 3 { net.part(part) } else { net.run() }
        }
        f64::from(net.get("linear0.weight")[0])
    };
    let whole: Vec<f64> = weight_of(everyone, optimizer, plain).iter_mut().map(|(_, net)| run(&mut **net)).collect();
    for ((who, mut net), whole) in weight_of(everyone, optimizer, Descent { schedule, ..plain }).into_iter().zip(whole)
    {
        assert!(whole != 0.0, "{who}");
        for number in 0..18 {
            let rate = match number {
                0..5 => f64::from(number + 1) / 6.0,
                5..15 => (1.0 + (PI * f64::from(number - 5) / 10.0).cos()) / 2.0,
                _ => 0.0,
            };
            assert_right(&format!("{who}, step {number}"), &[run(&mut *net) as f32], &[rate * whole], DIGITS, 0.0);
        }
    }
}

pub fn norm_of_large_gradients(everyone: Everyone) {
    let optimizer = Optimizer::Sgd(Sgd { lr: 1.0, ..Sgd::DEFAULT });
    let descent = Descent { clip: Some(Clip::GlobalNorm(1.0)), ..Descent::PLAIN };
    for (who, mut net) in weight_of(everyone, optimizer, descent) {
        for (gradient, expected) in [
            ([3e25, 4e25], [-0.6, -0.8]),
            ([3e38, 0.0], [-1.0, 0.0]),
            ([3e-25, 4e-25], [-3e-25, -4e-25]),
            ([f32::INFINITY, 1.0], [f64::NAN, 0.0]),
        ] {
            net.set("linear0.weight", &[0.0; 2]);
            net.set("input", &gradient);
            net.run();
            let found = net.get("linear0.weight");
            if gradient[0].is_infinite() {
                assert!(found[0].is_nan() && found[1] == 0.0, "{who}: {found:?}");
            } else {
                assert_right(&who, &found, &expected, DIGITS, 0.0);
            }
        }
    }
}

/// Gradients of several pieces and of several parameters.
pub fn norm_of_many_large_gradients(everyone: Everyone) {
    let (graph, output) = network(&[2500], "Linear(1)");
    let optimizer = Optimizer::Sgd(Sgd { lr: 1.0, ..Sgd::DEFAULT });
    let descent = Descent { clip: Some(Clip::GlobalNorm(2.0)), ..Descent::PLAIN };
    let program = updating((&graph, output), &[Term::DOT], optimizer, descent);
    // Of the weight 3e26 / 50 in each element, of the bias 4e26.
    for (who, mut net) in everyone(&program, 1, optimizer) {
        net.set("linear0.weight", &[0.0; 2500]);
        net.set("linear0.bias", &[0.0]);
        net.set("input", &[0.015; 2500]);
        net.set("target", &[4e26]);
        net.run();
        assert_right(&who, &net.get("linear0.weight"), &[-1.2 / 50.0; 2500], DIGITS, 0.0);
        assert_right(&who, &net.get("linear0.bias"), &[-1.6], DIGITS, 0.0);
    }
}

/// A vector, an order, its norm, and the gradient of the norm.
type NormCase = (&'static [f32], &'static str, f64, &'static [f64]);

pub fn norms_and_their_gradients(everyone: Everyone) {
    // With f64 and `|x|^(p - 1) sign(x) / norm^(p - 1)`.
    let all: [NormCase; 11] = [
        (&[3.0, -4.0, 0.0], "2", 5.0, &[0.6, -0.8, 0.0]),
        (&[3.0, -4.0, 0.0], "1", 7.0, &[1.0, -1.0, 0.0]),
        (&[3.0, -4.0, 0.0], "3", 4.4979414, &[0.4448514, -0.7908469, 0.0]),
        (&[3.0, -4.0, 0.0], "0.5", 13.9282032, &[2.1547005, -1.8660254, 0.0]),
        (&[3.0, -4.0, 4.0, 1.0], "\"inf\"", 4.0, &[0.0, -0.5, 0.5, 0.0]),
        (&[0.0; 3], "2", 0.0, &[0.0; 3]),
        (&[0.0; 3], "1", 0.0, &[0.0; 3]),
        (&[0.0; 3], "1.5", 0.0, &[0.0; 3]),
        (&[0.0; 3], "\"inf\"", 0.0, &[0.0; 3]),
        (&[3e30, -4e30], "2", 5e30, &[0.6, -0.8]),
        (&[3e-30, -4e-30], "3", 4.4979414e-30, &[0.4448514, -0.7908469]),
    ];
    for (x, p, norm, gradient) in all {
        // Elements side by side, and apart.
        let length = x.len() as u64;
        for (dims, layers) in [(vec![length], format!("Norm({p}, 1)")), (vec![length, 1, 1], format!("Norm({p}, -3)"))]
        {
            for (who, found) in outputs(everyone, (&dims, &layers), 1, &[("input", x)]) {
                assert_right(&who, &found, &[norm], DIGITS, 0.0);
            }
            let found = stepped(everyone, (&dims, &layers), (Term::DOT, 1), |net| {
                net.set("input", x);
                net.set("target", &[1.0]);
            });
            for (who, mut net) in found {
                let what = format!("{who}: {layers} of {x:?}");
                assert_right(&what, &net.get("input.gradient"), gradient, DIGITS, 0.0);
            }
        }
    }
    // The largest elements of both axes share the gradient, whichever axis they are on.
    let x = [4.0, 4.0, 1.0, -4.0, 2.0, 4.0];
    let found = stepped(everyone, (&[2, 1, 3], "Norm(\"inf\", [1; 3])"), (Term::DOT, 1), |net| {
        net.set("input", &x);
        net.set("target", &[2.0]);
    });
    for (who, mut net) in found {
        assert_right(&who, &net.get("input.gradient"), &[0.5, 0.5, 0.0, -0.5, 0.0, 0.5], DIGITS, 0.0);
    }
}

/// A channel that is dead: the root of its squares has no slope, and its norm has the slope 0.
pub fn norm_of_a_dead_channel(everyone: Everyone) {
    for (layers, dead) in [("Pow(2) | Sum(2) | Sqrt", f64::NAN), ("Norm(2, 2)", 0.0)] {
        let found = stepped(everyone, (&[2, 2], layers), (Term::DOT, 1), |net| {
            net.set("input", &[3.0, 4.0, 0.0, 0.0]);
            net.set("target", &[1.0; 2]);
        });
        for (who, mut net) in found {
            let gradient = net.get("input.gradient");
            assert_right(&who, &gradient[..2], &[0.6, 0.8], DIGITS, 0.0);
            assert!(gradient[2..].iter().all(|&g| f64::from(g) == dead || dead.is_nan() && g.is_nan()), "{gradient:?}");
        }
    }
}

/// A test of each case on what `everyone` loads.
macro_rules! known_values {
    ($everyone:path) => {
        known_values! { @each $everyone,
            cross_entropy_with_weights_and_smoothing, means_of_windows_over_the_end, no_window_begins_in_the_padding,
            one_maximum_of_several_windows, running_statistics, rows_of_large_numbers_are_normalised,
            signals_of_another_length, transposed_convolution_of_ones, table_that_is_the_head_too,
            sequences_with_a_label_twice, labels_that_do_not_count_in_micro_batches, decay_apart_from_the_gradient,
            gradient_of_a_vector_of_zeros, what_is_no_number_stays_none, schedule_of_steps_in_micro_batches,
            norm_of_large_gradients, norm_of_many_large_gradients, norms_and_their_gradients, norm_of_a_dead_channel
        }
    };
    (@each $everyone:path, $($case:ident),*) => {
        $(#[test] fn $case() { cases::$case($everyone); })*
    };
}
