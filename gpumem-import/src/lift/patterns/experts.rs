//! Mixtures of experts, as transformers computes them: tokens are sorted by expert, and grouped products have a weight for each expert.
//!
//! A program has no room that depends on the tokens, so that every expert computes every token here, and those that the router did not
//! choose are multiplied by 0. Results and gradients are those of the model. Operations and memory are those of the worst case.

use super::matching::{Side, made_by, orders, output, parts, parts_of, plain};
use crate::lift::view::{Factor, Plan, View, moved, op};
use crate::lift::{Arguments, Layer, Lift, Literal};
use crate::model::{Argument, Node, ValueId};

/// The parts of a mixture.
struct Mixture {
    /// The tokens `[T, D]`.
    tokens: ValueId,
    /// The scores of all experts, `[T, E]`, and the weights of those that the router chose, `[T, K]`.
    scores: ValueId,
    weights: ValueId,
    /// The products, and the value that the second one reads.
    first: Product,
    hidden: ValueId,
    second: Product,
}

/// A product of rows with the weight of their expert.
struct Product {
    output: ValueId,
    /// Weights of all experts.
    weight: ValueId,
    /// True if a weight is stored as `[out, in]`.
    is_turned: bool,
}

/// The most experts that are written out.
const MOST: u64 = 64;

/// Looks for the sum over the experts that were chosen for each token.
pub(super) fn find(lift: &mut Lift<'_>, at: usize) -> Option<()> {
    let node = &lift.model.nodes[at];
    if node.op != "sum" {
        return None;
    }
    let mixture = read(lift, node)?;
    let result = output(node)?;
    // The rows become tokens of samples again.
    let (mut target, mut last) = (result, at);
    while let Some(reader) = lift.only_reader(target).filter(|&reader| !lift.is_taken(reader)) {
        let node = &lift.model.nodes[reader];
        let (Some(_), Some(next)) = (moved(node), output(node)) else { break };
        (target, last) = (next, reader);
    }
    let shape = lift.sample(mixture.tokens);
    let mut plan = Plan { lift, layers: Vec::new() };
    write(&mut plan, &mixture, &shape)?;
    let mut layers = plan.layers;
    layers.last_mut()?.output = target;
    lift.plan(last, layers);
    lift.note(at, "every expert computes every token, since a program has no room that depends on the tokens".into());
    Some(())
}

fn read(lift: &Lift<'_>, node: &Node) -> Option<Mixture> {
    let chosen = lift.view(node.tensor("self")?).filter(|view| view.is_whole(lift))?.base;
    let (_, restored) = made_by(lift, chosen, "index")?;
    let weighted = restored.tensor("self")?;
    let (second, weights) = orders(parts_of(lift, weighted, "mul")?).into_iter().find_map(|[rows, weights]| {
        let second = grouped(lift, rows.value()?)?;
        let weights = lift.view(weights.value()?).filter(|view| view.is_whole(lift))?.base;
        Some((second, weights))
    })?;
    let (second, hidden) = second;
    let (_, weights) = made_by(lift, weights, "index")?;
    let order = only_index(weights)?;
    let weights = lift.view(weights.tensor("self")?).filter(|view| view.is_whole(lift))?.base;
    // The order in which experts follow each other.
    let (_, sort) = lift.maker(order).filter(|(_, node)| node.op == "sort" && node.outputs.get(1) == Some(&order))?;
    let experts = lift.view(sort.tensor("self")?).filter(|view| view.is_whole(lift))?.base;
    let (_, top) =
        lift.maker(experts).filter(|(_, node)| node.op == "topk" && node.outputs.get(1) == Some(&experts))?;
    let scores = plain(lift, top.tensor("self")?);
    let is_last = top.int("dim").is_none_or(|dim| dim == -1) && top.is("largest", true);
    let first = first(lift, hidden, 0)?;
    let (first, rows) = first;
    let (_, gathered) = made_by(lift, rows, "index")?;
    let tokens = plain(lift, gathered.tensor("self")?);
    let (_, token) = made_by(lift, only_index(gathered)?, "floor_divide")?;
    let [steps, _] = lift.sample(tokens)[..] else { return None };
    let [rows, experts] = lift.sample(scores)[..] else { return None };
    let [same, count] = lift.sample(weights)[..] else { return None };
    let fits = is_last
        && rows == steps
        && same == steps
        && (1..=MOST).contains(&experts)
        && plain(lift, token.tensor("self")?) == order;
    let is_right = fits && top.int("k") == i64::try_from(count).ok() && inverts(lift, only_index(restored)?, order);
    is_right.then_some(Mixture { tokens, scores, weights, first, hidden, second })
}

