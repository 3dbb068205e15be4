//! Convolutions, pooling and resizing.

use super::super::call::{Call, Outputs, Result, malformed};
use super::super::layout::{channels_last, dense};
use super::super::meta::{Backward, Eager, Gradients, Tensor};
use crate::model::{Argument, Dtype};

/// Returns an argument for each of `n` dimensions.
fn each(c: &Call<'_>, name: &str, n: usize, default: u64) -> Result<Vec<u64>> {
    let sizes = match c.ints(name) {
        Some(sizes) if !sizes.is_empty() => super::super::call::sizes_of(&sizes)?,
        _ => vec![default],
    };
    match sizes[..] {
        [one] => Ok(vec![one; n]),
        _ if sizes.len() == n => Ok(sizes),
        _ => malformed(format!("has {} sizes `{name}` for {n} dimensions", sizes.len())),
    }
}

/// The sizes of a window along one dimension.
#[derive(Clone, Copy)]
struct Window {
    size: u64,
    stride: u64,
    padding: u64,
    dilation: u64,
}

impl Window {
    /// Returns the positions that the window has along `size` elements. `None` if it is larger than they are.
    fn positions(self, size: u64, rounds_up: bool) -> Option<u64> {
        let padded = size.checked_add(self.padding.checked_mul(2)?)?;
        let extent = self.dilation.checked_mul(self.size.checked_sub(1)?)?.checked_add(1)?;
        let room = padded.checked_sub(extent)?;
        let steps = if rounds_up { room.div_ceil(self.stride.max(1)) } else { room / self.stride.max(1) };
        // A window that begins in the padding after the last element is left out.
        let is_outside = rounds_up && steps.checked_mul(self.stride)? >= size.checked_add(self.padding)?;
        Some(steps + 1 - u64::from(is_outside))
    }
}

/// The sizes of windows along the spatial dimensions.
fn windows(c: &Call<'_>, kernel: &[u64]) -> Result<Vec<Window>> {
    let n = kernel.len();
    let (stride, padding, dilation) = (each(c, "stride", n, 1)?, each(c, "padding", n, 0)?, each(c, "dilation", n, 1)?);
    let window =
        |dim: usize| Window { size: kernel[dim], stride: stride[dim], padding: padding[dim], dilation: dilation[dim] };
    Ok((0..n).map(window).collect())
}

fn convolved(c: &Call<'_>, input: &Tensor, weight: &Tensor, bias: Option<&Tensor>, shape: &[u64]) -> Tensor {
    let output = like_images(c, input, shape, input.dtype);
    let shapes = [Some(input), Some(weight), bias].map(|tensor| tensor.map(|tensor| tensor.shape.clone()));
    let is_last = input.is_channels_last();
    c.e.record(&[&output], &[Some(input), Some(weight), bias], vec![Some(input), Some(weight)], move |b| {
        let one = |(index, shape): (usize, &Option<Vec<u64>>)| {
            shape.as_ref().filter(|_| b.needs(index)).map(|shape| images(b.e, shape, is_last, b.gradient.dtype))
        };
        shapes.iter().enumerate().map(one).collect()
    });
    output
}

/// Makes a tensor of images, with channels innermost in memory if `is_last`.
fn images(e: &Eager, shape: &[u64], is_last: bool, dtype: Dtype) -> Tensor {
    let last = channels_last(shape).filter(|_| is_last);
    e.strided(shape, last.unwrap_or_else(|| dense(shape)), dtype)
}

