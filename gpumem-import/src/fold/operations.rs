//! The operations that are evaluated, on tensors with numbers.

use super::Call;
use super::tensor::{MOST, Tensor, common, elements};
use crate::model::Dtype;

pub(super) fn one(call: &Call<'_>, op: &str) -> Option<Tensor> {
    created(call, op).or_else(|| moved(call, op)).or_else(|| elementwise(call, op)).or_else(|| reduced(call, op))
}

/// Returns the index of a dimension that may be counted from the end.
pub(super) fn index(dim: i64, rank: usize) -> Option<usize> {
    let dim = if dim < 0 { dim + rank as i64 } else { dim };
    usize::try_from(dim).ok().filter(|dim| *dim < rank)
}

/// The most places of a matrix of which those of a triangle are listed.
const MOST_PAIRS: i64 = 1 << 22;

fn created(call: &Call<'_>, op: &str) -> Option<Tensor> {
    let (dtype, shape) = call.output(0)?;
    match op {
        "zeros" | "zeros_like" | "new_zeros" | "empty" | "empty_like" | "new_empty" | "zero" => {
            Tensor::full(0.0, shape, dtype)
        }
        "ones" | "ones_like" | "new_ones" => Tensor::full(1.0, shape, dtype),
        "full" | "full_like" | "new_full" => Tensor::full(call.number("fill_value")?, shape, dtype),
        "fill" => Tensor::full(call.number("value")?, shape, dtype),
        "scalar_tensor" => Tensor::full(call.number("s")?, shape, dtype),
        "arange" => {
            let (start, step) = (call.number("start").unwrap_or(0.0), call.number("step").unwrap_or(1.0));
            let count = elements(shape)?;
            Tensor::new((0..count).map(|at| start + at as f64 * step).collect(), shape, dtype)
        }
        "linspace" => {
            let (start, end, count) = (call.number("start")?, call.number("end")?, elements(shape)?);
            let step = (end - start) / (count.max(2) - 1) as f64;
            let numbers = (0..count).map(|at| super::tensor::round(start + at as f64 * step, dtype));
            Tensor::new(numbers.collect(), shape, dtype)
        }
        "tril_indices" | "triu_indices" => {
            let (rows, columns) = (call.integer("row", 0).max(0), call.integer("col", 0).max(0));
            let offset = call.integer("offset", 0);
            rows.checked_mul(columns).filter(|all| *all <= MOST_PAIRS)?;
            let is_kept = |&(row, column): &(i64, i64)| match op {
                "tril_indices" => column - row <= offset,
                _ => column - row >= offset,
            };
            let pairs = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
            let kept: Vec<[i64; 2]> = pairs.filter(is_kept).map(|(row, column)| [row, column]).collect();
            let numbers = (0..2).flat_map(|side| kept.iter().map(move |pair| pair[side] as f64)).collect();
            Tensor::new(numbers, shape, dtype)
        }
        "eye" => {
            let columns = *shape.last()?;
            let numbers = (0..elements(shape)?).map(|at| f64::from(u8::from(at / columns == at % columns)));
            Tensor::new(numbers.collect(), shape, dtype)
        }
        _ => None,
    }
}

