//! Operations on each element, with broadcasting.

use super::super::call::{Call, Outputs, Result, malformed};
use super::super::layout::{channels_last, dense, in_order};
use super::super::meta::{Backward, Eager, Tensor};
use crate::model::{Argument, Dtype};

/// Returns the shape to which operands are broadcast.
pub(super) fn broadcast(shapes: &[&[u64]]) -> Result<Vec<u64>> {
    let rank = shapes.iter().map(|shape| shape.len()).max().unwrap_or(0);
    let mut result = vec![1; rank];
    for shape in shapes {
        for (slot, &dim) in result.iter_mut().rev().zip(shape.iter().rev()) {
            if *slot != dim && *slot != 1 && dim != 1 {
                return malformed(format!("does not broadcast {shapes:?}"));
            }
            if dim != 1 {
                *slot = dim;
            }
        }
    }
    Ok(result)
}

/// Returns the type of a result. Tensors without dimensions count only if there are no others, and numbers last.
pub(super) fn promoted(tensors: &[&Tensor], has_float: bool) -> Dtype {
    let of = |tensors: &mut dyn Iterator<Item = Dtype>| tensors.reduce(promote);
    let rank = |dtype: Dtype| if dtype.is_float() { 2 } else { u8::from(dtype != Dtype::Bool) };
    let dims = of(&mut tensors.iter().filter(|tensor| tensor.rank() > 0).map(|tensor| tensor.dtype));
    let none = of(&mut tensors.iter().filter(|tensor| tensor.rank() == 0).map(|tensor| tensor.dtype));
    let number = has_float.then_some(Dtype::F32);
    let mut result = dims.or(none).or(number).unwrap_or(Dtype::F32);
    for other in [none, number].into_iter().flatten() {
        if rank(other) > rank(result) {
            result = other;
        }
    }
    result
}

fn promote(a: Dtype, b: Dtype) -> Dtype {
    match (a.is_float(), b.is_float()) {
        (true, true) if a != b && a.bytes() == b.bytes() => Dtype::F32,
        (true, true) | (false, false) if a.bytes() > b.bytes() || b == Dtype::Bool => a,
        (true, true) | (false, false) => b,
        (true, false) => a,
        (false, true) => b,
    }
}

/// Returns the strides of a result, as PyTorch's iterator over tensors chooses them.
///
/// Dimensions are sorted by the strides of the first operand that tells them apart.
pub(super) fn strides_of(shape: &[u64], operands: &[&Tensor]) -> Vec<u64> {
    let is_whole = operands.iter().all(|operand| operand.shape == shape);
    if is_whole {
        if operands.iter().all(|operand| operand.is_contiguous()) {
            return dense(shape);
        }
        let last = channels_last(shape);
        if let Some(last) = last.filter(|last| operands.iter().all(|operand| operand.has_strides(last))) {
            return last;
        }
        if let [first, rest @ ..] = operands
            && first.is_dense()
            && rest.iter().all(|other| other.strides == first.strides)
        {
            return first.strides.clone();
        }
    }
    let strides: Vec<Vec<u64>> = operands.iter().map(|operand| broadcast_strides(operand, shape)).collect();
    let mut order: Vec<usize> = (0..shape.len()).rev().collect();
    for index in 1..order.len() {
        let mut inner = index;
        for outer in (0..index).rev() {
            match is_outside(order[outer], order[inner], shape, &strides) {
                Some(true) => {
                    order.swap(outer, inner);
                    inner = outer;
                }
                Some(false) => break,
                None => {}
            }
        }
    }
    order.reverse();
    in_order(shape, &order)
}

/// Returns the strides of an operand along the dimensions of the result: 0 where it is repeated.
fn broadcast_strides(operand: &Tensor, shape: &[u64]) -> Vec<u64> {
    let mut result = vec![0; shape.len()];
    let own = operand.strides.iter().zip(&operand.shape).rev();
    for ((slot, &size), (&stride, &dim)) in result.iter_mut().zip(shape).rev().zip(own) {
        *slot = if dim == 1 && size != 1 { 0 } else { stride };
    }
    result
}

