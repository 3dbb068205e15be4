//! Normalisations, norms of vectors, and weights that are computed from norms.

pub(crate) mod batch_norm;
pub(in crate::operations) mod inplace_norm;
pub(in crate::operations) mod input_norm;
pub(in crate::operations) mod l2_norm;
pub(in crate::operations) mod reparametrize;
pub(crate) mod row_norm;
pub(in crate::operations) mod spectral_norm;
pub(crate) mod statistics;
pub(in crate::operations) mod vector_norm;
