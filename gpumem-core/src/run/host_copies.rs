//! Copies between tensors of the host and tensors in the arena.

use crate::error::Error;
use crate::memory::place::Placed;
use crate::number::{Format, Precision};
use crate::program::indices::Indices;
use crate::program::{Class, Operation};
use crate::run::device::Runner;
use crate::run::tensor::{Given, Hosts};
use alloc::vec;
use alloc::vec::Vec;

/// The byte offset of a tensor in the arena, and the format of its elements.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    pub(super) offset: u64,
    pub(super) format: Format,
}

/// Returns the place of a tensor that operations read.
pub(super) fn spot(placed: &Placed, id: usize, precision: Precision) -> Spot {
    Spot { offset: placed.offsets[id], format: placed.program.tensors[id].role.format(precision) }
}

/// Returns the place of a tensor's most exact copy: its master copy, if it has one.
pub(super) fn exact(placed: &Placed, id: usize, precision: Precision) -> Spot {
    let own = spot(placed, id, precision);
    let master = placed.masters[id].zip(placed.program.tensors[id].role.master(precision));
    master.map_or(own, |(offset, format)| Spot { offset, format })
}

/// Returns the place of the tensor with this number in its class.
pub(super) fn nth_of(placed: &Placed, class: Class, index: usize, precision: Precision) -> Result<Spot, Error> {
    let id = placed.program.of_class(class).nth(index).ok_or(Error::Damaged("the program lacks an input"))?;
    Ok(spot(placed, id as usize, precision))
}

/// A function that writes a tensor of the host: see [`Host::put`](crate::run::tensor::Host::put).
pub(super) type Put<'a> = dyn Fn(Format, usize, &mut [u8]) + Sync + 'a;

/// The part of a host tensor that belongs to one micro-batch.
pub(super) struct HostPart<'a> {
    /// The number of the micro-batch, counted from 0, and the number of all.
    pub(super) number: usize,
    pub(super) of: usize,
    /// Elements of the whole tensor.
    pub(super) elements: usize,
    pub(super) put: &'a Put<'a>,
}

/// Encodes a part of an input or target into `buffer`, in the arena's format. Returns its offset in the arena.
pub(super) fn encoded(
    placed: &Placed,
    (class, index): (Class, usize),
    precision: Precision,
    HostPart { number, of, elements, put }: HostPart<'_>,
    buffer: &mut Vec<u8>,
) -> Result<u64, Error> {
    let elements = elements / of.max(1);
    let Spot { offset, format } = nth_of(placed, class, index, precision)?;
    buffer.resize(elements * format.bytes() as usize, 0);
    put(format, number * elements, buffer);
    Ok(offset)
}

/// Checks all indices of an input or target before its first micro-batch runs. An error names the position in the whole batch.
fn check_whole(
    placed: &Placed,
    (class, index): (Class, usize),
    (elements, put): (usize, &Put<'_>),
    buffer: &mut Vec<u8>,
) -> Result<(), Error> {
    let program = &placed.program;
    let Some(id) = program.of_class(class).nth(index) else { return Ok(()) };
    let of = |operation: &Operation| {
        let mut rules = operation.indices(program);
        rules.retain(|rule| operation.read(rule.slot) == Some(id));
        rules
    };
    let mut rules: Vec<Indices> = program.operations.iter().flat_map(of).collect();
    // If several operations read the same indices, the message names the smallest limit.
    rules.sort_by_key(|rule| rule.limit);
    if rules.is_empty() {
        return Ok(());
    }
    let format = Format::U32;
    buffer.resize(elements * format.bytes() as usize, 0);
    put(format, 0, buffer);
    rules.iter().try_for_each(|rule| rule.check_bytes(buffer))
}

/// Checks the indices of all inputs or targets, if there are several micro-batches.
pub(super) fn check_parts<T: Hosts>(
    placed: &Placed,
    class: Class,
    parts: usize,
    given: Given<'_, T>,
    buffer: &mut Vec<u8>,
) -> Result<(), Error> {
    if parts < 2 {
        return Ok(());
    }
    T::put(given, &mut |index, elements, put| check_whole(placed, (class, index), (elements, put), buffer))
}

/// Returns numbers as bytes of a format.
pub(super) fn encode(format: Format, values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; values.len() * format.bytes() as usize];
    format.encode(values, &mut bytes);
    bytes
}

/// Writes the inputs of a forward pass: those of one micro-batch.
pub(super) fn give<T: Hosts, R: Runner>(
    runner: &mut R,
    placed: &Placed,
    precision: Precision,
    buffer: &mut Vec<u8>,
    (number, of): (usize, usize),
    input: Given<'_, T>,
) -> Result<(), Error> {
    T::put(input, &mut |index, elements, put| {
        let part = HostPart { number, of, elements, put };
        let offset = encoded(placed, (Class::Input, index), precision, part, buffer)?;
        runner.write(offset, buffer)
    })
}

/// The bytes of a program's outputs, those of all micro-batches one after the other.
#[derive(Default)]
pub(super) struct Outputs(Vec<Vec<u8>>);

impl Outputs {
    /// Reads the outputs of one more micro-batch, which has been computed.
    pub(super) fn read<R: Runner>(&mut self, runner: &mut R, placed: &Placed) -> Result<(), Error> {
        self.0.resize(placed.program.results.len(), Vec::new());
        for (&output, all) in placed.program.results.iter().zip(&mut self.0) {
            let start = all.len();
            all.resize(start + placed.bytes[output as usize] as usize, 0);
            runner.read(placed.offsets[output as usize], &mut all[start..])?;
        }
        Ok(())
    }

    /// Returns the outputs as tensors of the host.
    pub(super) fn finish<T: Hosts>(mut self, placed: &Placed, precision: Precision) -> Result<T, Error> {
        T::take(&mut |index| {
            let output = placed.program.results.get(index).ok_or(Error::Damaged("the program lacks an output"))?;
            Ok((spot(placed, *output as usize, precision).format, core::mem::take(&mut self.0[index])))
        })
    }
}