/// Views and copies of elements.
fn moved(call: &Call<'_>, op: &str) -> Option<Tensor> {
    if let "cat" | "concat" | "stack" = op {
        return joined(call, op == "stack");
    }
    let (dtype, shape) = call.output(0)?;
    let tensor = call.tensor("self").or_else(|| call.tensor("input"))?;
    let rank = tensor.shape.len();
    match op {
        "view" | "reshape" | "_unsafe_view" | "flatten" | "unflatten" | "reshape_as" | "view_as" | "squeeze" => {
            tensor.reshape(shape)
        }
        "unsqueeze" => {
            let dim = index(call.integer("dim", 0), rank + 1)?;
            let (mut shape, mut strides) = (tensor.shape.clone(), tensor.strides().to_vec());
            shape.insert(dim, 1);
            strides.insert(dim, 0);
            Some(tensor.view(0, shape, strides))
        }
        "contiguous" | "clone" | "alias" | "detach" | "lift_fresh_copy" | "detach_" | "dropout" => Some(tensor),
        "to" | "type_as" | "_to_copy" | "float" | "bool" | "long" => tensor.map(dtype, |number| number),
        "copy" => call.operand("src")?.broadcast(&tensor.shape),
        "expand" | "expand_as" | "broadcast_to" => tensor.broadcast(shape),
        "repeat" | "tile" => repeated(&tensor, shape),
        "permute" | "transpose" | "t" | "swapaxes" | "numpy_T" => {
            let order: Vec<usize> = match call.integers("dims") {
                Some(dims) => dims.into_iter().map(|dim| index(dim, rank)).collect::<Option<_>>()?,
                None => {
                    let (a, b) = (index(call.integer("dim0", 0), rank)?, index(call.integer("dim1", -1), rank)?);
                    (0..rank)
                        .map(|dim| {
                            if dim == a {
                                b
                            } else if dim == b {
                                a
                            } else {
                                dim
                            }
                        })
                        .collect()
                }
            };
            let shape = order.iter().map(|&dim| tensor.shape[dim]).collect();
            Some(tensor.view(0, shape, order.iter().map(|&dim| tensor.strides()[dim]).collect()))
        }
        "select" => {
            let dim = index(call.integer("dim", 0), rank)?;
            let at = call.integer("index", 0);
            let at = if at < 0 { at + tensor.shape[dim] as i64 } else { at };
            removed(&slice(&tensor, dim, at, at + 1, 1)?, dim)
        }
        "slice" | "narrow" => {
            let dim = index(call.integer("dim", 0), rank)?;
            match op {
                "narrow" => {
                    let start = call.integer("start", 0);
                    slice(&tensor, dim, start, start + call.integer("length", 0), 1)
                }
                _ => slice(
                    &tensor,
                    dim,
                    call.integer("start", 0),
                    call.integer("end", i64::MAX),
                    call.integer("step", 1),
                ),
            }
        }
        "flip" | "roll" => {
            let dims = call.integers("dims")?;
            let shifts = call.integers("shifts").unwrap_or_default();
            let mut numbers = tensor.numbers();
            let strides = super::tensor::contiguous(&tensor.shape);
            for (place, dim) in dims.into_iter().enumerate() {
                let dim = index(dim, rank)?;
                let size = tensor.shape[dim];
                let shift = shifts.get(place).map(|shift| shift.rem_euclid(size.max(1) as i64) as u64);
                let from = |at: u64| {
                    let here = at / strides[dim] % size;
                    let there = match shift {
                        Some(shift) => (here + size - shift) % size,
                        None => size - 1 - here,
                    };
                    at - here * strides[dim] + there * strides[dim]
                };
                numbers = (0..numbers.len() as u64).map(|at| numbers[from(at) as usize]).collect();
            }
            Tensor::new(numbers, &tensor.shape, dtype)
        }
        "index" => indexed(call, &tensor),
        "repeat_interleave" => {
            let dim = index(call.integer("dim", 0), rank)?;
            let times = u64::try_from(call.integer("repeats", 0)).ok().filter(|times| *times > 0 && *times <= MOST)?;
            let (mut long, mut wide) = (tensor.shape.clone(), tensor.shape.clone());
            long.insert(dim + 1, 1);
            wide.insert(dim + 1, times);
            tensor.reshape(&long)?.broadcast(&wide)?.reshape(shape)
        }
        "index_select" | "gather" => {
            let dim = index(call.integer("dim", 0), rank)?;
            let chosen = call.tensor("index")?;
            let strides = super::tensor::contiguous(&tensor.shape);
            let numbers = tensor.numbers();
            let picks = chosen.numbers();
            let outer = super::tensor::contiguous(shape);
            (0..elements(shape)?)
                .map(|at| {
                    let mut place = 0;
                    for other in 0..shape.len() {
                        let here = at / outer[other] % shape[other].max(1);
                        let here = match (other == dim, op) {
                            (true, "gather") => *picks.get(at as usize)? as u64,
                            (true, _) => *picks.get(here as usize)? as u64,
                            _ => here,
                        };
                        place += here * strides.get(other)?;
                    }
                    numbers.get(place as usize).copied()
                })
                .collect::<Option<Vec<f64>>>()
                .and_then(|numbers| Tensor::new(numbers, shape, dtype))
        }
        "tril" | "triu" => {
            let diagonal = call.integer("diagonal", 0);
            let (rows, columns) = (*shape.get(rank.checked_sub(2)?)?, *shape.last()?);
            let is_kept = |at: usize| {
                let (row, column) = ((at as u64 / columns % rows) as i64, (at as u64 % columns) as i64);
                if op == "tril" { column - row <= diagonal } else { column - row >= diagonal }
            };
            let numbers = tensor.numbers().into_iter().enumerate();
            Tensor::new(numbers.map(|(at, number)| if is_kept(at) { number } else { 0.0 }).collect(), shape, dtype)
        }
        "cumsum" => {
            let dim = index(call.integer("dim", 0), rank)?;
            let mut numbers = tensor.numbers();
            let stride = super::tensor::contiguous(&tensor.shape)[dim] as usize;
            for at in stride..numbers.len() {
                if !((at / stride) as u64).is_multiple_of(tensor.shape[dim]) {
                    numbers[at] = super::tensor::round(numbers[at] + numbers[at - stride], dtype);
                }
            }
            Tensor::new(numbers, shape, dtype)
        }
        "diff" => {
            let dim = index(call.integer("dim", -1), rank)?;
            if call.integer("n", 1) != 1 || call.node.argument("append").is_some() {
                return None;
            }
            let whole = match call.tensor("prepend") {
                Some(before) => concatenated(&[before, tensor], dim)?,
                None => tensor,
            };
            let later = slice(&whole, dim, 1, i64::MAX, 1)?;
            let earlier = slice(&whole, dim, 0, -1, 1)?;
            combined(
                &later,
                &earlier,
                dtype,
                |a, b| if dtype == Dtype::Bool { f64::from(u8::from(a != b)) } else { a - b },
            )
        }
        _ => None,
    }
}

