//! `MaxPool2d(2)`: pooling.

mod adaptive_avg_pool1d;
mod adaptive_avg_pool2d;
mod adaptive_max_pool1d;
mod adaptive_max_pool2d;
mod avg_pool1d;
mod avg_pool2d;
mod global_avg_pool;
mod max_pool1d;
mod max_pool2d;

pub use adaptive_avg_pool1d::AdaptiveAvgPool1d;
pub use adaptive_avg_pool2d::AdaptiveAvgPool2d;
pub use adaptive_max_pool1d::AdaptiveMaxPool1d;
pub use adaptive_max_pool2d::AdaptiveMaxPool2d;
pub use avg_pool1d::AvgPool1d;
pub use avg_pool2d::AvgPool2d;
pub use global_avg_pool::GlobalAvgPool;
pub use max_pool1d::MaxPool1d;
pub use max_pool2d::MaxPool2d;

use super::Entry;

/// The layers of the family.
pub(super) const LAYERS: &[Entry] = &[
    Entry::of::<MaxPool2d>(),
    Entry::of::<AvgPool2d>(),
    Entry::of::<AdaptiveAvgPool2d>(),
    Entry::of::<GlobalAvgPool>(),
    Entry::of::<MaxPool1d>(),
    Entry::of::<AvgPool1d>(),
    Entry::of::<AdaptiveAvgPool1d>(),
    Entry::of::<AdaptiveMaxPool2d>(),
    Entry::of::<AdaptiveMaxPool1d>(),
];
