//! Models of PyTorch that are written as networks with their weights, and checked.

use super::{FIXTURE, alone, failure, gpumem, text};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::path::PathBuf;

const MODELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../gpumem-import/tests");

/// Returns a model with weights and recorded samples.
fn with_weights(name: &str) -> String {
    format!("{MODELS}/weights/{name}")
}

/// Returns a path for an output, where nothing is.
fn new(name: &str) -> (PathBuf, String) {
    let path = FIXTURE.join(name);
    let _ = std::fs::remove_file(&path);
    let text = path.to_str().unwrap().to_string();
    (path, text)
}

/// Runs `import --check`, and returns what it says with its exit code. The source is on standard output.
fn check(arguments: &[&str]) -> (String, i32) {
    let output = gpumem(&[&["import", "--check"], arguments].concat());
    (text(&output.stderr), output.status.code().unwrap())
}

/// A change of a tensor: its name, its shape, its bytes and their type. False to leave it out.
type Change<'c> = dyn Fn(&str, &mut Vec<usize>, &mut Vec<u8>, &mut Dtype) -> bool + 'c;

/// Writes samples again, with `change` applied to each of their tensors.
fn changed(from: &str, to: &str, change: &Change<'_>) -> String {
    let bytes = std::fs::read(with_weights(from)).unwrap();
    let mut all: Vec<(String, Vec<usize>, Vec<u8>, Dtype)> = Vec::new();
    for (name, tensor) in SafeTensors::deserialize(&bytes).unwrap().tensors() {
        let (mut shape, mut data, mut dtype) = (tensor.shape().to_vec(), tensor.data().to_vec(), tensor.dtype());
        if change(&name, &mut shape, &mut data, &mut dtype) {
            all.push((name, shape, data, dtype));
        }
    }
    let views = all
        .iter()
        .map(|(name, shape, data, dtype)| (name.clone(), TensorView::new(*dtype, shape.clone(), data).unwrap()));
    let (path, text) = new(to);
    safetensors::serialize_to_file(views, None, &path).unwrap();
    text
}

/// Evaluation, transposed matrices and gates in another order: all as PyTorch computes them, from each format.
#[test]
fn outputs_are_those_that_were_recorded() {
    let _alone = alone();
    for (name, forms, outputs) in [
        ("vision", ["pt2", "onnx", "external.onnx", "eval.onnx"], "2 outputs with 27 numbers of 3 samples"),
        ("tagger", ["pt2", "onnx", "external.onnx", "eval.onnx"], "1 output with 168 numbers of 3 samples"),
    ] {
        let samples = with_weights(&format!("{name}.samples.safetensors"));
        for form in forms {
            let model = with_weights(&format!("{name}.{form}"));
            let (told, code) = check(&[&model, "--samples", &samples, "--inference", "--cards", "t4", "--batch", "8"]);
            assert_eq!(code, 0, "{name}.{form}: {told}");
            assert!(told.contains(outputs) && told.contains("1e-4 is allowed"), "{name}.{form}: {told}");
            assert!(told.contains("T4") && told.contains("fits"), "{name}.{form}: {told}");
        }
    }
    // The samples beside the model are those that `scripts/export.py` writes.
    let (told, code) = check(&[&with_weights("vision.pt2")]);
    assert_eq!(code, 0, "{told}");
    assert!(told.contains("`--cards` compares it with cards"), "{told}");
}

#[test]
fn other_outputs_and_cards_that_do_not_fit_fail() {
    let _alone = alone();
    let (path, source) = new("checked.rs");
    let samples = changed("vision.samples.safetensors", "other.samples.safetensors", &|name, _, data, _| {
        if name == "output.1" {
            let last = data.len() - 4;
            let number = f32::from_le_bytes(data[last..].try_into().unwrap());
            data[last..].copy_from_slice(&(number + 0.01).to_le_bytes());
        }
        true
    });
    let (told, code) = check(&[&with_weights("vision.pt2"), "--samples", &samples, "-o", &source]);
    assert_eq!(code, 1, "{told}");
    assert!(told.contains("more than 1e-4, so it is another network") && told.contains("in output 1 at 8: "), "{told}");
    // The source is there to be looked at.
    assert!(path.exists());
    let gpt2 = format!("{MODELS}/models/gpt2.pt2");
    let (told, code) = check(&[&gpt2, "--cards", "gtx1050ti", "--batch", "256"]);
    assert_eq!(code, 1, "{told}");
    assert!(told.contains("over by") && told.contains("outputs were not compared: there is no "), "{told}");
}

#[test]
fn a_model_without_samples_is_not_compared() {
    let _alone = alone();
    let (path, source) = new("unchecked.rs");
    let (told, code) = check(&[&with_weights("vision.external.onnx"), "-o", &source]);
    assert_eq!(code, 2, "{told}");
    assert!(
        told.contains("vision.external.samples.safetensors; `scripts/export.py` writes it, or, in Python:"),
        "{told}"
    );
    let line = r#"save_file({"input.0": x, "output.0": y.detach()}, "vision.external.samples.safetensors")"#;
    assert!(told.contains(line), "{told}");
    assert!(path.exists());
    let (told, code) = check(&[&with_weights("in_parts.pt2"), "--partial"]);
    assert_eq!(code, 2, "{told}");
    assert!(told.contains("outputs were not compared: the network is written in parts"), "{told}");
    let message = failure(&["import", &with_weights("small.pt2"), "--samples", "some.safetensors"]);
    assert!(message.contains("--check"), "{message}");
}

