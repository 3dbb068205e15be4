//! Two changes at once: those that are likely to be of use, by an estimate, and those that are.
//!
//! A change multiplies each line of the budget and the time of the step by some factor. The estimate of two changes has both factors. It costs nothing,
//! so that all pairs are estimated, and the best few are planned. A pair of a batch or of ranks with something else is another task, which is not
//! tried.

use super::edit::Edit;
use super::{Advice, Cost, LEAST_TIME};
use crate::memory::budget::Line;
use alloc::vec::Vec;
use core::mem::{Discriminant, discriminant};

/// The most pairs that are planned.
const MOST_PLANNED: usize = 6;

/// The part of the device by which an estimate may miss it if the plan might still fit.
const MARGIN: u64 = 32;

/// Two changes, by their places in the list of all.
pub(super) type Pair = [usize; 2];

/// A pair with its estimate.
#[derive(Clone, Copy)]
struct Estimate {
    pair: Pair,
    kinds: [Discriminant<Edit>; 2],
    cost: Cost,
}

/// Returns the pairs that are planned: of two kinds of changes one, the likeliest. If something has to fit, the leanest may come, too. `limit` is the
/// bytes that the device has, and `can` returns true if the program can have both changes.
pub(super) fn likely(now: &Cost, alone: &[(Edit, Advice)], limit: u64, can: impl Fn([Edit; 2]) -> bool) -> Vec<Pair> {
    let mut all = estimates(now, alone);
    let mut taken: Vec<Estimate> = Vec::new();
    let mut take = |all: &[Estimate], most: usize| {
        let round = taken.len();
        for one in all {
            let is_known = taken.iter().any(|other| other.pair == one.pair);
            let is_new = !is_known && taken[round..].iter().all(|other| other.kinds != one.kinds);
            if taken.len() < most && is_new && can(one.pair.map(|at| alone[at].0)) {
                taken.push(*one);
            }
        }
    };
    if is_needed(now, alone) {
        // The quickest of those that may fit, and then the leanest, since an estimate may be wrong.
        let end = limit.saturating_add(limit / MARGIN);
        all.sort_by(|a, b| {
            let late = |it: &Estimate| it.cost.total() > end;
            late(a).cmp(&late(b)).then(a.cost.added_time(now).total_cmp(&b.cost.added_time(now)))
        });
        take(&all, MOST_PLANNED / 2);
        all.sort_by_key(|it| it.cost.total());
    } else {
        all.retain(|it| is_better(now, &it.cost, it.pair.map(|at| &alone[at].1.cost)));
        all.sort_by(|a, b| b.cost.worth(now).total_cmp(&a.cost.worth(now)));
    }
    take(&all, MOST_PLANNED);
    taken.into_iter().map(|one| one.pair).collect()
}

/// Estimates all pairs of changes that save memory or time alone, and that leave the program the same task.
fn estimates(now: &Cost, alone: &[(Edit, Advice)]) -> Vec<Estimate> {
    let helps = |(edit, Advice { cost, .. }): &(Edit, Advice)| {
        edit.keeps_the_task() && (cost.saved(now) > 0 || cost.added_time(now) < -LEAST_TIME)
    };
    let useful: Vec<usize> = (0..alone.len()).filter(|&at| helps(&alone[at])).collect();
    let mut all = Vec::new();
    for (index, &second) in useful.iter().enumerate() {
        for pair in useful[..index].iter().map(|&first| [first, second]) {
            let kinds = pair.map(|at| discriminant(&alone[at].0));
            if kinds[0] != kinds[1] {
                all.push(Estimate { pair, kinds, cost: estimate(now, pair.map(|at| &alone[at].1.cost)) });
            }
        }
    }
    all
}

/// True if a planned pair is listed: it fits where no change alone does, or it is better than each of its two.
pub(super) fn is_worth_both(now: &Cost, both: &Cost, pair: &Pair, alone: &[(Edit, Advice)]) -> bool {
    (is_needed(now, alone) && both.fits) || is_better(now, both, pair.map(|at| &alone[at].1.cost))
}

/// True if the program does not fit, with no change that leaves it the same task.
fn is_needed(now: &Cost, alone: &[(Edit, Advice)]) -> bool {
    !now.fits && !alone.iter().any(|(edit, advice)| edit.keeps_the_task() && advice.cost.fits)
}

/// True if two changes save more bytes for each percent of time than each of them, or more time than each of them and some bytes.
fn is_better(now: &Cost, both: &Cost, each: [&Cost; 2]) -> bool {
    let saves_time = |one: &&Cost| both.added_time(now) < one.added_time(now) - LEAST_TIME;
    both.saved(now) > 0 && (each.iter().all(|one| both.worth(now) > one.worth(now)) || each.iter().all(saves_time))
}

/// Returns the estimated cost of two changes.
fn estimate(now: &Cost, [a, b]: [&Cost; 2]) -> Cost {
    let scaled = |now: f64, a: f64, b: f64| if now > 0.0 { a * b / now } else { a.max(b) };
    let mut budget = now.budget;
    let mut total: f64 = 0.0;
    for line in Line::parts() {
        total += scaled(now.budget[line] as f64, a.budget[line] as f64, b.budget[line] as f64);
    }
    let beside = now.total() - now.budget[Line::Arena];
    budget.lines[Line::Arena as usize] = total as u64;
    budget.lines[Line::Total as usize] = (total as u64).saturating_add(beside);
    let bus_ms = (a.bus_ms + b.bus_ms - now.bus_ms).max(0.0);
    Cost { budget, ms: scaled(now.ms, a.ms, b.ms), bus_ms, ..*now }
}
