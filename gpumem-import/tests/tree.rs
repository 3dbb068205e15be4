//! Prints networks as source.

use gpumem_import::Pt2;
use gpumem_import::batch::Batch;
use gpumem_import::lift::lift;
use gpumem_import::model::{Model, State, StateKind};
use gpumem_import::tree::{Network, Options};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models")
}

fn options(name: &str) -> Options {
    Options {
        name: format!("{name}.pt2"),
        batch: 32,
        optimizer: "Sgd { lr: 0.1, momentum: 0.9 }".into(),
        loss: None,
        fields: Vec::new(),
    }
}

/// Returns a shape without axes of one element: the language leaves out those of a sample.
fn plain(shape: &[u64]) -> Vec<u64> {
    shape.iter().copied().filter(|&size| size != 1).collect()
}

/// Resolves a printed text, and returns what differs from the model.
fn faults(text: &str, model: &Model, batch: &Batch) -> Vec<String> {
    let resolved = match gpumem_language::source::resolve(text) {
        Ok(resolved) => resolved,
        Err(mistakes) => {
            let lines: Vec<&str> = text.lines().collect();
            let line = |line: usize| lines.get(line - 1).map_or("", |line| line.trim());
            return mistakes.iter().map(|mistake| format!("{mistake} | {}", line(mistake.line))).collect();
        }
    };
    let mut faults = Vec::new();
    let graph = &resolved.graph;
    let key = |name: &str| name.replace(']', "").replace('[', ".").trim_start_matches('.').to_string();
    let own = graph.parameters.iter().map(|parameter| (key(&parameter.name), plain(parameter.shape.dims())));
    let own: BTreeMap<String, Vec<u64>> = own.collect();
    let is_parameter = |state: &&State| matches!(state.kind, StateKind::Parameter { .. }) && state.tied_to.is_none();
    let theirs = model.state.iter().filter(is_parameter);
    let theirs: BTreeMap<String, Vec<u64>> =
        theirs.map(|state| (state.key.clone(), plain(&model.values[state.value].shape))).collect();
    for (key, shape) in &own {
        match theirs.get(key) {
            None => faults.push(format!("`{key}` {shape:?} is not in the state dict")),
            Some(other) if other != shape => faults.push(format!("`{key}` is {shape:?}, and {other:?} in the state dict")),
            Some(_) => {}
        }
    }
    faults.extend(theirs.iter().filter(|(key, _)| !own.contains_key(*key)).map(|(key, shape)| format!("`{key}` {shape:?} is missing")));
    let outputs: Vec<Vec<u64>> = resolved.outputs.iter().map(|&output| graph.value(output).shape.dims().to_vec()).collect();
    let expected: Vec<Vec<u64>> = model.outputs.iter().map(|&output| batch.sample(output, model)).collect();
    if outputs != expected {
        faults.push(format!("outputs are {outputs:?}, and {expected:?} in the file"));
    }
    faults
}

#[test]
fn scratch() {
    let Ok(folder) = std::env::var("TREE_IN") else { return };
    let out = PathBuf::from(std::env::var("TREE_OUT").unwrap());
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files.into_iter().filter(|file| file.extension().is_some_and(|end| end == "pt2")) {
        let name = file.file_stem().unwrap().to_str().unwrap().to_string();
        let model = Pt2::open(&file).unwrap().model(None, &[]).unwrap();
        let batch = Batch::follow(&model).unwrap();
        let lifted = lift(&model, &batch);
        let start = std::time::Instant::now();
        match Network::new(&model, &batch, &lifted, &options(&name)) {
            Ok(network) => {
                let text = network.to_string();
                let note = if lifted.unknown.is_empty() { "" } else { "(partly)" };
                println!("{name}: {} lines, {:?} {note}", text.lines().count(), start.elapsed());
                std::fs::write(out.join(format!("{name}.rs")), &text).unwrap();
                if lifted.unknown.is_empty() {
                    for fault in faults(&text, &model, &batch) {
                        println!("  mismatch {name}: {fault}");
                    }
                }
            }
            Err(refusal) => println!("{name}: {refusal}"),
        }
        if let Ok(network) = Network::flat(&model, &batch, &lifted, &options(&name)) {
            let text = network.to_string();
            std::fs::write(out.join(format!("{name}.flat")), &text).unwrap();
            if lifted.unknown.is_empty() {
                for fault in faults(&text, &model, &batch) {
                    println!("  mismatch {name} flat: {fault}");
                }
            }
        }
    }
}
