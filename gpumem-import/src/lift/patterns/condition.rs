//! Numbers that depend on one token each, such as masks of padding: a frozen table has a row for each token.
//!
//! A mask is walked back to the tokens that it is computed from, through what moves elements and through arithmetic with numbers. What is
//! computed on the way is computed here for every token, once. A mask that joins several values is none of this kind.

use super::matching::{Side, number, output};
use crate::lift::view::{Factor, Plan, View, joined, length, moved, op};
use crate::lift::{Arguments, Layer, Lift, Literal, Table};
use crate::model::{Argument, Dtype, Node, ValueId};
use std::rc::Rc;

/// The most operations between tokens and a mask.
const FARTHEST: usize = 48;
/// The most tokens for which a table is made.
const MOST_ROWS: u64 = 1 << 20;
/// The tokens of a mask: 0 and 1.
const ROWS_OF_MASK: u64 = 2;

/// A value each of whose elements is a number that one token has.
#[derive(Clone, Debug)]
pub(crate) struct Looked {
    /// The places of the tokens.
    pub(crate) view: View,
    /// The number of each token.
    pub(crate) numbers: Vec<f64>,
    /// True if there are no other tokens than those that have a number here.
    pub(crate) is_complete: bool,
}

/// Values that have been looked at. `None` for those that are no numbers of tokens.
pub(crate) type Conditions = std::collections::HashMap<ValueId, Option<Rc<Looked>>>;

/// Returns the numbers of tokens that a value is. `None` if it is another one.
pub(super) fn looked_up(lift: &mut Lift<'_>, value: ValueId) -> Option<Rc<Looked>> {
    within(lift, value, FARTHEST)
}

fn within(lift: &mut Lift<'_>, value: ValueId, left: usize) -> Option<Rc<Looked>> {
    if left == 0 || !lift.is_sample(value) {
        return None;
    }
    if let Some(known) = lift.conditions.get(&value) {
        return known.clone();
    }
    let found = found(lift, value, left).map(Rc::new);
    lift.conditions.insert(value, found.clone());
    found
}

fn found(lift: &mut Lift<'_>, value: ValueId, left: usize) -> Option<Looked> {
    let model = lift.model;
    if model.inputs.contains(&value) {
        return tokens(lift, value);
    }
    let (_, node) = lift.maker(value)?;
    let dtype = model.values[value].dtype;
    if let Some(picked) = rows_of_samples(lift, node, value, left) {
        return Some(picked);
    }
    if let Some(input) = moved(node) {
        let inner = within(lift, input, left - 1)?;
        let view = inner.view.clone().after(lift, node, value)?;
        let is_truth = dtype == Dtype::Bool;
        let round = |&number: &f64| if is_truth { f64::from(number != 0.0) } else { number };
        let is_whole = |number: &f64| number.fract() == 0.0;
        if !is_truth && !dtype.is_float() && !inner.numbers.iter().all(is_whole) {
            return None;
        }
        let numbers = inner.numbers.iter().map(round).collect();
        return Some(Looked { view, numbers, is_complete: inner.is_complete || is_truth });
    }
    let [first, second, third] = operands(node)?;
    let sides = [first, second, third].into_iter().flatten();
    let sides: Vec<Operand> = sides.map(|argument| operand(lift, argument, left)).collect::<Option<_>>()?;
    computed(lift, node, &sides, value)
}

/// Returns an input of the model as tokens.
fn tokens(lift: &Lift<'_>, value: ValueId) -> Option<Looked> {
    let own = &lift.model.values[value];
    if own.dtype.is_float() {
        return None;
    }
    let table = rows_of_table(lift, value);
    let is_complete = table.is_some() || own.dtype == Dtype::Bool || own.name.contains("mask");
    let rows = table.unwrap_or(ROWS_OF_MASK);
    let numbers = (rows <= MOST_ROWS).then(|| (0..rows).map(|row| row as f64).collect())?;
    Some(Looked { view: View::of(lift, value)?, numbers, is_complete })
}

