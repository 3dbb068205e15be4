//! The arguments of an operation of ONNX.

use super::super::proto::{AttributeProto, GraphProto, NodeProto, TensorProto};
use super::{Bound, Result, refuse};
use crate::model::{Dtype, ValueId};
use std::collections::HashMap;

/// An operation with what its inputs stand for.
pub(in super::super) struct Call<'f, 'c> {
    pub(super) node: &'f NodeProto,
    pub(super) kind: &'f str,
    pub(super) inputs: Vec<Option<Bound>>,
    /// Arguments of the function in which the operation is.
    pub(super) attributes: &'c HashMap<String, &'f AttributeProto>,
}

impl<'f> Call<'f, '_> {
    /// Returns an input that must be there.
    pub(super) fn tensor(&self, index: usize) -> Result<ValueId> {
        match self.optional(index) {
            Some(value) => Ok(value),
            None => refuse(format!("its input {index} is missing")),
        }
    }

    /// Returns an input. `None` if it is missing.
    pub(super) fn optional(&self, index: usize) -> Option<ValueId> {
        match self.inputs.get(index)? {
            Some(Bound::Tensor(value)) => Some(*value),
            _ => None,
        }
    }

    /// Returns all inputs, which must be tensors.
    pub(super) fn tensors(&self) -> Result<Vec<ValueId>> {
        (0..self.inputs.len()).map(|index| self.tensor(index)).collect()
    }

    /// True if the output is read by name.
    pub(super) fn has_output(&self, index: usize) -> bool {
        self.node.output.get(index).is_some_and(|name| !name.is_empty())
    }

    fn attribute(&self, name: &str) -> Option<&'f AttributeProto> {
        let found = self.node.attribute.iter().find(|attribute| attribute.name.as_deref() == Some(name))?;
        match found.ref_attr_name.as_deref() {
            None | Some("") => Some(found),
            Some(outer) => self.attributes.get(outer).copied(),
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.attribute(name).is_some()
    }

    pub(super) fn int(&self, name: &str, default: i64) -> i64 {
        self.attribute(name).and_then(|attribute| attribute.i).unwrap_or(default)
    }

    pub(super) fn ints(&self, name: &str) -> Option<Vec<i64>> {
        self.attribute(name).map(|attribute| attribute.ints.clone())
    }

    /// Returns a number, as the shortest one that rounds to what the file has.
    pub(super) fn float(&self, name: &str, default: f64) -> f64 {
        let number = self.attribute(name).and_then(|attribute| attribute.f);
        number.map_or(default, |number| shortest(f64::from(number), Dtype::F32))
    }

    pub(super) fn floats(&self, name: &str) -> Option<Vec<f64>> {
        let numbers = self.attribute(name).map(|attribute| attribute.floats.clone());
        numbers.map(|numbers| numbers.into_iter().map(|number| shortest(f64::from(number), Dtype::F32)).collect())
    }

    pub(super) fn text(&self, name: &str) -> Option<&'f str> {
        self.attribute(name).and_then(|attribute| std::str::from_utf8(attribute.s.as_deref()?).ok())
    }

    pub(super) fn value(&self, name: &str) -> Option<&'f TensorProto> {
        self.attribute(name).and_then(|attribute| attribute.t.as_ref())
    }

    pub(super) fn graph(&self, name: &str) -> Option<&'f GraphProto> {
        self.attribute(name).and_then(|attribute| attribute.g.as_ref())
    }
}

/// Returns the number with the fewest digits that rounds to the same f32: 0.1 and not 0.10000000149.
pub(super) fn shortest(number: f64, dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F64 => number,
        _ => (number as f32).to_string().parse().unwrap_or(number),
    }
}
