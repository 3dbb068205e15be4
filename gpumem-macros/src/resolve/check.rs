//! Checks of the network as a whole.

use super::Resolver;
use super::frame::Current;
use super::types::Declared;
use crate::syntax::{Body, Expression, Function, Kind, Place};
use gpumem_core::graph::{NodeId, RowId, Source};
use std::collections::HashSet;

impl Resolver<'_, '_> {
    /// Blocks and `let`s that are never mentioned. A mention counts even where an `if` leaves it out this time.
    pub(super) fn check_unused(&mut self) {
        let source = self.source;
        let mut mentioned: HashSet<String> = self.meant.clone();
        let mut open: Vec<&Function> = source.forward.iter().collect();
        open.extend(source.blocks.iter().filter(|block| mentioned.contains(&block.name.to_string())));
        while let Some(function) = open.pop() {
            let names = names_in(&function.body);
            for binding in &function.body.lets {
                let name = binding.name.to_string();
                if !names.contains(&name) && !self.meant.contains(&name) {
                    self.errors.add(&binding.name, format!("`{name}` is never used; remove it or put it into a list"));
                }
            }
            let new = |block: &&Function| {
                names.contains(&block.name.to_string()) && !mentioned.contains(&block.name.to_string())
            };
            open.extend(source.blocks.iter().filter(new));
            mentioned.extend(names);
        }
        for block in &source.blocks {
            let name = block.name.to_string();
            if source.forward.is_some() && !mentioned.contains(&name) {
                self.errors.add(&block.name, format!("block `{name}` is never used; remove it or call it"));
            }
        }
    }

    /// What `forward` promises, against what the last layer produces.
    pub(super) fn check_output(&mut self, output: NodeId, promised: Option<&Declared>, start: Current) {
        let value = self.graph.value(output);
        let Some(promised) = promised else { return };
        if self.graph.rows.is_empty() {
            if self.errors.is_empty() {
                self.errors.add(promised.place, "the network has no layers; put some into the list of `forward`");
            }
            return;
        }
        let shape = promised.value().shape;
        let promise = format!("forward promises {promised} = {shape}");
        if value.index {
            self.errors.add(promised.place, format!("{promise}, but the network returns its tokens"));
        } else if value.shape != shape {
            let message = format!("{promise}, but the last layer produces {}", value.shape);
            self.errors.add(promised.place, message);
        } else if !value.batched {
            let message = format!("{promise}, but what the last layer produces is the same for every sample");
            self.errors.add(promised.place, message);
        }
        if self.errors.is_empty() && Some(output) != start {
            self.check_dead_layers(output);
        }
    }

    /// Layers whose output nothing reads: what `from` replaced without a `tap`.
    fn check_dead_layers(&mut self, output: NodeId) {
        let nodes = &self.graph.nodes;
        let mut read = vec![false; nodes.len()];
        let mut open = vec![output];
        let mut live: HashSet<RowId> = HashSet::new();
        while let Some(node) = open.pop() {
            if std::mem::replace(&mut read[node], true) {
                continue;
            }
            if let Source::Layer { inputs, row, .. } = &nodes[node].source {
                live.insert(*row);
                open.extend(inputs);
            }
        }
        // The last layer of a dead branch is the place to point at; those before it are dead because of it.
        let dead = (0..self.rows.len())
            .filter(|row| !live.contains(row) && (live.contains(&(row + 1)) || row + 1 == self.rows.len()));
        let messages: Vec<(Place, String)> = dead
            .map(|row| {
                let message = format!(
                    "nothing reads what layer {row} `{}` produces; `tap` it and read it with `from`, or remove it",
                    self.graph.rows[row].layer.name()
                );
                (self.rows[row].1, message)
            })
            .collect();
        for (place, message) in messages {
            self.errors.add(place, message);
        }
    }
}

/// Every name that stands in a body, but for the ones that `let`s introduce.
fn names_in(body: &Body) -> HashSet<String> {
    let mut names = HashSet::new();
    let mut open: Vec<&Expression> = body.lets.iter().map(|binding| &binding.element).collect();
    open.push(&body.element);
    while let Some(expression) = open.pop() {
        match &expression.kind {
            Kind::Name(name) => {
                names.insert(name.to_string());
            }
            Kind::Call { name, arguments } => {
                names.insert(name.to_string());
                open.extend(arguments.iter().map(|argument| &argument.value));
            }
            Kind::List(elements) => open.extend(elements),
            Kind::Pair(pair) | Kind::Binary { operands: pair, .. } => open.extend(pair.iter()),
            Kind::If { condition, then, otherwise } => {
                open.extend([&**condition, &**then]);
                open.extend(otherwise.as_deref());
            }
            Kind::Not(value) | Kind::Negative(value) => open.push(value),
            _ => {}
        }
    }
    names
}
