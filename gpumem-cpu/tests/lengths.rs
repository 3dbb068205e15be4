//! Layers inside of `lengths` and `segments` against PyTorch: output and all gradients, to 1e-5. `truth/ops/lengths.py` made what is expected.

mod harness;

use gpumem_core::error::Error;
use gpumem_core::graph::{Graph, NodeId, Type};
use gpumem_core::layers::Steps;
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::program::Measure;
use gpumem_core::program::loss::{LossOptions, Reduction, Weighting};
use gpumem_core::program::ops::Seen;
use gpumem_core::shape::Shape;
use gpumem_core::train::Descent;
use harness::given::{self, STAY};
use harness::graphs::{counted, layer, within};
use harness::{Loaded, Truth, assert_close};
use std::borrow::Cow;

const TOLERANCE: f64 = 1e-5;

const BATCH: u64 = 4;
const STEPS: u64 = 5;

fn training(loss: &[Term]) -> Training<'_> {
    given::training(loss, STAY, Descent::PLAIN)
}

/// A case of the file.
struct Case<'t> {
    truth: &'t Truth,
    name: &'static str,
    /// Its inputs, and the one whose steps are counted.
    inputs: &'static [&'static str],
    of: usize,
    seen: Seen,
    /// The layers.
    text: &'static str,
}

impl Case<'_> {
    fn of(&self, tensor: &str) -> String {
        format!("{}.{tensor}", self.name)
    }

    fn network(&self) -> (Graph, NodeId) {
        let mut graph = Graph::default();
        let shape = |name: &str| Shape::new(&self.truth.shape(&self.of(&format!("input.{name}")))[1..]);
        let mut nodes: Vec<NodeId> =
            self.inputs.iter().map(|name| graph.input(Type::numbers(shape(name))).unwrap()).collect();
        let (_, steps) = counted(&mut graph, self.seen, nodes[self.of], STEPS);
        // Keys are the values.
        if self.of == 1 {
            nodes.insert(1, nodes[1]);
        }
        let output = match self.text.strip_prefix("PositionEmbedding + ") {
            Some(text) => {
                let text = text.to_string();
                let positions = within(&mut graph, std::slice::from_ref(&steps), &nodes, "PositionEmbedding(5, 6)");
                let sum = within(&mut graph, std::slice::from_ref(&steps), &[nodes[0], positions], "Add");
                within(&mut graph, &[steps], &[sum], &text)
            }
            None => within(&mut graph, &[steps], &nodes, self.text),
        };
        (graph, output)
    }

    /// The network with everything but the target, and `poison` in steps after the end.
    fn loaded(&self, loss: &[Term], poison: Option<f32>) -> Loaded {
        let (graph, output) = self.network();
        let mut loaded = Loaded::new(&graph, output, training(loss), BATCH, STAY);
        let counts = self.truth.words(&self.of("steps")).to_vec();
        let input = |index: usize| if index == 0 { "input".to_string() } else { format!("input{index}") };
        for (index, name) in self.inputs.iter().enumerate() {
            let mut words = self.truth.words(&self.of(&format!("input.{name}"))).to_vec();
            if let (Some(poison), true) = (poison, index == self.of && self.seen == Seen::Lengths) {
                let width = words.len() / (BATCH * STEPS) as usize;
                for (step, row) in words.chunks_exact_mut(width).enumerate() {
                    if step % STEPS as usize >= counts[step / STEPS as usize] as usize {
                        row.fill(poison.to_bits());
                    }
                }
            }
            loaded.set(&input(index), &words);
        }
        loaded.set(&input(self.inputs.len()), &counts);
        let parameter = |name: &str| {
            let row = if name == "table" { 0 } else { graph.rows.len() - 1 };
            let name = if name == "table" { "weight" } else { name };
            format!("{}.{name}", graph.rows[row].path)
        };
        let prefix = self.of("param.");
        for name in self.truth.names().filter_map(|name| name.strip_prefix(&prefix)) {
            loaded.set(&parameter(name), self.truth.words(&format!("{prefix}{name}")));
        }
        loaded
    }

    /// Output, loss and gradients, with `poison` where nothing is to be read.
    fn check(&self, poison: Option<f32>) {
        let Case { truth, name, .. } = *self;
        let mut loaded = self.loaded(&[Term::DOT], poison);
        loaded.set("target", truth.words(&self.of("grad_output")));
        loaded.step().unwrap();
        let (graph, _) = self.network();
        for (index, input) in self.inputs.iter().enumerate() {
            let own = if index == 0 { "input".to_string() } else { format!("input{index}") };
            let found = loaded.get(&format!("{own}.gradient")).unwrap();
            let expected = truth.floats(&self.of(&format!("grad_input.{input}")));
            assert_close(&format!("{name}: gradient of {input}"), &found, &expected, TOLERANCE);
        }
        let prefix = self.of("grad_param.");
        for parameter in truth.names().filter_map(|name| name.strip_prefix(&prefix)) {
            let row = if parameter == "table" { 0 } else { graph.rows.len() - 1 };
            let path = format!("{}.{}", graph.rows[row].path, if parameter == "table" { "weight" } else { parameter });
            let found = loaded.get(&format!("{path}.gradient")).unwrap();
            let expected = truth.floats(&format!("{prefix}{parameter}"));
            assert_close(&format!("{name}: gradient of {parameter}"), &found, &expected, TOLERANCE);
        }
        let mut loaded = self.loaded(&[Term::MSE], poison);
        let expected = truth.floats(&self.of("output"));
        loaded.set("target", truth.words(&self.of("output")));
        let loss = loaded.step().unwrap();
        let scale = expected.iter().map(|y| f64::from(y * y)).sum::<f64>() / expected.len() as f64;
        assert!(f64::from(loss) <= TOLERANCE * TOLERANCE * scale, "{name}: mean squared difference {loss:e}");
    }
}

