mod cached;

pub use cached::CachedScan;

use crate::number::Role;
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Inputs, Op, Reads, Rule, Sequence, Work, Workspace};
use crate::shape::{Shape, product};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// The selective scan of a state space model. Each channel has N states of its own, with h = 0 before the first time step:
    /// `h[t] = exp(delta[t] A) h[t - 1] + delta[t] u[t] B[t]`, `y[t] = C[t] . h[t] + D u[t]`, with `A = -exp(A_log)`.
    ///
    /// * Inputs: u `[T, channels]`, delta `[T, channels]`, A_log `[channels, N]`, B `[T, N]`, C `[T, N]`, D `[channels]`.
    /// * Saves nothing: states are in registers, and no tensor has one for each time step.
    /// * The gradients read the inputs and are computed together. They recompute the states, first those at the beginning of each
    ///   [`CHUNK`](SelectiveScan::CHUNK), then chunk by chunk from the last to the first.
    pub struct SelectiveScan {
        /// Time steps of the sequence: T.
        pub steps: u64,
        /// Channels of a time step.
        pub channels: u64,
        /// States of a channel: N.
        pub states: u64,
    }
}

impl SelectiveScan {
    /// Most states of a channel.
    pub const MOST_STATES: u64 = 128;

    /// Time steps whose states a backward pass has in memory at a time.
    pub const CHUNK: u64 = 16;

    /// Channels over which a backward pass sums the gradients of B and C at once. It then adds up these sums.
    pub const GROUP: u64 = 32;

    /// Indices of the inputs that have a gradient: all of them.
    const ALL: [u8; 6] = [0, 1, 2, 3, 4, 5];

    /// Returns the number of chunks of time steps.
    pub fn chunks(&self) -> u64 {
        self.steps.div_ceil(Self::CHUNK)
    }

    /// Returns the number of groups of channels.
    pub fn groups(&self) -> u64 {
        self.channels.div_ceil(Self::GROUP)
    }

    /// Returns the elements of a sample's scratch in the backward pass. They are the states before each chunk, each group's sums of the
    /// gradients of B and C, and the sample's share of those of A_log and of D.
    pub fn rooms(&self) -> [u64; 4] {
        let states = product(&[self.channels, self.states]);
        [
            product(&[self.chunks(), states]),
            product(&[2, self.groups(), self.steps, self.states]),
            states,
            self.channels,
        ]
    }

    /// True if there are time steps and channels, and at least 1 and at most [`SelectiveScan::MOST_STATES`] states.
    pub fn is_sound(&self) -> bool {
        self.steps > 0 && self.channels > 0 && (1..=Self::MOST_STATES).contains(&self.states)
    }
}

impl Rule for SelectiveScan {
    fn output(&self) -> Shape {
        Shape::new(&[self.steps, self.channels])
    }

    fn gradients(&self) -> Vec<Gradient> {
        let reads = Reads { inputs: Inputs::of(&Self::ALL), ..Reads::NOTHING };
        vec![Gradient::computed(&Self::ALL.map(|input| (input, reads)))]
    }

    fn workspace(&self, work: Work) -> Option<Workspace> {
        match work {
            Work::Training | Work::Inference => None,
            Work::Gradient(_) => {
                let elements = self.rooms().into_iter().fold(0, u64::saturating_add);
                Some(Workspace { role: Role::Statistic, shape: Shape::new(&[elements]), batched: true })
            }
        }
    }

    /// Counts the products of C and the states, which PyTorch computes as a matrix product.
    fn macs(&self) -> u64 {
        product(&[self.steps, self.channels, self.states])
    }

    /// Decodes the inputs that differ between time steps; all time steps share A_log and D.
    fn stepped(&self, sequence: &Sequence<'_>) -> Result<(Op, usize), String> {
        let SelectiveScan { channels, states, .. } = *self;
        match sequence.axes {
            [Some(0), Some(0), None, Some(0), Some(0), None] => {
                Ok((CachedScan { steps: sequence.chunk, channels, states }.into(), 0))
            }
            _ => Err(Sequence::refusal()),
        }
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        vec![Edge { rule: "SelectiveScan", arguments: Vec::new(), inputs: inputs.to_vec(), output: self.output() }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A damaged program may have any numbers.
    #[test]
    fn numbers_that_do_not_fit_are_not_sound() {
        let op = SelectiveScan { steps: 33, channels: 40, states: 16 };
        assert!(op.is_sound());
        assert_eq!((op.chunks(), op.groups(), op.macs()), (3, 2, 33 * 40 * 16));
        assert_eq!(op.rooms(), [3 * 40 * 16, 2 * 2 * 33 * 16, 40 * 16, 40]);
        for changed in [
            SelectiveScan { steps: 0, ..op.clone() },
            SelectiveScan { channels: 0, ..op.clone() },
            SelectiveScan { states: 0, ..op.clone() },
            SelectiveScan { states: 129, ..op.clone() },
        ] {
            assert!(!changed.is_sound(), "{changed:?}");
        }
        let large = SelectiveScan { steps: u64::MAX, channels: u64::MAX, states: u64::MAX };
        assert_eq!(large.workspace(Work::Gradient(0)).unwrap().shape, Shape::new(&[u64::MAX]));
    }
}
