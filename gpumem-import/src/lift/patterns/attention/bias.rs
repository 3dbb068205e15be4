//! Tables of relative positions: a row of a parameter for each pair of steps, by an index that is a number of the model.

use crate::batch::index;
use crate::fold::Origin;
use crate::lift::layer::Change;
use crate::lift::patterns::matching::{orders, output, parts};
use crate::lift::view::{Factor, Plan, View, joined, length};
use crate::lift::{Arguments, Layer, Lift, Literal};
use crate::model::{Argument, ValueId};

/// The option `relative` of a layer `RelativePositionBias`.
#[derive(Clone, Debug)]
pub(super) struct Relative {
    /// The value in the model: several attentions may read one.
    value: ValueId,
    heads: u64,
    /// The head whose numbers are added, if it is one of several.
    own: Option<u64>,
    steps: u64,
    distances: Distances,
    key: String,
    /// True if the table has a row for each head.
    is_turned: bool,
}

/// The rule by which distances have rows of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Distances {
    /// Along both axes of a map of this size, with signs.
    Signed([u64; 2]),
    /// Without signs.
    Absolute([u64; 2]),
    /// Along one axis, in so many buckets up to a farthest distance; for both directions or one.
    Buckets([u64; 2], bool),
}

/// A parameter from which rows are taken.
struct Table {
    parameter: ValueId,
    heads: u64,
    rows: u64,
    is_turned: bool,
    index: ValueId,
}

/// Returns the table of relative positions that a bias `[H, T, T]` comes from. `None` if it is another value.
pub(super) fn relative(lift: &Lift<'_>, value: ValueId, [heads, steps, keys_of]: [u64; 3]) -> Option<Relative> {
    let view = lift.view(value)?;
    let [front @ .., queries, keys] = &view.axes[..] else { return None };
    let of_heads = joined(front.iter().flatten().copied());
    if length(queries) != steps || length(keys) != steps || length(&of_heads) != heads || steps != keys_of || steps < 2
    {
        return None;
    }
    let table = table(lift, view.base)?;
    let count: u64 = lift.sample(table.index).iter().product();
    // Either the heads of an index lie side by side, or all indices of a head.
    let (head, unit) = if table.is_turned { (count, 1) } else { (1, table.heads) };
    let is_all = heads == table.heads && (heads == 1 || of_heads == [Factor { size: heads, stride: head }]);
    let own = view.offset / head % table.heads;
    let view = if is_all { view.clone() } else { View { offset: view.offset - own * head, ..view.clone() } };
    if !is_all && heads != 1 {
        return None;
    }
    let origin = lift.origins[table.index].numbers()?;
    let numbers = lift.shared_tensor(table.index, origin).ok()?.1;
    let axes = view.axes[view.axes.len() - 2..].to_vec();
    let rows = matrix(&View { axes, ..view }, unit, &numbers)?;
    let distances = rule(&rows, steps, table.rows)?;
    let key = lift.state(table.parameter)?.key.clone();
    let is_turned = table.is_turned;
    Some(Relative {
        value: view.base,
        heads: table.heads,
        own: (!is_all).then_some(own),
        steps,
        distances,
        key,
        is_turned,
    })
}

/// Looks for scores to which a table of relative positions is added, where no attention was found.
pub(in crate::lift::patterns) fn find(lift: &mut Lift<'_>, at: usize) -> Option<()> {
    let node = &lift.model.nodes[at];
    if node.op != "add" {
        return None;
    }
    let result = output(node)?;
    let (scores, relative) = orders(parts(lift, node)?).into_iter().find_map(|[scores, bias]| {
        let (scores, bias) = (scores.value()?, bias.value()?);
        let shape = lift.sample(scores);
        let [front @ .., steps, keys] = &shape[..] else { return None };
        let is_bias =
            lift.is_sample(scores) && matches!(lift.origins[bias], Origin::Parameters) && lift.sample(result) == shape;
        let heads = front.last().copied().filter(|_| is_bias)?;
        Some((scores, relative(lift, bias, [heads, *steps, *keys])?))
    })?;
    let mut plan = Plan { lift, layers: Vec::new() };
    let bias = relative.write(&mut plan, scores);
    let mut layers = plan.layers;
    layers.push(Layer::join("Add", vec![scores, bias], result));
    lift.plan(at, layers);
    Some(())
}

/// Returns the table that an operation takes rows of.
fn table(lift: &Lift<'_>, value: ValueId) -> Option<Table> {
    let (_, node) = lift.maker(value)?;
    let (source, index, dim) = match &node.op[..] {
        "embedding" => (node.tensor("weight")?, node.tensor("indices")?, 0),
        "index_select" => {
            let source = node.tensor("self")?;
            (source, node.tensor("index")?, index(node.int("dim")?, lift.sample(source).len()))
        }
        "index" => {
            let Some(Argument::Tensors(indices)) = node.argument("indices") else { return None };
            let dim = indices.iter().position(|index| index.is_some())?;
            let only = indices.iter().flatten().count() == 1;
            (node.tensor("self")?, indices[dim].filter(|_| only)?, dim)
        }
        _ => return None,
    };
    let source = lift.view(source).filter(|view| view.is_whole(lift))?;
    let parameter = source.base;
    let elements: u64 = lift.sample(parameter).iter().product();
    if !matches!(lift.origins[parameter], Origin::Parameters) || lift.state(parameter).is_none() || elements == 0 {
        return None;
    }
    let shape: Vec<u64> = source.shape();
    let rows = *shape.get(dim)?;
    let before: u64 = shape[..dim].iter().product();
    let (heads, is_turned) = if before > 1 { (before, true) } else { (elements / rows, false) };
    let fits = heads.checked_mul(rows) == Some(elements) && matches!(lift.origins[index], Origin::Constant(Some(_)));
    fits.then_some(Table { parameter, heads, rows, is_turned, index })
}

