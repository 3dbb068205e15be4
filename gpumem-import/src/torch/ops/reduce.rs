//! Reductions, and operations that pick elements by an index.

use super::super::call::{Call, Outputs, Result, malformed};
use super::super::meta::{Backward, Eager, Gradients, Tensor};
use super::elementwise::broadcast;
use super::views::zeros_of;
use crate::model::{Argument, Dtype};

/// The dimensions that a reduction removes, and the shape that is left.
struct Reduced {
    shape: Vec<u64>,
    dims: Vec<usize>,
}

fn reduced(c: &Call<'_>, input: &Tensor) -> Result<Reduced> {
    let named = c.ints("dim").filter(|dims| !dims.is_empty());
    let dims: Option<Vec<usize>> = match named {
        Some(dims) => dims.iter().map(|&dim| input.dim(dim)).collect(),
        None => Some((0..input.rank()).collect()),
    };
    let Some(dims) = dims else { return malformed("reduces a dimension that is not there") };
    let keeps = c.flag("keepdim", false);
    let size = |(dim, &size): (usize, &u64)| match dims.contains(&dim) {
        true => keeps.then_some(1),
        false => Some(size),
    };
    Ok(Reduced { shape: input.shape.iter().enumerate().filter_map(size).collect(), dims })
}

/// Returns a reduced gradient at the operand's size. It takes no memory.
fn spread(gradient: &Tensor, shape: &[u64], dims: &[usize]) -> Tensor {
    let keeps = gradient.rank() == shape.len();
    let mut own = gradient.strides.iter().copied();
    let strides = (0..shape.len()).map(|dim| {
        if !dims.contains(&dim) {
            return own.next().unwrap_or(0);
        }
        if keeps {
            own.next();
        }
        0
    });
    let strides = strides.collect();
    gradient.alias(shape.to_vec(), strides)
}

/// Returns the input in the type that the operation computes in.
fn converted(c: &Call<'_>, input: Tensor) -> Tensor {
    match c.dtype("dtype") {
        Some(dtype) => c.e.cast(&input, dtype),
        None => input,
    }
}

pub(super) fn mean(c: &Call<'_>) -> Outputs {
    let input = converted(c, c.first()?);
    let Reduced { shape, .. } = reduced(c, &input)?;
    Ok(vec![c.e.averaged(&input, &shape)])
}

impl Eager {
    /// Makes a recorded mean of this shape. Its gradient is a full tensor.
    pub fn averaged(&self, input: &Tensor, shape: &[u64]) -> Tensor {
        let output = self.new_tensor(shape, input.dtype);
        self.record(&[&output], &[Some(input)], Vec::new(), zeros_of(input.shape.clone()));
        output
    }
}

pub(super) fn sum(c: &Call<'_>) -> Outputs {
    let input = converted(c, c.first()?);
    let Reduced { shape, dims } = reduced(c, &input)?;
    let output = c.e.new_tensor(&shape, if input.is_float() { input.dtype } else { Dtype::I64 });
    let before = input.shape.clone();
    c.e.record(&[&output], &[Some(&input)], Vec::new(), move |b| vec![Some(spread(b.gradient, &before, &dims))]);
    Ok(vec![output])
}

/// `max` and `min`: of two tensors, along a dimension with its index, or of all elements.
pub(super) fn extreme(c: &Call<'_>) -> Outputs {
    if c.node.tensors().count() > 1 {
        return super::elementwise::binary(c);
    }
    if c.node.outputs.len() > 1 {
        return picked(c);
    }
    extremes(c)
}

/// `max(x)`, `amax`, `amin`: the gradient is divided among the elements that equal the result.
pub(super) fn extremes(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let Reduced { shape, .. } = reduced(c, &input)?;
    let output = c.e.new_tensor(&shape, input.dtype);
    let is_of_all = !c.node.op.starts_with('a');
    c.e.record(&[&output], &[Some(&input)], vec![Some(&input), Some(&output)], move |b| {
        let [Some(input), Some(output)] = [0, 1].map(|index| b.saved(index)) else { return Vec::new() };
        let _equal = b.e.mask_of(input);
        // `max()` compares with NaN, too.
        let _not_numbers = is_of_all.then(|| [b.e.mask_of(output), b.e.mask_of(input), b.e.mask_of(input)]);
        let _count = b.e.like_as(output, Dtype::I64);
        let _share = b.e.like(output);
        vec![Some(b.e.like(input))]
    });
    Ok(vec![output])
}

/// `argmax` and others whose result has no gradient.
pub(super) fn index_of(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let Reduced { shape, .. } = reduced(c, &input)?;
    Ok(vec![c.e.new_tensor(&shape, c.output_dtype(0).unwrap_or(Dtype::I64))])
}

