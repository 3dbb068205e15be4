//! Convolutions and poolings.

pub(in crate::kernels) mod average_pool;
pub(in crate::kernels) mod convolution;
pub(in crate::kernels) mod convolution3d;
pub(in crate::kernels) mod correlation;
pub(in crate::kernels) mod depthwise;
pub(in crate::kernels) mod direct;
pub(in crate::kernels) mod max_pool;
pub(in crate::kernels) mod normalized_convolution;
pub(in crate::kernels) mod small_map_conv;

/// Kernels of pools are generic over the number of axes.
pub(in crate::kernels) use {average_pool as average_pool3d, max_pool as max_pool3d};
