//! Attention as it is called, or as it is written out: from the softmax back to the products of queries and keys.

use super::trace::scaled;
use crate::lift::patterns::matching::number;
use crate::lift::view::{View, moved, op};
use crate::lift::{Arguments, Lift};
use crate::model::{Argument, Node, ValueId};

/// An operand of a product, with the axes of a sample in the order in which attention has them: first axes, rows, columns.
#[derive(Clone, Debug)]
pub(super) struct Operand {
    pub(super) value: ValueId,
    pub(super) order: Vec<usize>,
}

/// Numbers that are added to the scores, or a mask of them.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Added {
    Numbers(ValueId),
    /// Numbers that are 0, or hide a key whatever they are multiplied by.
    Mask(ValueId),
    /// True for keys that are seen.
    Seen(ValueId),
    /// True for keys that are hidden.
    Hidden(ValueId),
}

/// An attention: what it reads, and the value that it makes.
#[derive(Debug)]
pub(super) struct Call {
    /// Queries `[.., T, S]`, keys `[.., M, S]` and values `[.., M, V]`.
    pub(super) operands: [Operand; 3],
    pub(super) scale: f64,
    pub(super) causal: bool,
    pub(super) added: Vec<Added>,
    pub(super) dropout: f64,
    /// The result `[.., T, V]`, or `[.., V, T]` if it is turned.
    pub(super) output: ValueId,
    pub(super) is_turned: bool,
}

/// The most operations between two products.
const FARTHEST: usize = 32;

fn operand(lift: &Lift<'_>, value: ValueId, is_turned: bool) -> Option<Operand> {
    let rank = lift.sample(value).len();
    let mut order: Vec<usize> = (0..rank).collect();
    if is_turned {
        order.swap(rank.checked_sub(2)?, rank - 1);
    }
    Some(Operand { value, order })
}

/// Reads a call of `scaled_dot_product_attention`.
pub(super) fn called(lift: &Lift<'_>, node: &Node) -> Option<Call> {
    let query = node.tensor("query")?;
    let operands = [query, node.tensor("key")?, node.tensor("value")?];
    let operands =
        [operand(lift, operands[0], false)?, operand(lift, operands[1], false)?, operand(lift, operands[2], false)?];
    let width = *lift.sample(query).last()?;
    let added = match node.tensor("attn_mask") {
        Some(mask) if lift.model.values[mask].dtype.is_float() => vec![Added::Numbers(mask)],
        Some(mask) => vec![Added::Seen(mask)],
        None => Vec::new(),
    };
    Some(Call {
        operands,
        scale: node.float("scale").unwrap_or_else(|| 1.0 / (width as f64).sqrt()),
        causal: node.is("is_causal", false),
        added,
        dropout: node.float("dropout_p").unwrap_or(0.0),
        output: *node.outputs.first()?,
        is_turned: false,
    })
}

/// Reads an attention that is written out, from its softmax.
pub(super) fn written(lift: &Lift<'_>, node: &Node) -> Option<Call> {
    let input = node.tensor("self").or(node.tensor("input"))?;
    let rank = lift.model.values[input].shape.len();
    if Some(crate::batch::index(node.int("dim")?, rank)) != rank.checked_sub(1) {
        return None;
    }
    let applied = applied(lift, *node.outputs.first()?)?;
    let mut found = Scores { scale: 1.0, added: Vec::new(), shape: lift.sample(input), left: FARTHEST };
    let [query, key] = found.back(lift, input)?;
    Some(Call {
        operands: [query, key, applied.values],
        scale: found.scale,
        causal: false,
        added: found.added,
        dropout: applied.dropout,
        output: applied.output,
        is_turned: applied.is_turned,
    })
}

/// The product of attention weights and values.
struct Applied {
    dropout: f64,
    values: Operand,
    output: ValueId,
    is_turned: bool,
}

