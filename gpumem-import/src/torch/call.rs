//! An operation of the model with its arguments, as it runs.

use super::layout::{elements, index};
use super::meta::{Eager, Tensor};
use super::sizes;
use crate::model::{Argument, Dtype, Model, Node, ValueId};

/// The reason why an operation cannot run.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fault {
    /// Nothing is known of the operation.
    Unknown,
    /// The arguments do not fit together.
    Malformed(String),
}

/// The result of a part of an operation.
pub(super) type Result<T = Tensor> = std::result::Result<T, Fault>;

/// The tensors that an operation returns.
pub(super) type Outputs = Result<Vec<Tensor>>;

/// Returns the error of arguments that do not fit together.
pub(super) fn malformed<T>(what: impl Into<String>) -> Result<T> {
    Err(Fault::Malformed(what.into()))
}

/// An operation that runs.
pub(super) struct Call<'a> {
    pub e: &'a Eager,
    pub node: &'a Node,
    /// The model at the batch that runs: sizes among the arguments are those of this batch.
    pub model: &'a Model,
    /// The model at the batch with which it was exported.
    pub exported: &'a Model,
    /// The tensors that Python's frames hold.
    pub values: &'a [Option<Tensor>],
    /// True if autocast runs the operation in f32: what it reads is converted.
    pub converts: bool,
    /// True if tensors are expanded along the first dimension to a multiple of the batch wherever their size is one.
    pub scales: bool,
}

