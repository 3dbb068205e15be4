//! The types of `forward`: `Image<3, 224, 224>`, `Logits<1000>`.

use super::Resolver;
use super::frame::Frame;
use crate::syntax::{Function, Place, Type};
use gpumem_core::layers::rule::Value;
use gpumem_core::shape::Shape;
use gpumem_core::suggest::nearest;
use std::fmt;

/// What a declared type stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Image,
    Features,
    Tokens,
    Sequence,
    Logits,
    Map,
    TokenLogits,
}

const INPUTS: [(&str, Form, &str); 4] = [
    ("Image", Form::Image, "C, H, W"),
    ("Features", Form::Features, "N"),
    ("Tokens", Form::Tokens, "T"),
    ("Sequence", Form::Sequence, "T, D"),
];

const OUTPUTS: [(&str, Form, &str); 5] = [
    ("Logits", Form::Logits, "N"),
    ("Features", Form::Features, "N"),
    ("Map", Form::Map, "C, H, W"),
    ("Sequence", Form::Sequence, "T, D"),
    ("TokenLogits", Form::TokenLogits, "T, V"),
];

/// A declared type with its dimensions folded.
#[derive(Clone, Debug)]
pub(crate) struct Declared {
    pub(crate) form: Form,
    pub(crate) dimensions: Vec<u64>,
    pub(crate) place: Place,
}

impl Declared {
    pub(crate) fn value(&self) -> Value {
        Value { shape: Shape::new(&self.dimensions), index: self.form == Form::Tokens, batched: true }
    }
}

impl fmt::Display for Declared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dimensions: Vec<String> = self.dimensions.iter().map(u64::to_string).collect();
        write!(f, "{:?}<{}>", self.form, dimensions.join(", "))
    }
}

impl<'s> Resolver<'s, '_> {
    /// The declared input and output of `forward`.
    pub(super) fn declared_types(&mut self, forward: &'s Function) -> (Option<Declared>, Option<Declared>) {
        if forward.parameters.len() != 1 {
            let message = format!(
                "`forward` takes one input, but {} are declared; write `fn forward(image: Image<3, 224, 224>)`",
                forward.parameters.len()
            );
            self.errors.add(forward.signature, message);
        }
        let input = forward.parameters.first().and_then(|input| self.declared(&input.kind, &INPUTS, "an input"));
        let output = forward.output.as_ref().and_then(|output| self.declared(output, &OUTPUTS, "an output"));
        (input.filter(|_| forward.parameters.len() == 1), output)
    }

    fn declared(&mut self, written: &'s Type, known: &[(&str, Form, &str)], what: &str) -> Option<Declared> {
        let name = written.name.to_string();
        let Some((_, form, arguments)) = known.iter().find(|(known, ..)| *known == name) else {
            let names: Vec<&str> = known.iter().map(|(name, ..)| *name).collect();
            let hint = match nearest(&name, &names) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("use {}", gpumem_core::layers::arguments::listed(&names)),
            };
            self.errors.add(&written.name, format!("no type of {what} is called `{name}`; {hint}"));
            return None;
        };
        let expected = arguments.split(", ").count();
        if written.dimensions.len() != expected {
            let message = format!(
                "`{name}` has {expected} dimension{}, `{name}<{arguments}>`, but {} given",
                if expected == 1 { "" } else { "s" },
                match written.dimensions.len() {
                    1 => "1 is".to_string(),
                    count => format!("{count} are"),
                }
            );
            self.errors.add(written.place, message);
            return None;
        }
        let global = Frame::global();
        let mut dimensions = Vec::new();
        for dimension in &written.dimensions {
            let value = self.integer(dimension, &global);
            if value == Some(0) {
                self.errors.add(dimension.place, format!("a dimension of `{name}` is 0; it must be at least 1"));
            }
            dimensions.push(value.filter(|value| *value > 0));
        }
        let dimensions = dimensions.into_iter().collect::<Option<Vec<u64>>>()?;
        Some(Declared { form: *form, dimensions, place: written.place })
    }
}
