//! Adds layers to a graph.

use super::builder::{Builder, Finished, Scope, Use, Value};
use super::mistake::{At, Mistake};
use super::recovery::{Guess, Guessed};
use super::{Entry, Written};
use crate::graph::{Graph, NodeId, RowId, Source, Type};
use crate::shape::Shape;
use alloc::string::String;
use alloc::vec::Vec;

/// The result of adding a layer to a graph.
#[derive(Clone, Debug)]
pub struct Built {
    /// The node of its output; after a mistake, that of its most probable output. `None` if that is unknown.
    pub value: Option<NodeId>,
    /// Its row. `None` if a mistake keeps the layer from being built.
    pub row: Option<RowId>,
    /// The mistakes in it.
    pub mistakes: Vec<Mistake>,
    /// The assumptions that `value` depends on.
    pub guessed: Guessed,
}

/// The sources of the parameters of a layer that is tied to another one.
#[derive(Clone, Debug)]
pub struct Tie {
    /// The row whose weight it uses.
    pub tied_to: RowId,
    /// Its use. All parameters but the weight come from the owner, if there is one.
    pub used: Use,
}

impl Graph {
    /// Adds a layer. `owner` is the row whose parameters it shares, if any.
    ///
    /// A layer with mistakes is added as it was probably meant, if that is clear, so that later layers can be checked.
    pub fn layer(
        &mut self,
        entry: &Entry,
        written: &[Written],
        inputs: &[NodeId],
        path: String,
        owner: Option<RowId>,
    ) -> Built {
        self.layer_as(Guess::default(), Use::of(owner), entry, written, inputs, path)
    }

    /// Adds a layer for one use of it. `guess` chooses a reading if a mistake leaves several.
    pub fn layer_as(
        &mut self,
        guess: Guess,
        used: Use,
        entry: &Entry,
        written: &[Written],
        inputs: &[NodeId],
        path: String,
    ) -> Built {
        self.layer_in(entry, written, inputs, Scope { path, kind: entry.name.into(), used, tied_to: None, guess })
    }

    /// Adds a layer that uses the weight of another row.
    pub fn layer_tied_to(
        &mut self,
        Tie { tied_to, used }: Tie,
        guess: Guess,
        entry: &Entry,
        written: &[Written],
        inputs: &[NodeId],
        path: String,
    ) -> Built {
        let tied_to = Some(tied_to);
        self.layer_in(entry, written, inputs, Scope { path, kind: entry.name.into(), used, tied_to, guess })
    }

    fn layer_in(&mut self, entry: &Entry, written: &[Written], inputs: &[NodeId], scope: Scope) -> Built {
        let (before, guess, steps) = (self.sizes(), scope.guess, scope.used.steps.clone());
        let Finished { mistakes, guessed, row } = self.attempt(entry, written, inputs, scope);
        if let Some((row, value)) = row {
            self.rows.push(row);
            return Built { value: Some(value), row: Some(self.rows.len() - 1), mistakes, guessed };
        }
        self.truncate(before);
        steps.iter().for_each(|steps| steps.forget(before[0]));
        // The output of a join with too few or too many inputs most probably has the shape of the first.
        let is_first = entry.keeps_shape || entry.wrong_count(inputs.len()).is_some();
        match inputs.first().copied().filter(|&input| is_first && self.value(input).is_numbers()) {
            Some(value) => Built { value: Some(value), row: None, mistakes, guessed },
            None => {
                let Built { value, guessed: more, .. } = self.layer_of_unknown(guess, entry, written);
                Built { value, row: None, mistakes, guessed: guessed.and(more) }
            }
        }
    }

    /// Adds a layer to an unknown value, as if it had an input that it accepts. The layer gets no row.
    pub fn layer_of_unknown(&mut self, guess: Guess, entry: &Entry, written: &[Written]) -> Built {
        let mut best: Option<(Finished, Option<Type>)> = None;
        for value in anything(guess).into_iter().filter(|_| !entry.is_join()) {
            let before = self.sizes();
            let input = self.node(value, Source::Input, 0);
            let used = Use::default();
            let scope = Scope { path: String::new(), kind: entry.name.into(), used, tied_to: None, guess };
            let attempt = self.attempt(entry, written, &[input], scope);
            let output = attempt.row.as_ref().map(|(_, node)| self.value(*node));
            self.truncate(before);
            let is_better = |best: &(Finished, _)| attempt.mistakes.len() < best.0.mistakes.len();
            if best.as_ref().is_none_or(is_better) {
                best = Some((attempt, output));
            }
        }
        let (mistakes, mut guessed, output) = match best {
            Some((Finished { mistakes, guessed, .. }, output)) => (mistakes, guessed, output),
            None => {
                let reading = entry.read(written, guess);
                (reading.mistakes, reading.guessed, None)
            }
        };
        guessed.number = true;
        let value = output.map(|value| self.node(value, Source::Input, 0));
        Built { value, row: None, mistakes, guessed }
    }

    /// Builds a layer on values.
    fn attempt(&mut self, entry: &Entry, written: &[Written], inputs: &[NodeId], scope: Scope) -> Finished {
        let reading = entry.read(written, scope.guess);
        let (mut mistakes, mut guessed, mut row) = (reading.mistakes, reading.guessed, None);
        match entry.wrong_count(inputs.len()) {
            Some(mistake) => mistakes.push(mistake),
            None => {
                let values: Vec<Value> = inputs.iter().map(|&node| Value::of(self, node)).collect();
                let mut builder = Builder::new(self, scope);
                let value = reading.layer.build(&mut builder, &values);
                let finished = builder.finish(value);
                mistakes.extend(finished.mistakes);
                (guessed, row) = (guessed.and(finished.guessed), finished.row);
            }
        }
        // A mistake of an argument points to the place at which the argument was written.
        for mistake in &mut mistakes {
            if let At::Argument(name) = mistake.at {
                let written = reading.names.iter().position(|known| *known == Some(name));
                mistake.at = written.map_or(At::Layer, At::Written);
            }
        }
        Finished { mistakes, guessed, row }
    }

    pub(super) fn sizes(&self) -> [usize; 3] {
        [self.nodes.len(), self.parameters.len(), self.buffers.len()]
    }

    pub(super) fn truncate(&mut self, [nodes, parameters, buffers]: [usize; 3]) {
        self.nodes.truncate(nodes);
        self.parameters.truncate(parameters);
        self.buffers.truncate(buffers);
    }
}

/// Returns a value of each kind. Dimensions have many divisors, and differ between guesses.
fn anything(guess: Guess) -> Vec<Type> {
    let [channels, size] = if guess.other_number { [10_080, 1440] } else { [5040, 720] };
    let map = Type::numbers(Shape::new(&[channels, size, size]));
    let sequence = Type::numbers(Shape::new(&[size, channels]));
    let vector = Type::numbers(Shape::new(&[channels]));
    let tokens = Type::indices(Shape::new(&[size]));
    let numbers = if guess.other_number { [map, sequence, vector] } else { [map, vector, sequence] };
    [&numbers[..], &[tokens]].concat()
}
