//! Layers with parameters: convolutions, affine maps, normalisations, tables, recurrent layers.

use super::inputs::{of_one, tensor};
use super::weights::{self, Weight};
use super::{Arguments, Layer, Lift, Literal, Result, recurrent, refuse, resize, shapes};
use crate::model::{Node, ValueId};

/// Lifts an operation with parameters. False if it is another one.
pub(super) fn lift(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result<bool> {
    let layer = match op {
        "conv1d" | "conv2d" | "conv3d" => return convolution(lift, index, node, op).map(|()| true),
        "conv_transpose1d" | "conv_transpose2d" | "conv_transpose3d" => transposed(lift, node, op)?,
        "linear" => return linear(lift, index, node).map(|()| true),
        "addmm" | "matmul" | "mm" if product_weight(lift, node, op).is_some() => product(lift, node, op)?,
        "batch_norm" => return batch_norm(lift, index, node).map(|()| true),
        "instance_norm" => instance_norm(lift, node)?,
        "layer_norm" => return row_norm(lift, index, node, "LayerNorm", 1e-5).map(|()| true),
        "rms_norm" => return row_norm(lift, index, node, "RmsNorm", f64::from(f32::EPSILON)).map(|()| true),
        "group_norm" => return group_norm(lift, index, node).map(|()| true),
        "prelu" => {
            lift.needs_plain_batch(tensor(node, "self")?)?;
            let count = lift.model.values[tensor(node, "weight")?].elements().unwrap_or(1);
            of_one(lift, node, "Prelu", "self")?.with(count).key("weight", lift.parameter(node, "weight")?)
        }
        "embedding" => embedding(lift, node)?,
        "embedding_bag" => return embedding_bag(lift, index, node).map(|()| true),
        "lstm" | "gru" | "rnn_tanh" | "rnn_relu" => return recurrent::lift(lift, index, node, op).map(|()| true),
        _ => return Ok(false),
    };
    lift.add(index, layer);
    Ok(true)
}

/// Names weight and bias, and writes `option = false` if the layer has neither.
fn affine(lift: &Lift<'_>, node: &Node, layer: Layer, option: &'static str) -> Result<Layer> {
    let layer = match node.tensor("weight") {
        Some(_) => layer,
        None => layer.set(option, false),
    };
    Ok(layer.key("weight", lift.parameter(node, "weight")?).key("bias", lift.parameter(node, "bias")?))
}

/// Returns the sizes of a weight, with so many axes of a kernel.
fn weight_shape(lift: &Lift<'_>, node: &Node, op: &str) -> Result<Vec<i64>> {
    let shape: Vec<i64> = lift.model.values[tensor(node, "weight")?].shape.iter().map(|&size| size as i64).collect();
    let axes = op.chars().find_map(|c| c.to_digit(10)).unwrap_or(0) as usize;
    if shape.len() == axes + 2 { Ok(shape) } else { refuse("its weight has another number of axes") }
}

fn convolution(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result {
    let (kind, convolve) = match op {
        "conv1d" => ("Conv1d", "Convolve1d"),
        "conv2d" => ("Conv2d", "Convolve2d"),
        _ => ("Conv3d", "Convolve3d"),
    };
    let (input, output) = (tensor(node, "input")?, node.outputs[0]);
    let shape = weight_shape(lift, node, op)?;
    let (mut kernel, axes) = (shape[2..].to_vec(), shape.len() - 2);
    let (mut stride, mut dilation) = (node.sizes("stride", axes, 1), node.sizes("dilation", axes, 1));
    let merged = lift.rows_apart(index, input, axes)?;
    let mut source = match merged {
        Some((rows, _)) => rows,
        None => lift.operand(input)?,
    };
    let mut padding = match node.text("padding") {
        Some("valid") | None => node.sizes("padding", axes, 0),
        Some(_) => {
            let spans: Vec<i64> =
                kernel.iter().zip(&dilation).map(|(kernel, dilation)| (kernel - 1).saturating_mul(*dilation)).collect();
            if spans.iter().any(|span| span % 2 == 1) {
                source = padded_same(lift, index, source, &spans)?;
                vec![0; axes]
            } else {
                spans.iter().map(|span| span / 2).collect()
            }
        }
    };
    let weight = weights::weight(lift, node, 0)?;
    let mut kind = kind;
    if merged.is_some() {
        if !weight.is_plain() {
            return refuse("its weight is computed, and its samples are merged with another axis");
        }
        // A kernel of one element along the axis that is merged with the batch.
        for (sizes, one) in [(&mut kernel, 1), (&mut stride, 1), (&mut dilation, 1), (&mut padding, 0)] {
            sizes.insert(0, one);
        }
        kind = if kind == "Conv1d" { "Conv2d" } else { "Conv3d" };
    }
    let groups = node.int("groups").unwrap_or(1);
    let sizes = |layer: Layer| {
        layer
            .option("stride", Literal::sizes(&stride), 1i64)
            .option("padding", Literal::sizes(&padding), 0i64)
            .option("dilation", Literal::sizes(&dilation), 1i64)
            .option("groups", groups, 1i64)
    };
    if let Weight::Computed(weight) = weight {
        let inputs = vec![source, lift.operand(weight)?];
        return with_bias(lift, index, node, axes, |output| sizes(Layer::join(convolve, inputs, output)));
    }
    let layer = sizes(Layer::new(kind, source, output).with(shape[0]).with(Literal::sizes(&kernel))).option(
        "bias",
        node.tensor("bias").is_some(),
        true,
    );
    let layer = weight.on(layer)?.key("bias", lift.parameter(node, "bias")?);
    match merged {
        Some(_) => lift.add_rows_together(index, layer, output),
        None => lift.add(index, layer),
    }
    Ok(())
}

/// Adds the padding of a convolution that keeps sizes and needs one element more at the end than at the beginning.
fn padded_same(lift: &mut Lift<'_>, index: usize, source: ValueId, spans: &[i64]) -> Result<ValueId> {
    let mut shape = lift.sample(source);
    let Some(first) = shape.len().checked_sub(spans.len()) else { return refuse("its input has too few axes") };
    let mut sides = Vec::new();
    for (place, span) in spans.iter().enumerate() {
        shape[first + place] = shape[first + place].saturating_add(u64::try_from(*span).unwrap_or(0));
        sides.push(((first + place + 1) as i64, [span / 2, span - span / 2]));
    }
    let output = lift.between(&shape);
    resize::padded(lift, index, [source, output], &sides, |layer| layer)?;
    Ok(lift.resolve(output))
}

/// Adds a layer without a bias, and the sum with the bias after it. `axes` is the number of axes after the channels.
fn with_bias(
    lift: &mut Lift<'_>,
    index: usize,
    node: &Node,
    axes: usize,
    layer: impl FnOnce(ValueId) -> Layer,
) -> Result {
    let output = node.outputs[0];
    let Some(bias) = node.tensor("bias") else {
        lift.add(index, layer(output));
        return Ok(());
    };
    let product = lift.between(&lift.sample(output));
    lift.add(index, layer(product));
    let mut shape = lift.sample(bias);
    shape.extend(std::iter::repeat_n(1, axes));
    let bias = lift.shaped(index, bias, shape)?;
    lift.add(index, Layer::join("Add", vec![product, bias], output));
    Ok(())
}

fn transposed(lift: &mut Lift<'_>, node: &Node, op: &str) -> Result<Layer> {
    let kind = match op {
        "conv_transpose1d" => "ConvTranspose1d",
        "conv_transpose2d" => "ConvTranspose2d",
        _ => "ConvTranspose3d",
    };
    lift.needs_plain_batch(tensor(node, "input")?)?;
    let shape = weight_shape(lift, node, op)?;
    let (groups, axes) = (node.int("groups").unwrap_or(1), shape.len() - 2);
    let sizes = |name: &str, default: i64| Literal::sizes(&node.sizes(name, axes, default));
    let layer = of_one(lift, node, kind, "input")?
        .with(shape[1].saturating_mul(groups))
        .with(Literal::sizes(&shape[2..]))
        .option("stride", sizes("stride", 1), 1i64)
        .option("padding", sizes("padding", 0), 0i64)
        .option("output_padding", sizes("output_padding", 0), 0i64)
        .option("dilation", sizes("dilation", 1), 1i64)
        .option("groups", groups, 1i64)
        .option("bias", node.tensor("bias").is_some(), true);
    Ok(weights::weight(lift, node, 1)?.on(layer)?.key("bias", lift.parameter(node, "bias")?))
}

fn linear(lift: &mut Lift<'_>, index: usize, node: &Node) -> Result {
    let (input, output) = (lift.operand(tensor(node, "input")?)?, node.outputs[0]);
    let &[outputs, inputs] = &lift.model.values[tensor(node, "weight")?].shape[..] else {
        return refuse("its weight is no matrix");
    };
    match weights::weight(lift, node, 0)? {
        Weight::Computed(weight) => {
            let weight = lift.operand(weight)?;
            let product = |input, output| Layer::join("MatMul", vec![input, weight], output).flag("transpose_b", true);
            if let &[features] = &lift.sample(input)[..] {
                // The features of a sample are a matrix of one row.
                let row = shapes::reshaped(lift, index, input, &[1, features])?;
                let (rows, whole) = (lift.between(&[1, outputs]), lift.between(&[outputs]));
                lift.add(index, product(row, rows));
                let Some(bias) = node.tensor("bias") else {
                    return shapes::reshape_lifted(lift, index, rows, output);
                };
                shapes::reshape_lifted(lift, index, rows, whole)?;
                let inputs = vec![lift.resolve(whole), lift.operand(bias)?];
                lift.add(index, Layer::join("Add", inputs, output));
                return Ok(());
            }
            with_bias(lift, index, node, 0, |output| product(input, output))
        }
        weight => {
            let is_computed = node.tensor("bias").is_some_and(|bias| lift.state(bias).is_none());
            let layer = |lift: &Lift<'_>, output: ValueId, has_bias: bool| -> Result<Layer> {
                let layer = mapping(lift, Layer::new("Linear", input, output), [inputs, outputs]);
                weight.on(layer.option("bias", has_bias, true))
            };
            if is_computed {
                let layer = layer(lift, output, false)?;
                return with_bias(lift, index, node, 0, |output| Layer { output, ..layer });
            }
            let layer = layer(lift, output, node.tensor("bias").is_some())?.key("bias", lift.parameter(node, "bias")?);
            lift.add(index, layer);
            Ok(())
        }
    }
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
    let name = if op == "matmul" { "other" } else { "mat2" };
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

/// Lifts a product with a weight that is stored as a parameter.
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

fn batch_norm(lift: &mut Lift<'_>, index: usize, node: &Node) -> Result {
    let (input, output) = (tensor(node, "input")?, node.outputs[0]);
    if node.tensor("running_mean").is_none() {
        return refuse("it keeps no running statistics");
    }
    let rank = lift.model.values[input].shape.len();
    let merged = lift.rows_apart(index, input, rank.saturating_sub(2))?;
    let source = match merged {
        Some((rows, _)) => rows,
        None => lift.operand(input)?,
    };
    let kind = match rank + usize::from(merged.is_some()) {
        4 => "BatchNorm2d",
        5 => "BatchNorm3d",
        _ => "BatchNorm1d",
    };
    let layer = Layer::new(kind, source, output).option("eps", node.float("eps").unwrap_or(1e-5), 1e-5).option(
        "momentum",
        node.float("momentum").unwrap_or(0.1),
        0.1,
    );
    let layer = affine(lift, node, layer, "affine")?
        .key("running_mean", lift.parameter(node, "running_mean")?)
        .key("running_var", lift.parameter(node, "running_var")?);
    match merged {
        Some(_) => lift.add_rows_together(index, layer, output),
        None => lift.add(index, layer),
    }
    Ok(())
}

fn instance_norm(lift: &mut Lift<'_>, node: &Node) -> Result<Layer> {
    if node.tensor("running_mean").is_some() {
        return refuse("it keeps running statistics; InstanceNorm has none here");
    }
    lift.needs_plain_batch(tensor(node, "input")?)?;
    let kind = match lift.model.values[tensor(node, "input")?].shape.len() {
        4 => "InstanceNorm2d",
        5 => "InstanceNorm3d",
        _ => "InstanceNorm1d",
    };
    let layer = of_one(lift, node, kind, "input")?.option("eps", node.float("eps").unwrap_or(1e-5), 1e-5);
    let layer = layer.option("affine", node.tensor("weight").is_some(), false);
    Ok(layer.key("weight", lift.parameter(node, "weight")?).key("bias", lift.parameter(node, "bias")?))
}

fn group_norm(lift: &mut Lift<'_>, index: usize, node: &Node) -> Result {
    let (input, output) = (tensor(node, "input")?, node.outputs[0]);
    lift.needs_plain_batch(input)?;
    let layer = of_one(lift, node, "GroupNorm", "input")?.with(node.int("num_groups").unwrap_or(1));
    let layer = layer.option("eps", node.float("eps").unwrap_or(1e-5), 1e-5);
    let (Some(weight), None) = (lift.parameter(node, "weight")?, node.tensor("bias")) else {
        let layer = affine(lift, node, layer, "affine")?;
        lift.add(index, layer);
        return Ok(());
    };
    // A factor without a summand.
    let sample = lift.sample(output);
    let inside = lift.between(&sample);
    lift.add(index, Layer { output: inside, ..layer }.set("affine", false));
    let scale = Layer::new("Scale", inside, output).key("", Some(weight));
    let mut shape = vec![1; sample.len()];
    shape[0] = sample[0] as i64;
    lift.add(index, if sample.len() == 3 { scale } else { scale.set("shape", Literal::dims(&shape)) });
    Ok(())
}

fn row_norm(lift: &mut Lift<'_>, index: usize, node: &Node, kind: &'static str, default: f64) -> Result {
    let layer = of_one(lift, node, kind, "input")?;
    let shape = node.ints("normalized_shape").unwrap_or_default();
    let layer = match (shape.len(), lift.sample(layer.inputs[0]).len()) {
        (1, 0..=2) => layer,
        _ => layer.with(Literal::dims(&shape)),
    };
    let eps = node.float("eps").unwrap_or(default);
    let layer = layer.option("eps", eps, default);
    let is_computed = |name: &str| node.tensor(name).is_some_and(|value| lift.state(value).is_none());
    if !is_computed("weight") && !is_computed("bias") {
        let lacks_bias = kind == "LayerNorm" && node.tensor("weight").is_some() && node.tensor("bias").is_none();
        let layer = affine(lift, node, layer, "elementwise_affine")?.option("bias", !lacks_bias, true);
        lift.add(index, layer);
        return Ok(());
    }
    // Factors and summands that are computed from parameters, such as `1 + weight`.
    let (sample, output) = (lift.sample(node.outputs[0]), node.outputs[0]);
    let mut operands = Vec::new();
    for (name, join) in [("weight", "Mul"), ("bias", "Add")] {
        if let Some(value) = node.tensor(name) {
            operands.push((join, lift.operand(value)?));
        }
    }
    let mut value = lift.between(&sample);
    lift.add(index, Layer { output: value, ..layer.set("elementwise_affine", false) });
    let count = operands.len();
    for (place, (join, operand)) in operands.into_iter().enumerate() {
        let next = if place + 1 == count { output } else { lift.between(&sample) };
        lift.add(index, Layer::join(join, vec![value, operand], next));
        value = next;
    }
    Ok(())
}

fn embedding(lift: &mut Lift<'_>, node: &Node) -> Result<Layer> {
    let layer = of_one(lift, node, "Embedding", "indices")?;
    table(lift, node, layer)
}

/// Adds the size and the parameter of a table of rows.
fn table(lift: &Lift<'_>, node: &Node, layer: Layer) -> Result<Layer> {
    let &[rows, width] = &lift.model.values[tensor(node, "weight")?].shape[..] else {
        return refuse("its weight is no matrix");
    };
    let layer = layer.with(rows).with(width);
    let layer = match node.int("padding_idx").filter(|&index| index >= 0) {
        Some(index) => layer.set("padding_idx", index),
        None => layer,
    };
    Ok(layer.key("weight", lift.parameter(node, "weight")?))
}

/// Lifts a table whose rows of a sample are summed, averaged or compared. Samples of different lengths are refused.
fn embedding_bag(lift: &mut Lift<'_>, index: usize, node: &Node) -> Result {
    let (indices, output) = (tensor(node, "indices")?, node.outputs[0]);
    let weight = tensor(node, "weight")?;
    let (sample, width) = (lift.sample(output), lift.model.values[weight].shape.get(1).copied().unwrap_or(0));
    let Some(count) = lift.model.values[indices].elements().and_then(|all| all.checked_div(lift.batch.size)) else {
        return refuse("it has no samples");
    };
    // Every sample begins where the one before it ends.
    let offsets = node.tensor("offsets").and_then(|offsets| lift.origins[offsets].numbers());
    let is_regular = offsets.is_some_and(|offsets| {
        let numbers = offsets.numbers();
        let expected = (0..lift.batch.size).map(|sample| (sample * count) as f64);
        numbers.len() as u64 >= lift.batch.size
            && numbers.iter().zip(expected).all(|(&number, expected)| number == expected)
    });
    if !is_regular || node.tensor("per_sample_weights").is_some() || node.is("include_last_offset", false) {
        return refuse("its bags differ in length, or have weights");
    }
    if sample != [width] || node.int("padding_idx").is_some_and(|index| index >= 0) {
        return refuse("its bags skip padding");
    }
    let kind = match node.int("mode").unwrap_or(0) {
        0 => "Sum",
        1 => "Mean",
        _ => "Max",
    };
    let steps = lift.shaped(index, indices, vec![count])?;
    let rows = lift.between(&[count, width]);
    let layer = table(lift, node, Layer::new("Embedding", steps, rows))?;
    lift.add(index, layer);
    lift.add(index, Layer::new(kind, rows, output).with(1i64));
    Ok(())
}
