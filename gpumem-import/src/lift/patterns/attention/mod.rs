//! Attention: `scaled_dot_product_attention`, and the products and the softmax that it is short for.
//!
//! Queries, keys and values are followed back to the layers that make them, through everything that moves elements, through factors and
//! rotary positions; the result is followed forward until it is rows again. So a network has one layer, and its branches are the
//! projections: the ways in which rows are split into heads and put together again are no longer seen.

mod added;
pub(super) mod bias;
pub(super) mod module;
mod scores;
mod trace;

pub(crate) use added::Known;
pub(crate) use scores::Added;

use crate::lift::view::{Factor, Plan, View, joined, length, moved, op, whole};
use crate::lift::{Layer, Lift, Literal};
use crate::model::ValueId;
use scores::Call;
use trace::{Traced, trace};

/// Looks for an attention whose call or softmax is this node.
pub(super) fn find(lift: &mut Lift<'_>, index: usize) -> Option<()> {
    let model = lift.model;
    let node = &model.nodes[index];
    let call = match op(node) {
        "scaled_dot_product_attention" => scores::called(lift, node)?,
        "softmax" | "_softmax" => scores::written(lift, node)?,
        _ => return None,
    };
    if lift.batch.mixing.contains(&index) || !lift.is_sample(call.output) {
        return None;
    }
    plan(lift, &call)
}

/// The sizes of an attention.
#[derive(Clone, Debug)]
struct Sizes {
    /// The axes along which sequences do not see each other.
    axes: Vec<u64>,
    /// Heads of queries, and of keys and values.
    heads: u64,
    kv_heads: u64,
    steps: u64,
    keys: u64,
    /// Elements of a head of queries and keys, and of one of values.
    width: u64,
    values: u64,
}

/// Queries, keys and values as rows with heads side by side.
struct Rows {
    sizes: Sizes,
    views: [View; 3],
    has_heads: bool,
}

fn plan(lift: &mut Lift<'_>, call: &Call) -> Option<()> {
    let mut traced = Vec::new();
    for (place, operand) in call.operands.iter().enumerate() {
        let found = trace(lift, operand.value, place < 2)?;
        traced.push(Traced { view: found.view.ordered(operand.order.iter().copied())?, ..found });
    }
    let rows = rows(&traced)?;
    let scale = call.scale * traced[0].scale * traced[1].scale;
    if !(scale > 0.0 && scale.is_finite()) {
        return None;
    }
    let rank = traced[0].view.axes.len();
    let turns = traced.iter().all(|traced| traced.turns_along(rank - 2, rank - 1));
    let is_turned = traced.iter().any(|traced| traced.turned.is_some());
    if !turns || is_turned && !rows.sizes.axes.is_empty() {
        return None;
    }
    let sizes = rows.sizes.clone();
    let added = added::read(lift, &call.added, &sizes)?;
    let mut plan = Plan { lift, layers: Vec::new() };
    let mut inputs = match joined_base(&plan, &rows, is_turned) {
        Some((base, shape)) => vec![plan.reshape(base, &shape)],
        None => {
            let mut inputs = Vec::new();
            for (place, view) in rows.views.iter().enumerate() {
                let heads = if place == 0 { sizes.heads } else { sizes.kv_heads };
                let value = plan.write(view)?;
                inputs.push(rotary(&mut plan, value, &traced[place], heads, sizes.width));
            }
            inputs
        }
    };
    let first = inputs[0];
    inputs.extend(added::write(&mut plan, &added, &sizes, first)?);
    let usual = 1.0 / (sizes.width as f64).sqrt();
    let is_usual = (scale / usual - 1.0).abs() < 1e-6;
    let layer = Layer::join("Attention", inputs, 0)
        .option("heads", sizes.heads, 1u64)
        .option("kv_heads", sizes.kv_heads, sizes.heads)
        .flag("causal", call.causal || added.causal)
        .option("dropout", call.dropout, 0.0)
        .option("scale", if is_usual { usual } else { scale }, usual);
    let layer = match added.window {
        Some(window) => layer.set("window", window),
        None => layer,
    };
    let shape: Vec<u64> = sizes.axes.iter().copied().chain([sizes.steps, sizes.heads * sizes.values]).collect();
    let made = plan.add(layer, &shape);
    finish(plan, made, call, &rows)
}

