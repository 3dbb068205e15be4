//! Learned steps before a sequence, and learned positions.

use super::matching::{Side, made_by, orders, output, parts, parts_of, with_number};
use crate::batch::index;
use crate::fold::Origin;
use crate::lift::view::{Plan, op};
use crate::lift::{Arguments, Layer, Lift, Literal};
use crate::model::{Argument, Dtype, Node, ValueId};

/// Looks for parameters that are put before a sequence, as class tokens are.
pub(super) fn class_token(lift: &mut Lift<'_>, at: usize) -> Option<()> {
    let node = &lift.model.nodes[at];
    let Some(Argument::Tensors(values)) = node.argument("tensors").filter(|_| matches!(&node.op[..], "cat" | "concat"))
    else {
        return None;
    };
    let result = output(node)?;
    let rank = lift.model.values[result].shape.len();
    let dim = lift.dim(result, index(node.int("dim").unwrap_or(0), rank) as i64)?;
    let (last, tokens) = values.split_last()?;
    let sequence = (*last)?;
    let &[steps, width] = &lift.sample(sequence)[..] else { return None };
    if dim != 1 || tokens.is_empty() || tokens.len() > 8 || !lift.is_sample(sequence) {
        return None;
    }
    let mut found = Vec::new();
    for token in tokens {
        let view = lift.view((*token)?).filter(|view| view.is_whole(lift))?;
        let state = lift.state(view.base).filter(|_| matches!(lift.origins[view.base], Origin::Parameters))?;
        let &[count, own] = &lift.sample((*token)?)[..] else { return None };
        if own != width || !lift.is_only_use((*token)?) {
            return None;
        }
        found.push((count, state.key.clone()));
    }
    let mut plan = Plan { lift, layers: Vec::new() };
    let (mut value, mut steps) = (sequence, steps);
    for (count, key) in found.into_iter().rev() {
        steps += count;
        let layer = Layer::new("ClassToken", value, 0);
        let layer = if count == 1 { layer } else { layer.with(count) };
        value = plan.add(layer.key("", Some(&key)), &[steps, width]);
    }
    let mut layers = plan.layers;
    layers.last_mut()?.output = result;
    lift.plan(at, layers);
    Some(())
}

/// Looks for a sequence to which rows of a learned table are added.
pub(super) fn positions(lift: &mut Lift<'_>, at: usize) -> Option<()> {
    let node = &lift.model.nodes[at];
    if op(node) != "add" {
        return None;
    }
    let result = output(node)?;
    let (value, read) = orders(parts(lift, node)?).into_iter().find_map(|[value, table]| {
        let (value, table) = (value.value()?, table.value()?);
        Some((value, rows(lift, table).filter(|_| lift.is_sample(value))?))
    })?;
    let shape = lift.sample(value);
    let &[steps, width] = &shape[..] else { return None };
    if lift.sample(result) != shape {
        return None;
    }
    let table_shape = &lift.model.values[read.table].shape;
    let &[count, own] = &table_shape[table_shape.len().checked_sub(2)?..] else { return None };
    let is_one = table_shape.iter().product::<u64>() == count * own;
    let fits = own == width && is_one && read.start + read.count <= count && (read.count == steps || read.count == 1);
    let key = lift.state(read.table).filter(|_| fits)?.key.clone();
    let mut plan = Plan { lift, layers: Vec::new() };
    let positions = if read.start == 0 && read.count == steps && steps > 1 {
        let layer = Layer::new("PositionEmbedding", value, 0).with(count);
        plan.add(layer.key(read.name, Some(&key)), &[steps, width])
    } else {
        let sizes = Literal::Tuple(vec![count.into(), width.into()]);
        let rows = plan.add(Layer::source("Parameter", 0).with(sizes).key("", Some(&key)), &[count, width]);
        plan.slice(rows, 0, read.start, read.start + read.count)
    };
    plan.add(Layer::join("Add", vec![value, positions], 0), &shape);
    let mut layers = plan.layers;
    layers.last_mut()?.output = result;
    lift.plan(at, layers);
    Some(())
}

/// Consecutive rows of a table.
struct Rows {
    table: ValueId,
    /// The name of the table in its layer.
    name: &'static str,
    start: u64,
    count: u64,
}

/// Returns the rows of a parameter that a value is.
fn rows(lift: &Lift<'_>, value: ValueId) -> Option<Rows> {
    let view = lift.view(value)?;
    if lift.state(view.base).is_some() {
        if !matches!(lift.origins[view.base], Origin::Parameters) {
            return None;
        }
        let &[.., count, _] = &lift.sample(value)[..] else { return None };
        // Another use would be another layer, and have numbers of its own.
        if !lift.is_only_use(value) {
            return None;
        }
        return view.is_whole(lift).then_some(Rows { table: view.base, name: "", start: 0, count });
    }
    let (_, node) = lift.maker(view.base)?;
    let (table, indices) = match (&node.op[..], node.argument("indices")) {
        ("embedding", Some(Argument::Tensor(indices))) => (node.tensor("weight")?, *indices),
        ("index", Some(Argument::Tensors(indices))) => match indices[..] {
            [Some(indices)] => (node.tensor("self")?, indices),
            _ => return None,
        },
        _ => return None,
    };
    if lift.model.values[table].shape.len() != 2 {
        return None;
    }
    lift.state(table)?;
    if let Some(number) = uniform(lift, indices) {
        // All steps have one row. Whether it is repeated does not matter to a sum.
        return Some(Rows { table, name: "weight", start: integer(number)?, count: 1 });
    }
    let numbers = lift.origins[indices].numbers()?;
    let (_, numbers) = lift.shared_tensor(indices, numbers).ok()?;
    let start = integer(*numbers.first()?)?;
    let is_count = numbers.iter().enumerate().all(|(place, number)| *number == (start + place as u64) as f64);
    (is_count && view.is_whole(lift)).then_some(Rows { table, name: "weight", start, count: numbers.len() as u64 })
}