fn truth() -> Truth {
    Truth::read("ops/lengths.safetensors")
}

/// Keys of another sequence, of which only the first ones count: what follows is not even read.
#[test]
fn cross_attention() {
    let truth = truth();
    for (name, bias, text) in [
        ("cross", false, "Attention(heads = 2)"),
        ("cross_of_more_queries", false, "Attention(heads = 2, scale = 0.3)"),
        ("cross_causal", false, "Attention(heads = 2, causal = true)"),
        ("cross_window", false, "Attention(heads = 2, window = 2)"),
        ("cross_causal_window", false, "Attention(heads = 2, causal = true, window = 2)"),
        ("cross_shared", false, "Attention(heads = 2, kv_heads = 1)"),
        ("cross_matrix", true, "Attention(heads = 2)"),
        ("cross_row", true, "Attention(heads = 2)"),
    ] {
        let inputs: &[&str] = if bias { &["q", "m", "bias"] } else { &["q", "m"] };
        let case = Case { truth: &truth, name, inputs, of: 1, seen: Seen::Lengths, text };
        [None, Some(f32::NAN), Some(f32::INFINITY)].into_iter().for_each(|poison| case.check(poison));
    }
}

/// A sequence over itself: rows after the end are computed as the others are.
#[test]
fn self_attention() {
    let truth = truth();
    for (name, seen, text) in [
        ("own", Seen::Lengths, "MultiHeadAttention(2)"),
        ("own_causal", Seen::Lengths, "MultiHeadAttention(2, causal = true)"),
        ("segments", Seen::Segments, "PositionEmbedding + MultiHeadAttention(2)"),
        ("segments_causal", Seen::Segments, "PositionEmbedding + MultiHeadAttention(2, causal = true)"),
    ] {
        Case { truth: &truth, name, inputs: &["x"], of: 0, seen, text }.check(None);
    }
}

#[test]
fn reductions_over_steps() {
    let truth = truth();
    for (name, text) in [("sum", "Sum(1)"), ("mean", "Mean(1)"), ("max", "Max(1)")] {
        let case = Case { truth: &truth, name, inputs: &["x"], of: 0, seen: Seen::Lengths, text };
        [None, Some(f32::NAN), Some(1e30)].into_iter().for_each(|poison| case.check(poison));
    }
}

