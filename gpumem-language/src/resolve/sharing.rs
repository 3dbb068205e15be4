//! Finds the layer whose parameters a layer of a named element shares.
//!
//! The first use of `let w = ..` creates parameters and records its rows. The k-th layer of a later use shares those of the k-th row. Uses nest, so
//! recordings and shares are stacks.

use gpumem_core::graph::RowId;

/// A row, or `None` if a mistake kept it from being made.
type MaybeRow = Option<RowId>;

#[derive(Default)]
pub(super) struct Sharing {
    recordings: Vec<Vec<MaybeRow>>,
    /// The rows of the first use, and the number of layers of this use so far.
    shares: Vec<(Vec<MaybeRow>, usize)>,
}

impl Sharing {
    pub(super) fn start_recording(&mut self) {
        self.recordings.push(Vec::new());
    }

    pub(super) fn stop_recording(&mut self) -> Vec<MaybeRow> {
        self.recordings.pop().unwrap_or_default()
    }

    pub(super) fn start_sharing(&mut self, rows: Vec<MaybeRow>) {
        self.shares.push((rows, 0));
    }

    pub(super) fn stop_sharing(&mut self) {
        self.shares.pop();
    }

    /// Returns the row whose parameters the next layer shares. `None` if it has its own.
    pub(super) fn owner(&self) -> MaybeRow {
        let (rows, next) = self.shares.last()?;
        rows.get(*next).copied().flatten()
    }

    /// Records that a layer was added as `row`. If that layer shares parameters itself, later uses share with their owner.
    pub(super) fn added(&mut self, row: MaybeRow) {
        let owner = self.owner().or(row);
        for recording in &mut self.recordings {
            recording.push(owner);
        }
        for (_, next) in &mut self.shares {
            *next += 1;
        }
    }
}