/// Compares two dimensions: true if the first lies outside of the second in memory. `None` if no operand tells.
fn is_outside(first: usize, second: usize, shape: &[u64], strides: &[Vec<u64>]) -> Option<bool> {
    for strides in strides {
        let (a, b) = (strides[first], strides[second]);
        if a == 0 || b == 0 {
            continue;
        }
        if a != b {
            return Some(a > b);
        }
        if shape[first] > shape[second] {
            return Some(true);
        }
    }
    None
}

impl Eager {
    /// Makes the result of an operation on each element.
    pub fn elementwise(&self, operands: &[&Tensor], dtype: Dtype) -> Result {
        let shapes: Vec<&[u64]> = operands.iter().map(|operand| &operand.shape[..]).collect();
        let shape = broadcast(&shapes)?;
        let strides = strides_of(&shape, operands);
        Ok(self.strided(&shape, strides, dtype))
    }

    /// Makes the product of two gradients: their shapes are known to fit.
    pub fn product(&self, a: &Tensor, b: Option<&Tensor>) -> Tensor {
        let operands: Vec<&Tensor> = std::iter::once(a).chain(b).collect();
        let dtype = promoted(&operands, false);
        self.elementwise(&operands, dtype).unwrap_or_else(|_| self.like(a))
    }

    /// Returns a copy in another type, or the tensor itself if it has that type.
    pub fn cast(&self, tensor: &Tensor, dtype: Dtype) -> Tensor {
        if tensor.dtype == dtype { tensor.clone() } else { self.copied(tensor, dtype) }
    }

    /// Returns a copy in a type. The gradient is copied back.
    pub fn copied(&self, tensor: &Tensor, dtype: Dtype) -> Tensor {
        let result = self.like_as(tensor, dtype);
        let before = tensor.dtype;
        self.record(&[&result], &[Some(tensor)], Vec::new(), move |b| {
            let is_same = b.gradient.dtype == before;
            vec![Some(if is_same { b.gradient.clone() } else { b.e.like_as(b.gradient, before) })]
        });
        result
    }
}

/// The two operands of an operation: tensors, or `None` for numbers.
pub(super) struct Pair {
    pub a: Option<Tensor>,
    pub b: Option<Tensor>,
    pub dtype: Dtype,
}

impl Pair {
    pub fn read(c: &Call<'_>) -> Result<Pair> {
        let [a, b] = ["self", "other"].map(|name| c.optional(name));
        // A second operand of another name, such as `exponent` or `end`.
        let (a, mut b) = (a?, b?);
        if b.is_none() && c.argument("other").is_none() {
            let mut tensors = c.node.tensors().skip(usize::from(a.is_some()));
            b = tensors.next().map(|id| c.value(id)).transpose()?;
        }
        let has_float = c.node.arguments.iter().any(|(name, argument)| {
            matches!(argument, Argument::Float(_))
                && matches!(&name[..], "self" | "other" | "exponent" | "end" | "min" | "max")
        });
        let tensors: Vec<&Tensor> = a.iter().chain(&b).collect();
        if tensors.is_empty() {
            return malformed("reads no tensor");
        }
        let dtype = promoted(&tensors, has_float);
        Ok(Pair { a, b, dtype })
    }

    fn tensors(&self) -> Vec<&Tensor> {
        self.a.iter().chain(&self.b).collect()
    }

    fn inputs(&self) -> [Option<&Tensor>; 2] {
        [self.a.as_ref(), self.b.as_ref()]
    }

    /// Returns each operand if the other one needs a gradient.
    fn factors(&self) -> [Option<&Tensor>; 2] {
        let needs = |other: &Option<Tensor>| other.as_ref().is_some_and(Tensor::requires_grad);
        [self.a.as_ref().filter(|_| needs(&self.b)), self.b.as_ref().filter(|_| needs(&self.a))]
    }
}

pub(super) fn add(c: &Call<'_>, is_in_place: bool) -> Outputs {
    let pair = Pair::read(c)?;
    let is_scaled = c.node.op.starts_with("sub") || c.number("alpha").is_some_and(|alpha| alpha != 1.0);
    let derivative = move |b: &Backward<'_>| {
        let first = b.needs(0).then(|| b.gradient.clone());
        let second = b.needs(1).then(|| if is_scaled { b.e.like(b.gradient) } else { b.gradient.clone() });
        vec![first, second]
    };
    if is_in_place {
        return changed(c, &pair.inputs(), Vec::new(), derivative);
    }
    let result = c.e.elementwise(&pair.tensors(), pair.dtype)?;
    c.e.record(&[&result], &pair.inputs(), Vec::new(), derivative);
    Ok(vec![result])
}

