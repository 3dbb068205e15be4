//! Writes networks as ONNX files, reads them again, and runs them with onnxruntime.
//!
//! The networks are those of `onnx_export/cases.txt`. `GPUMEM_PYTHON` is a Python with onnxruntime; with `GPUMEM_REQUIRE_ONNXRUNTIME` the
//! comparison fails if that is missing, as it does in CI.

mod common;

use common::Network;
use common::run::Running;
use gpumem_core::graph::{Elements, Source};
use gpumem_core::layers::Entry;
use gpumem_core::network::torch_name;
use gpumem_core::program::functions::Function;
use gpumem_core::program::{Class, Op};
use gpumem_import::batch::Batch;
use gpumem_import::lift::lift;
use gpumem_import::model::StateKind;
use gpumem_import::write::{Safetensors, onnx};
use gpumem_import::{Error, Onnx};
use gpumem_language::source::{Resolved, resolve};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Operations that come about when a network is lowered, so that no graph of a network has them.
const LOWERED: [&str; 8] = [
    "CachedAttention",
    "CachedConvolution",
    "CachedRecurrence",
    "CachedScan",
    "NormalizedConvolution",
    "Positions",
    "Rectifier",
    "WholeRecurrence",
];

/// A network of the list.
struct Case {
    name: String,
    /// True if the reader gives the same layers again.
    returns: bool,
    /// A part of the message that refuses the network.
    refused: Option<String>,
    network: Resolved,
}

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/onnx_export")
}

/// Returns the networks of the list.
fn cases() -> Vec<Case> {
    let text = std::fs::read_to_string(tests().join("cases.txt")).unwrap();
    let mut blocks: Vec<String> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix(' ') {
            Some(more) => blocks.last_mut().unwrap().push_str(more),
            None => blocks.push(line.into()),
        }
    }
    let case = |block: &String| {
        let (name, body) = block.split_once(": ").unwrap();
        let (name, refused) = name.split_once('!').map_or((name, None), |(name, part)| (name, Some(part.to_string())));
        let returns = !name.ends_with('~');
        let text = format!("network! {{ pub struct Net; {body} }}");
        let network = resolve(&text).unwrap_or_else(|mistakes| panic!("{name}: {mistakes:?}\n{text}"));
        Case { name: name.trim_end_matches('~').into(), returns, refused, network }
    };
    blocks.iter().map(case).collect()
}

/// Returns the networks that are written.
fn written_cases() -> impl Iterator<Item = Case> {
    cases().into_iter().filter(|case| case.refused.is_none())
}

/// Returns numbers that depend on the key, near those of a trained network.
fn numbers(key: &str, shape: &[u64]) -> Vec<f32> {
    let count: u64 = shape.iter().product();
    let mut state = key.bytes().fold(0x9e37_79b9u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let number = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let share = f64::from(state >> 8) / f64::from(1u32 << 24);
        // Variances are above zero, and factors of normalisations near one.
        let number = if key.ends_with("running_var") || shape.len() == 1 { 0.5 + share } else { share - 0.5 };
        number as f32
    };
    (0..count).map(number).collect()
}

fn elements(key: &str, shape: &[u64]) -> Vec<u8> {
    numbers(key, shape).into_iter().flat_map(f32::to_le_bytes).collect()
}

fn write(case: &Case, folder: &Path) -> Result<PathBuf, Error> {
    let path = folder.join(format!("{}.onnx", case.name));
    let Resolved { graph, outputs, .. } = &case.network;
    onnx::write(graph, outputs, &case.name, &mut |key, shape| Ok(elements(key, shape)), &path)?;
    Ok(path)
}