/// Returns the only index of an operation that takes rows.
fn only_index(node: &Node) -> Option<ValueId> {
    match node.argument("indices")? {
        Argument::Tensors(indices) => match indices[..] {
            [Some(only)] => Some(only),
            _ => None,
        },
        _ => None,
    }
}

/// True if a value is the inverse of a permutation.
fn inverts(lift: &Lift<'_>, inverse: ValueId, order: ValueId) -> bool {
    lift.maker(inverse).is_some_and(|(_, node)| match &node.op[..] {
        "index_put_" | "index_put" => {
            let counts =
                node.tensor("values").and_then(|values| lift.origins[values].numbers()).map(|tensor| tensor.numbers());
            only_index(node) == Some(order)
                && counts.is_some_and(|counts| counts.iter().enumerate().all(|(place, number)| *number == place as f64))
        }
        "argsort" => node.tensor("self") == Some(order),
        _ => false,
    })
}

/// Returns a grouped product, and the rows that it reads.
fn grouped(lift: &Lift<'_>, value: ValueId) -> Option<(Product, ValueId)> {
    let value = plain(lift, value);
    let (_, node) = lift.maker(value)?;
    if !(node.op.ends_with("grouped_mm_fallback") || matches!(&node.op[..], "_grouped_mm" | "grouped_mm")) {
        return None;
    }
    let input = node.tensor("input").or(node.tensor("self")).or(node.tensor("mat_a"))?;
    let weight = node.tensor("weight").or(node.tensor("mat2")).or(node.tensor("mat_b"))?;
    if node.tensor("bias").is_some() {
        return None;
    }
    let view = lift.view(weight)?;
    let own = View::of(lift, view.base)?;
    let is_turned = own.ordered([0, 2, 1]).is_some_and(|turned| turned == view);
    let is_weight = lift.state(view.base).is_some() && (is_turned || own == view);
    is_weight.then_some((Product { output: value, weight: view.base, is_turned }, plain(lift, input)))
}

/// Returns the first product on the way back from what the second one reads.
fn first(lift: &Lift<'_>, value: ValueId, depth: usize) -> Option<(Product, ValueId)> {
    if depth > 16 {
        return None;
    }
    if let Some(found) = grouped(lift, value) {
        return Some(found);
    }
    let (_, node) = lift.maker(plain(lift, value)).or_else(|| {
        let index = lift.makers[plain(lift, value)]?;
        Some((index, &lift.model.nodes[index]))
    })?;
    first(lift, node.tensors().find(|&input| lift.is_sample(input))?, depth + 1)
}

fn write(plan: &mut Plan<'_, '_>, mixture: &Mixture, shape: &[u64]) -> Option<()> {
    let [steps, experts] = plan.lift.sample(mixture.scores)[..] else { return None };
    let count = plan.lift.sample(mixture.weights)[1];
    let places = plan.add(
        Layer::new("TopK", mixture.scores, 0).with(count).option("dim", 2i64, 2i64).flag("indices", true),
        &[steps, count],
    );
    let zeros = plan.add(Layer::new("Affine", mixture.scores, 0).with(0.0).with(0.0), &[steps, experts]);
    let layer = Layer::join("ScatterAdd", vec![zeros, places, mixture.weights], 0).set("dim", 2i64);
    let chosen = plan.add(layer, &[steps, experts]);
    let mut summands = Vec::new();
    for expert in 0..experts {
        let own = product(plan, &mixture.first, mixture.tokens, expert)?;
        let hidden = Inner { plan, first: mixture.first.output, own, left: 64 }.copied(mixture.hidden)?;
        let value = product(plan, &mixture.second, hidden, expert)?;
        let weight = plan.slice(chosen, 1, expert, expert + 1);
        summands.push(plan.add(Layer::join("Mul", vec![value, weight], 0), shape));
    }
    plan.add(Layer::join("Add", summands, 0), shape);
    Some(())
}

