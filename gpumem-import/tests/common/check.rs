//! Gives networks weights and inputs by recipe, and compares their outputs with recorded ones.

use super::run::Running;
use super::{Network, recipe};
use gpumem_core::program::Class;
use gpumem_import::lift::Lifted;
use gpumem_import::lift::layer::Change;
use gpumem_import::model::{Model, StateKind};
use serde_json::Value;

/// The samples for which PyTorch's outputs were recorded.
pub const BATCH: u64 = 2;

/// Gives a network its parameters and inputs by recipe. Noise is 0, as models have none in evaluation.
pub fn fill(running: &mut Running, model: &Model, lifted: &Lifted, network: &Network, inputs: &Value, gain: f64) {
    let mut names = model.inputs.iter().map(|&input| &model.values[input].name);
    for (id, name, class, shape) in running.given() {
        let count = shape.iter().product::<u64>() as usize;
        if class == Class::Input {
            let count = count * BATCH as usize;
            let Some(input) = names.next() else {
                running.write(id, std::iter::repeat_n(0, count));
                continue;
            };
            let most = match inputs[input]["kind"].as_str().unwrap() {
                "float" => None,
                "time" => Some(1000),
                _ => Some(inputs[input]["vocabulary"].as_u64().unwrap()),
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
        let numbers = match &state.data {
            // A buffer that is no statistic is as it was made.
            Some(data) if !name.contains("running_") && !matches!(state.kind, StateKind::Parameter { .. }) => {
                data.0.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect()
            }
            _ => changed(network, &name, key, &model.values[state.value].shape, gain),
        };
        running.write(id, numbers.into_iter().map(f32::to_bits));
    }
}

/// Returns the numbers of a parameter as the layer has them.
fn changed(network: &Network, name: &str, key: &str, shape: &[u64], gain: f64) -> Vec<f32> {
    let numbers = recipe::parameter(key, shape, gain);
    let columns = shape.last().map_or(1, |&columns| columns as usize);
    match network.changes.get(name) {
        None => numbers,
        Some(Change::Transposed) => (0..numbers.len())
            .map(|at| numbers[at % (numbers.len() / columns) * columns + at / (numbers.len() / columns)])
            .collect(),
    }
}

/// Returns the largest difference of an output beside its deviation.
pub fn difference(found: &[f32], expected: &Value) -> f64 {
    let (every, deviation) = (expected["every"].as_u64().unwrap() as usize, expected["deviation"].as_f64().unwrap());
    let values: Vec<f64> = expected["values"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect();
    let shape = expected["shape"].as_array().unwrap().iter().map(|size| size.as_u64().unwrap());
    assert_eq!(shape.product::<u64>(), found.len() as u64);
    let found: Vec<f64> = found.iter().step_by(every).map(|&found| f64::from(found)).collect();
    assert!(values.len() <= found.len());
    let differences = values.iter().zip(found).map(|(value, found)| (value - found).abs());
    differences.fold(0.0, |most, difference| if difference.is_nan() { f64::INFINITY } else { most.max(difference) })
        / deviation
}
