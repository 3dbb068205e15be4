//! Values as views of other values: which elements of the other one they are, and in which order.
//!
//! A view is followed back through operations that only move elements: reshapes, permutations, parts, repetitions. All shapes here are
//! those of a sample, without the batch, so that it does not matter where the batch is. What a view needs of the language is
//! [written](View::write) with at most five layers, however many operations it came from.

use super::{Arguments, Layer, Lift, Literal};
use crate::batch::index;
use crate::model::{Argument, Node, ValueId};

/// Several elements at equal distances. A distance of 0 repeats one element.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Factor {
    pub(crate) size: u64,
    pub(crate) stride: u64,
}

/// A value as a view of the elements of `base`, which are counted row after row.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct View {
    pub(crate) base: ValueId,
    pub(crate) offset: u64,
    /// The factors of each axis, the outermost first. An axis of length 1 has none.
    pub(crate) axes: Vec<Vec<Factor>>,
}

/// The most operations that are followed back.
const FARTHEST: usize = 64;

/// Returns the number of elements of an axis.
pub(crate) fn length(axis: &[Factor]) -> u64 {
    axis.iter().map(|factor| factor.size).product()
}

/// Joins factors that are one.
pub(crate) fn joined(factors: impl IntoIterator<Item = Factor>) -> Vec<Factor> {
    let mut joined: Vec<Factor> = Vec::new();
    for factor in factors.into_iter().filter(|factor| factor.size != 1) {
        match joined.last_mut() {
            Some(last) if last.stride == factor.size * factor.stride => {
                *last = Factor { size: last.size * factor.size, stride: factor.stride };
            }
            _ => joined.push(factor),
        }
    }
    joined
}

/// Returns the factors of axes of other lengths with the same elements in the same order. `None` if an axis would begin within a factor.
pub(crate) fn regrouped(axes: &[Vec<Factor>], shape: &[u64]) -> Option<Vec<Vec<Factor>>> {
    let mut factors = axes.iter().flatten().copied().collect::<std::collections::VecDeque<_>>();
    let mut regrouped = Vec::with_capacity(shape.len());
    for &size in shape {
        let mut axis = Vec::new();
        let mut left = size;
        while left > 1 {
            let Factor { size, stride } = factors.pop_front()?;
            if left.is_multiple_of(size) {
                axis.push(Factor { size, stride });
                left /= size;
            } else if size.is_multiple_of(left) {
                let inner = size / left;
                axis.push(Factor { size: left, stride: stride * inner });
                factors.push_front(Factor { size: inner, stride });
                left = 1;
            } else {
                return None;
            }
        }
        regrouped.push(joined(axis));
    }
    factors.is_empty().then_some(regrouped)
}

/// Returns the factors of axes that lie one after the other.
pub(crate) fn whole(shape: &[u64]) -> Vec<Vec<Factor>> {
    let mut stride = 1u64;
    let mut axes: Vec<Vec<Factor>> = Vec::with_capacity(shape.len());
    for &size in shape.iter().rev() {
        axes.push(joined([Factor { size, stride }]));
        stride = stride.saturating_mul(size);
    }
    axes.reverse();
    axes
}

impl View {
    /// Returns a value as a view of itself. `None` if it has no elements, or 2^62 or more.
    pub(crate) fn of(lift: &Lift<'_>, base: ValueId) -> Option<View> {
        let shape = lift.sample(base);
        let elements = shape.iter().try_fold(1u64, |product, &size| product.checked_mul(size))?;
        (1..1 << 62).contains(&elements).then(|| View { base, offset: 0, axes: whole(&shape) })
    }

    pub(crate) fn shape(&self) -> Vec<u64> {
        self.axes.iter().map(|axis| length(axis)).collect()
    }

    /// True if the view is all of its base in the base's order.
    pub(crate) fn is_whole(&self, lift: &Lift<'_>) -> bool {
        let all = joined(self.axes.iter().flatten().copied());
        let elements: u64 = lift.sample(self.base).iter().product();
        self.offset == 0 && (all == [Factor { size: elements, stride: 1 }] || elements == 1)
    }

    /// Returns a view of axes in another order.
    pub(crate) fn ordered(&self, order: impl IntoIterator<Item = usize>) -> Option<View> {
        let axes = order.into_iter().map(|axis| self.axes.get(axis).cloned()).collect::<Option<_>>()?;
        Some(View { axes, ..*self })
    }