/// Returns the row of the table for each pair of a query and a key.
fn matrix(view: &View, unit: u64, numbers: &[f64]) -> Option<Vec<u64>> {
    let places = |axis: &[Factor]| -> Vec<u64> {
        axis.iter().fold(vec![0], |places, factor| {
            places.iter().flat_map(|place| (0..factor.size).map(move |at| place + at * factor.stride)).collect()
        })
    };
    let [queries, keys] = [places(&view.axes[0]), places(&view.axes[1])];
    if queries.len().checked_mul(keys.len())? > 1 << 24 {
        return None;
    }
    let mut rows = Vec::with_capacity(queries.len() * keys.len());
    for query in &queries {
        for key in &keys {
            let place = view.offset + query + key;
            let number = *numbers.get((place / unit.max(1)) as usize).filter(|_| place.is_multiple_of(unit.max(1)))?;
            rows.push((number >= 0.0).then_some(number as u64)?);
        }
    }
    Some(rows)
}

/// Returns the rule that gives these rows. `None` if it is none that the language has.
fn rule(rows: &[u64], steps: u64, count: u64) -> Option<Distances> {
    let sides = (1..=steps).filter(|side| steps.is_multiple_of(*side)).map(|side| [side, steps / side]);
    for size @ [height, width] in sides {
        let signed = (2 * height - 1) * (2 * width - 1) == count;
        if signed && is_rule(rows, Distances::Signed(size), steps) {
            return Some(Distances::Signed(size));
        }
        if steps == count && is_rule(rows, Distances::Absolute(size), steps) {
            return Some(Distances::Absolute(size));
        }
    }
    // Distances from which on all are in the last bucket: that of T5, and those of its kin.
    let farthest = [128, 64, 256, 512, 1024, 800];
    farthest
        .into_iter()
        .flat_map(|farthest| [true, false].map(|both| Distances::Buckets([count, farthest], both)))
        .find(|rule| {
            let Distances::Buckets([count, farthest], both) = *rule else { return false };
            let side = if both { 4 } else { 2 };
            (side..=1024).contains(&count)
                && count % side == 0
                && farthest > count / side
                && is_rule(rows, *rule, steps)
        })
}

fn is_rule(rows: &[u64], rule: Distances, steps: u64) -> bool {
    rows.iter().enumerate().all(|(at, &row)| row == rule.row(at as u64 / steps, at as u64 % steps))
}

impl Distances {
    fn row(self, query: u64, key: u64) -> u64 {
        match self {
            Distances::Signed([height, width]) => {
                let [down, across] =
                    [query / width + height - 1 - key / width, query % width + width - 1 - key % width];
                down * (2 * width - 1) + across
            }
            Distances::Absolute([_, width]) => {
                (query / width).abs_diff(key / width) * width + (query % width).abs_diff(key % width)
            }
            Distances::Buckets([count, farthest], both) => bucket(query as i64 - key as i64, count, farthest, both),
        }
    }
}

/// Returns the bucket of a query that is so many steps after its key, as T5 computes it in f32.
fn bucket(after: i64, count: u64, farthest: u64, both: bool) -> u64 {
    let buckets = if both { count / 2 } else { count };
    let first = if both && after < 0 { buckets } else { 0 };
    let distance = if both { after.unsigned_abs() } else { after.max(0) as u64 };
    let exact = buckets / 2;
    if distance < exact {
        return first + distance;
    }
    let ratio = (distance as f32 / exact as f32).ln() / ((farthest as f64 / exact as f64).ln() as f32);
    let own = exact + (ratio * (buckets - exact) as f32) as u64;
    first + own.min(buckets - 1)
}

impl Relative {
    /// Adds the layer, or reads that which was added before for another attention.
    pub(super) fn write(&self, plan: &mut Plan<'_, '_>, rows: ValueId) -> ValueId {
        let made = match plan.lift.relative.get(&self.value) {
            Some(&made) => made,
            None => self.add(plan, rows),
        };
        let Some(own) = self.own else { return made };
        plan.add(Layer::new("Select", made, 0).with(own), &[self.steps, self.steps])
    }

    fn add(&self, plan: &mut Plan<'_, '_>, rows: ValueId) -> ValueId {
        let layer = Layer::new("RelativePositionBias", rows, 0).with(self.heads);
        let size = |[height, width]: [u64; 2]| Literal::sizes(&[height as i64, width as i64]);
        let usual = Literal::sizes(&[1, self.steps as i64]);
        let layer = match self.distances {
            Distances::Signed(side) => layer.option("size", size(side), usual),
            Distances::Absolute(side) => layer.option("size", size(side), usual).flag("absolute", true),
            Distances::Buckets([buckets, farthest], both) => layer
                .set("buckets", buckets)
                .option("max_distance", farthest, 128u64)
                .option("bidirectional", both, true),
        };
        let layer = layer.key("weight", Some(&self.key));
        let layer = if self.is_turned { layer.change("weight", Change::Transposed) } else { layer };
        let made = plan.add(layer, &[self.heads, self.steps, self.steps]);
        plan.lift.relative.insert(self.value, made);
        made
    }
}
