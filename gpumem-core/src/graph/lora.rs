//! Low-rank adapters (LoRA): rewrites a graph so that linear layers have them.
//!
//! A linear layer `W x + b` becomes `W x + b + alpha / rank * B A x`. Only A and B are trained. The input is saved once, for the
//! gradient of A, and so is the output of A, `rank` numbers a row.

use super::coded::Scales;
use super::{Graph, MOST_ELEMENTS, Node, NodeId, Parameter, RowId, Source, Type};
use crate::number::{Coding, Role, inverse_sqrt};
use crate::program::functions::Function;
use crate::program::ops::{self, Pointwise, Product};
use crate::program::{Init, Op};
use crate::shape::{Shape, product};
use crate::train::optim::matches;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Adapters of the linear layers in a part of a network: `lora(8, 16.0, x, targets = "q_proj, v_proj")`.
#[derive(Clone, Debug, PartialEq)]
pub struct Lora {
    /// Rows of A and columns of B.
    pub rank: u64,
    /// Scale of `B A x`, before it is divided by the rank.
    pub alpha: f64,
    /// Names of the linear layers that get adapters; empty if all get one.
    pub targets: Vec<String>,
    /// Quantisation of the linear layers' weights, with an adapter or without; `None` for the network's format.
    pub base: Option<Coding>,
    /// The rows of the part.
    pub rows: Range<RowId>,
}

/// A linear layer that may have an adapter.
#[derive(Clone, Debug)]
pub(super) struct Map {
    /// The beginning of its adapter's names: `layers[0].q_proj.`.
    stem: String,
    /// Names by which a target may mean it.
    names: Vec<String>,
    row: RowId,
}

/// The indices of an adapter's parameters, and its factor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Adapter {
    a: usize,
    b: usize,
    rank: u64,
    factor: f64,
}

impl Map {
    /// Returns the linear layer whose weight is `parameter`. `None` if its name is not that of a weight.
    fn of(graph: &Graph, parameter: &Parameter) -> Option<Map> {
        let name = parameter.name.strip_suffix("weight")?;
        // `in_proj_weight` belongs to the attention layer itself, as in PyTorch.
        let (stem, own) = match name.strip_suffix('_') {
            Some(own) => (own.rfind('.').map_or("", |dot| &own[..=dot]), own),
            None => (name, name.strip_suffix('.')?),
        };
        let layer = graph.rows.get(parameter.row)?.path.as_str();
        let names = [own, layer].into_iter().flat_map(|name| [name.to_string(), unnumbered(name)]).collect();
        Some(Map { stem: stem.into(), names, row: parameter.row })
    }

    /// True if `target` means it: if it matches the last names of its path, with `*` for any text.
    fn is_meant_by(&self, target: &str) -> bool {
        let anywhere = alloc::format!("*.{target}");
        self.names.iter().any(|name| matches(target, name) || matches(&anywhere, name))
    }
}

/// Returns a path without the numbers in it.
fn unnumbered(path: &str) -> String {
    let parts = path.split('[').map(|part| part.split_once(']').map_or(part, |(_, rest)| rest));
    parts.collect()
}

impl Graph {
    /// Returns the linear layers of these rows by the indices of their weights. It leaves out `Tied`, which uses another layer's weight, and
    /// layers whose weight is computed from other parameters.
    pub(super) fn maps(&self, rows: &Range<RowId>) -> BTreeMap<usize, Map> {
        let weights = self.nodes_of(rows).iter().filter_map(|node| self.own_weight(node));
        let own = weights.filter(|&weight| rows.contains(&self.parameters[weight].row));
        own.filter_map(|weight| Some((weight, Map::of(self, &self.parameters[weight])?))).collect()
    }

    /// Returns the nodes of these rows. Nodes are in the order of their rows.
    fn nodes_of(&self, rows: &Range<RowId>) -> &[Node] {
        let [first, end] = [rows.start, rows.end].map(|row| self.nodes.partition_point(|node| node.row < row));
        &self.nodes[first..end.max(first)]
    }

    /// Returns the weight of a linear layer that reads a parameter of its own directly. `None` for other nodes.
    pub(super) fn own_weight(&self, node: &Node) -> Option<usize> {
        let Source::Op { op: Op::Product(_), inputs, .. } = &node.source else { return None };
        let Source::Parameter(weight) = self.nodes[*inputs.get(1)?].source else { return None };
        (self.rows.get(node.row)?.kind != "Tied").then_some(weight)
    }

