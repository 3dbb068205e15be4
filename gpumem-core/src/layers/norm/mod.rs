//! Normalisation, as `BatchNorm2d`, `LayerNorm` and `Normalize`.

mod batch_norm1d;
mod batch_norm2d;
mod batch_norm3d;
mod group_norm;
mod inplace_abn;
mod instance_norm1d;
mod instance_norm2d;
mod instance_norm3d;
mod l2_norm;
mod layer_norm;
mod normalize;
mod rms_norm;

pub use batch_norm1d::BatchNorm1d;
pub use batch_norm2d::BatchNorm2d;
pub use batch_norm3d::BatchNorm3d;
pub use group_norm::GroupNorm;
pub use inplace_abn::InplaceAbn;
pub use instance_norm1d::InstanceNorm1d;
pub use instance_norm2d::InstanceNorm2d;
pub use instance_norm3d::InstanceNorm3d;
pub use l2_norm::L2Norm;
pub use layer_norm::LayerNorm;
pub use normalize::Normalize;
pub use rms_norm::RmsNorm;

use super::Entry;
use super::mistake::Mistake;
use alloc::format;

/// Returns a mistake if a channel of a sample has a single element, which is 0 after normalisation.
fn single(sizes: &[u64]) -> Option<Mistake> {
    let text = "normalises each channel of a sample for itself, and here one has a single element, of which 0 is left; \
                normalise before the map is reduced to one, or use `LayerNorm`";
    sizes.iter().all(|&size| size == 1).then(|| Mistake::new(text))
}

/// Returns a mistake if rows have a single element: normalisation leaves only `rest` of it.
fn single_feature(elements: u64, rest: &str) -> Option<Mistake> {
    let text = format!(
        "normalises rows of a single feature, of which nothing is left but {rest}; normalise before the features are reduced to one, \
         or remove it"
    );
    (elements == 1).then(|| Mistake::new(text))
}

/// The layers of this family.
pub(super) const LAYERS: &[Entry] = &[
    Entry::of::<BatchNorm2d>(),
    Entry::of::<LayerNorm>(),
    Entry::of::<GroupNorm>(),
    Entry::of::<RmsNorm>(),
    Entry::of::<Normalize>(),
    Entry::of::<BatchNorm1d>(),
    Entry::of::<InstanceNorm2d>(),
    Entry::of::<InstanceNorm1d>(),
    Entry::of::<BatchNorm3d>(),
    Entry::of::<InstanceNorm3d>(),
    Entry::of::<L2Norm>(),
    Entry::of::<InplaceAbn>(),
];
