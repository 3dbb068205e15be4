//! Models of PyTorch in files: what they need, and the networks that they are.

use super::{FIXTURE, alone, failure, gpumem, printed, text};
use serde_json::Value;

const MODELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../gpumem-import/tests/models");

fn model(name: &str) -> String {
    format!("{MODELS}/{name}.pt2")
}

fn json(arguments: &[&str]) -> (Value, i32) {
    let output = gpumem(&[&["fit", "--format", "json"], arguments].concat());
    let code = output.status.code().unwrap();
    let value = serde_json::from_str(&text(&output.stdout));
    (value.unwrap_or_else(|_| panic!("{}", text(&output.stderr))), code)
}

#[test]
fn a_model_has_answers_beside_pytorch() {
    let _alone = alone();
    let file = model("timm_mobilenetv4_conv_small");
    let (answer, code) = json(&[&file, "--cards", "t4,1GiB", "--batch", "64", "--optimizer", "adamw"]);
    assert_eq!(code, 1);
    let [t4, small] = answer["fits"].as_array().unwrap().as_slice() else { panic!("{answer}") };
    assert!(t4["fits"] == true && small["fits"] == false && t4["batch"] == 64, "{answer}");
    let [of_file] = answer["files"].as_array().unwrap().as_slice() else { panic!("{answer}") };
    // As PyTorch counts them: `sum(p.numel() for p in model.parameters())`, and `FlopCounterMode` for one sample.
    assert_eq!(of_file["parameters"], 3_774_024);
    assert_eq!(of_file["expressible"], true);
    assert_eq!(of_file["not_expressible"], Value::Array(Vec::new()));
    for key in ["name", "parameters", "flops_forward", "expressible", "not_expressible", "pytorch"] {
        assert_eq!(t4[key], of_file[key], "{key}");
    }
    let pytorch = |key: &str| of_file["pytorch"][key].as_u64().unwrap();
    // Parameters, gradients and two moments of f32.
    assert!(pytorch("states") > 3 * 4 * 3_774_024, "{of_file}");
    assert!(
        pytorch("reserved") >= pytorch("reserved_expandable") && pytorch("reserved_expandable") >= pytorch("allocated")
    );
    let categories = of_file["pytorch"]["categories"].as_object().unwrap();
    assert_eq!(categories.values().map(|bytes| bytes.as_u64().unwrap()).sum::<u64>(), pytorch("allocated"));
}

/// The peaks that PyTorch 2.15 has on tensors without data, counted by its tracker. `index.json` has them.
#[test]
fn the_rules_of_the_tracker_are_those_of_pytorch() {
    let _alone = alone();
    let index = std::fs::read_to_string(format!("{MODELS}/index.json")).unwrap();
    let index: Value = serde_json::from_str(&index).unwrap();
    for name in ["alexnet", "gpt2"] {
        let of = |optimizer: &str| {
            let options = ["--cards", "h200", "--batch", "32", "--pytorch-rules", "tracker", "--optimizer", optimizer];
            json(&[&[&*model(name)], &options[..]].concat()).0["files"][0]["pytorch"]["allocated"].as_f64().unwrap()
        };
        let facts = index.as_array().unwrap().iter().find(|it| it["name"] == name).unwrap();
        let peaks = &facts["training_step_batch32"]["optimizers"];
        for (optimizer, key) in [("Sgd { lr: 0.1, momentum: 0.9 }", "sgd_momentum"), ("adamw", "adamw")] {
            let expected = peaks[key]["peak_bytes"].as_f64().unwrap();
            let found = of(optimizer);
            assert!((found / expected - 1.0).abs() < 1e-4, "{name}, {key}: {found} beside {expected}");
        }
    }
}

