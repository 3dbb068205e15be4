//! The ranks that share a network's training steps.

use crate::error::Error;
use crate::network::Network;
use crate::run::device::{Device, Runner};
use crate::run::net::Net;

impl<N: Network, D: Device> Net<N, D> {
    /// Returns the number of this rank, from 0: 0 without other ranks.
    pub fn rank(&self) -> usize {
        self.runner.rank()[0] as usize
    }

    /// Returns the number of ranks that share the training steps: 1 without other ranks.
    pub fn ranks(&self) -> usize {
        self.runner.rank()[1] as usize
    }

    /// Returns true on all ranks if `condition` is true on one of them, such as a request to stop. All ranks call it.
    ///
    /// # Errors
    /// [`Error::Ranks`] if another rank has stopped or does not answer.
    pub fn any_rank(&mut self, condition: bool) -> Result<bool, Error> {
        self.runner.any_rank(condition)
    }
}
