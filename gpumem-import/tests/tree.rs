//! Prints networks as source, and resolves what is printed.

mod common;

use gpumem_core::graph::{Graph, NodeId, Source};
use gpumem_import::Pt2;
use gpumem_import::batch::{Axis, Batch};
use gpumem_import::lift::{Layer, Lifted, Unknown, lift};
use gpumem_import::model::{Dtype, Model, Module, State, StateKind};
use gpumem_import::tree::{Network, Options, parts, simplified};
use serde_json::Value;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::rc::Rc;

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
fn faults(network: &Network, model: &Model, batch: &Batch, lifted: &Lifted) -> Vec<String> {
    let text = network.to_string();
    let key = |name: &str| {
        let own = key(name);
        let other = network.renamed.iter().find(|(name, _)| *name == own);
        other.map_or(own, |(_, key)| key.clone())
    };
    let resolved = match gpumem_language::source::resolve(&text) {
        Ok(resolved) => resolved,
        Err(mistakes) => {
            let lines: Vec<&str> = text.lines().collect();
            let line = |line: usize| lines.get(line - 1).map_or("", |line| line.trim());
            return mistakes.iter().map(|mistake| format!("{mistake} | {}", line(mistake.line))).collect();
        }
    };
    let mut faults = Vec::new();
    let graph = &resolved.graph;
    let own = graph.parameters.iter().map(|parameter| (key(&parameter.name), plain(parameter.shape.dims())));
    let own: BTreeMap<String, Vec<u64>> = own.collect();
    let is_parameter = |state: &&State| matches!(state.kind, StateKind::Parameter { .. }) && state.tied_to.is_none();
    let theirs = model.state.iter().filter(is_parameter);
    let theirs: BTreeMap<String, Vec<u64>> =
        theirs.map(|state| (state.key.clone(), plain(&model.values[state.value].shape))).collect();
    // What a parameter is made of by turning it or taking some rows, and tables, are compared with the lifted layers below.
    let changed = lifted.layers.iter().filter(|layer| !layer.changes.is_empty());
    let mut other: Vec<&str> = changed.flat_map(|layer| &layer.keys).map(|(_, key)| &key[..]).collect();
    other.extend(lifted.tables.iter().map(|table| &table.key[..]));
    let place = |key: &str| key.rsplit_once('.').map_or(String::new(), |(place, _)| place.to_string());
    let is_other = |key: &str| other.iter().any(|other| *other == key || place(other) == place(key));
    for (key, shape) in own.iter().filter(|(key, _)| !is_other(key)) {
        match theirs.get(key) {
            None => faults.push(format!("`{key}` {shape:?} is not in the state dict")),
            Some(other) if other != shape => {
                faults.push(format!("`{key}` is {shape:?}, and {other:?} in the state dict"))
            }
            Some(_) => {}
        }
    }
    // Some parameters of a model are not used, such as tokens of masks.
    let is_used = |key: &str| lifted.layers.iter().flat_map(|layer| &layer.keys).any(|(_, other)| other == key);
    let missing = theirs.iter().filter(|(key, _)| !own.contains_key(*key) && !is_other(key) && is_used(key));
    faults.extend(missing.map(|(key, shape)| format!("`{key}` {shape:?} is missing")));
    let outputs: Vec<Vec<u64>> =
        resolved.outputs.iter().map(|&output| graph.value(output).shape.dims().to_vec()).collect();
    let expected: Vec<Vec<u64>> = model.outputs.iter().map(|&output| batch.sample(output, model)).collect();
    if outputs != expected {
        faults.push(format!("outputs are {outputs:?}, and {expected:?} in the file"));
    }
    match common::network(model, batch, &simplified(lifted, model)) {
        Ok(whole) => {
            let name = |name: &str| whole.keys.get(name).cloned().unwrap_or_default();
            if hashes(graph, &resolved.outputs, key) != hashes(&whole.graph, &whole.outputs, name) {
                faults.push(format!("it is another graph: {}", difference(graph, &whole.graph)));
            }
        }
        Err(fault) => faults.push(fault),
    }
    faults
}

/// Returns a name as PyTorch has it.
fn key(name: &str) -> String {
    name.replace(']', "").replace('[', ".").trim_start_matches('.').to_string()
}