/// Operations that return elements and their indices: `max(dim)`, `topk`, `sort`, `median`, `kthvalue`.
pub(super) fn picked(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let (values, indices) = match &c.node.op[..] {
        "sort" => (c.e.like(&input), c.e.like_as(&input, Dtype::I64)),
        "topk" => {
            let mut shape = input.shape.clone();
            let dim = c.dim("dim", -1, input.rank())?;
            let count = c.int("k").and_then(|count| u64::try_from(count).ok());
            match (shape.get_mut(dim), count) {
                (Some(size), Some(count)) => *size = count,
                _ => return malformed("takes no number of elements"),
            }
            (c.e.new_tensor(&shape, input.dtype), c.e.new_tensor(&shape, Dtype::I64))
        }
        _ => {
            let Reduced { shape, .. } = reduced(c, &input)?;
            (c.e.new_tensor(&shape, input.dtype), c.e.new_tensor(&shape, Dtype::I64))
        }
    };
    c.e.record(&[&values, &indices], &[Some(&input)], vec![Some(&indices)], added_to_zeros(input.shape.clone()));
    Ok(vec![values, indices])
}

/// `linalg_vector_norm` and `norm`.
pub(super) fn norm(c: &Call<'_>) -> Outputs {
    let input = converted(c, c.first()?);
    let Reduced { shape, .. } = reduced(c, &input)?;
    let output = c.e.new_tensor(&shape, input.dtype);
    let is_euclidean = c.number("ord").or_else(|| c.number("p")).is_none_or(|order| order == 2.0);
    c.e.record(&[&output], &[Some(&input)], vec![Some(&input), Some(&output)], move |b| {
        let [Some(input), Some(norm)] = [0, 1].map(|index| b.saved(index)) else { return Vec::new() };
        let _ratio = b.e.like(input);
        let _is_zero = is_euclidean.then(|| b.e.mask_of(norm));
        vec![Some(b.e.like(input))]
    });
    Ok(vec![output])
}

/// `var`, `std`, `var_mean`, `std_mean`: the input is kept.
pub(super) fn variance(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let Reduced { shape, .. } = reduced(c, &input)?;
    let is_deviation = c.node.op.starts_with("std");
    let outputs: Vec<Tensor> = c.node.outputs.iter().map(|_| c.e.new_tensor(&shape, input.dtype)).collect();
    let Some(first) = outputs.first() else { return malformed("returns nothing") };
    let saved = vec![Some(&input), Some(first).filter(|_| is_deviation)];
    let means = shape.clone();
    c.e.record(&outputs.iter().collect::<Vec<_>>(), &[Some(&input)], saved, move |b: &Backward<'_>| {
        let Some(input) = b.saved(0) else { return Vec::new() };
        let gradient = b.gradients.first().is_some_and(Option::is_some).then(|| {
            // (2 / n) * grad * (self - self.mean(dim, true)), where a deviation's gradient is divided by twice the deviation first.
            let _of_variance = b.saved(1).map(|_| b.fresh(&means));
            let _scaled = b.fresh(&means);
            let _mean = b.fresh(&means);
            let _centred = b.e.like(input);
            b.e.like(input)
        });
        if !b.gradients.get(1).is_some_and(Option::is_some) {
            return vec![gradient];
        }
        let of_mean = b.e.like(input);
        vec![Some(match gradient {
            Some(_) => b.e.like(input),
            None => of_mean,
        })]
    });
    Ok(outputs)
}

/// `logsumexp`: input and result are kept.
pub(super) fn logsumexp(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let Reduced { shape, .. } = reduced(c, &input)?;
    let output = c.e.new_tensor(&shape, input.dtype);
    c.e.record(&[&output], &[Some(&input)], vec![Some(&input), Some(&output)], |b| {
        let Some(input) = b.saved(0) else { return Vec::new() };
        let _temporaries = [b.e.like(input), b.e.like(input)];
        vec![Some(b.e.like(input))]
    });
    Ok(vec![output])
}

/// `prod`: input and result are kept.
pub(super) fn prod(c: &Call<'_>) -> Outputs {
    let input = converted(c, c.first()?);
    let Reduced { shape, .. } = reduced(c, &input)?;
    let output = c.e.new_tensor(&shape, input.dtype);
    c.e.record(&[&output], &[Some(&input)], vec![Some(&input), Some(&output)], |b| {
        let Some(input) = b.saved(0) else { return Vec::new() };
        let _product = b.saved(1).map(|product| b.e.like(product));
        vec![Some(b.e.like(input))]
    });
    Ok(vec![output])
}

/// Zeros of this shape, to which the gradient is added. Subclasses of tensors, which trackers see, add into a copy.
fn added_to_zeros(shape: Vec<u64>) -> impl Fn(&Backward<'_>) -> Gradients {
    move |b| {
        let zeros = b.fresh(&shape);
        vec![Some(if b.e.rules.tracker { b.fresh(&shape) } else { zeros })]
    }
}

