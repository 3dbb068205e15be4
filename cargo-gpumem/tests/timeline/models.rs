//! Models of PyTorch: the curve of PyTorch's allocator beside that of the arena.

use super::{json, number, printed, text};
use serde_json::Value;
use std::process::Command;

fn model(name: &str) -> String {
    format!("{}/../gpumem-import/tests/models/{name}.pt2", env!("CARGO_MANIFEST_DIR"))
}

/// The largest points of both curves are what `fit` says of the same step.
#[test]
fn the_curves_of_pytorch_are_those_of_its_report() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["gpt2", "alexnet"] {
        let plan = json(folder.path(), &[&model(name), "--batch", "8", "--card", "rtx3060"]);
        let fit = Command::new(env!("CARGO_BIN_EXE_cargo-gpumem"))
            .args(["gpumem", "fit", &model(name), "--batch", "8", "--cards", "rtx3060", "--format", "json"])
            .output()
            .unwrap();
        let fit: Value = serde_json::from_slice(&fit.stdout).unwrap();
        let largest = |curve: &str| {
            let points = plan["reference"][curve].as_array().unwrap();
            points.iter().map(|point| number(&point[1])).max().unwrap()
        };
        let expected = &fit["files"][0]["pytorch"];
        assert_eq!(
            (largest("live"), largest("reserved")),
            (number(&expected["allocated"]), number(&expected["reserved"])),
            "{name}"
        );
        let end = 100 * plan["operations"]["verb"].as_array().unwrap().len() as u64;
        let points = plan["reference"]["live"].as_array().unwrap();
        assert!(points.len() > 20 && points.iter().all(|point| number(&point[0]) <= end), "{name}");
        assert!(points.windows(2).all(|pair| number(&pair[0][0]) <= number(&pair[1][0])), "{name}");
        // The lines of the network that was written on the way are in no file.
        assert!(plan["sources"]["files"].as_array().unwrap().is_empty(), "{name}");
    }
}

#[test]
fn a_precision_that_pytorch_lacks_has_no_curve() {
    let folder = tempfile::tempdir().unwrap();
    let plan = json(folder.path(), &[&model("alexnet"), "--batch", "2", "--precision", "bf16"]);
    assert!(plan["reference"].is_null());
    let page = text(&printed(folder.path(), &[&model("alexnet"), "--batch", "2", "-o", "-", "--format", "html"]));
    assert!(page.contains("\"reference\":{\"name\":\"PyTorch\""));
}
