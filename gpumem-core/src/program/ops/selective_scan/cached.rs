use super::SelectiveScan;
use crate::number::Role;
use crate::program::cache_entry::CacheEntry;
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Rule};
use crate::shape::{Shape, product};
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// The selective scan of some time steps after those of earlier calls. It is the decoding form of [`SelectiveScan`].
    ///
    /// * Inputs: those of [`SelectiveScan`].
    /// * Caches the states `[channels, N]` of every sample, in f32. The network's state says how many time steps came before, and how many
    ///   of this call's belong to the sequence. The scan stops after these, and the others give 0. If no time step came before, the scan
    ///   begins with 0, whatever the cache holds.
    /// * It runs in inference only, so it has no gradient.
    pub struct CachedScan {
        /// Time steps of this call.
        pub steps: u64,
        /// Channels of a time step.
        pub channels: u64,
        /// States of a channel: N.
        pub states: u64,
    }
}

impl CachedScan {
    /// Returns the scan of this call's time steps.
    pub fn scan(&self) -> SelectiveScan {
        let CachedScan { steps, channels, states } = *self;
        SelectiveScan { steps, channels, states }
    }
}

impl Rule for CachedScan {
    fn output(&self) -> Shape {
        Shape::new(&[self.steps, self.channels])
    }

    fn gradients(&self) -> Vec<Gradient> {
        Vec::new()
    }

    fn caches(&self) -> Vec<CacheEntry> {
        vec![CacheEntry::state("cached_states", &[self.channels, self.states], Role::Statistic)]
    }

    fn is_positioned(&self) -> bool {
        true
    }

    fn macs(&self) -> u64 {
        product(&[self.steps, self.channels, self.states])
    }

    /// Returns none: the operation that it decodes for has the assertions.
    fn edges(&self, _inputs: &[Shape]) -> Vec<Edge> {
        Vec::new()
    }
}