/// As PyTorch has packed sequences, in both directions.
#[test]
fn recurrent_layers() {
    let truth = truth();
    for (name, text) in [
        ("lstm", "Lstm(2)"),
        ("lstm_both", "Lstm(2, 2, bidirectional = true)"),
        ("lstm_projected", "Lstm(2, bidirectional = true, proj_size = 1)"),
        ("gru_both", "Gru(2, bidirectional = true)"),
        ("rnn_both", "Rnn(2, bidirectional = true, bias = false)"),
    ] {
        let case = Case { truth: &truth, name, inputs: &["x"], of: 0, seen: Seen::Lengths, text };
        [None, Some(f32::NAN)].into_iter().for_each(|poison| case.check(poison));
    }
}

/// Losses of the steps that count: the others have neither term nor gradient, whatever they and their targets are.
#[test]
fn losses() {
    let truth = truth();
    let weights = Cow::Borrowed(&[0.5, 2.0, 1.25][..]);
    let plain = LossOptions { counted: STEPS, ..LossOptions::DEFAULT };
    for (name, measure, options) in [
        ("mse", Measure::Mse, plain.clone()),
        ("huber_sum", Measure::Huber, LossOptions { reduction: Reduction::Sum, number: Some(0.5), ..plain.clone() }),
        ("bce", Measure::BceWithLogits, LossOptions { weights, ..plain.clone() }),
        ("kl_batch", Measure::KlDiv, LossOptions { reduction: Reduction::BatchMean, ..plain.clone() }),
        ("loss_mean", Measure::Mean, plain.clone()),
    ] {
        let mut graph = Graph::default();
        let x = graph.input(Type::numbers(Shape::new(&[STEPS, 3]))).unwrap();
        let n = graph.input(Type::indices(Shape::new(&[]))).unwrap();
        let output = layer(&mut graph, x, "Affine(1)");
        let term = Term { counted: Some(n), options, ..Term::of(measure) };
        for poison in [None, Some(f32::NAN)] {
            let mut loaded = Loaded::new(&graph, output, training(std::slice::from_ref(&term)), BATCH, STAY);
            let counts = truth.words(&format!("{name}.steps"));
            let poisoned = |tensor: &str| {
                let mut words = truth.words(&format!("{name}.{tensor}")).to_vec();
                for (step, row) in words.chunks_exact_mut(3).enumerate() {
                    if let Some(poison) = poison.filter(|_| (step % 5) as u32 >= counts[step / 5]) {
                        row.fill(poison.to_bits());
                    }
                }
                words
            };
            loaded.set("input", &poisoned("input.x"));
            loaded.set("input1", counts);
            if measure != Measure::Mean {
                loaded.set("target", &poisoned("target"));
            }
            let loss = loaded.step().unwrap();
            assert_close(name, &[loss], &truth.floats(&format!("{name}.output")), TOLERANCE);
            let gradient = loaded.get("input.gradient").unwrap();
            assert_close(name, &gradient, &truth.floats(&format!("{name}.grad_input.x")), TOLERANCE);
            // A mean of nothing is none, and moves nothing.
            loaded.set("input1", &[0; 4]);
            let loss = loaded.step().unwrap();
            assert!(
                if term.options.reduction == Reduction::Mean { loss.is_nan() } else { loss == 0.0 },
                "{name}: {loss}"
            );
            assert!(loaded.get("input.gradient").unwrap().iter().all(|dx| *dx == 0.0), "{name}");
            loaded.set("input1", &[0, 6, 0, 0]);
            let error = Error::Index { what: "length", position: 1, value: 6, limit: 6 };
            assert_eq!(loaded.step().unwrap_err(), error);
        }
    }
}