    /// Returns the elements from `start` on along an axis. `None` if the view would begin or end within a factor.
    fn part(mut self, axis: usize, start: u64, length: u64, step: u64) -> Option<View> {
        let factors = self.axes.get_mut(axis)?;
        let [first, rest @ ..] = &mut factors[..] else { return (start == 0 && length == 1).then_some(self) };
        let inner: u64 = rest.iter().map(|factor| factor.size).product();
        if rest.is_empty() {
            let end = start.checked_add(length.checked_sub(1)?.checked_mul(step)?)?;
            if end >= first.size {
                return None;
            }
            self.offset += start * first.stride;
            *first = Factor { size: length, stride: first.stride * step.min(first.size) };
        } else if step == 1 && start.is_multiple_of(inner) && length.is_multiple_of(inner) && length > 0 {
            self.offset += start / inner * first.stride;
            first.size = length / inner;
        } else if length == 1 {
            let mut at = start;
            for factor in factors.iter().rev() {
                self.offset += at % factor.size * factor.stride;
                at /= factor.size;
            }
            factors.clear();
            return (at == 0).then_some(self);
        } else {
            return None;
        }
        *factors = joined(std::mem::take(factors));
        Some(self)
    }

    /// Returns the view after an operation that moves elements. `None` if it is no such operation, or the result is no view.
    pub(crate) fn after(self, lift: &Lift<'_>, node: &Node, output: ValueId) -> Option<View> {
        let model = lift.model;
        let input = moved(node)?;
        let shape = lift.sample(output);
        let rank = model.values[input].shape.len();
        let of_sample = |dim: usize| lift.dim(input, dim as i64).map(|dim| dim as usize - 1);
        match op(node) {
            "view" | "reshape" | "_unsafe_view" | "flatten" | "unflatten" | "squeeze" | "unsqueeze" | "reshape_as"
            | "view_as" | "contiguous" | "clone" | "alias" | "detach" | "lift_fresh_copy" | "to" | "type_as"
            | "_to_copy" | "float" => {
                let axes = regrouped(&self.axes, &shape)?;
                Some(View { axes, ..self })
            }
            "transpose" | "t" | "permute" | "swapaxes" | "numpy_T" | "mT" | "movedim" => {
                let order = permutation(node, rank)?;
                let order: Vec<usize> = order.into_iter().filter_map(of_sample).collect();
                self.ordered(order)
            }
            "expand" | "expand_as" | "broadcast_to" => self.expanded(lift, input, output),
            "index" => {
                let Some(Argument::Tensors(indices)) = node.argument("indices") else { return None };
                let dim = indices.iter().position(|index| index.is_some())?;
                let only = indices[dim].filter(|_| indices.iter().flatten().count() == 1)?;
                let (start, count) = lift.counted(only, *model.values[input].shape.get(dim)?)?;
                self.part(of_sample(dim)?, start, count, 1)
            }
            "repeat_interleave" | "repeat" => self.repeated(&shape, op(node) == "repeat"),
            "select" | "unbind" => {
                let dim = index(node.int("dim").unwrap_or(0), rank);
                let size = *model.values[input].shape.get(dim)?;
                let at = match op(node) {
                    "select" => index(node.int("index")?, usize::try_from(size).ok()?) as u64,
                    _ => node.outputs.iter().position(|&other| other == output)? as u64,
                };
                let axis = of_sample(dim)?;
                let mut view = (at < size).then(|| self.part(axis, at, 1, 1))??;
                view.axes.remove(axis);
                Some(view)
            }
            "slice" | "narrow" | "split" | "split_with_sizes" | "chunk" | "tensor_split" => {
                let dim = index(node.int("dim").unwrap_or(0), rank);
                let size = *model.values[input].shape.get(dim)?;
                let length = *model.values[output].shape.get(dim)?;
                if size == length {
                    return Some(self);
                }
                let start = match op(node) {
                    "slice" | "narrow" => {
                        let start = node.int("start").unwrap_or(0);
                        u64::try_from(if start < 0 { start + size as i64 } else { start }).ok()?
                    }
                    _ => {
                        let place = node.outputs.iter().position(|&other| other == output)?;
                        node.outputs[..place]
                            .iter()
                            .map(|&part| model.values[part].shape.get(dim).copied())
                            .try_fold(0u64, |sum, size| sum.checked_add(size?))?
                    }
                };
                let step = u64::try_from(node.int("step").unwrap_or(1)).ok().filter(|step| *step > 0)?;
                self.part(of_sample(dim)?, start, length, step)
            }
            _ => None,
        }
    }

