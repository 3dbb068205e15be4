//! Questions of patterns about operations.

use crate::lift::view::op;
use crate::lift::{Arguments, Lift};
use crate::model::{Argument, Node, ValueId};

/// An operand of an operation: a value, or a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Side {
    Value(ValueId),
    Number(f64),
}

impl Side {
    pub(super) fn value(self) -> Option<ValueId> {
        match self {
            Side::Value(value) => Some(value),
            Side::Number(_) => None,
        }
    }
}

/// Operations that return what they are given.
const SAME: [&str; 10] =
    ["contiguous", "clone", "alias", "detach", "lift_fresh_copy", "to", "type_as", "_to_copy", "float", "expand_as"];

/// Returns the number that an argument is, also a constant tensor of one element.
pub(super) fn number(lift: &Lift<'_>, argument: &Argument) -> Option<f64> {
    match argument {
        Argument::Int(number) => Some(*number as f64),
        Argument::Float(number) => Some(*number),
        Argument::Tensor(value) => {
            let tensor = lift.origins.get(*value)?.numbers()?;
            (lift.model.values[*value].elements() == Some(1)).then(|| tensor.numbers().first().copied())?
        }
        _ => None,
    }
}

/// Returns the value that a value is a copy of.
pub(super) fn plain(lift: &Lift<'_>, mut value: ValueId) -> ValueId {
    let is_float = |value: ValueId| lift.model.values[value].dtype.is_float();
    for _ in 0..16 {
        let Some((_, node)) = lift.maker(value) else { break };
        let Some(input) = node.tensors().next().filter(|_| SAME.contains(&&node.op[..])) else { break };
        // A number that becomes an integer, or the other way round, is another number.
        if lift.model.values[input].shape != lift.model.values[value].shape || is_float(input) != is_float(value) {
            break;
        }
        value = input;
    }
    value
}

/// Returns the node that makes a value, if it is this operation, not in place.
pub(super) fn made_by<'m>(lift: &Lift<'m>, value: ValueId, name: &str) -> Option<(usize, &'m Node)> {
    lift.maker(plain(lift, value)).filter(|(_, node)| node.op == name)
}

/// Returns the operands of an operation on two.
pub(super) fn parts(lift: &Lift<'_>, node: &Node) -> Option<[Side; 2]> {
    let part = |name: &str| -> Option<Side> {
        let argument = node.argument(name)?;
        match (number(lift, argument), argument) {
            (Some(number), _) => Some(Side::Number(number)),
            (None, Argument::Tensor(value)) => Some(Side::Value(plain(lift, *value))),
            _ => None,
        }
    };
    if node.float("alpha").is_some_and(|alpha| alpha != 1.0) || node.text("rounding_mode").is_some() {
        return None;
    }
    Some([part("self")?, part(if op(node) == "pow" { "exponent" } else { "other" })?])
}

/// Returns the operands of the operation that makes a value, if it is this one.
pub(super) fn parts_of(lift: &Lift<'_>, value: ValueId, name: &str) -> Option<[Side; 2]> {
    parts(lift, made_by(lift, value, name)?.1)
}

/// Returns the operands of the operation that makes a value: a value and a number; of sums and products in any order.
pub(super) fn with_number(lift: &Lift<'_>, value: ValueId, name: &str) -> Option<(ValueId, f64)> {
    let [left, right] = parts_of(lift, value, name)?;
    match (left, right) {
        (Side::Value(value), Side::Number(number)) | (Side::Number(number), Side::Value(value)) => {
            Some((value, number))
        }
        _ => None,
    }
}

/// Returns both orders of two operands.
pub(super) fn orders<T: Copy>([left, right]: [T; 2]) -> [[T; 2]; 2] {
    [[left, right], [right, left]]
}

/// Returns the output of an operation that has one.
pub(super) fn output(node: &Node) -> Option<ValueId> {
    match node.outputs[..] {
        [only] => Some(only),
        _ => None,
    }
}

/// Returns the only operation that reads a value, or copies of it, and its output.
pub(super) fn next<'m>(lift: &Lift<'m>, mut value: ValueId) -> Option<(usize, &'m Node)> {
    let model = lift.model;
    for _ in 0..16 {
        let index = lift.only_reader(value).filter(|&index| !lift.is_taken(index))?;
        let node = &model.nodes[index];
        match output(node).filter(|&output| plain(lift, output) == plain(lift, value)) {
            Some(output) => value = output,
            None => return Some((index, node)),
        }
    }
    None
}
