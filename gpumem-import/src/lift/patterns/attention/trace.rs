//! Queries, keys and values, followed back to what they are made of.

use crate::lift::patterns::matching::number;
use crate::lift::patterns::rotary::{Turn, turned};
use crate::lift::view::{Factor, View, joined, moved, op};
use crate::lift::{Arguments, Lift};
use crate::model::{Argument, Node, ValueId};

/// Queries, keys or values as a view of what a layer made, with a factor and rotary positions on the way.
#[derive(Clone, Debug)]
pub(super) struct Traced {
    pub(super) view: View,
    pub(super) scale: f64,
    pub(super) turned: Option<Turned>,
}

/// Rotary positions, and where in the base the steps and the elements of a head are.
#[derive(Clone, Debug)]
pub(super) struct Turned {
    pub(super) turn: Turn,
    steps: Vec<Factor>,
    width: Vec<Factor>,
}

enum Link<'m> {
    Moves(&'m Node),
    Scales(f64),
    Turns(Turn),
}

/// The most operations that are followed back.
const FARTHEST: usize = 64;

/// Follows a value back through operations that move elements and, if `through_numbers`, through factors and rotary positions.
pub(super) fn trace(lift: &mut Lift<'_>, value: ValueId, through_numbers: bool) -> Option<Traced> {
    let mut steps = Vec::new();
    let mut base = value;
    while steps.len() < FARTHEST {
        let Some((_, node)) = lift.maker(base) else { break };
        let (step, input) = if let Some(input) = moved(node) {
            (Link::Moves(node), input)
        } else if !through_numbers {
            break;
        } else if let Some((input, factor)) = scaled(lift, node) {
            (Link::Scales(factor), input)
        } else if let ("add" | "sub" | "cat" | "concat" | "stack", Some((input, turn))) =
            (&node.op[..], turned(lift, base))
        {
            (Link::Turns(turn), input)
        } else {
            break;
        };
        steps.push((step, base));
        base = input;
    }
    let start = |lift: &Lift<'_>, value| Some(Traced { view: View::of(lift, value)?, scale: 1.0, turned: None });
    let mut traced = start(lift, base)?;
    for (step, output) in steps.into_iter().rev() {
        traced = match step {
            Link::Moves(node) => match traced.view.clone().after(lift, node, output) {
                Some(view) => Traced { view, ..traced },
                None => start(lift, output)?,
            },
            Link::Scales(factor) => Traced { scale: traced.scale * factor, ..traced },
            // Positions that turn a second time are another layer.
            Link::Turns(_) if traced.turned.is_some() => start(lift, output)?,
            Link::Turns(turn) => match (traced.view.axes.get(turn.time).cloned(), traced.view.axes.last().cloned()) {
                (Some(steps), Some(width)) => Traced { turned: Some(Turned { turn, steps, width }), ..traced },
                _ => start(lift, output)?,
            },
        };
    }
    Some(traced)
}

impl Traced {
    /// True if nothing was turned, or all of it, along these axes.
    pub(super) fn turns_along(&self, steps: usize, width: usize) -> bool {
        self.turned.as_ref().is_none_or(|turned| {
            let along = |axis: usize| self.view.axes.get(axis).map(|factors| joined(factors.iter().copied()));
            along(steps) == Some(joined(turned.steps.iter().copied()))
                && along(width) == Some(joined(turned.width.iter().copied()))
        })
    }
}

/// Returns the value that an operation multiplies by a number, and the number. `None` if it does something else.
pub(super) fn scaled(lift: &Lift<'_>, node: &Node) -> Option<(ValueId, f64)> {
    let [left, right] = ["self", "other"].map(|name| node.argument(name));
    match (op(node), left?, right?) {
        ("mul", Argument::Tensor(value), other) if lift.is_sample(*value) => Some((*value, number(lift, other)?)),
        ("mul", number_first, Argument::Tensor(value)) if lift.is_sample(*value) => {
            Some((*value, number(lift, number_first)?))
        }
        ("div", Argument::Tensor(value), other) if lift.is_sample(*value) && node.text("rounding_mode").is_none() => {
            Some((*value, 1.0 / number(lift, other)?))
        }
        _ => None,
    }
}
