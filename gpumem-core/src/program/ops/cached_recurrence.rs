use super::{Cell, Recurrence};
use crate::number::Role;
use crate::program::encoding::record;
use crate::program::kept::Kept;
use crate::program::op::{Edge, Gradient, Rule, Work, Workspace};
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Some steps of a recurrent layer behind those before: what a [`Recurrence`] of one direction is where a sequence is not there at once.
    ///
    /// * Inputs: those of one direction of a [`Recurrence`].
    /// * Keeps the outputs of the last two steps of every sample, `[2, outputs]`, that of step `t` in row `t % 2`, and of an LSTM `c`, `[1, H]` in
    ///   f32. The state says how many steps went before, and how many of those at hand are of the sequence: what lies behind them gives 0.
    /// * It runs without training only, so it has no gradient.
    pub struct CachedRecurrence {
        /// What a step computes.
        pub cell: Cell,
        /// Steps at hand.
        pub steps: u64,
        /// Hidden units.
        pub hidden: u64,
        /// Numbers that a step puts out: see [`Recurrence::outputs`].
        pub outputs: u64,
        /// Whether there is a b.
        pub bias: bool,
    }
}

impl CachedRecurrence {
    /// The layer, as if the steps at hand were all.
    pub fn whole(&self) -> Recurrence {
        let CachedRecurrence { cell, steps, hidden, outputs, bias } = *self;
        Recurrence { cell, steps, hidden, outputs, directions: 1, bias, cudnn: false }
    }
}

impl Rule for CachedRecurrence {
    const NAME: &'static str = "CachedRecurrence";

    fn output(&self) -> Shape {
        Shape::new(&[self.steps, self.outputs])
    }

    fn gradients(&self) -> Vec<Gradient> {
        Vec::new()
    }

    /// What W_r multiplies, of one step.
    fn workspace(&self, work: Work) -> Option<Workspace> {
        let needed = self.whole().is_projected() && work == Work::Inference;
        let shape = Shape::new(&[1, self.hidden]);
        needed.then_some(Workspace { role: Role::Statistic, shape, batched: true })
    }

    /// While a step is computed, none of its outputs may take the place of one of the step before.
    fn caches(&self) -> Vec<Kept> {
        let mut caches = vec![Kept::state("cached_outputs", &[2, self.outputs], Role::Activation)];
        if self.cell == Cell::Lstm {
            caches.push(Kept::state("cached_cells", &[1, self.hidden], Role::Statistic));
        }
        caches
    }

    fn is_positioned(&self) -> bool {
        true
    }

    fn macs(&self) -> u64 {
        self.whole().macs()
    }

    /// The assertions are those of the operation that it stands for.
    fn edges(&self, _inputs: &[Shape]) -> Vec<Edge> {
        Vec::new()
    }
}
