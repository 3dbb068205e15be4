//! Follows the batch through a model: which dimension of each value counts samples.
//!
//! A dimension is followed by what operations do, not by its size: 2 is a batch and may be a number of channels, too. Views may merge the
//! batch with other dimensions, as windows of an image are merged; so a dimension is `before * batch * after`.

mod rules;

pub(crate) use rules::{index, order};

use crate::model::{Argument, Model, Value, ValueId};

/// The dimension of a value that counts samples.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Axis {
    /// The index of the dimension.
    pub dim: usize,
    /// The factor of the dimension outside of the batch: the size of a dimension that was merged into it from the left.
    pub before: u64,
    /// The factor inside of the batch.
    pub after: u64,
}

impl Axis {
    /// Returns the axis of a dimension that is the batch alone.
    pub fn of(dim: usize) -> Axis {
        Axis { dim, before: 1, after: 1 }
    }

    /// Returns this axis at another index.
    pub fn at(self, dim: usize) -> Axis {
        Axis { dim, ..self }
    }
}

/// The batch of a model, followed through all operations.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The number of samples.
    pub size: u64,
    /// The axis of each value. `None` if a value is the same for every sample, or mixes samples.
    pub axes: Vec<Option<Axis>>,
    /// The operations that mix samples, by their index in [`Model::nodes`].
    pub mixing: Vec<usize>,
    /// The node that makes each value, among those that were visited.
    pub makers: Vec<Option<usize>>,
}

impl Batch {
    /// Follows the batch from the first dimension of all inputs that have the size of the first input's.
    ///
    /// Returns `None` if the first input has no dimension, or one of a single sample: then it cannot be told from other dimensions of 1.
    pub fn follow(model: &Model) -> Option<Batch> {
        let size = model.batch.filter(|&batch| batch > 1)?;
        let mut batch = Batch {
            size,
            axes: vec![None; model.values.len()],
            mixing: Vec::new(),
            makers: vec![None; model.values.len()],
        };
        for &input in &model.inputs {
            if model.values[input].shape.first() == Some(&size) {
                batch.axes[input] = Some(Axis::of(0));
            }
        }
        for index in 0..model.nodes.len() {
            batch.visit(model, index);
        }
        Some(batch)
    }

    /// Follows the batch through a node.
    pub(crate) fn visit(&mut self, model: &Model, index: usize) {
        let node = &model.nodes[index];
        let found = rules::outputs(model, node, self, &self.makers);
        let axes = found.unwrap_or_else(|rules::Mixes| {
            self.mixing.push(index);
            Vec::new()
        });
        self.makers.resize(model.values.len(), None);
        for (position, &output) in node.outputs.iter().enumerate() {
            self.makers[output] = Some(index);
            let axis = axes.get(position).or(axes.last()).copied().flatten();
            self.axes[output] = axis.filter(|axis| self.is_dimension(*axis, &model.values[output]));
        }
        // A change in place is seen by all that read the first argument afterwards.
        if let (true, Some(first), Some(&output)) =
            (node.op.ends_with('_'), node.tensors().next(), node.outputs.first())
            && model.values[first].shape == model.values[output].shape
            && self.axes[first].is_none()
        {
            self.axes[first] = self.axes[output];
        }
    }

    fn is_dimension(&self, axis: Axis, value: &Value) -> bool {
        let size = axis.before.checked_mul(self.size).and_then(|size| size.checked_mul(axis.after));
        size.is_some() && value.shape.get(axis.dim).copied() == size
    }

    /// Returns the shape of one sample: the factors of the batch dimension that are not the batch stay, and a lone batch dimension goes.
    pub fn sample(&self, value: ValueId, model: &Model) -> Vec<u64> {
        let mut shape = model.values[value].shape.clone();
        if let Some(axis) = self.axes[value] {
            match axis.before * axis.after {
                1 => drop(shape.remove(axis.dim)),
                factor => shape[axis.dim] = factor,
            }
        }
        shape
    }

    /// Returns the model for another number of samples: shapes, strides and the sizes among the arguments. `None` if a tensor would have
    /// 2^63 bytes or more.
    pub fn resized(&self, model: &Model, samples: u64) -> Option<Model> {
        let mut resized = model.clone();
        for (value, axis) in resized.values.iter_mut().zip(&self.axes) {
            if let Some(axis) = axis {
                resize(value, *axis, self.size, samples)?;
            }
        }
        for node in &mut resized.nodes {
            let Some(&output) = node.outputs.first() else { continue };
            let Some(axis) = self.axes[output] else { continue };
            let old = axis.before * self.size * axis.after;
            let new = axis.before * samples * axis.after;
            // The sizes of `unflatten` are those from its dimension on.
            let first = match (&node.op[..], node.argument("dim")) {
                ("unflatten", Some(Argument::Int(dim))) => rules::index(*dim, model.values[output].shape.len()),
                _ => 0,
            };
            let is_made = node.tensors().all(|input| self.axes[input].is_none());
            for (name, argument) in &mut node.arguments {
                match (&name[..], argument) {
                    ("size" | "shape" | "sizes", Argument::Ints(sizes)) => {
                        let size = axis.dim.checked_sub(first).and_then(|dim| sizes.get_mut(dim));
                        if let Some(size) = size.filter(|size| **size == old as i64) {
                            *size = new as i64;
                        }
                    }
                    ("repeats", Argument::Ints(repeats)) => {
                        let repeat = repeats.get_mut(axis.dim).filter(|repeat| **repeat % self.size as i64 == 0);
                        // The batch was made here, of something that all samples share.
                        if let (Some(repeat), true) = (repeat, is_made) {
                            *repeat = *repeat / self.size as i64 * samples as i64;
                        }
                    }
                    ("end", Argument::Int(end)) if node.op == "arange" => *end = *end / old as i64 * new as i64,
                    _ => {}
                }
            }
        }
        resized.batch = Some(samples);
        Some(resized)
    }
}

/// Changes the shape and the strides of a value. Dimensions that lie outside of the batch in memory move apart.
fn resize(value: &mut Value, axis: Axis, old: u64, new: u64) -> Option<()> {
    if let Some(strides) = &mut value.strides {
        let span = strides[axis.dim].saturating_mul(value.shape[axis.dim]);
        for (dim, stride) in strides.iter_mut().enumerate() {
            if dim != axis.dim && *stride >= span && span > 0 {
                *stride = (*stride / old).checked_mul(new)?;
            }
        }
    }
    value.shape[axis.dim] = (value.shape[axis.dim] / old).checked_mul(new)?;
    value.elements()?.checked_mul(value.dtype.bytes()).filter(|bytes| *bytes < 1 << 63).map(drop)
}
