//! Checks the network as a whole.

use super::frame::Current;
use super::types::Declared;
use super::{Resolved, Resolver};
use crate::errors::Errors;
use crate::syntax::{Body, Expression, Function, Kind};
use gpumem_core::graph::{NodeId, RowId, Source};
use std::collections::HashSet;

impl Resolver<'_, '_> {
    /// Reports blocks, operations and `let`s that are never named. A name counts even in the branch of an `if` that is not taken.
    pub(super) fn check_unused(&mut self, forward: Option<&Function>) {
        let mut mentioned: HashSet<String> = self.meant.clone();
        let mut open: Vec<&Function> = forward.into_iter().collect();
        let blocks = &self.module.blocks;
        open.extend(blocks.iter().filter(|block| mentioned.contains(&block.name.to_string())));
        while let Some(function) = open.pop() {
            let names = names_in(&function.body);
            check_lets(&function.body, &names, &self.meant, self.errors);
            let new = |block: &&Function| {
                names.contains(&block.name.to_string()) && !mentioned.contains(&block.name.to_string())
            };
            open.extend(blocks.iter().filter(new));
            mentioned.extend(names);
        }
        for block in blocks {
            let name = block.name.to_string();
            if forward.is_some() && !mentioned.contains(&name) {
                self.errors.add(&block.name, format!("block `{name}` is never used; remove it or call it"));
            }
        }
        for operation in &self.module.operations {
            let name = operation.name.to_string();
            if forward.is_some() && !mentioned.contains(&name) {
                let message = format!("operation `{name}` is never used; remove it or put it into a list");
                self.errors.add(&operation.name, message);
            }
        }
    }

    /// Checks the name and the `let`s of a block that is declared for others.
    pub(super) fn check_declared(&mut self, block: &Function) {
        if block.name == "forward" {
            self.errors.add(&block.name, "a network begins at `forward`; rename the block");
        }
        check_lets(&block.body, &names_in(&block.body), &self.meant, self.errors);
    }

    /// Compares the output types of `forward` with the values that its body produces.
    pub(super) fn check_outputs(&mut self, forward: &Function, outputs: &[Current], promised: Option<&[Declared]>) {
        let Some(promised) = promised else { return };
        if self.graph.rows.is_empty() {
            if self.errors.is_empty() {
                self.errors.add(promised[0].place, "the network has no layers; put some into the list of `forward`");
            }
            return;
        }
        if outputs.len() != promised.len() {
            let message = format!(
                "forward promises {}, but its body produces {}; end it with `Outputs(x, y)`, a value for each type",
                count(promised.len()),
                count(outputs.len())
            );
            let place = promised[0].place.to(promised[promised.len() - 1].place);
            self.errors.add(place, message);
            return;
        }
        for (index, (output, promised)) in outputs.iter().zip(promised).enumerate() {
            let Some(output) = *output else { continue };
            let value = self.graph.value(output);
            let shape = promised.value().shape;
            let promise = format!("forward promises {promised} = {shape}");
            let what = if outputs.len() == 1 { "the last layer produces".into() } else { format!("output {index} is") };
            if let Some([given, _]) = value.elements.no_numbers() {
                self.errors.add(promised.place, format!("{promise}, but the network returns its {given}"));
            } else if let Some((row, written, tokens)) = self.lost_at(output).filter(|_| !value.batched) {
                let (layer, place) = (&self.graph.rows[row].kind, self.rows[row].1);
                let added = if tokens { "Embedding(..)" } else { "[]" };
                let message = format!(
                    "layer {row} `{layer}` gives the same for every sample, so that what arrives is lost here; add it: \
                     `Add({added}, {written})`"
                );
                if !self.errors.list().iter().any(|error| error.message == message) {
                    self.errors.add(place, message);
                }
            } else if value.shape != shape {
                self.errors.add(promised.place, format!("{promise}, but {what} {}", value.shape));
            } else if !value.batched {
                let message = match outputs.len() {
                    1 => format!("{promise}, but what the last layer produces is the same for every sample"),
                    _ => format!("{promise}, but output {index} is the same for every sample"),
                };
                self.errors.add(promised.place, message);
            }
        }
        self.check_inputs(forward);
    }

