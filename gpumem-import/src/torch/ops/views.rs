//! Views: tensors that share the memory of others.

use super::super::call::{Call, Outputs, Result, malformed};
use super::super::layout::{elements, index, view_strides};
use super::super::meta::{Backward, Eager, Gradients, Tensor};
use crate::model::Argument;

impl Eager {
    /// Records a view.
    pub fn view_as(
        &self,
        input: &Tensor,
        shape: Vec<u64>,
        strides: Vec<u64>,
        derivative: impl Fn(&Backward<'_>) -> Gradients + 'static,
    ) -> Tensor {
        let view = input.alias(shape, strides);
        view.set_base(input);
        self.record(&[&view], &[Some(input)], Vec::new(), derivative);
        view
    }

    /// Views a tensor in another shape.
    pub fn viewed(&self, input: &Tensor, shape: &[u64]) -> Result {
        let Some(strides) = view_strides(&input.shape, &input.strides, shape) else {
            return malformed(format!("views {:?} as {shape:?}, which its layout forbids", input.shape));
        };
        if elements(shape) != input.elements() {
            return malformed(format!("views {:?} as {shape:?}", input.shape));
        }
        let before = input.shape.clone();
        Ok(self.view_as(input, shape.to_vec(), strides, back_to(before)))
    }

    /// Views a tensor in another shape, or copies it if its layout forbids that.
    pub fn reshape(&self, input: &Tensor, shape: &[u64]) -> Result {
        if view_strides(&input.shape, &input.strides, shape).is_some() {
            return self.viewed(input, shape);
        }
        let copy = self.contiguous_copy(input);
        self.renamed(&copy, shape)
    }

    /// Gives the memory of a tensor another shape, without making it a view in the sense of autograd: `_unsafe_view`.
    pub fn renamed(&self, input: &Tensor, shape: &[u64]) -> Result {
        let Some(strides) = view_strides(&input.shape, &input.strides, shape) else {
            return malformed(format!("views {:?} as {shape:?}, which its layout forbids", input.shape));
        };
        let output = input.alias(shape.to_vec(), strides);
        self.record(&[&output], &[Some(input)], Vec::new(), back_to(input.shape.clone()));
        Ok(output)
    }

    /// Returns a recorded copy that is contiguous.
    pub fn contiguous_copy(&self, input: &Tensor) -> Tensor {
        let copy = self.new_tensor(&input.shape, input.dtype);
        self.record(&[&copy], &[Some(input)], Vec::new(), same);
        copy
    }

    /// Returns the tensor if it is contiguous, else a recorded copy.
    pub fn contiguous(&self, input: &Tensor) -> Tensor {
        if input.is_contiguous() { input.clone() } else { self.contiguous_copy(input) }
    }

    /// Views a tensor with its dimensions in another order.
    pub fn permuted(&self, input: &Tensor, order: &[usize]) -> Tensor {
        let take = |values: &[u64]| order.iter().map(|&dim| values[dim]).collect::<Vec<u64>>();
        let mut inverse = vec![0; order.len()];
        for (position, &dim) in order.iter().enumerate() {
            inverse[dim] = position;
        }
        self.view_as(input, take(&input.shape), take(&input.strides), move |b| {
            let take = |values: &[u64]| inverse.iter().map(|&dim| values[dim]).collect::<Vec<u64>>();
            vec![Some(b.gradient.alias(take(&b.gradient.shape), take(&b.gradient.strides)))]
        })
    }

    /// Views a tensor with two dimensions exchanged.
    pub fn transposed(&self, input: &Tensor, a: usize, b: usize) -> Tensor {
        let mut order: Vec<usize> = (0..input.rank()).collect();
        order.swap(a, b);
        self.permuted(input, &order)
    }

    /// Views a tensor with a further dimension of one element.
    pub fn unsqueezed(&self, input: &Tensor, dim: usize) -> Tensor {
        let (mut shape, mut strides) = (input.shape.clone(), input.strides.clone());
        let stride = match (strides.get(dim), shape.get(dim)) {
            (Some(stride), Some(size)) => stride.saturating_mul(*size),
            _ => 1,
        };
        shape.insert(dim, 1);
        strides.insert(dim, stride);
        self.view_as(input, shape, strides, back_to(input.shape.clone()))
    }

    /// Views a tensor without those of these dimensions that have one element.
    pub fn squeezed(&self, input: &Tensor, dims: &[usize]) -> Tensor {
        let keeps = |dim: &usize| !dims.contains(dim) || input.shape[*dim] != 1;
        let kept: Vec<usize> = (0..input.rank()).filter(keeps).collect();
        let take = |values: &[u64]| kept.iter().map(|&dim| values[dim]).collect::<Vec<u64>>();
        self.view_as(input, take(&input.shape), take(&input.strides), back_to(input.shape.clone()))
    }

    /// Views a tensor as if it were repeated along dimensions of one element.
    pub fn expanded(&self, input: &Tensor, shape: &[u64]) -> Result {
        let Some(extra) = shape.len().checked_sub(input.rank()) else {
            return malformed(format!("expands {:?} to {shape:?}", input.shape));
        };
        let mut strides = vec![0; shape.len()];
        for (dim, stride) in strides.iter_mut().enumerate().skip(extra) {
            let size = input.shape[dim - extra];
            if size == shape[dim] {
                *stride = input.strides[dim - extra];
            } else if size != 1 {
                return malformed(format!("expands {:?} to {shape:?}", input.shape));
            }
        }
        let before = input.shape.clone();
        Ok(self.view_as(input, shape.to_vec(), strides, move |b| vec![Some(b.e.sum_to(b.gradient.clone(), &before))]))
    }

    /// Views a part of a tensor: `start`, and every `step`-th of `length` positions.
    fn narrowed(&self, input: &Tensor, dim: usize, length: u64, step: u64) -> Tensor {
        let (mut shape, mut strides) = (input.shape.clone(), input.strides.clone());
        shape[dim] = length.div_ceil(step.max(1));
        strides[dim] = strides[dim].saturating_mul(step);
        self.view_as(input, shape, strides, zeros_of(input.shape.clone()))
    }
}

/// The gradient itself.
pub(super) fn same(b: &Backward<'_>) -> Gradients {
    vec![Some(b.gradient.clone())]
}

/// The gradient in the shape of before: a view, or a copy if its layout forbids that.
pub(super) fn back_to(shape: Vec<u64>) -> impl Fn(&Backward<'_>) -> Gradients {
    move |b| vec![Some(b.e.reshaped(b.gradient, &shape))]
}

/// A new tensor of this shape, into which the gradient is written or added.
pub(super) fn zeros_of(shape: Vec<u64>) -> impl Fn(&Backward<'_>) -> Gradients {
    move |b| vec![Some(b.fresh(&shape))]
}

pub(super) fn view(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let shape = c.viewed_shape(&input)?;
    if &c.node.op[..] == "_unsafe_view" {
        return Ok(vec![c.e.renamed(&input, &shape)?]);
    }
    Ok(vec![c.e.viewed(&input, &shape)?])
}

pub(super) fn reshape(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let shape = c.viewed_shape(&input)?;
    // `flatten` of one dimension, and `reshape` to the shape that is there, return the tensor.
    if &c.node.op[..] == "flatten" && shape == input.shape {
        return Ok(vec![input]);
    }
    Ok(vec![c.e.reshape(&input, &shape)?])
}

pub(super) fn flatten(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let (start, end) = (c.dim("start_dim", 0, input.rank())?, c.dim("end_dim", -1, input.rank())?);
    if input.rank() == 0 {
        return Ok(vec![c.e.reshape(&input, &[1])?]);
    }
    if start > end {
        return malformed(format!("flattens from {start} to {end}"));
    }
    if start == end {
        return Ok(vec![input]);
    }
    let mut shape = input.shape[..start].to_vec();
    shape.push(elements(&input.shape[start..=end]));
    shape.extend(&input.shape[end + 1..]);
    Ok(vec![c.e.reshape(&input, &shape)?])
}

pub(super) fn transpose(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let rank = input.rank();
    let (a, b) = match &c.node.op[..] {
        "t" | "numpy_T" | "adjoint" | "mT" if rank < 2 => return Ok(vec![input]),
        "t" | "numpy_T" | "adjoint" | "mT" => (rank - 2, rank - 1),
        "swapaxes" => (c.dim("axis0", 0, rank)?, c.dim("axis1", 1, rank)?),
        _ => (c.dim("dim0", 0, rank)?, c.dim("dim1", 1, rank)?),
    };
    Ok(vec![if rank == 0 { input } else { c.e.transposed(&input, a, b) }])
}

pub(super) fn permute(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let dims = c.ints("dims").unwrap_or_default();
    let order: Option<Vec<usize>> = dims.iter().map(|&dim| input.dim(dim)).collect();
    let order = order.filter(|order| (0..input.rank()).all(|dim| order.contains(&dim)) && order.len() == input.rank());
    match order {
        Some(order) => Ok(vec![c.e.permuted(&input, &order)]),
        None => malformed(format!("permutes {} dimensions by {dims:?}", input.rank())),
    }
}

/// `movedim(self, source, destination)`.
pub(super) fn movedim(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let rank = input.rank();
    let read = |name: &str| -> Option<Vec<usize>> { c.ints(name)?.iter().map(|&dim| index(dim, rank)).collect() };
    let (Some(from), Some(to)) = (read("source"), read("destination")) else {
        return malformed("moves dimensions that are not there");
    };
    let mut order = vec![None; rank];
    for (&from, &to) in from.iter().zip(&to) {
        match order.get_mut(to) {
            Some(slot) => *slot = Some(from),
            None => return malformed("moves a dimension of a number"),
        }
    }
    let mut rest = (0..rank).filter(|dim| !from.contains(dim));
    let order: Option<Vec<usize>> = order.into_iter().map(|dim| dim.or_else(|| rest.next())).collect();
    match order {
        Some(order) if (0..rank).all(|dim| order.contains(&dim)) => Ok(vec![c.e.permuted(&input, &order)]),
        _ => malformed("moves a dimension twice"),
    }
}

pub(super) fn unsqueeze(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let dim = c.dim("dim", 0, input.rank() + 1)?;
    Ok(vec![c.e.unsqueezed(&input, dim)])
}

pub(super) fn squeeze(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let dims: Option<Vec<usize>> = match c.ints("dim") {
        Some(dims) => dims.iter().map(|&dim| input.dim(dim)).collect(),
        None => Some((0..input.rank()).collect()),
    };
    match dims {
        Some(dims) => Ok(vec![c.e.squeezed(&input, &dims)]),
        None => malformed("squeezes a dimension that is not there"),
    }
}

pub(super) fn expand(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let shape = match (&c.node.op[..], c.ints("size")) {
        ("expand_as", _) => c.tensor("other")?.shape.clone(),
        (_, Some(sizes)) => expanded_shape(c, &input, &sizes)?,
        _ => c.output_shape(0)?.to_vec(),
    };
    Ok(vec![c.e.expanded(&input, &shape)?])
}

/// Returns the shape of an expanded tensor. A dimension that the input has is the input's, whatever batch the file says.
fn expanded_shape(c: &Call<'_>, input: &Tensor, sizes: &[i64]) -> Result<Vec<u64>> {
    let Some(extra) = sizes.len().checked_sub(input.rank()) else {
        return malformed(format!("expands {:?} to {sizes:?}", input.shape));
    };
    let wanted = c.output_shape(0)?;
    let size = |(dim, &size): (usize, &i64)| match dim.checked_sub(extra).map(|dim| input.shape[dim]) {
        Some(own) if own != 1 || size < 0 => own,
        _ => {
            let literal = wanted.get(dim).copied().or_else(|| u64::try_from(size).ok()).unwrap_or(1);
            if dim == 0 && u64::try_from(size) == Ok(literal) { c.scaled(literal) } else { literal }
        }
    };
    Ok(sizes.iter().enumerate().map(size).collect())
}

/// Returns a position along a dimension of `size` elements, which may be counted from the end.
fn position(value: i64, size: u64) -> u64 {
    match u64::try_from(value) {
        Ok(value) => value.min(size),
        Err(_) => size.saturating_sub(value.unsigned_abs()),
    }
}

pub(super) fn slice(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let dim = c.dim("dim", 0, input.rank())?;
    let Some(&size) = input.shape.get(dim) else { return malformed("slices a number") };
    let batch_end = c.int("end").filter(|&end| is_whole_batch(c, end, size));
    let start = c.int("start").map_or(0, |start| position(start, size));
    let end = match (batch_end, c.int("end")) {
        (Some(_), _) | (None, None) => size,
        (None, Some(end)) => position(end, size),
    };
    let step = c.int("step").and_then(|step| u64::try_from(step).ok()).unwrap_or(1);
    Ok(vec![c.e.narrowed(&input, dim, end.saturating_sub(start), step)])
}

/// True if a slice ends at what was the whole of a dimension at the exported batch.
fn is_whole_batch(c: &Call<'_>, end: i64, size: u64) -> bool {
    let Some(input) = c.node.tensors().next().and_then(|id| c.exported.values.get(id)) else { return false };
    let exported = index(c.int("dim").unwrap_or(0), input.shape.len()).and_then(|dim| input.shape.get(dim));
    exported.is_some_and(|&exported| exported != size && u64::try_from(end) == Ok(exported))
}

pub(super) fn narrow(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let dim = c.dim("dim", 0, input.rank())?;
    let length = c.int("length").and_then(|length| u64::try_from(length).ok());
    match length {
        Some(length) if dim < input.rank() && length <= input.shape[dim] => {
            Ok(vec![c.e.narrowed(&input, dim, length, 1)])
        }
        _ => malformed("narrows a dimension to more than it has"),
    }
}

pub(super) fn select(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let dim = c.dim("dim", 0, input.rank())?;
    if dim >= input.rank() {
        return malformed("selects from a number");
    }
    let part = input.without(dim);
    let (shape, strides) = (part.shape.clone(), part.strides.clone());
    drop(part);
    Ok(vec![c.e.view_as(&input, shape, strides, zeros_of(input.shape.clone()))])
}

/// `unfold(self, dimension, size, step)`: windows along a dimension, which may overlap.
pub(super) fn unfold(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let dim = c.dim("dimension", 0, input.rank())?;
    let [size, step] =
        ["size", "step"].map(|name| c.int(name).and_then(|number| u64::try_from(number).ok()).unwrap_or(1));
    let (mut shape, mut strides) = (input.shape.clone(), input.strides.clone());
    let (Some(length), Some(stride)) = (shape.get_mut(dim), strides.get_mut(dim)) else {
        return malformed("unfolds a number");
    };
    let Some(rest) = length.checked_sub(size) else { return malformed(format!("has windows of {size} of {length}")) };
    *length = rest / step.max(1) + 1;
    let inner = std::mem::replace(stride, stride.saturating_mul(step));
    shape.push(size);
    strides.push(inner);
    Ok(vec![c.e.view_as(&input, shape, strides, zeros_of(input.shape.clone()))])
}

/// `diagonal(self, offset, dim1, dim2)`.
pub(super) fn diagonal(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let rank = input.rank();
    let (first, second) = (c.dim("dim1", 0, rank)?, c.dim("dim2", 1, rank)?);
    if first == second || rank < 2 {
        return malformed("has the diagonal of one dimension");
    }
    let offset = c.int("offset").unwrap_or(0);
    let shorter = |size: u64, by: i64| size.saturating_sub(u64::try_from(by).unwrap_or(0));
    let length = shorter(input.shape[first], offset.saturating_neg()).min(shorter(input.shape[second], offset));
    let keeps = |values: &[u64]| -> Vec<u64> {
        values.iter().enumerate().filter(|(dim, _)| *dim != first && *dim != second).map(|(_, value)| *value).collect()
    };
    let (mut shape, mut strides) = (keeps(&input.shape), keeps(&input.strides));
    shape.push(length);
    strides.push(input.strides[first].saturating_add(input.strides[second]));
    Ok(vec![c.e.view_as(&input, shape, strides, zeros_of(input.shape.clone()))])
}

/// `as_strided` and other views with the recorded shape, whose derivative is a full tensor.
pub(super) fn recorded_view(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let shape = c.recorded_shape(0)?;
    let recorded = c.node.outputs.first().and_then(|&id| c.model.values.get(id)?.strides.clone());
    let strides = recorded.filter(|strides| strides.len() == shape.len());
    let strides = strides.unwrap_or_else(|| super::super::layout::dense(&shape));
    Ok(vec![c.e.view_as(&input, shape, strides, zeros_of(input.shape.clone()))])
}

/// Views parts of a tensor along a dimension. Their gradients are joined; zeros stand for those that are missing.
fn parts(c: &Call<'_>, input: &Tensor, dim: usize, sizes: &[u64], keeps_dim: bool) -> Outputs {
    if c.node.op == "tensor_split" {
        return Ok(sizes.iter().map(|&size| c.e.narrowed(input, dim, size, 1)).collect());
    }
    let part = |&size: &u64| {
        let (mut shape, mut strides) = (input.shape.clone(), input.strides.clone());
        if keeps_dim {
            shape[dim] = size;
        } else {
            shape.remove(dim);
            strides.remove(dim);
        }
        let part = input.alias(shape, strides);
        part.set_base(input);
        part
    };
    let outputs: Vec<Tensor> = sizes.iter().map(part).collect();
    let shapes: Vec<Vec<u64>> = outputs.iter().map(|output| output.shape.clone()).collect();
    let whole = input.shape.clone();
    c.e.record(&outputs.iter().collect::<Vec<_>>(), &[Some(input)], Vec::new(), move |b| {
        let missing = shapes.iter().zip(b.gradients).filter(|(_, gradient)| gradient.is_none());
        // `unbind` expands a zero.
        let _zeros: Vec<Tensor> = missing.map(|(shape, _)| b.fresh(if keeps_dim { shape } else { &[] })).collect();
        vec![Some(b.fresh(&whole))]
    });
    Ok(outputs)
}

pub(super) fn split(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let dim = c.dim("dim", 0, input.rank())?;
    let Some(&size) = input.shape.get(dim) else { return malformed("splits a number") };
    let count = c.node.outputs.len() as u64;
    let even = |each: u64| (0..count).map(|index| each.min(size.saturating_sub(index.saturating_mul(each)))).collect();
    let sizes: Vec<u64> = match (&c.node.op[..], c.argument("split_size").or(c.argument("split_sizes"))) {
        ("chunk", _) => {
            even(size.div_ceil(c.int("chunks").and_then(|n| u64::try_from(n).ok()).unwrap_or(count).max(1)))
        }
        ("tensor_split", _) => {
            (0..count).map(|index| size / count.max(1) + u64::from(index < size % count.max(1))).collect()
        }
        (_, Some(Argument::Int(each))) => even(u64::try_from(*each).unwrap_or(size)),
        (_, Some(Argument::Ints(sizes))) => super::super::call::sizes_of(sizes)?,
        _ => return malformed("splits by no size"),
    };
    if sizes.iter().fold(0u64, |sum, &part| sum.saturating_add(part)) > size {
        return malformed(format!("splits {size} into {sizes:?}"));
    }
    parts(c, &input, dim, &sizes, true)
}

pub(super) fn unbind(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let dim = c.dim("dim", 0, input.rank())?;
    match input.shape.get(dim) {
        Some(&size) if size == c.node.outputs.len() as u64 => {
            parts(c, &input, dim, &vec![1; c.node.outputs.len()], false)
        }
        _ => malformed("unbinds another number of tensors than it has"),
    }
}

/// `broadcast_tensors`: views of the common shape.
pub(super) fn broadcast_all(c: &Call<'_>) -> Outputs {
    let tensors: Vec<Tensor> = c.tensors("tensors")?.into_iter().flatten().collect();
    let shapes: Vec<&[u64]> = tensors.iter().map(|tensor| &tensor.shape[..]).collect();
    let shape = super::elementwise::broadcast(&shapes)?;
    tensors.iter().map(|tensor| c.e.expanded(tensor, &shape)).collect()
}

/// `meshgrid`: each tensor along a dimension of its own, expanded along the others.
pub(super) fn meshgrid(c: &Call<'_>) -> Outputs {
    let tensors: Vec<Tensor> = c.tensors("tensors")?.into_iter().flatten().collect();
    let shape: Vec<u64> = tensors.iter().map(Tensor::elements).collect();
    let is_turned = c.text("indexing") == Some("xy") && tensors.len() > 1;
    let along = |(dim, tensor): (usize, &Tensor)| {
        let own: Vec<u64> = (0..shape.len()).map(|other| if other == dim { shape[dim] } else { 1 }).collect();
        let grid = c.e.expanded(&c.e.viewed(tensor, &own)?, &shape)?;
        Ok(if is_turned { c.e.transposed(&grid, 0, 1) } else { grid })
    };
    tensors.iter().enumerate().map(along).collect()
}

/// `diag_embed`: matrices of zeros with a diagonal, whose gradient is the diagonal of theirs.
pub(super) fn diagonal_matrices(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let output = c.e.new_tensor(&c.recorded_shape(0)?, input.dtype);
    let (shape, strides) = (input.shape.clone(), input.strides.clone());
    c.e.record(&[&output], &[Some(&input)], Vec::new(), move |b| {
        vec![Some(b.gradient.alias(shape.clone(), strides.clone()))]
    });
    Ok(vec![output])
}
