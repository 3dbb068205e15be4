//! Live ranges of a step's tensors, as far as neither batch nor number format change them. These are the sizes that tensors share, and the
//! operations that can be the peak.

use super::plan::sorted;
use super::tables::{Size, Transient, Transients, life};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// The most operations that one is compared with, latest first. An operation that can be the peak is near similar ones.
const NEAR: usize = 64;

/// The contents of a [`Transients`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnedTransients {
    /// See [`Transients::sizes`].
    pub sizes: Vec<Size>,
    /// See [`Transients::lives`].
    pub lives: Vec<u64>,
    /// See [`Transients::moments`].
    pub moments: Vec<[u32; 2]>,
    /// See [`Transients::changes`].
    pub changes: Vec<[i32; 2]>,
}

impl OwnedTransients {
    /// Returns the tables of these tensors, each with a flag that is true for a workspace.
    pub fn new(tensors: impl IntoIterator<Item = (Transient, bool)>) -> OwnedTransients {
        let mut owned = OwnedTransients::default();
        let mut known: BTreeMap<[u64; 5], usize> = BTreeMap::new();
        let mut lives = Vec::new();
        for (index, (tensor, is_workspace)) in tensors.into_iter().enumerate() {
            let [role, fixed, per_sample, gaps, first, last] = tensor;
            let is_workspace = u64::from(is_workspace);
            let size = *known.entry([role, fixed, per_sample, gaps, is_workspace]).or_insert(owned.sizes.len());
            if size == owned.sizes.len() {
                owned.sizes.push([role, fixed, per_sample, gaps, index as u64, is_workspace]);
            }
            owned.lives.push(life(size as u64, first, last));
            lives.push((size, first, last.max(first)));
        }
        let mut before = vec![0; owned.sizes.len()];
        for Candidate { operation, alive, .. } in peaks(&lives, owned.sizes.len(), NEAR) {
            add_changes(&before, &alive, &mut owned.changes);
            owned.moments.push([operation, owned.changes.len() as u32]);
            before = alive;
        }
        owned
    }

    /// Returns the tables as const evaluation reads them. No order of addresses is known.
    pub fn as_transients(&self) -> Transients<'_> {
        let OwnedTransients { sizes, lives, moments, changes } = self;
        Transients { sizes, lives, moments, changes, orders: &[], below: &[] }
    }
}

/// Adds the sizes of which more or fewer tensors are alive now than before, with the difference.
///
/// Like the loops below, it is written out: a macro runs them unoptimised, for each size at each operation that may be the peak.
fn add_changes(before: &[i32], now: &[i32], changes: &mut Vec<[i32; 2]>) {
    let mut size = 0;
    while size < now.len() {
        if now[size] != before[size] {
            changes.push([size as i32, now[size] - before[size]]);
        }
        size += 1;
    }
}

/// Returns the number of sizes of which more tensors are alive there than now, and of which fewer.
fn compared(there: &[i32], now: &[i32]) -> [usize; 2] {
    let (mut more, mut fewer, mut size) = (0, 0, 0);
    while size < now.len() {
        if there[size] > now[size] {
            more += 1;
        } else if there[size] < now[size] {
            fewer += 1;
        }
        size += 1;
    }
    [more, fewer]
}

/// An operation that may be the peak.
struct Candidate {
    operation: u32,
    /// The number of live tensors of each size at this operation.
    alive: Vec<i32>,
    /// The number of sizes of which more tensors are alive now, and of which fewer. They are not counted for candidates that are not among the
    /// latest.
    more: usize,
    fewer: usize,
}

/// The candidates that a sweep has found.
struct Candidates {
    kept: Vec<Candidate>,
    /// The number of tensors of each size that are alive now.
    alive: Vec<i32>,
    /// The most candidates that are compared, latest first.
    near: usize,
}

impl Candidates {
    /// Returns the index of the first of the latest candidates.
    fn latest(&self) -> usize {
        self.kept.len().saturating_sub(self.near)
    }

    /// Adds one tensor of a size, or removes one.
    fn change(&mut self, size: usize, by: i32) {
        let (from, latest) = (self.alive[size], self.latest());
        self.alive[size] += by;
        let kept = &mut self.kept[latest..];
        let mut i = 0;
        while i < kept.len() {
            let Candidate { alive, more, fewer, .. } = &mut kept[i];
            let there = alive[size];
            if there == from {
                *(if by > 0 { more } else { fewer }) += 1;
            } else if there == from + by {
                *(if by > 0 { fewer } else { more }) -= 1;
            }
            i += 1;
        }
    }

    /// Adds an operation, unless a near candidate has at least as much alive. Near candidates that have less are dropped.
    fn keep(&mut self, operation: u32) {
        let latest = self.latest();
        if self.kept[latest..].iter().any(|candidate| candidate.more == 0) {
            return;
        }
        let mut index = 0;
        self.kept.retain(|candidate| {
            index += 1;
            index <= latest || candidate.fewer > 0
        });
        self.kept.push(Candidate { operation, alive: self.alive.clone(), more: 0, fewer: 0 });
        // Candidates that are among the latest again were not counted for a while.
        let again = self.latest();
        for Candidate { alive, more, fewer, .. } in self.kept.iter_mut().take(latest).skip(again) {
            [*fewer, *more] = compared(alive, &self.alive);
        }
    }
}

