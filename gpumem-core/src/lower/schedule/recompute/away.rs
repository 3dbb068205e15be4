//! Values that are worth the bus: those whose recomputation takes longest for their bytes, as many as leave in time.
//!
//! The search for levels counts them as absent between the passes, so that keeping them costs nothing.

use super::emit::Emission;
use super::parking::Parking;
use super::segments::{Frame, Segment};
use crate::lower::schedule::bus::LEAST;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Returns the sets of values that may be away between the passes. A value that is not worth a copy in a step with the frame's peak may be worth
/// one at `leanest` bytes, so that there are up to two sets.
pub(super) fn sets(parking: &Parking, frame: &Frame<'_>, emission: &Emission<'_>, leanest: u64) -> Vec<Vec<bool>> {
    let segments = frame.segments();
    let mut sets = Vec::new();
    for peak in [frame.peak, leanest] {
        let away = dearest(parking, frame, &segments, emission, peak / LEAST);
        if away.contains(&true) && !sets.contains(&away) {
            sets.push(away);
        }
    }
    sets
}

/// Returns true for each value that is worth the bus. Of the values of at least `least` bytes, those whose recomputation takes longest for their
/// bytes come first, as long as the bus can move all of them. `emission` is the step that keeps everything.
///
/// A value of a boundary costs as much as its whole segment, since all of that is recomputed from the boundary before it.
fn dearest(
    parking: &Parking,
    frame: &Frame<'_>,
    segments: &[Segment],
    emission: &Emission<'_>,
    least: u64,
) -> Vec<bool> {
    let mut away = vec![false; parking.moves.len()];
    let Some((clock, turn)) = parking.clock(emission) else { return away };
    let cost = prices(parking, frame, segments);
    let mut price = vec![0u64; emission.instances.len()];
    let held = |root: u32| emission.instances.iter().filter(move |instance| instance.root == root);
    for instance in &emission.instances {
        if let Some(value) = instance.value() {
            let price = &mut price[instance.root as usize];
            *price = (*price).max(cost[value as usize]);
        }
    }
    let mut gaps = parking.gaps(&frame.sizes.values, emission, turn, least);
    gaps.sort_by_key(|gap| (Reverse(price[gap.tensor as usize]), gap.tensor));
    let mut leaving = Vec::new();
    clock.add_in_time(&mut leaving, gaps.into_iter(), turn);
    for value in leaving.iter().flat_map(|gap| held(gap.tensor)).filter_map(|instance| instance.value()) {
        away[value as usize] = true;
    }
    away
}

/// Returns the cost of recomputing each value, in thousandths of the cost of moving it.
fn prices(parking: &Parking, frame: &Frame<'_>, segments: &[Segment]) -> Vec<u64> {
    let values = &frame.step.values.values;
    let mut costs: Vec<u64> = values.iter().map(|value| parking.costs[value.producer as usize]).collect();
    for segment in segments {
        let whole = parking.costs[segment.forward.clone()].iter().fold(0, |sum: u64, &cost| sum.saturating_add(cost));
        segment.cross.iter().for_each(|&value| costs[value as usize] = whole);
    }
    let each = costs.iter().zip(&parking.moves);
    each.map(|(&cost, &moved)| (u128::from(cost) * 1000 / u128::from(moved.max(1))) as u64).collect()
}
