//! Failures of the driver as errors.

use cudarc::driver::DriverError;
use gpumem_core::error::Error;

/// A failure of the driver as an error that says at what.
pub(crate) fn failure(what: &str) -> impl Fn(DriverError) -> Error + '_ {
    move |error| Error::failed_because("CUDA", format!("{what}: {error}"), error)
}
