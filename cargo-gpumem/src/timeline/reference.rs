//! The curve of PyTorch's allocator, drawn on the operations of this step.

use super::category::Stretch;
use super::step::PlacedStep;
use gpumem_import::torch::{CurvePoint, Phase, Report};

/// The memory of the same step in another framework.
pub struct Reference {
    pub name: String,
    /// Bytes of tensors, and bytes that the allocator holds. Each point is a position along the operations, in hundredths, and a number of bytes.
    pub live: Vec<[u64; 2]>,
    pub reserved: Vec<[u64; 2]>,
}

/// The most points of a curve.
const MOST_POINTS: usize = 1500;

impl Reference {
    /// Returns the curve of a report. Each of its phases is as long as that phase of `step` is.
    pub fn new(report: &Report, step: &PlacedStep) -> Reference {
        let curve = report.curve();
        let at = |phase: Phase, share: f64| {
            let [from, to] = range(phase, step);
            ((from as f64 + share * (to - from) as f64) * 100.0).round() as u64
        };
        let points = |bytes: fn(&CurvePoint) -> u64| {
            let all = curve.iter().map(|point| [at(point.phase, point.share), bytes(point)]);
            thinned(all, step.operations.len() as u64 * 100)
        };
        Reference { name: "PyTorch".into(), live: points(|point| point.live), reserved: points(|point| point.reserved) }
    }
}

/// Returns the first operation of a phase, and the one after its last.
fn range(phase: Phase, step: &PlacedStep) -> [usize; 2] {
    let last = |wanted: Stretch| step.operations.iter().rposition(|operation| operation.stretch == wanted);
    let loss = step.loss();
    let after_loss = last(Stretch::Loss).map_or(loss, |last| last + 1);
    let after_backward = last(Stretch::Backward).map_or(after_loss, |last| last + 1);
    match phase {
        Phase::Start => [0, 0],
        Phase::Forward => [0, loss],
        Phase::Loss => [loss, after_loss],
        Phase::Backward => [after_loss, after_backward],
        Phase::Update => [after_backward, step.operations.len()],
    }
}

/// Returns the largest point of each of [`MOST_POINTS`] ranges, without those that change nothing.
fn thinned(points: impl Iterator<Item = [u64; 2]>, end: u64) -> Vec<[u64; 2]> {
    let bucket = |at: u64| at * MOST_POINTS as u64 / end.max(1);
    let mut kept: Vec<[u64; 2]> = Vec::new();
    for point in points {
        match kept.last_mut() {
            Some(last) if bucket(last[0]) == bucket(point[0]) => last[1] = last[1].max(point[1]),
            Some(last) if last[1] == point[1] => {}
            _ => kept.push(point),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::thinned;

    #[test]
    fn the_largest_point_of_a_range_is_kept() {
        let points = [[0, 5], [1, 9], [2, 3], [4000, 9], [8000, 9], [15_000, 1]];
        assert_eq!(thinned(points.into_iter(), 15_000), [[0, 9], [15_000, 1]]);
        assert_eq!(thinned(std::iter::empty(), 0), Vec::<[u64; 2]>::new());
    }
}