/// `rsub(self, other)`: `other - alpha * self`.
pub(super) fn rsub(c: &Call<'_>) -> Outputs {
    let pair = Pair::read(c)?;
    let result = c.e.elementwise(&pair.tensors(), pair.dtype)?;
    c.e.record(&[&result], &pair.inputs(), Vec::new(), |b| {
        vec![b.needs(0).then(|| b.e.like(b.gradient)), b.needs(1).then(|| b.gradient.clone())]
    });
    Ok(vec![result])
}

fn product_gradients(b: &Backward<'_>) -> Vec<Option<Tensor>> {
    let first = b.needs(0).then(|| b.e.product(b.gradient, b.saved(1)));
    let second = b.needs(1).then(|| b.e.product(b.gradient, b.saved(0)));
    vec![first, second]
}

pub(super) fn mul(c: &Call<'_>, is_in_place: bool) -> Outputs {
    let pair = Pair::read(c)?;
    if is_in_place {
        return scaled_in_place(c, &pair, product_gradients);
    }
    Ok(vec![c.e.multiplied(pair.a.as_ref(), pair.b.as_ref(), pair.dtype)?])
}

impl Eager {
    /// Returns a recorded product. `None` is a number.
    pub fn multiplied(&self, a: Option<&Tensor>, b: Option<&Tensor>, dtype: Dtype) -> Result {
        let pair = Pair { a: a.cloned(), b: b.cloned(), dtype };
        let result = self.elementwise(&pair.tensors(), dtype)?;
        self.record(&[&result], &pair.inputs(), pair.factors().to_vec(), product_gradients);
        Ok(result)
    }

    /// Returns a recorded sum.
    pub fn added(&self, a: &Tensor, b: &Tensor) -> Result {
        let dtype = promoted(&[a, b], false);
        let result = self.elementwise(&[a, b], dtype)?;
        self.record(&[&result], &[Some(a), Some(b)], Vec::new(), |b| {
            vec![b.needs(0).then(|| b.gradient.clone()), b.needs(1).then(|| b.gradient.clone())]
        });
        Ok(result)
    }
}

/// The gradient of the divisor comes first: derivatives are computed in the order of the names of their arguments.
fn quotient_gradients(b: &Backward<'_>) -> Vec<Option<Tensor>> {
    // -grad * ((self / other) / other)
    let second = b.needs(1).then(|| {
        let once = match b.saved(0) {
            Some(dividend) => b.e.product(dividend, b.saved(1)),
            None => b.saved(1).map_or_else(|| b.e.like(b.gradient), |divisor| b.e.like(divisor)),
        };
        let twice = b.e.product(&once, b.saved(1));
        let negative = b.e.like(b.gradient);
        b.e.product(&negative, Some(&twice))
    });
    let first = b.needs(0).then(|| b.e.product(b.gradient, b.saved(1)));
    vec![first, second]
}

impl Eager {
    /// Returns a recorded quotient.
    pub fn quotient(&self, a: &Tensor, b: &Tensor) -> Result {
        let dtype = promoted(&[a, b], false);
        let result = self.elementwise(&[a, b], dtype)?;
        let saved = vec![Some(a).filter(|_| b.requires_grad()), Some(b)];
        self.record(&[&result], &[Some(a), Some(b)], saved, quotient_gradients);
        Ok(result)
    }
}

pub(super) fn div(c: &Call<'_>, is_in_place: bool) -> Outputs {
    let mut pair = Pair::read(c)?;
    if c.text("rounding_mode").is_some() {
        return plain(c, pair.dtype);
    }
    if is_in_place {
        return scaled_in_place(c, &pair, quotient_gradients);
    }
    if !pair.dtype.is_float() {
        pair.dtype = Dtype::F32;
    }
    let result = c.e.elementwise(&pair.tensors(), pair.dtype)?;
    let [dividend, _] = pair.factors();
    c.e.record(&[&result], &pair.inputs(), vec![dividend, pair.b.as_ref()], quotient_gradients);
    Ok(vec![result])
}

