//! Runs lifted networks, and compares their outputs with PyTorch's.

mod common;

use common::check::{BATCH, difference, fill};
use common::network;
use common::run::Running;
use gpumem_import::Pt2;
use gpumem_import::batch::Batch;
use gpumem_import::lift::{Lifted, lift};
use gpumem_import::model::Model;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The largest difference beside the deviation of the output.
const TOLERANCE: f64 = 1e-4;

/// Networks of packages, and small ones that show forms of layers.
const FOLDERS: [&str; 2] = ["models", "forms"];

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn json(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(tests().join(name)).unwrap()).unwrap()
}

/// Reads a model and lifts it. `None` if it has an operation that the language does not have.
fn whole(folder: &str, name: &str) -> Option<(Model, Batch, Lifted)> {
    let model = Pt2::open(&tests().join(format!("{folder}/{name}.pt2"))).unwrap().model(None, &[]).unwrap();
    let batch = Batch::follow(&model).unwrap();
    let lifted = lift(&model, &batch);
    lifted.unknown.is_empty().then_some((model, batch, lifted))
}

/// Returns the networks of a folder: each name with what is known of its inputs.
fn named(folder: &str) -> Vec<(String, Value)> {
    match json(&format!("{folder}/outputs.json")) {
        // Inputs of networks of packages are in their index.
        _ if folder == "models" => {
            let index = json("models/index.json");
            let all = index.as_array().unwrap().iter();
            all.map(|facts| (facts["name"].as_str().unwrap().to_string(), facts.clone())).collect()
        }
        outputs => outputs.as_object().unwrap().iter().map(|(name, facts)| (name.clone(), facts.clone())).collect(),
    }
}

/// The language takes every layer, and its output has the shape that PyTorch recorded.
#[test]
fn layers_are_those_of_the_language() {
    let mut faults = Vec::new();
    for folder in FOLDERS {
        for (name, _) in named(folder) {
            let Some((model, batch, lifted)) = whole(folder, &name) else { continue };
            if let Err(fault) = network(&model, &batch, &lifted) {
                faults.push(format!("{name}: {fault}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Compares all networks of a folder.
fn compare(folder: &str) {
    let expected = json(&format!("{folder}/outputs.json"));
    let (mut faults, mut count) = (Vec::new(), 0);
    for (name, facts) in named(folder) {
        let Some((model, batch, lifted)) = whole(folder, &name) else { continue };
        let Ok(network) = network(&model, &batch, &lifted) else { continue };
        let mut running = Running::load(&network, BATCH);
        let expected = &expected[&name];
        fill(&mut running, &model, &lifted, &network, &facts["inputs"], expected["gain"].as_f64().unwrap());
        for (index, (found, expected)) in
            running.outputs().iter().zip(expected["outputs"].as_array().unwrap()).enumerate()
        {
            let difference = difference(found, expected);
            println!("{name} {index}: {difference:.1e}");
            if difference > TOLERANCE {
                faults.push(format!("{name}, output {index}: {difference:e}"));
            }
        }
        count += 1;
    }
    assert!(count > 0 && faults.is_empty(), "{} of {count}:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn outputs_are_those_of_pytorch() {
    compare("models");
}

#[test]
fn outputs_of_forms_are_those_of_pytorch() {
    compare("forms");
}