    /// Returns the first layer on the way to a value at which the dependence on the sample is lost. `None` if there is none.
    fn lost_at(&self, output: NodeId) -> Option<(RowId, String, bool)> {
        let mut open = vec![output];
        let mut first: Option<&(RowId, String, bool)> = None;
        let mut seen = vec![false; self.graph.nodes.len()];
        while let Some(node) = open.pop() {
            if std::mem::replace(&mut seen[node], true) {
                continue;
            }
            let row = self.graph.nodes[node].row;
            first = self.lost.iter().filter(|lost| lost.0 == row).chain(first).min_by_key(|lost| lost.0);
            open.extend(self.graph.nodes[node].inputs());
        }
        first.cloned()
    }

    /// Reports inputs that nothing reads. The body begins with the first input.
    fn check_inputs(&mut self, forward: &Function) {
        if !self.errors.is_empty() {
            return;
        }
        let inputs = self.graph.nodes.iter().enumerate().filter(|(_, node)| node.source == Source::Input);
        let is_read = |id: NodeId| self.graph.nodes.iter().any(|node| node.inputs().contains(&id));
        let unread: Vec<bool> = inputs.map(|(id, _)| !is_read(id)).collect();
        for (input, _) in forward.parameters.iter().zip(unread).filter(|(_, unread)| *unread) {
            let name = &input.name;
            let message = match input.kind.name.to_string().as_str() {
                "Lengths" => format!(
                    "nothing asks how many steps count in `{name}`; put attention, recurrent layers or reductions over steps into \
                     `lengths({name}, ..)`, or remove it"
                ),
                "Segments" => format!(
                    "nothing asks for the segments in `{name}`; put attention into `segments({name}, ..)`, or remove it"
                ),
                _ => format!("nothing reads the input `{name}`; read it with `from({name})`, or remove it"),
            };
            self.errors.add(&input.name, message);
        }
    }
}

/// Reports `let`s that are never named.
fn check_lets(body: &Body, mentioned: &HashSet<String>, meant: &HashSet<String>, errors: &mut Errors) {
    for binding in &body.lets {
        let name = binding.name.to_string();
        if !mentioned.contains(&name) && !meant.contains(&name) {
            errors.add(&binding.name, format!("`{name}` is never used; remove it or put it into a list"));
        }
    }
}

/// Formats a number of outputs: `1 output`, `2 outputs`.
fn count(outputs: usize) -> String {
    format!("{outputs} output{}", if outputs == 1 { "" } else { "s" })
}

/// Reports layers that none of these values depends on. A `from` that is not preceded by a `tap` makes such layers.
pub(crate) fn check_dead_layers(resolved: &Resolved, ends: &[NodeId], errors: &mut Errors) {
    let nodes = &resolved.graph.nodes;
    let mut read = vec![false; nodes.len()];
    let mut open = ends.to_vec();
    let mut live: HashSet<RowId> = HashSet::new();
    while let Some(node) = open.pop() {
        if std::mem::replace(&mut read[node], true) {
            continue;
        }
        if nodes[node].source != Source::Input {
            live.insert(nodes[node].row);
            open.extend(nodes[node].inputs());
        }
    }
    // The message points at the last layer of a dead branch; those before it are dead because of it.
    let rows = resolved.places.len();
    for row in (0..rows).filter(|row| !live.contains(row) && (live.contains(&(row + 1)) || row + 1 == rows)) {
        let message = format!(
            "nothing reads what layer {row} `{}` produces; `tap` it and read it with `from`, or remove it",
            resolved.graph.rows[row].kind
        );
        errors.add(resolved.places[row], message);
    }
}

/// Returns every name in a body, except those that `let`s introduce.
fn names_in(body: &Body) -> HashSet<String> {
    let name = |expression: &Expression| match &expression.kind {
        Kind::Name(name) | Kind::Call { name, .. } => Some(name.to_string()),
        _ => None,
    };
    body.expressions().into_iter().filter_map(name).collect()
}