/// Returns the rows of the shortest table in which tokens are looked up.
fn rows_of_table(lift: &Lift<'_>, tokens: ValueId) -> Option<u64> {
    let (mut near, mut at, mut rows) = (vec![tokens], 0, None);
    while let Some(&value) = near.get(at).filter(|_| at < FARTHEST) {
        for node in lift.readers[value].iter().map(|&reader| &lift.model.nodes[reader]) {
            match (&node.op[..], node.tensor("weight")) {
                ("embedding", Some(weight)) => {
                    let own = lift.model.values[weight].shape.first().copied();
                    rows = [rows, own].into_iter().flatten().min();
                }
                _ if moved(node) == Some(value) => near.extend(&node.outputs),
                _ => {}
            }
        }
        at += 1;
    }
    rows
}

/// Returns tokens that are picked by the number of each sample, and by a count of their steps: `tokens[samples, steps]`.
fn rows_of_samples(lift: &mut Lift<'_>, node: &Node, value: ValueId, left: usize) -> Option<Looked> {
    let Some(Argument::Tensors(indices)) = node.argument("indices").filter(|_| op(node) == "index") else {
        return None;
    };
    let &[Some(samples), Some(steps)] = &indices[..] else { return None };
    let input = node.tensor("self")?;
    let inner = within(lift, input, left - 1)?;
    let [count] = inner.view.shape()[..] else { return None };
    let counts = |value: ValueId, count: u64| {
        lift.origins[value].numbers().is_some_and(|tensor| {
            let numbers = tensor.numbers();
            numbers.len() as u64 == count && numbers.iter().enumerate().all(|(at, number)| *number == at as f64)
        })
    };
    let is_first = lift.batch.axes[input].is_some_and(|axis| axis.dim == 0 && axis.before * axis.after == 1);
    let shape = lift.sample(value);
    let fits = shape.last() == Some(&count) && shape.iter().product::<u64>() == count;
    if !is_first || !fits || !counts(samples, lift.batch.size) || !counts(steps, count) {
        return None;
    }
    let mut axes = vec![Vec::new(); shape.len() - 1];
    axes.extend(inner.view.axes.iter().cloned());
    Some(Looked { view: View { axes, ..inner.view.clone() }, ..(*inner).clone() })
}

/// An operand: one number, or numbers of tokens.
enum Operand {
    Number(f64),
    Looked(Rc<Looked>),
}

impl Operand {
    fn of(&self, token: usize) -> f64 {
        match self {
            Operand::Number(number) => *number,
            Operand::Looked(looked) => looked.numbers.get(token).copied().unwrap_or(f64::NAN),
        }
    }
}

/// Returns the arguments of an operation with up to three operands.
fn operands(node: &Node) -> Option<[Option<&Argument>; 3]> {
    let name = |name: &str| node.argument(name);
    match op(node) {
        "logical_not" | "bitwise_not" | "neg" => Some([name("self"), None, None]),
        "where" => Some([name("condition"), name("self"), name("other")]),
        "masked_fill" => Some([name("mask"), name("value"), name("self")]),
        _ => Some([name("self"), Some(name("other")?), None]),
    }
}

fn operand(lift: &mut Lift<'_>, argument: &Argument, left: usize) -> Option<Operand> {
    if let Some(number) = number(lift, argument) {
        return Some(Operand::Number(number));
    }
    let &Argument::Tensor(value) = argument else { return None };
    if let Some(tensor) = lift.origins[value].numbers() {
        let numbers = tensor.numbers();
        let first = *numbers.first()?;
        return numbers.iter().all(|number| *number == first).then_some(Operand::Number(first));
    }
    within(lift, value, left - 1).map(Operand::Looked)
}

