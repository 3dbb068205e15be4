use super::SelectiveScan;
use crate::number::Role;
use crate::program::encoding::record;
use crate::program::kept::Kept;
use crate::program::op::{Edge, Gradient, Rule};
use crate::shape::{Shape, product};
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// The selective scan of some steps of a sequence behind those before: what [`SelectiveScan`] is where a sequence is not there at once.
    ///
    /// * Inputs: those of [`SelectiveScan`].
    /// * Keeps the states `[channels, N]` of every sample, in f32. The network's state says how many steps went before, and how many of
    ///   those at hand are of the sequence: the states go as far as these, and what lies behind them gives 0. Where no step went before,
    ///   states begin with 0 whatever is kept.
    /// * It runs without training only, so it has no gradient.
    pub struct CachedScan {
        /// Steps at hand.
        pub steps: u64,
        /// Elements of a step.
        pub channels: u64,
        /// States of a channel: N.
        pub states: u64,
    }
}

impl CachedScan {
    /// The scan of as many steps as are at hand.
    pub fn scan(&self) -> SelectiveScan {
        let CachedScan { steps, channels, states } = *self;
        SelectiveScan { steps, channels, states }
    }
}

impl Rule for CachedScan {
    const NAME: &'static str = "CachedScan";

    fn output(&self) -> Shape {
        Shape::new(&[self.steps, self.channels])
    }

    fn gradients(&self) -> Vec<Gradient> {
        Vec::new()
    }

    fn caches(&self) -> Vec<Kept> {
        vec![Kept::state("cached_states", &[self.channels, self.states], Role::Statistic)]
    }

    fn is_positioned(&self) -> bool {
        true
    }

    fn macs(&self) -> u64 {
        product(&[self.steps, self.channels, self.states])
    }

    /// The assertions are those of the operation that it stands for.
    fn edges(&self, _inputs: &[Shape]) -> Vec<Edge> {
        Vec::new()
    }
}
