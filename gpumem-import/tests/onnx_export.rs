//! Writes networks as ONNX files, reads them again, and runs them with onnxruntime where that is installed.

use gpumem_core::graph::{Graph, NodeId, Type};
use gpumem_core::layers::arguments::Argument;
use gpumem_core::layers::{Entry, Written};
use gpumem_core::shape::Shape;
use gpumem_import::model::StateKind;
use gpumem_import::write::{Safetensors, onnx};
use gpumem_import::{Error, Onnx};
use std::path::Path;
use std::process::Command;

fn value(text: &str) -> Argument {
    match text {
        "true" | "false" => Argument::Flag(text == "true"),
        _ if text.starts_with('\'') => Argument::Text(text.trim_matches('\'').into()),
        _ => match (text.parse(), text.parse()) {
            (Ok(whole), _) => Argument::Integer(whole),
            (_, Ok(number)) => Argument::Float(number),
            _ => panic!("{text}"),
        },
    }
}

/// Adds a layer, as `Conv2d(8, 3, padding = 1)`, under a name.
fn layer(graph: &mut Graph, inputs: &[NodeId], name: &str, text: &str) -> NodeId {
    let (kind, rest) = text.split_once('(').unwrap_or((text, ""));
    let parts = rest.trim_end_matches(')').split(',').map(str::trim).filter(|part| !part.is_empty());
    let written: Vec<Written> = parts
        .map(|part| match part.split_once('=') {
            Some((option, given)) => Written::named(option.trim(), value(given.trim())),
            None => Written::positional(value(part)),
        })
        .collect();
    let built = graph.layer(&Entry::find(kind).unwrap(), &written, inputs, name.into(), None);
    assert!(built.mistakes.is_empty(), "{text}: {:?}", built.mistakes);
    built.value.unwrap()
}

/// Adds layers one after the other.
fn chain(graph: &mut Graph, first: NodeId, layers: &[(&str, &str)]) -> NodeId {
    layers.iter().fold(first, |value, (name, text)| layer(graph, &[value], name, text))
}

fn image(graph: &mut Graph, shape: &[u64]) -> NodeId {
    graph.input(Type::numbers(Shape::new(shape))).unwrap()
}

/// A residual network with every kind of layer that a classifier of images has.
fn classifier() -> (Graph, NodeId) {
    let mut graph = Graph::default();
    let x = image(&mut graph, &[3, 32, 32]);
    let stem =
        [("conv1", "Conv2d(16, 3, stride = 2, padding = 1, bias = false)"), ("bn1", "BatchNorm2d"), ("act1", "Relu")];
    let x = chain(&mut graph, x, &stem);
    let x = layer(&mut graph, &[x], "pool", "MaxPool2d(3, stride = 2, padding = 1)");
    let branch = [
        ("block[0].conv1", "Conv2d(16, 3, padding = 1, groups = 4)"),
        ("block[0].norm", "GroupNorm(4)"),
        ("block[0].act", "Silu"),
        ("block[0].conv2", "Conv2d(16, 3, padding = 2, dilation = 2)"),
        ("block[0].drop", "Dropout(0.1)"),
    ];
    let y = chain(&mut graph, x, &branch);
    let x = layer(&mut graph, &[x, y], "sum", "Add");
    let x = layer(&mut graph, &[x], "act2", "Hardswish");
    let x = layer(&mut graph, &[x], "average", "AvgPool2d(2)");
    let head = [("global", "GlobalAvgPool"), ("flatten", "Flatten"), ("fc", "Linear(10)"), ("out", "LogSoftmax")];
    let x = chain(&mut graph, x, &head);
    (graph, x)
}

/// A network that makes a larger image, with a connection from its start to its end.
fn decoder() -> (Graph, NodeId) {
    let mut graph = Graph::default();
    let x = image(&mut graph, &[4, 7, 9]);
    let down = layer(&mut graph, &[x], "down", "Conv2d(8, 3, padding = 1)");
    let inner = [
        ("inner.pad", "Pad(1, mode = 'reflect')"),
        ("inner.conv", "Conv2d(8, 3)"),
        ("inner.norm", "InstanceNorm2d"),
        ("inner.act", "LeakyRelu(0.2)"),
    ];
    let y = chain(&mut graph, down, &inner);
    let x = layer(&mut graph, &[down, y], "join", "Concat");
    let up = [
        ("up", "ConvTranspose2d(6, 3, stride = 2, padding = 1, output_padding = 1)"),
        ("act", "Elu(1.0)"),
        ("resize", "Upsample(2)"),
        ("smooth", "Upsample(2, mode = 'bilinear')"),
        ("last", "Tanh"),
    ];
    let x = chain(&mut graph, x, &up);
    (graph, x)
}