/// The source that is written has the figures of the file, to the byte, at every batch and on every card.
#[test]
fn a_model_that_is_written_has_the_same_answers() {
    let _alone = alone();
    for (name, options) in [
        ("gpt2", &["--batch", "8", "--cards", "rtx3060,h200"][..]),
        ("timm_ghostnet_100", &["--batch", "largest", "--cards", "t4", "--precision", "mixed-bf16"]),
        ("lstm_lm", &["--batch", "16", "--cards", "8GiB", "--optimizer", "sgd", "--checkpoint", "auto"]),
    ] {
        let source = FIXTURE.join("imported.rs");
        let source = source.to_str().unwrap();
        printed(&["import", &model(name), "-o", source, "--force"]);
        let of = |file: &str| {
            let (answer, _) = json(&[&[file], options].concat());
            let mut fits = answer["fits"].as_array().unwrap().clone();
            for fit in &mut fits {
                let keys = ["total", "reserve", "card", "batch", "precision", "left", "over", "max_batch", "program"];
                fit.as_object_mut().unwrap().retain(|key, _| keys.contains(&key.as_str()));
            }
            assert!(!fits.is_empty(), "{answer}");
            fits
        };
        assert_eq!(of(&model(name)), of(source), "{name}");
    }
}

#[test]
fn tables_are_for_people() {
    let _alone = alone();
    let (table, code) = printed(&["fit", &model("alexnet"), "--cards", "rtx3060", "--batch", "128"]);
    assert_eq!(code, 0, "{table}");
    for part in [
        "Alexnet (torch.export 8.20, PyTorch 2.15.0",
        "61 100 840 parameters, 1.4 GFLOPs forward; batch 128, AdamW, F32",
        "PyTorch's peak is at ",
        "  with expandable segments",
        "PyTorch on",
        "largest batch",
    ] {
        assert!(table.contains(part), "{part}\n{table}");
    }
    // All cards are listed if none is named.
    let (all, _) = printed(&["fit", &model("vae_784")]);
    assert!(all.contains("H200") && all.contains("GTX 1650"), "{all}");
}

/// Where the network is not the model, the command says so.
#[test]
fn differences_from_the_model_are_told() {
    let _alone = alone();
    let (table, _) = printed(&["fit", &model("vae_784"), "--cards", "t4"]);
    let line = "  randn_like, once, first in randn_like: the network takes the numbers as a further input";
    assert!(table.contains("the network differs from the model:") && table.contains(line), "{table}");
    let (answer, _) = json(&[&model("mixtral_narrow"), "--cards", "t4"]);
    let differences = answer["files"][0]["differences"].as_array().unwrap();
    assert!(!differences.is_empty(), "{answer}");
}

#[test]
fn a_source_is_written_once_unless_it_is_forced() {
    let _alone = alone();
    let (source, _) = printed(&["import", &model("alexnet"), "--optimizer", "sgd", "--cards", "t4", "--name", "mine"]);
    assert!(
        source.contains("pub struct Mine;") && source.contains("cards: [T4]") && source.contains("Sgd"),
        "{source}"
    );
    let path = FIXTURE.join("once.rs");
    let _ = std::fs::remove_file(&path);
    let path = path.to_str().unwrap();
    printed(&["import", &model("alexnet"), "-o", path]);
    let written = std::fs::read_to_string(path).unwrap();
    let message = failure(&["import", &model("gpt2"), "-o", path]);
    assert!(message.contains("once.rs exists; `--force` replaces it"), "{message}");
    assert_eq!(std::fs::read_to_string(path).unwrap(), written);
    printed(&["import", &model("gpt2"), "-o", path, "--force"]);
    assert_ne!(std::fs::read_to_string(path).unwrap(), written);
}

#[test]
fn files_that_are_no_models_say_so() {
    let _alone = alone();
    let path = FIXTURE.join("none.pt2");
    for bytes in [&b"PK\x03\x04"[..], b"", b"import torch"] {
        std::fs::write(&path, bytes).unwrap();
        let message = failure(&["fit", path.to_str().unwrap()]);
        assert!(message.contains("none.pt2: is damaged, or no archive of `torch.export.save`"), "{message}");
    }
    std::fs::remove_file(&path).unwrap();
    assert!(failure(&["fit", "missing.pt2"]).contains("missing.pt2: cannot be read"));
    let folder = FIXTURE.to_str().unwrap();
    assert!(failure(&["fit", folder]).contains(&format!("{folder} is a folder; name files in it")));
    // The stripped copies have no weights.
    let weights = FIXTURE.join("weights.safetensors");
    let message = failure(&["import", &model("alexnet"), "--weights", weights.to_str().unwrap()]);
    assert!(message.contains("has no weights") && !weights.exists(), "{message}");
    let message = failure(&["import", &model("alexnet"), "--cards", "8GiB"]);
    assert!(message.contains("a source names cards of the table"), "{message}");
    assert!(failure(&["fit", &model("alexnet"), "--checkpoint", "some"]).contains("write None, Norms, Cheap, Auto"));
}