/// The gradient of an image: it lies in memory as the image does.
fn image_gradient(input: &Tensor) -> impl Fn(&Backward<'_>) -> Gradients + 'static {
    let (shape, is_last) = (input.shape.clone(), input.is_channels_last());
    move |b| vec![Some(images(b.e, &shape, is_last, b.gradient.dtype))]
}

/// `conv1d`, `conv2d`, `conv3d`, `conv_transpose2d` and `convolution`.
pub(super) fn convolution(c: &Call<'_>) -> Outputs {
    let all = c.e.lowered([Some(c.tensor("input")?), Some(c.tensor("weight")?), c.optional("bias")?]);
    let [Some(input), Some(weight), bias] = all else { return malformed("has no weight") };
    let Some(kernel) = weight.shape.get(2..).filter(|kernel| !kernel.is_empty()) else {
        return malformed(format!("has a weight of shape {:?}", weight.shape));
    };
    let n = kernel.len();
    // An input without a batch is one sample.
    let is_sample = input.rank() == n + 1;
    let input = if is_sample { c.e.unsqueezed(&input, 0) } else { input };
    if input.rank() != n + 2 {
        return malformed(format!("convolves {:?} with {:?}", input.shape, weight.shape));
    }
    let is_transposed = c.node.op.contains("transpose") || c.flag("transposed", false);
    let mut shape = vec![input.shape[0]];
    if is_transposed {
        let groups = c.int("groups").and_then(|groups| u64::try_from(groups).ok()).unwrap_or(1);
        shape.push(weight.shape[1].saturating_mul(groups));
        let added = each(c, "output_padding", n, 0)?;
        for ((window, &size), added) in windows(c, kernel)?.iter().zip(&input.shape[2..]).zip(added) {
            let extent = window.dilation.saturating_mul(window.size.saturating_sub(1)).saturating_add(1);
            let whole =
                size.saturating_sub(1).saturating_mul(window.stride).saturating_add(extent).saturating_add(added);
            let Some(size) = whole.checked_sub(window.padding.saturating_mul(2)) else {
                return malformed("pads more than there is");
            };
            shape.push(size);
        }
    } else {
        shape.push(weight.shape[0]);
        match c.text("padding") {
            Some("same") => shape.extend(&input.shape[2..]),
            _ => {
                for (window, &size) in windows(c, kernel)?.iter().zip(&input.shape[2..]) {
                    let Some(size) = window.positions(size, false) else {
                        return malformed(format!("convolves {:?} with {:?}", input.shape, weight.shape));
                    };
                    shape.push(size);
                }
            }
        }
    }
    let output = convolved(c, &input, &weight, bias.as_ref(), &shape);
    Ok(vec![if is_sample { c.e.squeezed(&output, &[0]) } else { output }])
}

/// Returns the number of dimensions over which an operation pools.
fn spatial(c: &Call<'_>) -> usize {
    let op = &c.node.op;
    if op.contains("1d") {
        1
    } else if op.contains("3d") {
        3
    } else {
        2
    }
}

/// Returns the shape after pooling.
fn pooled(c: &Call<'_>, input: &Tensor) -> Result<Vec<u64>> {
    let n = spatial(c);
    let Some(outer) = input.rank().checked_sub(n) else { return malformed(format!("pools {:?}", input.shape)) };
    let kernel = each(c, "kernel_size", n, 1)?;
    let mut windows = windows(c, &kernel)?;
    if c.ints("stride").is_none_or(|stride| stride.is_empty()) {
        windows.iter_mut().for_each(|window| window.stride = window.size);
    }
    let rounds_up = c.flag("ceil_mode", false);
    let (kept, pooled) = input.shape.split_at(outer);
    let mut shape = kept.to_vec();
    for (window, &size) in windows.iter().zip(pooled) {
        match window.positions(size, rounds_up) {
            Some(size) => shape.push(size),
            None => return malformed(format!("pools {:?}", input.shape)),
        }
    }
    Ok(shape)
}

/// `max_pool1d`, `max_pool2d`, `max_pool3d`, with or without indices: the input and the indices are kept.
pub(super) fn max_pool(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let shape = if c.node.op.starts_with("adaptive") { adaptive_shape(c, &input)? } else { pooled(c, &input)? };
    let (output, indices) = (like_images(c, &input, &shape, input.dtype), like_images(c, &input, &shape, Dtype::I64));
    c.e.record(&[&output], &[Some(&input)], vec![Some(&input), Some(&indices)], image_gradient(&input));
    Ok(if c.node.outputs.len() > 1 { vec![output, indices] } else { vec![output] })
}

/// Makes a tensor of images whose channels are innermost if the input's are.
fn like_images(c: &Call<'_>, input: &Tensor, shape: &[u64], dtype: Dtype) -> Tensor {
    images(c.e, shape, input.is_channels_last(), dtype)
}

/// `avg_pool2d` and others: the input is kept.
pub(super) fn avg_pool(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let shape = pooled(c, &input)?;
    Ok(vec![averaged(c, &input, &shape)])
}

fn averaged(c: &Call<'_>, input: &Tensor, shape: &[u64]) -> Tensor {
    let output = like_images(c, input, shape, input.dtype);
    c.e.record(&[&output], &[Some(input)], vec![Some(input)], image_gradient(input));
    output
}

/// Returns the shape after adaptive pooling. Sizes that are `None` are the input's.
fn adaptive_shape(c: &Call<'_>, input: &Tensor) -> Result<Vec<u64>> {
    let n = spatial(c);
    let Some(outer) = input.rank().checked_sub(n) else { return malformed(format!("pools {:?}", input.shape)) };
    let recorded = c.output_shape(0)?;
    let own = match c.argument("output_size") {
        Some(Argument::Int(_) | Argument::Ints(_)) => each(c, "output_size", n, 1)?,
        _ => recorded.get(outer..).unwrap_or_default().to_vec(),
    };
    Ok([&input.shape[..outer], &own].concat())
}

pub(super) fn adaptive_avg_pool(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let n = spatial(c);
    let shape = adaptive_shape(c, &input)?;
    if n == 1 {
        // It is pooled as an image of one row.
        let image = c.e.unsqueezed(&input, input.rank() - 1);
        let mut shape = shape;
        shape.insert(shape.len() - 1, 1);
        let is_mean = shape.last() == Some(&1);
        let output = if is_mean { c.e.averaged(&image, &shape) } else { averaged(c, &image, &shape) };
        return Ok(vec![c.e.squeezed(&output, &[shape.len() - 2])]);
    }
    let is_mean = shape.iter().rev().take(n).all(|&size| size == 1);
    if is_mean {
        return Ok(vec![c.e.averaged(&input, &shape)]);
    }
    Ok(vec![averaged(c, &input, &shape)])
}

/// `upsample_nearest2d`, `upsample_bilinear2d` and others: only sizes are kept.
pub(super) fn upsample(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let recorded = c.output_shape(0)?;
    let Some(kept) = input.shape.get(..2).filter(|_| recorded.len() == input.rank()) else {
        return malformed(format!("resizes {:?} to {recorded:?}", input.shape));
    };
    let shape = [kept, &recorded[2..]].concat();
    let output = like_images(c, &input, &shape, input.dtype);
    c.e.record(&[&output], &[Some(&input)], Vec::new(), image_gradient(&input));
    Ok(vec![output])
}
