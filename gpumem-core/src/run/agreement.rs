//! The facts that must be equal on all ranks of a training step, compared when a network is loaded.

use crate::error::Error;
use crate::memory::place::Placed;
use crate::memory::record::digest;
use crate::run::device::{Fact, Job};
use crate::train::Train;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

/// Words that a rank sends, two for each fact. There is room for more facts, so that versions with others exchange as many words.
const WORDS: usize = 16;

/// Returns a digest of the settings of training steps: [`Job::settings`].
pub(super) fn settings<'t>(trainings: impl Iterator<Item = &'t Train>) -> u64 {
    // Cards do not change what a step computes.
    let settings: Vec<Train> = trainings.map(|train| Train { cards: &[], headroom: 0, ..*train }).collect();
    digest(format!("{settings:?}").as_bytes())
}

impl Fact {
    /// Returns the fact with this name, to be read after *its*, that says `bytes`.
    pub fn new(name: &'static str, bytes: &[u8]) -> Fact {
        Fact { name, digest: digest(bytes) }
    }
}

impl Job {
    /// Returns the facts that must be equal on all ranks. Empty for a network that no other rank trains.
    ///
    /// Ranks with other facts would send each other tensors of other sizes, or draw other numbers, and nothing would say so. So a backend compares
    /// them with [`agree`] before ranks exchange anything else.
    pub fn facts(&self) -> Vec<Fact> {
        let is_shared = |step: &Placed| !step.program.descent.ranks.is_alone();
        if !self.trainings().any(is_shared) {
            return Vec::new();
        }
        let Job { arena, batch, precision, optimizer, tf32, deterministic, settings, .. } = self;
        let evaluations = self.evaluation.iter().chain(self.others.iter().map(|other| &other.evaluation));
        let steps: Vec<&Placed> = self.trainings().chain(evaluations).chain([&self.infer]).collect();
        let programs: Vec<u8> = steps.iter().flat_map(|step| step.program.encode()).collect();
        let mut places = Vec::from(arena.to_le_bytes());
        for step in steps {
            let masters = step.masters.iter().map(|master| master.unwrap_or(u64::MAX));
            places.extend(step.offsets.iter().chain(&step.bytes).copied().chain(masters).flat_map(u64::to_le_bytes));
        }
        let optimizers: Vec<_> = self.others.iter().map(|other| (other.batch, other.optimizer, other.tf32)).collect();
        let settings = format!("{settings} {batch} {precision:?} {optimizer:?} {tf32} {deterministic} {optimizers:?}");
        vec![
            Fact::new("version of gpumem", env!("CARGO_PKG_VERSION").as_bytes()),
            Fact::new("program", &programs),
            Fact::new("memory plan", &places),
            Fact::new("settings in `TRAIN`", settings.as_bytes()),
        ]
    }
}

/// Compares the facts of this rank with those of all ranks. `gather` gets the words of this rank, and returns those of all, in the order of ranks.
///
/// # Errors
/// [`Error::Ranks`] on all ranks if one of them has other facts, and the errors of `gather`.
pub fn agree(facts: &[Fact], gather: impl FnOnce(&[u32]) -> Result<Vec<u32>, Error>) -> Result<(), Error> {
    let mut own = [0; WORDS];
    for (words, fact) in own.as_chunks_mut::<2>().0.iter_mut().zip(facts) {
        *words = [fact.digest as u32, (fact.digest >> 32) as u32];
    }
    let all = gather(&own)?;
    let number = |&[low, high]: &[u32; 2]| u64::from(low) | u64::from(high) << 32;
    let of_rank = |words: &[u32; WORDS]| words.as_chunks::<2>().0.iter().map(number).collect();
    compare(facts, &all.as_chunks::<WORDS>().0.iter().map(of_rank).collect::<Vec<Vec<u64>>>())
}

/// Compares the facts of this rank with the digests of all ranks, in the order of ranks.
///
/// # Errors
/// [`Error::Ranks`] with the first rank that differs from rank 0, and the facts in which it does. It is equal on all ranks.
fn compare(facts: &[Fact], all: &[Vec<u64>]) -> Result<(), Error> {
    let Some((first, others)) = all.split_first() else { return Ok(()) };
    let Some(at) = others.iter().position(|other| other != first) else { return Ok(()) };
    let mut names: Vec<&str> = facts
        .iter()
        .enumerate()
        .filter(|&(fact, _)| first.get(fact) != others[at].get(fact))
        .map(|(_, fact)| fact.name)
        .collect();
    if names.is_empty() {
        // A fact that only another version of gpumem has.
        names.push("version of gpumem");
    }
    let what = format!(
        "differs from rank 0 in its {}; start one and the same program on all ranks, on devices of one kind",
        names.join(", ")
    );
    Err(Error::Ranks { rank: at as u64 + 1, what })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn the_first_rank_that_differs_is_named() {
        let facts = ["program", "settings"].map(|name| Fact { name, digest: 7 });
        assert_eq!(compare(&facts, &[]), Ok(()));
        assert_eq!(compare(&facts, &[vec![7, 7], vec![7, 7], vec![7, 7]]), Ok(()));
        let said = |all: &[Vec<u64>]| compare(&facts, all).unwrap_err().to_string();
        let then = "; start one and the same program on all ranks, on devices of one kind";
        assert_eq!(
            said(&[vec![7, 7], vec![7, 7], vec![7, 8], vec![9, 9]]),
            format!("rank 2 differs from rank 0 in its settings{then}")
        );
        assert_eq!(
            said(&[vec![7, 7], vec![9, 9]]),
            format!("rank 1 differs from rank 0 in its program, settings{then}")
        );
    }
    #[test]
    fn words_of_all_ranks_are_compared() {
        let facts = ["program", "settings"].map(|name| Fact::new(name, name.as_bytes()));
        let agreed = |change: &dyn Fn(&mut Vec<u32>)| {
            agree(&facts, |own| {
                let mut all = own.repeat(3);
                change(&mut all);
                Ok(all)
            })
        };
        assert_eq!(agreed(&|_| {}), Ok(()));
        // The high word of the second fact of the last rank, and a fact that this version does not have.
        for (at, names) in [(3, "settings"), (6, "version of gpumem")] {
            let error = agreed(&|all| all[2 * WORDS + at] ^= 1).unwrap_err().to_string();
            assert!(error.starts_with(&format!("rank 2 differs from rank 0 in its {names};")), "{error}");
        }
    }
}
