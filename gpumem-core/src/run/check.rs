//! Checks of values before a tensor is set.

use crate::error::Error;
use crate::network::Network;
use crate::run::device::Device;
use crate::run::net::Net;

impl<N: Network, D: Device> Net<N, D> {
    /// Checks that [`Net::set`] would take these values, and sets nothing: a file is checked whole before its first tensor is set.
    ///
    /// # Errors
    /// As for [`Net::set`], but none of the device.
    pub fn check(&self, name: &str, values: &[f32]) -> Result<(), Error> {
        let (id, elements) = self.find(name)?;
        if elements != values.len() as u64 {
            let what = alloc::format!("`{name}`");
            return Err(Error::Length { what, expected: elements, found: values.len() as u64 });
        }
        self.check_part(id, name, 0, values)
    }
}
