//! Quantized weights: rewrites a graph so that linear layers read codes and scales.

use super::{Elements, Graph, Node, NodeId, Parameter, RowId, Source, Type};
use crate::number::{Coding, Role};
use crate::program::{Init, Op, ops};
use crate::shape::Shape;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;

/// The suffix that turns a weight's name into that of its scales, as in bitsandbytes.
pub const SCALES: &str = ".absmax";

/// The scales of a quantized weight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scales {
    coding: Coding,
    /// Their index among the parameters.
    parameter: usize,
}

impl Graph {
    /// True if a linear layer in these rows has one of the weights in [`Graph::bases`], which may be quantized.
    pub fn has_base(&self, rows: &Range<RowId>, bases: &BTreeSet<usize>) -> bool {
        self.maps(rows).into_keys().any(|weight| bases.contains(&weight))
    }

    /// Returns the weights that may be quantized: matrices that only linear layers read.
    pub fn bases(&self) -> BTreeSet<usize> {
        let is_matrix = |&weight: &usize| self.parameters[weight].shape.rank() == 2;
        let mut bases: BTreeSet<usize> = (0..self.parameters.len()).filter(is_matrix).collect();
        for node in &self.nodes {
            let own = self.own_weight(node);
            for (index, &input) in node.inputs().iter().enumerate() {
                if let Source::Parameter(read) = self.nodes[input].source
                    && (index != 1 || own != Some(read))
                {
                    bases.remove(&read);
                }
            }
        }
        bases
    }

    /// Returns those weights of [`Graph::bases`] that no training step changes.
    pub(super) fn frozen_bases(&self) -> BTreeSet<usize> {
        let (mut bases, frozen) = (self.bases(), self.frozen_parameters());
        bases.retain(|&weight| frozen[weight]);
        bases
    }

    /// Returns the graph with the frozen weights in [`Graph::loras`] quantized, and the new index of each node. `None` if they have no weight
    /// that may be quantized.
    pub fn with_base(&self, coding: Coding) -> Option<(Graph, Vec<NodeId>)> {
        let (mut other, mut scales, bases) = (self.clone(), BTreeMap::new(), self.frozen_bases());
        core::mem::take(&mut other.loras).iter().for_each(|rows| other.code((rows, &bases), coding, &mut scales));
        if scales.is_empty() {
            return None;
        }
        let places = other.with_adapters(&BTreeMap::new(), &scales, &[]);
        Some((other, places))
    }

    /// Quantizes weights of linear layers in these rows: those of `bases` that are not yet in `scales`. Adds their scales to `scales`.
    /// Weights of adapters are trained, so they stay unquantized.
    pub(super) fn code(
        &mut self,
        (rows, bases): (&Range<RowId>, &BTreeSet<usize>),
        coding: Coding,
        scales: &mut BTreeMap<usize, Scales>,
    ) {
        for weight in self.maps(rows).into_keys() {
            if !scales.contains_key(&weight) && bases.contains(&weight) {
                let parameter = self.code_one(weight, coding);
                scales.insert(weight, Scales { coding, parameter });
            }
        }
    }

    fn code_one(&mut self, weight: usize, coding: Coding) -> usize {
        let of = &mut self.parameters[weight];
        of.role = coding.role();
        let (name, row) = (alloc::format!("{}{SCALES}", of.name), of.row);
        let shape = Shape::new(&[coding.scales(crate::shape::product(of.shape.dims()))]);
        let init = Init::Constant(0.0);
        self.parameters.push(Parameter { name, row, shape, role: Role::Scale, init });
        self.parameters.len() - 1
    }

    /// Makes a linear layer, which is added next, read its weight as codes and scales.
    pub(super) fn read_codes(&mut self, map: &mut Node, of: Scales) {
        let Scales { coding, parameter } = of;
        let Source::Op { op, inputs, .. } = &mut map.source else { return };
        let Op::Product(product) = &*op else { return };
        self.nodes[inputs[1]].value.elements = Elements::Bytes;
        let scales = Type { batched: false, ..Type::numbers(self.parameters[parameter].shape) };
        let scales = self.node(scales, Source::Parameter(parameter), map.row);
        self.nodes[scales].detached = true;
        inputs.insert(2, scales);
        *op = ops::CodedProduct { coding, product: product.clone() }.into();
    }
}
