//! One sample of a batch, and the buffers of the worker that reads it.

use crate::error::{Error, Result};
use crate::slot::{Slot, Slots};

/// Buffers of a worker. Data sets reuse them, so that samples need no allocations.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Bytes of a file.
    pub bytes: Vec<u8>,
    /// Images while they are transformed.
    #[cfg(feature = "image")]
    pub(crate) canvas: crate::image::Canvas,
}

/// One sample of a batch, which [`Dataset::get`](crate::Dataset::get) writes.
#[derive(Debug)]
pub struct Sample<'a> {
    inputs: Slots<'a>,
    targets: Slots<'a>,
    scratch: &'a mut Scratch,
}

impl<'a> Sample<'a> {
    pub(crate) fn new(inputs: Slots<'a>, targets: Slots<'a>, scratch: &'a mut Scratch) -> Sample<'a> {
        Sample { inputs, targets, scratch }
    }

    /// Returns the slots of the inputs.
    pub fn inputs(&mut self) -> &mut [Slot<'a>] {
        &mut self.inputs
    }

    /// Returns the slots of the targets.
    pub fn targets(&mut self) -> &mut [Slot<'a>] {
        &mut self.targets
    }

    /// Returns the slot of input number `index`.
    ///
    /// # Errors
    /// [`ErrorKind::Setting`](crate::ErrorKind::Setting) if the network has fewer inputs.
    pub fn input(&mut self, index: usize) -> Result<&mut Slot<'a>> {
        Ok(self.input_and_scratch(index)?.0)
    }

    /// Returns the slot of target number `index`.
    ///
    /// # Errors
    /// [`ErrorKind::Setting`](crate::ErrorKind::Setting) if the network has fewer targets.
    pub fn target(&mut self, index: usize) -> Result<&mut Slot<'a>> {
        let count = self.targets.len();
        self.targets.get_mut(index).ok_or_else(|| too_few("targets", count, index))
    }

    /// Returns the slot of input number `index` and the worker's buffers.
    ///
    /// # Errors
    /// [`ErrorKind::Setting`](crate::ErrorKind::Setting) if the network has fewer inputs.
    pub fn input_and_scratch(&mut self, index: usize) -> Result<(&mut Slot<'a>, &mut Scratch)> {
        let count = self.inputs.len();
        let slot = self.inputs.get_mut(index).ok_or_else(|| too_few("inputs", count, index))?;
        Ok((slot, self.scratch))
    }

    /// Returns the buffers of the worker.
    pub fn scratch(&mut self) -> &mut Scratch {
        self.scratch
    }

    /// Returns an error if a slot was not written.
    pub(crate) fn check_written(&self) -> Result<()> {
        for (slots, what) in [(&self.inputs, "input"), (&self.targets, "target")] {
            if let Some(index) = slots.iter().position(|slot| !slot.is_written()) {
                return Err(Error::setting(format!(
                    "the data set wrote nothing to {what} {index} of the network; write it in `get`, or take a data set that has it"
                )));
            }
        }
        Ok(())
    }
}

fn too_few(what: &str, count: usize, index: usize) -> Error {
    Error::setting(format!(
        "the data set has {what} up to number {index}, but the network takes {count}; take fewer from the data set, or declare more in the network"
    ))
}