/// Follows attention weights to the product with the values.
fn applied(lift: &Lift<'_>, mut weights: ValueId) -> Option<Applied> {
    let mut dropout = 0.0;
    let mut is_turned = false;
    for _ in 0..FARTHEST {
        if let Some(output) = without_nan(lift, weights) {
            weights = output;
            continue;
        }
        let node = &lift.model.nodes[lift.only_reader(weights).filter(|&reader| !lift.is_taken(reader))?];
        let output = *node.outputs.first()?;
        if let Some([left, mut right]) = product(lift, node) {
            let (own, mut values) = if is_turned { (right, left) } else { (left, right.clone()) };
            right = own;
            let rank = values.order.len();
            if right.value != weights || !right.order.is_sorted() {
                return None;
            }
            if is_turned {
                values.order.swap(rank - 2, rank - 1);
            }
            return Some(Applied { dropout, values, output, is_turned });
        }
        let turns = || {
            let view = View::of(lift, weights)?;
            let rank = view.axes.len();
            let turned = view.ordered((0..rank - 2).chain([rank - 1, rank - 2]))?;
            (view.after(lift, node, output)? == turned).then_some(())
        };
        match op(node) {
            "dropout" => dropout = if dropout == 0.0 { node.float("p")? } else { return None },
            "transpose" | "permute" | "mT" if lift.sample(weights).len() >= 2 && turns().is_some() => {
                is_turned = !is_turned
            }
            _ if moved(node) == Some(weights) && lift.sample(output) == lift.sample(weights) => {}
            _ => return None,
        }
        weights = output;
    }
    None
}

/// Returns weights in which 0 stands for what is no number, as exporters write for queries that see no key. `None` if they do not.
fn without_nan(lift: &Lift<'_>, weights: ValueId) -> Option<ValueId> {
    let &[one, other] = &lift.readers[weights][..] else { return None };
    let nodes = [one, other].map(|reader| &lift.model.nodes[reader]);
    let tests = nodes.iter().find(|node| node.op == "isnan")?;
    let chooses = nodes.iter().find(|node| node.op == "where")?;
    let is_zero = number(lift, chooses.argument("self")?) == Some(0.0);
    let is_own =
        chooses.tensor("condition") == tests.outputs.first().copied() && chooses.tensor("other") == Some(weights);
    chooses.outputs.first().copied().filter(|_| is_zero && is_own && !lift.model.outputs.contains(&weights))
}

/// Scores on the way back from the softmax.
struct Scores {
    scale: f64,
    added: Vec<Added>,
    shape: Vec<u64>,
    left: usize,
}

impl Scores {
    /// Follows scores back to the product of queries `[.., T, S]` and keys `[.., M, S]`.
    fn back(&mut self, lift: &Lift<'_>, mut scores: ValueId) -> Option<[Operand; 2]> {
        loop {
            self.left = self.left.checked_sub(1)?;
            // Weights and masks are of one shape, whatever the batch is merged with.
            if lift.sample(scores) != self.shape {
                return None;
            }
            let (_, node) = lift.maker(scores)?;
            if let Some([left, mut right]) = product(lift, node) {
                let rank = right.order.len();
                right.order.swap(rank - 2, rank - 1);
                return Some([left, right]);
            }
            if let "baddbmm" = op(node) {
                self.add(Added::Numbers(node.tensor("self")?), node.float("beta").unwrap_or(1.0))?;
                self.scale *= node.float("alpha").unwrap_or(1.0);
                let (left, right) = (node.tensor("batch1")?, node.tensor("batch2")?);
                return Some([operand(lift, left, false)?, operand(lift, right, true)?]);
            }
            if let Some(input) = moved(node) {
                scores = input;
            } else if let Some((input, factor)) = scaled(lift, node) {
                self.scale *= factor;
                scores = input;
            } else {
                scores = self.masked(lift, node)?;
            }
        }
    }

    fn add(&mut self, added: Added, factor: f64) -> Option<()> {
        // A factor after a sum scales the summands too.
        let added = match added {
            Added::Numbers(value) if self.scale * factor != 1.0 => Added::Mask(value),
            other => other,
        };
        self.added.push(added);
        Some(())
    }