/// Returns what an operation makes of each token's numbers. `None` if the tokens are not in the same places, or for other operations.
fn computed(lift: &Lift<'_>, node: &Node, sides: &[Operand], value: ValueId) -> Option<Looked> {
    let is_plain = node.float("alpha").is_none_or(|alpha| alpha == 1.0) && node.text("rounding_mode").is_none();
    let name = op(node);
    let is_truth = lift.model.values[value].dtype == Dtype::Bool;
    let function: fn(f64, f64, f64) -> f64 = match name {
        "ne" => |a, b, _| f64::from(a != b),
        "eq" => |a, b, _| f64::from(a == b),
        "gt" => |a, b, _| f64::from(a > b),
        "ge" => |a, b, _| f64::from(a >= b),
        "lt" => |a, b, _| f64::from(a < b),
        "le" => |a, b, _| f64::from(a <= b),
        "logical_not" => |a, _, _| f64::from(a == 0.0),
        "bitwise_not" if is_truth => |a, _, _| f64::from(a == 0.0),
        "logical_and" => |a, b, _| f64::from(a != 0.0 && b != 0.0),
        "logical_or" => |a, b, _| f64::from(a != 0.0 || b != 0.0),
        "__and__" | "bitwise_and" if is_truth => |a, b, _| f64::from(a != 0.0 && b != 0.0),
        "__or__" | "bitwise_or" if is_truth => |a, b, _| f64::from(a != 0.0 || b != 0.0),
        "neg" => |a, _, _| -a,
        "add" if is_plain => |a, b, _| a + b,
        "sub" if is_plain => |a, b, _| a - b,
        "rsub" if is_plain => |a, b, _| b - a,
        "mul" => |a, b, _| a * b,
        "div" if is_plain => |a, b, _| a / b,
        "where" | "masked_fill" => |a, b, c| if a != 0.0 { b } else { c },
        _ => return None,
    };
    let all = sides.iter().filter_map(|side| match side {
        Operand::Looked(looked) => Some(looked),
        Operand::Number(_) => None,
    });
    let all: Vec<&Rc<Looked>> = all.collect();
    let first = all.first()?;
    let shape = lift.sample(value);
    let view = broadcast(&first.view, &shape)?;
    for other in &all[1..] {
        if broadcast(&other.view, &shape)? != view || other.numbers.len() != first.numbers.len() {
            return None;
        }
    }
    let side = |place: usize, token: usize| sides.get(place).map_or(0.0, |side| side.of(token));
    let one = |token: usize| function(side(0, token), side(1, token), side(2, token));
    let numbers = (0..first.numbers.len()).map(one).collect();
    // A comparison with 0 or 1 tells that the tokens are those of a mask.
    let bound = match sides {
        [_, Operand::Number(number), ..] => (0.0..ROWS_OF_MASK as f64).contains(number),
        _ => true,
    };
    let is_complete = all.iter().all(|looked| looked.is_complete) || is_truth && bound;
    Some(Looked { view, numbers, is_complete })
}

/// Returns a view with axes of one element repeated, and new ones before the others.
fn broadcast(view: &View, shape: &[u64]) -> Option<View> {
    let shift = shape.len().checked_sub(view.axes.len())?;
    let axis = |(place, &size): (usize, &u64)| {
        let own = place.checked_sub(shift).map(|place| &view.axes[place]);
        match own {
            Some(axis) if length(axis) == size => Some(axis.clone()),
            Some(axis) if length(axis) != 1 => None,
            _ => Some(joined([Factor { size, stride: 0 }])),
        }
    };
    Some(View { axes: shape.iter().enumerate().map(axis).collect::<Option<_>>()?, ..*view })
}

impl Looked {
    /// Returns these numbers as a row over keys, if they are one. Each of the keys has the token of its index.
    pub(super) fn row(&self, lift: &Lift<'_>, keys: u64) -> Option<ValueId> {
        let (last, front) = self.view.axes.split_last()?;
        let is_row = *last == joined([Factor { size: keys, stride: 1 }]) && self.view.offset == 0;
        let is_repeated = front.iter().flatten().all(|factor| factor.stride == 0);
        let is_all = lift.sample(self.view.base).iter().product::<u64>() == keys;
        (is_row && is_repeated && is_all).then_some(self.view.base)
    }

