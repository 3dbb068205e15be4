//! Sines and cosines of a number, such as the time step of a diffusion.

use super::matching::{Side, made_by, orders, output, parts, plain};
use crate::batch::index;
use crate::lift::view::{Plan, moved, op};
use crate::lift::{Arguments, Layer, Lift};
use crate::model::{Argument, ValueId};

/// Looks for sines and cosines of one value side by side.
pub(super) fn find(lift: &mut Lift<'_>, at: usize) -> Option<()> {
    let node = &lift.model.nodes[at];
    if !matches!(&node.op[..], "cat" | "concat") {
        return None;
    }
    let result = output(node)?;
    // Halves that change places afterwards belong to it.
    let readers = &lift.readers[result];
    if !readers.is_empty()
        && readers.iter().all(|&reader| lift.model.nodes[reader].op == "slice")
        && swaps(lift, result)
    {
        return None;
    }
    let [first, second] = halves(lift, result, 0)?;
    let (sines_first, angles) = match (first, second) {
        ((true, angles), (false, other)) if angles == other => (true, angles),
        ((false, angles), (true, other)) if angles == other => (false, angles),
        _ => return None,
    };
    let shape = lift.sample(result);
    let &[features] = &shape[..] else { return None };
    let (time, frequencies) = products(lift, angles)?;
    let (base, shift) = frequency(&frequencies)?;
    if frequencies.len() as u64 * 2 != features {
        return None;
    }
    let is_tokens = !lift.model.values[time].dtype.is_float();
    let mut plan = Plan { lift, layers: Vec::new() };
    let layer = Layer::new("SinusoidalEmbedding", time, 0)
        .with(features)
        .option("base", base, 10_000.0)
        .option("shift", shift, 0.0)
        .flag("cosines_first", !sines_first);
    let own = if is_tokens { vec![1, features] } else { vec![features] };
    let made = plan.add(layer, &own);
    plan.reshape(made, &shape);
    let mut layers = plan.layers;
    layers.last_mut()?.output = result;
    lift.plan(at, layers);
    Some(())
}

/// True if parts of a value are put together again in another order.
fn swaps(lift: &Lift<'_>, value: ValueId) -> bool {
    let outputs = lift.readers[value].iter().flat_map(|&reader| &lift.model.nodes[reader].outputs);
    outputs
        .flat_map(|&output| &lift.readers[output])
        .any(|&reader| matches!(&lift.model.nodes[reader].op[..], "cat" | "concat"))
}

/// Returns the halves of a value: true for sines, and the angles.
fn halves(lift: &Lift<'_>, value: ValueId, depth: usize) -> Option<[(bool, ValueId); 2]> {
    let (_, node) = lift.maker(plain(lift, value)).filter(|_| depth < 4)?;
    let Argument::Tensors(values) = node.argument("tensors").filter(|_| matches!(&node.op[..], "cat" | "concat"))?
    else {
        return None;
    };
    let &[Some(first), Some(second)] = &values[..] else { return None };
    let rank = lift.model.values[first].shape.len();
    let is_last = Some(index(node.int("dim").unwrap_or(0), rank)) == rank.checked_sub(1);
    let half = |value: ValueId| -> Option<(bool, ValueId)> {
        let (_, node) = lift.maker(plain(lift, value))?;
        match op(node) {
            "sin" => Some((true, plain(lift, node.tensor("self")?))),
            "cos" => Some((false, plain(lift, node.tensor("self")?))),
            "slice" => {
                let input = moved(node)?;
                let [size, own] = [input, value].map(|value| lift.model.values[value].shape.last().copied());
                let start = node.int("start").unwrap_or(0);
                let is_half = size? == 2 * own? && node.int("step").unwrap_or(1) == 1;
                let halves = halves(lift, input, depth + 1).filter(|_| is_half)?;
                match start {
                    0 => Some(halves[0]),
                    start if u64::try_from(start) == Ok(own?) => Some(halves[1]),
                    _ => None,
                }
            }
            _ => None,
        }
    };
    Some([half(first)?, half(second)?]).filter(|_| is_last)
}

/// Returns the number of which angles are multiples, and the factors.
fn products(lift: &Lift<'_>, mut angles: ValueId) -> Option<(ValueId, Vec<f64>)> {
    let mut factor = 1.0;
    for _ in 0..8 {
        let (_, node) = made_by(lift, angles, "mul")?;
        let [left, right] = parts(lift, node)?;
        match (left, right) {
            (Side::Value(value), Side::Number(number)) | (Side::Number(number), Side::Value(value)) => {
                factor *= number;
                angles = value;
            }
            _ => {
                let known = |value: ValueId| lift.origins[value].numbers().map(|tensor| tensor.numbers());
                let [time, table] =
                    orders([left.value()?, right.value()?]).into_iter().find(|[_, table]| known(*table).is_some())?;
                let frequencies = known(table)?.into_iter().map(|number| number * factor).collect();
                return Some((number_of(lift, time)?, frequencies));
            }
        }
    }
    None
}

/// Returns the value of one number a sample that a value is a copy of, as integers if it was one.
fn number_of(lift: &Lift<'_>, mut value: ValueId) -> Option<ValueId> {
    for _ in 0..8 {
        let Some((_, node)) = lift.maker(value) else { break };
        let Some(input) = moved(node).filter(|_| lift.sample(value).iter().product::<u64>() == 1) else { break };
        if lift.sample(input).iter().product::<u64>() != 1 {
            break;
        }
        value = input;
    }
    (lift.is_sample(value) && lift.sample(value) == [1]).then_some(value)
}

/// Returns base and shift of frequencies `base^(-i / (n - shift))`.
fn frequency(frequencies: &[f64]) -> Option<(f64, f64)> {
    let count = frequencies.len();
    if count > 1 << 19 {
        return None;
    }
    let second = *frequencies.get(1)?;
    [0.0, 1.0].into_iter().find_map(|shift| {
        let divisor = count as f64 - shift;
        let last = (count - 1) as f64;
        let exact = frequencies[count - 1].powf(-divisor / last);
        let digits = 10f64.powi((exact.log10().floor() as i32).saturating_sub(3));
        let short = (exact / digits).round() * digits;
        let base = if (short / exact - 1.0).abs() < 1e-4 { short } else { exact };
        let is_right = |(place, number): (usize, &f64)| {
            let expected = base.powf(-(place as f64) / divisor);
            (number / expected - 1.0).abs() < 2e-6
        };
        let is_base = base.is_finite() && base >= 1.0 && second < 1.0;
        (is_base && frequencies.iter().enumerate().all(is_right)).then_some((base, shift))
    })
}