/// Returns operations of which one is the peak, whatever the sizes are. An operation is left out if one of the `near` latest has as many or more
/// live tensors of every size.
fn peaks(lives: &[(usize, u64, u64)], sizes: usize, near: usize) -> Vec<Candidate> {
    let begins = sorted(lives.iter().map(|life| life.1));
    let ends = sorted(lives.iter().map(|life| life.2));
    let mut ended = ends.into_iter().map(|tensor| lives[tensor as usize]).peekable();
    let mut begun = begins.into_iter().map(|tensor| lives[tensor as usize]).peekable();
    let mut candidates = Candidates { kept: Vec::new(), alive: vec![0; sizes], near };
    while let Some((size, operation, _)) = begun.next() {
        // Live bytes grow only where a tensor begins, and what has ended by then is gone.
        while let Some((size, _, _)) = ended.next_if(|life| life.2 < operation) {
            candidates.change(size, -1);
        }
        candidates.change(size, 1);
        // While nothing ends, a later operation has all that this one has.
        let next = begun.peek().map(|life| life.1);
        let grows = next.is_some_and(|next| next == operation || ended.peek().is_none_or(|life| life.2 >= next));
        if !grows {
            candidates.keep(operation as u32);
        }
    }
    candidates.kept
}

#[cfg(test)]
mod tests {
    use super::super::plan::{LiveRange, pack_slice};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_sizes_are_one_and_what_cannot_be_the_peak_is_left_out() {
        // A workspace next to the first tensor, then three of which two are alike, then one at which less is alive than before.
        let tensors = [
            ([0, 0, 8, 0, 0, 5], false),
            ([4, 16, 0, 0, 0, 0], true),
            ([0, 0, 8, 0, 1, 2], false),
            ([0, 9, 0, 0, 2, 2], false),
            ([0, 0, 8, 0, 4, 5], false),
        ];
        let owned = OwnedTransients::new(tensors);
        assert_eq!(owned.sizes, [[0, 0, 8, 0, 0, 0], [4, 16, 0, 0, 1, 1], [0, 9, 0, 0, 3, 0]]);
        assert_eq!(owned.lives[2], life(0, 1, 2));
        assert_eq!(owned.moments, [[0, 2], [2, 5]]);
        assert_eq!(owned.changes, [[0, 1], [1, 1], [0, 1], [1, -1], [2, 1]]);
    }

    proptest! {
        /// Holds however few are compared, so that candidates are among the latest, are not, and are again.
        #[test]
        fn what_is_left_out_has_less_than_something_that_is_kept(
            lives in prop::collection::vec((0usize..3, 0u64..60, 0u64..8), 1..120),
            near in 1usize..4,
        ) {
            let lives: Vec<(usize, u64, u64)> =
                lives.into_iter().map(|(size, first, more)| (size, first, first + more)).collect();
            let alive_at = |at: u64| {
                let mut alive = vec![0; 3];
                lives.iter().filter(|life| life.1 <= at && at <= life.2).for_each(|life| alive[life.0] += 1);
                alive
            };
            let covers = |more: &[i32], less: &[i32]| more.iter().zip(less).all(|(more, less)| more >= less);
            let kept = peaks(&lives, 3, near);
            for candidate in &kept {
                prop_assert_eq!(&candidate.alive, &alive_at(u64::from(candidate.operation)));
            }
            for at in 0..70 {
                let alive = alive_at(at);
                prop_assert!(kept.iter().any(|candidate| covers(&candidate.alive, &alive)), "{at}: {alive:?}");
            }
        }

        /// Counts of the latest candidates are what a comparison finds, even after they were not among them for a while.
        #[test]
        fn the_latest_are_counted(
            steps in prop::collection::vec((0usize..3, any::<bool>(), any::<bool>()), 1..100),
            near in 1usize..4,
        ) {
            let mut candidates = Candidates { kept: Vec::new(), alive: vec![0; 3], near };
            for (operation, (size, begins, is_kept)) in (0..).zip(steps) {
                candidates.change(size, if begins || candidates.alive[size] == 0 { 1 } else { -1 });
                if is_kept {
                    candidates.keep(operation);
                }
                for Candidate { alive, more, fewer, .. } in &candidates.kept[candidates.latest()..] {
                    let pairs = || alive.iter().zip(&candidates.alive);
                    prop_assert_eq!(*more, pairs().filter(|(there, now)| now > there).count());
                    prop_assert_eq!(*fewer, pairs().filter(|(there, now)| now < there).count());
                }
            }
        }

        /// An operation that is left out is never the peak, whatever the batch.
        #[test]
        fn the_peak_is_that_of_the_sweep(
            tensors in prop::collection::vec((0u64..4, 0u64..3, 0u64..3, 0u64..60, 0u64..30), 1..80),
            batch in 0u64..40,
        ) {
            let tensors: Vec<Transient> =
                tensors.into_iter().map(|(role, fixed, each, first, more)| [role, fixed, each, each & 1, first, first + more]).collect();
            let bytes = |&[role, fixed, each, gaps, _, _]: &Transient| 256 * (role + 1) * (fixed + (each + gaps) * batch);
            let range = |tensor: &Transient| LiveRange { bytes: bytes(tensor), first: tensor[4] as u32, last: tensor[5] as u32 };
            let ranges: Vec<LiveRange> = tensors.iter().map(range).collect();
            let expected = pack_slice(&ranges).unwrap();
            let owned = OwnedTransients::new(tensors.iter().map(|&tensor| (tensor, false)));
            let sizes: Vec<u64> =
                owned.sizes.iter().map(|&[role, fixed, each, gaps, _, _]| bytes(&[role, fixed, each, gaps, 0, 0])).collect();
            let (most, at) = owned.as_transients().peak(&sizes).unwrap();
            prop_assert_eq!(most, expected.lower_bound);
            let alive = ranges.iter().filter(|range| range.first <= at && at <= range.last);
            prop_assert_eq!(alive.map(|range| range.bytes).sum::<u64>(), most);
        }
    }
}