    /// Adds a frozen table of the numbers for attentions, or reads that which was added for an earlier one.
    pub(super) fn write_once(&self, plan: &mut Plan<'_, '_>, numbers: &[f64]) -> Option<ValueId> {
        let key = (self.view.base, numbers.iter().map(|number| number.to_bits()).collect::<Vec<u64>>());
        if let Some(&made) = plan.lift.looked_up.get(&key) {
            return Some(made);
        }
        let made = self.write(plan, numbers)?;
        plan.lift.looked_up.insert(key, made);
        Some(made)
    }

    /// Adds a frozen table of the numbers. Its rows are those of the tokens.
    fn write(&self, plan: &mut Plan<'_, '_>, numbers: &[f64]) -> Option<ValueId> {
        let tokens = self.view.base;
        let shape = plan.lift.sample(tokens);
        if shape.len() >= crate::lift::shapes::MOST_AXES {
            return None;
        }
        let name = format!("{}.table{}", plan.lift.model.values[tokens].name, plan.lift.tables.len());
        let rows = numbers.len() as u64;
        let layer = Layer::new("Embedding", tokens, 0).with(rows).with(1u64);
        let layer = layer.key("weight", Some(&name)).flag("freeze", true);
        plan.lift.tables.push(Table { key: name, shape: vec![rows, 1], numbers: numbers.to_vec() });
        Some(plan.add(layer, &[&shape[..], &[1]].concat()))
    }

    /// Adds the numbers at their places, with one element along axes that are repeated.
    fn placed(&self, plan: &mut Plan<'_, '_>, numbers: &[f64]) -> Option<ValueId> {
        let base = self.write(plan, numbers)?;
        let narrow =
            |axis: &Vec<Factor>| if axis.iter().all(|factor| factor.stride == 0) { Vec::new() } else { axis.clone() };
        let axes = self.view.axes.iter().map(narrow).collect();
        plan.write(&View { base, axes, ..self.view })
    }
}

/// Looks for numbers of tokens that are read as numbers, and for choices and products by them.
pub(super) fn find(lift: &mut Lift<'_>, at: usize) -> Option<()> {
    let node = &lift.model.nodes[at];
    let result = output(node)?;
    if op(node) == "argmax" {
        return place(lift, at, node, result);
    }
    if !lift.model.values[result].dtype.is_float() || !lift.is_sample(result) {
        return None;
    }
    let shape = lift.sample(result);
    if let Some(looked) = looked_up(lift, result) {
        let is_number = |number: &f64| number.is_finite();
        if !looked.is_complete || !looked.numbers.iter().all(is_number) {
            return None;
        }
        let mut plan = Plan { lift, layers: Vec::new() };
        let placed = looked.placed(&mut plan, &looked.numbers)?;
        if plan.lift.sample(placed) != shape {
            let sizes = Literal::Tuple(shape.iter().map(|&size| size.into()).collect());
            plan.add(Layer::new("Expand", placed, 0).with(sizes), &shape);
        }
        return planned(plan, at, result);
    }
    let [factor, terms] = match op(node) {
        "mul" => product(lift, node, &shape)?,
        _ => return choice(lift, at, node, result),
    };
    let looked = looked_up(lift, factor).filter(|looked| looked.is_complete)?;
    let mut plan = Plan { lift, layers: Vec::new() };
    let placed = looked.placed(&mut plan, &looked.numbers)?;
    plan.add(Layer::join("Mul", vec![terms, placed], 0), &shape);
    planned(plan, at, result)
}

