//! Calls of blocks.

use super::Resolver;
use super::frame::{Current, Frame, Known};
use crate::syntax::{Argument, Expression, Function, Kind, Module};
use std::cell::RefCell;
use std::rc::Rc;

/// Calls within calls beyond which a recursion is taken to have no end.
const DEEPEST: usize = 128;

impl<'s> Resolver<'s, '_> {
    /// Feeds `current` to a block.
    pub(super) fn call(
        &mut self,
        element: &'s Expression,
        (block, module): (&'s Function, &'s Module),
        arguments: &'s [Argument],
        frame: &Rc<Frame<'s>>,
        current: Current,
        segment: Option<&str>,
    ) -> Current {
        let name = block.name.to_string();
        if frame.depth >= DEEPEST {
            let message = format!(
                "recursion without end: `{name}` is called {DEEPEST} calls deep; end it with `if`, on a parameter that counts down"
            );
            // All the calls around it would go on like this.
            self.stop(element, frame, &message);
            return None;
        }
        let parameters = self.call_arguments(element, block, arguments, frame);
        if self.declaring {
            // The block is looked at by itself.
            for (_, value) in parameters {
                if let Known::Element(inner, around) = value {
                    self.element(inner, &around, None, None);
                }
            }
            return None;
        }
        let values: Vec<String> = parameters.iter().map(|(_, value)| value.to_string()).collect();
        let inner = Rc::new(Frame {
            call: Some(format!("{name}({})", values.join(", "))),
            caller: Some(frame.clone()),
            place: element.place,
            module,
            depth: frame.depth + 1,
            parameters,
            bindings: self.bindings(&block.body),
            taps: RefCell::default(),
        });
        let opened = self.paths.open(segment.unwrap_or(&name));
        self.frozen += usize::from(block.frozen);
        let end = self.element(&block.body.element, &inner, current, None);
        self.frozen -= usize::from(block.frozen);
        self.paths.close(opened);
        end
    }

    /// The arguments of a call, in the order of the block's parameters. After a mistake they are not known.
    fn call_arguments(
        &mut self,
        element: &'s Expression,
        block: &'s Function,
        arguments: &'s [Argument],
        frame: &Rc<Frame<'s>>,
    ) -> Vec<(String, Known<'s>)> {
        let names: Vec<String> = block.parameters.iter().map(|parameter| parameter.name.to_string()).collect();
        let mut given: Vec<Option<&'s Argument>> = vec![None; names.len()];
        let mut positional = 0;
        let mut fits = true;
        for argument in arguments {
            let index = match &argument.name {
                None => {
                    positional += 1;
                    positional - 1
                }
                Some(name) => names.iter().position(|known| name == known).unwrap_or(usize::MAX),
            };
            match given.get_mut(index) {
                Some(place @ None) => *place = Some(argument),
                _ => fits = false,
            }
        }
        if !block.is_broken && (!fits || given.iter().any(Option::is_none)) {
            let written: Vec<String> = block
                .parameters
                .iter()
                .map(|parameter| format!("{}: {}", parameter.name, parameter.kind.name))
                .collect();
            let count = match arguments.len() {
                0 => "nothing is given".to_string(),
                _ => format!("`{element}` is given"),
            };
            let message = format!("block `{}` takes ({}), but {count}", block.name, written.join(", "));
            self.report(element.id, element.place, frame, &message);
        }
        let mut values = Vec::new();
        for ((parameter, name), argument) in block.parameters.iter().zip(names).zip(given) {
            let value = argument.and_then(|argument| match parameter.kind.name.to_string().as_str() {
                "Block" => self.block_argument(&argument.value, &name, frame),
                kind => self.value_argument(&argument.value, &name, kind, frame),
            });
            values.push((name, value.unwrap_or(Known::Open)));
        }
        values
    }

    fn value_argument(
        &mut self,
        value: &'s Expression,
        name: &str,
        kind: &str,
        frame: &Rc<Frame<'s>>,
    ) -> Option<Known<'s>> {
        let found = self.value(value, frame)?;
        match (kind, found) {
            ("usize", value @ Known::Integer(_))
            | ("f64", value @ Known::Float(_))
            | ("bool", value @ Known::Flag(_)) => Some(value),
            ("f64", Known::Integer(value)) => Some(Known::Float(value as f64)),
            ("usize" | "f64" | "bool", other) => {
                let message = format!("`{name}` is a `{kind}`, but {} is given", other.describe());
                self.report(value.id, value.place, frame, &message);
                None
            }
            // The declaration's mistake has been reported.
            _ => None,
        }
    }

    fn block_argument(&mut self, value: &'s Expression, name: &str, frame: &Rc<Frame<'s>>) -> Option<Known<'s>> {
        let known = match &value.kind {
            Kind::Name(written) => frame.parameter(&written.to_string()).cloned(),
            _ => None,
        };
        let is_value = match (&value.kind, &known) {
            (Kind::Name(_), Some(known)) => !matches!(known, Known::Element(..) | Known::Open),
            (
                Kind::Name(_) | Kind::Call { .. } | Kind::Path { .. } | Kind::List(_) | Kind::If { .. } | Kind::Broken,
                _,
            ) => false,
            _ => true,
        };
        if is_value {
            let message = format!("`{name}` is a `Block`, but `{value}` is given; put layers in a list, as `[Relu]`");
            self.report(value.id, value.place, frame, &message);
            return None;
        }
        Some(known.unwrap_or_else(|| Known::Element(value, frame.clone())))
    }
}
