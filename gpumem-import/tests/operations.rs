//! Runs small models of one operation or a few, and compares their outputs with PyTorch's.

mod common;

use common::check::{BATCH, difference, fill};
use common::network;
use common::run::Running;
use gpumem_import::Pt2;
use gpumem_import::batch::Batch;
use gpumem_import::lift::lift;
use serde_json::Value;
use std::path::Path;

/// The largest difference beside the deviation of the output.
const TOLERANCE: f64 = 1e-4;

/// Lifts a model, runs it, and compares all outputs.
fn check(path: &Path, facts: &Value) -> Result<(), String> {
    let model = Pt2::open(path).unwrap().model(None, &[]).unwrap();
    let batch = Batch::follow(&model).unwrap();
    let lifted = lift(&model, &batch);
    if let Some(unknown) = lifted.unknown.first() {
        return Err(format!("{} is not lifted: {}", unknown.op, unknown.reason));
    }
    let network = network(&model, &batch, &lifted)?;
    let mut running = Running::load(&network, BATCH);
    fill(&mut running, &model, &lifted, &network, &facts["inputs"], facts["gain"].as_f64().unwrap());
    let expected = facts["outputs"].as_array().unwrap();
    let found = running.outputs();
    if found.len() != expected.len() {
        return Err(format!("{} outputs, and PyTorch has {}", found.len(), expected.len()));
    }
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        // Places are whole numbers.
        let is_number = model.values[model.outputs[index]].dtype.is_float();
        let found: Vec<f32> = found.iter().map(|&word| if is_number { word } else { word.to_bits() as f32 }).collect();
        let difference = difference(&found, expected);
        if difference > TOLERANCE {
            return Err(format!("output {index} differs by {difference:e}"));
        }
    }
    Ok(())
}

#[test]
fn outputs_are_those_of_pytorch() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models/operations");
    let all: Value = serde_json::from_slice(&std::fs::read(folder.join("outputs.json")).unwrap()).unwrap();
    let all = all.as_object().unwrap();
    let faults: Vec<String> = all
        .iter()
        .filter_map(|(name, facts)| {
            let fault = check(&folder.join(format!("{name}.pt2")), facts).err()?;
            Some(format!("{name}: {fault}"))
        })
        .collect();
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), all.len(), faults.join("\n"));
}
