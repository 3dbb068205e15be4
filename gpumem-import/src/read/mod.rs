//! Readers of files with models.

pub mod pt2;
