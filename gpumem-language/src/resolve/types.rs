//! Resolves the types of `forward`: `Image<3, 224, 224>`, `Logits<1000>`.

use super::Resolver;
use super::frame::Frame;
use crate::errors::Errors;
use crate::syntax::{Function, Place, Type};
use gpumem_core::graph;
use gpumem_core::layers::mistake::either;
use gpumem_core::run::tensor::MOST_HOSTS;
use gpumem_core::shape::Shape;
use gpumem_core::suggest::nearest;
use std::fmt;

/// The kind of a declared type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Image,
    Images,
    Features,
    Tokens,
    Sequence,
    Signal,
    Volume,
    Values,
    Lengths,
    Segments,
    Logits,
    Map,
    TokenLogits,
}

impl Form {
    /// True for inputs that say which time steps of another input count.
    pub(crate) fn counts_steps(self) -> bool {
        matches!(self, Form::Lengths | Form::Segments)
    }
}

/// A type's name, its kind, and the names of its dimensions.
type Row = (&'static str, Form, &'static str);

const INPUTS: [Row; 10] = [
    ("Image", Form::Image, "C, H, W"),
    ("Images", Form::Images, "u8, C, H, W"),
    ("Features", Form::Features, "N"),
    ("Tokens", Form::Tokens, "T"),
    ("Sequence", Form::Sequence, "T, D"),
    ("Signal", Form::Signal, "C, L"),
    ("Volume", Form::Volume, "C, D, H, W"),
    ("Values", Form::Values, ANY),
    ("Lengths", Form::Lengths, "T"),
    ("Segments", Form::Segments, "T"),
];

const OUTPUTS: [Row; 8] = [
    ("Logits", Form::Logits, "N"),
    ("Features", Form::Features, "N"),
    ("Map", Form::Map, "C, H, W"),
    ("Sequence", Form::Sequence, "T, D"),
    ("TokenLogits", Form::TokenLogits, "T, V"),
    ("Signal", Form::Signal, "C, L"),
    ("Volume", Form::Volume, "C, D, H, W"),
    ("Values", Form::Values, ANY),
];

/// True if there is a type of this name, or one with a similar name.
pub(crate) fn is_type(name: &str) -> bool {
    let known: Vec<&str> = INPUTS.iter().chain(&OUTPUTS).map(|(known, ..)| *known).collect();
    nearest(name, &known).is_some()
}

/// The dimensions of a type that may have any number of them.
const ANY: &str = "A, B, ..";

/// A declared type with its dimensions evaluated.
#[derive(Clone, Debug)]
pub(crate) struct Declared {
    pub(crate) form: Form,
    pub(crate) dimensions: Vec<u64>,
    pub(crate) place: Place,
}

impl Declared {
    pub(crate) fn value(&self) -> graph::Type {
        let shape = Shape::new(&self.dimensions);
        match self.form {
            Form::Tokens | Form::Segments => graph::Type::indices(shape),
            // One number for each sample. The dimension is the largest value that it can have.
            Form::Lengths => graph::Type::indices(Shape::new(&[])),
            Form::Images => graph::Type::bytes(shape),
            _ => graph::Type::numbers(shape),
        }
    }
}

impl fmt::Display for Declared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dimensions: Vec<String> = self.dimensions.iter().map(u64::to_string).collect();
        let format = if self.form == Form::Images { "u8, " } else { "" };
        write!(f, "{:?}<{format}{}>", self.form, dimensions.join(", "))
    }
}

/// Reports parameters with the same name, because inputs and parameters are read by their names.
pub(super) fn check_distinct(function: &Function, errors: &mut Errors) {
    for (index, parameter) in function.parameters.iter().enumerate() {
        let name = &parameter.name;
        if function.parameters[..index].iter().any(|earlier| earlier.name == *name) {
            errors.add(name, format!("`{name}` is declared twice; rename one"));
        }
    }
}

