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
pub(in crate::lower) struct Pruner {
    peak: u64,
    hull: Vec<usize>,
    column: Vec<Label>,
    kept: Vec<Label>,
}

impl Pruner {
    pub(in crate::lower) fn new(peak: u64) -> Pruner {
        Pruner { peak, hull: Vec::new(), column: Vec::new(), kept: Vec::new() }
    }

    fn prune(&mut self, labels: &mut Vec<Label>, columns: u64, limit: usize) {
        let width = self.peak / columns + 1;
        labels.sort_unstable_by_key(|label| (label.run / width, label.need, label.cost, label.run, label.order()));
        self.kept.clear();
        let is_alike = |a: &Label, b: &Label| a.run / width == b.run / width;
        let columns = labels.chunk_by(is_alike).count();
        let limit = (limit / columns.max(1)).max(3);
        for column in labels.chunk_by(is_alike) {
            // A label is dropped if one of an earlier column costs no more and needs no more.
            let earlier = self.kept.len();
            self.column.clear();
            let mut low = u64::MAX;
            for label in column {
                let is_better = |other: &Label| other.need <= label.need && other.cost <= label.cost;
                if label.cost < low && !self.kept[..earlier].iter().any(is_better) {
                    low = label.cost;
                    self.column.push(*label);
                }
            }
            self.reduce(limit);
        }
        labels.clear();
        labels.extend_from_slice(&self.kept);
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