/// Samples of another model, or of no model, are refused, and nothing is written.
#[test]
fn samples_are_looked_at() {
    let _alone = alone();
    let (path, source) = new("refused.rs");
    let refused = |model: &str, samples: &str, part: &str| {
        let model = with_weights(model);
        let message = failure(&["import", "--check", &model, "--samples", samples, "-o", &source]);
        assert!(message.contains(part), "{part}: {message}");
        assert!(!path.exists(), "{message}");
    };
    let of = |name: &str| with_weights(&format!("{name}.samples.safetensors"));
    refused("vision.pt2", "missing.safetensors", "missing.safetensors: cannot be opened");
    refused("vision.pt2", &with_weights("vision.pt2"), "is damaged, or no safetensors file");
    refused("vision.pt2", &of("tagger"), "it has 1 tensors `output.N`, and the model 2 outputs");
    let some = |change: &Change<'_>| changed("tagger.samples.safetensors", "some.samples.safetensors", change);
    let shorter = some(&|name, shape, data, _| {
        if name == "output.0" {
            shape[1] -= 1;
            data.truncate(3 * 7 * 7 * 4);
        }
        true
    });
    refused("tagger.pt2", &shorter, "`output.0` has the shape [3, 7, 7], and the model's [3, 8, 7]");
    let none = some(&|name, _, _, _| name != "input.0");
    refused("tagger.pt2", &none, "it has 0 tensors `input.N`, and the model 1 inputs; `scripts/export.py` records");
    let floats = some(&|name, _, data, dtype| {
        if name == "input.0" {
            *dtype = Dtype::F64;
            data.fill(0);
        }
        true
    });
    refused("tagger.pt2", &floats, "`input.0` has floating-point numbers, and the model reads indices");
    for (number, part) in [(-1i64, "has -1, and indices are from 0"), (11, "11")] {
        let token = some(&|name, _, data, _| {
            if name == "input.0" {
                data[..8].copy_from_slice(&number.to_le_bytes());
            }
            true
        });
        refused("tagger.pt2", &token, part);
    }
}

/// All places are looked at before anything is read or written.
#[test]
fn outputs_are_written_all_or_none() {
    let _alone = alone();
    let (old, source) = new("old.rs");
    let (weights, to) = new("none.safetensors");
    std::fs::write(&old, "mine").unwrap();
    let model = with_weights("vision.pt2");
    let message = failure(&["import", &model, "--weights", &to, "-o", &source]);
    assert!(message.contains("old.rs exists; `--force` replaces it") && !weights.exists(), "{message}");
    let message = failure(&["import", &model, "--weights", &to, "-o", "nowhere/new.rs"]);
    assert!(message.contains("there is no folder nowhere; create it") && !weights.exists(), "{message}");
    let message = failure(&["import", &model, "--weights", &to, "-o", &to]);
    assert!(message.contains("is named for two outputs"), "{message}");
    let message = failure(&["import", &model, "-o", &model, "--force"]);
    assert!(message.contains("is read by this command"), "{message}");
    // A model whose weights are missing leaves the source that was there.
    let stripped = format!("{MODELS}/models/alexnet.pt2");
    let message = failure(&["import", &stripped, "--weights", &to, "-o", &source, "--force"]);
    assert!(message.contains("has no weights") && !weights.exists(), "{message}");
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "mine");
    let output = gpumem(&["import", &model, "--weights", &to, "-o", &source, "--force"]);
    let told = text(&output.stderr);
    assert!(output.status.success() && told.contains("wrote 9 tensors to ") && told.contains(" lines to "), "{told}");
    assert!(weights.exists() && std::fs::read_to_string(&old).unwrap().contains("pub struct Vision;"));
}

/// The file that a network loads is the same, whichever export the model had.
#[test]
fn weights_of_onnx_are_written() {
    let _alone = alone();
    let written = |model: &str| {
        let (path, to) = new("written.safetensors");
        let output = gpumem(&["import", &with_weights(model), "--weights", &to]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let bytes = std::fs::read(path).unwrap();
        let mut all: Vec<(String, Vec<usize>, Vec<u8>)> = SafeTensors::deserialize(&bytes)
            .unwrap()
            .tensors()
            .into_iter()
            .map(|(name, tensor)| (name, tensor.shape().to_vec(), tensor.data().to_vec()))
            .collect();
        all.sort();
        all
    };
    for name in ["vision", "tagger"] {
        let expected = written(&format!("{name}.pt2"));
        assert!(expected.len() >= 8);
        for form in ["onnx", "external.onnx"] {
            assert_eq!(written(&format!("{name}.{form}")), expected, "{name}.{form}");
        }
    }
}
