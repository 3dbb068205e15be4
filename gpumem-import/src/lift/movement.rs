//! Operations that move elements: shapes, orders of axes, parts, joins along an axis, pools and resizing.

use super::weighted::{of_one, tensor};
use super::{Arguments, Layer, Lift, Literal, Result, refuse};
use crate::model::{Argument, Node, ValueId};

/// Operations that return what they are given.
const SAME: [&str; 12] = [
    "contiguous", "clone", "alias", "detach", "lift_fresh_copy", "to", "type_as", "_to_copy", "float", "_assert_tensor_metadata", "expand_as", "identity",
];

/// Lifts an operation that moves elements. False if it is another one.
pub(super) fn lift(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result<bool> {
    let output = node.outputs.first().copied();
    match op {
        _ if SAME.contains(&op) => {
            let (Some(output), Some(input)) = (output, node.tensors().next()) else { return Ok(true) };
            if op == "expand_as" && lift.model.values[input].shape != lift.model.values[output].shape {
                return expand(lift, index, node);
            }
            lift.same(output, input);
        }
        "view" | "reshape" | "_unsafe_view" | "flatten" | "unflatten" | "squeeze" | "unsqueeze" | "reshape_as" | "view_as" => {
            let input = tensor(node, "self")?;
            reshape(lift, index, input, node.outputs[0])?;
        }
        "transpose" | "t" | "permute" | "swapaxes" | "numpy_T" => permute(lift, index, node)?,
        "expand" | "broadcast_to" => return expand(lift, index, node),
        "select" | "unbind" => {
            let input = tensor(node, "self")?;
            let Some(dim) = lift.dim(input, node.int("dim").unwrap_or(0)) else { return refuse("it picks samples") };
            let input = lift.operand(input)?;
            for (place, &output) in node.outputs.iter().enumerate() {
                if !is_read(lift, output) {
                    continue;
                }
                let at = if op == "select" { node.int("index").unwrap_or(0) } else { place as i64 };
                lift.add(index, Layer::new("Select", input, output).with(at).option("dim", dim, 1i64));
            }
        }
        "slice" | "narrow" | "split" | "split_with_sizes" | "chunk" | "tensor_split" => parts(lift, index, node, op)?,
        "cat" | "concat" => concat(lift, index, node)?,
        "stack" => stack(lift, index, node)?,
        "matmul" | "bmm" => {
            let (a, b) = (tensor(node, "self")?, tensor(node, if op == "bmm" { "mat2" } else { "other" })?);
            let inputs = vec![lift.operand(a)?, lift.operand(b)?];
            lift.add(index, Layer::join("MatMul", inputs, node.outputs[0]));
        }
        "pad" | "constant_pad_nd" | "reflection_pad2d" | "replication_pad2d" => pad(lift, index, node, op)?,
        "pixel_shuffle" | "pixel_unshuffle" => {
            let (kind, factor) = match op {
                "pixel_shuffle" => ("PixelShuffle", node.int("upscale_factor")),
                _ => ("PixelUnshuffle", node.int("downscale_factor")),
            };
            let layer = of_one(lift, node, kind, "self")?.with(factor.unwrap_or(1));
            lift.add(index, layer);
        }
        "channel_shuffle" => {
            let layer = of_one(lift, node, "ChannelShuffle", "self")?.with(node.int("groups").unwrap_or(1));
            lift.add(index, layer);
        }
        "roll" => {
            let input = tensor(node, "self")?;
            let dims: Option<Vec<i64>> =
                node.ints("dims").unwrap_or_default().into_iter().map(|dim| lift.dim(input, dim)).collect();
            let Some(dims) = dims else { return refuse("it rolls the batch") };
            let shifts = node.ints("shifts").unwrap_or_default();
            let layer = of_one(lift, node, "Roll", "self")?.with(Literal::dims(&shifts)).with(Literal::dims(&dims));
            lift.add(index, layer);
        }
        "glu" => {
            let input = tensor(node, "self")?;
            let Some(dim) = lift.dim(input, node.int("dim").unwrap_or(-1)) else { return refuse("it halves the batch") };
            let rank = lift.sample(input).len() as i64;
            let layer = of_one(lift, node, "Glu", "self")?.option("dim", dim, rank);
            lift.add(index, layer);
        }
        _ if op.contains("pool") => pool(lift, index, node, op)?,
        _ if op.starts_with("upsample") => upsample(lift, index, node, op)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn is_read(lift: &Lift<'_>, value: ValueId) -> bool {
    !lift.readers[value].is_empty() || lift.model.outputs.contains(&value)
}

/// Adds a change of shape, unless a sample keeps its shape.
pub(super) fn reshape(lift: &mut Lift<'_>, index: usize, input: ValueId, output: ValueId) -> Result {
    let (from, to) = (lift.sample(input), lift.sample(output));
    let input = lift.operand(input)?;
    if from == to {
        lift.same(output, input);
        return Ok(());
    }
    let layer = match &to[..] {
        [_] => Layer::new("Flatten", input, output),
        _ => Layer::new("Reshape", input, output).with(Literal::Tuple(to.iter().map(|&size| size.into()).collect())),
    };
    lift.add(index, layer);
    Ok(())
}

/// Returns the order of the axes of a sample after a permutation of all dimensions.
fn order_of_sample(lift: &Lift<'_>, input: ValueId, order: &[usize]) -> Vec<i64> {
    let order = order.iter().filter_map(|&dim| lift.dim(input, dim as i64));
    order.collect()
}

fn permute(lift: &mut Lift<'_>, index: usize, node: &Node) -> Result {
    let (input, output) = (tensor(node, "self")?, node.outputs[0]);
    let rank = lift.model.values[input].shape.len();
    let at = |dim: i64| crate::batch::index(dim, rank);
    let order: Vec<usize> = match node.ints("dims") {
        Some(dims) => dims.into_iter().map(at).collect(),
        None => {
            let (a, b) = (at(node.int("dim0").unwrap_or(0)), at(node.int("dim1").unwrap_or(-1)));
            (0..rank).map(|dim| if dim == a { b } else if dim == b { a } else { dim }).collect()
        }
    };
    let order = order_of_sample(lift, input, &order);
    let sample = lift.sample(input);
    let moved: Vec<i64> = order.iter().copied().filter(|&dim| sample.get(dim as usize - 1) != Some(&1)).collect();
    let input = lift.operand(input)?;
    if order.is_sorted() {
        lift.same(output, input);
        return Ok(());
    }
    if moved.is_sorted() {
        // Only axes of one element change places.
        return reshape(lift, index, input, output);
    }
    let swapped: Vec<i64> = order.iter().enumerate().filter(|(at, dim)| *at as i64 + 1 != **dim).map(|(_, dim)| *dim).collect();
    let layer = match swapped[..] {
        [b, a] => Layer::new("Transpose", input, output).with(a).with(b),
        _ => order.into_iter().fold(Layer::new("Permute", input, output).with(0i64), Layer::with),
    };
    lift.add(index, layer);
    Ok(())
}

fn expand(lift: &mut Lift<'_>, index: usize, node: &Node) -> Result<bool> {
    let (Some(input), output) = (node.tensors().next(), node.outputs[0]) else { return Ok(false) };
    let (from, to) = (lift.sample(input), lift.sample(output));
    let input = lift.operand(input)?;
    if from == to {
        lift.same(output, input);
    } else {
        let sizes = Literal::Tuple(to.iter().map(|&size| size.into()).collect());
        lift.add(index, Layer::new("Expand", input, output).with(sizes));
    }
    Ok(true)
}

fn parts(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result {
    let input = tensor(node, "self")?;
    let rank = lift.model.values[input].shape.len();
    let whole = crate::batch::index(node.int("dim").unwrap_or(0), rank);
    let Some(&size) = lift.model.values[input].shape.get(whole) else { return refuse("it has no such axis") };
    let start = match op {
        "slice" | "narrow" => {
            let start = node.int("start").unwrap_or(0);
            if node.int("step").unwrap_or(1) != 1 {
                return refuse("it takes every other element; the language has no steps in `Slice`");
            }
            if start < 0 { (start + size as i64).max(0) } else { start.min(size as i64) }
        }
        _ => 0,
    };
    let source = lift.operand(input)?;
    let Some(dim) = lift.dim(input, whole as i64) else {
        return if lift.model.values[node.outputs[0]].shape[whole] == size {
            lift.same(node.outputs[0], source);
            Ok(())
        } else {
            refuse("it picks samples")
        };
    };
    let mut start = start as u64;
    for &output in &node.outputs {
        let length = lift.model.values[output].shape[whole];
        if is_read(lift, output) {
            if length == size {
                lift.same(output, source);
            } else {
                let layer = Layer::new("Slice", source, output).with(start);
                let layer = if start + length == size { layer } else { layer.with(start + length) };
                lift.add(index, layer.option("dim", dim, 1i64));
            }
        }
        start += length;
    }
    Ok(())
}

fn tensors(node: &Node) -> Result<Vec<ValueId>> {
    match node.argument("tensors") {
        Some(Argument::Tensors(values)) => Ok(values.iter().copied().flatten().collect()),
        _ => refuse("it has no list of tensors"),
    }
}

fn concat(lift: &mut Lift<'_>, index: usize, node: &Node) -> Result {
    let (values, output) = (tensors(node)?, node.outputs[0]);
    let Some(dim) = lift.dim(output, node.int("dim").unwrap_or(0)) else { return refuse("it joins samples") };
    let rank = lift.sample(output).len() as i64;
    let inputs: Vec<ValueId> = values.into_iter().map(|value| lift.operand(value)).collect::<Result<_>>()?;
    if let [only] = inputs[..] {
        lift.same(output, only);
        return Ok(());
    }
    if (1..inputs.len()).any(|at| inputs[..at].contains(&inputs[at])) {
        return refuse("it joins a value with itself");
    }
    let usual = if rank == 3 { 1 } else { rank };
    lift.add(index, Layer::join("Concat", inputs, output).option("dim", dim, usual));
    Ok(())
}

fn stack(lift: &mut Lift<'_>, index: usize, node: &Node) -> Result {
    let (values, output) = (tensors(node)?, node.outputs[0]);
    let Some(dim) = lift.dim(output, node.int("dim").unwrap_or(0)) else { return refuse("it joins samples") };
    let mut inputs = Vec::new();
    for value in values {
        let value = lift.operand(value)?;
        let mut shape = lift.sample(value);
        shape.insert(dim as usize - 1, 1);
        let wide = lift.between(&shape);
        lift.add(index, Layer::new("Unsqueeze", value, wide).with(dim));
        inputs.push(wide);
    }
    let rank = lift.sample(output).len() as i64;
    let usual = if rank == 3 { 1 } else { rank };
    lift.add(index, Layer::join("Concat", inputs, output).option("dim", dim, usual));
    Ok(())
}

fn pad(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result {
    let (padding, mode) = match op {
        "pad" | "constant_pad_nd" => (node.ints("pad"), node.text("mode").unwrap_or("constant").to_string()),
        "reflection_pad2d" => (node.ints("padding"), "reflect".to_string()),
        _ => (node.ints("padding"), "replicate".to_string()),
    };
    let padding = padding.unwrap_or_default();
    let input = tensor(node, "self")?;
    let rank = lift.sample(input).len();
    // The last pairs may be those of axes that are not padded.
    let pairs = padding.len() / 2;
    let used = (0..pairs).rev().find(|&pair| padding[2 * pair..2 * pair + 2] != [0, 0]).map_or(0, |pair| pair + 1);
    if used == 0 {
        lift.same(node.outputs[0], input);
        return Ok(());
    }
    let width = match (rank, used) {
        (3.., 1 | 2) if pairs >= 2 => 2,
        (4.., 3) => 3,
        (_, 1) => 1,
        (_, 2) => 2,
        _ => return refuse("it pads more axes than `Pad` does"),
    };
    let padding = &padding[..2 * width.min(pairs)];
    let layer = of_one(lift, node, "Pad", "self")?
        .with(if width == rank.saturating_sub(1) { Literal::sizes(padding) } else { Literal::Tuple(padding.iter().map(|&size| size.into()).collect()) })
        .option("mode", &mode[..], "constant")
        .option("value", node.float("value").unwrap_or(0.0), 0.0);
    lift.add(index, layer);
    Ok(())
}

fn pool(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result {
    let axes = match op.chars().find(char::is_ascii_digit) {
        Some('1') => 1,
        Some('2') => 2,
        _ => 3,
    };
    if op.starts_with("adaptive") {
        let kind = match (op.contains("avg"), axes) {
            (true, 1) => "AdaptiveAvgPool1d",
            (true, 2) => "AdaptiveAvgPool2d",
            (true, _) => "AdaptiveAvgPool3d",
            (false, 1) => "AdaptiveMaxPool1d",
            (false, 2) => "AdaptiveMaxPool2d",
            (false, _) => "AdaptiveMaxPool3d",
        };
        let layer = of_one(lift, node, kind, "self")?.with(Literal::sizes(&node.sizes("output_size", axes, 1)));
        lift.add(index, layer);
        return Ok(());
    }
    let kind = match (op.starts_with("max"), axes) {
        (true, 1) => "MaxPool1d",
        (true, 2) => "MaxPool2d",
        (true, _) => "MaxPool3d",
        (false, 1) => "AvgPool1d",
        (false, 2) => "AvgPool2d",
        (false, _) => "AvgPool3d",
    };
    if node.outputs.len() > 1 && is_read(lift, node.outputs[1]) {
        return refuse("its indices are read");
    }
    if node.argument("divisor_override").is_some_and(|divisor| *divisor != Argument::None) {
        return refuse("it has a divisor of its own");
    }
    let kernel = node.sizes("kernel_size", axes, 1);
    let stride = match node.ints("stride") {
        Some(stride) if !stride.is_empty() => node.sizes("stride", axes, 1),
        _ => kernel.clone(),
    };
    let layer = of_one(lift, node, kind, "self")?
        .with(Literal::sizes(&kernel))
        .option("stride", Literal::sizes(&stride), Literal::sizes(&kernel))
        .option("padding", Literal::sizes(&node.sizes("padding", axes, 0)), 0i64)
        .option("dilation", Literal::sizes(&node.sizes("dilation", axes, 1)), 1i64)
        .option("ceil_mode", node.is("ceil_mode", false), false)
        .option("count_include_pad", node.is("count_include_pad", true), true);
    lift.add(index, layer);
    Ok(())
}

fn upsample(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result {
    let mode = match op {
        _ if op.contains("nearest_exact") || op.contains("nearest-exact") => "nearest-exact",
        _ if op.contains("nearest") => "nearest",
        _ if op.contains("bilinear") => "bilinear",
        _ if op.contains("bicubic") => "bicubic",
        _ if op.contains("trilinear") => "trilinear",
        _ => "linear",
    };
    let input = tensor(node, "input").or_else(|_| tensor(node, "self"))?;
    let sizes: Vec<i64> = lift.sample(node.outputs[0])[1..].iter().map(|&size| size as i64).collect();
    let from: Vec<i64> = lift.sample(input)[1..].iter().map(|&size| size as i64).collect();
    let factors: Option<Vec<f64>> = match node.argument("scale_factors") {
        Some(Argument::Floats(factors)) => Some(factors.clone()),
        _ => None,
    };
    let operand = lift.operand(input)?;
    let layer = Layer::new("Upsample", operand, node.outputs[0]);
    let whole = |(size, from): (&i64, &i64)| (size % from == 0).then(|| size / from);
    let ratios: Option<Vec<i64>> = sizes.iter().zip(&from).map(whole).collect();
    let layer = match (factors, ratios) {
        (Some(factors), Some(ratios)) if factors.iter().zip(&ratios).all(|(factor, ratio)| *factor == *ratio as f64) => {
            layer.with(Literal::sizes(&ratios))
        }
        (Some(factors), _) => layer.with(match &factors[..] {
            [first, rest @ ..] if rest.iter().all(|factor| factor == first) => Literal::Float(*first),
            factors => Literal::Tuple(factors.iter().copied().map(Literal::Float).collect()),
        }),
        (None, _) => layer.set("size", Literal::sizes(&sizes)),
    };
    let layer = layer.option("mode", mode, "nearest").option("align_corners", node.is("align_corners", false), false);
    lift.add(index, layer);
    Ok(())
}
