//! Convolutions and poolings.

pub(in crate::kernels) mod average_pool;
pub(in crate::kernels) mod cached_convolution;
pub(in crate::kernels) mod convolution;
pub(in crate::kernels) mod convolution3d;
pub(in crate::kernels) mod correlation;
pub(in crate::kernels) mod max_pool;
pub(in crate::kernels) mod normalized_convolution;
pub(in crate::kernels) mod small_map_conv;
