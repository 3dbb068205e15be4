//! Divisors of a loss whose batch is split into micro-batches: counts over all targets or lengths of the batch, which no micro-batch knows.
//!
//! The host gets whole batches. It counts the targets before the first micro-batch runs, and gives each micro-batch the sum as one more
//! target.

use crate::error::Error;
use crate::memory::place::Placed;
use crate::number::Format;
use crate::program::criterion::WEIGHTS;
use crate::program::{Action, Class, Criterion, Operation, Slot, TensorId};
use crate::run::device::Runner;
use crate::run::host_copies::Put;
use alloc::vec::Vec;

/// The divisor of a term that counts targets.
#[derive(Clone, Debug)]
struct Divisor {
    /// The counted tensor: a target by its number among all targets, or the input with lengths by its number among all inputs.
    counted: (Class, usize),
    criterion: Criterion,
    /// The byte offset of the divisor, and the bytes of its copies for all samples of a micro-batch.
    offset: u64,
    length: usize,
    value: f32,
}

/// All divisors of a training step; none if its batch is not split.
#[derive(Clone, Debug, Default)]
pub(super) struct Divisors {
    all: Vec<Divisor>,
    buffer: Vec<u8>,
}

impl Divisors {
    /// Returns the divisors of a training step.
    ///
    /// # Errors
    /// A term with a divisor, but without a target.
    pub(super) fn new(placed: &Placed) -> Result<Divisors, Error> {
        let one = |operation: &Operation| -> Option<Result<Divisor, Error>> {
            let Action::Loss(criterion) = &operation.action else { return None };
            let given = operation.read(Slot::Saved(0)).filter(|_| criterion.counts())?;
            let (class, slot) = match criterion.options.counted {
                0 if criterion.weighted().is_some() => (Class::Target, WEIGHTS),
                0 => (Class::Target, Slot::Target),
                _ => (Class::Input, Slot::Input(1)),
            };
            let number = |id: TensorId| placed.program.of_class(class).position(|other| other == id);
            let target = operation.read(slot).and_then(number);
            let missing = Error::Damaged("a loss divides by what targets come to that it has not");
            // All chunks of one term share a divisor.
            if criterion.first > 0 || criterion.again {
                return None;
            }
            let (offset, bytes) = (placed.offsets[given as usize], placed.bytes[given as usize]);
            Some(target.zip(usize::try_from(bytes).ok()).ok_or(missing).map(|(target, length)| Divisor {
                counted: (class, target),
                criterion: criterion.clone(),
                offset,
                length,
                value: 0.0,
            }))
        };
        let all = placed.program.operations.iter().filter_map(one).collect::<Result<_, _>>()?;
        Ok(Divisors { all, buffer: Vec::new() })
    }

    /// Counts a target or input of so many elements, if a term divides by its count.
    pub(super) fn count(&mut self, tensor: (Class, usize), elements: usize, put: &Put<'_>) {
        let Divisors { all, buffer } = self;
        let mut counted = all.iter_mut().filter(|divisor| divisor.counted == tensor).peekable();
        if counted.peek().is_none() {
            return;
        }
        buffer.resize(elements * Format::U32.bytes() as usize, 0);
        let is_mask = |divisor: &Divisor| divisor.criterion.weighted().is_some();
        put(if counted.peek().is_some_and(|divisor| is_mask(divisor)) { Format::F32 } else { Format::U32 }, 0, buffer);
        for divisor in counted {
            let words = || buffer.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
            divisor.value = match is_mask(divisor) {
                true => words().map(|word| f64::from(f32::from_bits(word))).sum::<f64>() as f32,
                false => words().map(|label| divisor.criterion.weight_of(label)).sum::<f64>() as f32,
            };
        }
    }

    /// Gives the next micro-batch its divisors through [`Runner::feed_with`], like its targets.
    ///
    /// # Errors
    /// As for [`Runner::feed_with`].
    pub(super) fn feed(&self, runner: &mut impl Runner) -> Result<(), Error> {
        self.all
            .iter()
            .try_for_each(|divisor| runner.feed_with(divisor.offset, divisor.length, &|_, to| divisor.put(to)))
    }

    /// Writes the divisors of a micro-batch that is evaluated, through [`Runner::write`].
    ///
    /// # Errors
    /// As for [`Runner::write`].
    pub(super) fn write(&mut self, runner: &mut impl Runner) -> Result<(), Error> {
        let Divisors { all, buffer } = self;
        all.iter().try_for_each(|divisor| {
            buffer.resize(divisor.length, 0);
            divisor.put(buffer);
            runner.write(divisor.offset, buffer)
        })
    }
}

impl Divisor {
    fn put(&self, to: &mut [u8]) {
        to.chunks_exact_mut(4).for_each(|word| word.copy_from_slice(&self.value.to_le_bytes()));
    }
}