pub(super) fn slice(tensor: &Tensor, dim: usize, start: i64, end: i64, step: i64) -> Option<Tensor> {
    let size = tensor.shape[dim] as i64;
    let clamp = |at: i64| if at < 0 { (at + size).max(0) } else { at.min(size) };
    let (start, end) = (clamp(start), clamp(end));
    let step = u64::try_from(step).ok().filter(|step| *step > 0)?;
    let (mut shape, mut strides) = (tensor.shape.clone(), tensor.strides().to_vec());
    let offset = start as u64 * strides[dim];
    shape[dim] = (end - start).max(0) as u64;
    shape[dim] = shape[dim].div_ceil(step);
    strides[dim] = strides[dim].checked_mul(step)?;
    Some(tensor.view(offset as usize, shape, strides))
}

/// Returns a view without a dimension of size 1.
pub(super) fn removed(tensor: &Tensor, dim: usize) -> Option<Tensor> {
    let (mut shape, mut strides) = (tensor.shape.clone(), tensor.strides().to_vec());
    (shape.remove(dim) == 1).then(|| {
        strides.remove(dim);
        tensor.view(0, shape, strides)
    })
}

fn repeated(tensor: &Tensor, shape: &[u64]) -> Option<Tensor> {
    let shift = shape.len().checked_sub(tensor.shape.len())?;
    let (strides, outer) = (super::tensor::contiguous(&tensor.shape), super::tensor::contiguous(shape));
    let numbers = tensor.numbers();
    let from = |at: u64| -> u64 {
        let dims = (0..tensor.shape.len()).map(|dim| {
            let here = at / outer[dim + shift] % shape[dim + shift].max(1);
            here % tensor.shape[dim].max(1) * strides[dim]
        });
        dims.sum()
    };
    let repeated: Option<Vec<f64>> = (0..elements(shape)?).map(|at| numbers.get(from(at) as usize).copied()).collect();
    Tensor::new(repeated?, shape, tensor.dtype)
}

fn joined(call: &Call<'_>, stacks: bool) -> Option<Tensor> {
    let tensors: Vec<Tensor> = call.tensors("tensors")?.into_iter().collect::<Option<_>>()?;
    let rank = tensors.first()?.shape.len() + usize::from(stacks);
    let dim = index(call.integer("dim", 0), rank)?;
    let widened = tensors.into_iter().map(|tensor| {
        let mut shape = tensor.shape.clone();
        if stacks {
            shape.insert(dim, 1);
        }
        tensor.reshape(&shape)
    });
    concatenated(&widened.collect::<Option<Vec<_>>>()?, dim)
}

fn concatenated(tensors: &[Tensor], dim: usize) -> Option<Tensor> {
    let mut shape = tensors.first()?.shape.clone();
    let sizes = tensors.iter().map(|tensor| tensor.shape.get(dim).copied());
    *shape.get_mut(dim)? = sizes.sum::<Option<u64>>()?;
    let whole = Tensor::full(0.0, &shape, tensors[0].dtype)?;
    let mut start = 0;
    for tensor in tensors {
        let end = start + tensor.shape[dim] as i64;
        let place = slice(&whole, dim, start, end, 1)?;
        if place.shape != tensor.shape {
            return None;
        }
        place.write(&tensor.numbers());
        start = end;
    }
    Some(whole)
}