/// Operations that read a table at indices, whose gradient is a table of zeros to which is added.
fn looked_up(c: &Call<'_>, table: &Tensor, indices: &[Option<&Tensor>], shape: &[u64]) -> Outputs {
    let output = c.e.new_tensor(shape, table.dtype);
    if c.node.op == "embedding" {
        c.e.record(&[&output], &[Some(table)], indices.to_vec(), zeros_of(table.shape.clone()));
    } else {
        c.e.record(&[&output], &[Some(table)], indices.to_vec(), added_to_zeros(table.shape.clone()));
    }
    Ok(vec![output])
}

pub(super) fn embedding(c: &Call<'_>) -> Outputs {
    let (weight, indices) = (c.tensor("weight")?, c.tensor("indices")?);
    let mut shape = indices.shape.clone();
    shape.extend(weight.shape.iter().skip(1));
    looked_up(c, &weight, &[Some(&indices)], &shape)
}

pub(super) fn gather(c: &Call<'_>) -> Outputs {
    let table = c.first()?;
    let indices = match c.optional("index")? {
        Some(indices) => indices,
        // `take_along_dim` reads a copy that is broadcast.
        None => c.e.like(&c.tensor("indices")?),
    };
    // The derivative reads the shape of the table, and the table is kept for it.
    looked_up(c, &table, &[Some(&indices), Some(&table)], &indices.shape)
}

pub(super) fn index_select(c: &Call<'_>) -> Outputs {
    let (table, indices) = (c.first()?, c.tensor("index")?);
    let dim = c.dim("dim", 0, table.rank())?;
    let mut shape = table.shape.clone();
    match shape.get_mut(dim) {
        Some(size) => *size = indices.elements(),
        None => return malformed("selects from a number"),
    }
    looked_up(c, &table, &[Some(&indices)], &shape)
}

/// `x[a, :, b]`: dimensions that are indexed by tensors.
pub(super) fn index(c: &Call<'_>) -> Outputs {
    let table = c.first()?;
    let indices = c.tensors("indices")?;
    let named: Vec<(usize, &Tensor)> =
        indices.iter().enumerate().filter_map(|(dim, index)| Some((dim, index.as_ref()?))).collect();
    if named.iter().any(|(_, index)| matches!(index.dtype, Dtype::Bool | Dtype::U8)) {
        // The number of elements that a mask selects depends on data: the file records it.
        let shape = c.output_shape(0)?.to_vec();
        return looked_up(c, &table, &named.iter().map(|(_, index)| Some(*index)).collect::<Vec<_>>(), &shape);
    }
    let (Some(first), Some(last)) = (named.first(), named.last()) else { return malformed("is indexed by nothing") };
    if last.0 >= table.rank() {
        return malformed("is indexed along a dimension that is not there");
    }
    let common = broadcast(&named.iter().map(|(_, index)| &index.shape[..]).collect::<Vec<_>>())?;
    let is_run = last.0 - first.0 + 1 == named.len();
    let kept = |dim: &usize| !named.iter().any(|(other, _)| other == dim);
    let shape: Vec<u64> = if is_run {
        [&table.shape[..first.0], &common, &table.shape[last.0 + 1..]].concat()
    } else {
        common.into_iter().chain((0..table.rank()).filter(kept).map(|dim| table.shape[dim])).collect()
    };
    let output = c.e.new_tensor(&shape, table.dtype);
    let saved: Vec<Option<&Tensor>> = named.iter().map(|(_, index)| Some(*index)).collect();
    c.e.record(&[&output], &[Some(&table)], saved, added_to_zeros(table.shape.clone()));
    Ok(vec![output])
}

/// `diff(self, n, dim, prepend, append)`.
pub(super) fn diff(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let dim = c.dim("dim", -1, input.rank())?;
    let mut shape = input.shape.clone();
    let Some(size) = shape.get_mut(dim) else { return malformed("is a number") };
    for name in ["prepend", "append"] {
        let more = c.optional(name)?;
        *size = size.saturating_add(more.and_then(|more| more.shape.get(dim).copied()).unwrap_or(0));
    }
    *size = size.saturating_sub(c.int("n").and_then(|n| u64::try_from(n).ok()).unwrap_or(1));
    let output = c.e.new_tensor(&shape, input.dtype);
    c.e.record(&[&output], &[Some(&input)], Vec::new(), zeros_of(input.shape.clone()));
    Ok(vec![output])
}

/// Operations without a derivative, whose outputs have the shapes that the file says.
pub(super) fn recorded(c: &Call<'_>) -> Outputs {
    let output = |position: usize| {
        let shape = c.recorded_shape(position)?;
        Ok(c.e.new_tensor(&shape, c.output_dtype(position).unwrap_or(Dtype::F32)))
    };
    (0..c.node.outputs.len()).map(output).collect()
}

