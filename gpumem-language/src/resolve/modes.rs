//! Resolves words around an element: `freeze(x)`, `detach(x)`, `eval(x)`, `train(x)`.

use super::Resolver;
use super::frame::{Current, Frame};
use super::layers::{Call, EvaluatedArguments};
use crate::syntax::{Argument, Expression, Kind, Place};
use gpumem_core::graph::{NodeId, RowId, Source};
use gpumem_core::layers::Use;
use gpumem_core::program::TrainingOnly;
use std::rc::Rc;

/// The mode of an element inside `eval` or `train`. The innermost word decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The element computes as in inference.
    Eval,
    /// The element computes as in training.
    Train,
}

/// A place in the network, to report a mistake there.
#[derive(Clone)]
pub(super) struct At<'s> {
    id: usize,
    place: Place,
    frame: Rc<Frame<'s>>,
}

impl<'s> At<'s> {
    pub(super) fn new(element: &Expression, frame: &Rc<Frame<'s>>) -> At<'s> {
        At { id: element.id, place: element.place, frame: frame.clone() }
    }
}

/// A `detach`, and the view that it adds to the graph.
pub(super) struct Detached<'s> {
    at: At<'s>,
    pub(super) view: NodeId,
}

impl<'s> Resolver<'s, '_> {
    /// Resolves `freeze(x)`: in this use, the parameters inside get no gradient.
    pub(super) fn freeze(
        &mut self,
        element: &'s Expression,
        arguments: &'s [Argument],
        frame: &Rc<Frame<'s>>,
        current: Current,
        segment: Option<&str>,
    ) -> Current {
        let [Argument { name: None, value: inner }] = arguments else {
            let message = "`freeze` takes one element, as `freeze([Conv2d(64, 3), Relu])` or `freeze(backbone(50))`";
            return self.not_one(element, message, arguments, frame, current);
        };
        let around = self.begin_frozen(true, At::new(element, frame));
        let end = self.element(inner, frame, current, segment);
        self.frozen = around;
        end
    }

    /// Freezes the elements after this call, if `is_frozen`. Returns the value to restore in `frozen` after them.
    pub(super) fn begin_frozen(&mut self, is_frozen: bool, at: At<'s>) -> Option<At<'s>> {
        let around = self.frozen.clone();
        if is_frozen && around.is_none() {
            self.frozen = Some(at);
        }
        around
    }

    /// Resolves `eval(x)` and `train(x)`, in which `x` computes as in inference, or as in training.
    pub(super) fn in_mode(
        &mut self,
        element: &'s Expression,
        (mode, arguments): (Mode, &'s [Argument]),
        frame: &Rc<Frame<'s>>,
        current: Current,
        segment: Option<&str>,
    ) -> Current {
        let [Argument { name: None, value: inner }] = arguments else {
            let message = match mode {
                Mode::Eval => {
                    "`eval` takes one element, as `eval(backbone(50))` or `freeze(eval([Conv2d(64, 3), BatchNorm2d]))`"
                }
                Mode::Train => "`train` takes one element, as `freeze(train([Conv2d(64, 3), BatchNorm2d]))`",
            };
            return self.not_one(element, message, arguments, frame, current);
        };
        let around = self.mode.replace(mode);
        let end = self.element(inner, frame, current, segment);
        self.mode = around;
        end
    }

    /// True if the element of a `let` contains its own `freeze`, so that every use of it is frozen.
    pub(super) fn is_frozen_by_itself(&mut self, element: &'s Expression, frame: &Rc<Frame<'s>>) -> bool {
        match &element.kind {
            Kind::Call { name, .. } if name == "freeze" => true,
            Kind::Call { name, arguments }
                if ["eval", "train", "lengths", "segments"].iter().any(|word| name == word) =>
            {
                arguments.iter().any(|argument| self.is_frozen_by_itself(&argument.value, frame))
            }
            Kind::Call { name, arguments } => {
                let called = self.blocks_called(&name.to_string(), frame);
                called.iter().any(|(block, _)| block.attributes.is_frozen)
                    || arguments.iter().any(|argument| self.is_freeze(argument, frame) && self.freezes(argument, frame))
            }
            Kind::List(elements) => matches!(&elements[..], [one] if self.is_frozen_by_itself(one, frame)),
            _ => false,
        }
    }

    /// Returns how a layer with these arguments is used here.
    pub(super) fn used(&self, given: &EvaluatedArguments) -> Use {
        let frozen = given.frozen || self.frozen.is_some();
        let (owner, eval) = (self.sharing.owner(), self.mode == Some(Mode::Eval));
        let (init, init_around, steps) = (given.init, self.init_around, self.around.clone());
        Use { owner, frozen, eval, init, init_around, steps }
    }

    /// Reports a frozen layer that would still do things that layers only do in training, unless `train` asks for them.
    pub(super) fn check_frozen(&mut self, call: &Call<'s, '_>, given: &EvaluatedArguments, row: RowId) {
        let own = if given.frozen { Some(At::new(call.element, call.frame)) } else { None };
        let Some(At { id, place, frame }) = self.frozen.clone().or(own).filter(|_| self.mode.is_none()) else { return };
        let nodes = self.graph.nodes.iter().rev().take_while(|node| node.row == row);
        let only = nodes.filter_map(|node| match &node.source {
            Source::Op { op, .. } => op.training_only(),
            _ => None,
        });
        let Some(only) = only.last() else { return };
        let would = match only {
            TrainingOnly::Statistics => {
                "would still normalise by the batch and move its statistics; write `freeze(eval(..))` for statistics at rest, or \
                 `freeze(train(..))` if that is meant"
            }
            TrainingOnly::Undone => {
                "would still normalise by the batch and move its statistics; write `freeze(train(..))` if that is meant, or use \
                 `BatchNorm2d, LeakyRelu(0.01)` inside of `freeze(eval(..))`"
            }
            TrainingOnly::Drops => {
                "would still drop at random; write `freeze(eval(..))` for no dropout, or `freeze(train(..))` if that is meant"
            }
        };
        let message = format!("layer {} `{}` is frozen, but {would}", self.count, call.name);
        self.report(id, place, &frame, &message);
    }

    /// Resolves `detach(x)`, or `detach` of the current value. No gradient flows back through it.
    pub(super) fn detach(
        &mut self,
        element: &'s Expression,
        arguments: Option<&'s [Argument]>,
        frame: &Rc<Frame<'s>>,
        current: Current,
        segment: Option<&str>,
    ) -> Current {
        let end = match arguments {
            None => current,
            Some([Argument { name: None, value: inner }]) => self.element(inner, frame, current, segment),
            Some(arguments) => {
                let message = "`detach` takes one element, as `detach(from(target))`, or stands alone after a value";
                return self.not_one(element, message, arguments, frame, current);
            }
        };
        let view = self.graph.detach(end?);
        self.detached.push(Detached { at: At::new(element, frame), view });
        Some(view)
    }

    /// Reports each `detach` that stops no gradient in any call of its block.
    pub(super) fn check_detached(&mut self, all: &[Detached<'s>]) {
        // After a mistake, some values may be placeholders that depend on no parameter.
        if all.is_empty() || !self.errors.list().is_empty() {
            return;
        }
        let trained = self.graph.differentiable(false);
        let stops = |of: &Detached<'s>| self.graph.nodes[of.view].inputs().iter().any(|&input| trained[input]);
        let useful: Vec<usize> = all.iter().filter(|of| stops(of)).map(|of| of.at.id).collect();
        for Detached { at: At { id, place, frame }, .. } in all.iter().filter(|of| !useful.contains(&of.at.id)) {
            self.report(*id, *place, frame, "nothing trained lies before this `detach`; remove it");
        }
    }
}