/// `mul_` and `div_`: a copy of `self` is kept if the factor needs a gradient.
fn scaled_in_place(
    c: &Call<'_>,
    pair: &Pair,
    derivative: impl Fn(&Backward<'_>) -> Vec<Option<Tensor>> + 'static,
) -> Outputs {
    let copy = match (&pair.a, pair.factors()) {
        (Some(a), [Some(_), _]) if c.e.needs(&pair.inputs()) => Some(c.e.like(a)),
        _ => None,
    };
    changed(c, &pair.inputs(), vec![copy.as_ref(), pair.b.as_ref()], derivative)
}

/// Changes the first tensor in place, and records that.
pub(super) fn changed(
    c: &Call<'_>,
    inputs: &[Option<&Tensor>],
    saved: Vec<Option<&Tensor>>,
    derivative: impl Fn(&Backward<'_>) -> Vec<Option<Tensor>> + 'static,
) -> Outputs {
    let target = c.first()?;
    if c.e.needs(inputs) {
        super::in_place::change(c.e, &target, inputs, saved, derivative);
    }
    Ok(vec![target])
}

/// An operation without a derivative: its output has the common shape of its tensors.
pub(super) fn plain(c: &Call<'_>, dtype: Dtype) -> Outputs {
    let tensors: Result<Vec<Tensor>> = c.node.tensors().map(|id| c.value(id)).collect();
    let tensors = tensors?;
    Ok(vec![c.e.elementwise(&tensors.iter().collect::<Vec<_>>(), dtype)?])
}

/// The tensors and masks that the derivatives of an operation of two tensors hold at once, with their results.
struct Holds {
    /// For the gradients of the first and of the second tensor.
    tensors: [u8; 2],
    masks: u8,
    /// True if a zero is made as a tensor.
    has_zero: bool,
}

/// Records an operation that keeps both of its tensors.
fn of_two(c: &Call<'_>, pair: &Pair, result: &Tensor, holds: Holds) {
    let saved = vec![pair.a.as_ref(), pair.b.as_ref()];
    c.e.record(&[result], &pair.inputs(), saved, move |b| {
        let gradient = |index: usize| {
            b.needs(index).then(|| {
                let _masks: Vec<Tensor> = (0..holds.masks).map(|_| b.e.mask_of(b.gradient)).collect();
                let _zero = holds.has_zero.then(|| b.e.new_tensor(&[], b.gradient.dtype));
                let _temporaries: Vec<Tensor> = (1..holds.tensors[index]).map(|_| b.e.like(b.gradient)).collect();
                b.e.like(b.gradient)
            })
        };
        let second = gradient(1);
        vec![gradient(0), second]
    });
}

/// `maximum`, `minimum`, `atan2`, `fmod`, `remainder`.
pub(super) fn binary(c: &Call<'_>) -> Outputs {
    let pair = Pair::read(c)?;
    let result = c.e.elementwise(&pair.tensors(), pair.dtype)?;
    let holds = match &c.node.op[..] {
        "fmod" | "remainder" => Holds { tensors: [1, 3], masks: 0, has_zero: false },
        "atan2" | "hypot" => Holds { tensors: [4, 5], masks: 0, has_zero: false },
        _ => Holds { tensors: [3, 3], masks: 2, has_zero: false },
    };
    of_two(c, &pair, &result, holds);
    Ok(vec![result])
}

pub(super) fn pow(c: &Call<'_>) -> Outputs {
    let pair = Pair::read(c)?;
    let result = c.e.elementwise(&pair.tensors(), pair.dtype)?;
    match (&pair.a, &pair.b) {
        (Some(base), None) => {
            let exponent = c.number("exponent").unwrap_or(2.0);
            c.e.record(&[&result], &[Some(base)], vec![Some(base)], move |b| {
                if exponent == 0.0 {
                    return vec![Some(b.e.like(b.gradient))];
                }
                let base = b.saved(0).unwrap_or(b.gradient);
                let _temporaries = [b.e.like(base), b.e.like(base)];
                vec![Some(b.e.like(b.gradient))]
            });
        }
        (None, Some(exponent)) => {
            c.e.record(&[&result], &[None, Some(exponent)], vec![Some(&result)], |b| {
                let _scaled = b.e.like(b.gradient);
                vec![None, Some(b.e.like(b.gradient))]
            });
        }
        _ => of_two(c, &pair, &result, Holds { tensors: [5, 4], masks: 1, has_zero: true }),
    }
    Ok(vec![result])
}

/// `addcmul(self, a, b)` and `addcdiv(self, a, b)`.
pub(super) fn addcmul(c: &Call<'_>) -> Outputs {
    let (this, first, second) = (c.tensor("self")?, c.tensor("tensor1")?, c.tensor("tensor2")?);
    let all = [&this, &first, &second];
    let result = c.e.elementwise(&all, promoted(&all, false))?;
    let is_quotient = c.node.op.starts_with("addcdiv");
    let saved = vec![
        Some(&first).filter(|_| second.requires_grad()),
        Some(&second).filter(|_| first.requires_grad() || is_quotient),
    ];
    c.e.record(&[&result], &[Some(&this), Some(&first), Some(&second)], saved, |b| {
        let gradient = |index: usize, other: Option<&Tensor>| {
            let scaled = b.needs(index).then(|| b.e.like(other.unwrap_or(b.gradient)))?;
            Some(b.e.product(b.gradient, Some(&scaled)))
        };
        vec![b.needs(0).then(|| b.gradient.clone()), gradient(1, b.saved(1)), gradient(2, b.saved(0))]
    });
    Ok(vec![result])
}

/// `lerp(self, end, weight)`.
pub(super) fn lerp(c: &Call<'_>) -> Outputs {
    let (this, end, weight) = (c.tensor("self")?, c.tensor("end")?, c.optional("weight")?);
    let all: Vec<&Tensor> = [&this, &end].into_iter().chain(&weight).collect();
    let result = c.e.elementwise(&all, promoted(&all, false))?;
    let needs_weight = weight.as_ref().is_some_and(Tensor::requires_grad);
    let saved = vec![weight.as_ref(), Some(&this).filter(|_| needs_weight), Some(&end).filter(|_| needs_weight)];
    c.e.record(&[&result], &[Some(&this), Some(&end), weight.as_ref()], saved, |b| {
        let to_end = b.needs(1).then(|| b.e.like(b.gradient));
        let complement = b.saved(0).map(|weight| b.e.like(weight));
        let to_self = b.needs(0).then(|| b.e.like(b.gradient));
        drop(complement);
        let difference = b.needs(2).then(|| b.e.like(b.gradient));
        let to_weight = difference.as_ref().map(|difference| b.e.like(difference));
        vec![to_self, to_end, to_weight]
    });
    Ok(vec![result])
}

pub(super) fn condition(c: &Call<'_>) -> Outputs {
    let (condition, a, b) = (c.tensor("condition")?, c.optional("self")?, c.optional("other")?);
    let operands: Vec<&Tensor> = a.iter().chain(&b).collect();
    let dtype = if operands.is_empty() { c.output_dtype(0).unwrap_or(Dtype::F32) } else { promoted(&operands, false) };
    // A number becomes a tensor for as long as the operation runs.
    let _number = (operands.len() == 1).then(|| c.e.new_tensor(&[], dtype));
    let all: Vec<&Tensor> = std::iter::once(&condition).chain(operands).collect();
    let result = c.e.elementwise(&all, dtype)?;
    c.e.record(&[&result], &[a.as_ref(), b.as_ref()], vec![Some(&condition)], |b| {
        let one = |index: usize| b.needs(index).then(|| b.e.masked(b.gradient, b.saved(0)));
        vec![one(0), one(1)]
    });
    Ok(vec![result])
}

impl Eager {
    /// Makes a gradient that is zero where a mask says.
    fn masked(&self, gradient: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let operands: Vec<&Tensor> = std::iter::once(gradient).chain(mask).collect();
        self.elementwise(&operands, gradient.dtype).unwrap_or_else(|_| self.like(gradient))
    }
}

pub(super) fn masked_fill(c: &Call<'_>, is_in_place: bool) -> Outputs {
    let (this, mask) = (c.tensor("self")?, c.tensor("mask")?);
    let derivative = |b: &Backward<'_>| vec![b.needs(0).then(|| b.e.like(b.gradient))];
    if is_in_place {
        return changed(c, &[Some(&this)], vec![Some(&mask)], derivative);
    }
    let result = c.e.elementwise(&[&this, &mask], this.dtype)?;
    c.e.record(&[&result], &[Some(&this)], vec![Some(&mask)], derivative);
    Ok(vec![result])
}
