//! The choice among several programs of one training step, ordered from the least recomputation to the most.
//!
//! The macro finds them, cheapest first. Const evaluation, which alone knows batch and cards, plans one after the other until one fits. Those
//! after it are not planned at all.

use super::budget::{Budget, Line, Plan, fitting_plan, plan_within, skipped_plan};
use super::refusal::limit;
use super::tables::Tables;
use super::target_cards::TargetCards;
use crate::message::Message;
use crate::number::Precision;
use crate::train::Checkpoint;

/// The recompute level that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Its number: 0 is the first one. That one recomputes only what the user marked by hand and, if there is no other level, outputs of
    /// normalisations.
    pub number: u64,
    /// The number of levels.
    pub count: u64,
    /// Bytes of activations at level 0; 0 if that is the only one.
    pub activations_without: u64,
}

impl Level {
    /// The level of a program without any other.
    pub const ONLY: Level = Level { number: 0, count: 1, activations_without: 0 };
}

/// Returns the plan of level 0. If only cards decide, one that does not fit them need not be packed.
pub const fn first<const N: usize>(
    tables: &Tables<'_>,
    batch: u64,
    precision: Precision,
    checkpoint: Checkpoint,
    aim: &TargetCards<'_>,
) -> Plan<N> {
    let most = if matches!(checkpoint, Checkpoint::Auto) { aim.room() } else { u64::MAX };
    plan_within(tables, batch, precision, most)
}

/// Returns the most bytes of an arena with which a level is taken.
pub const fn room<const N: usize>(first: &Plan<N>, checkpoint: Checkpoint, aim: &TargetCards<'_>) -> u64 {
    match checkpoint {
        Checkpoint::Auto | Checkpoint::Budget(_) => room_within(checkpoint, &first.budget, aim.room()),
        Checkpoint::Norms | Checkpoint::None | Checkpoint::Cheap => u64::MAX,
    }
}

/// Returns the arena bytes that a level may use: `room`, or less if `checkpoint: Budget(share)` asks for less.
pub const fn room_within(checkpoint: Checkpoint, first: &Budget, room: u64) -> u64 {
    match budget_room(checkpoint, first) {
        Some(share) if share < room => share,
        _ => room,
    }
}

/// Returns the arena bytes that `checkpoint: Budget(share)` asks for, given the budget of level 0. `None` for other values.
pub const fn budget_room(checkpoint: Checkpoint, first: &Budget) -> Option<u64> {
    match checkpoint {
        Checkpoint::Budget(share) => {
            let activations = first.get(Line::Activations);
            Some(first.get(Line::Arena) - activations + (activations as f64 * share) as u64)
        }
        Checkpoint::Norms | Checkpoint::None | Checkpoint::Cheap | Checkpoint::Auto => None,
    }
}

/// True if a plan is packed, and its arena is no larger than `room`.
pub const fn fits<const N: usize>(plan: &Plan<N>, room: u64) -> bool {
    plan.error.is_none() && plan.is_packed && plan.arena() <= room
}

/// Returns the plan of a later level, or an empty one if a level before it fits. The last level is packed even if it does not fit.
pub const fn next<const N: usize>(
    tables: &Tables<'_>,
    batch: u64,
    precision: Precision,
    room: u64,
    (is_settled, is_last): (bool, bool),
    aim: &TargetCards<'_>,
) -> Plan<N> {
    if is_settled {
        return skipped_plan(batch, precision);
    }
    let plan = fitting_plan(tables, batch, precision, room);
    if is_last && !fits(&plan, room) { plan_within(tables, batch, precision, limit(N, aim)) } else { plan }
}

/// Fails to compile if even the last level takes more than `Budget` gives activations.
#[track_caller]
pub const fn check_budget<const N: usize>(
    name: &str,
    checkpoint: Checkpoint,
    without: u64,
    last: &Plan<N>,
    aim: &TargetCards<'_>,
) {
    let Checkpoint::Budget(share) = checkpoint else { return };
    if aim.environment.is_unchecked() || last.error.is_some() {
        return;
    }
    let (least, given) = (last.budget.get(Line::Activations), (without as f64 * share) as u64);
    if least <= given {
        // A plan that is larger than the cards is refused elsewhere.
        return;
    }
    let mut text = Message::<512>::new();
    text.text("network `")
        .text(name)
        .text("` needs ")
        .bytes(least)
        .text(" for activations with all recomputation that helps, ");
    text.number((100 * least as u128).div_ceil(if without > 0 { without as u128 } else { 1 }) as u64);
    text.text(" % of the ").bytes(without).text(" without it, and `Budget(..)` gives it ");
    text.bytes(given);
    text.text(": give it a larger share");
    panic!("{}", text.as_str())
}
