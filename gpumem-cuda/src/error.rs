//! Conversion of the driver's failures to errors.

use cudarc::driver::DriverError;
use gpumem_core::error::Error;

/// Returns a conversion of a driver's failure to an error that names the failed call, `what`.
pub(crate) fn failure(what: &str) -> impl Fn(DriverError) -> Error + '_ {
    move |error| Error::failed_because("CUDA", format!("{what}: {error}"), error)
}
