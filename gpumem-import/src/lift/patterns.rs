//! Patterns of several operations that are one layer.

use super::Lift;

/// Finds all patterns, the largest first.
pub(super) fn find(_lift: &mut Lift<'_>) {}
