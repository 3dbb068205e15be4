//! Pooling, as `MaxPool2d(2)`.

mod adaptive;
mod adaptive_avg_pool1d;
mod adaptive_avg_pool2d;
mod adaptive_avg_pool3d;
mod adaptive_max_pool1d;
mod adaptive_max_pool2d;
mod adaptive_max_pool3d;
mod avg_pool1d;
mod avg_pool2d;
mod avg_pool3d;
mod global_avg_pool;
mod max_pool1d;
mod max_pool2d;
mod max_pool3d;
mod sliding;

pub use adaptive_avg_pool1d::AdaptiveAvgPool1d;
pub use adaptive_avg_pool2d::AdaptiveAvgPool2d;
pub use adaptive_avg_pool3d::AdaptiveAvgPool3d;
pub use adaptive_max_pool1d::AdaptiveMaxPool1d;
pub use adaptive_max_pool2d::AdaptiveMaxPool2d;
pub use adaptive_max_pool3d::AdaptiveMaxPool3d;
pub use avg_pool1d::AvgPool1d;
pub use avg_pool2d::AvgPool2d;
pub use avg_pool3d::AvgPool3d;
pub use global_avg_pool::GlobalAvgPool;
pub use max_pool1d::MaxPool1d;
pub use max_pool2d::MaxPool2d;
pub use max_pool3d::MaxPool3d;

use super::Entry;

/// The layers of this family.
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
    Entry::of::<MaxPool3d>(),
    Entry::of::<AvgPool3d>(),
    Entry::of::<AdaptiveAvgPool3d>(),
    Entry::of::<AdaptiveMaxPool3d>(),
];
