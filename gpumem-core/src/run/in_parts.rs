//! Sets and reads tensors in parts, so that the host needs no copy of a whole tensor.

use crate::error::Error;
use crate::network::Network;
use crate::number::{Format, Role};
use crate::program::TensorId;
use crate::run::device::{Device, Runner};
use crate::run::host_copies::{Spot, exact, spot};
use crate::run::net::Net;
use crate::run::quantized::Coded;
use crate::shape::Shape;
use alloc::vec;
use core::ops::ControlFlow;

/// The most elements of a part: 1 MiB of f32.
const PART: usize = 1 << 18;

/// Returns the elements of a part of a tensor of this shape.
///
/// Parts of a convolution's weight are whole filters, since a device may store each filter with channels last.
fn part_of(shape: Shape) -> usize {
    match *shape.dims() {
        [_, channels, height, width] => {
            let filter = (channels * height * width).max(1) as usize;
            (PART / filter).max(1) * filter
        }
        _ => PART,
    }
}

impl<N: Network, D: Device> Net<N, D> {
    /// Sets a tensor as [`Net::set`] does, from numbers that `fill(first, part)` writes. Each call fills `part` with the elements from
    /// `first` on.
    ///
    /// The host holds at most some MiB of a large tensor, unless the tensor is quantized.
    ///
    /// # Errors
    /// As for [`Net::set`]. Parts before a value that the tensor cannot have are already set then; call [`Net::check`] first to avoid that.
    pub fn set_with(&mut self, name: &str, mut fill: impl FnMut(usize, &mut [f32])) -> Result<(), Error> {
        let (id, elements) = self.find(name)?;
        let elements = elements as usize;
        // The cache of a sequence was computed with the old numbers.
        self.kept.steps = 0;
        if let Some(coded) = Coded::of(self.main(), id)? {
            let mut values = vec![0.0; elements];
            fill(0, &mut values);
            self.check_part(id, name, 0, &values)?;
            return coded.write(&mut self.runner, &values);
        }
        let most = part_of(self.main().program.tensors[id].shape).min(elements);
        let own = spot(self.main(), id, self.precision);
        let master = self.main().masters[id].map(|offset| Spot { offset, format: Format::F32 });
        let (mut values, mut bytes) = (vec![0.0; most], vec![0; most * 4]);
        for first in (0..elements).step_by(most.max(1)) {
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

    /// Calls `take` with the values that [`Net::get`] would return, in order and in parts, until it returns [`ControlFlow::Break`].
    ///
    /// The host holds at most some MiB of a large tensor, unless the tensor is quantized.
    ///
    /// # Errors
    /// As for [`Net::get`].
    pub fn get_with<B>(
        &mut self,
        name: &str,
        mut take: impl FnMut(&[f32]) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, Error> {
        let (id, elements) = self.find(name)?;
        if let Some(coded) = Coded::of(self.main(), id)? {
            return Ok(take(&coded.read(&mut self.runner)?));
        }
        let Spot { offset, format } = exact(self.main(), id, self.precision);
        let (elements, size) = (elements as usize, format.bytes() as usize);
        let most = part_of(self.main().program.tensors[id].shape).min(elements);
        let mut bytes = vec![0; most * size];
        for first in (0..elements).step_by(most.max(1)) {
            let bytes = &mut bytes[..most.min(elements - first) * size];
            self.runner.read(offset + (first * size) as u64, bytes)?;
            if let broken @ ControlFlow::Break(_) = take(&format.decode(bytes)) {
                return Ok(broken);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Refuses a part with values that the tensor cannot have. The part begins at element `first`.
    pub(super) fn check_part(&self, id: usize, name: &str, first: usize, part: &[f32]) -> Result<(), Error> {
        let has_codes = self.main().program.tensors[id].role == Role::Code;
        self.states.check(id as TensorId, name, has_codes, part).map_err(|error| match error {
            Error::Value { name, position, value, rule } => {
                Error::Value { name, position: position + first as u64, value, rule }
            }
            other => other,
        })
    }
}