fn integer(number: f64) -> Option<u64> {
    ((0.0..1e9).contains(&number) && number.fract() == 0.0).then_some(number as u64)
}

/// Returns the number that all elements of a value are, whatever the inputs are.
fn uniform(lift: &Lift<'_>, value: ValueId) -> Option<f64> {
    let mut value = value;
    for _ in 0..8 {
        if let Some(tensor) = lift.origins[value].numbers() {
            let numbers = tensor.numbers();
            let first = *numbers.first()?;
            return numbers.iter().all(|number| *number == first).then_some(first);
        }
        let (_, node) = lift.maker(value)?;
        // Elements that are picked of equal ones.
        value = match op(node) {
            "gather" | "expand" | "slice" | "view" | "reshape" | "unsqueeze" | "squeeze" | "to" => {
                node.tensors().next()?
            }
            _ => return None,
        };
    }
    None
}

/// Looks for one token a sample, which has one row of a table: a layer gives rows with an axis of steps.
pub(super) fn single(lift: &mut Lift<'_>, at: usize) -> Option<()> {
    let node = &lift.model.nodes[at];
    let (table, tokens) = (node.tensor("weight").filter(|_| node.op == "embedding")?, node.tensor("indices")?);
    let result = output(node)?;
    let &[count, width] = &lift.model.values[table].shape[..] else { return None };
    let key = lift.state(table)?.key.clone();
    let is_single =
        lift.is_sample(tokens) && lift.batch.sample(tokens, lift.model).is_empty() && lift.sample(result) == [width];
    if !is_single || node.int("padding_idx").is_some_and(|index| index >= 0) {
        return None;
    }
    let mut plan = Plan { lift, layers: Vec::new() };
    let layer = Layer::new("Embedding", tokens, 0).with(count).with(width).key("weight", Some(&key));
    let rows = plan.add(layer, &[1, width]);
    plan.reshape(rows, &[width]);
    let mut layers = plan.layers;
    layers.last_mut()?.output = result;
    lift.plan(at, layers);
    Some(())
}

/// Looks for positions that do not count padding, as RoBERTa computes them from its tokens.
pub(super) fn padded_positions(lift: &mut Lift<'_>, at: usize) -> Option<()> {
    let node = &lift.model.nodes[at];
    if node.op != "embedding" {
        return None;
    }
    let table = node.tensor("weight")?;
    let key = lift.state(table)?.key.clone();
    let (counted, padding) = with_number(lift, integers(lift, node.tensor("indices")?)?, "add")?;
    let both = orders(parts_of(lift, integers(lift, counted)?, "mul")?);
    let tokens = both.into_iter().find_map(|[sum, mask]| {
        let mask = integers(lift, mask.value()?)?;
        let (_, not) = made_by(lift, mask, "ne")?;
        let [Side::Value(tokens), Side::Number(number)] = parts(lift, not)? else { return None };
        let mut sum = integers(lift, sum.value()?)?;
        if let Some((inner, 0.0)) = with_number(lift, sum, "add") {
            sum = integers(lift, inner)?;
        }
        let (_, sum) = made_by(lift, sum, "cumsum")?;
        let is_right = number == padding && integers(lift, sum.tensor("self")?)? == mask && runs_along_steps(lift, sum);
        (is_right && lift.sample(tokens).len() == 1).then_some(tokens)
    })?;
    let padding = integer(padding)?;
    let &[count, width] = &lift.model.values[table].shape[..] else { return None };
    // Files of ONNX do not say it. Then it is the token that the positions skip.
    let is_said = !matches!(node.argument("padding_idx"), Some(Argument::None));
    if is_said && node.int("padding_idx") != i64::try_from(padding).ok() {
        return None;
    }
    let layer = Layer::new("PositionEmbedding", tokens, output(node)?).with(count).with(width);
    lift.plan(at, vec![layer.set("padding_idx", padding).key("weight", Some(&key))]);
    Some(())
}

fn runs_along_steps(lift: &Lift<'_>, node: &Node) -> bool {
    node.tensor("self").is_some_and(|value| node.int("dim").and_then(|dim| lift.dim(value, dim)) == Some(1))
}

/// Returns the value that a value is a copy of, as another type of integer or truth value.
fn integers(lift: &Lift<'_>, mut value: ValueId) -> Option<ValueId> {
    for _ in 0..16 {
        let Some((_, node)) = lift.maker(value) else { break };
        if !matches!(&node.op[..], "to" | "type_as" | "_to_copy" | "long" | "int") {
            break;
        }
        value = node.tensors().next()?;
    }
    (!matches!(lift.model.values[value].dtype, Dtype::Other(_))).then_some(value)
}
