//! Inputs, outputs and settings of a network.

use super::element::{Body, Element, Function};
use super::graph::Graph;
use super::words::{Names, identifier};
use super::{Network, Options, Refusal, Signature, names};
use crate::batch::Batch;
use crate::model::{Model, ValueId};

/// Returns the inputs that some layer reads, or that the network returns.
pub(super) fn read(graph: &Graph) -> Vec<ValueId> {
    let is_read = |input: &ValueId| graph.readers.contains_key(input) || graph.outputs.contains(input);
    graph.given.iter().copied().filter(is_read).collect()
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
    let lets = forward.lets.iter().map(|(name, _)| name.clone());
    let mut taken = Names::with(forward.taps.iter().cloned().chain(lets));
    let signature = |&input: &ValueId| {
        let wanted = Some(identifier(&model.values[input].name)).filter(|name| !name.is_empty());
        let name = taken.add(wanted.unwrap_or_else(|| "input".into()));
        Signature { name, kind: input_type(model, batch, graph, input) }
    };
    let signatures: Vec<Signature> = inputs.iter().map(signature).collect();
    let (outputs, loss) = outputs(model, batch, graph, &forward, options.loss.as_deref());
    let mut train = vec![format!("batch: {}", options.batch), format!("optimizer: {}", options.optimizer)];
    train.push(format!("loss: {}", options.loss.clone().unwrap_or(loss)));
    train.extend(options.fields.iter().cloned());
    let docs = vec![
        format!("Imported from `{}` ({}).", options.name, model.source),
        format!("It has {} parameters.", with_commas(model.parameters())),
    ];
    Ok(Network {
        name: struct_name(&options.name),
        docs,
        train,
        inputs: signatures,
        given: inputs.to_vec(),
        outputs,
        forward,
        functions,
        renamed: graph.renamed(),
    })
}

fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns the name of a struct: `TimmHrnetW18Small` of `timm_hrnet_w18_small.pt2`.
pub(super) fn struct_name(file: &str) -> String {
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
        // Tokens of several axes are one text, which the first layer gives its shape.
        _ if !is_float => format!("Tokens<{}>", shape.iter().fold(1, |all: u64, &size| all.saturating_mul(size))),
        1 => format!("Features<{text}>"),
        2 if is_signal() => format!("Signal<{text}>"),
        2 => format!("Sequence<{text}>"),
        3 => format!("Image<{text}>"),
        4 => format!("Volume<{text}>"),
        _ => format!("Values<{text}>"),
    }
}

/// Returns the types of the outputs, and a loss that suits them.
fn outputs(model: &Model, batch: &Batch, graph: &Graph, forward: &Body, given: Option<&str>) -> (Vec<String>, String) {
    let all: Vec<(Vec<u64>, Option<&str>)> = (0..model.outputs.len())
        .map(|index| {
            let made = graph.outputs.get(index).and_then(|&output| maker(graph, output));
            (sample(model, batch, model.outputs[index]), made)
        })
        .collect();
    let is_given = |loss: &str| given.is_some_and(|given| given.starts_with(loss));
    // Outputs beside logits are logits if they have their shape, as those of auxiliary heads have.
    let main = all.first().map(|(shape, made)| (shape, loss(model, batch, shape, *made)));
    let losses: Vec<&str> = all
        .iter()
        .map(|(shape, made)| match main {
            Some((of_main, main))
                if !is_given("Mse") && of_main == shape && loss(model, batch, shape, *made) == main =>
            {
                main
            }
            _ => "Mse",
        })
        .collect();
    let kind = |(shape, _): &(Vec<u64>, Option<&str>), loss: &str| {
        let name = match (shape.len(), loss) {
            (1, "Mse") => "Features",
            (1, _) => "Logits",
            (2, "Mse") => "Sequence",
            (2, _) => "TokenLogits",
            (3, _) => "Map",
            (4, _) => "Volume",
            _ => "Values",
        };
        format!("{name}<{}>", sizes(shape))
    };
    let types: Vec<String> = all.iter().zip(&losses).map(|(output, loss)| kind(output, loss)).collect();
    let Some(Element::Outputs(branches)) = forward.elements.last() else {
        return (types, losses.first().unwrap_or(&"Mse").to_string());
    };
    if losses.iter().all(|loss| *loss == "Mse") {
        return (types, "Mse".into());
    }
    // A term for each output. What another output is made of is trained by that.
    let is_shared = types.iter().all(|kind| *kind == types[0]);
    let terms = branches.iter().enumerate().filter_map(|(index, branch)| {
        let [Element::From(tap)] = branch[..] else { return None };
        let name = forward.taps.get(tap)?;
        let is_inside = graph
            .outputs
            .iter()
            .any(|other| *other != graph.outputs[index] && graph.reaches(graph.outputs[index], *other));
        match (is_shared, is_inside && losses[index] == "Mse") {
            (_, true) => None,
            (true, _) => Some(format!("{}(from = {name})", losses[index])),
            (false, _) => Some(format!("{}(from = {name}, target = {name}_target)", losses[index])),
        }
    });
    let terms: Vec<String> = terms.collect();
    (types, terms.join(" + "))
}

/// Returns the layer that makes the numbers of an output: not one that only changes its shape.
fn maker(graph: &Graph, output: ValueId) -> Option<&'static str> {
    let mut layer = &graph.layers[*graph.makers.get(&output)?];
    for _ in 0..graph.layers.len() {
        let before = layer.inputs.first().and_then(|input| graph.makers.get(input));
        match (layer.kind, before) {
            ("Flatten" | "Reshape" | "Squeeze" | "Dropout", Some(&before)) => layer = &graph.layers[before],
            _ => break,
        }
    }
    Some(layer.kind)
}

/// Returns a loss that suits an output of this shape, by the layer that makes it.
fn loss(model: &Model, batch: &Batch, shape: &[u64], made: Option<&str>) -> &'static str {
    // Logits are neither activations nor normalised.
    const NO_LOGITS: [&str; 8] = ["elu", "Relu6", "Sigmoid", "sigmoid", "anh", "Softmax", "Norm", "swish"];
    let first = model.inputs.first().map(|&input| (sample(model, batch, input), model.values[input].dtype.is_float()));
    let has_tokens = first.as_ref().is_some_and(|(_, is_float)| !is_float);
    let made = made.unwrap_or("");
    let is_class = !NO_LOGITS.iter().any(|word| made.contains(word)) && !["Select", "Mean", "Exp"].contains(&made);
    match shape {
        [_] | [_, _] if made == "LogSoftmax" => "Nll",
        [_] if is_class => "CrossEntropy",
        [_, _] if has_tokens && ["Linear", "Tied", "Add"].contains(&made) => "CrossEntropy",
        // A class for each pixel.
        [channels, height, width] if is_class => match first {
            Some((image, true)) if image[1..] == [*height, *width] && image[0] != *channels && *channels > 1 => {
                "CrossEntropy"
            }
            _ => "Mse",
        },
        _ => "Mse",
    }
}
