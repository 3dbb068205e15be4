//! The differences between a network and the state dict of its model.

use crate::lift::layer::Change;
use crate::lift::{Layer, Lifted};
use gpumem_core::network::torch_name;
use std::collections::{HashMap, HashSet};

/// The differences between a network and the state dict of its model: see [`Plan::new`].
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Names of parameters that are not their keys in the state dict, by key.
    names: HashMap<String, String>,
    /// Keys of matrices that the network has transposed.
    transposed: HashSet<String>,
    /// Shapes in the network, by name. They may have other axes of one element than the state dict.
    shapes: HashMap<String, Vec<u64>>,
    /// Tables of numbers: key, shape and numbers.
    pub(super) tables: Vec<(String, Vec<u64>, Vec<f64>)>,
}

impl Plan {
    /// Collects the differences. `renamed` are its names with their keys, `shapes` its parameters with their shapes.
    pub fn new<'p>(
        lifted: &Lifted,
        renamed: &[(String, String)],
        shapes: impl IntoIterator<Item = (&'p str, &'p [u64])>,
    ) -> Plan {
        let changed = lifted.layers.iter().flat_map(|layer| layer.changes.iter().map(move |change| (layer, change)));
        let key = |(layer, (name, change)): (&Layer, &(&str, Change))| {
            let Change::Transposed = change;
            layer.keys.iter().find_map(|(other, key)| (other == name).then(|| key.clone()))
        };
        let tables = lifted.tables.iter().map(|table| (table.key.clone(), table.shape.clone(), table.numbers.clone()));
        Plan {
            names: renamed.iter().map(|(name, key)| (key.clone(), torch_name(name))).collect(),
            transposed: changed.filter_map(key).collect(),
            shapes: shapes.into_iter().map(|(name, shape)| (torch_name(name), shape.to_vec())).collect(),
            tables: tables.collect(),
        }
    }

    /// Returns the name in the network of a tensor of the state dict. A name that the network turns out not to have is none.
    pub(super) fn name(&self, key: &str) -> String {
        let renamed = self.names.get(key).filter(|name| self.shapes.is_empty() || self.shapes.contains_key(&name[..]));
        renamed.cloned().unwrap_or_else(|| key.to_string())
    }

    /// True if the network has this matrix of the state dict transposed.
    pub(super) fn is_transposed(&self, key: &str) -> bool {
        self.transposed.contains(key)
    }

    /// True if the network has a parameter that is this tensor of the state dict, and no table of its numbers.
    pub(super) fn has(&self, key: &str) -> bool {
        self.shapes.contains_key(&self.name(key)) && self.tables.iter().all(|(table, ..)| table != key)
    }

    /// Returns the shape of a tensor in the network: the one that is given, unless the network has as many elements in other axes.
    pub(super) fn shape(&self, name: &str, shape: Vec<u64>) -> Vec<u64> {
        let product = |shape: &[u64]| shape.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim));
        let own = self.shapes.get(name).filter(|own| product(own) == product(&shape));
        own.cloned().unwrap_or(shape)
    }
}