/// `scatter`, `scatter_add`, `index_add`, `index_put`: a changed copy, or the tensor itself. The index is kept.
pub(super) fn scatter(c: &Call<'_>, is_in_place: bool) -> Outputs {
    let target = c.first()?;
    let source = match c.optional("src")? {
        Some(source) => Some(source),
        None => c.optional("source")?.map_or_else(|| c.optional("values"), |source| Ok(Some(source)))?,
    };
    let mut indices: Vec<Tensor> = c.optional("index")?.into_iter().collect();
    if let Some(Argument::Tensors(_)) = c.argument("indices") {
        indices.extend(c.tensors("indices")?.into_iter().flatten());
    }
    let keeps_target = c.node.op.contains("add") || matches!(c.argument("accumulate"), Some(Argument::Bool(true)));
    let shape = source.as_ref().map(|source| source.shape.clone());
    let derivative = move |b: &Backward<'_>| {
        let whole = b.needs(0).then(|| if keeps_target { b.gradient.clone() } else { b.e.like(b.gradient) });
        let part = shape.as_ref().filter(|_| b.needs(1)).map(|shape| b.fresh(shape));
        vec![whole, part]
    };
    let inputs = [Some(&target), source.as_ref()];
    let saved: Vec<Option<&Tensor>> = indices.iter().map(Some).collect();
    if is_in_place {
        return super::elementwise::changed(c, &inputs, saved, derivative);
    }
    let output = c.e.like(&target);
    c.e.record(&[&output], &inputs, saved, derivative);
    Ok(vec![output])
}

/// `grid_sampler(input, grid)`: both are kept.
pub(super) fn sampled(c: &Call<'_>) -> Outputs {
    let (input, grid) = (c.tensor("input")?, c.tensor("grid")?);
    let ([batch, channels, ..], [_, positions @ .., _]) = (&input.shape[..], &grid.shape[..]) else {
        return malformed(format!("samples {:?} at {:?}", input.shape, grid.shape));
    };
    let output = c.e.new_tensor(&[&[*batch, *channels], positions].concat(), input.dtype);
    c.e.record(&[&output], &[Some(&input), Some(&grid)], vec![Some(&input), Some(&grid)], |b| {
        [0, 1].map(|index| b.saved(index).filter(|_| b.needs(index)).map(|saved| b.e.like(saved))).into()
    });
    Ok(vec![output])
}

/// `affine_grid_generator(theta, size)`: a product of a grid of ones and the transposed matrices.
pub(super) fn grid(c: &Call<'_>) -> Outputs {
    let theta = c.tensor("theta")?;
    let shape = c.recorded_shape(0)?;
    let mut points = shape.clone();
    if let Some(last) = points.last_mut() {
        *last += 1;
    }
    // The grid of ones lives as long as the operation, where a tracker does not see it.
    let _ones = (!c.e.rules.tracker).then(|| c.e.new_tensor(&points, theta.dtype));
    let output = c.e.new_tensor(&shape, theta.dtype);
    c.e.record(&[&output], &[Some(&theta)], Vec::new(), zeros_of(theta.shape.clone()));
    Ok(vec![output])
}

/// `cosine_similarity(x1, x2, dim)`: both are divided by their norms, multiplied and summed.
pub(super) fn cosine(c: &Call<'_>) -> Outputs {
    let (a, b) = (c.tensor("x1")?, c.tensor("x2")?);
    let shape = broadcast(&[&a.shape, &b.shape])?;
    let dim = c.dim("dim", 1, shape.len())?;
    let mut rows = shape.clone();
    match rows.get_mut(dim) {
        Some(size) => *size = 1,
        None => return malformed("compares numbers"),
    }
    let scaled = |tensor: &Tensor| -> Result {
        let tensor = c.e.expanded(tensor, &shape)?;
        let norm = c.e.new_tensor(&rows, tensor.dtype);
        c.e.record(&[&norm], &[Some(&tensor)], vec![Some(&tensor), Some(&norm)], |b| {
            let Some(input) = b.saved(0) else { return Vec::new() };
            let _ratio = b.e.like(input);
            vec![Some(b.e.like(input))]
        });
        let bounded = c.e.like(&norm);
        c.e.quotient(&tensor, &bounded)
    };
    let (a, b) = (scaled(&a)?, scaled(&b)?);
    let product = c.e.multiplied(Some(&a), Some(&b), a.dtype)?;
    let mut shape = shape;
    shape.remove(dim);
    let output = c.e.new_tensor(&shape, product.dtype);
    let before = product.shape.clone();
    c.e.record(&[&output], &[Some(&product)], Vec::new(), move |b| vec![Some(spread(b.gradient, &before, &[dim]))]);
    Ok(vec![output])
}
