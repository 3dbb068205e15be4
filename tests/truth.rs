//! Networks against PyTorch: parameters, shapes, operations, kept bytes and peaks, and how tightly they are packed.
//!
//! The expected figures in `truth/models` were measured with PyTorch 2.15; its README says how. The tables `kept` and `peaks` of
//! `docs/lab/memory-results.md` are made here: `UPDATE_DOCS=1 cargo test --test truth` writes them anew.

mod networks;

use gpumem::__private::memory::budget::budget_at;
use gpumem::LayerInfo;
use gpumem::Line;
use gpumem::Tables;
use gpumem::{Network, Precision};
use networks::{AlexNet, Gpt2, Gpt2Dropout, LstmLm, Mlp, MobileNetV2, ResNet18, ResNet50, UNet, Vgg16};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

fn truth(file: &str) -> Value {
    let path = format!("{}/tests/truth/models/{file}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Calls a function with each network and the name of its file.
macro_rules! for_each_network {
    ($function:ident $(, $argument:expr)*) => {
        $function::<Mlp>("mlp_784_512_512_10" $(, $argument)*);
        $function::<AlexNet>("alexnet" $(, $argument)*);
        $function::<Vgg16>("vgg16" $(, $argument)*);
        $function::<ResNet18>("resnet18" $(, $argument)*);
        $function::<ResNet50>("resnet50" $(, $argument)*);
        $function::<MobileNetV2>("mobilenet_v2" $(, $argument)*);
        $function::<UNet>("unet" $(, $argument)*);
        $function::<Gpt2>("gpt2_small_sdpa_efficient" $(, $argument)*);
        $function::<Gpt2Dropout>("gpt2_small_sdpa_efficient_dropout0.1" $(, $argument)*);
    };
}

/// A language model of LSTMs, measured at batch 20 with the steps first, cell by cell: without a library that keeps what it likes.
const LSTM: &str = "lstm_lm_native_cells";

#[test]
fn the_lstm_is_pytorchs_and_keeps_less() {
    let truth = truth(LSTM);
    let figures = &truth["batches"]["20"];
    let layers = LstmLm::LAYERS;
    assert_eq!(Some(layers.iter().map(|layer| layer.parameters).sum()), truth["params_total"].as_u64());
    assert_eq!(Some(20 * layers.iter().map(|layer| 2 * layer.macs).sum::<u64>()), figures["forward_flops"].as_u64());
    let theirs = truth["params_by_tensor"].as_array().unwrap().iter();
    let theirs: Vec<&str> = theirs.filter_map(|pair| pair[0].as_str()?.strip_prefix("rnn.")).collect();
    let ours = gpumem::__private::program::Program::decode(LstmLm::PROGRAM.program).unwrap();
    let ours = ours.tensors.iter().filter_map(|tensor| tensor.name.strip_prefix("lstm."));
    assert_eq!(ours.filter(|name| !name.contains('.')).collect::<Vec<_>>(), theirs);
    let modules = figures["saved_for_backward_train"]["by_module"].as_array().unwrap();
    let theirs = modules.iter().find(|module| module["module"] == "rnn").unwrap()["new_bytes"].as_u64().unwrap();
    // What arrives, and of each layer four gates and the output, for 35 steps of 650 units and 20 samples.
    let kept = layers[1].kept_bytes(20, Precision::F32);
    assert_eq!(kept, (1 + 2 * 5) * 35 * 650 * 20 * 4);
    assert!(kept < theirs, "{kept} bytes, PyTorch {theirs}");
}

/// Our layers beside PyTorch's modules. Sums, joins, views and means are no modules there; attention is two modules and
/// code.
fn modules<N: Network>(truth: &Value) -> Vec<(&'static LayerInfo, Vec<&Value>)> {
    // PyTorch's network without dropout has dropout modules with probability 0.
    let drops = N::LAYERS.iter().any(|layer| layer.kind == "Dropout");
    let theirs = truth["layers_batch1"].as_array().unwrap().iter();
    let mut theirs = theirs.filter(|module| drops || module["type"] != "Dropout");
    let ours = N::LAYERS.iter().filter(|layer| !matches!(layer.kind, "Add" | "Concat" | "Flatten" | "GlobalAvgPool"));
    let pairs = ours
        .map(|layer| {
            let count = if layer.kind == "CausalSelfAttention" { 2 } else { 1 };
            (layer, theirs.by_ref().take(count).collect())
        })
        .collect();
    assert!(theirs.next().is_none(), "{} has fewer layers than PyTorch's", N::NAME);
    pairs
}

fn shapes_and_parameters<N: Network>(file: &str) {
    let truth = truth(file);
    let total: u64 = N::LAYERS.iter().map(|layer| layer.parameters).sum();
    assert_eq!(Some(total), truth["params_total"].as_u64(), "{file}: parameters");
    let flops: u64 = N::LAYERS.iter().map(|layer| 2 * layer.macs).sum();
    assert_eq!(Some(flops), truth["batches"]["1"]["forward_flops"].as_u64(), "{file}: operations");
    for (ours, theirs) in modules::<N>(&truth) {
        let last = theirs.last().unwrap();
        let shape: Vec<u64> = last["out"][0].as_array().unwrap().iter().map(|dim| dim.as_u64().unwrap()).collect();
        // Position embeddings have no batch in either.
        let shape = if ours.kind == "PositionEmbedding" { &shape[..] } else { &shape[1..] };
        assert_eq!(ours.output_shape, shape, "{file}: {} beside {}", ours.path, last["name"]);
        let parameters: u64 = theirs.iter().map(|module| module["params"].as_u64().unwrap()).sum();
        let tied = ours.kind == "Tied";
        assert_eq!(ours.parameters, if tied { 0 } else { parameters }, "{file}: {}", ours.path);
    }
}

#[test]
fn shapes_parameters_and_operations_are_pytorchs() {
    for_each_network!(shapes_and_parameters);
}

/// Kept bytes of each module beside PyTorch's, at batch 1: none may be larger.
fn kept<N: Network>(file: &str, table: &mut BTreeMap<(String, String), (u64, i64)>) {
    let truth = truth(file);
    let saved = truth["batches"]["1"]["saved_for_backward_train"]["by_module"].as_array().unwrap();
    let mut theirs: BTreeMap<&str, u64> = BTreeMap::new();
    for module in saved {
        *theirs.entry(module["module"].as_str().unwrap()).or_default() += module["new_bytes"].as_u64().unwrap();
    }
    let mut ours: BTreeMap<String, (u64, u64, &str)> = BTreeMap::new();
    for (layer, modules) in modules::<N>(&truth) {
        let mut names: Vec<&str> = modules.iter().map(|module| module["name"].as_str().unwrap()).collect();
        if layer.kind == "CausalSelfAttention" {
            names.push(names[0].strip_suffix(".c_attn").unwrap());
        }
        let expected = names.iter().map(|name| theirs.get(name).copied().unwrap_or(0)).sum();
        // A module that is called twice has one entry there and two layers here.
        let entry = ours.entry(names.join(" + ")).or_insert((0, expected, layer.kind));
        entry.0 += layer.kept_bytes(1, Precision::F32);
    }
    for (name, (found, expected, kind)) in ours {
        assert!(found <= expected, "{file}: {name} keeps {found} bytes, PyTorch {expected}");
        if found != expected {
            let entry = table.entry((kind.into(), N::NAME.into())).or_default();
            entry.0 += 1;
            entry.1 += expected as i64 - found as i64;
        }
    }
}

#[test]
fn no_layer_keeps_more_than_pytorchs() {
    let mut table = BTreeMap::new();
    for_each_network!(kept, &mut table);
    let mut text = String::from(
        "| layer | network | layers that differ | bytes that PyTorch keeps beyond ours |\n| --- | --- | ---: | ---: |\n",
    );
    for ((kind, network), (count, bytes)) in table {
        writeln!(text, "| {kind} | {network} | {count} | {bytes} |").unwrap();
    }
    check_doc("kept", &text);
}

fn peaks<N: Network>(file: &str, text: &mut String) {
    let truth = truth(file);
    let tables = N::PROGRAM.tables;
    for (batch, figures) in truth["batches"].as_object().unwrap() {
        for (name, moments) in [("sgd", 0), ("sgd_momentum", 1), ("adam", 2)] {
            let runs = figures["training_step"].as_array().unwrap().iter();
            let runs = runs.filter(|run| run["optimizer"] == name && run["zero_grad"] == "set_to_none");
            let theirs = runs.map(|run| run["peak_bytes"].as_u64().unwrap()).min().unwrap();
            let tables = Tables { moments, ..*tables };
            let budget = budget_at(&tables, batch.parse().unwrap(), Precision::F32).unwrap();
            // PyTorch's figure has one copy of the batch.
            let ours = budget[Line::Arena] - budget[Line::BatchIo] / 2;
            let arena = budget[Line::Arena];
            assert!(arena <= theirs, "{file}, batch {batch}, {name}: {arena} bytes, PyTorch {theirs}");
            let ratio = ours as f64 / theirs as f64;
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            writeln!(text, "| {} | {batch} | {name} | {:.1} | {:.1} | {ratio:.2} |", N::NAME, mib(ours), mib(theirs))
                .unwrap();
        }
    }
}

#[test]
fn no_step_needs_more_than_pytorchs() {
    let mut text = String::from(
        "| network | batch | optimizer | ours, MiB | PyTorch, MiB | ratio |\n| --- | ---: | --- | ---: | ---: | ---: |\n",
    );
    for_each_network!(peaks, &mut text);
    peaks::<LstmLm>(LSTM, &mut text);
    check_doc("peaks", &text);
}

fn packed<N: Network>(_: &str) {
    for (kind, tables) in [("train", N::PROGRAM.tables), ("infer", N::INFERENCE.tables)] {
        let tables = &tables.with_workspaces(gpumem::__private::memory::tables::Workspaces {
            product: 32 << 20,
            convolution: 256 << 20,
        });
        for batch in [192, 1, 2, 7, 16, 32, 48, 64, 96, 128, 200] {
            let budget = budget_at(tables, batch, Precision::F32).unwrap();
            assert_eq!(budget[Line::Arena], budget.lower_bound, "{} {kind} at batch {batch}", N::NAME);
        }
    }
}

#[test]
fn every_network_is_packed_to_its_bound() {
    for_each_network!(packed);
}

/// Compares the part of `docs/lab/memory-results.md` between two markers with `text`.
fn check_doc(marker: &str, text: &str) {
    let path = format!("{}/docs/lab/memory-results.md", env!("CARGO_MANIFEST_DIR"));
    let doc = std::fs::read_to_string(&path).unwrap();
    let (start, end) = (format!("<!-- {marker} -->\n"), format!("<!-- end of {marker} -->"));
    let from = doc.find(&start).unwrap() + start.len();
    let to = doc.find(&end).unwrap();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{}{text}{}", &doc[..from], &doc[to..])).unwrap();
        return;
    }
    assert_eq!(&doc[from..to], text, "run `UPDATE_DOCS=1 cargo test --test truth -- --test-threads 1`");
}