/// Every layer, operation and function that a network can have is in the list.
#[test]
fn every_layer_has_a_case() {
    let (mut layers, mut operations, mut functions) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for case in cases() {
        let graph = &case.network.graph;
        layers.extend(graph.rows.iter().map(|row| row.kind.clone()));
        for node in &graph.nodes {
            let Source::Op { op, .. } = &node.source else { continue };
            operations.insert(op.name());
            if let Op::Pointwise(op) = op {
                functions.insert(op.function.name());
            }
        }
    }
    let missing = |all: &[&'static str], found: &BTreeSet<&str>| -> Vec<&'static str> {
        all.iter().copied().filter(|name| !found.contains(name)).collect()
    };
    assert_eq!(missing(&Entry::names(), &layers.iter().map(|name| &name[..]).collect()), [""; 0], "layers");
    let mut left = missing(Op::NAMES, &operations);
    left.sort_unstable();
    assert_eq!(left, LOWERED, "operations");
    let names: Vec<&str> = Function::ALL.iter().map(|function| function.name()).collect();
    assert_eq!(missing(&names, &functions), [""; 0], "functions");
}

/// Networks without a form in ONNX are refused with the reason and with what to do. All others are written.
#[test]
fn networks_are_written_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut faults = Vec::new();
    for case in cases() {
        match (&case.refused, write(&case, folder.path())) {
            (None, Ok(_)) => {}
            (Some(part), Err(error)) if error.what.contains(part) => {
                assert!(!folder.path().join(format!("{}.onnx", case.name)).exists(), "{}", case.name);
            }
            (_, result) => faults.push(format!("{}: {:?}", case.name, result.map_err(|error| error.what))),
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Names the parameters of a graph, each once.
fn parameters(case: &Case) -> BTreeMap<String, Vec<u64>> {
    let all = case.network.graph.parameters.iter();
    all.map(|parameter| (torch_name(&parameter.name), parameter.shape.dims().to_vec())).collect()
}

/// Returns the bytes of a network's forward pass for five samples.
fn arena(network: &Network) -> u64 {
    Running::arena(network, 5)
}

fn as_network(resolved: &Resolved) -> Network {
    let inputs = resolved.graph.nodes.iter().enumerate().filter(|(_, node)| node.source == Source::Input);
    Network {
        graph: resolved.graph.clone(),
        inputs: inputs.map(|(id, _)| id).collect(),
        outputs: resolved.outputs.clone(),
        keys: Default::default(),
        changes: Default::default(),
    }
}

/// Reads a file that was written. Returns what differs from the network.
fn read_again(case: &Case, path: &Path) -> Result<(), String> {
    let file = Onnx::open(path).map_err(|error| error.to_string())?;
    let model = file.model(Some(5), &[]).map_err(|error| error.to_string())?;
    let graph = &case.network.graph;
    for (found, &expected) in model.outputs.iter().zip(&case.network.outputs) {
        let shape = [&[5], graph.value(expected).shape.dims()].concat();
        if model.values[*found].shape != shape {
            return Err(format!("an output is {:?}, and not {shape:?}", model.values[*found].shape));
        }
    }
    let is_parameter = |state: &&gpumem_import::model::State| matches!(state.kind, StateKind::Parameter { .. });
    let found: BTreeMap<String, Vec<u64>> = model
        .state
        .iter()
        .filter(is_parameter)
        .map(|state| (state.key.clone(), model.values[state.value].shape.clone()))
        .collect();
    if found != parameters(case) {
        return Err(format!("parameters are {found:?}, and not {:?}", parameters(case)));
    }
    let batch = Batch::follow(&model).ok_or("the batch cannot be followed")?;
    let lifted = lift(&model, &batch);
    if let Some(unknown) = lifted.unknown.first() {
        return Err(format!("{} is not lifted: {}", unknown.op, unknown.reason));
    }
    let network = common::network(&model, &batch, &lifted)?;
    let (found, expected) = (arena(&network), arena(&as_network(&case.network)));
    if found != expected {
        let kinds: Vec<&str> = network.graph.rows.iter().map(|row| &row.kind[..]).collect();
        return Err(format!("the forward pass takes {found} bytes, and not {expected}: {kinds:?}"));
    }
    Ok(())
}

/// A file that is read again has the same parameters and takes the same memory.
#[test]
fn files_are_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let (mut faults, mut better) = (Vec::new(), Vec::new());
    for case in written_cases() {
        let Ok(path) = write(&case, folder.path()) else { continue };
        match (read_again(&case, &path), case.returns) {
            (Err(fault), true) => faults.push(format!("{}: {fault}", case.name)),
            (Ok(()), false) => better.push(case.name),
            _ => {}
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(better.is_empty(), "take `~` from {better:?}: they are read again");
}

/// Returns the words or bytes of an input for some samples, and the type that numpy has for them in the file.
fn input(name: &str, elements: Elements, shape: &[u64], batch: u64) -> (Vec<u32>, &'static str) {
    let each = shape.iter().product::<u64>() as usize;
    let count = each * batch as usize;
    let mut state = name.bytes().fold(7u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let mut draw = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    let below = |draws: &mut dyn FnMut() -> u32, limit: u32| (0..count).map(|_| draws() % limit).collect();
    match (elements, name) {
        (Elements::Numbers, _) => {
            let number = |draw: u32| (6.0 * f64::from(draw) / f64::from(1u32 << 24) - 3.0) as f32;
            ((0..count).map(|_| number(draw()).to_bits()).collect(), "<f4")
        }
        (Elements::Bytes, _) => (below(&mut draw, 256), "|u1"),
        (_, "n") => ([6, 0, 3, 1].iter().copied().cycle().take(count).collect(), "<i8"),
        (_, "rows") => {
            let rows = (0..count).scan(0, |row, at| {
                *row = if at % each == 0 { draw() % 3 } else { *row + draw() % 2 };
                Some(*row)
            });
            (rows.collect(), "<i8")
        }
        (_, "i") => (below(&mut draw, 3), "<i8"),
        _ => (below(&mut draw, 11), "<i8"),
    }
}

/// Writes words as numpy reads them, and returns the entry of the list.
fn stored(folder: &Path, file: String, words: &[u32], shape: &[u64], kind: &str) -> Value {
    let bytes: Vec<u8> = match kind {
        "|u1" => words.iter().map(|&word| word as u8).collect(),
        "<i8" => words.iter().flat_map(|&word| i64::from(word).to_le_bytes()).collect(),
        _ => words.iter().flat_map(|&word| word.to_le_bytes()).collect(),
    };
    std::fs::write(folder.join(&file), bytes).unwrap();
    json!({ "file": file, "shape": shape, "dtype": kind })
}

/// Runs a network on the CPU, and stores what it was given and what it computed.
fn computed(case: &Case, batch: u64, folder: &Path) -> Value {
    let network = as_network(&case.network);
    let mut running = Running::load(&network, batch);
    let mut names = case.network.inputs.iter();
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    for (id, name, class, shape) in running.given() {
        if class != Class::Input {
            running.write(id, numbers(&torch_name(&name), &shape).into_iter().map(f32::to_bits));
            continue;
        }
        let given = names.next().unwrap();
        let (words, kind) = input(&given.name, given.value.elements, &shape, batch);
        match kind {
            "|u1" => running.feed(id, &words.iter().map(|&word| word as u8).collect::<Vec<u8>>()),
            _ => running.write(id, words.iter().copied()),
        }
        let file = format!("{}.{batch}.{}", case.name, given.name);
        inputs.push(stored(folder, file, &words, &[&[batch], &shape[..]].concat(), kind));
    }
    for (index, (found, &output)) in running.outputs().iter().zip(&network.outputs).enumerate() {
        let value = network.graph.value(output);
        let kind = if value.is_numbers() { "<f4" } else { "<i8" };
        let words: Vec<u32> = found.iter().map(|number| number.to_bits()).collect();
        let shape = [&[batch], value.shape.dims()].concat();
        outputs.push(stored(folder, format!("{}.{batch}.output_{index}", case.name), &words, &shape, kind));
    }
    json!({ "batch": batch, "inputs": inputs, "outputs": outputs })
}

/// Compares every form with onnxruntime, for one sample and for several.
#[test]
fn onnxruntime_computes_what_the_cpu_does() {
    let folder = tempfile::tempdir().unwrap();
    let mut all = Vec::new();
    for case in written_cases() {
        if write(&case, folder.path()).is_ok() {
            let runs: Vec<Value> = [1, 4].map(|batch| computed(&case, batch, folder.path())).into();
            all.push(json!({ "name": case.name, "runs": runs }));
        }
    }
    compared(folder.path(), &Value::Array(all));
}

/// Runs the comparison, which needs Python with onnxruntime.
fn compared(folder: &Path, cases: &Value) {
    std::fs::write(folder.join("cases.json"), cases.to_string()).unwrap();
    let is_required = std::env::var_os("GPUMEM_REQUIRE_ONNXRUNTIME").is_some();
    let python = std::env::var("GPUMEM_PYTHON").unwrap_or_else(|_| "python3".into());
    let Ok(run) = Command::new(&python).arg(tests().join("compare.py")).arg(folder).output() else {
        assert!(!is_required, "there is no `{python}`; set GPUMEM_PYTHON");
        println!("skipped: there is no `{python}`");
        return;
    };
    let text = String::from_utf8_lossy(&run.stdout);
    println!("{text}");
    let is_skipped = run.status.code() == Some(3);
    assert!(run.status.success() || is_skipped && !is_required, "{text}\n{}", String::from_utf8_lossy(&run.stderr));
}

/// Tensors that a file cannot hold are in a second one, which both readers find.
#[test]
fn long_tensors_are_in_a_second_file() {
    let folder = tempfile::tempdir().unwrap();
    let case = written_cases().find(|case| case.name == "transformer").unwrap();
    let path = folder.path().join("transformer.onnx");
    let Resolved { graph, outputs, .. } = &case.network;
    let mut tensors = |key: &str, shape: &[u64]| Ok(elements(key, shape));
    onnx::write_split(graph, outputs, "transformer", &mut tensors, &path, 1000).unwrap();
    let total: u64 = parameters(&case).values().map(|shape| 4 * shape.iter().product::<u64>()).sum();
    assert_eq!(std::fs::metadata(folder.path().join("transformer.onnx.data")).unwrap().len(), total);
    assert!(std::fs::metadata(&path).unwrap().len() < total);
    read_again(&case, &path).unwrap();
    let runs: Vec<Value> = vec![computed(&case, 2, folder.path())];
    compared(folder.path(), &json!([{ "name": case.name, "runs": runs }]));
    // Nothing is left of a file that is not complete.
    let other = folder.path().join("other.onnx");
    let mut none = |key: &str, _: &[u64]| Err(Error { path: other.clone(), what: format!("has no tensor `{key}`") });
    onnx::write_split(graph, outputs, "other", &mut none, &folder.path().join("other.onnx"), 1000).unwrap_err();
    let left = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(
        left.map(|name| name.to_string_lossy().into_owned())
            .all(|name| name.starts_with("transformer") || name == "cases.json")
    );
}

/// Heads that only a loss reads are no part of inference.
#[test]
fn heads_of_losses_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let case = written_cases().find(|case| case.name == "auxiliary").unwrap();
    let model = Onnx::open(&write(&case, folder.path()).unwrap()).unwrap().model(Some(2), &[]).unwrap();
    let mut found: Vec<&str> =
        model.state.iter().map(|state| &state.key[..]).filter(|key| key.ends_with("weight")).collect();
    found.sort_unstable();
    assert_eq!(found, ["linear.0.weight", "linear.1.weight"]);
    assert!(parameters(&case).contains_key("head.weight"));
}

#[test]
fn missing_tensors_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing.onnx");
    let case = written_cases().find(|case| case.name == "classifier").unwrap();
    let Resolved { graph, outputs, .. } = &case.network;
    let mut none = |key: &str, _: &[u64]| {
        Err(Error { path: "weights.safetensors".into(), what: format!("has no tensor `{key}`") })
    };
    let error = onnx::write(graph, outputs, "classifier", &mut none, &path).unwrap_err();
    assert!(error.what.contains(".weight`") && error.what.contains("batch_norm2d.running_var`"), "{error}");
    assert!(!path.exists());
}

#[test]
fn safetensors_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some.safetensors");
    let header = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F16","shape":[2],"data_offsets":[8,12]},
        "c":{"dtype":"F32","shape":[9],"data_offsets":[12,48]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend([1.5f32, -2.0].iter().flat_map(|number| number.to_le_bytes()));
    file.extend([0x3c00u16, 0xc100].iter().flat_map(|half| half.to_le_bytes()));
    std::fs::write(&path, &file).unwrap();
    let mut tensors = Safetensors::open(&path).unwrap();
    let floats = |numbers: [f32; 2]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    assert_eq!(tensors.tensor("a", &[2]).unwrap(), floats([1.5, -2.0]));
    assert_eq!(tensors.tensor("b", &[2]).unwrap(), floats([1.0, -2.5]));
    assert!(tensors.tensor("a", &[3]).unwrap_err().what.contains("of shape [2], and the network has [3]"));
    assert!(tensors.tensor("c", &[9]).unwrap_err().what.contains("outside of the file"));
    assert!(tensors.tensor("d", &[1]).unwrap_err().what.contains("no tensor `d`"));
    for length in 0..60 {
        std::fs::write(&path, &file[..length]).unwrap();
        assert!(Safetensors::open(&path).is_err(), "{length}");
    }
}