    /// Returns the view with each axis repeated as often as a longer one of `shape` says: as a whole, or each element.
    fn repeated(mut self, shape: &[u64], is_whole: bool) -> Option<View> {
        if shape.len() != self.axes.len() {
            return None;
        }
        for (axis, &size) in self.axes.iter_mut().zip(shape) {
            let old = length(axis);
            if size == 0 || !size.is_multiple_of(old) {
                return None;
            }
            axis.insert(if is_whole { 0 } else { axis.len() }, Factor { size: size / old, stride: 0 });
            *axis = joined(std::mem::take(axis));
        }
        Some(self)
    }

    /// Returns the view with axes of length 1 repeated, and new ones before the others.
    fn expanded(self, lift: &Lift<'_>, input: ValueId, output: ValueId) -> Option<View> {
        let [from, to] = [input, output].map(|value| &lift.model.values[value].shape[..]);
        let shift = to.len().checked_sub(from.len())?;
        let mut axes = Vec::new();
        for (dim, &size) in to.iter().enumerate() {
            if size == 0 {
                return None;
            }
            // A dimension that became the batch is no axis of a sample.
            if lift.dim(output, dim as i64).is_none() {
                continue;
            }
            let old = dim.checked_sub(shift);
            let axis =
                old.and_then(|old| lift.dim(input, old as i64)).and_then(|axis| self.axes.get(axis as usize - 1));
            let size =
                if old.is_some_and(|old| from[old] == size) { axis.map_or(1, |axis| length(axis)) } else { size };
            axes.push(match axis {
                Some(axis) if length(axis) == size => axis.clone(),
                Some(axis) if length(axis) != 1 => return None,
                _ => joined([Factor { size, stride: 0 }]),
            });
        }
        Some(View { axes, ..self })
    }
}

/// Returns the operation without the sign that it works in place.
pub(crate) fn op(node: &Node) -> &str {
    node.op.strip_suffix('_').filter(|op| !op.ends_with('_')).unwrap_or(&node.op)
}

/// Returns the value whose elements an operation moves. `None` if it does something else, or if it works in place.
pub(crate) fn moved(node: &Node) -> Option<ValueId> {
    const MOVES: [&str; 33] = [
        "view",
        "reshape",
        "_unsafe_view",
        "flatten",
        "unflatten",
        "squeeze",
        "unsqueeze",
        "reshape_as",
        "view_as",
        "contiguous",
        "clone",
        "alias",
        "detach",
        "lift_fresh_copy",
        "to",
        "type_as",
        "_to_copy",
        "float",
        "transpose",
        "t",
        "permute",
        "swapaxes",
        "numpy_T",
        "mT",
        "movedim",
        "expand",
        "expand_as",
        "broadcast_to",
        "select",
        "unbind",
        "slice",
        "narrow",
        "split",
    ];
    const PARTS: [&str; 6] = ["split_with_sizes", "chunk", "tensor_split", "repeat", "repeat_interleave", "index"];
    match node.arguments.first() {
        Some((_, Argument::Tensor(value))) if MOVES.contains(&&node.op[..]) || PARTS.contains(&&node.op[..]) => {
            Some(*value)
        }
        _ => None,
    }
}

/// Returns for each dimension after a permutation which one it was.
fn permutation(node: &Node, rank: usize) -> Option<Vec<usize>> {
    let at = |dim: i64| Some(index(dim, rank)).filter(|dim| *dim < rank);
    match (&node.op[..], node.ints("dims")) {
        ("permute", Some(dims)) => dims.into_iter().map(at).collect(),
        ("numpy_T", _) => Some((0..rank).rev().collect()),
        ("movedim", _) => {
            let [from, to] = [node.ints("source")?, node.ints("destination")?];
            let from: Vec<usize> = from.into_iter().map(at).collect::<Option<_>>()?;
            let to: Vec<usize> = to.into_iter().map(at).collect::<Option<_>>()?;
            let mut others = (0..rank).filter(|dim| !from.contains(dim));
            (0..rank)
                .map(|dim| match to.iter().position(|other| *other == dim) {
                    Some(place) => from.get(place).copied(),
                    None => others.next(),
                })
                .collect()
        }
        _ => {
            let (a, b) = match &node.op[..] {
                "mT" => (at(-2)?, at(-1)?),
                "t" if rank < 2 => return Some((0..rank).collect()),
                "t" => (0, 1),
                _ => (at(node.int("dim0").or(node.int("axis0"))?)?, at(node.int("dim1").or(node.int("axis1"))?)?),
            };
            Some(
                (0..rank)
                    .map(|dim| {
                        if dim == a {
                            b
                        } else if dim == b {
                            a
                        } else {
                            dim
                        }
                    })
                    .collect(),
            )
        }
    }
}

