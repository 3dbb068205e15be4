use super::Context;
use crate::launch::Launch;
use gpumem_core::error::Error;
use gpumem_core::layers::{Add, Concat, Mul};

const NOT_YET: &str = "there is no kernel for this layer yet";

pub(super) fn add(_: &Context<'_>, _: &Add) -> Result<Vec<Launch>, Error> {
    Err(Error::Unsupported { device: "CUDA", what: NOT_YET.into() })
}

pub(super) fn mul(_: &Context<'_>, _: &Mul) -> Result<Vec<Launch>, Error> {
    Err(Error::Unsupported { device: "CUDA", what: NOT_YET.into() })
}

pub(super) fn mul_backward(_: &Context<'_>, _: &Mul) -> Result<Vec<Launch>, Error> {
    Err(Error::Unsupported { device: "CUDA", what: NOT_YET.into() })
}

pub(super) fn concat(_: &Context<'_>, _: &Concat) -> Result<Vec<Launch>, Error> {
    Err(Error::Unsupported { device: "CUDA", what: NOT_YET.into() })
}

pub(super) fn concat_backward(_: &Context<'_>, _: &Concat) -> Result<Vec<Launch>, Error> {
    Err(Error::Unsupported { device: "CUDA", what: NOT_YET.into() })
}
