//! Checks of indices that users write, before a kernel uses them.
//!
//! A kernel that uses an index that is too large reads other memory. So each tensor of indices that a program reads is checked before the program
//! is launched. Bytes of a whole tensor are checked on their way to the card. A tensor that was written only in part, or never, is read back.

use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::Operation;
use gpumem_core::program::indices::Indices;
use gpumem_core::run::device::Job;
use std::ops::Range;

/// A program of a session, by the input that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// The training step of this number, reading this half of its double buffer.
    Train(usize, usize),
    /// The loss of the step of this number, without an update.
    Evaluation(usize),
    /// The forward pass.
    Infer,
    /// The second forward pass, for serving.
    Served,
}

/// A tensor of indices, the rule for its values, and the program that reads it.
#[derive(Debug)]
struct IndexCheck {
    reader: Reader,
    offset: u64,
    bytes: u64,
    rule: Indices,
    /// True if the tensor's current contents were found valid.
    is_valid: bool,
}

impl IndexCheck {
    /// True if `bytes` has the length of the tensor.
    fn fits(&self, bytes: &[u8]) -> bool {
        self.bytes == bytes.len() as u64
    }

    fn run(&self, bytes: &[u8]) -> Result<(), Error> {
        if !self.fits(bytes) {
            let (what, found) = (format!("a batch of {}s", self.rule.what), bytes.len() as u64 / 4);
            return Err(Error::Length { what, expected: self.bytes / 4, found });
        }
        self.rule.check_bytes(bytes)
    }

    fn overlaps(&self, offset: u64, length: u64) -> bool {
        self.offset < offset.saturating_add(length) && offset < self.offset.saturating_add(self.bytes)
    }

    /// Returns the range of the tensor's bytes within `length` bytes from `offset` on; `None` unless all of them are inside.
    fn within(&self, offset: u64, length: u64) -> Option<Range<usize>> {
        let start = self.offset.checked_sub(offset)?;
        let end = start.checked_add(self.bytes).filter(|&end| end <= length)?;
        Some(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
    }
}

/// The checks of all programs of a session.
#[derive(Debug)]
pub(super) struct IndexChecks {
    all: Vec<IndexCheck>,
    /// True if there are several training steps. The inputs of one may share memory with activations of another, so that the offset of a write does
    /// not identify the tensor.
    has_several: bool,
}

impl IndexChecks {
    /// Collects the checks of a job. `halves` are the bytes of a half of each step's double buffer. Nothing is valid yet.
    pub(super) fn new(job: &Job, halves: &[u64]) -> IndexChecks {
        let mut checks = Vec::new();
        let mut add = |reader, placed: &Placed, batch: u64, shift: u64| {
            let operations = placed.program.operations.iter();
            checks.extend(operations.flat_map(|operation| checks_of(placed, operation, (reader, batch, shift))));
        };
        let others = job.others.iter().map(|other| (&other.train, other.batch));
        let steps = job.train.iter().map(|placed| (placed, job.batch)).chain(others);
        for ((number, (placed, batch)), &half) in steps.enumerate().zip(halves) {
            add(Reader::Train(number, 0), placed, batch, 0);
            add(Reader::Train(number, 1), placed, batch, half);
        }
        job.evaluation.iter().for_each(|placed| add(Reader::Evaluation(0), placed, job.batch, 0));
        for (number, other) in (1..).zip(&job.others) {
            add(Reader::Evaluation(number), &other.evaluation, other.batch, 0);
        }
        add(Reader::Infer, &job.infer, job.batch, 0);
        job.served.iter().for_each(|served| add(Reader::Served, &served.placed, served.batch, 0));
        // If several operations use the same indices, a message names the smallest limit.
        checks.sort_by_key(|check| check.rule.limit);
        IndexChecks { all: checks, has_several: !job.others.is_empty() }
    }

    /// Refuses bytes for a tensor of indices at `offset` if an index is too large.
    ///
    /// # Errors
    /// An index that is too large, or bytes whose length differs from all tensors that begin there.
    pub(super) fn refuse(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        // With several steps the check is made later, when the program that reads the tensor is known.
        let here = || self.all.iter().filter(|check| check.offset == offset && !self.has_several);
        // Programs of different batch sizes may have their inputs in one place.
        let mut fitting = here().filter(|check| check.fits(bytes)).peekable();
        match fitting.peek() {
            Some(_) => fitting.try_for_each(|check| check.run(bytes)),
            None => here().take(1).try_for_each(|check| check.run(bytes)),
        }
    }

    /// Marks all tensors in a range as unknown, before it is written.
    pub(super) fn forget(&mut self, offset: u64, length: u64) {
        let overlapping = self.all.iter_mut().filter(|check| check.overlaps(offset, length));
        overlapping.for_each(|check| check.is_valid = false);
    }

    /// Refuses bytes for an input of the step of this number if an index is too large. `offset` is the input's place in the first half of the
    /// double buffer.
    ///
    /// # Errors
    /// As for [`IndexChecks::refuse`].
    pub(super) fn refuse_of(&self, step: usize, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        if !self.has_several {
            return self.refuse(offset, bytes);
        }
        let own = |check: &&IndexCheck| check.offset == offset && check.reader == Reader::Train(step, 0);
        self.all.iter().filter(own).try_for_each(|check| check.run(bytes))
    }