#[test]
fn models_of_one_name_are_told_apart_by_their_files() {
    let _alone = alone();
    let again = FIXTURE.join("again.pt2");
    std::fs::copy(model("alexnet"), &again).unwrap();
    let again = again.to_str().unwrap();
    let source = FIXTURE.join("again.rs");
    printed(&["import", again, "-o", source.to_str().unwrap(), "--force"]);
    let (answer, _) = printed(&["fit", again, source.to_str().unwrap(), "--cards", "t4"]);
    // A model has no line.
    for label in [format!("Again ({again})"), format!("Again ({}:", source.display())] {
        assert!(answer.contains(&label), "{answer}");
    }
    std::fs::remove_file(again).unwrap();
    std::fs::remove_file(source).unwrap();
}

/// Writes a copy of a model in which an operation has a name that nobody knows.
fn with_unknown(name: &str, op: &str, file: &str) -> String {
    let mut from = zip::ZipArchive::new(std::fs::File::open(model(name)).unwrap()).unwrap();
    let path = FIXTURE.join(file);
    let mut to = zip::ZipWriter::new(std::fs::File::create(&path).unwrap());
    let mut changed = false;
    for index in 0..from.len() {
        let mut record = from.by_index(index).unwrap();
        let name = record.name().unwrap().to_string();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut record, &mut bytes).unwrap();
        if name.ends_with("models/model.json") {
            let before = text(&bytes);
            let after = before.replace(&format!("torch.ops.aten.{op}."), "torch.ops.aten.strange.");
            changed = before != after;
            bytes = after.into_bytes();
        }
        to.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        std::io::Write::write_all(&mut to, &bytes).unwrap();
    }
    to.finish().unwrap();
    assert!(changed, "{name} has no {op}");
    path.to_str().unwrap().to_string()
}

/// A model that cannot be said whole is an entry without an answer in every format, with a lower bound of its memory.
#[test]
fn a_model_that_cannot_be_said_is_an_entry() {
    let _alone = alone();
    let file = with_unknown("alexnet", "dropout", "strange.pt2");
    let ask = |format: &str| {
        let output = gpumem(&["fit", &file, "--cards", "t4,1GiB", "--format", format]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let table = ask("table");
    for part in
        ["cannot say 2 of ", "  strange, 2 times, first in ", "the arena of gpumem is at least ", "maybe", "  no\n"]
    {
        assert!(table.contains(part), "{part}\n{table}");
    }
    let answer: Value = serde_json::from_str(&ask("json")).unwrap();
    let of_file = &answer["files"][0];
    assert!(of_file["expressible"] == false && of_file["not_expressible"][0]["operation"] == "strange", "{answer}");
    let arena = of_file["at_least"]["arena"].as_u64().unwrap();
    // Parameters, and two moments of f32.
    assert!(arena > 3 * 4 * 61_100_840, "{answer}");
    let cards = of_file["at_least"]["cards"].as_array().unwrap();
    assert!(cards[0]["fits"].is_null() && cards[1]["fits"] == false && cards[0]["card"] == "t4", "{answer}");
    assert!(answer["left_out"][0]["why"].as_str().unwrap().contains("strange (2 times, first in "), "{answer}");
    let github = ask("github");
    let begins = github.starts_with("::warning file=") && github.contains("line=1,title=strange.pt2 is left out::");
    assert!(begins && github.contains("cannot say 2 of ") && github.contains("strange (2 times"), "{github}");
    let junit = ask("junit");
    assert!(junit.contains("skipped=\"1\"") && junit.contains("<skipped message=\"the language of gpumem"), "{junit}");
    std::fs::remove_file(&file).unwrap();
}
