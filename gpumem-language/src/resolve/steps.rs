//! Resolves `lengths(n, x)` and `segments(rows, x)`, which say which time steps of a sequence count inside them.

use super::frame::{Current, Frame, Known};
use super::types::{Declared, Form};
use super::{Padded, Resolver};
use crate::syntax::{Argument, Expression, Function, Kind};
use gpumem_core::graph::NodeId;
use gpumem_core::layers::Steps;
use gpumem_core::program::ops::Seen;
use gpumem_core::suggest::nearest;
use std::collections::HashMap;
use std::rc::Rc;

/// Returns the word for messages, and an example.
fn word(seen: Seen) -> (&'static str, &'static str) {
    match seen {
        Seen::Segments => ("segments", "`segments(rows, repeat(12, TransformerBlock(768, 12, 3072)))`"),
        _ => ("lengths", "`lengths(n, [repeat(12, TransformerBlock(768, 12, 3072)), Mean(1)])`"),
    }
}

impl<'s> Resolver<'s, '_> {
    /// Resolves `lengths(n, x)` and `segments(rows, x)`. With `of = name` they are about another value than the current one.
    pub(super) fn within_steps(
        &mut self,
        element: &'s Expression,
        (seen, arguments): (Seen, &'s [Argument]),
        frame: &Rc<Frame<'s>>,
        current: Current,
        segment: Option<&str>,
    ) -> Current {
        let (word, usual) = word(seen);
        let (of, rest): (Vec<&'s Argument>, Vec<&'s Argument>) =
            arguments.iter().partition(|argument| argument.name.as_ref().is_some_and(|name| name == "of"));
        let (of, [Argument { name: None, value: numbers }, Argument { name: None, value: inner }]) =
            (&of[..], &rest[..])
        else {
            let message = format!("`{word}` takes the name of an input and one element, as {usual}");
            self.report(element.id, element.place, frame, &message);
            let elements = rest.iter().skip(1).filter(|argument| argument.name.is_none());
            return elements.fold(current, |current, argument| self.element(&argument.value, frame, current, None));
        };
        let around = self.around.len();
        if !self.declaring {
            let steps = self.steps_of(element, (seen, numbers), of.first().copied(), frame, current);
            self.scopes.extend(steps.clone());
            self.around.extend(steps);
        }
        let end = self.element(inner, frame, current, segment);
        self.around.truncate(around);
        end
    }

    /// Returns the meaning of a `lengths` or `segments`. `None` after a mistake, or if the input is not known.
    fn steps_of(
        &mut self,
        element: &'s Expression,
        (seen, numbers): (Seen, &'s Expression),
        of: Option<&'s Argument>,
        frame: &Rc<Frame<'s>>,
        current: Current,
    ) -> Option<Steps> {
        let (word, _) = word(seen);
        let named = self.numbers_of(seen, numbers, frame)?;
        let (value, written) = match of {
            None => (current?, format!("{word}({numbers}, ..)")),
            Some(of) => (self.value_of(of, frame)?, format!("{word}({numbers}, of = {}, ..)", of.value)),
        };
        let (node, count) = match named {
            Numbers::All(count) => (None, count),
            Numbers::Of(node, count) => (Some((seen, node)), count),
        };
        let steps = match Steps::new(&self.graph, &written, node, value, count) {
            Ok(steps) => steps,
            Err(message) => {
                self.report(element.id, element.place, frame, &message);
                return None;
            }
        };
        if let Some(outer) = self.around.iter().find(|outer| outer.value() == value) {
            let message =
                format!("`{written}` stands inside of `{}`, which is about the same value; keep one", outer.written());
            self.report(element.id, element.place, frame, &message);
            return None;
        }
        Some(steps)
    }

    /// Returns the input that says how many time steps count, or the count if all do. `None` after a mistake.
    fn numbers_of(&mut self, seen: Seen, written: &'s Expression, frame: &Rc<Frame<'s>>) -> Option<Numbers> {
        let (word, form) = match seen {
            Seen::Segments => ("segments", Form::Segments),
            _ => ("lengths", Form::Lengths),
        };
        let name = match &written.kind {
            Kind::Name(name) if !self.is_known(&name.to_string(), frame) => name.to_string(),
            _ => {
                return match self.value(written, frame)? {
                    Known::Integer(count) if seen != Seen::Segments => Some(Numbers::All(count)),
                    Known::Open => None,
                    other => {
                        let message =
                            format!("`{word}` takes the name of an input, but `{written}` is {}", other.describe());
                        self.report(written.id, written.place, frame, &message);
                        None
                    }
                };
            }
        };
        let node = match frame.tapped(&name) {
            Some(node) => node?,
            None => {
                let names: Vec<String> = frame.tap_names();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let hint = match nearest(&name, &names) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("declare it after the others, as `{name}: {form:?}<512>`"),
                };
                self.report(written.id, written.place, frame, &format!("no input is called `{name}`; {hint}"));
                return None;
            }
        };
        match self.counted.get(&node) {
            Some(Declared { form: found, dimensions, .. }) if *found == form => Some(Numbers::Of(node, dimensions[0])),
            found => {
                let is = match found {
                    Some(declared) => format!("`{declared}`"),
                    None => "a value".to_string(),
                };
                let message = format!("`{word}` takes an input of the type `{form:?}`, but `{name}` is {is}");
                self.report(written.id, written.place, frame, &message);
                None
            }
        }
    }

    /// Returns the value that `of = name` names. `None` after a mistake.
    fn value_of(&mut self, of: &'s Argument, frame: &Rc<Frame<'s>>) -> Current {
        let Kind::Name(name) = &of.value.kind else {
            let message = "`of` names a value that was tapped, or an input, as `of = memory`";
            self.report(of.value.id, of.place(), frame, message);
            return None;
        };
        let name = name.to_string();
        match frame.tapped(&name) {
            Some(value) => value.filter(|&node| !self.is_counted(&of.value, node, &name, frame)),
            None => {
                let message =
                    format!("no value was tapped as `{name}` before this; put `tap({name})` where the value is");
                self.report(of.value.id, of.value.place, frame, &message);
                None
            }
        }
    }

    /// True if a node is an input of lengths or segments. Reports that it is used as if it were a value of numbers or tokens.
    pub(super) fn is_counted(&mut self, element: &Expression, node: NodeId, name: &str, frame: &Frame<'s>) -> bool {
        let Some(declared) = self.counted.get(&node) else { return false };
        let word = if declared.form == Form::Segments { "segments" } else { "lengths" };
        let message =
            format!("`{name}` says which steps count and is no value; write `{word}({name}, ..)` around the layers");
        self.report(element.id, element.place, frame, &message);
        true
    }

    /// Returns the taps and outputs with padded time steps.
    pub(super) fn padded(&self, forward: &Function, taps: &HashMap<String, Current>, outputs: &[NodeId]) -> Padded {
        let lengths = |node: NodeId| {
            let input = self.scopes.iter().rev().find_map(|steps| steps.lengths_at(&self.graph, node))?;
            // Inputs are the first nodes, so the index of an input is that of its parameter.
            Some(forward.parameters.get(input)?.name.to_string())
        };
        let of_tap = |(name, node): (&String, &Current)| Some((name.clone(), lengths((*node)?)?));
        Padded {
            taps: taps.iter().filter_map(of_tap).collect(),
            outputs: outputs.iter().map(|&node| lengths(node)).collect(),
        }
    }

    /// Reports a first input that is lengths or segments: the body begins with the first input, which must be a value.
    pub(super) fn check_first_input(&mut self, forward: &Function, first: &Declared) {
        if first.form.counts_steps()
            && let Some(input) = forward.parameters.first()
        {
            let message = format!("`{}` says which steps of a sequence count; put the sequence first", input.name);
            self.errors.add(&input.name, message);
        }
    }
}

/// The time steps that count.
enum Numbers {
    /// All of this many.
    All(u64),
    /// The number that the input at this node holds, at most this many.
    Of(NodeId, u64),
}
