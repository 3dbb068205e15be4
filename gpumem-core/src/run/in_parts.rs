//! Tensors that are set and read some elements at a time, so that the host needs no copy of a whole one.

use crate::error::Error;
use crate::network::Network;
use crate::number::Format;
use crate::program::TensorId;
use crate::run::coded::Coded;
use crate::run::device::{Device, Runner};
use crate::run::net::Net;
use crate::run::transfer::{Spot, exact, spot};
use alloc::vec;
use core::ops::ControlFlow;

/// Elements of a part: 1 MiB of f32.
const PART: usize = 1 << 18;

impl<N: Network, D: Device> Net<N, D> {
    /// Sets a tensor as [`Net::set`] does, from numbers that `fill(first, part)` writes: those from element `first` on, as many as `part` has.
    ///
    /// The host holds some MiB of a large tensor in place of all of it, unless the tensor is kept in codes.
    ///
    /// # Errors
    /// As for [`Net::set`]. Parts before a value that the tensor cannot have are set; [`Net::check`] finds such a value before.
    pub fn set_with(&mut self, name: &str, mut fill: impl FnMut(usize, &mut [f32])) -> Result<(), Error> {
        let (id, elements) = self.find(name)?;
        let elements = elements as usize;
        if Coded::of(self.main(), id)?.is_some() {
            let mut values = vec![0.0; elements];
            fill(0, &mut values);
            return self.set(name, &values);
        }
        // What is kept of a sequence was computed with the numbers before.
        self.kept.steps = 0;
        let own = spot(self.main(), id, self.precision);
        let master = self.main().masters[id].map(|offset| Spot { offset, format: Format::F32 });
        let most = elements.min(PART);
        let (mut values, mut bytes) = (vec![0.0; most], vec![0; most * 4]);
        for first in (0..elements).step_by(PART) {
            let part = &mut values[..most.min(elements - first)];
            fill(first, part);
            self.check_part(id, name, first, part)?;
            for Spot { offset, format } in master.into_iter().chain([own]) {
                let size = format.bytes() as usize;
                let bytes = &mut bytes[..part.len() * size];
                format.encode(part, bytes);
                self.runner.write(offset + (first * size) as u64, bytes)?;
            }
        }
        Ok(())
    }

    /// Gives the values that [`Net::get`] would return to `take`, in order and some at a time, until it breaks off.
    ///
    /// The host holds some MiB of a large tensor in place of all of it, unless the tensor is kept in codes.
    ///
    /// # Errors
    /// As for [`Net::get`].
    pub fn get_with<B>(
        &mut self,
        name: &str,
        mut take: impl FnMut(&[f32]) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, Error> {
        let (id, elements) = self.find(name)?;
        if Coded::of(self.main(), id)?.is_some() {
            return Ok(take(&self.get(name)?));
        }
        let Spot { offset, format } = exact(self.main(), id, self.precision);
        let (elements, size) = (elements as usize, format.bytes() as usize);
        let mut bytes = vec![0; elements.min(PART) * size];
        for first in (0..elements).step_by(PART) {
            let bytes = &mut bytes[..PART.min(elements - first) * size];
            self.runner.read(offset + (first * size) as u64, bytes)?;
            if let broken @ ControlFlow::Break(_) = take(&format.decode(bytes)) {
                return Ok(broken);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Refuses values that the tensor cannot have from element `first` on.
    fn check_part(&self, id: usize, name: &str, first: usize, part: &[f32]) -> Result<(), Error> {
        let has_codes = self.main().program.tensors[id].role == crate::number::Role::Code;
        self.states.check(id as TensorId, name, has_codes, part).map_err(|error| match error {
            Error::Value { name, position, value, rule } => {
                Error::Value { name, position: position + first as u64, value, rule }
            }
            other => other,
        })
    }
}