    /// Returns the scores to which an operation adds something, or of which it hides some.
    fn masked(&mut self, lift: &Lift<'_>, node: &Node) -> Option<ValueId> {
        match op(node) {
            "add" if node.float("alpha").is_none_or(|alpha| alpha == 1.0) => {
                let (left, right) = (node.tensor("self")?, node.tensor("other")?);
                let (scores, added) = match leads_to_product(lift, left) {
                    true => (left, right),
                    false => (right, left),
                };
                self.add(Added::Numbers(added), 1.0)?;
                Some(scores)
            }
            "masked_fill" if hides(number(lift, node.argument("value")?)?) => {
                self.add(Added::Hidden(node.tensor("mask")?), 1.0)?;
                node.tensor("self")
            }
            "where" => {
                let (left, right) = (node.argument("self")?, node.argument("other")?);
                let condition = node.tensor("condition")?;
                match (left, right) {
                    (Argument::Tensor(scores), other) if number(lift, other).is_some_and(hides) => {
                        self.add(Added::Seen(condition), 1.0)?;
                        Some(*scores)
                    }
                    (other, Argument::Tensor(scores)) if number(lift, other).is_some_and(hides) => {
                        self.add(Added::Hidden(condition), 1.0)?;
                        Some(*scores)
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

/// True for numbers that make an attention weight 0.
pub(super) fn hides(number: f64) -> bool {
    number <= -1e4
}

/// True if a value comes from a product of two values, by the operations between a product and a softmax.
fn leads_to_product(lift: &Lift<'_>, mut value: ValueId) -> bool {
    for _ in 0..FARTHEST {
        let Some((_, node)) = lift.maker(value) else { return false };
        if product(lift, node).is_some() || op(node) == "baddbmm" {
            return true;
        }
        let next = match op(node) {
            "add" | "masked_fill" => node.tensor("self"),
            "where" => match node.argument("self").map(|argument| number(lift, argument)) {
                Some(None) => node.tensor("self"),
                _ => node.tensor("other"),
            },
            _ => moved(node).or_else(|| scaled(lift, node).map(|(input, _)| input)),
        };
        let Some(next) = next else { return false };
        value = next;
    }
    false
}

/// Returns the operands of a product of two lists of matrices, `[.., I, K]` and `[.., K, J]`. `None` if it is another operation.
pub(super) fn product(lift: &Lift<'_>, node: &Node) -> Option<[Operand; 2]> {
    let (left, right) = match &node.op[..] {
        "matmul" => (node.tensor("self")?, node.tensor("other")?),
        "bmm" => (node.tensor("self")?, node.tensor("mat2")?),
        "einsum" => return einsum(lift, node),
        _ => return None,
    };
    let ranks = [left, right].map(|value| lift.sample(value).len());
    let output = lift.sample(*node.outputs.first()?).len();
    let is_list = ranks[0] == ranks[1] && ranks[0] == output && output >= 2;
    is_list.then_some([operand(lift, left, false)?, operand(lift, right, false)?])
}

/// Returns the operands of an `einsum` that is such a product, with their axes in its order.
fn einsum(lift: &Lift<'_>, node: &Node) -> Option<[Operand; 2]> {
    let Some(Argument::Tensors(inputs)) = node.argument("tensors") else { return None };
    let [Some(left), Some(right)] = inputs[..] else { return None };
    let equation: String = node.text("equation")?.chars().filter(|letter| !letter.is_whitespace()).collect();
    let (operands, result) = equation.split_once("->")?;
    let (first, second) = operands.split_once(',')?;
    let letters = |text: &str| text.chars().collect::<Vec<char>>();
    let (first, second, result) = (letters(first), letters(second), letters(result));
    let [.., row, column] = result[..] else { return None };
    let lead = &result[..result.len() - 2];
    let summed = *first.iter().find(|letter| second.contains(letter) && !result.contains(letter))?;
    let order = |value: ValueId, own: &[char], last: [char; 2]| -> Option<Operand> {
        if own.len() != lead.len() + 2 || own.len() != lift.model.values[value].shape.len() {
            return None;
        }
        let mut order = Vec::new();
        for letter in lead.iter().chain(&last) {
            let dim = own.iter().position(|other| other == letter)?;
            order.extend(lift.dim(value, dim as i64).map(|dim| dim as usize - 1));
        }
        Some(Operand { value, order })
    };
    Some([order(left, &first, [row, summed])?, order(right, &second, [summed, column])?])
}
