//! Functions of elements, sums, random zeros, softmax and reductions.

pub(in crate::kernels) mod activation_mask;
pub(in crate::kernels) mod binary;
pub(in crate::kernels) mod constant;
pub(in crate::kernels) mod declared;
pub(in crate::kernels) mod dropout;
pub(in crate::kernels) mod formula;
pub(in crate::kernels) mod functions;
pub(in crate::kernels) mod pointwise;
pub(in crate::kernels) mod reduce;
pub(in crate::kernels) mod scalar;
pub(in crate::kernels) mod softmax;
pub(in crate::kernels) mod sum;