impl<'m> Lift<'m> {
    /// Returns the operation that makes a value. `None` if there is none, or a pattern has taken it.
    pub(crate) fn maker(&self, value: ValueId) -> Option<(usize, &'m Node)> {
        let model = self.model;
        let index = (*self.makers.get(value)?)?;
        (!self.is_taken(index)).then(|| (index, &model.nodes[index]))
    }

    /// Returns the first of consecutive indices that a constant vector has, and how many they are. Negative ones count from the end.
    fn counted(&self, value: ValueId, size: u64) -> Option<(u64, u64)> {
        let numbers = self.origins[value].numbers().filter(|tensor| tensor.shape.len() == 1)?.numbers();
        let start = *numbers.first().filter(|start| start.fract() == 0.0)?;
        let is_count = numbers.iter().enumerate().all(|(place, number)| *number == start + place as f64);
        let start = if start < 0.0 { start + size as f64 } else { start };
        (is_count && start >= 0.0 && start < size as f64).then_some((start as u64, numbers.len() as u64))
    }

    /// Returns the value that a value is a view of, as far back as it can be followed.
    pub(crate) fn view(&self, value: ValueId) -> Option<View> {
        self.view_until(value, |_| false)
    }

    /// Returns the value that a value is a view of, but goes no farther than a value for which `is_base` is true.
    pub(crate) fn view_until(&self, value: ValueId, is_base: impl Fn(ValueId) -> bool) -> Option<View> {
        let mut steps = Vec::new();
        let mut base = value;
        while steps.len() < FARTHEST && !is_base(base) {
            let Some((_, node)) = self.maker(base) else { break };
            let Some(input) = moved(node) else { break };
            steps.push((node, base));
            base = input;
        }
        let mut view = View::of(self, base)?;
        for (node, output) in steps.into_iter().rev() {
            view = match view.after(self, node, output) {
                Some(view) => view,
                None => View::of(self, output)?,
            };
        }
        Some(view)
    }
}

/// Layers that a pattern plans, one after the other.
pub(crate) struct Plan<'l, 'm> {
    pub(crate) lift: &'l mut Lift<'m>,
    pub(crate) layers: Vec<Layer>,
}

impl Plan<'_, '_> {
    /// Adds a layer whose output is a new value of this shape, and returns it.
    pub(crate) fn add(&mut self, layer: Layer, shape: &[u64]) -> ValueId {
        let output = self.lift.between(shape);
        self.layers.push(Layer { output, ..layer });
        output
    }

    /// Adds a change of shape, if one is needed.
    pub(crate) fn reshape(&mut self, value: ValueId, shape: &[u64]) -> ValueId {
        if self.lift.sample(value) == shape {
            return value;
        }
        let layer = match shape {
            [_] => Layer::new("Flatten", value, 0),
            _ => Layer::new("Reshape", value, 0).with(Literal::Tuple(shape.iter().map(|&size| size.into()).collect())),
        };
        self.add(layer, shape)
    }

    /// Adds an order of axes, which are counted from 0, if another one is needed.
    pub(crate) fn permute(&mut self, value: ValueId, order: &[usize]) -> ValueId {
        let shape = self.lift.sample(value);
        let turned: Vec<u64> = order.iter().map(|&axis| shape[axis]).collect();
        let swapped: Vec<usize> = (0..order.len()).filter(|&axis| order[axis] != axis).collect();
        match swapped[..] {
            [] => value,
            [a, b] => self.add(Layer::new("Transpose", value, 0).with(a as i64 + 1).with(b as i64 + 1), &turned),
            _ => {
                let dims = order.iter().map(|&axis| Literal::Int(axis as i64 + 1));
                let dims = std::iter::once(Literal::Int(0)).chain(dims).collect();
                self.add(Layer::new("Permute", value, 0).with(Literal::Tuple(dims)), &turned)
            }
        }
    }