/// Looks for the place of the first token of a kind, as the end of a text is found: `(tokens == end).int().argmax(-1)`.
fn place(lift: &mut Lift<'_>, at: usize, node: &Node, result: ValueId) -> Option<()> {
    let value = node.tensor("self").filter(|&value| !lift.model.values[value].dtype.is_float())?;
    let dim = lift.dim(value, node.int("dim")?)?;
    // The place of the largest token itself is a layer.
    if lift.model.inputs.contains(&value) || usize::try_from(dim) != Ok(lift.sample(value).len()) {
        return None;
    }
    let looked = looked_up(lift, value).filter(|looked| looked.is_complete)?;
    let shape = lift.sample(result);
    let mut plan = Plan { lift, layers: Vec::new() };
    let placed = looked.placed(&mut plan, &looked.numbers)?;
    let layer = Layer::new("ArgMax", placed, 0).with(dim).flag("keepdim", node.is("keepdim", false));
    plan.add(layer, &shape);
    planned(plan, at, result)
}

/// Plans layers, the last of which makes a value.
fn planned(plan: Plan<'_, '_>, at: usize, result: ValueId) -> Option<()> {
    let mut layers = plan.layers;
    layers.last_mut()?.output = result;
    plan.lift.plan(at, layers);
    Some(())
}

/// Returns the factor of a product that is no number, and the other one.
fn product(lift: &Lift<'_>, node: &Node, shape: &[u64]) -> Option<[ValueId; 2]> {
    let [first, second] = [node.tensor("self")?, node.tensor("other")?];
    let is_float = |value: ValueId| lift.model.values[value].dtype.is_float();
    let pair = match (is_float(first), is_float(second)) {
        (true, false) => [second, first],
        (false, true) => [first, second],
        _ => return None,
    };
    (lift.is_sample(pair[1]) && lift.sample(pair[1]) == shape).then_some(pair)
}

/// Looks for a choice between values by a mask of tokens: each is multiplied by 0 or 1, or the hidden ones are made small.
fn choice(lift: &mut Lift<'_>, at: usize, node: &Node, result: ValueId) -> Option<()> {
    let [condition, inside, outside] = match op(node) {
        "where" | "masked_fill" => operands(node)?,
        _ => return None,
    };
    let &Argument::Tensor(condition) = condition? else { return None };
    let looked = looked_up(lift, condition).filter(|looked| looked.is_complete)?;
    let shape = lift.sample(result);
    let side = |argument: &Argument| match (number(lift, argument), argument) {
        (Some(number), _) => Some(Side::Number(number)),
        (None, &Argument::Tensor(value)) if lift.sample(value) == shape && lift.is_sample(value) => {
            Some(Side::Value(value))
        }
        _ => None,
    };
    let sides = [side(inside?)?, side(outside?)?];
    let mut plan = Plan { lift, layers: Vec::new() };
    let mut terms = Vec::new();
    for (place, side) in sides.into_iter().enumerate() {
        let is_chosen = |number: &f64| (*number != 0.0) == (place == 0);
        let hidden = |number: f64| if number.is_infinite() { number.signum() * crate::lift::HIDDEN } else { number };
        let Side::Value(value) = side else {
            let Side::Number(number) = side else { return None };
            if number != 0.0 {
                let chosen = |other: &f64| if is_chosen(other) { hidden(number) } else { 0.0 };
                let numbers: Vec<f64> = looked.numbers.iter().map(chosen).collect();
                terms.push(looked.placed(&mut plan, &numbers)?);
            }
            continue;
        };
        let other = sides[1 - place];
        if matches!(other, Side::Number(number) if number.is_infinite()) {
            // Adding infinity is enough.
            terms.push(value);
            continue;
        }
        let ones: Vec<f64> = looked.numbers.iter().map(|number| f64::from(is_chosen(number))).collect();
        let factor = looked.placed(&mut plan, &ones)?;
        terms.push(plan.add(Layer::join("Mul", vec![value, factor], 0), &shape));
    }
    match terms[..] {
        [_] => {}
        [_, _] => drop(plan.add(Layer::join("Add", terms, 0), &shape)),
        _ => return None,
    }
    planned(plan, at, result)
}