/// Lengths that a loss has not, that count other steps, that are no input, or that stand beside a mask.
#[test]
fn losses_of_other_steps() {
    let mut graph = Graph::default();
    let x = graph.input(Type::numbers(Shape::new(&[STEPS, 3]))).unwrap();
    let n = graph.input(Type::indices(Shape::new(&[]))).unwrap();
    let output = layer(&mut graph, x, "Affine(1)");
    let options = |counted| LossOptions { counted, ..LossOptions::DEFAULT };
    let masked = LossOptions { weighting: Weighting::Mask, ..options(STEPS) };
    let sound = Term { counted: Some(n), options: options(STEPS), ..Term::of(Measure::Mse) };
    let refused = |term: Term| {
        let training = training(std::slice::from_ref(&term));
        lower(&graph, &[output], &Options { training: Some(training) }).err().map(|error| error.message)
    };
    assert_eq!(refused(sound.clone()), None);
    let said = "the loss counts other steps than its value has, or has no input that says which";
    for term in [
        Term { counted: None, ..sound.clone() },
        Term { options: options(0), ..sound.clone() },
        Term { options: options(STEPS - 1), ..sound.clone() },
        Term { counted: Some(output), ..sound.clone() },
        Term { counted: Some(99), ..sound.clone() },
        Term { measure: Measure::CrossEntropy, ..sound.clone() },
        Term { weights: Some(1), options: masked, ..sound.clone() },
    ] {
        let what = format!("{term:?}");
        assert_eq!(refused(term).as_deref(), Some(said), "{what}");
    }
}

/// Nothing is computed with a length that is too large, or with segments that fall.
#[test]
fn numbers_that_cannot_be() {
    let truth = truth();
    let case = |name, inputs, of, seen, text| Case { truth: &truth, name, inputs, of, seen, text };
    let mut all = [
        case("cross", &["q", "m"][..], 1, Seen::Lengths, "Attention(heads = 2)"),
        case("mean", &["x"], 0, Seen::Lengths, "Mean(1)"),
        case("lstm", &["x"], 0, Seen::Lengths, "Lstm(2)"),
    ]
    .map(|case| (case.loaded(&[Term::DOT], None), format!("input{}", case.inputs.len())));
    for (loaded, lengths) in &mut all {
        loaded.set(lengths, &[0, 5, 6, 5]);
        let error = loaded.step().unwrap_err();
        assert_eq!(error, Error::Index { what: "length", position: 2, value: 6, limit: 6 });
        assert_eq!(error.to_string(), "length 6 at position 2 is too large: it must be below 6");
        loaded.set(lengths, &[0, 5, 5, 5]);
        loaded.step().unwrap();
    }
    let segments = case("segments", &["x"], 0, Seen::Segments, "PositionEmbedding + MultiHeadAttention(2)");
    let mut loaded = segments.loaded(&[Term::DOT], None);
    // A row begins with any number.
    let mut rows = [[9, 9, 9, 9, u32::MAX], [0, 0, 0, 1, 1], [0, 1, 2, 3, 4], [5, 5, 5, 5, 5]];
    loaded.set("input1", rows.as_flattened());
    loaded.step().unwrap();
    rows[2][3] = 1;
    loaded.set("input1", rows.as_flattened());
    assert_eq!(loaded.step().unwrap_err(), Error::Order { what: "segment", position: 13, value: 1, before: 2 });
}

/// A draw belongs to a pair of steps, whatever the lengths are.
#[test]
fn dropped_weights_of_full_lengths_are_those_without_lengths() {
    let of = |has_lengths: bool| {
        let mut graph = Graph::default();
        let x = graph.input(Type::numbers(Shape::new(&[STEPS, 6]))).unwrap();
        let steps: Vec<Steps> =
            if has_lengths { vec![counted(&mut graph, Seen::Lengths, x, STEPS).1] } else { Vec::new() };
        let output = within(&mut graph, &steps, &[x], "MultiHeadAttention(2, dropout = 0.4)");
        let mut loaded = Loaded::new(&graph, output, training(&[Term::DOT]), BATCH, STAY);
        loaded.initialise(3);
        let words: Vec<u32> = (0..BATCH * STEPS * 6).map(|i| (i as f32 * 0.37).sin().to_bits()).collect();
        loaded.set("input", &words);
        loaded.set("target", &words);
        if has_lengths {
            loaded.set("input1", &[5; 4]);
        }
        (loaded.step().unwrap().to_bits(), loaded.get("input.gradient").unwrap())
    };
    assert_eq!(of(true), of(false));
}