    /// Adds the elements from `start` up to `end` of an axis, which is counted from 0.
    pub(crate) fn slice(&mut self, value: ValueId, axis: usize, start: u64, end: u64) -> ValueId {
        let mut shape = self.lift.sample(value);
        if (start, end) == (0, shape[axis]) {
            return value;
        }
        let layer = Layer::new("Slice", value, 0).with(start);
        let layer = if end == shape[axis] { layer } else { layer.with(end) };
        shape[axis] = end - start;
        self.add(layer.option("dim", axis as i64 + 1, 1i64), &shape)
    }

    /// Adds what makes a view of its base. `None` if the language has no way to write it.
    pub(crate) fn write(&mut self, view: &View) -> Option<ValueId> {
        let target = view.shape();
        if view.is_whole(self.lift) {
            return Some(self.reshape(view.base, &target));
        }
        // Factors in the order of the base, each with its place in the view.
        let all: Vec<Factor> = view.axes.iter().flatten().copied().collect();
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.sort_by_key(|&place| std::cmp::Reverse(all[place].stride));
        let elements: u64 = self.lift.sample(view.base).iter().product();
        // The base as a grid with one axis for each factor, and one for what is within the last.
        let (mut grid, mut parts) = (Vec::new(), Vec::new());
        let (mut outer, mut offset) = (elements, view.offset);
        for &place in &order {
            let Factor { size, stride } = all[place];
            if stride == 0 || !outer.is_multiple_of(stride) {
                return None;
            }
            let (radix, start) = (outer / stride, offset / stride);
            offset %= stride;
            outer = stride;
            if start + size > radix {
                return None;
            }
            grid.push(radix);
            parts.push([start, start + size]);
        }
        let mut value = view.base;
        let is_within = outer > 1 || grid.is_empty();
        if is_within {
            grid.push(outer);
        }
        value = self.reshape(value, &grid);
        for (axis, [start, end]) in parts.into_iter().enumerate() {
            value = self.slice(value, axis, start, end);
        }
        if is_within {
            let axis = grid.len() - 1;
            let mut shape = self.lift.sample(value);
            shape.pop();
            let layer = Layer::new("Select", value, 0).with(offset).option("dim", axis as i64 + 1, 1i64);
            value = self.add(layer, if shape.is_empty() { &[1] } else { &shape });
        }
        let mut places = vec![0; order.len()];
        for (axis, place) in order.into_iter().enumerate() {
            places[place] = axis;
        }
        value = if places.len() > 1 { self.permute(value, &places) } else { value };
        Some(self.reshape(value, &target))
    }
}

#[cfg(test)]
mod tests {
    use super::{Factor, joined, regrouped, whole};

    fn factor(size: u64, stride: u64) -> Factor {
        Factor { size, stride }
    }

    #[test]
    fn heads_are_split_and_joined() {
        // [T, 3 * H * S] as [T, 3, H, S], permuted to [3, H, T, S].
        let split = regrouped(&whole(&[5, 24]), &[5, 3, 2, 4]).unwrap();
        assert_eq!(split, [vec![factor(5, 24)], vec![factor(3, 8)], vec![factor(2, 4)], vec![factor(4, 1)]]);
        // Heads and their elements, which were adjacent, are one factor again.
        let row = joined(split[2].iter().chain(&split[3]).copied());
        assert_eq!(row, [factor(8, 1)]);
        // Steps and heads are not.
        let other = joined(split[0].iter().chain(&split[2]).copied());
        assert_eq!(other, [factor(5, 24), factor(2, 4)]);
    }

    #[test]
    fn repeated_heads_stay_apart() {
        // Two heads of keys, each for three heads of queries.
        let axes = [vec![factor(2, 4)], vec![factor(3, 0)], vec![factor(4, 1)]];
        assert_eq!(regrouped(&axes, &[6, 4]).unwrap(), [vec![factor(2, 4), factor(3, 0)], vec![factor(4, 1)]]);
        // An axis that would begin within a head.
        assert_eq!(regrouped(&whole(&[6, 4]), &[5, 4]), None);
        assert_eq!(regrouped(&axes, &[4, 6]), None);
    }
}