/// Returns the first node in which two graphs differ, as text.
fn difference(one: &Graph, two: &Graph) -> String {
    let texts = |graph: &Graph| -> Vec<String> {
        let mut texts: Vec<String> = graph
            .nodes
            .iter()
            .map(|node| match &node.source {
                Source::Op { op, in_place, .. } => format!("{op:?} {in_place} {:?}", node.value),
                Source::Parameter(_) => format!("a parameter {:?}", node.value),
                other => format!("{} {:?}", matches!(other, Source::Input), node.value),
            })
            .collect();
        texts.sort();
        texts
    };
    let (one, two) = (texts(one), texts(two));
    let at = one.iter().zip(&two).position(|(one, two)| one != two);
    format!("{} nodes and {}; {:?}", one.len(), two.len(), at.map(|at| (&one[at], &two[at])))
}

/// Returns a number for each output, which is equal for graphs that compute it in the same way from equally named parameters.
fn hashes(graph: &Graph, outputs: &[NodeId], name: impl Fn(&str) -> String) -> Vec<u64> {
    let mut all: Vec<u64> = Vec::new();
    let mut inputs = 0;
    for node in &graph.nodes {
        let mut hasher = DefaultHasher::new();
        let of_inputs: Vec<u64> = node.inputs().iter().map(|&input| all[input]).collect();
        // Only the text says what is frozen.
        format!("{:?} {of_inputs:?}", node.value).hash(&mut hasher);
        match &node.source {
            Source::Input => {
                inputs.hash(&mut hasher);
                inputs += 1;
            }
            Source::Parameter(parameter) => name(&graph.parameters[*parameter].name).hash(&mut hasher),
            Source::View(_) => 0.hash(&mut hasher),
            Source::Op { op, in_place, buffers, .. } => {
                let buffers: Vec<String> = buffers.iter().map(|&buffer| name(&graph.buffers[buffer].name)).collect();
                format!("{op:?} {in_place} {buffers:?}").hash(&mut hasher);
            }
        }
        all.push(hasher.finish());
    }
    outputs.iter().map(|&output| all[output]).collect()
}

/// Reads a model and lifts it.
fn lifted(name: &str) -> (Model, Batch, Lifted) {
    let model = Pt2::open(&models().join(format!("{name}.pt2"))).unwrap().model(None, &[]).unwrap();
    let batch = Batch::follow(&model).unwrap();
    let lifted = lift(&model, &batch);
    (model, batch, lifted)
}

fn names() -> Vec<String> {
    let index: Vec<Value> = serde_json::from_slice(&std::fs::read(models().join("index.json")).unwrap()).unwrap();
    index.iter().map(|facts| facts["name"].as_str().unwrap().to_string()).collect()
}