/// Adds the product of rows with the weight of an expert.
fn product(plan: &mut Plan<'_, '_>, product: &Product, rows: ValueId, expert: u64) -> Option<ValueId> {
    let [_, first, second] = plan.lift.sample(product.weight)[..] else { return None };
    let weight = plan.add(Layer::new("Select", product.weight, 0).with(expert), &[first, second]);
    let steps = plan.lift.sample(rows)[0];
    let layer = Layer::join("MatMul", vec![rows, weight], 0).flag("transpose_b", product.is_turned);
    Some(plan.add(layer, &[steps, if product.is_turned { first } else { second }]))
}

/// The operations between the two products, for one expert.
struct Inner<'p, 'l, 'm> {
    plan: &'p mut Plan<'l, 'm>,
    first: ValueId,
    own: ValueId,
    left: usize,
}

impl Inner<'_, '_, '_> {
    /// Adds the layers that make a value from the first product of this expert.
    fn copied(&mut self, value: ValueId) -> Option<ValueId> {
        self.left = self.left.checked_sub(1)?;
        let lift = &*self.plan.lift;
        let value = plain(lift, value);
        if value == self.first {
            return Some(self.own);
        }
        if let Some(layer) = lift.planned_layer(value).cloned() {
            let &[input] = &layer.inputs[..] else { return None };
            let input = self.copied(input)?;
            let shape = self.plan.lift.sample(input);
            return Some(self.plan.add(Layer { inputs: vec![input], ..layer }, &shape));
        }
        let (_, node) = lift.maker(value)?;
        if let Some(input) = moved(node) {
            let view = View::of(lift, input)?.after(lift, node, value)?;
            let width = *lift.sample(input).last()?;
            let [_, columns] = &view.axes[..] else { return None };
            let &[Factor { size, stride: 1 }] = &columns[..] else { return None };
            let start = view.offset;
            let input = self.copied(input)?;
            return (start + size <= width).then(|| self.plan.slice(input, 1, start, start + size));
        }
        const FUNCTIONS: [(&str, &str); 5] =
            [("silu", "Silu"), ("relu", "Relu"), ("gelu", "Gelu"), ("sigmoid", "Sigmoid"), ("tanh", "Tanh")];
        if let Some((_, kind)) = FUNCTIONS.iter().find(|(name, _)| *name == op(node)) {
            let form = node.text("approximate").unwrap_or("none").to_string();
            let input = self.copied(node.tensor("self")?)?;
            let shape = self.plan.lift.sample(input);
            return Some(self.plan.add(Layer::new(kind, input, 0).option("approximate", &form[..], "none"), &shape));
        }
        let kind = match op(node) {
            "mul" => "Mul",
            "add" => "Add",
            _ => return None,
        };
        match parts(lift, node)? {
            [Side::Value(left), Side::Value(right)] => {
                let inputs = vec![self.copied(left)?, self.copied(right)?];
                let shape = self.plan.lift.sample(inputs[0]);
                Some(self.plan.add(Layer::join(kind, inputs, 0), &shape))
            }
            [Side::Value(value), Side::Number(number)] | [Side::Number(number), Side::Value(value)] => {
                let (factor, summand) = if kind == "Mul" { (number, 0.0) } else { (1.0, number) };
                let input = self.copied(value)?;
                let shape = self.plan.lift.sample(input);
                Some(self.plan.add(Layer::new("Affine", input, 0).with(Literal::Float(factor)).with(summand), &shape))
            }
            _ => None,
        }
    }
}

/// Looks for the choice of a router, whose values and places are two layers.
pub(super) fn choice(lift: &mut Lift<'_>, at: usize) -> Option<()> {
    let node = &lift.model.nodes[at];
    let (&[values, places], true) = (&node.outputs[..], node.op == "topk") else { return None };
    let input = node.tensor("self").filter(|&input| lift.is_sample(input))?;
    let rank = lift.model.values[input].shape.len();
    let dim = lift.dim(input, crate::batch::index(node.int("dim").unwrap_or(-1), rank) as i64)?;
    let layer = |output: ValueId| {
        let layer = Layer::new("TopK", input, output).with(node.int("k").unwrap_or(1));
        let layer = if dim as usize == lift.sample(input).len() { layer } else { layer.with(dim) };
        layer.option("largest", node.is("largest", true), true)
    };
    let mut layers = vec![layer(values)];
    if !lift.readers[places].is_empty() || lift.model.outputs.contains(&places) {
        layers.push(layer(places).flag("indices", true));
    }
    lift.plan(at, layers);
    Some(())
}
