//! Selective state spaces, as Mamba without its kernels computes them: a loop over the steps of a sequence, which a program has in full.
//!
//! `h[t] = exp(delta[t] * A) * h[t - 1] + delta[t] * b[t] * x[t]`, `y[t] = c[t] . h[t] + D * x[t]`, with channels before steps. The layer has
//! the steps before the channels, so that what is elementwise afterwards is turned, too.

use super::matching::{Side, made_by, next, orders, output, parts, parts_of, plain};
use crate::batch::index;
use crate::lift::view::{Factor, Plan, View, length, moved, op};
use crate::lift::{Arguments, Layer, Lift};
use crate::model::{Argument, ValueId};

/// A scan with its operands as views: `x` and `delta` `[T, D]`, `b` and `c` `[T, N]`.
struct Scan {
    x: View,
    delta: View,
    b: View,
    c: View,
    /// The keys of `A_log` and `D`.
    keys: [String; 2],
    /// The sum, `[D, T]`, and its node.
    result: (ValueId, usize),
}

/// Looks for the outputs of all steps, which are stacked.
pub(super) fn find(lift: &mut Lift<'_>, at: usize) -> Option<()> {
    let node = &lift.model.nodes[at];
    let Some(Argument::Tensors(steps)) = node.argument("tensors").filter(|_| node.op == "stack") else { return None };
    let steps: Vec<ValueId> = steps.iter().copied().collect::<Option<_>>()?;
    let stacked = output(node)?;
    let rank = lift.model.values[stacked].shape.len();
    let is_last = lift.dim(stacked, index(node.int("dim").unwrap_or(0), rank) as i64)? == 2;
    if !is_last || lift.sample(stacked).len() != 2 || steps.len() < 2 {
        return None;
    }
    let scan = read(lift, stacked, &steps)?;
    write(lift, &scan)
}

/// Views of consecutive steps: the base, the first offset, and the distance from one step to the next.
struct Series {
    first: View,
    stride: u64,
}

/// Returns the views of all steps as one with the steps first.
fn run(views: Vec<View>) -> Option<Series> {
    let [first, second, ..] = &views[..] else { return None };
    let stride = second.offset.checked_sub(first.offset).filter(|stride| *stride > 0)?;
    let is_run = views.iter().enumerate().all(|(step, view)| {
        view.base == first.base && view.axes == first.axes && view.offset == first.offset + step as u64 * stride
    });
    is_run.then(|| Series { first: first.clone(), stride })
}

fn read(lift: &Lift<'_>, stacked: ValueId, steps: &[ValueId]) -> Option<Scan> {
    let count = steps.len() as u64;
    let (mut reads, mut decays, mut arrivals) = (Vec::new(), Vec::new(), Vec::new());
    let mut before: Option<ValueId> = None;
    for &step in steps {
        let product = lift.view(step).filter(|view| view.is_whole(lift))?.base;
        let (_, product) = made_by(lift, product, "matmul")?;
        let state = plain(lift, product.tensor("self")?);
        let mut reader = lift.view(product.tensor("other")?)?;
        reader.axes.retain(|axis| !axis.is_empty());
        reads.push(reader);
        let parts = orders(parts_of(lift, state, "add")?);
        let (decay, arrival) = parts.into_iter().find_map(|[kept, arrival]| {
            let factors = orders(parts_of(lift, kept.value()?, "mul")?);
            let [decay, _] = factors.into_iter().find(|[_, last]| match (last.value(), before) {
                (Some(last), Some(before)) => last == before,
                (Some(last), None) => {
                    lift.origins[last].numbers().is_some_and(|zero| zero.numbers().iter().all(|number| *number == 0.0))
                }
                _ => false,
            })?;
            Some((decay.value()?, arrival.value()?))
        })?;
        decays.push(lift.view(decay)?);
        arrivals.push(lift.view(arrival)?);
        before = Some(state);
    }
    let (c, decays, arrivals) = (run(reads)?, run(decays)?, run(arrivals)?);
    let all_steps = Factor { size: count, stride: c.stride };
    let c = View { axes: vec![vec![all_steps], c.first.axes.concat()], ..c.first };
    // exp(delta * A), [D, T, N].
    let (_, decay) = whole_run(lift, &decays, count).and_then(|base| made_by(lift, base, "exp"))?;
    let [left, right] = factors(lift, decay.tensor("self")?)?.try_into().ok()?;
    let is_matrix = |value: &ValueId| a_log(lift, *value).is_some();
    let (matrix, delta) = if is_matrix(&left) { (left, right) } else { (right, left) };
    let a_log = a_log(lift, matrix)?;
    let delta = outer(lift, delta)?;
    // delta * b * x, [D, T, N].
    let mut rest: Vec<View> = factors(lift, whole_run(lift, &arrivals, count)?)?
        .into_iter()
        .map(|value| outer(lift, value))
        .collect::<Option<_>>()?;
    let own = rest.iter().position(|view| *view == delta)?;
    rest.remove(own);
    let [one, other] = rest.try_into().ok()?;
    let (x, b) = if length(&one.axes[0]) == 1 { (other, one) } else { (one, other) };
    if length(&b.axes[0]) != 1 || length(&x.axes[2]) != 1 || length(&delta.axes[2]) != 1 {
        return None;
    }
    // y + D * x, [D, T].
    let (last, sum) = next(lift, stacked).filter(|(_, node)| node.op == "add")?;
    let skipped = orders(parts(lift, sum)?).into_iter().find(|[own, _]| *own == Side::Value(stacked))?[1].value()?;
    let d = orders(parts_of(lift, skipped, "mul")?).into_iter().find_map(|[skipped, factor]| {
        let skipped = lift.view(skipped.value()?)?;
        let is_x = skipped.base == x.base && skipped.offset == x.offset && skipped.axes[..] == x.axes[..2];
        let factor = lift.view(factor.value()?).filter(|view| is_x && view.is_whole(lift))?;
        lift.state(factor.base).map(|state| state.key.clone())
    })?;
    let rows = |view: &View, axis: usize| View { axes: vec![view.axes[1].clone(), view.axes[axis].clone()], ..*view };
    let keys = [a_log, d];
    Some(Scan { x: rows(&x, 0), delta: rows(&delta, 0), b: rows(&b, 2), c, keys, result: (output(sum)?, last) })
}

