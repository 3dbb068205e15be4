//! Attention layers, as `CausalSelfAttention(12)`.

mod alibi_bias;
mod causal_attention;
mod causal_self_attention;
mod multi_head_attention;
mod qk_norm;
mod relative_position_bias;
mod rotary;
mod scaled_dot_product;
mod shifted_window_mask;

pub use alibi_bias::AlibiBias;
pub use causal_attention::CausalAttention;
pub use causal_self_attention::CausalSelfAttention;
pub use multi_head_attention::MultiHeadAttention;
pub use relative_position_bias::RelativePositionBias;
pub use rotary::Rotary;
pub use scaled_dot_product::Attention;
pub use shifted_window_mask::ShiftedWindowMask;

use qk_norm::{QkNorm, SelfAttention};
use rotary::Turn;

use super::Entry;
use super::mistake::Mistake;
use alloc::format;

/// The layers of this family.
pub(super) const LAYERS: &[Entry] = &[
    Entry::of::<CausalSelfAttention>(),
    Entry::of::<MultiHeadAttention>(),
    Entry::of::<CausalAttention>(),
    Entry::of::<Attention>(),
    Entry::of::<RelativePositionBias>(),
    Entry::of::<ShiftedWindowMask>(),
    Entry::of::<AlibiBias>(),
    Entry::of::<Rotary>(),
];

/// Checks that `heads` divides the width.
fn check_heads(heads: u64, features: u64) -> Result<(), Mistake> {
    if features.is_multiple_of(heads) {
        return Ok(());
    }
    Err(Mistake::new(format!(
        "has {heads} heads, which do not divide its width of {features}; use a number of heads that divides {features}"
    )))
}
