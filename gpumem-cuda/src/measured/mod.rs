//! Bytes that loading a network took of a card, stage by stage, and what is kept of them on disk.
//!
//! Free memory is asked for before and after each stage. It is everybody's: what a neighbour takes or gives back meanwhile
//! counts too. Therefore
//!
//! * a measurement is thrown away where memory became free in one of the stages, or where the arena does not show as its own
//!   size to a page of the driver: somebody else was at work;
//! * where NVML lists this process, its own bytes are taken for the sum, in which nobody else has a part;
//! * of several measurements the smaller one is kept, since a neighbour that takes memory is only seen by what it adds.
//!
//! A neighbour that gives back a little while a stage takes more is not seen without NVML. The figure is then too small, and
//! loading may fail where it would have been refused; a figure with which that happened is forgotten.
//!
//! Only the first network of a process is measured, and only where the context was made here: what the libraries load for one
//! network stays for the next, which seems to take less.

mod record;

use crate::card::Card;
use crate::libraries::nvml::Nvml;
use gpumem_core::error::Error;
#[doc(hidden)]
pub use record::reread;
pub(crate) use record::{ContextBytes, Records, network};

/// The driver gives out memory in pages of this many bytes.
const PAGE: u64 = 2 << 20;

/// Bytes that the stages of loading a network took of a card, in their order. The context is there before the first.
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
    /// Bytes beside the arena and the context.
    pub fn beside(&self) -> u64 {
        let stages = [self.trials, self.modules, self.graphs].into_iter().fold(self.handles, u64::saturating_add);
        self.process.map_or(stages, |process| process.saturating_sub(self.arena))
    }

    /// The better one of two measurements of the same network: see the head of this file.
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

/// Measures stages as they end.
#[derive(Debug)]
pub(crate) struct Meter<'a> {
    card: &'a Card,
    nvml: Option<Nvml>,
    /// Bytes of this process before the first stage.
    own: Option<u64>,
    /// Bytes that were free when the last stage ended.
    free: u64,
    /// Bytes that became less free in each stage.
    taken: [i64; 5],
}

impl<'a> Meter<'a> {
    pub(crate) fn start(card: &'a Card) -> Result<Meter<'a>, Error> {
        let nvml = Nvml::open();
        let own = own(nvml.as_ref(), card);
        Ok(Meter { card, nvml, own, free: card.memory()?.0, taken: [0; 5] })
    }

    /// What has been taken since the last one ended belongs to this stage.
    pub(crate) fn ended(&mut self, stage: Stage) -> Result<(), Error> {
        let (free, _) = self.card.memory()?;
        self.taken[stage as usize] += self.free.cast_signed().wrapping_sub(free.cast_signed());
        self.free = free;
        Ok(())
    }

    /// All stages of a network with an arena of so many bytes; `None` if somebody else was at work meanwhile.
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
    // Less than a page may come from one that is there already.
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
