//! Reorders a draft, recomputes parts of it, and inserts copies to host memory. No number changes.

pub(in crate::lower) mod backward_order;
pub(in crate::lower) mod concat_prefix;
pub mod offload;
pub(in crate::lower) mod recompute;
pub(in crate::lower) mod recompute_norms;
