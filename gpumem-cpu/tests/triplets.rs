//! Losses of three vectors, of two values of which one is to be larger, and of what is found in a batch: against PyTorch, and where there is
//! nothing to compare.

mod harness;

use gpumem_core::graph::{Graph, NodeId, Type};
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::program::loss::{LossOptions, Mining, Reduction};
use gpumem_core::program::{Action, Measure, Slot};
use gpumem_core::shape::Shape;
use gpumem_core::train::Descent;
use harness::given::{self, STAY};
use harness::graphs::chain;
use harness::{Loaded, Truth, assert_close};

fn training(loss: &[Term]) -> Training<'_> {
    given::training(loss, STAY, Descent::PLAIN)
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

fn passed_on(count: usize, dims: &[u64]) -> (Graph, Vec<NodeId>) {
    let mut graph = Graph::default();
    let inputs: Vec<NodeId> = (0..count).map(|_| graph.input(Type::numbers(Shape::new(dims))).unwrap()).collect();
    let values = inputs.into_iter().map(|input| chain(&mut graph, input, "LeakyRelu(1.0)")).collect();
    (graph, values)
}

fn input(index: usize) -> String {
    if index == 0 { "input".to_string() } else { format!("input{index}") }
}

/// A file of `truth/losses` on a loss with these options.
fn check_golden(file: &str, measure: Measure, names: &[&str], change: impl Fn(&mut LossOptions)) {
    let truth = Truth::read(&format!("losses/{file}.safetensors"));
    let shape = truth.shape("input.x");
    let (graph, values) = passed_on(names.len(), &shape[1..]);
    let [from, and, third] = [0, 1, 2].map(|number| values.get(number).copied());
    let mut term = Term { from, and, third, ..Term::of(measure) };
    change(&mut term.options);
    let mut loaded = Loaded::new(&graph, values[0], training(std::slice::from_ref(&term)), shape[0], STAY);
    for (index, name) in names.iter().enumerate() {
        loaded.set(&input(index), truth.words(&format!("input.{name}")));
    }
    if truth.names().any(|name| name == "input.target") {
        loaded.set("target", truth.words("input.target"));
    }
    assert_close(&format!("{file} output"), &[loaded.step().unwrap()], &truth.floats("output"), 1e-6);
    for (index, name) in names.iter().enumerate() {
        let found = loaded.get(&format!("{}.gradient", input(index))).unwrap();
        assert_close(&format!("{file} {name}"), &found, &truth.floats(&format!("grad_input.{name}")), 1e-5);
    }
    assert_close(&format!("{file} without an update"), &[loaded.evaluate().unwrap()], &truth.floats("output"), 1e-6);
}

#[test]
fn triplets_beside_pytorch() {
    let check = |file, change: &dyn Fn(&mut LossOptions)| {
        check_golden(file, Measure::TripletMargin, &["x", "y", "z"], change);
    };
    check("triplet", &|_| {});
    check("triplet_l1", &|it| (it.number, it.second) = (Some(0.4), Some(1.0)));
    check("triplet_swap", &|it| (it.number, it.swap, it.reduction) = (Some(1.5), true, Reduction::Sum));
    check("triplet_l3", &|it| (it.second, it.swap) = (Some(3.0), true));
}

#[test]
fn rankings_beside_pytorch() {
    check_golden("ranking", Measure::MarginRanking, &["x", "y"], |_| {});
    let change = |it: &mut LossOptions| (it.number, it.reduction) = (Some(0.5), Reduction::Sum);
    check_golden("ranking_margin", Measure::MarginRanking, &["x", "y"], change);
}

#[test]
fn mined_triplets_beside_pytorch() {
    let hardest = |margin| move |it: &mut LossOptions| (it.number, it.mining) = (Some(margin), Mining::Hardest);
    check_golden("mined", Measure::TripletMargin, &["x"], hardest(0.2));
    check_golden("mined_many", Measure::TripletMargin, &["x"], hardest(1.0));
}

/// The loss and the gradient of one value, for a target for each sample.
fn mined(x: &[f32], length: usize, ids: &[u32], reduction: Reduction) -> (f32, Vec<f32>) {
    let (graph, values) = passed_on(1, &[length as u64]);
    let options = LossOptions { mining: Mining::Hardest, number: Some(1.0), reduction, ..LossOptions::DEFAULT };
    let term = Term { options, ..Term::of(Measure::TripletMargin) };
    let mut loaded = Loaded::new(&graph, values[0], training(&[term]), ids.len() as u64, STAY);
    loaded.set("input", &bits(x));
    loaded.set("target", ids);
    (loaded.step().unwrap(), loaded.get("input.gradient").unwrap())
}

