//! Normalisations, norms of vectors, and weights that are computed from norms.

pub(in crate::kernels) mod batch_norm;
pub(in crate::kernels) mod inplace_norm;
pub(in crate::kernels) mod input_norm;
pub(in crate::kernels) mod l2_norm;
pub(in crate::kernels) mod reparametrize;
pub(in crate::kernels) mod row_norm;
mod rows;
pub(in crate::kernels) mod spectral_norm;
pub(in crate::kernels) mod statistics;
pub(in crate::kernels) mod vector_norm;
