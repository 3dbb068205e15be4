use super::{Cell, Recurrence};
use crate::number::Role;
use crate::program::cache_entry::CacheEntry;
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Rule, Work, Workspace};
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Some time steps of a recurrent layer after those of earlier calls. It is the decoding form of a [`Recurrence`] of one direction.
    ///
    /// * Inputs: those of one direction of a [`Recurrence`].
    /// * Caches the outputs of the last two time steps of every sample, `[2, outputs]`, time step `t` in row `t % 2`, and of an LSTM `c`,
    ///   `[1, H]` in f32. The state says how many time steps came before, and how many of this call's belong to the sequence. The others give 0.
    /// * It runs in inference only, so it has no gradient.
    pub struct CachedRecurrence {
        /// The cell.
        pub cell: Cell,
        /// Time steps of this call.
        pub steps: u64,
        /// Hidden units.
        pub hidden: u64,
        /// Outputs of a time step: see [`Recurrence::outputs`].
        pub outputs: u64,
        /// True if there is a bias b.
        pub bias: bool,
    }
}

impl CachedRecurrence {
    /// Returns the layer as if the time steps of this call were the whole sequence.
    pub fn whole(&self) -> Recurrence {
        let CachedRecurrence { cell, steps, hidden, outputs, bias } = *self;
        Recurrence { cell, steps, hidden, outputs, directions: 1, bias, cudnn: false }
    }
}

impl Rule for CachedRecurrence {
    fn output(&self) -> Shape {
        Shape::new(&[self.steps, self.outputs])
    }

    fn gradients(&self) -> Vec<Gradient> {
        Vec::new()
    }

    /// Returns memory for the input of W_r, of one time step.
    fn workspace(&self, work: Work) -> Option<Workspace> {
        let needed = self.whole().is_projected() && work == Work::Inference;
        let shape = Shape::new(&[1, self.hidden]);
        needed.then_some(Workspace { role: Role::Statistic, shape, batched: true })
    }

    /// Returns entries for two rows of outputs, since a time step must not overwrite the one before while it is computed.
    fn caches(&self) -> Vec<CacheEntry> {
        let mut caches = vec![CacheEntry::state("cached_outputs", &[2, self.outputs], Role::Activation)];
        if self.cell == Cell::Lstm {
            caches.push(CacheEntry::state("cached_cells", &[1, self.hidden], Role::Statistic));
        }
        caches
    }

    fn is_positioned(&self) -> bool {
        true
    }

    fn macs(&self) -> u64 {
        self.whole().macs()
    }

    /// Returns none: the operation that it decodes for has the assertions.
    fn edges(&self, _inputs: &[Shape]) -> Vec<Edge> {
        Vec::new()
    }
}