impl<'a> Call<'a> {
    pub fn argument(&self, name: &str) -> Option<&'a Argument> {
        self.node.argument(name)
    }

    pub fn value(&self, id: ValueId) -> Result {
        match self.values.get(id).cloned().flatten() {
            Some(tensor) if self.converts && tensor.is_float() => Ok(self.e.cast(&tensor, Dtype::F32)),
            Some(tensor) => Ok(tensor),
            None => malformed("reads a tensor that is gone"),
        }
    }

    /// Returns a tensor that must be there.
    pub fn tensor(&self, name: &str) -> Result {
        match self.optional(name)? {
            Some(tensor) => Ok(tensor),
            None => malformed(format!("has no tensor `{name}`")),
        }
    }

    /// Returns a tensor. `None` if it is missing, or is no tensor.
    pub fn optional(&self, name: &str) -> Result<Option<Tensor>> {
        self.node.tensor(name).map(|id| self.value(id)).transpose()
    }

    /// Returns the tensors of a list; those that are `None` are left out of it.
    pub fn tensors(&self, name: &str) -> Result<Vec<Option<Tensor>>> {
        match self.argument(name) {
            Some(Argument::Tensors(all)) => all.iter().map(|id| id.map(|id| self.value(id)).transpose()).collect(),
            Some(Argument::Tensor(id)) => Ok(vec![Some(self.value(*id)?)]),
            _ => malformed(format!("has no list `{name}` of tensors")),
        }
    }

    /// Returns the first tensor that the operation reads.
    pub fn first(&self) -> Result {
        match self.node.tensors().next() {
            Some(id) => self.value(id),
            None => malformed("reads no tensor"),
        }
    }

    pub fn int(&self, name: &str) -> Option<i64> {
        match self.argument(name)? {
            Argument::Int(number) => Some(*number),
            _ => None,
        }
    }

    pub fn ints(&self, name: &str) -> Option<Vec<i64>> {
        match self.argument(name)? {
            Argument::Int(number) => Some(vec![*number]),
            Argument::Ints(numbers) => Some(numbers.clone()),
            _ => None,
        }
    }

    pub fn number(&self, name: &str) -> Option<f64> {
        match self.argument(name)? {
            Argument::Int(number) => Some(*number as f64),
            Argument::Float(number) => Some(*number),
            Argument::Bool(flag) => Some(f64::from(u8::from(*flag))),
            _ => None,
        }
    }

    pub fn flag(&self, name: &str, default: bool) -> bool {
        match self.argument(name) {
            Some(Argument::Bool(flag)) => *flag,
            _ => default,
        }
    }

    pub fn text(&self, name: &str) -> Option<&'a str> {
        match self.argument(name)? {
            Argument::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn dtype(&self, name: &str) -> Option<Dtype> {
        match self.argument(name)? {
            Argument::Dtype(dtype) => Some(*dtype),
            _ => None,
        }
    }

    /// Returns the index of a dimension of a tensor.
    pub fn dim(&self, name: &str, default: i64, rank: usize) -> Result<usize> {
        let dim = self.int(name).unwrap_or(default);
        match index(dim, rank) {
            Some(dim) => Ok(dim),
            None => malformed(format!("has a dimension {dim} of {rank}")),
        }
    }

    /// Returns the type that the file says of an output.
    pub fn output_dtype(&self, position: usize) -> Option<Dtype> {
        Some(self.model.values.get(*self.node.outputs.get(position)?)?.dtype)
    }

    /// Returns the shape of an output at the batch that runs, as the file and the batch say.
    pub fn output_shape(&self, position: usize) -> Result<&'a [u64]> {
        match self.node.outputs.get(position).and_then(|&id| self.model.values.get(id)) {
            Some(value) => Ok(&value.shape),
            None => malformed("has no output"),
        }
    }

    /// Returns the size to which a first dimension is expanded, at the batch that runs: another one than the literal if `scales` is set.
    pub fn scaled(&self, size: u64) -> u64 {
        match (self.exported.batch, self.model.batch) {
            (Some(before), Some(now)) if self.scales && before > 1 && size.is_multiple_of(before) => {
                (size / before).saturating_mul(now)
            }
            _ => size,
        }
    }

    /// Returns the shape of an output as the file says it.
    ///
    /// A dimension that does not follow the batch, and was the first tensor's or a multiple of that, is what that makes it now.
    pub fn recorded_shape(&self, position: usize) -> Result<Vec<u64>> {
        let mut shape = self.output_shape(position)?.to_vec();
        let Some(id) = self.node.tensors().next() else { return Ok(shape) };
        let input = self.value(id)?;
        let exported = |id: usize| self.exported.values.get(id).map(|value| &value.shape[..]).unwrap_or_default();
        let output = self.node.outputs.get(position).map(|&id| exported(id)).unwrap_or_default();
        for (((size, &recorded), &now), &before) in shape.iter_mut().zip(output).zip(&input.shape).zip(exported(id)) {
            if *size == recorded && before != now && before > 0 && recorded.is_multiple_of(before) {
                *size = (recorded / before).saturating_mul(now);
            }
        }
        Ok(shape)
    }

    /// Returns the shape that a view of `input` has.
    pub fn viewed_shape(&self, input: &Tensor) -> Result<Vec<u64>> {
        let shape = self.output_shape(0)?;
        if elements(shape) == input.elements() {
            return Ok(shape.to_vec());
        }
        // The batch was lost on the way: its factor is found in the dimensions that merge and split.
        let [before, after] = [self.node.tensors().next(), self.node.outputs.first().copied()]
            .map(|id| id.and_then(|id| self.exported.values.get(id)).map(|value| &value.shape[..]));
        let followed = match (before, after) {
            (Some(before), Some(after)) => sizes::follow(before, &input.shape, after),
            _ => None,
        };
        match followed {
            Some(shape) if elements(&shape) == input.elements() => Ok(shape),
            _ => malformed(format!("views {:?} as {shape:?}", input.shape)),
        }
    }
}

/// Returns the elements of a list as sizes.
pub(super) fn sizes_of(numbers: &[i64]) -> Result<Vec<u64>> {
    let sizes: Option<Vec<u64>> = numbers.iter().map(|&number| u64::try_from(number).ok()).collect();
    match sizes {
        Some(sizes) => Ok(sizes),
        None => malformed(format!("has a negative size in {numbers:?}")),
    }
}