/// Evaluates `x[indices]`.
fn indexed(call: &Call<'_>, tensor: &Tensor) -> Option<Tensor> {
    let (_, shape) = call.output(0)?;
    let places = positions(call, tensor, shape)?;
    let numbers = tensor.numbers();
    let picked: Option<Vec<f64>> = places.into_iter().map(|place| numbers.get(place).copied()).collect();
    Tensor::new(picked?, shape, tensor.dtype)
}

/// Evaluates `x.index_put_(indices, values)`: returns the whole of `x` afterwards.
pub(super) fn put(call: &Call<'_>, tensor: &Tensor) -> Option<Tensor> {
    let values = call.operand("values")?;
    let is_mask = |index: &Option<Tensor>| index.as_ref().is_some_and(|index| index.dtype == Dtype::Bool);
    let indices = call.tensors("indices")?;
    let mut numbers = tensor.numbers();
    match &indices[..] {
        [Some(mask)] if is_mask(&indices[0]) && mask.shape == tensor.shape && values.shape.is_empty() => {
            let value = *values.numbers().first()?;
            for (number, _) in numbers.iter_mut().zip(mask.numbers()).filter(|(_, mask)| *mask != 0.0) {
                *number = value;
            }
        }
        _ => {
            let shape = indices.iter().flatten().try_fold(Vec::new(), |shape, index| common(&shape, &index.shape))?;
            if indices.iter().any(is_mask)
                || indices.len() != tensor.shape.len()
                || indices.iter().any(|index| index.is_none())
            {
                return None;
            }
            let places = positions(call, tensor, &shape)?;
            for (place, value) in places.into_iter().zip(values.broadcast(&shape)?.numbers()) {
                *numbers.get_mut(place)? = value;
            }
        }
    }
    Tensor::new(numbers, &tensor.shape, tensor.dtype)
}

/// Returns which element of `tensor` each element of `x[indices]` is. Indices stand in one block of dimensions.
fn positions(call: &Call<'_>, tensor: &Tensor, shape: &[u64]) -> Option<Vec<usize>> {
    let indices = call.tensors("indices")?;
    let places: Vec<usize> = (0..indices.len()).filter(|&dim| indices[dim].is_some()).collect();
    let (&first, &last) = (places.first()?, places.last()?);
    let is_block = last - first + 1 == places.len();
    let start = if is_block { first } else { 0 };
    if indices.iter().flatten().any(|index| index.dtype == Dtype::Bool) || indices.len() > tensor.shape.len() {
        return None;
    }
    let block = indices.iter().flatten().try_fold(Vec::new(), |shape, index| common(&shape, &index.shape))?;
    let chosen: Vec<Vec<f64>> =
        indices.iter().flatten().map(|index| Some(index.broadcast(&block)?.numbers())).collect::<Option<_>>()?;
    let (strides, outer) = (super::tensor::contiguous(&tensor.shape), super::tensor::contiguous(shape));
    let inner = super::tensor::contiguous(&block);
    (0..elements(shape)?)
        .map(|at| {
            let here = |dim: usize| Some(at / outer.get(dim)? % shape[dim].max(1));
            let picked =
                (0..block.len()).map(|dim| Some(here(start + dim)? * inner[dim])).sum::<Option<u64>>()? as usize;
            let mut place = 0;
            let mut kept = 0;
            for (dim, stride) in strides.iter().enumerate() {
                let at = match places.iter().position(|&place| place == dim) {
                    Some(index) => {
                        let at = *chosen[index].get(picked)? as i64;
                        u64::try_from(if at < 0 { at + tensor.shape[dim] as i64 } else { at }).ok()?
                    }
                    None => {
                        let output = if kept < start { kept } else { kept + block.len() };
                        kept += 1;
                        here(output)?
                    }
                };
                place += at.checked_mul(*stride)?;
            }
            Some(place as usize)
        })
        .collect()
}

fn combined(a: &Tensor, b: &Tensor, dtype: Dtype, f: impl Fn(f64, f64) -> f64) -> Option<Tensor> {
    let shape = common(&a.shape, &b.shape)?;
    let (a, b) = (a.broadcast(&shape)?.numbers(), b.broadcast(&shape)?.numbers());
    let numbers = a.into_iter().zip(b).map(|(a, b)| super::tensor::round(f(a, b), dtype)).collect();
    Tensor::new(numbers, &shape, dtype)
}

