//! Resolves names that are not layers: `let`s, `repeat`, `tap`, `from` and `Tied`.

use super::Resolver;
use super::frame::{Binding, Current, Frame, Known};
use super::layers::Named;
use super::modes::Mode;
use super::paths::snake_case;
use super::types::check_distinct;
use super::{MOST_ROWS, MOST_STEPS, too_many_elements, too_many_layers};
use crate::errors::Errors;
use crate::foreign_names;
use crate::syntax::{Argument, Expression, Function, Kind, Place};
use gpumem_core::language::KEYWORDS;
use gpumem_core::layers::Entry;
use gpumem_core::layers::composite::is_composite;
use gpumem_core::program::ops::Seen;
use gpumem_core::suggest::nearest;
use proc_macro2::Ident;
use std::rc::Rc;

impl<'s> Resolver<'s, '_> {
    /// Resolves an element that begins with a name. `arguments` is `None` for a name without parentheses.
    pub(super) fn named(
        &mut self,
        element: &'s Expression,
        name: &Ident,
        arguments: Option<&'s [Argument]>,
        frame: &Rc<Frame<'s>>,
        current: Current,
        segment: Option<&str>,
    ) -> Current {
        let text = name.to_string();
        if let Some(value) = frame.parameter(&text).cloned() {
            self.check_no_arguments(element, &text, arguments, frame);
            return match value {
                Known::Element(inner, around) => self.element(inner, &around, current, segment),
                Known::Open => None,
                other => {
                    let message = format!("expected a layer, but `{text}` is {}", other.describe());
                    self.report(element.id, element.place, frame, &message);
                    None
                }
            };
        }
        if let Some(binding) = frame.binding(&text).cloned() {
            self.check_no_arguments(element, &text, arguments, frame);
            return self.use_binding(element, &binding, frame, current, segment);
        }
        if let Some(block) = self.block_called(element, &text, frame) {
            return self.call(element, block, arguments.unwrap_or_default(), frame, current, segment);
        }
        let written = arguments.unwrap_or_default();
        if let Some(operation) = self.operation_called(element, &text, frame) {
            return self.operation(element, operation, written, frame, current, segment);
        }
        match text.as_str() {
            "repeat" => self.repeat(element, written, frame, current),
            "tap" => self.tap(element, written, frame, current),
            "from" => self.tapped(element, written, frame),
            "freeze" => self.freeze(element, written, frame, current, segment),
            "eval" => self.in_mode(element, (Mode::Eval, written), frame, current, segment),
            "train" => self.in_mode(element, (Mode::Train, written), frame, current, segment),
            "lengths" => self.within_steps(element, (Seen::Lengths, written), frame, current, segment),
            "segments" => self.within_steps(element, (Seen::Segments, written), frame, current, segment),
            "detach" => self.detach(element, arguments, frame, current, segment),
            "Outputs" => {
                let message = "`Outputs` stands at the end of `forward`, in no block and no branch";
                self.report(element.id, element.place, frame, message);
                written.first().and_then(|argument| self.element(&argument.value, frame, current, None))
            }
            "checkpoint" => self.checkpoint(element, written, frame, current, segment),
            "init" => self.begin_inside(element, written, frame, current, segment),
            "lora" => self.lora(element, written, frame, current, segment),
            "Tied" => self.tied(element, written, frame, current, segment),
            _ => match Entry::find(&text) {
                Some(entry) => self.layer(element, entry, written, frame, current, segment),
                None => self.unknown(element, name, written, frame, current),
            },
        }
    }

    fn check_no_arguments(
        &mut self,
        element: &Expression,
        name: &str,
        arguments: Option<&[Argument]>,
        frame: &Frame<'s>,
    ) {
        if arguments.is_some() {
            let message = format!("`{name}` is a layer with a name and takes no arguments; write `{name}`");
            self.report(element.id, element.place, frame, &message);
        }
    }

    fn unknown(
        &mut self,
        element: &'s Expression,
        at: &Ident,
        arguments: &'s [Argument],
        frame: &Rc<Frame<'s>>,
        current: Current,
    ) -> Current {
        let name = at.to_string();
        let name = name.as_str();
        if frame.module.constants.iter().any(|constant| constant.name == name) {
            let message = format!("expected a layer, but `{name}` is a constant");
            self.report(element.id, element.place, frame, &message);
            return None;
        }
        if let Some(value) = frame.tapped(name) {
            return self.value_as_layer(element, name, frame, value);
        }
        // A name of another library is not corrected to a layer, but to a name that the network declares.
        let elsewhere = foreign_names::of_elsewhere(name);
        let near = self.nearest_layer(element, name, frame, elsewhere.is_some());
        let near = near.as_deref();
        let hint = match (near, &elsewhere) {
            (Some(near), _) => format!("did you mean `{near}`?"),
            (None, Some(found)) => found.hint.clone(),
            // Names of blocks are lower case, so one that is not declared probably is a block.
            (None, None) if name.starts_with(char::is_lowercase) => {
                format!("declare it, as `fn {name}() -> Block {{ [..] }}`, or see `gpumem::layers` for what there is")
            }
            (None, None) => {
                format!(
                    "see `gpumem::layers` for what there is; what those can build is a block, as `fn {}() -> Block {{ [..] }}`, \
                     and what they cannot is an `operation!`",
                    snake_case(name)
                )
            }
        };
        self.report(element.id, Place::from(at), frame, &format!("no layer or block is called `{name}`; {hint}"));
        // The item that was meant counts as used, and the checks continue with it.
        let found = elsewhere.filter(|_| near.is_none());
        if found.as_ref().is_some_and(|found| found.is_list) {
            let layers = arguments.iter().filter(|argument| argument.name.is_none());
            return layers.fold(current, |current, layer| self.element(&layer.value, frame, current, None));
        }
        let Some(near) = near.or_else(|| found.as_ref()?.meant) else {
            self.fail_layer();
            return current.filter(|_| found.is_some_and(|found| found.keeps_shape));
        };
        self.meant.insert(near.to_string());
        if let Some(operation) = self.operation_called(element, near, frame) {
            return self.operation(element, operation, arguments, frame, current, None);
        }
        match (self.block_called(element, near, frame), Entry::find(near)) {
            (Some(block), _) => self.call(element, block, arguments, frame, current, None),
            (None, Some(entry)) => self.layer(element, entry, arguments, frame, current, None),
            (None, None) => match frame.binding(near).cloned() {
                Some(binding) => self.use_binding(element, &binding, frame, current, None),
                None => self.fail_layer(),
            },
        }
    }

    /// Returns the layer, block or binding whose name is nearest to `name`. With `only_own`, only those that the network declares.
    ///
    /// The result is stored for each element, which may be resolved many times in a repeated block.
    fn nearest_layer(&mut self, element: &Expression, name: &str, frame: &Frame<'s>, only_own: bool) -> Option<String> {
        if let Some(near) = self.nearest_layers.get(&element.id) {
            return near.clone();
        }
        let mut known: Vec<String> = Entry::names().iter().chain(&KEYWORDS).map(ToString::to_string).collect();
        known.extend(self.block_names(frame));
        known.extend(self.operation_names(frame));
        known.extend(frame.bindings.iter().map(|binding| binding.name.clone()));
        let blocks = frame.parameters.iter().filter(|(_, value)| matches!(value, Known::Element(..)));
        known.extend(blocks.map(|(name, _)| name.clone()));
        let is_own = |known: &&str| Entry::find(known).is_none() && !is_composite(known);
        let known: Vec<&str> = known.iter().map(String::as_str).filter(|known| !only_own || is_own(known)).collect();
        let near = nearest(name, &known).map(String::from);
        self.nearest_layers.insert(element.id, near.clone());
        near
    }

    /// Reports an input or a tap in the place of a layer, and continues with its value.
    fn value_as_layer(&mut self, element: &Expression, name: &str, frame: &Frame<'s>, value: Current) -> Current {
        let message = format!(
            "`{name}` is a value and no layer; read it with `from({name})`, or leave it out where it is what arrives"
        );
        self.report(element.id, element.place, frame, &message);
        value
    }

    /// Resolves a use of `let w = ..`. All uses share their parameters with the first.
    fn use_binding(
        &mut self,
        element: &'s Expression,
        binding: &Rc<Binding<'s>>,
        frame: &Rc<Frame<'s>>,
        current: Current,
        segment: Option<&str>,
    ) -> Current {
        if binding.busy.replace(true) {
            self.report(element.id, element.place, frame, &format!("`{}` uses itself", binding.name));
            return None;
        }
        let segment = Some(segment.unwrap_or(&binding.name));
        let first_use = binding.first_use.borrow().clone();
        let end = match first_use {
            None => {
                self.sharing.start_recording();
                let end = self.element(binding.element, frame, current, segment);
                *binding.first_use.borrow_mut() = Some(self.sharing.stop_recording());
                end
            }
            Some(rows) => {
                self.sharing.start_sharing(rows);
                let end = self.element(binding.element, frame, current, segment);
                self.sharing.stop_sharing();
                end
            }
        };
        binding.busy.set(false);
        end
    }

    fn repeat(
        &mut self,
        element: &'s Expression,
        arguments: &'s [Argument],
        frame: &Rc<Frame<'s>>,
        current: Current,
    ) -> Current {
        let (names, arguments): (Vec<&'s Argument>, Vec<&'s Argument>) =
            arguments.iter().partition(|argument| argument.name.as_ref().is_some_and(|name| name == "name"));
        let chosen = names.first().and_then(|name| self.chosen_name(name, frame, Named::Block));
        let segment = chosen.as_ref().map(|(name, _)| name.as_str());
        let (times, layers) = self.repeated(element, &arguments, frame);
        let before = self.unrolled();
        let mut end = current;
        for round in 0..times.map_or(1, |(times, _)| times) {
            end = layers.iter().fold(end, |end, layer| self.element(layer, frame, end, segment));
            if let (0, Some((times, written))) = (round, times) {
                self.check_rounds((times, written), before, frame);
            }
            if self.stopped {
                break;
            }
        }
        end.filter(|_| times.is_some())
    }

    /// Returns the counts so far of elements, of layers, and of conditions that are not known.
    fn unrolled(&self) -> [usize; 3] {
        [self.steps, self.count, self.open_conditions.len()]
    }

    /// Stops if `times` rounds like the first would exceed a limit, without resolving them. `before` has the counts before that round.
    fn check_rounds(&mut self, (times, written): (u64, &Expression), before: [usize; 3], frame: &Frame<'s>) {
        let [steps, layers, conditions] = self.unrolled();
        // The branches of an unknown condition are resolved only once, so the counts say nothing about further rounds.
        if conditions > before[2] || self.stopped {
            return;
        }
        let all = |now: usize, before: usize| {
            let round = (now - before) as u64;
            round.saturating_mul(times - 1).saturating_add(now as u64)
        };
        if all(layers, before[1]) > MOST_ROWS as u64 {
            self.stop(written, frame, &too_many_layers());
        } else if all(steps, before[0]) > MOST_STEPS as u64 {
            self.stop(written, frame, &too_many_elements());
        }
    }

    /// Returns the count of rounds and the layers of a `repeat`, without its name. After a mistake, guesses what was meant.
    fn repeated(
        &mut self,
        element: &Expression,
        arguments: &[&'s Argument],
        frame: &Rc<Frame<'s>>,
    ) -> (Option<(u64, &'s Expression)>, Vec<&'s Expression>) {
        let values: Vec<&'s Expression> = arguments.iter().map(|argument| &argument.value).collect();
        let is_element = |value: &Expression| match &value.kind {
            Kind::Name(name) => {
                let name = name.to_string();
                let is_block = !self.blocks_called(&name, frame).is_empty() || frame.binding(&name).is_some();
                is_block || !self.operations_called(&name, frame).is_empty() || Entry::find(&name).is_some()
            }
            Kind::Call { .. } | Kind::Path { .. } | Kind::List(_) => true,
            _ => false,
        };
        let takes = "`repeat` takes how often and what";
        let (times, layers, message) = match values.as_slice() {
            [times, layer] if !is_element(times) => (Some(*times), vec![*layer], None),
            [layer, times] if !is_element(times) => {
                (Some(*times), vec![*layer], Some(format!("{takes}; write `repeat({times}, {layer})`")))
            }
            [times, layers @ ..] if !is_element(times) && !layers.is_empty() => {
                let written: Vec<String> = layers.iter().map(ToString::to_string).collect();
                let message =
                    format!("{takes}; put the layers into a list: `repeat({times}, [{}])`", written.join(", "));
                (Some(*times), layers.to_vec(), Some(message))
            }
            _ => {
                let layers = values.iter().copied().filter(|value| is_element(value)).collect();
                (None, layers, Some(format!("{takes}, as `repeat(3, [Linear(64), Relu])`")))
            }
        };
        let named = arguments.iter().any(|argument| argument.name.is_some());
        if let Some(message) =
            message.or_else(|| named.then(|| format!("{takes}, without names but its own, as `repeat(3, [Relu])`")))
        {
            self.report(element.id, element.place, frame, &message);
        }
        if let Some(Expression { id, place, kind: Kind::Integer(0) }) = times {
            let message = "what is repeated 0 times is not there; remove it, or write how often";
            self.report(*id, *place, frame, message);
        }
        (times.and_then(|times| Some((self.integer(times, frame)?, times))), layers)
    }

    /// Resolves `checkpoint(x)`: its operations run a second time for the backward pass, and their outputs are not saved.
    fn checkpoint(
        &mut self,
        element: &'s Expression,
        arguments: &'s [Argument],
        frame: &Rc<Frame<'s>>,
        current: Current,
        segment: Option<&str>,
    ) -> Current {
        let [Argument { name: None, value: inner }] = arguments else {
            let message =
                "`checkpoint` takes one element, as `checkpoint([Conv2d(64, 3), Relu])` or `checkpoint(stage(64))`";
            return self.not_one(element, message, arguments, frame, current);
        };
        let first = self.graph.nodes.len();
        let end = self.element(inner, frame, current, segment);
        self.compute_again(first);
        end
    }

    /// Reports that an element that takes one element has other arguments, and continues with these.
    pub(super) fn not_one(
        &mut self,
        element: &Expression,
        message: &str,
        arguments: &'s [Argument],
        frame: &Rc<Frame<'s>>,
        current: Current,
    ) -> Current {
        self.report(element.id, element.place, frame, message);
        let elements = arguments.iter().filter(|argument| argument.name.is_none());
        elements.fold(current, |current, argument| self.element(&argument.value, frame, current, None))
    }

    /// Marks all nodes from `first` on as recomputed.
    pub(super) fn compute_again(&mut self, first: usize) {
        let end = self.graph.nodes.len();
        if first < end {
            self.graph.groups.push([first, end]);
        }
    }

    /// Returns the name in `tap(name)` or `from(name)`. `None` after a mistake, which has been reported.
    fn only_name(
        &mut self,
        element: &Expression,
        arguments: &[Argument],
        frame: &Frame<'s>,
        usage: &str,
    ) -> Option<String> {
        match arguments {
            [Argument { name: None, value: Expression { kind: Kind::Name(name), .. } }] => Some(name.to_string()),
            _ => {
                self.report(element.id, element.place, frame, &format!("expected one name, as `{usage}`"));
                None
            }
        }
    }

    fn tap(&mut self, element: &Expression, arguments: &[Argument], frame: &Frame<'s>, current: Current) -> Current {
        if let Some(name) = self.only_name(element, arguments, frame, "tap(skip)") {
            frame.taps.borrow_mut().insert(name, current);
        }
        current
    }

    fn tapped(&mut self, element: &Expression, arguments: &[Argument], frame: &Frame<'s>) -> Current {
        let name = self.only_name(element, arguments, frame, "from(skip)")?;
        if let Some(value) = frame.tapped(&name) {
            return value.filter(|&node| !self.is_counted(element, node, &name, frame));
        }
        if self.declaring {
            // The caller of the block may have tapped it.
            return None;
        }
        let names = frame.tap_names();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let near = nearest(&name, &names);
        let hint = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("put `tap({name})` where the value is"),
        };
        let message = format!("no value was tapped as `{name}` before this; {hint}");
        self.report(element.id, element.place, frame, &message);
        frame.tapped(near?)?
    }

    /// Resolves `Tied(w)`.
    fn tied(
        &mut self,
        element: &'s Expression,
        arguments: &'s [Argument],
        frame: &Rc<Frame<'s>>,
        current: Current,
        segment: Option<&str>,
    ) -> Current {
        if self.declaring {
            return None;
        }
        let message = match arguments.split_first() {
            Some((Argument { name: None, value: Expression { kind: Kind::Name(name), .. } }, options)) => {
                match self.binding_called(&name.to_string(), frame) {
                    Some(binding) => {
                        let (rows, named) = (binding.first_use.borrow().clone(), binding.element);
                        match rows.as_deref() {
                            Some(&[Some(owner)]) => {
                                let owner = (owner, self.is_frozen_by_itself(named, frame));
                                return self.add_tied(element, owner, options, frame, current, segment);
                            }
                            // The mistake of that layer has been reported.
                            Some(&[None]) => return self.fail_layer(),
                            Some(_) => format!("ties the weight of one layer, but `{name}` is more than that"),
                            None => {
                                format!("comes before the first use of `{name}`; put `{name}` into a list before it")
                            }
                        }
                    }
                    None => {
                        let names: Vec<&str> = frame.bindings.iter().map(|binding| binding.name.as_str()).collect();
                        match nearest(&name.to_string(), &names) {
                            Some(near) => format!("finds no layer called `{name}`; did you mean `{near}`?"),
                            None => format!("finds no layer called `{name}`; name it with `let {name} = ..;`"),
                        }
                    }
                }
            }
            _ => "takes the name of a layer: `let w = Embedding(..);`, then `Tied(w)`".to_string(),
        };
        self.report_layer(element, element.place, "Tied", frame, &message);
        self.fail_layer()
    }

    /// Returns the `let` called `name`. If it is passed as an argument through blocks, follows the parameters outwards.
    fn binding_called(&self, name: &str, frame: &Rc<Frame<'s>>) -> Option<Rc<Binding<'s>>> {
        match frame.parameter(name) {
            Some(Known::Element(Expression { kind: Kind::Name(outer), .. }, around)) => {
                self.binding_called(&outer.to_string(), around)
            }
            Some(_) => None,
            None => frame.binding(name).cloned(),
        }
    }

    /// Returns the segment of a layer in its path: the name that a `let` or the user gave it, or its kind.
    pub(super) fn layer_segment(
        &mut self,
        kind: &str,
        segment: Option<&str>,
        chosen: Option<(String, Place)>,
    ) -> super::Segment {
        match (chosen, segment) {
            (Some((name, place)), _) => match self.sharing.owner() {
                Some(_) => self.paths.add_again(&name, place),
                None => self.paths.add(&name, Some(place)),
            },
            (None, Some(segment)) => self.paths.add(segment, None),
            (None, None) => self.paths.add(&snake_case(kind), None),
        }
    }
}

/// Reports names of blocks that nothing could call, parameters with the same name, and types that no argument has.
pub(super) fn check_blocks(blocks: &[Function], errors: &mut Errors) {
    for block in blocks {
        let name = block.name.to_string();
        if Entry::find(&name).is_some() || KEYWORDS.contains(&name.as_str()) {
            errors.add(&block.name, format!("`{name}` has a meaning already; rename the block"));
        }
        check_distinct(block, errors);
        for output in block.outputs.iter().filter(|output| output.name != "Block") {
            errors.add(output.place, format!("a block returns `Block`, not `{}`", output.name));
        }
        for parameter in block.parameters.iter().filter(|parameter| !parameter.kind.is_broken) {
            if !["usize", "f64", "bool", "Block"].contains(&parameter.kind.name.to_string().as_str()) {
                errors.add(
                    parameter.kind.place,
                    "a block's parameters are `usize`, `f64`, `bool` or `Block`; use one of these",
                );
            }
        }
    }
}
