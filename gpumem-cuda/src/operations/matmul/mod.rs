//! Matrix products.

pub(crate) mod linear;
pub(in crate::operations) mod mat_mul;
pub(in crate::operations) mod quantized_linear;
