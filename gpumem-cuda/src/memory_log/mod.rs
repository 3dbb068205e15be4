//! Measurements of the bytes that loading a network takes of a card, stage by stage, and their record on disk.
//!
//! Free memory is read before and after each stage. Other processes take and free memory of the same card meanwhile, which counts too. Therefore
//!
//! * a measurement is discarded if memory became free in one of the stages, or if the arena's measured size is wrong by more than a page of the
//!   driver: another process was active;
//! * if NVML lists this process, the sum is NVML's bytes of this process, which exclude those of others;
//! * of several measurements the smallest is kept, since another process that takes memory makes a measurement larger.
//!
//! Without NVML, another process that frees a little while a stage takes more is not detected. The figure is then too small, and loading may fail
//! instead of being refused. A figure with which that happened is removed.
//!
//! Only the first network of a process is measured, and only if the context was made here. The libraries keep what they load for one network, so a
//! later network would seem to take less.

mod record;

use crate::card::Card;
use crate::libraries::nvml::Nvml;
use gpumem_core::error::Error;
#[doc(hidden)]
pub use record::reread;
pub(crate) use record::{ContextBytes, Records, network};

/// The size of the driver's memory pages, in bytes.
const PAGE: u64 = 2 << 20;

/// Bytes that the stages of loading a network took of a card, in order. The context exists before the first stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stages {
    /// Bytes of the one allocation, rounded up to the driver's pages.
    pub arena: u64,
    /// Bytes of the handles of cuBLASLt and cuDNN.
    pub handles: u64,
    /// Bytes of the kernels that the libraries loaded for the network's products and convolutions, each of which is tried once.
    pub trials: u64,
    /// Bytes of the network's own kernels, and of streams and events.
    pub modules: u64,
    /// Bytes of the graphs.
    pub graphs: u64,
    /// Bytes of all of these together as NVML counts this process; `None` where NVML does not list it.
    pub process: Option<u64>,
}

impl Stages {
    /// Returns the bytes outside the arena and the context.
    pub fn beside(&self) -> u64 {
        let stages = [self.trials, self.modules, self.graphs].into_iter().fold(self.handles, u64::saturating_add);
        self.process.map_or(stages, |process| process.saturating_sub(self.arena))
    }

    /// Returns the better of two measurements of one network: see the head of this file.
    pub(crate) fn better(self, other: Stages) -> Stages {
        match (self.process, other.process) {
            (Some(_), None) => self,
            (None, Some(_)) => other,
            _ if self.beside() <= other.beside() => self,
            _ => other,
        }
    }
}

/// A stage of loading a network.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stage {
    Arena,
    Handles,
    Trials,
    Modules,
    Graphs,
}

/// A meter that measures each stage when it ends.
#[derive(Debug)]
pub(crate) struct Meter<'a> {
    card: &'a Card,
    nvml: Option<Nvml>,
    /// Bytes of this process before the first stage; `None` if NVML does not list it.
    own: Option<u64>,
    /// Bytes that were free when the last stage ended.
    free: u64,
    /// Bytes by which free memory shrank in each stage.
    taken: [i64; 5],
}

impl<'a> Meter<'a> {
    pub(crate) fn start(card: &'a Card) -> Result<Meter<'a>, Error> {
        let nvml = Nvml::open();
        let own = own(nvml.as_ref(), card);
        Ok(Meter { card, nvml, own, free: card.memory()?.0, taken: [0; 5] })
    }

    /// Assigns the bytes taken since the previous stage ended to this stage.
    pub(crate) fn ended(&mut self, stage: Stage) -> Result<(), Error> {
        let (free, _) = self.card.memory()?;
        self.taken[stage as usize] += self.free.cast_signed().wrapping_sub(free.cast_signed());
        self.free = free;
        Ok(())
    }

    /// Returns the stages of a network with an arena of `arena` bytes; `None` if another process was active meanwhile.
    pub(crate) fn stages(&self, arena: u64) -> Option<Stages> {
        let now = own(self.nvml.as_ref(), self.card);
        let process = self.own.zip(now).map(|(before, now)| now.saturating_sub(before));
        plausible(self.taken, process, arena)
    }
}

fn own(nvml: Option<&Nvml>, card: &Card) -> Option<u64> {
    nvml?.card(card.uuid?)?.own()
}

fn plausible(taken: [i64; 5], process: Option<u64>, arena: u64) -> Option<Stages> {
    let bytes = |stage: Stage| u64::try_from(taken[stage as usize]).ok();
    let stages = Stages {
        arena: bytes(Stage::Arena)?,
        handles: bytes(Stage::Handles)?,
        trials: bytes(Stage::Trials)?,
        modules: bytes(Stage::Modules)?,
        graphs: bytes(Stage::Graphs)?,
        process,
    };
    // Less than a page may come from one that was allocated before.
    let is_alone = stages.arena.abs_diff(arena) <= PAGE && process.is_none_or(|process| process >= stages.arena);
    is_alone.then_some(stages)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn mib(stages: [i64; 5]) -> [i64; 5] {
        stages.map(|mib| mib << 20)
    }

    #[test]
    fn a_neighbour_that_shows_spoils_a_measurement() {
        let alone = plausible(mib([100, 20, 30, 5, 4]), None, 99 * MIB).unwrap();
        assert_eq!(alone.beside(), 59 * MIB);
        assert_eq!(plausible(mib([100, 20, -1, 5, 4]), None, 99 * MIB), None, "memory became free");
        assert_eq!(plausible(mib([100, 20, 30, 5, 4]), None, 97 * MIB), None, "the arena is larger than it is");
        assert_eq!(plausible(mib([96, 20, 30, 5, 4]), None, 99 * MIB), None, "the arena is smaller than it is");
        assert_eq!(plausible(mib([100, 20, 30, 5, 4]), Some(90 * MIB), 99 * MIB), None, "NVML has not caught up");
    }

    #[test]
    fn nvml_is_believed_before_differences_of_free_memory() {
        let own = plausible(mib([100, 20, 300, 5, 4]), Some(160 * MIB), 99 * MIB).unwrap();
        assert_eq!(own.beside(), 60 * MIB);
        let difference = plausible(mib([100, 1, 1, 1, 1]), None, 99 * MIB).unwrap();
        assert_eq!(own.better(difference), own);
        assert_eq!(difference.better(own), own);
    }

    #[test]
    fn the_smaller_one_of_two_measurements_is_kept() {
        let small = plausible(mib([100, 20, 30, 5, 4]), None, 99 * MIB).unwrap();
        let large = plausible(mib([100, 20, 90, 5, 4]), None, 99 * MIB).unwrap();
        assert_eq!(small.better(large), small);
        assert_eq!(large.better(small), small);
    }
}
