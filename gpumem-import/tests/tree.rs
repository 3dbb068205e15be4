//! Prints networks as source.

use gpumem_import::Pt2;
use gpumem_import::batch::Batch;
use gpumem_import::lift::lift;
use gpumem_import::tree::{Network, Options};
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
                std::fs::write(out.join(format!("{name}.rs")), text).unwrap();
            }
            Err(refusal) => println!("{name}: {refusal}"),
        }
        if let Ok(network) = Network::flat(&model, &batch, &lifted, &options(&name)) {
            std::fs::write(out.join(format!("{name}.flat")), network.to_string()).unwrap();
        }
    }
}
