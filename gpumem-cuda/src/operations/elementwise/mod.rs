//! Functions of elements, sums, random zeros, softmax and reductions.

pub(in crate::operations) mod activation_mask;
pub(in crate::operations) mod binary;
pub(crate) mod chain;
pub(in crate::operations) mod constant;
pub(in crate::operations) mod declared;
pub(in crate::operations) mod dropout;
pub(in crate::operations) mod formula;
pub(crate) mod pointwise;
pub(in crate::operations) mod reduce;
pub(in crate::operations) mod softmax;
pub(crate) mod sum;
