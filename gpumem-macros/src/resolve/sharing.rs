//! Which layer's parameters the layers of a named element share.
//!
//! The first use of `let w = ..` creates parameters and records its rows; the k-th layer of a later use shares those of the
//! k-th row. Uses nest, so recordings and shares are stacks.

use gpumem_core::graph::RowId;

/// A row, or `None` where a mistake kept it from being made.
type MaybeRow = Option<RowId>;

#[derive(Default)]
pub(super) struct Sharing {
    recordings: Vec<Vec<MaybeRow>>,
    /// The rows of the first use, and how many layers of this use there have been.
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

    /// The row whose parameters the next layer shares.
    pub(super) fn owner(&self) -> MaybeRow {
        let (rows, next) = self.shares.last()?;
        rows.get(*next).copied().flatten()
    }

    /// Notes that a layer was added as `row`. What shares it later shares with its owner.
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
