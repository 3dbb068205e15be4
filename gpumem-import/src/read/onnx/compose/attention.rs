//! Attention that an exporter wrote as products and a softmax, with the root of the scale on both sides.
//!
//! Models that write their products themselves scale once. Theirs stay as they are, as they do in a file of `torch.export`.

use super::Composer;
use crate::model::{Argument, Node, ValueId};

/// A softmax and its dropout: between the scores and the values.
struct Weights {
    scores: ValueId,
    dropout: f64,
}

/// Finds attention that ends at a product.
pub(super) fn find(composer: &mut Composer<'_>, index: usize) -> Option<Node> {
    let node = composer.node(index);
    if node.op != "matmul" {
        return None;
    }
    let value = node.tensor("other")?;
    let weights = weights(composer, node.tensor("self")?)?;
    let (scores, mask) = masked(composer, weights.scores)?;
    let product = composer.made(scores, &["matmul"])?;
    let (query, left) = scaled(composer, product.tensor("self")?)?;
    let (turned, right) = scaled(composer, product.tensor("other")?)?;
    if (left - right).abs() > 1e-6 * left.abs() {
        return None;
    }
    let width = *composer.shape(query).last()?;
    let modules = composer.made(scores, &["matmul"])?.modules.clone();
    let key = key(composer, index, turned)?;
    let mut arguments =
        vec![("query", Argument::Tensor(query)), ("key", Argument::Tensor(key)), ("value", Argument::Tensor(value))];
    if let Some(mask) = mask {
        arguments.push(("attn_mask", Argument::Tensor(mask)));
    }
    if weights.dropout > 0.0 {
        arguments.push(("dropout_p", Argument::Float(weights.dropout)));
    }
    let scale = left * right;
    if (scale * (width as f64).sqrt() - 1.0).abs() > 1e-4 {
        arguments.push(("scale", Argument::Float(((scale * 1e6).round()) / 1e6)));
    }
    Some(Node { modules, ..composer.replaced(index, "scaled_dot_product_attention", arguments) })
}

/// Goes back over a dropout and over zeros in the place of rows without a key, to a softmax.
fn weights(composer: &Composer<'_>, mut value: ValueId) -> Option<Weights> {
    let mut dropout = 0.0;
    loop {
        let node = composer.made(value, &["dropout", "where", "softmax", "to"])?;
        value = match &node.op[..] {
            "dropout" => {
                if node.argument("train") == Some(&Argument::Bool(true)) {
                    dropout = composer.number(node, "p")?;
                }
                node.tensor("input")?
            }
            "where" => {
                let other = node.tensor("other")?;
                let nan = composer.made(node.tensor("condition")?, &["isnan"])?;
                if nan.tensor("self") != Some(other) || composer.number(node, "self") != Some(0.0) {
                    return None;
                }
                other
            }
            "to" => node.tensor("self")?,
            _ => {
                let rank = composer.shape(value).len() as i64;
                let is_last =
                    matches!(node.argument("dim"), Some(Argument::Int(dim)) if *dim == -1 || *dim == rank - 1);
                return is_last.then_some(Weights { scores: node.tensor("self")?, dropout });
            }
        };
    }
}

/// Splits a mask from scores. A choice between zero and minus infinity is a mask of truth values.
fn masked(composer: &Composer<'_>, scores: ValueId) -> Option<(ValueId, Option<ValueId>)> {
    let Some(sum) = composer.made(scores, &["add"]) else { return Some((scores, None)) };
    for (product, mask) in composer.orders(sum) {
        if composer.made(product, &["matmul"]).is_none() {
            continue;
        }
        let choice = composer.made(mask, &["where"]).filter(|choice| {
            let zero = composer.number(choice, "self") == Some(0.0);
            zero && composer.number(choice, "other").is_some_and(|number| number < -1e30)
        });
        let mask = choice.and_then(|choice| choice.tensor("condition")).unwrap_or(mask);
        return Some((product, Some(mask)));
    }
    None
}

/// Splits a factor from a value.
fn scaled(composer: &Composer<'_>, value: ValueId) -> Option<(ValueId, f64)> {
    let node = composer.made(value, &["mul"])?;
    if let Some(factor) = composer.number(node, "other") {
        return Some((node.tensor("self")?, factor));
    }
    let factor = composer.number(node, "self")?;
    Some((node.tensor("other")?, factor))
}

fn dims(node: &Node) -> Option<Vec<usize>> {
    match node.argument("dims")? {
        Argument::Ints(dims) => dims.iter().map(|&dim| usize::try_from(dim).ok()).collect(),
        _ => None,
    }
}

/// Returns the value whose last two axes were swapped.
fn key(composer: &mut Composer<'_>, index: usize, turned: ValueId) -> Option<ValueId> {
    let node = composer.made(turned, &["permute", "reshape"])?;
    let mut shape = composer.shape(turned).to_vec();
    let rank = shape.len();
    if rank < 2 {
        return None;
    }
    shape.swap(rank - 2, rank - 1);
    let source = node.tensor("self")?;
    if node.op == "permute" {
        let mut order = dims(node)?;
        order.swap(rank - 2, rank - 1);
        if order.iter().copied().eq(0..rank) {
            return Some(source);
        }
        let order = order.into_iter().map(|dim| dim as i64).collect();
        let arguments = vec![("self", Argument::Tensor(source)), ("dims", Argument::Ints(order))];
        return Some(composer.put_before(index, "permute", arguments, shape));
    }
    // Matrices of all samples and heads were swapped as one list.
    let swap = composer.made(source, &["permute", "transpose"])?;
    let list = swap.tensor("self")?;
    let is_swap = swap.op == "transpose" || dims(swap)? == [0, 2, 1];
    let same = composer.shape(source).len() == 3 && composer.shape(source)[1..] == composer.shape(turned)[rank - 2..];
    if !is_swap || !same {
        return None;
    }
    if let Some(before) = composer.made(list, &["reshape"]).and_then(|node| node.tensor("self"))
        && composer.shape(before) == shape
    {
        return Some(before);
    }
    let sizes = shape.iter().map(|&size| size as i64).collect();
    let arguments = vec![("self", Argument::Tensor(list)), ("shape", Argument::Ints(sizes))];
    Some(composer.put_before(index, "reshape", arguments, shape))
}
