//! Tensors of the file: parameters, buffers and constants, under their names in PyTorch.

use super::super::names::{key_of, looks_like_key};
use super::super::proto::TensorProto;
use super::super::{Transform, Weight, tensor};
use super::{Fault, Result, Translator, refuse};
use crate::fold::{self, Origin};
use crate::model::{Data, State, StateKind, ValueId};

impl<'f> Translator<'f> {
    /// Adds a tensor of the file: a parameter, a buffer or a constant.
    pub(super) fn stored(&mut self, name: &str, tensor: &'f TensorProto) -> Result<ValueId> {
        let Some((dtype, mut shape)) = tensor::shape(tensor) else {
            return refuse(format!("the tensor `{name}` has a type or a shape that is not read"));
        };
        let place = tensor::place(tensor, self.path).map_err(Fault)?;
        let role = self.roles.of(name);
        let mut kind = role.kind(name, dtype, &shape);
        // An exporter writes ones and zeros for what a normalisation does not have.
        let neutral = tensor::data(tensor, self.path).filter(|_| role.is_norm && !looks_like_key(name));
        let neutral = neutral.and_then(|data| fold::Tensor::read(&data, &shape, dtype)).map(|tensor| tensor.numbers());
        if neutral.is_some_and(|numbers| [0.0, 1.0].iter().any(|&number| numbers.iter().all(|&other| other == number)))
        {
            kind = StateKind::Constant;
        }
        let is_parameter = matches!(kind, StateKind::Parameter { .. });
        let key = if is_parameter || matches!(kind, StateKind::Buffer { .. }) {
            key_of(name, role)
        } else {
            name.to_string()
        };
        let is_turned = is_parameter && role.is_turned && !looks_like_key(name) && shape.len() == 2;
        if is_turned {
            shape.reverse();
        }
        let data = if is_parameter { None } else { tensor::data(tensor, self.path) };
        let wide = shape.clone();
        if is_parameter && role.is_flat && !looks_like_key(name) {
            shape.retain(|&size| size != 1);
        }
        let value = self.define(name, dtype, shape.clone())?;
        if is_turned {
            self.turned.push(value);
        }
        // A module that is called under several names has the first one, as in PyTorch.
        let is_shared =
            is_parameter && looks_like_key(name) && role.is_shared(name) && !self.stored_names.contains(&role.key[..]);
        let (key, other) = if is_shared { (role.key.clone(), Some(key)) } else { (key, None) };
        let key = self.unique(key);
        if is_parameter || matches!(kind, StateKind::Buffer { is_saved: true }) {
            let transform = if is_turned { Transform::Transposed } else { Transform::AsIs };
            self.weights.push(Weight {
                key: key.clone(),
                // A copy under another name has the elements of the tensor that is copied.
                initializer: tensor.name.clone().unwrap_or_default(),
                place,
                dtype,
                shape: shape.clone(),
                transform,
            });
        }
        self.own(key, value, kind, data);
        if let Some(other) = other {
            let owner = self.model.state.len() - 1;
            let other = self.unique(other);
            self.keys.insert(other.clone());
            self.model.state.push(State { key: other, value, kind, tied_to: Some(owner), data: None });
        }
        if wide.len() != shape.len() { self.reshaped(value, wide) } else { Ok(value) }
    }

    /// True for a tensor that has one number everywhere, as parameters have before training.
    pub(super) fn is_uniform(&self, tensor: &TensorProto) -> bool {
        let read = tensor::shape(tensor)
            .filter(|(_, shape)| shape.len() == 1)
            .and_then(|(dtype, shape)| fold::Tensor::read(&tensor::data(tensor, self.path)?, &shape, dtype));
        let numbers = read.map(|tensor| tensor.numbers()).unwrap_or_default();
        numbers.split_first().is_some_and(|(first, rest)| rest.iter().all(|number| number == first))
    }

    /// Returns a key that no other tensor has.
    pub(super) fn unique(&mut self, key: String) -> String {
        let mut name = key.clone();
        let mut number = 1;
        while self.keys.contains(&name) {
            name = format!("{key}_{number}");
            number += 1;
        }
        name
    }

    /// Adds a tensor that the model owns.
    pub(super) fn own(&mut self, key: String, value: ValueId, kind: StateKind, data: Option<Data>) {
        let known = &self.model.values[value];
        self.origins[value] = match kind {
            StateKind::Parameter { .. } => Origin::Parameters,
            _ => Origin::Constant(data.as_ref().and_then(|data| fold::Tensor::read(data, &known.shape, known.dtype))),
        };
        self.keys.insert(key.clone());
        self.owners.insert(value, self.model.state.len());
        self.model.state.push(State { key, value, kind, tied_to: None, data });
    }
}