impl<'s> Resolver<'s, '_> {
    /// Returns the declared inputs and outputs of `forward`. Each list is `None` if one of its types is not known.
    pub(super) fn declared_types(&mut self, forward: &'s Function) -> [Option<Vec<Declared>>; 2] {
        let inputs: Vec<Option<Declared>> =
            forward.parameters.iter().map(|input| self.declared(&input.kind, &INPUTS, "an input")).collect();
        let outputs: Vec<Option<Declared>> =
            forward.outputs.iter().map(|output| self.declared(output, &OUTPUTS, "an output")).collect();
        if inputs.is_empty() && !forward.is_broken {
            let message = "`forward` has no input; declare one, as `fn forward(image: Image<3, 224, 224>)`";
            self.errors.add(forward.signature, message);
        }
        check_distinct(forward, self.errors);
        let all = [&inputs, &outputs].map(|list| list.len());
        if let Some(count) = all.into_iter().find(|&count| count > MOST_HOSTS) {
            let message = format!("a network has at most {MOST_HOSTS} inputs and as many outputs, not {count}");
            self.errors.add(forward.signature, message);
        }
        let [inputs, outputs] = [inputs, outputs]
            .map(|list| list.into_iter().collect::<Option<Vec<Declared>>>().filter(|list| !list.is_empty()));
        [inputs.filter(|_| !forward.is_broken), outputs]
    }

    /// Checks the number format of a type. Only `Images`, which are bytes, have one.
    fn check_format(&mut self, written: &Type, form: Form, name: &str) {
        let sizes = Type::sizes(&written.dimensions);
        let message = match (form, &written.format) {
            (Form::Images, Some(format)) if format == "u8" => return,
            (Form::Images, Some(format)) => format!(
                "`Images` are of `u8`, not of `{format}`; write `Images<u8, {sizes}>`, or `Image<{sizes}>` for an input of numbers"
            ),
            (Form::Images, None) => {
                format!(
                    "`Images` says what it consists of; write `Images<u8, {sizes}>`, or `Image<{sizes}>` for an input of numbers"
                )
            }
            (_, None) => return,
            (Form::Image, Some(format)) if format == "u8" => {
                format!("an input of bytes is called `Images`; write `Images<u8, {sizes}>`")
            }
            (_, Some(_)) => format!("`{name}` does not say what it consists of; write `{name}<{sizes}>`"),
        };
        self.errors.add(written.place, message);
    }

    fn declared(&mut self, written: &'s Type, known: &[Row], what: &str) -> Option<Declared> {
        if written.is_broken {
            return None;
        }
        let name = written.name.to_string();
        let row = |name: &str| known.iter().find(|(known, ..)| *known == name);
        let (name, form, arguments) = match row(&name) {
            Some(row) => row,
            None => {
                let names: Vec<&str> = known.iter().map(|(name, ..)| *name).collect();
                let near = nearest(&name, &names);
                let hint = match near {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => {
                        let types: Vec<String> =
                            known.iter().map(|(name, _, sizes)| format!("{name}<{sizes}>")).collect();
                        let types: Vec<&str> = types.iter().map(String::as_str).collect();
                        format!("of one sample, without the batch, write {}", either(&types))
                    }
                };
                self.errors.add(&written.name, format!("no type of {what} is called `{name}`; {hint}"));
                row(near?)?
            }
        };
        self.check_format(written, *form, name);
        let expected = arguments.split(", ").filter(|argument| *argument != "u8").count();
        if *arguments == ANY && !(1..=Shape::MAX_RANK).contains(&written.dimensions.len()) {
            let message = format!(
                "`{name}` has up to {} dimensions, `{name}<3, 5>`, but {} are given",
                Shape::MAX_RANK,
                written.dimensions.len()
            );
            self.errors.add(written.place, message);
            return None;
        }
        if *arguments != ANY && written.dimensions.len() != expected {
            let message = format!(
                "`{name}` has {expected} dimension{}, `{name}<{arguments}>`, but {} given",
                if expected == 1 { "" } else { "s" },
                match written.dimensions.len() {
                    0 => "none is".to_string(),
                    1 => "1 is".to_string(),
                    count => format!("{count} are"),
                }
            );
            self.errors.add(written.place, message);
            return None;
        }
        let global = Frame::global(self.module, None, written.place);
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

#[cfg(test)]
mod tests {
    use super::{INPUTS, OUTPUTS};
    use gpumem_core::language::WORDS;

    /// Tests that an editor can show the documentation of each type.
    #[test]
    fn every_type_has_a_page() {
        assert!(INPUTS.iter().chain(&OUTPUTS).all(|(name, ..)| WORDS.contains(name)));
    }
}
