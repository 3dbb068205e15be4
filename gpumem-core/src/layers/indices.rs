//! Limits of the indices that operations compute.

use super::builder::{Builder, Value};
use super::mistake::Mistake;
use crate::graph::{NodeId, Source};
use crate::program::Op;
use alloc::format;
use alloc::string::String;

impl Builder<'_> {
    /// Returns what indices are below that are places along an axis. `None` of the user's, which are checked when they arrive.
    fn limit_of(&self, index: NodeId) -> Option<u64> {
        match &self.graph().nodes[index].source {
            Source::View(input) => self.limit_of(*input),
            Source::Op { op: Op::AsStrided(_), inputs, .. } => self.limit_of(*inputs.first()?),
            Source::Op { op: Op::TopK(found), .. } => Some(found.extents()[1]),
            Source::Op { op: Op::ArgMax(found), .. } => Some(found.count),
            _ => None,
        }
    }

    /// Returns what is wrong with looking something up among so many by indices that are places along a longer axis.
    fn beyond(&self, index: &Value, length: u64) -> Option<String> {
        let limit = self.limit_of(index.node).filter(|&limit| limit > length)?;
        Some(format!(
            "looks something up among {length} by places along an axis of {limit}; give both the same length, or cut the axis with `Slice`"
        ))
    }

    /// Checks that tokens that are places along an axis are below `length`.
    ///
    /// # Errors
    /// A longer axis.
    pub(super) fn check_indices(&self, index: &Value, length: u64) -> Result<(), Mistake> {
        self.beyond(index, length).map_or(Ok(()), |text| Err(Mistake::new(text)))
    }

    /// Checks that the tokens of branch `branch` are below `length` if they are places along an axis.
    ///
    /// # Errors
    /// A longer axis.
    pub(super) fn check_branch_of_indices(&self, branch: usize, index: &Value, length: u64) -> Result<(), Mistake> {
        self.beyond(index, length).map_or(Ok(()), |text| Err(Mistake::of_input(branch, text)))
    }
}
