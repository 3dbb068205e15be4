//! Resolves layers and joins: evaluates their arguments, and reports mistakes found by `gpumem-core` at the right places.

use super::Resolver;
use super::frame::{Current, Frame, Known};
use super::paths::INDEX;
use crate::syntax::{Argument as Written, Expression, Kind, Place};
use gpumem_core::graph::Elements;
use gpumem_core::graph::{NodeId, RowId};
use gpumem_core::layers::arguments::{Argument, Arguments};
use gpumem_core::layers::initializer::Initial;
use gpumem_core::layers::mistake::{At, Kind as Wrong, Mistake, Shared, in_place_of};
use gpumem_core::layers::{self, Built, Entry, Tie};
use gpumem_core::suggest::nearest;
use std::rc::Rc;

/// The evaluated arguments of a layer, and their places in the source.
#[derive(Default)]
pub(super) struct EvaluatedArguments {
    pub(super) values: Vec<layers::Written>,
    /// For each value, its index among the written arguments.
    indices: Vec<usize>,
    /// Indices of the written arguments that are branches.
    branches: Vec<usize>,
    /// The name that the user chose, `name = "fc1"`, and its place.
    chosen: Option<(String, Place)>,
    /// True for `parameter = "cls_token"`: `chosen` is then the name of the layer's parameter too.
    is_parameter: bool,
    /// True for `freeze` or `freeze = true`.
    pub(super) frozen: bool,
    /// The initialisers `init = ..` and `bias_init = ..`.
    pub(super) init: Initial,
}

/// A layer, as the user wrote it.
pub(super) struct Call<'s, 'a> {
    pub(super) element: &'s Expression,
    pub(super) name: &'a str,
    pub(super) arguments: &'s [Written],
    pub(super) frame: &'a Rc<Frame<'s>>,
}

