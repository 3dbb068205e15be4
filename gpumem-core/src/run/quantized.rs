//! Quantized weights, which the host reads and writes as numbers.

use crate::error::Error;
use crate::graph::SCALES;
use crate::memory::place::Placed;
use crate::number::{Coding, Format, Role};
use crate::run::device::Runner;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

/// The places of a quantized weight's codes and block scales in the arena.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coded {
    coding: Coding,
    elements: usize,
    /// Byte offset and number of bytes, of the codes and of the scales.
    codes: [u64; 2],
    scales: [u64; 2],
}

impl Coded {
    /// Returns the places of a quantized weight; `None` if the tensor's elements are no codes.
    ///
    /// # Errors
    /// Codes without scales.
    pub(super) fn of(placed: &Placed, id: usize) -> Result<Option<Coded>, Error> {
        let tensors = &placed.program.tensors;
        let Some(coding) = tensors[id].role.coding() else { return Ok(None) };
        let name = format!("{}{SCALES}", tensors[id].name);
        let elements = tensors[id].elements(1).unwrap_or(0);
        let is_it = |tensor: &crate::program::Tensor| {
            tensor.role == Role::Scale && tensor.name == name && tensor.elements(1) == Some(coding.scales(elements))
        };
        let scales = tensors.iter().position(is_it).ok_or(Error::Damaged("the codes of a weight have no scales"))?;
        let at = |id: usize| [placed.offsets[id], placed.bytes[id]];
        Ok(Some(Coded { coding, elements: elements as usize, codes: at(id), scales: at(scales) }))
    }

    /// Reads the numbers that the codes stand for.
    pub(super) fn read<R: Runner>(&self, runner: &mut R) -> Result<Vec<f32>, Error> {
        let mut bytes = |[offset, bytes]: [u64; 2]| {
            let mut read = vec![0; bytes as usize];
            runner.read(offset, &mut read).map(|()| read)
        };
        let (codes, scales) = (bytes(self.codes)?, Format::F32.decode(&bytes(self.scales)?));
        let mut numbers = vec![0.0; self.elements];
        self.coding.dequantize(&codes, &scales, &mut numbers);
        Ok(numbers)
    }

    /// Writes the codes that are nearest to these numbers, and their scales.
    pub(super) fn write<R: Runner>(&self, runner: &mut R, numbers: &[f32]) -> Result<(), Error> {
        let (codes, scales) = self.coding.quantize(numbers);
        runner.write(self.codes[0], &codes)?;
        let mut bytes = vec![0; self.scales[1] as usize];
        Format::F32.encode(&scales, &mut bytes);
        runner.write(self.scales[0], &bytes)
    }
}
