//! Pruning: the choice of labels that are carried on.
//!
//! Labels with about equal `run` are a column. Of each column, labels on the lower convex hull of need and cost are kept, and as many others as
//! the limit allows. The hull is what matters: a point between two of its corners is reached by taking the options of one corner up to some
//! segment, and those of the other from there on.

use super::label::Label;
use alloc::vec::Vec;

/// The number of labels that are carried from segment to segment, outside of runs and inside.
pub(in crate::lower) struct Effort {
    labels: usize,
    in_runs: usize,
}

/// Columns that the labels of runs are sorted into.
const COLUMNS: u64 = 16;

impl Effort {
    /// Returns an effort with fewer labels for more segments, so that large networks do not take too long.
    pub(in crate::lower) fn of(segments: usize) -> Effort {
        // In hundredths: the square root of 40 over the segments.
        let scale = (400_000 / segments.max(10)).isqrt().clamp(70, 150);
        Effort { labels: 200 * scale / 100, in_runs: 240 * scale / 100 }
    }

    pub(in crate::lower) fn prune(&self, pruner: &mut Pruner, labels: &mut Vec<Label>, in_run: bool, is_first: bool) {
        let limit = match (in_run, is_first) {
            (true, _) => self.in_runs,
            (false, true) => usize::MAX,
            (false, false) => self.labels,
        };
        pruner.prune(labels, if in_run { COLUMNS } else { 1 }, limit);
    }
}

/// Pruning of lists of labels, in memory that is reused.
///
/// Loops over labels are written out: a macro runs them unoptimised, where iterators and the sort of the standard library take several times as
/// long.
pub(in crate::lower) struct Pruner {
    peak: u64,
    hull: Vec<usize>,
    column: Vec<Label>,
    kept: Vec<Label>,
    /// Kept labels of earlier columns that no other one dominates, by need. Costs fall.
    front: Vec<Label>,
    /// Scratch memory of [`sort`] and of [`Pruner::advance`].
    spare: Vec<Label>,
}

impl Pruner {
    pub(in crate::lower) fn new(peak: u64) -> Pruner {
        let list = Vec::new;
        Pruner { peak, hull: Vec::new(), column: list(), kept: list(), front: list(), spare: list() }
    }

    fn prune(&mut self, labels: &mut Vec<Label>, columns: u64, limit: usize) {
        let width = self.peak / columns + 1;
        sort(labels, &mut self.spare, width);
        self.kept.clear();
        self.front.clear();
        let is_alike = |a: &Label, b: &Label| a.run / width == b.run / width;
        let columns = labels.chunk_by(is_alike).count();
        let limit = (limit / columns.max(1)).max(3);
        for column in labels.chunk_by(is_alike) {
            self.column.clear();
            self.undominated(column);
            let earlier = self.kept.len();
            self.reduce(limit);
            self.advance(earlier);
        }
        labels.clear();
        labels.extend_from_slice(&self.kept);
    }

    /// Adds those labels of a column that are cheaper than all before them, unless one of an earlier column costs no more and needs no more.
    fn undominated(&mut self, column: &[Label]) {
        let front = &*self.front;
        let (mut low, mut least) = (u64::MAX, u64::MAX);
        let (mut at, mut passed) = (0, 0);
        while at < column.len() {
            let label = &column[at];
            // Both are sorted by need, and the last one in front that needs no more is the cheapest of them.
            while passed < front.len() && front[passed].need <= label.need {
                least = front[passed].cost;
                passed += 1;
            }
            // No label costs the largest number.
            if label.cost < low && label.cost < least {
                low = label.cost;
                self.column.push(*label);
            }
            at += 1;
        }
    }

    /// Merges the labels kept of a column, which begin at `earlier`, into those in front.
    fn advance(&mut self, earlier: usize) {
        self.spare.clear();
        let (front, column) = (&*self.front, &self.kept[earlier..]);
        let (mut left, mut right, mut low) = (0, 0, u64::MAX);
        while left < front.len() || right < column.len() {
            let is_left = right == column.len() || left < front.len() && front[left].need <= column[right].need;
            let next = if is_left { front[left] } else { column[right] };
            left += usize::from(is_left);
            right += usize::from(!is_left);
            if next.cost < low {
                low = next.cost;
                self.spare.push(next);
            }
        }
        core::mem::swap(&mut self.front, &mut self.spare);
    }

    /// Moves at most about `limit` labels of a column to the kept ones. The column is sorted by need, with falling costs.
    fn reduce(&mut self, limit: usize) {
        let list = &self.column;
        if list.len() <= limit {
            self.kept.extend_from_slice(list);
            return;
        }
        find_hull(list, &mut self.hull);
        if self.hull.len() >= limit {
            // Corners at even distances.
            let corner = |number: usize| self.hull[number * (self.hull.len() - 1) / (limit - 1)];
            self.kept.extend((0..limit).map(|number| list[corner(number)]));
            return;
        }
        let (low, high) = (list[0].need, list[list.len() - 1].need);
        let grain = (high - low) / (limit - self.hull.len()) as u64 + 1;
        let mut corner = 0;
        for (at, label) in list.iter().enumerate() {
            let is_corner = self.hull.get(corner) == Some(&at);
            corner += usize::from(is_corner);
            let part = |label: &Label| (label.need - low) / grain;
            let is_cheapest = list.get(at + 1).is_none_or(|next| part(next) != part(label));
            if is_corner || is_cheapest {
                self.kept.push(*label);
            }
        }
    }
}