    /// Returns the linear layers of these rows that `lora` can train: those with a use outside of `freeze`.
    fn adaptable(&self, rows: &Range<RowId>) -> BTreeMap<usize, Map> {
        let mut maps = self.maps(rows);
        let uses = self.nodes_of(rows).iter().filter(|node| !self.is_frozen_use(node));
        let trained: BTreeSet<usize> = uses.filter_map(|node| self.own_weight(node)).collect();
        maps.retain(|weight, _| trained.contains(weight));
        maps
    }

    /// True if a linear layer's weight is frozen in this use.
    fn is_frozen_use(&self, node: &Node) -> bool {
        node.inputs().get(1).is_some_and(|&weight| self.nodes[weight].detached)
    }

    /// True if these rows have linear layers and all of them are inside of `freeze`.
    pub fn freezes_all_maps(&self, rows: &Range<RowId>) -> bool {
        !self.maps(rows).is_empty() && self.adaptable(rows).is_empty()
    }

    /// Returns the names by which targets may mean the linear layers of these rows, each once.
    pub fn lora_targets(&self, rows: &Range<RowId>) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for map in self.adaptable(rows).into_values() {
            let last = map.names[1].rsplit('.').next().unwrap_or_default().to_string();
            if !names.contains(&last) {
                names.push(last);
            }
        }
        names
    }

    /// Returns the targets that mean none of the linear layers of their rows.
    pub fn unmet_targets<'l>(&self, lora: &'l Lora) -> Vec<&'l str> {
        let maps = self.adaptable(&lora.rows);
        let is_unmet = |target: &&str| !maps.values().any(|map| map.is_meant_by(target));
        lora.targets.iter().map(String::as_str).filter(is_unmet).collect()
    }

    /// Adds adapters to linear layers, and freezes all other parameters of these rows, whose weights may be quantized. Returns for each old
    /// node the index of the new node that replaces it. If several adapters mean one layer, the first wins. A use inside of `freeze` reads the
    /// adapter that another use trains.
    pub fn adapt(&mut self, all: &[Lora]) -> Vec<NodeId> {
        let (mut adapters, mut scales) = (BTreeMap::new(), BTreeMap::new());
        let frozen: Vec<bool> = self.nodes.iter().map(|node| self.is_frozen_use(node)).collect();
        let maps: Vec<_> = all.iter().map(|lora| self.adaptable(&lora.rows)).collect();
        let products = self.products();
        for (lora, maps) in all.iter().zip(maps) {
            lora.rows.clone().for_each(|row| self.freeze(row));
            for (weight, map) in maps {
                let is_meant = lora.targets.is_empty() || lora.targets.iter().any(|target| map.is_meant_by(target));
                if is_meant && !adapters.contains_key(&weight) {
                    let adapter = products.get(&weight).and_then(|op| self.adapter(op, &map, lora));
                    adapters.extend(adapter.map(|adapter| (weight, adapter)));
                }
            }
        }
        self.loras = all.iter().filter(|lora| lora.base.is_none()).map(|lora| lora.rows.clone()).collect();
        let bases = self.frozen_bases();
        for lora in all {
            lora.base.into_iter().for_each(|coding| self.code((&lora.rows, &bases), coding, &mut scales));
        }
        self.with_adapters(&adapters, &scales, &frozen)
    }

    /// Returns the first linear operation with each weight, by the indices of the weights.
    fn products(&self) -> BTreeMap<usize, Product> {
        let mut products = BTreeMap::new();
        for node in &self.nodes {
            if let (Some(weight), Some((op, _))) = (self.own_weight(node), node.product()) {
                products.entry(weight).or_insert(op);
            }
        }
        products
    }

    /// Adds the parameters of an adapter. Returns `None` if they would have more elements than a tensor can have.
    fn adapter(&mut self, op: &Product, map: &Map, lora: &Lora) -> Option<Adapter> {
        let rank = lora.rank;
        let shapes = [[rank, op.in_features], [op.out_features, rank]];
        if rank == 0 || shapes.iter().any(|shape| product(shape) > MOST_ELEMENTS) {
            return None;
        }
        // The bound of PyTorch's `kaiming_uniform_(a = sqrt(5))`, and zeros, so that the layer's output does not change at first.
        let inits = [Init::Uniform(inverse_sqrt(op.in_features)), Init::Constant(0.0)];
        let first = self.parameters.len();
        for ((name, shape), init) in ["lora_A", "lora_B"].into_iter().zip(shapes).zip(inits) {
            let name = alloc::format!("{}{name}.weight", map.stem);
            let (row, shape, role) = (map.row, Shape::new(&shape), Role::Weight);
            self.parameters.push(Parameter { name, row, shape, role, init });
        }
        let row = &mut self.rows[map.row];
        row.parameters += shapes.iter().map(|shape| product(shape)).sum::<u64>();
        row.parameter_ids.extend([first, first + 1]);
        Some(Adapter { a: first, b: first + 1, rank, factor: lora.alpha / rank as f64 })
    }

    /// Rebuilds the graph with an adapter after each linear layer that has one. Layers with quantized weights read codes. For a node marked in
    /// `frozen`, the adapter has no gradient. Returns for each old node the index of the new node that replaces it.
    pub(super) fn with_adapters(
        &mut self,
        adapters: &BTreeMap<usize, Adapter>,
        scales: &BTreeMap<usize, Scales>,
        frozen: &[bool],
    ) -> Vec<NodeId> {
        let weights: Vec<Option<usize>> = self.nodes.iter().map(|node| self.own_weight(node)).collect();
        let old = core::mem::take(&mut self.nodes);
        // The first new node of each old one, and the new node that replaces it.
        let (mut begins, mut place) = (Vec::new(), Vec::new());
        for (number, (mut node, weight)) in old.into_iter().zip(weights).enumerate() {
            begins.push(self.nodes.len());
            node.renumber(&place);
            let adapter = weight.and_then(|weight| adapters.get(&weight));
            let adapted = adapter.zip(node.product());
            let (value, row) = (node.value, node.row);
            let scales = weight.and_then(|weight| scales.get(&weight));
            if let Some(&scales) = scales {
                self.read_codes(&mut node, scales);
            }
            self.nodes.push(node);
            let mut end = self.nodes.len() - 1;
            if let Some((adapter, (op, x))) = adapted {
                let first = self.nodes.len();
                end = self.with_adapter(*adapter, &op, [x, end], value, row);
                if frozen.get(number) == Some(&true) {
                    let own = self.nodes[first..].iter_mut();
                    own.filter(|node| matches!(node.source, Source::Parameter(_)))
                        .for_each(|node| node.detached = true);
                }
            }
            place.push(end);
        }
        begins.push(self.nodes.len());
        for group in &mut self.groups {
            *group = group.map(|node| begins[node.min(place.len())]);
        }
        place
    }

    /// Adds `factor * B A x` to `base`, and returns the sum.
    fn with_adapter(&mut self, of: Adapter, op: &Product, [x, base]: [NodeId; 2], y: Type, row: RowId) -> NodeId {
        let Adapter { a, b, rank, factor } = of;
        let narrow = Type { shape: op.shape.with_last(rank), ..y };
        let [a, b] = [a, b].map(|number| {
            let shape = self.parameters[number].shape;
            self.node(Type { shape, batched: false, ..y }, Source::Parameter(number), row)
        });
        let down = Product { out_features: rank, bias: false, transposed: false, shape: narrow.shape, ..op.clone() };
        let mut between = self.computed(narrow, down, vec![x, a], row);
        if factor != 1.0 {
            let scale = Pointwise { function: Function::Affine, arguments: vec![factor, 0.0], shape: narrow.shape };
            between = self.computed(narrow, scale, vec![between], row);
        }
        let up = Product { in_features: rank, bias: false, transposed: false, ..op.clone() };
        let added = self.computed(y, up, vec![between, b], row);
        self.computed(y, ops::Sum { branches: 2, shape: op.shape }, vec![base, added], row)
    }

    pub(crate) fn computed(&mut self, value: Type, op: impl Into<Op>, inputs: Vec<NodeId>, row: RowId) -> NodeId {
        self.node(value, Source::Op { op: op.into(), inputs, buffers: Vec::new(), in_place: false }, row)
    }
}

impl Node {
    /// Returns its linear operation and the input of that; `None` for other nodes.
    fn product(&self) -> Option<(Product, NodeId)> {
        match &self.source {
            Source::Op { op: Op::Product(op), inputs, .. } => Some((op.clone(), *inputs.first()?)),
            _ => None,
        }
    }

    /// Replaces each node that it reads by the new index in `place`.
    pub(crate) fn renumber(&mut self, place: &[NodeId]) {
        match &mut self.source {
            Source::Input | Source::Parameter(_) => {}
            Source::View(input) => *input = place[*input],
            Source::Op { inputs, .. } => inputs.iter_mut().for_each(|input| *input = place[*input]),
        }
    }
}
