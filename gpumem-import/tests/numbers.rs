//! Runs lifted networks, and compares their outputs with PyTorch's.

mod common;

use common::{Network, network, recipe, run::Running};
use gpumem_core::program::Class;
use gpumem_import::Pt2;
use gpumem_import::batch::Batch;
use gpumem_import::lift::layer::Change;
use gpumem_import::lift::{Lifted, lift};
use gpumem_import::model::Model;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The samples for which PyTorch's outputs were recorded.
const BATCH: u64 = 2;
/// The largest difference beside the deviation of the output.
const TOLERANCE: f64 = 1e-4;

fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models")
}

fn json(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(models().join(name)).unwrap()).unwrap()
}

/// Reads a model and lifts it. `None` if it has an operation that the language does not have.
fn whole(name: &str) -> Option<(Model, Batch, Lifted)> {
    let model = Pt2::open(&models().join(format!("{name}.pt2"))).unwrap().model(None, &[]).unwrap();
    let batch = Batch::follow(&model).unwrap();
    let lifted = lift(&model, &batch);
    lifted.unknown.is_empty().then_some((model, batch, lifted))
}

/// The language takes every layer, and its output has the shape that PyTorch recorded.
#[test]
fn layers_are_those_of_the_language() {
    let mut faults = Vec::new();
    for facts in json("index.json").as_array().unwrap() {
        let name = facts["name"].as_str().unwrap();
        let Some((model, batch, lifted)) = whole(name) else { continue };
        if let Err(fault) = network(&model, &batch, &lifted) {
            faults.push(format!("{name}: {fault}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Gives a network its parameters and inputs by recipe. Noise is 0, as models have none in evaluation.
fn fill(running: &mut Running, model: &Model, lifted: &Lifted, network: &Network, facts: &Value, gain: f64) {
    let mut inputs = model.inputs.iter().map(|&input| &model.values[input].name);
    for (id, name, class, shape) in running.given() {
        let count = shape.iter().product::<u64>() as usize;
        if class == Class::Input {
            let count = count * BATCH as usize;
            let Some(input) = inputs.next() else {
                running.write(id, std::iter::repeat_n(0, count));
                continue;
            };
            let kind = &facts["inputs"][input];
            let most = match kind["kind"].as_str().unwrap() {
                "float" => None,
                "time" => Some(1000),
                _ => Some(kind["vocabulary"].as_u64().unwrap()),
            };
            match most {
                None => running.write(id, recipe::numbers(input, count).into_iter().map(f32::to_bits)),
                Some(most) => running.write(id, recipe::tokens(input, count, most).into_iter()),
            }
            continue;
        }
        let key = network.keys.get(&name).unwrap_or_else(|| panic!("{name} has no key"));
        if let Some(table) = lifted.tables.iter().find(|table| table.key == *key) {
            running.write(id, table.numbers.iter().map(|&number| (number as f32).to_bits()));
            continue;
        }
        // The recipe's numbers depend on the shape in the state dict, which may have axes of one element.
        let state = model.state.iter().find(|state| state.key == *key).unwrap_or_else(|| panic!("{key} is no state"));
        let shape = &model.values[state.value].shape;
        let numbers = recipe::parameter(key, shape, gain);
        let columns = shape.last().map_or(1, |&columns| columns as usize);
        let numbers: Vec<f32> = match network.changes.get(&name) {
            None => numbers,
            Some(Change::Transposed) => (0..numbers.len())
                .map(|at| numbers[at % (numbers.len() / columns) * columns + at / (numbers.len() / columns)])
                .collect(),
            Some(Change::Rows { start, end }) => numbers[*start as usize * columns..*end as usize * columns].to_vec(),
        };
        running.write(id, numbers.into_iter().map(f32::to_bits));
    }
}

/// Returns the largest difference of an output beside its deviation.
fn difference(found: &[f32], expected: &Value) -> f64 {
    let (every, deviation) = (expected["every"].as_u64().unwrap() as usize, expected["deviation"].as_f64().unwrap());
    let values = expected["values"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap());
    let differences = values.zip(found.iter().step_by(every)).map(|(value, &found)| (value - f64::from(found)).abs());
    differences.fold(0.0, |most, difference| if difference.is_nan() { f64::INFINITY } else { most.max(difference) })
        / deviation
}

#[test]
fn outputs_are_those_of_pytorch() {
    let expected = json("outputs.json");
    let (mut faults, mut count) = (Vec::new(), 0);
    for facts in json("index.json").as_array().unwrap() {
        let name = facts["name"].as_str().unwrap();
        let Some((model, batch, lifted)) = whole(name) else { continue };
        let Ok(network) = network(&model, &batch, &lifted) else { continue };
        let mut running = Running::load(&network, BATCH);
        let expected = &expected[name];
        fill(&mut running, &model, &lifted, &network, facts, expected["gain"].as_f64().unwrap());
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
    assert!(faults.is_empty(), "{} of {count}:\n{}", faults.len(), faults.join("\n"));
}
