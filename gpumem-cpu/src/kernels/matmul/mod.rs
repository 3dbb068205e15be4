//! Matrix products.

pub(in crate::kernels) mod linear;
pub(in crate::kernels) mod mat_mul;
pub(in crate::kernels) mod quantized_linear;
