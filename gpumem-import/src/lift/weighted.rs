//! Layers with parameters: convolutions, affine maps, normalisations, tables, recurrent layers.

use super::{Arguments, Layer, Lift, Literal, Result, refuse};
use crate::model::{Argument, Node, ValueId};

/// Lifts an operation with parameters. False if it is another one.
pub(super) fn lift(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result<bool> {
    let layer = match op {
        "conv1d" | "conv2d" | "conv3d" => convolution(lift, node, op)?,
        "conv_transpose1d" | "conv_transpose2d" | "conv_transpose3d" => transposed(lift, node, op)?,
        "linear" => linear(lift, node)?,
        "addmm" | "matmul" | "mm" if product_weight(lift, node, op).is_some() => product(lift, node, op)?,
        "batch_norm" => batch_norm(lift, node)?,
        "instance_norm" => instance_norm(lift, node)?,
        "layer_norm" => row_norm(lift, node, "LayerNorm", 1e-5)?,
        "rms_norm" => row_norm(lift, node, "RmsNorm", f64::from(f32::EPSILON))?,
        "group_norm" => {
            let layer = of_one(lift, node, "GroupNorm", "input")?.with(node.int("num_groups").unwrap_or(1));
            affine(lift, node, layer.option("eps", node.float("eps").unwrap_or(1e-5), 1e-5), "affine")?
        }
        "prelu" => {
            let count = lift.model.values[tensor(node, "weight")?].elements().unwrap_or(1);
            of_one(lift, node, "Prelu", "self")?.with(count).key("weight", lift.parameter(node, "weight")?)
        }
        "embedding" => embedding(lift, node)?,
        "lstm" | "gru" | "rnn_tanh" | "rnn_relu" => recurrent(lift, node, op)?,
        _ => return Ok(false),
    };
    lift.add(index, layer);
    Ok(true)
}

/// Returns the tensor of an argument that must be there.
pub(super) fn tensor(node: &Node, name: &str) -> Result<ValueId> {
    match node.tensor(name) {
        Some(value) => Ok(value),
        None => refuse(format!("it has no `{name}`")),
    }
}

/// Returns a layer that reads the argument `input` and makes the first output.
pub(super) fn of_one(lift: &mut Lift<'_>, node: &Node, kind: &'static str, input: &str) -> Result<Layer> {
    let input = lift.operand(tensor(node, input)?)?;
    Ok(Layer::new(kind, input, node.outputs[0]))
}

/// Names weight and bias, and writes `option = false` if the layer has neither.
fn affine(lift: &Lift<'_>, node: &Node, layer: Layer, option: &'static str) -> Result<Layer> {
    let layer = match node.tensor("weight") {
        Some(_) => layer,
        None => layer.set(option, false),
    };
    Ok(layer.key("weight", lift.parameter(node, "weight")?).key("bias", lift.parameter(node, "bias")?))
}

fn convolution(lift: &mut Lift<'_>, node: &Node, op: &str) -> Result<Layer> {
    let kind = match op {
        "conv1d" => "Conv1d",
        "conv2d" => "Conv2d",
        _ => "Conv3d",
    };
    let weight = tensor(node, "weight")?;
    let shape: Vec<i64> = lift.model.values[weight].shape.iter().map(|&size| size as i64).collect();
    let (kernel, axes) = (&shape[2..], shape.len() - 2);
    let dilation = node.sizes("dilation", axes, 1);
    let padding = match node.text("padding") {
        Some("valid") | None => node.sizes("padding", axes, 0),
        Some(_) => {
            let spans = kernel.iter().zip(&dilation).map(|(kernel, dilation)| (kernel - 1) * dilation);
            let spans: Vec<i64> = spans.collect();
            if spans.iter().any(|span| span % 2 == 1) {
                return refuse("its padding \"same\" is one element longer at the end");
            }
            spans.iter().map(|span| span / 2).collect()
        }
    };
    let stride = node.sizes("stride", axes, 1);
    let layer = of_one(lift, node, kind, "input")?
        .with(shape[0])
        .with(Literal::sizes(kernel))
        .option("stride", Literal::sizes(&stride), 1i64)
        .option("padding", Literal::sizes(&padding), 0i64)
        .option("dilation", Literal::sizes(&dilation), 1i64)
        .option("groups", node.int("groups").unwrap_or(1), 1i64)
        .option("bias", node.tensor("bias").is_some(), true);
    Ok(layer.key("weight", lift.parameter(node, "weight")?).key("bias", lift.parameter(node, "bias")?))
}

fn transposed(lift: &mut Lift<'_>, node: &Node, op: &str) -> Result<Layer> {
    let kind = match op {
        "conv_transpose1d" => "ConvTranspose1d",
        "conv_transpose2d" => "ConvTranspose2d",
        _ => "ConvTranspose3d",
    };
    let weight = tensor(node, "weight")?;
    let shape: Vec<i64> = lift.model.values[weight].shape.iter().map(|&size| size as i64).collect();
    let (groups, axes) = (node.int("groups").unwrap_or(1), shape.len() - 2);
    let sizes = |name: &str, default: i64| Literal::sizes(&node.sizes(name, axes, default));
    let layer = of_one(lift, node, kind, "input")?
        .with(shape[1] * groups)
        .with(Literal::sizes(&shape[2..]))
        .option("stride", sizes("stride", 1), 1i64)
        .option("padding", sizes("padding", 0), 0i64)
        .option("output_padding", sizes("output_padding", 0), 0i64)
        .option("dilation", sizes("dilation", 1), 1i64)
        .option("groups", groups, 1i64)
        .option("bias", node.tensor("bias").is_some(), true);
    Ok(layer.key("weight", lift.parameter(node, "weight")?).key("bias", lift.parameter(node, "bias")?))
}

fn linear(lift: &mut Lift<'_>, node: &Node) -> Result<Layer> {
    let layer = of_one(lift, node, "Linear", "input")?;
    let weight = &lift.model.values[tensor(node, "weight")?];
    let layer = mapping(lift, layer, [weight.shape[1], weight.shape[0]]);
    let layer = layer.option("bias", node.tensor("bias").is_some(), true);
    Ok(layer.key("weight", lift.parameter(node, "weight")?).key("bias", lift.parameter(node, "bias")?))
}

/// Adds the features of an affine map. Those of the input are written if it has more than two axes.
fn mapping(lift: &Lift<'_>, layer: Layer, [inputs, outputs]: [u64; 2]) -> Layer {
    match lift.sample(layer.inputs[0]).len() {
        0..=2 => layer.with(outputs),
        _ => layer.with(inputs).with(outputs),
    }
}

/// Returns the parameter that a product multiplies with, and whether it is stored as `[in, out]`. `None` if it is none.
fn product_weight(lift: &Lift<'_>, node: &Node, op: &str) -> Option<(ValueId, bool)> {
    let name = if op == "addmm" { "mat2" } else if op == "mm" { "mat2" } else { "other" };
    let value = node.tensor(name)?;
    if lift.model.values[value].shape.len() != 2 {
        return None;
    }
    if lift.state(value).is_some() {
        return Some((value, true));
    }
    // The transposed view of a weight.
    let maker = &lift.model.nodes[lift.makers[value]?];
    let source = maker.tensors().next()?;
    let is_turned = matches!(&maker.op[..], "t" | "transpose" | "permute" | "numpy_T");
    (is_turned && lift.state(source).is_some()).then_some((source, false))
}

fn product(lift: &mut Lift<'_>, node: &Node, op: &str) -> Result<Layer> {
    let Some((weight, transposed)) = product_weight(lift, node, op) else { return refuse("its weight is computed") };
    let (input, bias) = match op {
        "addmm" => ("mat1", Some("self")),
        _ => ("self", None),
    };
    for name in ["alpha", "beta"] {
        if node.float(name).is_some_and(|factor| factor != 1.0) {
            return refuse(format!("it has {name}"));
        }
    }
    let layer = of_one(lift, node, "Linear", input)?;
    let shape = &lift.model.values[weight].shape;
    let features = if transposed { [shape[0], shape[1]] } else { [shape[1], shape[0]] };
    let layer = mapping(lift, layer, features).option("bias", bias.is_some(), true).flag("transposed", transposed);
    let bias = match bias {
        Some(bias) => lift.parameter(node, bias)?,
        None => None,
    };
    let key = lift.state(weight).map(|state| &state.key[..]);
    Ok(layer.key("weight", key).key("bias", bias))
}

fn batch_norm(lift: &mut Lift<'_>, node: &Node) -> Result<Layer> {
    let kind = match lift.model.values[tensor(node, "input")?].shape.len() {
        4 => "BatchNorm2d",
        5 => "BatchNorm3d",
        _ => "BatchNorm1d",
    };
    let layer = of_one(lift, node, kind, "input")?
        .option("eps", node.float("eps").unwrap_or(1e-5), 1e-5)
        .option("momentum", node.float("momentum").unwrap_or(0.1), 0.1);
    let layer = affine(lift, node, layer, "affine")?;
    Ok(layer
        .key("running_mean", lift.parameter(node, "running_mean")?)
        .key("running_var", lift.parameter(node, "running_var")?))
}

fn instance_norm(lift: &mut Lift<'_>, node: &Node) -> Result<Layer> {
    if node.tensor("running_mean").is_some() {
        return refuse("it keeps running statistics; InstanceNorm has none here");
    }
    let kind = match lift.model.values[tensor(node, "input")?].shape.len() {
        4 => "InstanceNorm2d",
        5 => "InstanceNorm3d",
        _ => "InstanceNorm1d",
    };
    let layer = of_one(lift, node, kind, "input")?.option("eps", node.float("eps").unwrap_or(1e-5), 1e-5);
    let layer = layer.option("affine", node.tensor("weight").is_some(), false);
    Ok(layer.key("weight", lift.parameter(node, "weight")?).key("bias", lift.parameter(node, "bias")?))
}

fn row_norm(lift: &mut Lift<'_>, node: &Node, kind: &'static str, default: f64) -> Result<Layer> {
    let layer = of_one(lift, node, kind, "input")?;
    let shape = node.ints("normalized_shape").unwrap_or_default();
    let layer = match (shape.len(), lift.sample(layer.inputs[0]).len()) {
        (1, 0..=2) => layer,
        (1, _) => layer.with(Literal::Tuple(shape.into_iter().map(Literal::Int).collect())),
        _ => layer.with(Literal::dims(&shape)),
    };
    let eps = node.float("eps").unwrap_or(default);
    let layer = affine(lift, node, layer.option("eps", eps, default), "elementwise_affine")?;
    let lacks_bias = kind == "LayerNorm" && node.tensor("weight").is_some() && node.tensor("bias").is_none();
    Ok(layer.option("bias", !lacks_bias, true))
}

fn embedding(lift: &mut Lift<'_>, node: &Node) -> Result<Layer> {
    let layer = of_one(lift, node, "Embedding", "indices")?;
    let shape = &lift.model.values[tensor(node, "weight")?].shape;
    let padding = node.int("padding_idx").filter(|&index| index >= 0);
    let layer = layer.with(shape[0]).with(shape[1]);
    let layer = match padding {
        Some(index) => layer.set("padding_idx", index),
        None => layer,
    };
    Ok(layer.key("weight", lift.parameter(node, "weight")?))
}

fn recurrent(lift: &mut Lift<'_>, node: &Node, op: &str) -> Result<Layer> {
    let kind = match op {
        "lstm" => "Lstm",
        "gru" => "Gru",
        _ => "Rnn",
    };
    if !node.is("batch_first", false) {
        return refuse("its sequences do not have the batch first; set `batch_first=True`");
    }
    if node.outputs.iter().skip(1).any(|&state| !lift.readers[state].is_empty() || lift.model.outputs.contains(&state)) {
        return refuse("its last states are read; read the last step of its output instead");
    }
    let begins_at_zero = match node.argument("hx") {
        Some(Argument::Tensors(states)) => states.iter().flatten().all(|&state| is_zero(lift, state)),
        Some(Argument::Tensor(state)) => is_zero(lift, *state),
        _ => false,
    };
    if !begins_at_zero {
        return refuse("its first states are not zero");
    }
    let Some(Argument::Tensors(parameters)) = node.argument("params") else { return refuse("it has no parameters") };
    let keys: Option<Vec<&str>> =
        parameters.iter().map(|value| lift.state((*value)?).map(|state| &state.key[..])).collect();
    let (Some(keys), Some(Some(first)), Some(Some(second))) = (keys, parameters.first(), parameters.get(1)) else {
        return refuse("its parameters are computed");
    };
    let gates = match op {
        "lstm" => 4,
        "gru" => 3,
        _ => 1,
    };
    let hidden = lift.model.values[*first].shape[0] / gates;
    let projected = lift.model.values[*second].shape[1];
    let layers = node.int("num_layers").unwrap_or(1);
    let layer = of_one(lift, node, kind, "input")?
        .with(hidden)
        .option("layers", layers, 1i64)
        .option("bias", node.is("has_biases", true), true)
        .option("dropout", if layers > 1 { node.float("dropout").unwrap_or(0.0) } else { 0.0 }, 0.0)
        .option("bidirectional", node.is("bidirectional", false), false);
    let layer = match op {
        "lstm" => layer.option("proj_size", if projected == hidden { 0 } else { projected }, 0u64),
        "rnn_relu" => layer.set("nonlinearity", "relu"),
        _ => layer,
    };
    // The parameters of one layer: the first one names them all.
    Ok(layer.key("weight_ih_l0", keys.first().copied()))
}

fn is_zero(lift: &Lift<'_>, value: ValueId) -> bool {
    lift.origins[value].numbers().is_some_and(|tensor| tensor.numbers().iter().all(|&number| number == 0.0))
}
