//! The facts that must be equal on all ranks of a training step, compared when a network is loaded.

use crate::error::Error;
use crate::memory::place::Placed;
use crate::memory::record::digest;
use crate::run::device::{Fact, Job};
use crate::train::Train;
use alloc::format;
use alloc::vec::Vec;

/// Returns the facts about a network that trains on several ranks. Empty for one rank, and for a network without training.
///
/// Ranks with other facts would send each other tensors of other sizes, or draw other numbers, and nothing would say so.
pub(super) fn facts<'t>(job: &Job, trainings: impl Iterator<Item = &'t Train>) -> Vec<Fact> {
    let is_shared = |step: &Placed| !step.program.descent.ranks.is_alone();
    if !job.trainings().any(is_shared) {
        return Vec::new();
    }
    let steps: Vec<&Placed> = job.trainings().chain([&job.infer]).collect();
    let programs: Vec<u8> = steps.iter().flat_map(|step| step.program.encode()).collect();
    let mut places = Vec::from(job.arena.to_le_bytes());
    for step in steps {
        let masters = step.masters.iter().map(|master| master.unwrap_or(u64::MAX));
        places.extend(step.offsets.iter().chain(&step.bytes).copied().chain(masters).flat_map(u64::to_le_bytes));
    }
    // Cards do not change what a step computes.
    let settings: Vec<Train> = trainings.map(|train| Train { cards: &[], headroom: 0, ..*train }).collect();
    let settings = format!("{settings:?} {:?}", job.precision);
    [
        ("version of gpumem", env!("CARGO_PKG_VERSION").as_bytes()),
        ("program", &*programs),
        ("memory plan", &*places),
        ("settings in `TRAIN`", settings.as_bytes()),
    ]
    .map(|(name, bytes)| Fact { name, digest: digest(bytes) })
    .into()
}

/// Compares the facts of this rank with the digests of all ranks, in the order of ranks.
///
/// # Errors
/// [`Error::Ranks`] with the first rank that differs from rank 0, and the facts in which it does. It is equal on all ranks.
pub fn compare(facts: &[Fact], all: &[Vec<u64>]) -> Result<(), Error> {
    let Some((first, others)) = all.split_first() else { return Ok(()) };
    let Some(at) = others.iter().position(|other| other != first) else { return Ok(()) };
    let names: Vec<&str> = facts
        .iter()
        .enumerate()
        .filter(|&(fact, _)| first.get(fact) != others[at].get(fact))
        .map(|(_, fact)| fact.name)
        .collect();
    let what = format!("differs from rank 0 in its {}; start one and the same program on all ranks", names.join(", "));
    Err(Error::Ranks { rank: at as u64 + 1, what })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    #[test]
    fn the_first_rank_that_differs_is_named() {
        let facts = ["program", "settings"].map(|name| Fact { name, digest: 7 });
        assert_eq!(compare(&facts, &[]), Ok(()));
        assert_eq!(compare(&facts, &[vec![7, 7], vec![7, 7], vec![7, 7]]), Ok(()));
        let said = |all: &[Vec<u64>]| compare(&facts, all).unwrap_err().to_string();
        let then = "; start one and the same program on all ranks";
        assert_eq!(
            said(&[vec![7, 7], vec![7, 7], vec![7, 8], vec![9, 9]]),
            format!("rank 2 differs from rank 0 in its settings{then}")
        );
        assert_eq!(
            said(&[vec![7, 7], vec![9, 9]]),
            format!("rank 1 differs from rank 0 in its program, settings{then}")
        );
    }
}
