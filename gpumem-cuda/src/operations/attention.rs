use super::Context;
use crate::launch::Launch;
use gpumem_core::error::Error;
use gpumem_core::layers::CausalAttention;

const NOT_YET: &str = "there is no kernel for this layer yet";

pub(super) fn forward(_: &Context<'_>, _: &CausalAttention) -> Result<Vec<Launch>, Error> {
    Err(Error::Unsupported { device: "CUDA", what: NOT_YET.into() })
}

pub(super) fn backward(_: &Context<'_>, _: &CausalAttention) -> Result<Vec<Launch>, Error> {
    Err(Error::Unsupported { device: "CUDA", what: NOT_YET.into() })
}
