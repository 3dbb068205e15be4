//! Resolves initialisers: `init = XavierUniform` of a layer, and `init(Normal(0.02), [..])` around several.

use super::Resolver;
use super::frame::{Current, Frame, Known};
use super::layers::{Call, EvaluatedArguments};
use crate::syntax::{Argument, Expression, Kind};
use gpumem_core::layers::initializer::{Initial, Initializer};
use gpumem_core::layers::mistake::At;
use gpumem_core::layers::recovery::Guess;
use gpumem_core::layers::{self};
use gpumem_core::suggest::nearest;
use std::rc::Rc;

/// The options that take an initialiser.
const OPTIONS: [&str; 2] = ["init", "bias_init"];

impl<'s> Resolver<'s, '_> {
    /// Reads `init = ..` or `bias_init = ..` into `given`. True if the argument was one of these.
    ///
    /// False too for a number that the layer takes itself, as `Scale(init = 0.1)`.
    pub(super) fn reads_init(
        &mut self,
        given: &mut EvaluatedArguments,
        argument: &'s Argument,
        call: &Call<'s, '_>,
        options: &[&'static str],
    ) -> bool {
        let Some(name) = &argument.name else { return false };
        let Some(option) = OPTIONS.into_iter().find(|option| name == option) else { return false };
        if options.contains(&option) && !names_one(&argument.value) {
            return false;
        }
        let init = self.initializer(option, &argument.value, call.frame);
        match option {
            "init" => given.init.weights = init,
            _ => given.init.biases = init,
        }
        true
    }

    /// Resolves `init(Normal(0.02), x)` and `init(Normal(0.02), x, bias_init = Zeros)`.
    ///
    /// The initialisers are for weights inside that would otherwise begin at random.
    pub(super) fn begin_inside(
        &mut self,
        element: &'s Expression,
        arguments: &'s [Argument],
        frame: &Rc<Frame<'s>>,
        current: Current,
        segment: Option<&str>,
    ) -> Current {
        let (named, unnamed): (Vec<&Argument>, Vec<&Argument>) =
            arguments.iter().partition(|argument| argument.name.is_some());
        let is_bias_init = |argument: &&Argument| argument.name.as_ref().is_some_and(|name| name == "bias_init");
        let ([init, inner], true, true) = (&unnamed[..], named.len() <= 1, named.iter().all(is_bias_init)) else {
            let message = "`init` takes an initialiser and one element, as `init(Normal(0.02), [Conv2d(64, 3), Relu])`, and \
                           maybe `bias_init = Zeros`";
            self.report(element.id, element.place, frame, message);
            let layers = unnamed.iter().filter(|argument| !is_named_initializer(&argument.value));
            return layers.fold(current, |current, layer| self.element(&layer.value, frame, current, None));
        };
        let weights = self.initializer("init", &init.value, frame);
        let biases = named.first().and_then(|argument| self.initializer("bias_init", &argument.value, frame));
        let around = self.init_around;
        self.init_around = Initial { weights, biases }.within(around);
        let end = self.element(&inner.value, frame, current, segment);
        self.init_around = around;
        end
    }

    /// Returns the initialiser that an expression names. `None` after a mistake, which has been reported.
    pub(super) fn initializer(
        &mut self,
        option: &str,
        value: &'s Expression,
        frame: &Rc<Frame<'s>>,
    ) -> Option<Initializer> {
        match &value.kind {
            Kind::Name(name) if !self.is_known(&name.to_string(), frame) || is_initializer(&name.to_string()) => {
                self.named_initializer(option, value, &name.to_string(), &[], frame)
            }
            Kind::Call { name, arguments } => {
                self.named_initializer(option, value, &name.to_string(), arguments, frame)
            }
            Kind::If { condition, then, otherwise: Some(otherwise) } => {
                let chosen = if self.flag(condition, frame)? { then } else { otherwise };
                self.initializer(option, chosen, frame)
            }
            _ => {
                let found = self.value(value, frame)?;
                let number = found.number().filter(|number| number.is_finite());
                if number.is_none() && !matches!(found, Known::Open) {
                    let message = format!(
                        "`{option}` is an initialiser as `Normal(0.02)`, or a finite number, and not {}",
                        found.describe()
                    );
                    self.report(value.id, value.place, frame, &message);
                }
                number.map(Initializer::Constant)
            }
        }
    }

    fn named_initializer(
        &mut self,
        option: &str,
        value: &'s Expression,
        name: &str,
        arguments: &'s [Argument],
        frame: &Rc<Frame<'s>>,
    ) -> Option<Initializer> {
        let written: Vec<layers::Written> = arguments
            .iter()
            .map(|argument| layers::Written {
                name: argument.name.as_ref().map(ToString::to_string),
                value: self.argument(&argument.value, frame),
            })
            .collect();
        let Some(reading) = Initializer::read(name, &written, Guess::default()) else {
            let names = Initializer::names();
            let hint = match nearest(name, &names) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("write a number or one of `{}`", names.join("`, `")),
            };
            let message = format!("`{option}` is given `{name}`, which is no initialiser; {hint}");
            self.report(value.id, value.place, frame, &message);
            return None;
        };
        for mistake in &reading.mistakes {
            let argument = match mistake.at {
                At::Written(index) => arguments.get(index),
                _ => None,
            };
            let (id, place) = argument.map_or((value.id, value.place), |it| (it.value.id, it.place()));
            self.report(id, place, frame, &format!("initialiser `{name}` {mistake}"));
        }
        reading.mistakes.is_empty().then_some(reading.layer)
    }
}

fn is_initializer(name: &str) -> bool {
    Initializer::names().contains(&name)
}

fn is_named_initializer(value: &Expression) -> bool {
    matches!(&value.kind, Kind::Name(name) | Kind::Call { name, .. } if is_initializer(&name.to_string()))
}

/// True if an expression names an initialiser, rather than a number.
fn names_one(value: &Expression) -> bool {
    match &value.kind {
        Kind::Name(name) => is_initializer(&name.to_string()),
        Kind::Call { .. } => true,
        Kind::If { then, otherwise, .. } => names_one(then) || otherwise.as_deref().is_some_and(names_one),
        _ => false,
    }
}
