//! Operations that resize maps and signals: padding, pooling, resampling.

use super::inputs::tensor;
use super::{Arguments, Layer, Lift, Literal, Result, refuse};
use crate::model::{Argument, Node, ValueId};

/// Lifts an operation that resizes. False if it is another one.
pub(super) fn lift(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result<bool> {
    match op {
        _ if op == "pad"
            || op.ends_with("_pad_nd")
            || op.contains("_pad1d")
            || op.contains("_pad2d")
            || op.contains("_pad3d") =>
        {
            pad(lift, index, node, op)?;
        }
        "im2col" => patches(lift, index, node)?,
        _ if op.contains("pool") && !op.contains("unpool") && !op.contains("fractional") => {
            pool(lift, index, node, op)?
        }
        _ if (op.starts_with("upsample") || op.starts_with("_upsample")) && keeps_size(lift, node) => {
            let input = lift.operand(tensor(node, "self").or_else(|_| tensor(node, "input"))?)?;
            lift.same(node.outputs[0], input);
        }
        _ if op.starts_with("upsample") || op.starts_with("_upsample") => upsample(lift, index, node, op)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// True for a change of size to the size that is there, which returns what it is given.
fn keeps_size(lift: &Lift<'_>, node: &Node) -> bool {
    let input = node.tensors().next().map(|input| &lift.model.values[input].shape);
    let is_scaled = ["scale_factors", "scales_h", "scales_w", "scales", "scales_d"].into_iter();
    let mut factors = is_scaled.filter_map(|name| node.argument(name));
    let is_one = |argument: &Argument| match argument {
        Argument::Float(factor) => *factor == 1.0,
        Argument::Floats(factors) => factors.iter().all(|factor| *factor == 1.0),
        _ => true,
    };
    input == node.outputs.first().map(|&output| &lift.model.values[output].shape) && factors.all(is_one)
}

/// The most elements of windows that overlap.
const MOST_ELEMENTS: u64 = 64;

/// Padding of an axis of a sample: the dimension of the language, and elements at both ends.
type Sides = (i64, [i64; 2]);

fn pad(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result {
    let (padding, mode) = match op {
        "pad" | "constant_pad_nd" => (node.ints("pad"), node.text("mode").unwrap_or("constant").to_string()),
        _ if op.starts_with("reflection") => (node.ints("padding"), "reflect".to_string()),
        _ if op.starts_with("circular") => (node.ints("padding"), "circular".to_string()),
        _ => (node.ints("padding"), "replicate".to_string()),
    };
    let (value, output) = (tensor(node, "self")?, node.outputs[0]);
    let rank = lift.model.values[value].shape.len() as i64;
    let mut sides: Vec<Sides> = Vec::new();
    for (place, pair) in padding.unwrap_or_default().chunks(2).enumerate() {
        let &[low, high] = pair else { return refuse("its padding is no list of pairs") };
        if [low, high] != [0, 0] {
            match lift.dim(value, rank - 1 - place as i64) {
                Some(dim) => sides.push((dim, [low, high])),
                None => return refuse("it pads the batch"),
            }
        }
    }
    let fill = node.float("value").unwrap_or(0.0);
    // The language has no infinity, and nothing is below the least number.
    let fill = if fill.is_finite() { fill } else { f64::from(f32::MAX) * fill.signum() };
    let input = lift.operand(value)?;
    let options = |layer: Layer| layer.option("mode", &mode[..], "constant").option("value", fill, 0.0);
    padded(lift, index, [input, output], &sides, options)
}

/// Adds a padding of any axes: of the last ones at once, of others one by one as rows of maps.
pub(super) fn padded(
    lift: &mut Lift<'_>,
    index: usize,
    [input, output]: [ValueId; 2],
    sides: &[Sides],
    options: impl Fn(Layer) -> Layer,
) -> Result {
    let shape = lift.sample(input);
    let rank = shape.len() as i64;
    let Some(first) = sides.iter().map(|(dim, _)| *dim).min() else {
        lift.same(output, input);
        return Ok(());
    };
    let count = rank + 1 - first;
    if count <= 2 || count == 3 && rank == 4 {
        let of = |dim: i64| sides.iter().find(|(other, _)| *other == dim).map_or([0, 0], |(_, sides)| *sides);
        // A map has four sides and a volume six, also if some of them are not padded.
        let axes = if rank >= 3 { count.max(2) } else { count };
        let all: Vec<i64> = (0..axes).flat_map(|place| of(rank - place)).collect();
        let is_whole = axes == rank - 1 || rank <= 2 && axes == 1;
        let padding = if is_whole { Literal::sizes(&all) } else { Literal::dims(&all) };
        lift.add(index, options(Layer::new("Pad", input, output).with(padding)));
        return Ok(());
    }
    let (mut current, mut shape) = (input, shape);
    for (place, (dim, [low, high])) in sides.iter().enumerate() {
        let at = match usize::try_from(*dim - 1) {
            Ok(at) if at < shape.len() => at,
            _ => return refuse("it pads an axis that is not there"),
        };
        let inner = super::shapes::elements(&shape[at + 1..]);
        let outer = super::shapes::elements(&shape[..at]);
        let rows = lift.between(&[outer, shape[at], inner]);
        super::shapes::reshape_lifted(lift, index, current, rows)?;
        let Some(longer) = low.checked_add(*high).and_then(|both| shape[at].checked_add_signed(both)) else {
            return refuse("it cuts off more than there is");
        };
        let wide = lift.between(&[outer, longer, inner]);
        let rows = lift.resolve(rows);
        lift.add(index, options(Layer::new("Pad", rows, wide).with(Literal::dims(&[0, 0, *low, *high]))));
        shape[at] = longer;
        let next = if place + 1 == sides.len() { output } else { lift.between(&shape) };
        super::shapes::reshape_lifted(lift, index, wide, next)?;
        current = lift.resolve(next);
    }
    Ok(())
}

fn pool(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result {
    let axes = match op.chars().find_map(|c| c.to_digit(10)) {
        Some(axes @ 1..=3) => axes as usize,
        _ => return refuse("the language has no such pool"),
    };
    let (value, output) = (tensor(node, "self")?, node.outputs[0]);
    if node.outputs.len() > 1 && lift.is_read(node.outputs[1]) {
        return refuse("its indices are read");
    }
    if node.argument("divisor_override").is_some_and(|divisor| *divisor != Argument::None) {
        return refuse("it has a divisor of its own");
    }
    let merged = lift.rows_apart(index, value, axes)?;
    let (input, place) = match merged {
        Some((rows, _)) => (rows, axes + 1),
        None => (lift.operand(value)?, axes),
    };
    let is_mean = op.contains("avg");
    let family = ["AvgPool1d", "AvgPool2d", "AvgPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d"];
    let adaptive = [
        "AdaptiveAvgPool1d",
        "AdaptiveAvgPool2d",
        "AdaptiveAvgPool3d",
        "AdaptiveMaxPool1d",
        "AdaptiveMaxPool2d",
        "AdaptiveMaxPool3d",
    ];
    let at = place - 1 + if is_mean { 0 } else { 3 };
    // The axis that is merged with the batch stays as it is.
    let sizes = |name: &str, default: i64, kept: i64| {
        let own = node.sizes(name, axes, default);
        if merged.is_some() { [vec![kept], own].concat() } else { own }
    };
    let layer = if op.starts_with("adaptive") {
        let kept = merged.map_or(1, |(_, factor)| factor as i64);
        Layer::new(adaptive[at], input, output).with(Literal::sizes(&sizes("output_size", 1, kept)))
    } else {
        let kernel = sizes("kernel_size", 1, 1);
        let stride = match node.ints("stride") {
            Some(stride) if !stride.is_empty() => sizes("stride", 1, 1),
            _ => kernel.clone(),
        };
        Layer::new(family[at], input, output)
            .with(Literal::sizes(&kernel))
            .option("stride", Literal::sizes(&stride), Literal::sizes(&kernel))
            .option("padding", Literal::sizes(&sizes("padding", 0, 0)), 0i64)
            .option("dilation", Literal::sizes(&sizes("dilation", 1, 1)), 1i64)
            .option("ceil_mode", node.is("ceil_mode", false), false)
            .option("count_include_pad", node.is("count_include_pad", true), true)
    };
    match merged {
        Some(_) => lift.add_rows_together(index, layer, output),
        None => lift.add(index, layer),
    }
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
    lift.needs_plain_batch(input)?;
    let sizes: Vec<i64> = lift.sample(node.outputs[0])[1..].iter().map(|&size| size as i64).collect();
    let from: Vec<i64> = lift.sample(input)[1..].iter().map(|&size| size as i64).collect();
    let factors: Option<Vec<f64>> = match node.argument("scale_factors") {
        Some(Argument::Floats(factors)) => Some(factors.clone()),
        _ => None,
    };
    let operand = lift.operand(input)?;
    let layer = Layer::new("Upsample", operand, node.outputs[0]);
    let whole = |(size, from): (&i64, &i64)| (*from > 0 && size % from == 0).then(|| size / from);
    let ratios: Option<Vec<i64>> = sizes.iter().zip(&from).map(whole).collect();
    let layer = match (factors, ratios) {
        (Some(factors), Some(ratios))
            if factors.iter().zip(&ratios).all(|(factor, ratio)| *factor == *ratio as f64) =>
        {
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

/// Lifts the elements of windows as channels: other axes if windows do not overlap, else a convolution with a constant.
fn patches(lift: &mut Lift<'_>, index: usize, node: &Node) -> Result {
    let (value, output) = (tensor(node, "self")?, node.outputs[0]);
    lift.needs_plain_batch(value)?;
    let &[channels, height, width] = &lift.sample(value)[..] else { return refuse("its input is no map") };
    let sizes = |name: &str, default: i64| -> Result<[u64; 2]> {
        match node.sizes(name, 2, default)[..] {
            [a, b] => Ok([a.max(0) as u64, b.max(0) as u64]),
            _ => refuse("its sizes are no pairs"),
        }
    };
    let (kernel, stride) = (sizes("kernel_size", 1)?, sizes("stride", 1)?);
    let (padding, dilation) = (sizes("padding", 0)?, sizes("dilation", 1)?);
    if kernel.contains(&0) || stride.contains(&0) {
        return refuse("its windows have no elements");
    }
    let input = lift.operand(value)?;
    if kernel == stride && padding == [0, 0] && dilation == [1, 1] && height % kernel[0] == 0 && width % kernel[1] == 0
    {
        let apart = [channels, height / kernel[0], kernel[0], width / kernel[1], kernel[1]];
        let apart = super::shapes::reshaped(lift, index, input, &apart)?;
        let turned = lift.between(&[channels, kernel[0], kernel[1], height / kernel[0], width / kernel[1]]);
        super::shapes::permuted(lift, index, apart, vec![1, 3, 5, 2, 4], turned)?;
        let turned = lift.resolve(turned);
        return super::shapes::reshape_lifted(lift, index, turned, output);
    }
    let count = kernel[0].saturating_mul(kernel[1]);
    if count > MOST_ELEMENTS {
        return refuse(format!("its windows overlap and have {count} elements"));
    }
    // Each filter copies one element of a window.
    let ones = (0..count * count).map(|at| f64::from(u8::from(at / count == at % count))).collect();
    let filters = lift.between(&[1, count, kernel[0], kernel[1]]);
    let layer = lift.constant(index, filters, vec![1, count, kernel[0], kernel[1]], ones)?;
    lift.add(index, Layer { output: filters, ..layer });
    let repeated = lift.between(&[channels, count, kernel[0], kernel[1]]);
    super::shapes::expand(lift, index, filters, repeated)?;
    let repeated = lift.resolve(repeated);
    let weight = [channels.saturating_mul(count), 1, kernel[0], kernel[1]];
    let weight = super::shapes::reshaped(lift, index, repeated, &weight)?;
    let out = |axis: usize, size: u64| -> Option<u64> {
        let span = dilation[axis].checked_mul(kernel[axis] - 1)?.checked_add(1)?;
        Some(size.checked_add(padding[axis].checked_mul(2)?)?.checked_sub(span)? / stride[axis] + 1)
    };
    let (Some(rows), Some(columns)) = (out(0, height), out(1, width)) else {
        return refuse("its windows are larger than the map");
    };
    let maps = lift.between(&[channels.saturating_mul(count), rows, columns]);
    let literal = |sizes: [u64; 2]| Literal::sizes(&sizes.map(|size| size as i64));
    let layer = Layer::join("Convolve2d", vec![input, weight], maps)
        .option("stride", literal(stride), 1i64)
        .option("padding", literal(padding), 0i64)
        .option("dilation", literal(dilation), 1i64)
        .option("groups", channels, 1u64);
    lift.add(index, layer);
    super::shapes::reshape_lifted(lift, index, maps, output)
}
