//! Rewrites a graph into one that computes the same function with less memory or fewer launches.

pub(in crate::lower) mod activation_mask;
pub(in crate::lower) mod chunk_logits;
pub(in crate::lower) mod conv_norm;
pub(in crate::lower) mod decode_step;
pub(in crate::lower) mod inplace_abn;
pub(in crate::lower) mod pool_first;