/// Finds the corners of the lower convex hull.
fn find_hull(list: &[Label], hull: &mut Vec<usize>) {
    hull.clear();
    let product = |a: u64, b: u64, c: u64, d: u64| i128::from(a.abs_diff(b)) * i128::from(c.abs_diff(d));
    for (at, label) in list.iter().enumerate() {
        while let [.., first, second] = hull[..] {
            let (first, second) = (&list[first], &list[second]);
            // Costs fall: a corner goes if the line past it falls at least as fast as the line to it.
            let past = product(first.cost, label.cost, second.need, first.need);
            let to = product(first.cost, second.cost, label.need, first.need);
            if past < to {
                break;
            }
            hull.pop();
        }
        hull.push(at);
    }
}

/// True if a label comes before another one: in an earlier column of this width, or else by need and cost. No two labels are equal.
fn is_before(a: &Label, b: &Label, width: u64) -> bool {
    let [one, other] = [a.run / width, b.run / width];
    if one != other {
        return one < other;
    }
    if a.need != b.need {
        return a.need < b.need;
    }
    if a.cost != b.cost {
        return a.cost < b.cost;
    }
    if a.run != b.run {
        return a.run < b.run;
    }
    if a.way != b.way {
        return a.way < b.way;
    }
    a.next < b.next
}

/// Sorts labels by [`is_before`], by merging stretches that rise or fall already: an option makes labels in about the order of those that it
/// extends.
fn sort(labels: &mut Vec<Label>, spare: &mut Vec<Label>, width: u64) {
    let mut ends = stretches(labels, width);
    spare.clear();
    spare.extend_from_slice(labels);
    while ends.len() > 1 {
        let (mut start, mut merged) = (0, 0);
        for pair in 0..ends.len().div_ceil(2) {
            let middle = ends[2 * pair];
            let end = ends.get(2 * pair + 1).copied().unwrap_or(middle);
            merge(&labels[start..middle], &labels[middle..end], &mut spare[start..end], width);
            ends[merged] = end;
            (start, merged) = (end, merged + 1);
        }
        ends.truncate(merged);
        core::mem::swap(labels, spare);
    }
}

/// Returns the ends of stretches in which labels rise. Stretches in which they fall are turned around.
fn stretches(labels: &mut [Label], width: u64) -> Vec<usize> {
    let (mut ends, mut start) = (Vec::new(), 0);
    while start < labels.len() {
        let mut end = start + 1;
        let falls = end < labels.len() && is_before(&labels[end], &labels[start], width);
        while end < labels.len() && is_before(&labels[end], &labels[end - 1], width) == falls {
            end += 1;
        }
        if falls {
            labels[start..end].reverse();
        }
        ends.push(end);
        start = end;
    }
    ends
}

/// Merges two sorted lists into one.
fn merge(left: &[Label], right: &[Label], merged: &mut [Label], width: u64) {
    let (mut i, mut j, mut at) = (0, 0, 0);
    while at < merged.len() {
        let is_right = i == left.len() || j < right.len() && is_before(&right[j], &left[i], width);
        if is_right {
            merged[at] = right[j];
            j += 1;
        } else {
            merged[at] = left[i];
            i += 1;
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A list of different labels with few different numbers.
    fn labels() -> impl Strategy<Value = Vec<Label>> {
        let label = |(number, [need, run, cost, way]): (u32, [u64; 4])| Label {
            need,
            run,
            above: 0,
            cost,
            asks: 0,
            way: way as u32,
            next: number,
        };
        let numbers = prop::collection::vec(prop::array::uniform4(0u64..9), 0..80);
        numbers.prop_map(move |numbers| (0..).zip(numbers).map(label).collect())
    }

    proptest! {
        #[test]
        fn labels_are_sorted(mut labels in labels(), width in 1u64..12, is_turned in any::<bool>()) {
            let key = |label: &Label| (label.run / width, label.need, label.cost, label.run, label.way, label.next);
            let mut expected = labels.clone();
            expected.sort_unstable_by_key(key);
            if is_turned {
                // Long stretches that fall, then some that rise.
                labels.sort_unstable_by_key(key);
                labels.reverse();
            }
            sort(&mut labels, &mut Vec::new(), width);
            prop_assert_eq!(labels, expected);
        }

        /// Without a limit, a label is kept unless another one of its column, or of an earlier one, is as good.
        #[test]
        fn what_is_dropped_is_dominated(labels in labels(), columns in 1u64..5) {
            let mut kept = labels.clone();
            let mut pruner = Pruner::new(8);
            pruner.prune(&mut kept, columns, usize::MAX);
            let column = |label: &Label| label.run / (8 / columns + 1);
            let beats = |one: &Label, other: &Label| {
                column(one) <= column(other) && one.need <= other.need && one.cost <= other.cost
            };
            for label in &labels {
                prop_assert!(kept.iter().any(|other| beats(other, label)), "{label:?} of {labels:?}");
            }
            for (at, label) in kept.iter().enumerate() {
                let others = kept.iter().enumerate().filter(|(other, _)| *other != at);
                prop_assert!(others.clone().all(|(_, other)| !beats(other, label)), "{label:?} of {kept:?}");
            }
        }
    }
}