/// Adds rotary positions, if a branch has them.
fn rotary(plan: &mut Plan<'_, '_>, value: ValueId, traced: &Traced, heads: u64, width: u64) -> ValueId {
    let Some(turned) = &traced.turned else { return value };
    let (angles, before) = (&turned.turn.angles, turned.turn.before);
    let shape = plan.lift.sample(value);
    let layer = Layer::new("Rotary", value, 0)
        .with(heads)
        .option("base", angles.base, 10_000.0)
        .option("dims", angles.dims, width)
        .flag("interleaved", angles.interleaved);
    let layer = match angles.size {
        Some([height, width]) => {
            layer.set("size", Literal::Tuple(vec![height.into(), width.into()])).option("before", before, 0u64)
        }
        None => layer,
    };
    plan.add(layer, &shape)
}

/// Returns the sizes of an attention, and its operands as rows. `None` if they do not fit together.
fn rows(traced: &[Traced]) -> Option<Rows> {
    let [q, k, v] = [&traced.first()?.view, &traced.get(1)?.view, &traced.get(2)?.view];
    let rank = q.axes.len();
    if rank < 2 || k.axes.len() != rank || v.axes.len() != rank {
        return None;
    }
    let lead = rank - 2;
    let [steps, width] = [length(&q.axes[lead]), length(&q.axes[lead + 1])];
    let [keys, values] = [length(&v.axes[lead]), length(&v.axes[lead + 1])];
    if length(&k.axes[lead]) != keys || length(&k.axes[lead + 1]) != width {
        return None;
    }
    let has_heads = lead > 0 && has_heads([q, k, v], lead);
    let axes = if has_heads { lead - 1 } else { lead };
    let agrees =
        |axis: usize| length(&q.axes[axis]) == length(&k.axes[axis]) && length(&k.axes[axis]) == length(&v.axes[axis]);
    if !(0..axes).all(agrees) {
        return None;
    }
    // Sizes are those of a file: products of them must stay within 64 bits.
    let front = q.axes[..axes].iter().try_fold(1u64, |front, axis| front.checked_mul(length(axis)))?;
    let mut views = [q.clone(), k.clone(), v.clone()];
    let (mut heads, mut kv_heads) = (1, 1);
    if has_heads {
        heads = length(&q.axes[axes]);
        // Heads of keys that are repeated for neighbouring heads of queries are there once.
        let repeated = |view: &View| view.axes[axes].last().filter(|last| last.stride == 0).map_or(1, |last| last.size);
        let times = repeated(k);
        if times == repeated(v) && times > 1 {
            for view in &mut views[1..] {
                view.axes[axes].pop();
            }
        }
        kv_heads = length(&views[1].axes[axes]);
        if length(&views[2].axes[axes]) != kv_heads || kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            return None;
        }
    }
    let rows_of = |steps: u64, heads: u64, width: u64| steps.checked_mul(heads)?.checked_mul(width)?.checked_mul(front);
    for (steps, heads, width) in [(steps, heads, values), (steps, heads, width), (keys, kv_heads, width)] {
        rows_of(steps, heads, width).filter(|elements| *elements < 1 << 62)?;
    }
    let sizes = Sizes {
        axes: q.axes[..axes].iter().map(|axis| length(axis)).collect(),
        heads,
        kv_heads,
        steps,
        keys,
        width,
        values,
    };
    let views = views.map(|view| as_rows(&view, has_heads));
    Some(Rows { sizes, views, has_heads })
}

/// True if the last of the first axes are heads, which lie side by side in a row. Otherwise they are windows or the like.
fn has_heads(views: [&View; 3], lead: usize) -> bool {
    let outermost = |axis: &[Factor]| axis.iter().map(|factor| factor.stride).max();
    let is_apart = |view: &View| {
        let [axis, steps, width] = [lead - 1, lead, lead + 1].map(|axis| outermost(&view.axes[axis]));
        axis > steps && steps > width
    };
    let is_equal = length(&views[0].axes[lead - 1]) == length(&views[1].axes[lead - 1]);
    !(is_equal && views.iter().all(|view| is_apart(view)))
}