fn elementwise(call: &Call<'_>, op: &str) -> Option<Tensor> {
    let (dtype, _) = call.output(0)?;
    let truth = |is: bool| f64::from(u8::from(is));
    if op == "where" {
        let condition = call.tensor("condition")?;
        let (a, b) = (call.operand("self")?, call.operand("other")?);
        let shape = common(&common(&a.shape, &b.shape)?, &condition.shape)?;
        let mask = condition.broadcast(&shape)?.numbers();
        let (a, b) = (a.broadcast(&shape)?.numbers(), b.broadcast(&shape)?.numbers());
        let chosen = mask.into_iter().zip(a.into_iter().zip(b)).map(|(mask, (a, b))| if mask != 0.0 { a } else { b });
        return Tensor::new(chosen.map(|number| super::tensor::round(number, dtype)).collect(), &shape, dtype);
    }
    if op == "masked_fill" {
        let value = call.number("value")?;
        let mask = call.tensor("mask")?;
        return combined(&call.tensor("self")?, &mask, dtype, |number, mask| if mask != 0.0 { value } else { number });
    }
    let a = call.operand("self").or_else(|| call.operand("input"))?;
    let of_one: Option<fn(f64) -> f64> = match op {
        "neg" => Some(|x| -x),
        "exp" => Some(f64::exp),
        "log" => Some(f64::ln),
        "sin" => Some(f64::sin),
        "cos" => Some(f64::cos),
        "sqrt" => Some(f64::sqrt),
        "rsqrt" => Some(|x| 1.0 / x.sqrt()),
        "reciprocal" => Some(|x| 1.0 / x),
        "abs" => Some(f64::abs),
        "floor" => Some(f64::floor),
        "ceil" => Some(f64::ceil),
        "round" => Some(f64::round_ties_even),
        "sigmoid" => Some(|x| 1.0 / (1.0 + (-x).exp())),
        "tanh" => Some(f64::tanh),
        "logical_not" | "bitwise_not" => Some(|x| f64::from(u8::from(x == 0.0))),
        "isnan" => Some(|x| f64::from(u8::from(x.is_nan()))),
        "isinf" => Some(|x| f64::from(u8::from(x.is_infinite()))),
        _ => None,
    };
    if let Some(f) = of_one {
        return a.map(dtype, f);
    }
    if let "clamp" | "clamp_min" | "clamp_max" | "relu" = op {
        let least = if op == "relu" { Some(0.0) } else { call.number("min") };
        let most = call.number("max");
        return a.map(dtype, |x| x.max(least.unwrap_or(f64::NEG_INFINITY)).min(most.unwrap_or(f64::INFINITY)));
    }
    // `pow(2, x)` has its number first.
    let b = call.operand("other").or_else(|| call.operand("exponent"))?;
    let alpha = call.number("alpha").unwrap_or(1.0);
    let rounding = match call.node.argument("rounding_mode") {
        Some(crate::model::Argument::Text(text)) => &text[..],
        _ => "",
    };
    combined(&a, &b, dtype, |a, b| match op {
        "add" => a + alpha * b,
        "sub" => a - alpha * b,
        "rsub" => b - alpha * a,
        "mul" => a * b,
        "div" | "true_divide" => match rounding {
            "floor" => (a / b).floor(),
            "trunc" => (a / b).trunc(),
            _ => a / b,
        },
        "floor_divide" => (a / b).floor(),
        "remainder" => a - (a / b).floor() * b,
        "fmod" => a % b,
        "pow" => a.powf(b),
        "maximum" | "max" => a.max(b),
        "minimum" | "min" => a.min(b),
        "eq" => truth(a == b),
        "ne" => truth(a != b),
        "lt" => truth(a < b),
        "le" => truth(a <= b),
        "gt" => truth(a > b),
        "ge" => truth(a >= b),
        "logical_and" | "__and__" | "bitwise_and" => truth(a != 0.0 && b != 0.0),
        "logical_or" | "__or__" | "bitwise_or" => truth(a != 0.0 || b != 0.0),
        "logical_xor" | "__xor__" | "bitwise_xor" => truth((a != 0.0) != (b != 0.0)),
        _ => f64::NAN,
    })
    .filter(|_| BINARY.contains(&op) && (dtype == Dtype::Bool || !op.starts_with("bitwise") && !op.starts_with("__")))
}

