//! A training step call by call, with a look at each result, to find the first number that is not finite.

use super::ranks::RankCall;
use super::{Session, bind, untrained};
use crate::program_calls::OperationCalls;
use crate::traffic::written_tensors;
use gpumem_core::error::Error;
use gpumem_core::memory::place::{Placed, on_host};
use gpumem_core::program::{Part, TensorId};
use gpumem_core::run::device::Inspected;
use gpumem_core::{Format, Precision};

/// A tensor of numbers that a group of calls writes, to be inspected.
#[derive(Debug, PartialEq)]
struct Look {
    /// Index of the last operation of the group that writes it.
    operation: usize,
    tensor: TensorId,
    offset: u64,
    bytes: u64,
    format: Format,
    /// Elements of a row, and elements from one row to the next.
    row: (usize, usize),
}

impl Look {
    /// Records in `inspected` that a number of the tensor is not finite, unless an earlier operation had such a number.
    fn note(&self, bytes: &[u8], inspected: &mut Inspected) {
        let numbers = self.format.decode(bytes);
        let (width, pitch) = self.row;
        let mut rows = numbers.chunks(pitch.max(1)).map(|row| &row[..width.min(row.len())]);
        let place = Some((self.operation, self.tensor));
        let [mut has_nan, mut has_infinity] = [false; 2];
        rows.by_ref().flatten().for_each(|number| {
            has_nan |= number.is_nan();
            has_infinity |= number.is_infinite();
        });
        if has_nan && inspected.nan.is_none() {
            inspected.nan = place;
        }
        if has_infinity && inspected.infinite.is_none() {
            inspected.infinite = place;
        }
    }
}

/// Returns the tensors of numbers that a group of a program writes to the card's memory, in the order of their operations.
fn looks(placed: &Placed, precision: Precision, step: &OperationCalls) -> Vec<Look> {
    let program = &placed.program;
    let given: Vec<TensorId> = step.calls.iter().flat_map(|call| written_tensors(placed, call)).collect();
    let mut looks: Vec<Look> = Vec::new();
    for operation in step.operations() {
        for tensor in program.operations[operation].writes.iter().map(|operand| operand.tensor) {
            let (about, offset) = (program.tensor(tensor), placed.offsets[tensor as usize]);
            let format = about.role.format(precision);
            let is_scratch = matches!(about.part, Part::Workspace | Part::Staging) || about.role.is_workspace();
            // A tensor inside a fusion group is not written.
            if is_scratch || !format.is_float() || on_host(offset).is_some() || !given.contains(&tensor) {
                continue;
            }
            looks.retain(|look| look.tensor != tensor);
            let width = about.shape.dims().last().map_or(1, |&width| width as usize);
            let row = if about.layout.pitch > 0 { (width, about.layout.pitch as usize) } else { (1, 1) };
            looks.push(Look { operation, tensor, offset, bytes: placed.bytes[tensor as usize], format, row });
        }
    }
    looks
}

impl Session {
    /// Runs a micro-batch of a step, or the last one if `part` is `None`, call by call: see [`Runner::inspect`].
    ///
    /// [`Runner::inspect`]: gpumem_core::run::device::Runner::inspect
    pub(super) fn inspect_step(&mut self, part: Option<u64>) -> Result<Inspected, Error> {
        bind(self.stream.context())?;
        let checked = self.check_step();
        self.agree(RankCall::Inspect, checked)?;
        let described = &self.described;
        let train = self.trains.get_mut(self.at).ok_or_else(untrained)?;
        let (job, calls) = (&described.job, &described.calls);
        let further = self.at.checked_sub(1);
        let (placed, steps) = match further.and_then(|at| Some((job.others.get(at)?, calls.others.get(at)?))) {
            Some((other, [train, _])) => (&other.train, &**train),
            None => (job.train.as_ref().ok_or_else(untrained)?, calls.train.as_deref().unwrap_or_default()),
        };
        let reader = train.reader();
        let (arena, transfers, stream) = (&self.arena, &mut self.transfers, &self.stream);
        let mut inspected = Inspected::default();
        let mut bytes = Vec::new();
        let mut look = |group: usize| {
            let missing = Error::Damaged("a program has another number of groups of calls than was planned");
            for look in looks(placed, described.job.precision, steps.get(group).ok_or(missing)?) {
                bytes.resize(look.bytes as usize, 0);
                transfers.read(arena, look.offset, &mut bytes)?;
                look.note(&bytes, &mut inspected);
            }
            Ok(())
        };
        match part {
            Some(part) => train.accumulate_by(stream, part, |program| program.launch_each(stream, &mut look))?,
            None => train.run_by(stream, |program| program.launch_each(stream, &mut look))?,
        }
        self.checks.ran(reader);
        Ok(inspected)
    }
}