/// Returns the value `[D, T, N]` whose steps these are.
fn whole_run(lift: &Lift<'_>, run: &Series, count: u64) -> Option<ValueId> {
    let shape = lift.sample(run.first.base);
    let &[_, steps, states] = &shape[..] else { return None };
    let axes = crate::lift::view::whole(&shape);
    let is_all = steps == count && run.first.offset == 0 && run.stride == states;
    (is_all && run.first.axes == [axes[0].clone(), axes[2].clone()]).then_some(run.first.base)
}

/// Returns the factors of a product of two or three values.
fn factors(lift: &Lift<'_>, value: ValueId) -> Option<Vec<ValueId>> {
    let [left, right] = parts_of(lift, value, "mul")?.map(Side::value);
    let (left, right) = (left?, right?);
    Some(match (parts_of(lift, left, "mul"), parts_of(lift, right, "mul")) {
        (Some([a, b]), None) => vec![a.value()?, b.value()?, right],
        (None, Some([a, b])) => vec![left, a.value()?, b.value()?],
        _ => vec![left, right],
    })
}

/// Returns the view that a factor `[D, T, N]` is, some of whose axes have length 1.
fn outer(lift: &Lift<'_>, value: ValueId) -> Option<View> {
    let mut view = lift.view(value)?;
    while view.axes.len() > 3 && view.axes[0].is_empty() {
        view.axes.remove(0);
    }
    (view.axes.len() == 3).then_some(view)
}

/// Returns the key of the parameter of which a value is `-exp(parameter)`.
fn a_log(lift: &Lift<'_>, value: ValueId) -> Option<String> {
    let base = lift.view(value).filter(|view| view.is_whole(lift))?.base;
    let (_, negated) = made_by(lift, base, "neg")?;
    let (_, exponential) = made_by(lift, negated.tensor("self")?, "exp")?;
    lift.state(plain(lift, exponential.tensor("self")?)).map(|state| state.key.clone())
}