/// Returns a view `[.., H, T, S]` as rows `[.., T, H * S]`.
fn as_rows(view: &View, has_heads: bool) -> View {
    let mut axes = view.axes.clone();
    if has_heads && axes.len() >= 3 {
        let width = axes.pop().unwrap_or_default();
        let steps = axes.pop().unwrap_or_default();
        let heads = axes.pop().unwrap_or_default();
        axes.push(steps);
        axes.push(joined(heads.into_iter().chain(width)));
    }
    View { axes, ..*view }
}

/// Returns the value whose rows are queries, keys and values side by side, and its shape. `None` if they are not.
fn joined_base(plan: &Plan<'_, '_>, rows: &Rows, is_turned: bool) -> Option<(ValueId, Vec<u64>)> {
    let Sizes { heads, kv_heads, width, values, steps, keys, .. } = rows.sizes;
    let [q, k, v] = &rows.views;
    let [queries, shared] = [heads.checked_mul(width)?, kv_heads.checked_mul(width)?];
    let all = shared.checked_mul(2)?.checked_add(queries)?;
    let follows = q.offset == 0 && k.offset == queries && v.offset == queries + shared;
    if is_turned || !follows || k.base != q.base || v.base != q.base || values != width || steps != keys {
        return None;
    }
    let shape: Vec<u64> = rows.sizes.axes.iter().copied().chain([steps, all]).collect();
    let whole_rows = whole(&shape);
    let is_part = |view: &View, size: u64| {
        let (last, front) = (view.axes.len() - 1, &view.axes[..view.axes.len() - 1]);
        front == &whole_rows[..last] && view.axes[last] == joined([Factor { size, stride: 1 }])
    };
    let elements: u64 = plan.lift.sample(q.base).iter().product();
    let is_joined = is_part(q, queries)
        && is_part(k, shared)
        && is_part(v, shared)
        && shape.iter().try_fold(1u64, |product, &size| product.checked_mul(size)) == Some(elements);
    is_joined.then_some((q.base, shape))
}

/// Plans the layers in the place of the operation after which the result is rows again.
fn finish(mut plan: Plan<'_, '_>, made: ValueId, call: &Call, rows: &Rows) -> Option<()> {
    let Sizes { axes, heads, steps, values, .. } = &rows.sizes;
    let split: Vec<u64> = axes.iter().copied().chain([*steps, *heads, *values]).collect();
    let mut view = View { base: made, offset: 0, axes: whole(&split) };
    let last = view.axes.len();
    match rows.has_heads {
        true => view.axes.swap(last - 3, last - 2),
        false => drop(view.axes.remove(last - 2)),
    }
    if call.is_turned {
        let rank = view.axes.len();
        view.axes.swap(rank - 2, rank - 1);
    }
    let output = call.output;
    let shape = plan.lift.sample(made);
    let (mut value, mut at) = (output, view.clone());
    let mut best = None;
    for _ in 0..16 {
        if at.is_whole(plan.lift) {
            best = Some(value);
            if plan.lift.sample(value) == shape {
                break;
            }
        }
        let Some(reader) = plan.lift.only_reader(value).filter(|&reader| !plan.lift.is_taken(reader)) else { break };
        let node = &plan.lift.model.nodes[reader];
        let (Some(input), [next]) = (moved(node), &node.outputs[..]) else { break };
        let Some(next_view) = at.clone().after(plan.lift, node, *next).filter(|_| input == value) else { break };
        (value, at) = (*next, next_view);
    }
    let (target, result) = match best {
        Some(value) => {
            let shape = plan.lift.sample(value);
            (value, plan.reshape(made, &shape))
        }
        None => (output, plan.write(&view)?),
    };
    let index = plan.lift.makers[target]?;
    let mut layers = plan.layers;
    let last = layers.last_mut().filter(|layer| layer.output == result)?;
    last.output = target;
    plan.lift.plan(index, layers);
    Some(())
}