/// A block of a causal transformer after its tables.
fn transformer() -> (Graph, NodeId) {
    let mut graph = Graph::default();
    let tokens = graph.input(Type::indices(Shape::new(&[12]))).unwrap();
    let x = layer(&mut graph, &[tokens], "wte", "Embedding(50, 32)");
    let branch = [("ln_1", "LayerNorm(eps = 0.00001)"), ("attn", "CausalSelfAttention(4)")];
    let y = chain(&mut graph, x, &branch);
    let x = layer(&mut graph, &[x, y], "sum1", "Add");
    let branch = [
        ("ln_2", "RmsNorm(eps = 0.00001)"),
        ("fc", "Linear(64)"),
        ("act", "Gelu(approximate = 'tanh')"),
        ("proj", "Linear(32, bias = false)"),
    ];
    let y = chain(&mut graph, x, &branch);
    let x = layer(&mut graph, &[x, y], "sum2", "Add");
    let x = layer(&mut graph, &[x], "head", "Linear(50)");
    (graph, x)
}

/// Returns elements that depend on the key, near those of a trained network.
fn elements(key: &str, shape: &[u64]) -> Vec<u8> {
    let count: u64 = shape.iter().product();
    let mut state = key.bytes().fold(0x9e37_79b9u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let number = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let share = f64::from(state >> 8) / f64::from(1u32 << 24);
        // Variances are above zero, and factors of normalisations near one.
        let number = if key.ends_with("running_var") || shape.len() == 1 { 0.5 + share } else { 0.4 * (share - 0.5) };
        (number as f32).to_le_bytes()
    };
    (0..count).flat_map(number).collect()
}

fn networks() -> [(&'static str, (Graph, NodeId)); 3] {
    [("classifier", classifier()), ("decoder", decoder()), ("transformer", transformer())]
}

fn written(folder: &Path) {
    for (name, (graph, output)) in networks() {
        let path = folder.join(format!("{name}.onnx"));
        onnx::write(&graph, &[output], name, &mut |key, shape| Ok(elements(key, shape)), &path).unwrap();
    }
}

#[test]
fn files_are_read_again() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path());
    for (name, (graph, output)) in networks() {
        let file = Onnx::open(&folder.path().join(format!("{name}.onnx"))).unwrap();
        assert_eq!(file.batch_symbol().as_deref(), Some("batch"), "{name}");
        let model = file.model(Some(5), &[]).unwrap();
        let shape = [&[5], graph.value(output).shape.dims()].concat();
        assert_eq!(model.values[model.outputs[0]].shape, shape, "{name}");
        let read =
            |key: &str| model.state.iter().find(|state| state.key == key).unwrap_or_else(|| panic!("{name}: {key}"));
        for parameter in &graph.parameters {
            let state = read(&parameter.name.replace('[', ".").replace(']', ""));
            assert!(matches!(state.kind, StateKind::Parameter { .. }), "{name}: {}", parameter.name);
            assert_eq!(model.values[state.value].shape, parameter.shape.dims(), "{name}: {}", parameter.name);
        }
    }
}

/// Compares with PyTorch, by a script that says which package is missing.
#[test]
fn onnxruntime_computes_what_pytorch_does() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path());
    let python = std::env::var("GPUMEM_PYTHON").unwrap_or_else(|_| "python3".into());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/onnx_export.py");
    let Ok(run) = Command::new(&python).arg(script).arg(folder.path()).output() else {
        println!("skipped: there is no `{python}`");
        return;
    };
    let text = String::from_utf8_lossy(&run.stdout);
    println!("{text}");
    assert!(run.status.success(), "{text}\n{}", String::from_utf8_lossy(&run.stderr));
}

#[test]
fn missing_tensors_and_operations_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing.onnx");
    let (graph, output) = classifier();
    let mut none = |key: &str, _: &[u64]| {
        Err(Error { path: "weights.safetensors".into(), what: format!("has no tensor `{key}`") })
    };
    let error = onnx::write(&graph, &[output], "classifier", &mut none, &path).unwrap_err();
    assert!(error.what.contains("`conv1.weight`") && error.what.contains("`bn1.running_var`"), "{error}");
    assert!(!path.exists());
    let mut graph = Graph::default();
    let x = image(&mut graph, &[6, 8]);
    let output = layer(&mut graph, &[x], "rnn", "Lstm(4)");
    let error = onnx::write(&graph, &[output], "lstm", &mut |key, shape| Ok(elements(key, shape)), &path).unwrap_err();
    assert!(error.what.contains("Recurrence, 1 times, first in `rnn`"), "{error}");
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
