//! Copies: joined, repeated, padded, converted, and made from nothing.

use super::super::call::{Call, Outputs, malformed};
use super::super::layout::channels_last;
use super::super::meta::{Eager, Tensor};
use super::elementwise::promoted;
use super::views::{same, zeros_of};
use crate::model::{Argument, Dtype};

pub(super) fn clone(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    if matches!(c.argument("memory_format"), Some(Argument::Other | Argument::Int(_))) {
        return Ok(vec![in_format(c, &input)]);
    }
    let copy = c.e.like(&input);
    c.e.record(&[&copy], &[Some(&input)], Vec::new(), same);
    Ok(vec![copy])
}

/// Returns a recorded copy in the layout that the file says of the output, which is contiguous or channels last.
fn in_format(c: &Call<'_>, input: &Tensor) -> Tensor {
    let recorded = c.node.outputs.first().and_then(|&id| c.model.values.get(id)?.strides.as_ref());
    let last = channels_last(&input.shape).filter(|last| recorded == Some(last));
    let strides = last.unwrap_or_else(|| super::super::layout::dense(&input.shape));
    let copy = c.e.strided(&input.shape, strides, input.dtype);
    c.e.record(&[&copy], &[Some(input)], Vec::new(), same);
    copy
}

pub(super) fn contiguous(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let recorded = c.node.outputs.first().and_then(|&id| c.model.values.get(id)?.strides.as_ref());
    let is_last = channels_last(&input.shape).is_some_and(|last| recorded == Some(&last))
        && c.argument("memory_format").is_some();
    let is_done = if is_last { input.is_channels_last() } else { input.is_contiguous() };
    Ok(vec![if is_done { input } else { in_format(c, &input) }])
}

pub(super) fn to(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let other = c.optional("other")?;
    let dtype = match (&c.node.op[..], c.dtype("dtype"), other) {
        (_, Some(dtype), _) => dtype,
        (_, None, Some(other)) => other.dtype,
        ("float", ..) => Dtype::F32,
        ("half", ..) => Dtype::F16,
        ("bfloat16", ..) => Dtype::Bf16,
        ("double", ..) => Dtype::F64,
        ("long", ..) => Dtype::I64,
        _ => input.dtype,
    };
    let is_copied = c.flag("copy", false) || &c.node.op[..] == "_to_copy";
    Ok(vec![if is_copied { c.e.copied(&input, dtype) } else { c.e.cast(&input, dtype) }])
}

impl Eager {
    /// Joins tensors along a dimension. The gradients are parts of the whole one.
    pub fn joined(&self, tensors: &[Tensor], dim: usize) -> super::super::call::Result {
        let tensors: Vec<&Tensor> = tensors.iter().filter(|tensor| tensor.shape != [0]).collect();
        let Some(first) = tensors.first() else { return malformed("joins nothing") };
        if tensors.iter().any(|tensor| tensor.rank() != first.rank()) || dim >= first.rank() {
            return malformed("joins tensors of different ranks");
        }
        let sizes: Vec<u64> = tensors.iter().map(|tensor| tensor.shape[dim]).collect();
        let mut shape = first.shape.clone();
        shape[dim] = sizes.iter().fold(0, |sum: u64, &size| sum.saturating_add(size));
        let last = channels_last(&shape).filter(|_| tensors.iter().all(|tensor| tensor.is_channels_last()));
        let strides = last.unwrap_or_else(|| super::super::layout::dense(&shape));
        let output = self.strided(&shape, strides, promoted(&tensors, false));
        let inputs: Vec<Option<&Tensor>> = tensors.iter().copied().map(Some).collect();
        self.record(&[&output], &inputs, Vec::new(), move |b| {
            let part = |(index, &size): (usize, &u64)| {
                let mut shape = b.gradient.shape.clone();
                *shape.get_mut(dim)? = size;
                b.needs(index).then(|| b.gradient.alias(shape, b.gradient.strides.clone()))
            };
            sizes.iter().enumerate().map(part).collect()
        });
        Ok(output)
    }

    /// Joins tensors along a new dimension.
    pub fn stacked(&self, tensors: &[Tensor], dim: usize) -> super::super::call::Result {
        let Some(first) = tensors.first() else { return malformed("stacks nothing") };
        if dim > first.rank() {
            return malformed("stacks along a dimension that is not there");
        }
        let mut shape = first.shape.clone();
        shape.insert(dim, tensors.len() as u64);
        let output = self.new_tensor(&shape, promoted(&tensors.iter().collect::<Vec<_>>(), false));
        let inputs: Vec<Option<&Tensor>> = tensors.iter().map(Some).collect();
        self.record(&[&output], &inputs, Vec::new(), move |b| {
            let part = |&is_needed: &bool| (is_needed && dim < b.gradient.rank()).then(|| b.gradient.without(dim));
            b.needs.iter().map(part).collect()
        });
        Ok(output)
    }
}

pub(super) fn cat(c: &Call<'_>) -> Outputs {
    let tensors: Vec<Tensor> = c.tensors("tensors")?.into_iter().flatten().collect();
    let rank = tensors.iter().find(|tensor| tensor.shape != [0]).map_or(1, Tensor::rank);
    let dim = c.dim("dim", 0, rank)?;
    Ok(vec![c.e.joined(&tensors, dim)?])
}

pub(super) fn stack(c: &Call<'_>) -> Outputs {
    let tensors: Vec<Tensor> = c.tensors("tensors")?.into_iter().flatten().collect();
    let dim = c.dim("dim", 0, tensors.first().map_or(0, Tensor::rank) + 1)?;
    Ok(vec![c.e.stacked(&tensors, dim)?])
}

