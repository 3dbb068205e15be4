//! State space models, as `SelectiveScan(x, StepSizes(1536), b, c)`.

mod selective_scan;
mod step_sizes;

pub use selective_scan::SelectiveScan;
pub use step_sizes::StepSizes;

use super::Entry;

/// The layers of this family.
pub(super) const LAYERS: &[Entry] = &[Entry::of::<SelectiveScan>(), Entry::of::<StepSizes>()];
