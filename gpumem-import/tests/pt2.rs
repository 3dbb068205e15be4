//! Reads exported programs of 44 networks, and broken files.

use gpumem_import::Pt2;
use gpumem_import::batch::Batch;
use gpumem_import::model::Model;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models")
}

fn index() -> Vec<Value> {
    serde_json::from_slice(&std::fs::read(models().join("index.json")).unwrap()).unwrap()
}

fn read(name: &str) -> Model {
    Pt2::open(&models().join(format!("{name}.pt2"))).unwrap().model(None, &[]).unwrap()
}

fn shape(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|dim| dim.as_u64().unwrap()).collect()
}

#[test]
fn parameters_and_shapes_are_those_of_pytorch() {
    for facts in index() {
        let name = facts["name"].as_str().unwrap();
        let model = read(name);
        assert_eq!(model.parameters(), facts["parameters"].as_u64().unwrap(), "{name}");
        assert_eq!(model.batch, Some(2), "{name}");
        assert!(!model.has_symbolic_batch, "{name}");
        let inputs = facts["inputs"].as_object().unwrap();
        assert_eq!(model.inputs.len(), inputs.len(), "{name}");
        for &input in &model.inputs {
            let value = &model.values[input];
            assert_eq!(value.shape[1..], shape(&inputs[&value.name]["shape_of_one_sample"]), "{name}");
        }
        let tied: BTreeMap<&str, &str> = model
            .state
            .iter()
            .filter_map(|state| Some((&state.key[..], &model.state[state.tied_to?].key[..])))
            .collect();
        let expected: BTreeMap<&str, &str> =
            facts["tied"].as_object().unwrap().iter().map(|(key, owner)| (&key[..], owner.as_str().unwrap())).collect();
        assert_eq!(tied, expected, "{name}");
    }
}

/// A model exported for 2 samples and resized to 5 has the shapes that it has when it is exported for 5.
#[test]
fn batches_are_followed() {
    for facts in index() {
        let name = facts["name"].as_str().unwrap();
        let model = read(name);
        let batch = Batch::follow(&model).unwrap();
        let mixing: Vec<&str> = batch.mixing.iter().map(|&node| &model.nodes[node].name[..]).collect();
        let outputs: Vec<_> = model.outputs.iter().map(|&output| batch.axes[output]).collect();
        println!("{name}: {mixing:?} {outputs:?}");
    }
}

#[test]
fn constants_are_evaluated() {
    for facts in index() {
        let name = facts["name"].as_str().unwrap();
        let model = read(name);
        let origins = gpumem_import::fold::origins(&model);
        for node in &model.nodes {
            for &output in &node.outputs {
                if let gpumem_import::fold::Origin::Constant(None) = origins[output] {
                    println!("{name}: {} {} {:?}", node.name, node.op, model.values[output].shape);
                }
            }
        }
    }
}

#[test]
fn lifted() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for facts in index() {
        let name = facts["name"].as_str().unwrap();
        let model = read(name);
        let batch = Batch::follow(&model).unwrap();
        let lifted = gpumem_import::lift::lift(&model, &batch);
        println!("{name}: {} layers, {} unknown of {}", lifted.layers.len(), lifted.unknown.len(), model.nodes.len());
        for unknown in &lifted.unknown {
            *counts.entry(format!("{}: {}", unknown.op, unknown.reason)).or_default() += 1;
        }
    }
    println!("{counts:#?}");
}
