//! Stochastic depth: a random factor for each sample, which is 0 or the inverse of the probability to stay.

use super::matching::{Side, number, orders, output, parts, plain, with_number};
use crate::lift::view::op;
use crate::lift::{Arguments, Layer, Lift};
use crate::model::{Argument, ValueId};

/// A random factor.
struct Factor {
    /// The probability that a sample stays.
    keep: f64,
    /// The factor of samples that stay.
    size: f64,
}

/// Looks for a product of a value with a random factor.
pub(super) fn find(lift: &mut Lift<'_>, index: usize) -> Option<()> {
    let node = &lift.model.nodes[index];
    if op(node) != "mul" {
        return None;
    }
    let is_random = |part: Side| part.value().is_some_and(|value| lift.is_random(value));
    let [value, random] = orders(parts(lift, node)?).into_iter().find(|[_, random]| is_random(*random))?;
    let (mut input, random) = (value.value()?, random.value()?);
    // One number for each sample.
    let shape = &lift.model.values[random].shape;
    let axis = lift.batch.axes[random]?;
    if shape.iter().product::<u64>() != lift.batch.size || axis.before * axis.after != 1 {
        return None;
    }
    let factor = factor(lift, random)?;
    let mut size = factor.size;
    let is_mean_kept = |size: f64| (size * factor.keep - 1.0).abs() < 1e-6;
    if !is_mean_kept(size) {
        // The value is divided in place of the factor.
        let (value, divisor) = with_number(lift, input, "div")?;
        (input, size) = (value, size / divisor);
    }
    if !is_mean_kept(size) {
        return None;
    }
    lift.plan(index, vec![Layer::new("DropPath", input, output(node)?).with(rest(factor.keep))]);
    Some(())
}

/// Returns the shortest probability that is the rest of this one.
fn rest(keep: f64) -> f64 {
    let exact = 1.0 - keep;
    let digits = (1..17).filter_map(|digits| format!("{exact:.digits$}").parse().ok());
    digits.into_iter().find(|short: &f64| 1.0 - short == keep).unwrap_or(exact)
}

/// Returns what a random factor is: of `bernoulli`, of a comparison of uniform numbers, or of their sum with a probability, rounded down.
fn factor(lift: &Lift<'_>, value: ValueId) -> Option<Factor> {
    let mut size = 1.0;
    let mut value = plain(lift, value);
    for _ in 0..8 {
        let (_, node) = lift.maker(value)?;
        match op(node) {
            "bernoulli" => {
                let own = node.float("p").or_else(|| if node.op == "bernoulli_" { Some(0.5) } else { None });
                return Some(Factor { keep: own.or_else(|| probability(lift, node.tensor("self")?))?, size });
            }
            "floor" => {
                let (random, keep) = with_number(lift, node.tensor("self")?, "add")?;
                return is_uniform(lift, random).then_some(Factor { keep, size });
            }
            "lt" | "le" => {
                let keep = number(lift, node.argument("other")?)?;
                return is_uniform(lift, node.tensor("self")?).then_some(Factor { keep, size });
            }
            "div" | "mul" => {
                let ([Side::Value(random), Side::Number(factor)] | [Side::Number(factor), Side::Value(random)]) =
                    parts(lift, node)?
                else {
                    return None;
                };
                size *= if op(node) == "div" { 1.0 / factor } else { factor };
                value = random;
            }
            // Of truth values.
            "to" | "_to_copy" | "float" | "type_as" | "clone" => value = node.tensors().next()?,
            _ => return None,
        }
        value = plain(lift, value);
    }
    None
}

/// Returns the probability that all elements of a tensor are.
fn probability(lift: &Lift<'_>, value: ValueId) -> Option<f64> {
    let numbers = lift.origins[value].numbers()?.numbers();
    let first = *numbers.first()?;
    numbers.iter().all(|number| *number == first).then_some(first)
}

fn is_uniform(lift: &Lift<'_>, value: ValueId) -> bool {
    lift.maker(plain(lift, value)).is_some_and(|(_, node)| {
        let is_unit = ["from", "to", "low", "high"].iter().all(|name| match node.argument(name) {
            None | Some(Argument::None) => true,
            Some(argument) => number(lift, argument).is_some_and(|number| number == 0.0 || number == 1.0),
        });
        matches!(op(node), "rand" | "rand_like" | "uniform") && is_unit
    })
}

/// Looks for labels some of which are replaced by a number at random, as in training without a guide. Nothing is replaced in inference.
pub(super) fn labels(lift: &mut Lift<'_>, index: usize) -> Option<()> {
    let node = &lift.model.nodes[index];
    let condition = node.tensor("condition").filter(|_| node.op == "where")?;
    let (left, right) = (node.argument("self")?, node.argument("other")?);
    let (number, labels) = match (number(lift, left), left, right) {
        (Some(number), _, Argument::Tensor(labels)) => (number, *labels),
        (None, Argument::Tensor(labels), other) => (self::number(lift, other)?, *labels),
        _ => return None,
    };
    let result = output(node)?;
    let is_label = lift.is_sample(labels) && !lift.model.values[result].dtype.is_float();
    let fits = is_label && lift.sample(labels) == lift.sample(result) && lift.is_random(condition);
    if !fits {
        return None;
    }
    lift.plan(index, Vec::new());
    lift.same(result, labels);
    lift.note(index, format!("PyTorch puts {number} in the place of some of them at random in training; the network reads all as they are"));
    Some(())
}