fn write(lift: &mut Lift<'_>, scan: &Scan) -> Option<()> {
    let [steps, channels] = [length(&scan.x.axes[0]), length(&scan.x.axes[1])];
    let shape = [steps, channels];
    let (mut result, mut at) = scan.result;
    let mut plan = Plan { lift, layers: Vec::new() };
    let x = plan.write(&scan.x)?;
    let delta = match step_sizes(&mut plan, &scan.delta) {
        Some(delta) => delta,
        None => plan.write(&scan.delta)?,
    };
    let (b, c) = (plan.write(&scan.b)?, plan.write(&scan.c)?);
    let [a_log, d] = &scan.keys;
    let layer = Layer::join("SelectiveScan", vec![x, delta, b, c], 0).key("A_log", Some(a_log)).key("D", Some(d));
    let mut value = plan.add(layer, &shape);
    // If the result is turned in the end, its factor is turned in the same way.
    if let Some((_, product)) = next(plan.lift, result)
        && product.op == "mul"
        && let Some((turned, last)) = turned_after(plan.lift, output(product)?)
        && let Some([_, gate]) = parts(plan.lift, product)
            .and_then(|both| orders(both).into_iter().find(|[own, _]| *own == Side::Value(result)))
        && let Some(gate) = gate.value().filter(|&gate| plan.lift.sample(gate) == [channels, steps])
    {
        let gate = gated(&mut plan, gate)?;
        value = plan.add(Layer::join("Mul", vec![value, gate], 0), &shape);
        (result, at) = (turned, last);
    } else {
        value = plan.permute(value, &[1, 0]);
    }
    let mut layers = plan.layers;
    layers.last_mut().filter(|layer| layer.output == value)?.output = result;
    plan.lift.plan(at, layers);
    Some(())
}

/// Returns the transposed value, if nothing else reads this one, and its node.
fn turned_after(lift: &Lift<'_>, value: ValueId) -> Option<(ValueId, usize)> {
    let (index, node) = next(lift, value)?;
    let result = output(node).filter(|_| moved(node).is_some())?;
    let view = View::of(lift, moved(node)?)?;
    let turned = view.ordered([1, 0])?;
    (view.after(lift, node, result)? == turned).then_some((result, index))
}

/// Adds the transposed gate.
fn gated(plan: &mut Plan<'_, '_>, gate: ValueId) -> Option<ValueId> {
    let made = plan.lift.maker(gate).filter(|(_, node)| op(node) == "silu").and_then(|(_, node)| node.tensor("self"));
    let turned = |plan: &mut Plan<'_, '_>, value: ValueId| {
        let view = plan.lift.view(value)?.ordered([1, 0])?;
        plan.write(&view)
    };
    match made {
        Some(input) => {
            let value = turned(plan, input)?;
            let shape = plan.lift.sample(value);
            Some(plan.add(Layer::new("Silu", value, 0), &shape))
        }
        None => turned(plan, gate),
    }
}

/// Adds the affine map and the softplus that make step sizes `[T, D]`. `None` if they are made in another way.
fn step_sizes(plan: &mut Plan<'_, '_>, delta: &View) -> Option<ValueId> {
    let lift = &*plan.lift;
    let base = lift.sample(delta.base);
    let whole = View::of(lift, delta.base)?;
    let (_, softplus) =
        made_by(lift, delta.base, "softplus").filter(|(_, node)| node.float("beta").is_none_or(|beta| beta == 1.0))?;
    let input = softplus.tensor("self")?;
    let key = |value: ValueId| {
        lift.view(value)
            .filter(|view| view.is_whole(lift))
            .and_then(|view| lift.state(view.base))
            .map(|state| state.key.clone())
    };
    let (weight, bias, rows, channels) = if let Some((_, linear)) = made_by(lift, input, "linear") {
        // [T, D]
        (delta.axes == whole.axes).then_some(())?;
        let rows = View::of(lift, linear.tensor("input")?)?;
        (key(linear.tensor("weight")?)?, key(linear.tensor("bias")?)?, rows, *base.last()?)
    } else {
        // [D, T], of a weight [D, R] times [R, T].
        (base.len() == 2 && delta.axes[..] == [whole.axes[1].clone(), whole.axes[0].clone()]).then_some(())?;
        let both = orders(parts_of(lift, input, "add")?);
        let (product, bias) = both.into_iter().find_map(|[product, bias]| {
            let (_, product) = made_by(lift, product.value()?, "matmul")?;
            Some((product, bias.value()?))
        })?;
        let rows = lift.view(product.tensor("other")?)?.ordered([1, 0])?;
        (key(product.tensor("self")?)?, key(bias)?, rows, base[0])
    };
    let steps = length(&rows.axes[0]);
    let rows = plan.write(&rows)?;
    let layer = Layer::new("StepSizes", rows, 0).with(channels).key("weight", Some(&weight)).key("bias", Some(&bias));
    Some(plan.add(layer, &[steps, channels]))
}