/// Printed texts resolve to PyTorch's parameters and to the graph of the lifted layers, with functions and as one list.
#[test]
fn printed_networks_are_the_lifted_ones() {
    let (mut found, mut whole) = (Vec::new(), 0);
    for name in names() {
        let (model, batch, lifted) = lifted(&name);
        // A fault of lifting is that of another test.
        if !lifted.unknown.is_empty() || common::network(&model, &batch, &lifted).is_err() {
            continue;
        }
        whole += 1;
        for network in [Network::new, Network::flat].map(|make| make(&model, &batch, &lifted, &options(&name))) {
            match network {
                Ok(network) => {
                    let text = network.to_string();
                    found.extend(
                        faults(&network, &model, &batch, &lifted).into_iter().map(|fault| format!("{name}: {fault}")),
                    );
                    let wide = text.lines().filter(|line| line.chars().count() > 120);
                    found.extend(wide.map(|line| format!("{name}: this line is too long: {line}")));
                }
                Err(refusal) => found.push(format!("{name}: {refusal}")),
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(whole >= 40, "only {whole} networks are lifted whole");
}

/// The source of twelve networks, for a person to read.
#[test]
fn sources() {
    const NAMES: [&str; 12] = [
        "albert_base",
        "alexnet",
        "csp_pan_detector",
        "gpt2",
        "llama_small",
        "lstm_lm",
        "timm_darknet53",
        "timm_ghostnet_100",
        "timm_hrnet_w18_small",
        "timm_mobilenetv4_conv_small",
        "timm_seresnet50",
        "timm_vit_small_patch16_224",
    ];
    for name in NAMES {
        let (model, batch, lifted) = lifted(name);
        let network = Network::new(&model, &batch, &lifted, &options(name)).unwrap();
        insta::assert_snapshot!(name, network);
    }
}

/// Networks are short enough to be read.
#[test]
fn sources_are_short() {
    const MOST: [(&str, usize); 6] = [
        ("gpt2", 40),
        ("timm_seresnet50", 60),
        ("timm_darknet53", 45),
        ("timm_repvgg_a0", 50),
        ("timm_mobilenetv4_conv_small", 100),
        ("timm_hrnet_w18_small", 180),
    ];
    for (name, most) in MOST {
        let (model, batch, lifted) = lifted(name);
        let text = Network::new(&model, &batch, &lifted, &options(name)).unwrap().to_string();
        assert!(text.lines().count() <= most, "{name} has {} lines", text.lines().count());
    }
}

/// Without the last block, all others and what is around them are written as networks of their own.
#[test]
fn parts_are_written() {
    let (model, batch, mut lifted) = lifted("timm_seresnet50");
    let whole = lifted.layers.len();
    let is_broken = |layer: &Layer| layer.modules.iter().any(|module| module.path == "layer3.2.se");
    let node = lifted.layers.iter().find(|layer| is_broken(layer)).unwrap().node;
    lifted.layers.retain(|layer| !is_broken(layer));
    assert!(lifted.layers.len() < whole);
    let unknown = Unknown { node, op: "mean".into(), place: "layer3.2.se".into(), reason: "a test".into() };
    lifted.unknown.push(unknown);
    assert!(Network::new(&model, &batch, &lifted, &options("whole")).is_err());
    let parts = parts(&model, &batch, &lifted, &options("whole"));
    let paths: Vec<&str> = parts.iter().flat_map(|part| &part.paths).map(|path| &path[..]).collect();
    for path in ["layer1", "layer2", "layer4", "layer3.0", "layer3.1", "layer3.5"] {
        assert!(paths.contains(&path), "{path} is not among {paths:?}");
    }
    assert!(!paths.iter().any(|path| path.is_empty() || *path == "layer3" || *path == "layer3.2"), "{paths:?}");
    // Five equal blocks are written once, with the names of the whole network.
    let equal = parts.iter().find(|part| part.paths[0] == "layer3.1").unwrap();
    assert_eq!(equal.paths, ["layer3.1", "layer3.3", "layer3.4", "layer3.5"]);
    for part in &parts {
        let resolved = gpumem_language::source::resolve(&part.network.to_string()).unwrap();
        for parameter in &resolved.graph.parameters {
            let name = key(&parameter.name);
            let state = model.state.iter().find(|state| state.key == name);
            assert!(
                state.is_some_and(|state| name.starts_with(&part.paths[0])
                    && model.values[state.value].shape == parameter.shape.dims())
            );
        }
    }
}

/// Returns layers that read each other, and their model.
fn made(layers: Vec<Layer>, outputs: Vec<usize>) -> (Model, Batch, Lifted) {
    let count = layers.iter().map(|layer| layer.output + 1).max().unwrap();
    let value = |index: usize| gpumem_import::model::Value {
        name: format!("v{index}"),
        dtype: Dtype::F32,
        shape: vec![2, 8],
        strides: None,
    };
    let model = Model {
        values: (0..count).map(value).collect(),
        inputs: vec![0],
        outputs: outputs.clone(),
        batch: Some(2),
        ..Model::default()
    };
    let batch = Batch { size: 2, axes: vec![Some(Axis::of(0)); count], mixing: Vec::new(), makers: Vec::new() };
    (model, batch, Lifted { layers, outputs, ..Lifted::default() })
}

fn print(model: &Model, batch: &Batch, lifted: &Lifted) -> Result<Network, String> {
    Network::new(model, batch, lifted, &options("made")).map_err(|refusal| refusal.to_string())
}

/// Any acyclic graph is written, whatever its branches read.
#[test]
fn crossing_branches_are_written() {
    let join = |inputs: [usize; 2], output: usize| Layer::join("Mul", inputs.to_vec(), output);
    let relu = |input: usize, output: usize| Layer::new("Relu", input, output);
    // 1 and 2 read the input; 3 and 4 read both; 5 reads 3 and 4; 6 reads 5 and 1.
    let layers = vec![
        relu(0, 1),
        Layer::new("Tanh", 0, 2),
        join([1, 2], 3),
        Layer::join("Sub", vec![2, 1], 4),
        join([3, 4], 5),
        join([5, 1], 6),
    ];
    let (model, batch, lifted) = made(layers, vec![6]);
    let network = print(&model, &batch, &lifted).unwrap();
    assert_eq!(faults(&network, &model, &batch, &lifted), [""; 0], "{network}");
    // Two outputs, one of which is inside of the other.
    let (model, batch, lifted) = made(vec![relu(0, 1), join([1, 0], 2)], vec![2, 1]);
    let network = print(&model, &batch, &lifted).unwrap();
    assert_eq!(faults(&network, &model, &batch, &lifted), [""; 0], "{network}");
}

/// Rounds whose modules lie below a number have their names.
#[test]
fn rounds_below_a_number_are_named() {
    let layers = (0..3).flat_map(|round| {
        let path = format!("blocks.{round}.mixer");
        let module = Module { call: path.clone(), path: path.clone(), class: "a.Mixer".into() };
        let modules: Rc<[Module]> = Rc::new([module]);
        let linear = Layer::new("Linear", 2 * round, 2 * round + 1).with(8i64).set("bias", false);
        let linear = linear.key("weight", Some(&format!("{path}.fc.weight")));
        let relu = Layer::new("Relu", 2 * round + 1, 2 * round + 2);
        let scale = Layer::new("Scale", 2 * round + 2, 2 * round + 2).key("", Some(&format!("{path}.gamma")));
        let relu = Layer { output: 100 + round, ..relu };
        let scale = Layer { inputs: vec![100 + round], ..scale };
        [linear, relu, scale].map(|layer| Layer { modules: modules.clone(), ..layer })
    });
    let (model, batch, lifted) = made(layers.collect(), vec![6]);
    let network = print(&model, &batch, &lifted).unwrap();
    let text = network.to_string();
    assert!(text.contains("repeat(3, ["), "{text}");
    let resolved = gpumem_language::source::resolve(&text).unwrap();
    let names: Vec<String> = resolved.graph.parameters.iter().map(|parameter| key(&parameter.name)).collect();
    let expected = (0..3).flat_map(|round| ["fc.weight", "gamma"].map(|name| format!("blocks.{round}.mixer.{name}")));
    assert_eq!(names, expected.collect::<Vec<_>>(), "{text}");
}

/// Layers that read what nothing makes, or themselves, are refused.
#[test]
fn cycles_are_refused() {
    let (model, batch, lifted) = made(vec![Layer::new("Relu", 2, 1), Layer::new("Relu", 1, 2)], vec![2]);
    assert!(print(&model, &batch, &lifted).is_err());
    let (model, batch, mut lifted) = made(vec![Layer::new("Relu", 0, 1)], vec![1]);
    lifted.layers[0].inputs[0] = 77;
    assert!(print(&model, &batch, &lifted).is_err());
    lifted.layers.clear();
    assert!(print(&model, &batch, &lifted).is_err());
}

/// Deep and wide graphs end neither the stack nor the patience.
#[test]
fn large_graphs_are_written_in_time() {
    const COUNT: usize = 1000;
    let chain = (1..COUNT).map(|index| Layer::join("Mul", vec![index - 1, 0], index)).collect();
    let ladder = (1..COUNT).map(|index| Layer::join("Mul", vec![index - 1, index.saturating_sub(2)], index));
    let ladder =
        ladder.map(|layer| if layer.inputs[0] == layer.inputs[1] { Layer::new("Relu", 0, 1) } else { layer }).collect();
    let sources = (1..COUNT).map(|index| match index % 2 {
        1 => Layer::source("Constant", index).with(index as f64),
        _ => Layer::join("Mul", vec![index - 1, index.saturating_sub(2)], index),
    });
    let module =
        |depth: usize| Module { call: format!("m{depth}"), path: vec!["m"; depth + 1].join("."), class: "M".into() };
    let deep: Rc<[Module]> = (0..300).map(module).collect();
    let modules = (1..COUNT).map(|index| Layer { modules: deep.clone(), ..Layer::new("Relu", index - 1, index) });
    for layers in [chain, ladder, sources.collect(), modules.collect()] {
        let layers: Vec<Layer> = layers;
        let output = layers.last().unwrap().output;
        let (model, batch, lifted) = made(layers, vec![output]);
        let start = std::time::Instant::now();
        print(&model, &batch, &lifted).unwrap().to_string();
        assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
    }
}