/// Where no anchor has a positive and a negative there is no mean, and no gradient; alike vectors have no direction.
#[test]
fn batches_with_nothing_to_find() {
    let x = [0.0, 1.0, 2.0, 0.0, 5.0, 1.0];
    for ids in [[3, 3, 3], [1, 2, 3]] {
        let (loss, gradient) = mined(&x, 2, &ids, Reduction::Mean);
        assert!(loss.is_nan());
        assert_eq!(gradient, [0.0; 6]);
        assert_eq!(mined(&x, 2, &ids, Reduction::Sum).0, 0.0);
    }
    // Two anchors at one place, and a third one two away: 0 - 2 + 1 is below 0, and so nothing moves.
    let (loss, gradient) = mined(&[0.0, 0.0, 0.0, 0.0, 2.0, 0.0], 2, &[1, 1, 2], Reduction::Mean);
    assert_eq!((loss, gradient), (0.0, vec![0.0; 6]));
    // Half away: both are driven from the third, which goes twice as fast; numbers are any.
    let (loss, gradient) = mined(&[0.0, 0.0, 0.0, 0.0, 0.5, 0.0], 2, &[u32::MAX, u32::MAX, 0], Reduction::Sum);
    assert_eq!((loss, gradient), (1.0, vec![1.0, 0.0, 1.0, 0.0, -2.0, 0.0]));
}

/// Six numbers a sample and one of all, and no tensor of all pairs; the gradient does not take the place of what others are compared with.
#[test]
fn what_is_found_is_linear() {
    let (graph, values) = passed_on(1, &[64]);
    let options = LossOptions { mining: Mining::Hardest, ..LossOptions::DEFAULT };
    let loss = &[Term { options, ..Term::of(Measure::TripletMargin) }];
    let program = lower(&graph, &values, &Options { training: Some(training(loss)) }).unwrap();
    let loss = program.operations.iter().find(|operation| matches!(operation.action, Action::Loss(_))).unwrap();
    let own = |slot| program.tensor(loss.written(slot).unwrap()).elements(1000).unwrap();
    assert_eq!([Slot::Saved(0), Slot::Saved(1), Slot::Workspace].map(own), [1, 4000, 2000]);
    assert_ne!(loss.written(Slot::InputGradient(0)), loss.read(Slot::Input(0)));
}

/// What no macro would write.
#[test]
fn triplets_that_cannot_be_lowered() {
    let refused = |count: usize, parts: u64, term: &dyn Fn(&[NodeId]) -> Term| {
        let (graph, values) = passed_on(count, &[4]);
        let term = term(&values);
        let descent = Descent { micro_batches: parts, ..Descent::PLAIN };
        let training = Training { descent, ..training(std::slice::from_ref(&term)) };
        lower(&graph, &values, &Options { training: Some(training) }).map(|_| ()).map_err(|error| error.message)
    };
    let of = |measure| move |_: &[NodeId]| Term::of(measure);
    let said = |text: &str| Err(text.to_string());
    assert_eq!(refused(3, 2, &of(Measure::TripletMargin)), Ok(()));
    assert_eq!(refused(2, 1, &of(Measure::TripletMargin)), said("the loss compares three values, and there are fewer"));
    assert_eq!(refused(1, 1, &of(Measure::MarginRanking)), said("the loss compares two values, and there is one"));
    let same = |values: &[NodeId]| Term { third: Some(values[1]), ..Term::of(Measure::TripletMargin) };
    assert_eq!(refused(3, 1, &same), said("the loss compares a value with itself"));
    let mined = |_: &[NodeId]| {
        let options = LossOptions { mining: Mining::Hardest, ..LossOptions::DEFAULT };
        Term { options, ..Term::of(Measure::TripletMargin) }
    };
    let whole = "a part of a batch knows none of the others, and `TripletMargin` compares all of them; remove `micro_batches`, or use \
                 `checkpoint: Auto`";
    assert_eq!(refused(1, 2, &mined), said(whole));
    assert_eq!(refused(1, 1, &mined), Ok(()));
}
