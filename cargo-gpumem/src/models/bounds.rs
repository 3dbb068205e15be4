//! Bounds of models that can be said, with all operations of one kind taken from them.

use gpumem_core::memory::budget::Line;
use gpumem_core::report::Planned;
use gpumem_import::Pt2;
use gpumem_import::batch::Batch;
use gpumem_import::bound::stand_ins;
use gpumem_import::lift::lift;
use gpumem_import::model::Model;
use gpumem_import::tree::{Network, Options};
use gpumem_language::source::{Overrides, declared};
use std::collections::BTreeSet;
use std::path::Path;

const MODELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../gpumem-import/tests/models");

fn model(name: &str) -> Model {
    Pt2::open(&Path::new(MODELS).join(format!("{name}.pt2"))).unwrap().model(None, &[]).unwrap()
}

fn options(batch: u64) -> Options {
    Options { name: "net".into(), batch, optimizer: "AdamW {}".into(), loss: None, fields: Vec::new() }
}

fn planned(network: &Network, overrides: &Overrides) -> Result<Planned, String> {
    let text = network.to_string();
    let first = |mistakes: Vec<gpumem_language::source::Mistake>| mistakes[0].to_string();
    declared(&text, overrides).map_err(first)?.plan().map_err(|error| error.to_string())
}

/// Returns the arena of a whole model, in bytes.
fn need(model: &Model, options: &Options, overrides: &Overrides) -> u64 {
    let batch = Batch::follow(model).unwrap();
    let network = Network::new(model, &batch, &lift(model, &batch), options).unwrap();
    planned(&network, overrides).unwrap().budget(&[]).unwrap()[Line::Arena]
}

/// Returns the model with an operation that nobody knows in the place of each of one kind.
fn without(model: &Model, op: &str) -> Model {
    let mut model = model.clone();
    for node in model.nodes.iter_mut().filter(|node| node.op == op) {
        node.op = if op.ends_with('_') { "missing_".into() } else { "missing".into() };
    }
    model
}

/// Returns the bound in bytes, and true if more than the parameters are in it.
fn bound(model: &Model, options: &Options, overrides: &Overrides) -> Result<(u64, bool), String> {
    let batch = Batch::follow(model).unwrap();
    let all = stand_ins(model, &batch, options);
    let mut why = String::from("no network");
    for (index, network) in all.iter().enumerate() {
        match planned(network, overrides) {
            Ok(plan) => return Ok((plan.at_least().unwrap(), index + 1 < all.len())),
            Err(error) => why = error,
        }
    }
    Err(why)
}

/// The name of an operation, and a bound as a share of the need. The bound is of more than the states if true.
type Surveyed = (String, Result<(f64, bool), String>);

/// Compares each kind of operation of a model with the whole model, and returns a line for each.
fn survey(model: &Model, options: &Options, overrides: &Overrides) -> Vec<Surveyed> {
    let need = need(model, options, overrides);
    let ops: BTreeSet<&str> = model.nodes.iter().map(|node| &node.op[..]).collect();
    let missing = ops.into_iter().filter_map(|op| {
        let model = without(model, op);
        let batch = Batch::follow(&model).unwrap();
        let is_missing = !lift(&model, &batch).unknown.is_empty();
        let found = || bound(&model, options, overrides).map(|(bytes, more)| (bytes as f64 / need as f64, more));
        is_missing.then(|| (op.to_string(), found()))
    });
    missing.collect()
}

/// A bound is below the need of the whole model, and near enough to tell that a card is too small.
#[test]
fn bounds_are_below_the_need_and_near_it() {
    // The least share of the need that the bound has, in hundredths. Without matrices or kernels only the states are known.
    for (name, least, op) in [
        ("alexnet", 80, "dropout"),
        ("alexnet", 60, "conv2d"),
        ("text_cnn", 70, "cat"),
        ("text_cnn", 30, "linear"),
        ("vae_784", 80, "exp"),
        ("resnet_generator", 50, "instance_norm"),
        ("resnet_generator", 90, "tanh"),
        ("lstm_lm", 75, "dropout"),
    ] {
        let (model, options, overrides) = (model(name), options(8), Overrides::default());
        let need = need(&model, &options, &overrides);
        let (bound, _) = bound(&without(&model, op), &options, &overrides).unwrap();
        assert!(bound <= need && bound * 100 >= need * least, "{name} without {op}: {bound} of {need}");
    }
}

/// With recomputation a step need not save anything, so that the bound has the states alone.
#[test]
fn bounds_with_recomputation_have_no_saved_tensors() {
    let (model, options) = (model("resnet_generator"), options(8));
    let mut auto = Overrides::default();
    auto.set_checkpoint("Budget(0.1)").unwrap();
    let missing = without(&model, "tanh");
    let [with, plain] = [&auto, &Overrides::default()].map(|all| bound(&missing, &options, all).unwrap().0);
    assert!(with < plain && with <= need(&model, &options, &auto), "{with}, {plain}");
}

#[test]
#[ignore = "takes minutes: all models and all of their operations"]
fn no_bound_is_above_the_need_of_any_model() {
    let only = std::env::var("BOUND_ONLY").unwrap_or_default();
    let mut names: Vec<String> =
        std::fs::read_dir(MODELS).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let mut above = Vec::new();
    for name in names.iter().filter_map(|name| name.strip_suffix(".pt2")).filter(|name| name.contains(&only)) {
        let model = model(name);
        for (op, found) in survey(&model, &options(8), &Overrides::default()) {
            match found {
                Ok((share, more)) => println!("{name} {op} {share:.3} {}", if more { "partial" } else { "states" }),
                Err(ref why) => println!("{name} {op} none: {why}"),
            }
            if !found.is_ok_and(|(share, _)| share <= 1.0) {
                above.push(format!("{name} {op}"));
            }
        }
    }
    assert!(above.is_empty(), "{above:?}");
}
