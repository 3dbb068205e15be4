//! Lifts what can be said of a model that need not be said whole.

use super::{Layer, Lift, Lifted, patterns};
use crate::batch::Batch;
use crate::model::{Model, ValueId};
use std::collections::HashSet;

/// A model as layers, with holes for the operations that cannot be said.
pub(crate) struct Open {
    /// All layers, also those that no output depends on.
    pub(crate) lifted: Lifted,
    /// The operations that cannot be said.
    pub(crate) holes: Vec<Hole>,
    /// The shapes of values that no value of the model is, from `first_made` on.
    made: Vec<Vec<u64>>,
    first_made: ValueId,
    /// Values that all samples share.
    shared: HashSet<ValueId>,
    /// Values of the model that differ from sample to sample, of which nobody knows the dimension that counts samples.
    adrift: HashSet<ValueId>,
}

/// An operation that cannot be said, with the values that its neighbours read and make.
pub(crate) struct Hole {
    pub(crate) node: usize,
    pub(crate) inputs: Vec<ValueId>,
    pub(crate) outputs: Vec<ValueId>,
}

impl Open {
    /// Returns the shape of a sample of a value that is none of the model.
    pub(crate) fn shape(&self, value: ValueId) -> Option<Vec<u64>> {
        self.made.get(value.checked_sub(self.first_made)?).cloned()
    }

    /// True if a value has samples, and nobody knows along which dimension.
    pub(crate) fn is_adrift(&self, value: ValueId) -> bool {
        self.adrift.contains(&value)
    }

    /// True if all samples share a value.
    pub(crate) fn is_shared(&self, value: ValueId) -> bool {
        self.shared.contains(&value)
    }
}

/// Lifts a model that need not be said whole.
pub(crate) fn lift_open(model: &Model, batch: &Batch) -> Open {
    let mut lift = Lift::new(model, batch);
    patterns::find(&mut lift);
    let mut holes: Vec<Hole> = Vec::new();
    for index in 0..model.nodes.len() {
        let before = lift.unknown.len();
        lift.visit(index);
        if lift.unknown.len() > before {
            let node = &model.nodes[index];
            let inputs = node.tensors().filter(|&input| lift.is_sample(input)).map(|input| lift.resolve(input));
            holes.push(Hole { node: index, inputs: inputs.collect(), outputs: node.outputs.clone() });
        }
    }
    let outputs: Vec<ValueId> = model.outputs.iter().map(|&output| lift.resolve(output)).collect();
    let is_shared = |layer: &&Layer| !lift.is_batched(layer.output);
    let shared = lift.layers.iter().filter(is_shared).map(|layer| layer.output).collect();
    let adrift =
        (0..model.values.len()).filter(|&value| lift.is_sample(value) && batch.axes[value].is_none()).collect();
    let Lift { layers, noise, tables, made, .. } = lift;
    let lifted = Lifted { layers, outputs, noise, tables, ..Lifted::default() };
    Open { lifted, holes, made, first_made: model.values.len(), shared, adrift }
}