const BINARY: [&str; 32] = [
    "add",
    "sub",
    "rsub",
    "mul",
    "div",
    "true_divide",
    "floor_divide",
    "remainder",
    "fmod",
    "pow",
    "maximum",
    "minimum",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "logical_and",
    "__and__",
    "bitwise_and",
    "logical_or",
    "__or__",
    "bitwise_or",
    "logical_xor",
    "__xor__",
    "bitwise_xor",
    "outer",
    "ger",
    "matmul",
    "max",
    "min",
];

fn reduced(call: &Call<'_>, op: &str) -> Option<Tensor> {
    let (dtype, shape) = call.output(0)?;
    if let "matmul" | "mm" | "bmm" | "outer" | "ger" = op {
        return product(call, op, dtype, shape);
    }
    let (start, f): (f64, fn(f64, f64) -> f64) = match op {
        "sum" | "mean" => (0.0, |a, b| a + b),
        "amax" | "max" => (f64::NEG_INFINITY, f64::max),
        "amin" | "min" => (f64::INFINITY, f64::min),
        "prod" => (1.0, |a, b| a * b),
        "any" => (0.0, |a, b| f64::from(u8::from(a != 0.0 || b != 0.0))),
        "all" => (1.0, |a, b| f64::from(u8::from(a != 0.0 && b != 0.0))),
        _ => return None,
    };
    let tensor = call.tensor("self")?;
    let rank = tensor.shape.len();
    let dims: Vec<usize> = match call.integers("dim") {
        Some(dims) if !dims.is_empty() => dims.into_iter().map(|dim| index(dim, rank)).collect::<Option<_>>()?,
        _ => (0..rank).collect(),
    };
    let (strides, outer) = (super::tensor::contiguous(&tensor.shape), super::tensor::contiguous(shape));
    let kept: Vec<usize> = (0..rank).filter(|dim| !dims.contains(dim)).collect();
    let keeps = call.flag("keepdim");
    let mut sums = vec![start; elements(shape)? as usize];
    for (at, number) in tensor.numbers().into_iter().enumerate() {
        let place = kept.iter().enumerate().map(|(place, &dim)| {
            let here = at as u64 / strides[dim] % tensor.shape[dim];
            here * outer.get(if keeps { dim } else { place }).copied().unwrap_or(0)
        });
        let sum = sums.get_mut(place.sum::<u64>() as usize)?;
        *sum = f(*sum, number);
    }
    let count = elements(&tensor.shape)? / (sums.len() as u64).max(1);
    let divisor = if op == "mean" { count.max(1) as f64 } else { 1.0 };
    Tensor::new(sums.into_iter().map(|sum| super::tensor::round(sum / divisor, dtype)).collect(), shape, dtype)
}

/// Evaluates a product of two matrices, or of two lists of them.
fn product(call: &Call<'_>, op: &str, dtype: Dtype, shape: &[u64]) -> Option<Tensor> {
    let a = call.tensor("self")?;
    let b = call.tensor("other").or_else(|| call.tensor("mat2")).or_else(|| call.tensor("vec2"))?;
    if let "outer" | "ger" = op {
        let (rows, columns) = (a.reshape(&[*shape.first()?, 1])?, b.reshape(&[1, *shape.get(1)?])?);
        return combined(&rows, &columns, dtype, |a, b| a * b);
    }
    let (ranks, inner) = ((a.shape.len(), b.shape.len()), *a.shape.last()?);
    if ranks.0 < 2 || ranks.1 < 2 || b.shape[ranks.1 - 2] != inner || elements(shape)?.checked_mul(inner)? > MOST {
        return None;
    }
    let (rows, columns) = (a.shape[ranks.0 - 2], *b.shape.last()?);
    let leading = &shape[..shape.len() - 2];
    let wide = |tensor: &Tensor, last: [u64; 2]| Some(tensor.broadcast(&[leading, &last[..]].concat())?.numbers());
    let (a, b) = (wide(&a, [rows, inner])?, wide(&b, [inner, columns])?);
    let numbers = (0..elements(shape)?).map(|at| {
        let (matrix, row, column) = (at / (rows * columns), at / columns % rows, at % columns);
        let terms = (0..inner).map(|k| {
            a[((matrix * rows + row) * inner + k) as usize] * b[((matrix * inner + k) * columns + column) as usize]
        });
        super::tensor::round(terms.sum(), dtype)
    });
    Tensor::new(numbers.collect(), shape, dtype)
}
