//! Layers and joins: arguments to values, and the shape rules of `gpumem-core` to errors at their places.

use super::Resolver;
use super::frame::{Current, Frame, Known};
use crate::syntax::{Argument as Written, Expression, Kind, Place};
use gpumem_core::graph::{NodeId, RowId};
use gpumem_core::layers::Layer;
use gpumem_core::layers::arguments::{Argument, Arguments, At, Misnamed, Mistake};
use gpumem_core::layers::rule::Value;
use gpumem_core::shape::Shape;
use gpumem_core::suggest::nearest;
use std::rc::Rc;

/// What came of the names of a layer's arguments.
#[derive(PartialEq)]
enum Names {
    /// All are known, or a known one was meant.
    Known,
    /// Some are not, and might have changed the shape.
    Unknown,
}

/// A layer's arguments, and where they were written.
#[derive(Default)]
struct Given {
    values: Arguments,
    /// Indices of the written arguments.
    positional: Vec<usize>,
    named: Vec<usize>,
    /// `name = "fc1"`
    chosen: Option<(String, Place)>,
}

impl<'s> Resolver<'s, '_> {
    pub(super) fn layer(
        &mut self,
        element: &'s Expression,
        name: &str,
        arguments: &'s [Written],
        frame: &Rc<Frame<'s>>,
        current: Current,
        segment: Option<&str>,
    ) -> Current {
        if let Some(least) = Layer::branches(name) {
            return self.join(element, name, least, arguments, frame, current, segment);
        }
        let Some(mut given) = self.given(arguments, frame) else { return self.fail_layer() };
        let names = self.check_names(element, name, arguments, &mut given, frame);
        let Some(input) = current else {
            self.check_arguments(element, name, arguments, &given, frame);
            return self.fail_layer();
        };
        let value = self.graph.value(input);
        match Layer::resolve(name, &given.values, &[value]) {
            // What is wrong beyond an unknown name may follow from it.
            Some(_) if names == Names::Unknown => {
                self.fail_layer();
                Layer::keeps_shape(name).then_some(input)
            }
            Some(Ok(layer)) => self.add(element, layer, &[input], given.chosen, frame, segment),
            Some(Err(mistake)) => {
                self.report_mistake(element, name, arguments, &given, frame, &mistake);
                self.fail_layer();
                guess(name, &given.values, value).and_then(|value| self.graph.input(value).ok())
            }
            None => self.fail_layer(),
        }
    }

    /// `Add(x, y)` and the like: every branch gets `current`.
    #[expect(clippy::too_many_arguments, reason = "a layer's arguments, and one of a join")]
    fn join(
        &mut self,
        element: &'s Expression,
        name: &str,
        least: usize,
        arguments: &'s [Written],
        frame: &Rc<Frame<'s>>,
        current: Current,
        segment: Option<&str>,
    ) -> Current {
        let mut chosen = None;
        let mut branches = Vec::new();
        for argument in arguments {
            match &argument.name {
                None => branches.push(argument),
                Some(option) if option == "name" => chosen = self.chosen_name(argument, frame),
                Some(option) => {
                    let message = format!("has no option `{option}`; its arguments are branches");
                    self.report_layer(&argument.value, argument.place(), name, frame, &message);
                }
            }
        }
        let outputs: Vec<Current> =
            branches.iter().map(|branch| self.element(&branch.value, frame, current, None)).collect();
        if branches.len() < least {
            let given = match branches.len() {
                0 => "none is given".to_string(),
                count => format!("{count} is given"),
            };
            let message = format!("joins at least {least} branches, but {given}; a branch can be `[]`");
            self.report_layer(element, element.place, name, frame, &message);
            self.fail_layer();
            return outputs.first().copied().flatten().or(current);
        }
        let keeps_shape = name != "Concat";
        let known: Option<Vec<NodeId>> = outputs.iter().copied().collect();
        let Some(inputs) = known else {
            self.fail_layer();
            return outputs.into_iter().flatten().next().filter(|_| keeps_shape);
        };
        let values: Vec<Value> = inputs.iter().map(|&input| self.graph.value(input)).collect();
        match Layer::resolve(name, &Arguments::default(), &values) {
            Some(Ok(layer)) => self.add(element, layer, &inputs, chosen, frame, segment),
            Some(Err(mistake)) => {
                let place = match mistake.at {
                    At::Positional(branch) => branches.get(branch).map(|branch| branch.value.place),
                    _ => None,
                };
                self.report_layer(element, place.unwrap_or(element.place), name, frame, &mistake.message);
                self.fail_layer();
                inputs.first().copied().filter(|_| keeps_shape)
            }
            None => self.fail_layer(),
        }
    }

    /// `Tied(w)`, with the row of `w`.
    pub(super) fn add_tied(
        &mut self,
        element: &'s Expression,
        owner: RowId,
        options: &'s [Written],
        frame: &Rc<Frame<'s>>,
        current: Current,
        segment: Option<&str>,
    ) -> Current {
        let mut chosen = None;
        for option in options {
            if option.name.as_ref().is_some_and(|name| name == "name") {
                chosen = self.chosen_name(option, frame);
            } else {
                let message = "takes one layer and no options";
                self.report_layer(&option.value, option.place(), "Tied", frame, message);
            }
        }
        let Some(input) = current else { return self.fail_layer() };
        let added = self.graph.tied(owner, input, String::new());
        self.finish(element, "Tied", added, chosen, frame, segment)
    }

    /// Adds a layer to the graph.
    fn add(
        &mut self,
        element: &'s Expression,
        layer: Layer,
        inputs: &[NodeId],
        chosen: Option<(String, Place)>,
        frame: &Rc<Frame<'s>>,
        segment: Option<&str>,
    ) -> Current {
        let name = layer.name();
        // The path is spelled when all layers are there.
        let added = self.graph.layer(layer, inputs, String::new(), self.sharing.owner());
        self.finish(element, name, added, chosen, frame, segment)
    }

    fn finish(
        &mut self,
        element: &'s Expression,
        name: &str,
        added: Result<NodeId, Mistake>,
        chosen: Option<(String, Place)>,
        frame: &Rc<Frame<'s>>,
        segment: Option<&str>,
    ) -> Current {
        match added {
            Ok(node) => {
                let segment = self.layer_segment(name, segment, chosen);
                self.sharing.added(Some(self.rows.len()));
                self.rows.push((segment, element.place));
                self.count += 1;
                Some(node)
            }
            Err(Mistake { mut message, .. }) => {
                // Names of shared parameters have no path yet.
                if let Some(owner) = self.sharing.owner() {
                    message = message.replacen("`.", &format!("`{}.", self.paths.spell(self.rows[owner].0)), 1);
                }
                self.report_layer(element, element.place, name, frame, &message);
                self.fail_layer()
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
        let message = format!("layer {} `{name}` {message}", self.count);
        self.report(element.id, place, frame, &message);
    }

    /// Reports every named argument that the layer does not know. Where a known one was probably meant, checking goes on as if
    /// that had been written; the others are left out.
    fn check_names(
        &mut self,
        element: &'s Expression,
        name: &str,
        arguments: &'s [Written],
        given: &mut Given,
        frame: &Rc<Frame<'s>>,
    ) -> Names {
        let misnamed = Layer::signature(name).map(|signature| given.values.misnamed(signature)).unwrap_or_default();
        for argument in &misnamed {
            self.report_mistake(element, name, arguments, given, frame, &argument.mistake);
        }
        let mut names = Names::Known;
        // From the back, so that the numbers of the others stay.
        for Misnamed { index, meant, .. } in misnamed.into_iter().rev() {
            // A bare name is a flag; most options are not.
            let is_bare = arguments[given.named[index]].name.is_none();
            let named = &mut given.values.named;
            match meant.filter(|meant| !is_bare && named.iter().all(|(name, _)| name != meant)) {
                Some(meant) => named[index].0 = meant.into(),
                None => {
                    named.remove(index);
                    given.named.remove(index);
                    names = Names::Unknown;
                }
            }
        }
        names
    }

    fn report_mistake(
        &mut self,
        element: &'s Expression,
        name: &str,
        arguments: &'s [Written],
        given: &Given,
        frame: &Rc<Frame<'s>>,
        mistake: &Mistake,
    ) {
        let index = match mistake.at {
            At::Layer => None,
            At::Positional(index) => given.positional.get(index),
            At::Named(index) => given.named.get(index),
        };
        let argument = index.and_then(|&index| arguments.get(index));
        let place = argument.map_or(element.place, Written::place);
        // Each argument has its own mistakes; those of the layer as a whole are one.
        let element = argument.map_or(element, |argument| &argument.value);
        // A bare name that is no option may be a number's name, misspelt.
        if let Some(Written { name: None, value: Expression { kind: Kind::Name(written), .. } }) = argument
            && mistake.message.starts_with("has no option")
        {
            let variables = self.variables(frame);
            let variables: Vec<&str> = variables.iter().map(String::as_str).collect();
            let hint = match nearest(&written.to_string(), &variables) {
                Some(near) => Some(format!("; did you mean `{near}`?")),
                None if mistake.message.contains("did you mean") => None,
                None => Some(format!("; a number is declared inside the network, as `const {written}: usize = ..;`")),
            };
            if let Some(hint) = hint {
                let message =
                    format!("is given `{written}`, which is neither an option nor a parameter nor a constant{hint}");
                return self.report_layer(element, place, name, frame, &message);
            }
        }
        self.report_layer(element, place, name, frame, &mistake.message);
    }

    /// What can be said of arguments without knowing what arrives: a mistake that is the same whatever arrives.
    fn check_arguments(
        &mut self,
        element: &'s Expression,
        name: &str,
        arguments: &'s [Written],
        given: &Given,
        frame: &Rc<Frame<'s>>,
    ) {
        // Two shapes of each kind: what depends on the shape is said of one of them only.
        let kinds: [([&[u64]; 2], bool); 4] = [
            ([&[64], &[96]], true),
            ([&[64], &[96]], false),
            ([&[64, 64], &[96, 96]], false),
            ([&[64, 64, 64], &[96, 96, 96]], false),
        ];
        let mut mistakes = Vec::new();
        for (shapes, index) in kinds {
            let [first, second] = shapes.map(|shape| {
                let value = Value { shape: Shape::new(shape), index, batched: true };
                Layer::resolve(name, &given.values, &[value])?.err()
            });
            match (first, second) {
                (Some(mistake), Some(other)) if mistake == other => mistakes.push(mistake),
                // Not this kind of input.
                (Some(Mistake { at: At::Layer, .. }), Some(Mistake { at: At::Layer, .. })) => {}
                _ => return,
            }
        }
        if mistakes.len() < kinds.len() || mistakes.iter().any(|mistake| *mistake != mistakes[0]) {
            mistakes.retain(|mistake| mistake.at != At::Layer);
        }
        if let Some((first, rest)) = mistakes.split_first()
            && rest.iter().all(|mistake| mistake == first)
        {
            self.report_mistake(element, name, arguments, given, frame, first);
        }
    }

    /// Evaluates a layer's arguments; `None` after a mistake.
    fn given(&mut self, arguments: &'s [Written], frame: &Rc<Frame<'s>>) -> Option<Given> {
        let mut given = Given::default();
        let mut sound = true;
        for (index, argument) in arguments.iter().enumerate() {
            if argument.name.as_ref().is_some_and(|name| name == "name") {
                given.chosen = self.chosen_name(argument, frame);
                continue;
            }
            if let (None, Kind::Name(name)) = (&argument.name, &argument.value.kind)
                && !self.is_known(&name.to_string(), frame)
            {
                given.values.named.push((name.to_string(), Argument::Flag(true)));
                given.named.push(index);
                continue;
            }
            let Some(value) = self.argument(&argument.value, frame) else {
                sound = false;
                continue;
            };
            match &argument.name {
                Some(name) => {
                    given.values.named.push((name.to_string(), value));
                    given.named.push(index);
                }
                None => {
                    given.values.positional.push(value);
                    given.positional.push(index);
                }
            }
        }
        sound.then_some(given)
    }

    fn argument(&mut self, value: &'s Expression, frame: &Rc<Frame<'s>>) -> Option<Argument> {
        Some(match self.value(value, frame)? {
            Known::Integer(value) => Argument::Integer(value),
            Known::Float(value) => Argument::Float(value),
            Known::Flag(value) => Argument::Flag(value),
            Known::Text(value) => Argument::Text(value),
            Known::Pair(value) => Argument::Pair(value),
            Known::Element(..) => {
                let message = format!("expected a value, but `{value}` is a block");
                self.report(value.id, value.place, frame, &message);
                return None;
            }
        })
    }

    /// Whether a name stands for anything, so that it cannot be an option's bare name.
    fn is_known(&self, name: &str, frame: &Frame<'s>) -> bool {
        let is_block = self.source.blocks.iter().any(|block| block.name == name);
        let is_constant = self.source.constants.iter().any(|constant| constant.name == name);
        let is_batch = self.source.declaration.batch.as_ref().is_some_and(|batch| batch == name);
        let is_layer = is_block || Layer::NAMES.contains(&name);
        is_layer || is_constant || is_batch || frame.parameter(name).is_some() || frame.binding(name).is_some()
    }

    /// `name = "fc1"`
    fn chosen_name(&mut self, argument: &'s Written, frame: &Rc<Frame<'s>>) -> Option<(String, Place)> {
        let Known::Text(name) = self.value(&argument.value, frame)? else {
            let message = "a layer's name is a text, as `name = \"fc1\"`";
            self.report(argument.value.id, argument.value.place, frame, message);
            return None;
        };
        if name.is_empty() || !name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_') {
            let message = "a layer's name consists of letters, digits and `_`, as `name = \"fc1\"`";
            self.report(argument.value.id, argument.value.place, frame, message);
            return None;
        }
        Some((name, argument.value.place))
    }
}

/// What a layer with a mistake most probably produces, so that what follows it can be checked: `None` where that would be a
/// guess that makes mistakes of its own.
fn guess(name: &str, arguments: &Arguments, input: Value) -> Option<Value> {
    if Layer::keeps_shape(name) {
        return (!input.index).then_some(input);
    }
    let mut attempt = arguments.clone();
    match (name, attempt.positional.len()) {
        // The number that is only checked is the wrong one.
        ("Linear", 2) | ("Conv2d" | "ConvTranspose2d", 3) => {
            attempt.positional.remove(0);
        }
        _ => {}
    }
    // These options change no shape; an unknown one might have been meant to.
    attempt.named.retain(|(name, _)| !["groups", "bias"].contains(&name.as_str()));
    if name == "Linear" {
        attempt.named.clear();
    }
    let flattened = Value { shape: Shape::new(&[input.shape.elements()?]), ..input };
    [input, flattened].into_iter().find_map(|input| {
        if name != "Linear" && input == flattened {
            return None;
        }
        let layer = Layer::resolve(name, &attempt, &[input])?.ok()?;
        Some(Value { shape: layer.output(), index: false, batched: input.batched })
    })
}
