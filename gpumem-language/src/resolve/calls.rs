//! Resolves calls of blocks.

use super::Resolver;
use super::frame::{Current, Frame, Known};
use super::layers::Named;
use super::modes::At;
use super::paths::snake_case;
use crate::syntax::{Argument, Expression, Function, Kind, Module, Parameter};
use gpumem_core::layers::mistake::in_place_of;
use std::cell::RefCell;
use std::rc::Rc;

/// The deepest nesting of calls. A recursion that exceeds it is reported as endless.
const DEEPEST: usize = 128;

impl<'s> Resolver<'s, '_> {
    /// Feeds `current` to a block, and returns its output.
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
            // Mistakes inside the recursion are consequences of it.
            if let Some(found) = frame.found_before_recursion(block) {
                self.errors.truncate(found);
            }
            // The calls around it would recurse in the same way, so resolving stops.
            self.stop(element, frame, &message);
            self.errors.last_to_front();
            return None;
        }
        let chosen = arguments.iter().find(|argument| is_own_name(argument, block));
        let chosen = chosen.and_then(|argument| self.chosen_name(argument, frame, Named::Block));
        let parameters = self.call_arguments(element, (block, module), arguments, frame);
        if self.declaring {
            // The block is checked by itself, when its module is declared.
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
            entered: Some((block, self.errors.list().len())),
            caller: Some(frame.clone()),
            place: element.place,
            line: self.line_of(element.place, frame),
            module,
            depth: frame.depth + 1,
            parameters,
            bindings: self.bindings(&block.body),
            taps: RefCell::default(),
        });
        let kind = if module.is_of_composites { snake_case(&name) } else { name };
        let opened = match (&chosen, self.sharing.owner()) {
            (Some((chosen, place)), Some(_)) => self.paths.open_again(chosen, *place),
            (Some((chosen, _)), None) => self.paths.open(chosen),
            (None, _) => self.paths.open(segment.or(block.attributes.name.as_deref()).unwrap_or(&kind)),
        };
        let around = self.begin_frozen(block.attributes.is_frozen, At::new(element, frame));
        let first = self.graph.nodes.len();
        let end = self.element(&block.body.element, &inner, current, None);
        if block.attributes.is_computed_again {
            self.compute_again(first);
        }
        self.frozen = around;
        self.paths.close(opened);
        end
    }

    /// Returns the arguments of a call, in the order of the block's parameters. After a mistake, an argument is unknown.
    fn call_arguments(
        &mut self,
        element: &'s Expression,
        (block, module): (&'s Function, &'s Module),
        arguments: &'s [Argument],
        frame: &Rc<Frame<'s>>,
    ) -> Vec<(String, Known<'s>)> {
        let names: Vec<String> = block.parameters.iter().map(|parameter| parameter.name.to_string()).collect();
        let mut given: Vec<Option<&'s Argument>> = vec![None; names.len()];
        let mut positional = 0;
        let mut fits = true;
        for argument in arguments.iter().filter(|argument| !is_own_name(argument, block)) {
            let index = match &argument.name {
                None if let Some(index) = self.flagged(argument, block, frame) => index,
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
        let missing = block
            .parameters
            .iter()
            .zip(&given)
            .any(|(parameter, given)| given.is_none() && parameter.default.is_none());
        if !block.is_broken && (!fits || missing) {
            let written = block.parameters.iter().map(|Parameter { name, kind, default }| match default {
                Some(default) => format!("{name}: {} = {default}", kind.name),
                None => format!("{name}: {}", kind.name),
            });
            let written: Vec<String> = written.collect();
            let count = match arguments.len() {
                0 => "nothing is given".to_string(),
                _ => format!("`{element}` is given"),
            };
            // Looks for an option that PyTorch's layer has.
            let elsewhere = arguments.iter().find_map(|argument| {
                let name = argument.name.as_ref().map(ToString::to_string).filter(|name| !names.contains(name))?;
                Some((argument.place(), in_place_of(&name)?, name))
            });
            let (place, message) = match elsewhere {
                Some((place, instead, name)) => {
                    (place, format!("block `{}` has no parameter `{name}`; {instead}", block.name))
                }
                None => {
                    let takes = written.join(", ");
                    (element.place, format!("block `{}` takes ({takes}), but {count}", block.name))
                }
            };
            self.report(element.id, place, frame, &message);
        }
        let mut values = Vec::new();
        for ((parameter, name), argument) in block.parameters.iter().zip(names).zip(given) {
            let kind = parameter.kind.name.to_string();
            let value = match (argument, &parameter.default) {
                (Some(argument), _) if self.flagged(argument, block, frame).is_some() => Some(Known::Flag(true)),
                (Some(argument), _) => self.argument_of_block(&argument.value, &name, &kind, frame),
                (None, Some(default)) => {
                    let frame = Frame::global(module, Some(frame.clone()), element.place);
                    self.argument_of_block(default, &name, &kind, &frame)
                }
                (None, None) => None,
            };
            values.push((name, value.unwrap_or(Known::Open)));
        }
        values
    }

    /// Returns the `bool` parameter that a bare name such as `causal` sets. `None` if the name means something else.
    fn flagged(&self, argument: &Argument, block: &Function, frame: &Frame<'s>) -> Option<usize> {
        let (None, Kind::Name(name)) = (&argument.name, &argument.value.kind) else { return None };
        let is_flag = |parameter: &Parameter| parameter.name == *name && parameter.kind.name == "bool";
        let index = block.parameters.iter().position(is_flag)?;
        (!self.is_known(&name.to_string(), frame)).then_some(index)
    }

    fn argument_of_block(
        &mut self,
        value: &'s Expression,
        name: &str,
        kind: &str,
        frame: &Rc<Frame<'s>>,
    ) -> Option<Known<'s>> {
        match kind {
            "Block" => self.block_argument(value, name, frame),
            kind => self.value_argument(value, name, kind, frame),
        }
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
            ("usize", value @ Known::Integer(_)) | ("bool", value @ Known::Flag(_)) => Some(value),
            ("f64", value) if let Some(number) = value.number() => Some(Known::Float(number)),
            ("usize" | "f64" | "bool", other) => {
                let message = format!("`{name}` is a `{kind}`, but {} is given", other.describe());
                self.report(value.id, value.place, frame, &message);
                None
            }
            // The mistake in the declaration has been reported.
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

/// True if an argument names the block in paths, rather than a parameter of the block.
fn is_own_name(argument: &Argument, block: &Function) -> bool {
    let is_name = argument.name.as_ref().is_some_and(|name| name == "name");
    is_name && !block.parameters.iter().any(|parameter| parameter.name == "name")
}
