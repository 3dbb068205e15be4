//! Convolutions and poolings.

pub(in crate::operations) mod average_pool;
pub(in crate::operations) mod cached_convolution;
pub(crate) mod convolution;
pub(in crate::operations) mod convolution3d;
pub(crate) mod max_pool;
pub(crate) mod normalized_convolution;
pub(in crate::operations) mod pools3d;
