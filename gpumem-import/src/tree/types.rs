//! Inputs, outputs and settings of a network.

use super::element::{Body, Function};
use super::graph::Graph;
use super::{Network, Options, Refusal, Signature, names};
use crate::batch::Batch;
use crate::model::{Model, ValueId};

/// Returns the inputs that some layer reads, or that the network returns.
pub(super) fn read(model: &Model, graph: &Graph) -> Vec<ValueId> {
    let is_read = |input: &ValueId| graph.readers.contains_key(input) || graph.outputs.contains(input);
    model.inputs.iter().copied().filter(is_read).collect()
}

/// Puts a network together, and chooses all names.
pub(super) fn network(
    model: &Model,
    batch: &Batch,
    graph: &Graph,
    options: &Options,
    inputs: &[ValueId],
    mut forward: Body,
    mut functions: Vec<Function>,
) -> Result<Network, Refusal> {
    if inputs.is_empty() {
        return Err(Refusal("no layer reads an input".into()));
    }
    names::choose(&mut forward, &mut functions);
    let mut signatures: Vec<Signature> = Vec::new();
    for &input in inputs {
        let wanted = Some(names::identifier(&model.values[input].name)).filter(|name| !name.is_empty());
        let is_taken = |name: &str| {
            let is_input = signatures.iter().any(|other| other.name == name);
            is_input || forward.taps.iter().any(|tap| tap == name) || forward.lets.iter().any(|(other, _)| other == name)
        };
        let name = names::unique(wanted.unwrap_or_else(|| "input".into()), is_taken);
        signatures.push(Signature { name, kind: input_type(model, batch, graph, input) });
    }
    let (outputs, loss) = outputs(model, batch, graph);
    let mut train = vec![format!("batch: {}", options.batch), format!("optimizer: {}", options.optimizer)];
    train.push(format!("loss: {}", options.loss.clone().unwrap_or(loss)));
    train.extend(options.fields.iter().cloned());
    let docs = vec![
        format!("Imported from `{}` ({}).", options.name, model.source),
        format!("It has {} parameters.", with_commas(model.parameters())),
    ];
    Ok(Network { name: struct_name(&options.name), docs, train, inputs: signatures, outputs, forward, functions })
}

fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns the name of a struct: `TimmHrnetW18Small` of `timm_hrnet_w18_small.pt2`.
fn struct_name(file: &str) -> String {
    let stem = file.rsplit(['/', '\\']).next().unwrap_or(file);
    let stem = stem.rsplit_once('.').map_or(stem, |(stem, _)| stem);
    let mut name = String::new();
    for word in stem.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty()) {
        let mut letters = word.chars();
        name.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        name.extend(letters);
    }
    match name.starts_with(|letter: char| letter.is_ascii_uppercase()) {
        true if name != "Self" => name,
        _ => format!("Net{name}"),
    }
}

fn sizes(sizes: &[u64]) -> String {
    sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
}

fn sample(model: &Model, batch: &Batch, value: ValueId) -> Vec<u64> {
    let shape = if value < model.values.len() { batch.sample(value, model) } else { Vec::new() };
    if shape.is_empty() { vec![1] } else { shape }
}

fn input_type(model: &Model, batch: &Batch, graph: &Graph, input: ValueId) -> String {
    let shape = sample(model, batch, input);
    let text = sizes(&shape);
    let is_float = model.values[input].dtype.is_float();
    let is_signal = || {
        let readers = graph.readers.get(&input).into_iter().flatten();
        readers.into_iter().any(|&reader| {
            let kind = graph.layers[reader].kind;
            ["Conv1d", "ConvTranspose1d", "BatchNorm1d", "InstanceNorm1d"].contains(&kind) || kind.ends_with("Pool1d")
        })
    };
    match shape.len() {
        1 if !is_float => format!("Tokens<{text}>"),
        1 => format!("Features<{text}>"),
        2 if is_signal() => format!("Signal<{text}>"),
        2 => format!("Sequence<{text}>"),
        3 => format!("Image<{text}>"),
        4 => format!("Volume<{text}>"),
        _ => format!("Values<{text}>"),
    }
}

/// Returns the types of the outputs, and a loss that suits them.
fn outputs(model: &Model, batch: &Batch, graph: &Graph) -> (Vec<String>, String) {
    let has_tokens = model.inputs.iter().any(|&input| !model.values[input].dtype.is_float());
    let mut types = Vec::new();
    let mut loss = "Mse";
    for (index, &output) in model.outputs.iter().enumerate() {
        let shape = sample(model, batch, output);
        let text = sizes(&shape);
        let made = graph.outputs.get(index).and_then(|output| graph.makers.get(output)).map(|&maker| graph.layers[maker].kind);
        let is_class = matches!(made, Some("Linear" | "Flatten" | "LogSoftmax" | "Conv2d" | "GlobalAvgPool"));
        let is_only = model.outputs.len() == 1;
        let kind = match shape.len() {
            1 if is_class && is_only => "Logits",
            1 => "Features",
            2 if has_tokens && is_only && made == Some("Linear") => "TokenLogits",
            2 => "Sequence",
            3 => "Map",
            4 => "Volume",
            _ => "Values",
        };
        if is_only && kind.ends_with("Logits") {
            loss = if made == Some("LogSoftmax") { "Nll" } else { "CrossEntropy" };
        }
        types.push(format!("{kind}<{text}>"));
    }
    (types, loss.to_string())
}