impl<'s> Resolver<'s, '_> {
    pub(super) fn layer(
        &mut self,
        element: &'s Expression,
        entry: Entry,
        arguments: &'s [Written],
        frame: &Rc<Frame<'s>>,
        current: Current,
        segment: Option<&str>,
    ) -> Current {
        if let [Written { name: None, value: inner }, rest @ ..] = arguments
            && !entry.is_join()
            && matches!(&inner.kind, Kind::Call { name, .. } if Entry::find(&name.to_string()).is_some())
        {
            let current = self.nested(element, entry, (inner, rest), frame, current);
            return self.layer(element, entry, rest, frame, current, segment);
        }
        let call = Call { element, name: entry.name, arguments, frame };
        let given = self.given(&call, &entry.signature().names(), entry.is_join());
        let guess = self.guesses.of(element.id);
        if !entry.is_join() {
            let built = match current {
                // The path is empty until all layers are known.
                Some(input) => {
                    self.graph.layer_as(guess, self.used(&given), &entry, &given.values, &[input], String::new())
                }
                // Mistakes of arguments are reported even if the input is unknown.
                None => self.graph.layer_of_unknown(guess, &entry, &given.values),
            };
            return self.finish(&call, &given, built, current, segment);
        }
        if self.has_forgotten_list(&call, &given) {
            let branch = given.branches.iter().map(|&index| &arguments[index].value);
            let end = branch.fold(current, |current, layer| self.element(layer, frame, current, None));
            self.fail_layer();
            return end;
        }
        let branches = given.branches.iter().map(|&index| &arguments[index].value);
        let outputs: Vec<Current> = branches.map(|branch| self.element(branch, frame, current, None)).collect();
        // If one branch is unknown, a join that keeps shapes still has the shape of the others.
        let known = outputs.iter().copied().flatten().next().filter(|_| entry.keeps_shape);
        let built = match outputs.iter().copied().collect::<Option<Vec<NodeId>>>() {
            Some(inputs) => {
                self.graph.layer_as(guess, self.used(&given), &entry, &given.values, &inputs, String::new())
            }
            None => {
                let mut built = self.graph.layer_of_unknown(guess, &entry, &given.values);
                built.mistakes.extend(entry.wrong_count(outputs.len()));
                Built { value: known, ..built }
            }
        };
        self.finish(&call, &given, built, None, segment)
    }

    /// Reports `Relu(Conv2d(16, 3))`, which is nested like calls of functions, and returns the output of the inner layer.
    fn nested(
        &mut self,
        element: &'s Expression,
        entry: Entry,
        (inner, rest): (&'s Expression, &'s [Written]),
        frame: &Rc<Frame<'s>>,
        current: Current,
    ) -> Current {
        let options: Vec<String> = rest.iter().map(ToString::to_string).collect();
        let outer = match options.as_slice() {
            [] => entry.name.to_string(),
            options => format!("{}({})", entry.name, options.join(", ")),
        };
        let message = format!(
            "layers are not called with other layers; they are listed, each after the one that it follows: `[{inner}, {outer}]`"
        );
        self.report(element.id, inner.place, frame, &message);
        self.element(inner, frame, current, None)
    }

    /// Reports the layers of one branch that are written as several, as in `Add([], Conv2d(3, 3), BatchNorm2d)`. True if they are.
    ///
    /// Users of PyTorch read these as a sequence. It is reported only if a layer that usually follows another one comes after it: a norm, an
    /// activation, dropout or attention. A join of activations alone is meant as it is written, and so is one of layers that change shapes.
    fn has_forgotten_list(&mut self, call: &Call<'s, '_>, given: &EvaluatedArguments) -> bool {
        let branches: Vec<&Expression> = given.branches.iter().map(|&index| &call.arguments[index].value).collect();
        let is_identity = |branch: &&&Expression| matches!(&branch.kind, Kind::List(elements) if elements.is_empty());
        let layers: Vec<&Expression> = branches.iter().filter(|branch| !is_identity(branch)).copied().collect();
        if layers.len() + 1 != branches.len() || layers.len() < 2 {
            return false;
        }
        let entry_of = |branch: &Expression| match &branch.kind {
            Kind::Name(name) | Kind::Call { name, .. } if !self.is_declared(&name.to_string(), call.frame) => {
                Entry::find(&name.to_string())
            }
            _ => None,
        };
        let entries: Option<Vec<Entry>> = layers.iter().map(|layer| entry_of(layer)).collect();
        let Some(entries) = entries else { return false };
        let activations = Entry::family("Relu");
        let follows = |entry: &Entry| entry.keeps_shape && !entry.is_join();
        let are_activations = entries.iter().all(|entry| activations.contains(&entry.name));
        if are_activations || !entries[1..].iter().any(follows) {
            return false;
        }
        let written: Vec<String> = layers.iter().map(ToString::to_string).collect();
        let message = format!(
            "joins {} branches here; put the layers of one branch into a list: `{}([], [{}])`",
            branches.len(),
            call.name,
            written.join(", ")
        );
        let place = layers[0].place.to(layers[layers.len() - 1].place);
        self.report_layer(call.element, place, call.name, call.frame, &message);
        true
    }

    /// True if the user declared this name.
    fn is_declared(&self, name: &str, frame: &Frame<'s>) -> bool {
        let is_block = !self.blocks_called(name, frame).is_empty();
        let is_operation = !self.operations_called(name, frame).is_empty();
        is_block || is_operation || frame.parameter(name).is_some() || frame.binding(name).is_some()
    }

    /// Adds `Tied(w)`. `tied_to` is the row of `w`; `is_frozen` is true if `w` is frozen at its `let`.
    pub(super) fn add_tied(
        &mut self,
        element: &'s Expression,
        (tied_to, is_frozen): (RowId, bool),
        options: &'s [Written],
        frame: &Rc<Frame<'s>>,
        current: Current,
        segment: Option<&str>,
    ) -> Current {
        let call = Call { element, name: "Tied", arguments: options, frame };
        let Some(entry) = Entry::find("Tied") else { return self.fail_layer() };
        let is_value = |option: &&Written| option.name.is_none() && !matches!(option.value.kind, Kind::Name(_));
        if let Some(option) = options.iter().find(is_value) {
            let message = "takes one layer, and the option `bias`";
            self.report_layer(&option.value, option.place(), "Tied", frame, message);
            return self.fail_layer();
        }
        let mut given = self.given(&call, &entry.signature().names(), false);
        given.frozen |= is_frozen;
        let guess = self.guesses.of(element.id);
        let built = match current {
            Some(input) => {
                let tie = Tie { tied_to, used: self.used(&given) };
                self.graph.layer_tied_to(tie, guess, &entry, &given.values, &[input], String::new())
            }
            None => self.graph.layer_of_unknown(guess, &entry, &given.values),
        };
        self.finish(&call, &given, built, current, segment)
    }

    /// Reports the mistakes of a layer, records its row, and returns its value.
    pub(super) fn finish(
        &mut self,
        call: &Call<'s, '_>,
        given: &EvaluatedArguments,
        built: Built,
        arriving: Current,
        segment: Option<&str>,
    ) -> Current {
        self.guesses.note(call.element.id, built.guessed);
        for mistake in &built.mistakes {
            self.report_mistake(call, given, mistake);
        }
        match built.row {
            Some(row) => {
                self.check_frozen(call, given, row);
                self.check_parameter(call, given, row);
                let segment = self.layer_segment(call.name, segment, given.chosen.clone());
                self.sharing.added(Some(row));
                let is_lost = built.value.is_some_and(|value| !self.graph.value(value).batched);
                let arriving = arriving.map(|node| self.graph.value(node)).filter(|value| value.batched);
                if let Some(arriving) = arriving.filter(|_| is_lost) {
                    self.lost.push((row, call.element.to_string(), arriving.elements == Elements::Indices));
                }
                let place = self.shown(call.element.place, call.frame).0;
                self.rows.push((segment, place));
                let line = self.line_of(call.element.place, call.frame);
                self.row_lines.push(line);
                self.count += 1;
            }
            None => _ = self.fail_layer(),
        }
        built.value
    }

    /// Records the parameter of a layer with `parameter = ".."`, and reports a layer that has not exactly one parameter.
    fn check_parameter(&mut self, call: &Call<'s, '_>, given: &EvaluatedArguments, row: RowId) {
        // A further use of a shared layer has no parameters.
        if !given.is_parameter || self.sharing.owner().is_some() {
            return;
        }
        let names = call.arguments.iter().filter_map(|argument| argument.name.as_ref());
        let is_named = names.into_iter().any(|name| name == "name");
        let owned: Vec<usize> =
            (0..self.graph.parameters.len()).filter(|&id| self.graph.parameters[id].row == row).collect();
        let has_buffers = self.graph.buffers.iter().any(|buffer| buffer.row == row);
        match owned[..] {
            [only] if !has_buffers && !is_named => self.bare.push(only),
            _ if is_named => {
                let message = "has a `name` and is a `parameter`; keep one of them";
                self.report_layer(call.element, call.element.place, call.name, call.frame, message);
            }
            _ => {
                let count = owned.len();
                let message = format!(
                    "has {count} parameters, and `parameter = \"..\"` is for a layer of one; write `name = \"..\"`"
                );
                self.report_layer(call.element, call.element.place, call.name, call.frame, &message);
            }
        }
    }

    /// Counts a layer that could not be made.
    pub(super) fn fail_layer(&mut self) -> Current {
        self.sharing.added(None);
        self.count += 1;
        None
    }

    pub(super) fn report_layer(
        &mut self,
        element: &Expression,
        place: Place,
        name: &str,
        frame: &Frame<'s>,
        message: &str,
    ) {
        let message = match self.declaring {
            true => format!("`{name}` {message}"),
            false => format!("layer {} `{name}` {message}", self.count),
        };
        self.report(element.id, place, frame, &message);
    }

    fn report_mistake(&mut self, call: &Call<'s, '_>, given: &EvaluatedArguments, mistake: &Mistake) {
        let index = match mistake.at {
            At::Layer | At::Argument(_) => None,
            At::Written(index) => given.indices.get(index),
            At::Input(index) => given.branches.get(index),
        };
        let argument = index.and_then(|&index| call.arguments.get(index));
        let place = argument.map_or(call.element.place, Written::place);
        // Mistakes of an argument are reported for each argument, those of the whole layer for the layer.
        let element = argument.map_or(call.element, |argument| &argument.value);
        let message = match &mistake.kind {
            // The parameter that is shared has a name without a path so far.
            Wrong::Shared(shared) => {
                let path = self.paths.spell(self.rows[shared.owner].0);
                let parameter = format!("{path}.{}", shared.parameter);
                Wrong::Shared(Box::new(Shared { parameter, ..(**shared).clone() })).to_string()
            }
            kind => kind.to_string(),
        };
        self.report_layer(element, place, call.name, call.frame, &message);
    }

    /// Evaluates the arguments of a layer. The arguments of a join that have no name are its branches.
    pub(super) fn given(&mut self, call: &Call<'s, '_>, options: &[&'static str], is_join: bool) -> EvaluatedArguments {
        let mut given = EvaluatedArguments::default();
        let takes_tables = takes_tables(call.name);
        for (index, argument) in call.arguments.iter().enumerate() {
            if argument.name.as_ref().is_some_and(|name| name == "name") {
                given.chosen = self.chosen_name(argument, call.frame, Named::Layer);
                continue;
            }
            if argument.name.as_ref().is_some_and(|name| name == "parameter") {
                given.chosen = self.chosen_name(argument, call.frame, Named::Layer);
                given.is_parameter = true;
                continue;
            }
            if self.is_freeze(argument, call.frame) {
                given.frozen = self.freezes(argument, call.frame);
                continue;
            }
            if self.reads_init(&mut given, argument, call, options) {
                continue;
            }
            let is_option = |name: &syn::Ident| options.contains(&name.to_string().as_str());
            let is_flag = matches!(&argument.value.kind, Kind::Name(name) if is_option(name));
            if is_join && argument.name.is_none() && !is_flag {
                given.branches.push(index);
                continue;
            }
            let written = match (&argument.name, &argument.value.kind) {
                (None, Kind::Name(name)) if !self.is_known(&name.to_string(), call.frame) => {
                    self.bare(call, argument, &name.to_string(), options)
                }
                // The layer's own message says what to write, so the value is not evaluated.
                (Some(name), _) if !is_option(name) && in_place_of(&name.to_string()).is_some() => {
                    layers::Written::named(name.to_string(), Argument::Unknown)
                }
                (name, _) => {
                    let value = match &argument.value.kind {
                        Kind::List(rows) if takes_tables => {
                            let table = self.table(&argument.value, rows, call.frame);
                            table.map_or(Argument::Unknown, |(dims, numbers)| Argument::Table(dims, numbers))
                        }
                        _ => self.argument(&argument.value, call.frame),
                    };
                    layers::Written { name: name.as_ref().map(ToString::to_string), value }
                }
            };
            given.values.push(written);
            given.indices.push(index);
        }
        given
    }

    /// Reads a bare name without a value: a flag, or else a mistake, such as the misspelt name of a number.
    fn bare(
        &mut self,
        call: &Call<'s, '_>,
        argument: &'s Written,
        name: &str,
        options: &[&'static str],
    ) -> layers::Written {
        let flag = layers::Written::named(name, Argument::Flag(true));
        if options.contains(&name) {
            return flag;
        }
        if self.is_imported(argument.value.id, name, call.frame) {
            return layers::Written::positional(Argument::Unknown);
        }
        let variables = self.variables(call.frame);
        let variables: Vec<&str> = variables.iter().map(String::as_str).collect();
        let near = nearest(name, &variables);
        let hint = match near {
            Some(near) => format!("; did you mean `{near}`?"),
            // The layer reports the misspelt flag.
            None if nearest(name, options).is_some() => return flag,
            None => format!("; a number is declared inside the {}, as `const {name}: usize = ..;`", self.around()),
        };
        let message = format!("is given `{name}`, which is neither an option nor a parameter nor a constant{hint}");
        self.report_layer(&argument.value, argument.place(), call.name, call.frame, &message);
        let meant = near.and_then(|near| self.variable(&argument.value, near, call.frame));
        let value = meant.map_or(Argument::Unknown, |meant| self.as_argument(&argument.value, meant, call.frame));
        layers::Written::positional(value)
    }

    /// Returns the value of an argument, which is `Unknown` after a mistake.
    pub(super) fn argument(&mut self, value: &'s Expression, frame: &Rc<Frame<'s>>) -> Argument {
        match self.value(value, frame) {
            Some(known) => self.as_argument(value, known, frame),
            None => Argument::Unknown,
        }
    }

    fn as_argument(&mut self, value: &Expression, known: Known<'s>, frame: &Frame<'s>) -> Argument {
        match known {
            Known::Integer(value) => Argument::Integer(value),
            Known::Negative(value) => Argument::Float(-(value as f64)),
            Known::Float(value) => Argument::Float(value),
            Known::Flag(value) => Argument::Flag(value),
            Known::Text(value) => Argument::Text(value),
            Known::Pair(value) => Argument::Pair(value),
            Known::Numbers(value) => Argument::Numbers(value),
            Known::Table(dims, numbers) => Argument::Table(dims, numbers),
            Known::Open => Argument::Unknown,
            Known::Element(..) => {
                let message = format!("expected a value, but `{value}` is a block");
                self.report(value.id, value.place, frame, &message);
                Argument::Unknown
            }
        }
    }

    /// True if a name already has a meaning, so that it cannot be the bare name of an option.
    pub(super) fn is_known(&self, name: &str, frame: &Frame<'s>) -> bool {
        let is_block = !self.blocks_called(name, frame).is_empty();
        let is_constant = frame.module.constants.iter().any(|constant| constant.name == name);
        let is_batch = self.batch.is_some_and(|batch| batch == name);
        let is_layer = is_block || !self.operations_called(name, frame).is_empty() || Entry::find(name).is_some();
        is_layer || is_constant || is_batch || frame.parameter(name).is_some() || frame.binding(name).is_some()
    }

    /// True if an argument is `freeze` or `freeze = ..`.
    pub(super) fn is_freeze(&self, argument: &Written, frame: &Frame<'s>) -> bool {
        match (&argument.name, &argument.value.kind) {
            (Some(name), _) => name == "freeze",
            (None, Kind::Name(name)) => name == "freeze" && !self.is_known("freeze", frame),
            _ => false,
        }
    }

    /// Returns the value of `freeze` or `freeze = ..`. False after a mistake.
    pub(super) fn freezes(&mut self, argument: &'s Written, frame: &Rc<Frame<'s>>) -> bool {
        argument.name.is_none() || self.flag(&argument.value, frame).unwrap_or(false)
    }

    /// Returns the name in `name = "fc1"` and its place. `None` after a mistake, which has been reported.
    pub(super) fn chosen_name(
        &mut self,
        argument: &'s Written,
        frame: &Rc<Frame<'s>>,
        named: Named,
    ) -> Option<(String, Place)> {
        let Known::Text(name) = self.value(&argument.value, frame)? else {
            let message = "a layer's name is a text, as `name = \"fc1\"`";
            self.report(argument.value.id, argument.value.place, frame, message);
            return None;
        };
        let (is_right, message) = match named {
            Named::Layer => (name.is_empty() || is_name(&name), LAYER_NAME),
            Named::Block => (is_block_name(&name), BLOCK_NAME),
        };
        if !is_right {
            self.report(argument.value.id, argument.value.place, frame, message);
            return None;
        }
        Some((name, self.shown(argument.value.place, frame).0))
    }
}

/// The kind of element that a name is chosen for.
#[derive(Clone, Copy)]
pub(super) enum Named {
    Layer,
    /// A block, or all rounds of a `repeat`.
    Block,
}

const LAYER_NAME: &str =
    "a layer's name consists of letters, digits, `_` and inner `-`, with `.` between modules, as `name = \"fc1\"`";

/// The message for a wrong name of a block.
pub(crate) const BLOCK_NAME: &str = "a block's name consists of letters, digits, `_` and inner `-`, with `.` between modules; \
     \"\" adds nothing to paths, and \"[]\" a number alone";

/// True if a text may be the name of a block in paths.
pub(crate) fn is_block_name(name: &str) -> bool {
    name.is_empty() || name == INDEX || is_name(name)
}

/// True if a text may be the name of a layer: segments of a path with dots between them.
fn is_name(name: &str) -> bool {
    name.split('.').all(is_segment)
}

/// True if a text may be a segment of a path. It is an identifier in any script, which may also begin with a digit and have `-` inside.
fn is_segment(name: &str) -> bool {
    let has_inner_dashes = !name.starts_with('-') && !name.ends_with('-');
    let identifier = format!("_{}", name.replace('-', "_"));
    has_inner_dashes
        && !name.is_empty()
        && syn::parse_str::<syn::Ident>(&identifier).is_ok_and(|parsed| parsed == identifier)
}

/// True if a layer takes numbers in nested brackets.
fn takes_tables(name: &str) -> bool {
    Entry::find(name).is_some_and(|entry| entry.signature().0.iter().any(|asked| asked.wanted == Arguments::TABLE))
}