/// `roll`, `flip`, `tril`, `cumsum` and others whose output and gradient are contiguous and of the input's shape.
pub(super) fn rearranged(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let dtype = match c.dtype("dtype") {
        Some(dtype) => dtype,
        None if input.is_float() => input.dtype,
        None => c.output_dtype(0).unwrap_or(input.dtype),
    };
    let output = match &c.node.op[..] {
        "cumsum" => c.e.like_as(&input, dtype),
        _ => c.e.new_tensor(&input.shape, dtype),
    };
    let is_like = &c.node.op[..] == "cumsum";
    c.e.record(&[&output], &[Some(&input)], Vec::new(), move |b| {
        // grad.flip(dim).cumsum(dim).flip(dim)
        let _flipped = is_like.then(|| [b.e.like(b.gradient), b.e.like(b.gradient)]);
        vec![Some(if is_like { b.e.like(b.gradient) } else { b.fresh(&b.gradient.shape) })]
    });
    Ok(vec![output])
}

pub(super) fn repeat(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let mut repeats = super::super::call::sizes_of(&c.ints("repeats").or_else(|| c.ints("dims")).unwrap_or_default())?;
    if c.node.op == "tile" {
        let missing = input.rank().saturating_sub(repeats.len());
        repeats.splice(0..0, vec![1; missing]);
    }
    let Some(extra) = repeats.len().checked_sub(input.rank()) else {
        return malformed("repeats along fewer dimensions than there are");
    };
    let size = |(dim, &count): (usize, &u64)| {
        count.saturating_mul(dim.checked_sub(extra).and_then(|dim| input.shape.get(dim)).copied().unwrap_or(1))
    };
    let shape: Vec<u64> = repeats.iter().enumerate().map(size).collect();
    let output = c.e.new_tensor(&shape, input.dtype);
    c.e.record(&[&output], &[Some(&input)], Vec::new(), zeros_of(input.shape.clone()));
    Ok(vec![output])
}

pub(super) fn pad(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let pads = c.ints("pad").or_else(|| c.ints("padding")).unwrap_or_default();
    let is_constant = c.text("mode").is_none_or(|mode| mode == "constant")
        && !c.node.op.contains("flect")
        && !c.node.op.contains("repl");
    if pads.iter().all(|&pad| pad == 0) {
        if !is_constant {
            return Ok(vec![input]);
        }
        let copy = c.e.like(&input);
        c.e.record(&[&copy], &[Some(&input)], Vec::new(), same);
        return Ok(vec![copy]);
    }
    let mut shape = input.shape.clone();
    for (size, pads) in shape.iter_mut().rev().zip(pads.chunks(2)) {
        let added = pads.iter().fold(0i64, |sum, &pad| sum.saturating_add(pad));
        let Some(padded) = size.checked_add_signed(added) else { return malformed(format!("is padded by {pads:?}")) };
        *size = padded;
    }
    let last = channels_last(&shape).filter(|_| is_constant && input.is_channels_last());
    let strides = last.unwrap_or_else(|| super::super::layout::dense(&shape));
    let output = c.e.strided(&shape, strides, input.dtype);
    // Other modes read the input when their gradient is computed.
    let saved = vec![Some(&input).filter(|_| !is_constant)];
    c.e.record(&[&output], &[Some(&input)], saved, zeros_of(input.shape.clone()));
    Ok(vec![output])
}

/// Shuffles of pixels and channels, `im2col` and `col2im`: a contiguous output, and a contiguous gradient.
pub(super) fn shuffle(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let shape = c.recorded_shape(0)?;
    let output = c.e.new_tensor(&shape, input.dtype);
    c.e.record(&[&output], &[Some(&input)], Vec::new(), zeros_of(input.shape.clone()));
    Ok(vec![output])
}

/// Tensors of a size: `zeros`, `rand`, `arange`, `new_ones`.
pub(super) fn created(c: &Call<'_>) -> Outputs {
    let dtype = c.dtype("dtype").or_else(|| c.output_dtype(0)).unwrap_or(Dtype::F32);
    Ok(vec![c.e.new_tensor(c.output_shape(0)?, dtype)])
}

/// Tensors of another tensor's shape: `zeros_like`.
pub(super) fn created_like(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    Ok(vec![c.e.like_as(&input, c.dtype("dtype").unwrap_or(input.dtype))])
}

/// Operations whose result is the tensor itself.
pub(super) fn itself(c: &Call<'_>) -> Outputs {
    Ok(vec![c.first()?])
}

/// Returns the tensor without its history.
pub(super) fn detached(c: &Call<'_>) -> Outputs {
    Ok(vec![c.first()?.detached()])
}

/// `copy_(self, src)`: the gradient goes to the source.
pub(super) fn copy(c: &Call<'_>) -> Outputs {
    let (target, source) = (c.first()?, c.optional("src")?);
    let dtype = source.as_ref().map(|source| source.dtype);
    super::elementwise::changed(c, &[Some(&target), source.as_ref()], Vec::new(), move |b| {
        let to_source = b.needs(1).then(|| match dtype {
            Some(dtype) if dtype != b.gradient.dtype => b.e.like_as(b.gradient, dtype),
            _ => b.gradient.clone(),
        });
        vec![b.needs(0).then(|| b.e.like(b.gradient)), to_source]
    })
}

/// `zero_`, `fill_`, `bernoulli_`: what was there is gone, and so is its gradient.
pub(super) fn overwritten(c: &Call<'_>) -> Outputs {
    Ok(vec![c.first()?])
}
