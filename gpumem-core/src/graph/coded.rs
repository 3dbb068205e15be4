//! Weights that are kept in codes: a graph in which linear maps read codes and scales.

use super::{Elements, Graph, Node, NodeId, Parameter, RowId, Source, Type};
use crate::number::{Coding, Role};
use crate::program::{Init, Op, ops};
use crate::shape::Shape;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// What the name of a weight's scales has behind that of the weight, as in bitsandbytes.
pub const SCALES: &str = ".absmax";

/// The scales of a weight that is kept in codes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scales {
    coding: Coding,
    /// Their number among the parameters.
    parameter: usize,
}

impl Graph {
    /// Whether some linear map of these layers has a weight that may be kept in codes.
    pub fn has_base(&self, rows: &Range<RowId>) -> bool {
        self.maps(rows).into_keys().any(|weight| self.is_base(weight))
    }

    /// Whether a weight is a matrix that nothing reads but linear maps.
    fn is_base(&self, weight: usize) -> bool {
        let is_it = |id: &NodeId| self.nodes[*id].source == Source::Parameter(weight);
        let mut readers = self.nodes.iter().filter(|node| node.inputs().iter().any(is_it));
        self.parameters[weight].shape.rank() == 2
            && readers.all(|node| {
                let others = node.inputs().iter().enumerate().filter(|(index, _)| *index != 1);
                self.own_weight(node) == Some(weight) && !others.map(|(_, id)| id).any(is_it)
            })
    }

    /// The same network with the weights that `lora` around these layers freezes in codes, and the new number of each node. Nothing where
    /// none may be.
    pub fn with_base(&self, all: &[Range<RowId>], coding: Coding) -> Option<(Graph, Vec<NodeId>)> {
        let (mut other, mut scales) = (self.clone(), BTreeMap::new());
        all.iter().for_each(|rows| other.code(rows, coding, &mut scales));
        if scales.is_empty() {
            return None;
        }
        let places = other.with_adapters(&BTreeMap::new(), &scales, &[]);
        Some((other, places))
    }

    /// Keeps the weights of linear maps of these layers in codes, those that `scales` has not: it is given their scales. Those of adapters,
    /// which are trained, stay as they are.
    pub(super) fn code(&mut self, rows: &Range<RowId>, coding: Coding, scales: &mut BTreeMap<usize, Scales>) {
        let frozen = self.frozen_parameters();
        for weight in self.maps(rows).into_keys() {
            if !scales.contains_key(&weight) && frozen[weight] && self.is_base(weight) {
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

    /// Lets a linear map, which is added next, read its weight as codes and scales.
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