    /// Marks inputs of other programs as unknown after `reader` has run: with several training steps, its activations may have overwritten them.
    pub(super) fn ran(&mut self, reader: Reader) {
        let is_own = |other: Reader| match (reader, other) {
            (Reader::Train(own, _) | Reader::Evaluation(own), Reader::Train(other, _) | Reader::Evaluation(other)) => {
                own == other
            }
            (reader, other) => reader == other,
        };
        let others = self.all.iter_mut().filter(|check| self.has_several && !is_own(check.reader));
        others.for_each(|check| check.is_valid = false);
    }

    /// Records that `bytes` were written at `offset`, or at that place in the double buffer's other half. Called after [`IndexChecks::refuse`]
    /// accepted them. A tensor that is completely within them becomes valid if its indices are.
    pub(super) fn written(&mut self, offset: u64, bytes: &[u8]) {
        for check in &mut self.all {
            if check.offset == offset && check.fits(bytes) && !self.has_several {
                check.is_valid = true;
            } else if let Some(range) = check.within(offset, bytes.len() as u64) {
                check.is_valid = check.rule.check_bytes(&bytes[range]).is_ok();
            }
        }
    }

    /// Returns offset and bytes of a tensor that a program is about to use and that is not known to be valid; `None` if there is none.
    pub(super) fn unknown(&self, reader: Reader) -> Option<(u64, u64)> {
        let check = self.all.iter().find(|check| check.reader == reader && !check.is_valid)?;
        Some((check.offset, check.bytes))
    }

    /// Checks bytes that were read back from `offset`, where a tensor of a program begins.
    ///
    /// # Errors
    /// An index that is too large.
    pub(super) fn look(&mut self, reader: Reader, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let here = self.all.iter_mut().filter(|check| check.reader == reader && check.offset == offset);
        for check in here {
            check.run(bytes)?;
            check.is_valid = true;
        }
        Ok(())
    }
}

fn checks_of(placed: &Placed, operation: &Operation, (reader, batch, shift): (Reader, u64, u64)) -> Vec<IndexCheck> {
    let check = |rule: Indices| {
        let id = operation.read(rule.slot)?;
        let bytes = placed.program.tensor(id).elements(batch)?.checked_mul(4)?;
        let offset = placed.offsets[id as usize] + shift;
        Some(IndexCheck { reader, offset, bytes, rule, is_valid: false })
    };
    operation.indices(&placed.program).into_iter().filter_map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpumem_core::program::Slot;
    use gpumem_core::program::indices::Allowed;

    fn bytes(values: &[u32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn indices_are_checked_before_they_reach_the_card() {
        let rule = Indices { allowed: Allowed::One(255), ..Indices::below(10, "label", Slot::Target, 1) };
        let check = IndexCheck { reader: Reader::Infer, offset: 0, bytes: 8, rule, is_valid: false };
        assert_eq!(check.run(&bytes(&[0, 9])), Ok(()));
        assert_eq!(check.run(&bytes(&[255, 9])), Ok(()));
        let error = check.run(&bytes(&[3, 10])).unwrap_err();
        assert_eq!(error, Error::Index { what: "label", position: 1, value: 10, limit: 10 });
        let error = check.run(&bytes(&[3])).unwrap_err();
        assert_eq!(error.to_string(), "a batch of labels has 2 elements, but 1 were given");
    }
    #[test]
    fn a_tensor_is_known_if_all_of_it_was_seen() {
        let check = |reader, offset, limit| IndexCheck {
            reader,
            offset,
            bytes: 8,
            rule: Indices::below(limit, "token", Slot::Input(0), 1),
            is_valid: false,
        };
        let all = vec![check(Reader::Infer, 16, 5), check(Reader::Train(0, 0), 16, 7)];
        let mut checks = IndexChecks { all, has_several: false };
        assert_eq!(checks.unknown(Reader::Infer), Some((16, 8)));
        assert_eq!(checks.unknown(Reader::Evaluation(0)), None);
        let mut write = |offset, words: &[u32]| {
            if let Err(error) = checks.refuse(offset, &bytes(words)) {
                panic!("{words:?} at {offset}: {error}");
            }
            checks.forget(offset, 4 * words.len() as u64);
            checks.written(offset, &bytes(words));
            [Reader::Infer, Reader::Train(0, 0)].map(|reader| checks.unknown(reader).is_none())
        };
        assert_eq!(write(16, &[4, 4]), [true, true]);
        assert_eq!(write(12, &[99, 6, 4]), [false, true]);
        assert_eq!(write(12, &[99, 0, 1, 99]), [true, true]);
        // Writes that end at the tensor's first byte, or begin after its last, do not touch it.
        assert_eq!((write(12, &[99]), write(24, &[99])), ([true, true], [true, true]));
        for (offset, words) in [(20, vec![0]), (20, vec![0, 0]), (12, vec![0, 0]), (18, vec![0])] {
            assert_eq!(write(16, &[0, 0]), [true, true]);
            assert_eq!(write(offset, &words), [false, false], "{} words at {offset}", words.len());
        }
        let error = checks.look(Reader::Infer, 16, &bytes(&[0, 5])).unwrap_err();
        assert_eq!(error, Error::Index { what: "token", position: 1, value: 5, limit: 5 });
        assert_eq!(checks.look(Reader::Train(0, 0), 16, &bytes(&[0, 5])), Ok(()));
        assert_eq!([checks.unknown(Reader::Infer), checks.unknown(Reader::Train(0, 0))], [Some((16, 8)), None]);
    }
}
