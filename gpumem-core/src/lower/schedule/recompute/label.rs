//! Labels of the dynamic programme over segments.

/// A choice of segment options from some segment to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lower) struct Label {
    /// Bytes that the segments from here on need, above what earlier ones keep.
    pub(in crate::lower) need: u64,
    /// Bytes that they need from the recomputation of the boundary before them on, if that is dropped.
    pub(in crate::lower) run: u64,
    /// Bytes above the run while its boundary is recomputed.
    pub(super) above: u64,
    pub(in crate::lower) cost: u64,
    /// The number of times that the boundary before is recomputed, if it is never kept.
    pub(super) asks: u64,
    /// The option of this segment, and the label of the next one.
    pub(super) way: u32,
    pub(super) next: u32,
}
