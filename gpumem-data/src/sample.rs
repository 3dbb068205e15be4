//! The slots of one sample in a batch, which a data set writes.

use crate::error::{Error, ErrorKind, Result};
use gpumem_core::run::tensor::MOST_HOSTS;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementType {
    /// Bytes, which the network normalises on the device.
    U8,
    /// Numbers.
    F32,
    /// Labels and tokens.
    U32,
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ElementType::U8 => "u8",
            ElementType::F32 => "f32",
            ElementType::U32 => "u32",
        })
    }
}

/// The elements of one sample in one tensor of a batch, in row-major order.
#[derive(Debug)]
pub enum Elements<'a> {
    /// Bytes.
    U8(&'a mut [u8]),
    /// Numbers.
    F32(&'a mut [f32]),
    /// Labels and tokens.
    U32(&'a mut [u32]),
}

impl Elements<'_> {
    /// Returns their type.
    pub fn element_type(&self) -> ElementType {
        match self {
            Elements::U8(_) => ElementType::U8,
            Elements::F32(_) => ElementType::F32,
            Elements::U32(_) => ElementType::U32,
        }
    }
}

/// The slot of one sample in one tensor of a batch. Data that is written to it is not copied again on the host.
#[derive(Debug)]
pub struct Slot<'a> {
    elements: Elements<'a>,
    shape: &'static [usize],
    is_written: bool,
}

impl<'a> Slot<'a> {
    pub(crate) fn new(elements: Elements<'a>, shape: &'static [usize]) -> Slot<'a> {
        Slot { elements, shape, is_written: false }
    }

    /// Returns the dimensions of a sample, without the batch: `[C, H, W]` of an image.
    pub fn shape(&self) -> &'static [usize] {
        self.shape
    }

    /// Returns the type of the elements.
    pub fn element_type(&self) -> ElementType {
        self.elements.element_type()
    }

    /// Returns the elements. All of them must be written, since they still have values of an earlier sample.
    pub fn elements(&mut self) -> &mut Elements<'a> {
        self.is_written = true;
        &mut self.elements
    }

    /// Writes bytes in row-major order. In a tensor of `f32` each byte is divided by 255, as by torchvision's `ToTensor`.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] for another number of elements, [`ErrorKind::Element`] if the tensor is of `u32`.
    pub fn put_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.check_length(bytes.len(), &[bytes.len()])?;
        match &mut self.elements {
            Elements::U8(out) => out.copy_from_slice(bytes),
            Elements::F32(out) => out.iter_mut().zip(bytes).for_each(|(to, &byte)| *to = f32::from(byte) / 255.0),
            Elements::U32(_) => return Err(self.element_error("u8")),
        }
        self.is_written = true;
        Ok(())
    }

    /// Writes an image of `[height, width, channels]` as `[channels, height, width]`. Otherwise as [`Slot::put_bytes`].
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] unless the tensor is `[channels, height, width]`, and [`ErrorKind::Element`] if it is of `u32`.
    pub fn put_pixels(&mut self, pixels: &[u8], [height, width, channels]: [usize; 3]) -> Result<()> {
        let shape = [channels, height, width];
        if self.shape != shape || pixels.len() != channels * height * width {
            return Err(self.shape_error(&shape));
        }
        match &mut self.elements {
            Elements::U8(out) => take_apart(pixels, channels, out, |byte| byte),
            Elements::F32(out) => take_apart(pixels, channels, out, |byte| f32::from(byte) / 255.0),
            Elements::U32(_) => return Err(self.element_error("u8")),
        }
        self.is_written = true;
        Ok(())
    }

    /// Writes numbers in row-major order.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] for another number of elements, [`ErrorKind::Element`] if the tensor is not of `f32`.
    pub fn put_numbers(&mut self, numbers: &[f32]) -> Result<()> {
        self.check_length(numbers.len(), &[numbers.len()])?;
        let Elements::F32(out) = &mut self.elements else { return Err(self.element_error("f32")) };
        out.copy_from_slice(numbers);
        self.is_written = true;
        Ok(())
    }

    /// Writes labels or tokens in row-major order.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] for another number of elements, [`ErrorKind::Element`] if the tensor is not of `u32`.
    pub fn put_labels(&mut self, labels: &[u32]) -> Result<()> {
        self.check_length(labels.len(), &[labels.len()])?;
        let Elements::U32(out) = &mut self.elements else { return Err(self.element_error("u32")) };
        out.copy_from_slice(labels);
        self.is_written = true;
        Ok(())
    }

    /// Writes the only label of a sample. In a tensor of `f32` it becomes a number, for a loss such as `BceWithLogits`.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] if a sample has several elements, [`ErrorKind::Element`] if the tensor is of `u8`.
    pub fn put_label(&mut self, label: u32) -> Result<()> {
        self.check_length(1, &[])?;
        match &mut self.elements {
            Elements::F32(out) => out.fill(label as f32),
            Elements::U32(out) => out.fill(label),
            Elements::U8(_) => return Err(self.element_error("u32")),
        }
        self.is_written = true;
        Ok(())
    }

    /// True if the slot has been written since it was created.
    pub(crate) fn is_written(&self) -> bool {
        self.is_written
    }

    /// Returns an error unless a sample has `count` elements. `shape` is the found shape in the message.
    pub(crate) fn check_length(&self, count: usize, shape: &[usize]) -> Result<()> {
        let expected: usize = self.shape.iter().product();
        if count == expected { Ok(()) } else { Err(self.shape_error(shape)) }
    }

    pub(crate) fn shape_error(&self, found: &[usize]) -> Error {
        Error::new(ErrorKind::Shape { expected: self.shape.to_vec(), found: found.to_vec() })
    }

    pub(crate) fn element_error(&self, found: &str) -> Error {
        Error::new(ErrorKind::Element { expected: self.element_type(), found: found.into() })
    }
}

/// Writes interleaved channels one after the other: `[area, channels]` becomes `[channels, area]`.
fn take_apart<T>(pixels: &[u8], channels: usize, out: &mut [T], convert: impl Fn(u8) -> T) {
    let area = pixels.len().checked_div(channels).unwrap_or(0);
    if channels == 3 {
        // The usual case, in one pass over the pixels.
        let (red, rest) = out.split_at_mut(area);
        let (green, blue) = rest.split_at_mut(area);
        let places = red.iter_mut().zip(green).zip(blue);
        for (((red, green), blue), pixel) in places.zip(pixels.as_chunks::<3>().0) {
            [*red, *green, *blue] = pixel.map(&convert);
        }
        return;
    }
    for (channel, plane) in out.chunks_exact_mut(area.max(1)).enumerate() {
        let from = pixels[channel..].iter().step_by(channels);
        plane.iter_mut().zip(from).for_each(|(to, &byte)| *to = convert(byte));
    }
}

/// The slots of a sample: one for each tensor of the network's input, or of its target.
#[derive(Debug)]
pub struct Slots<'a> {
    slots: [Slot<'a>; MOST_HOSTS],
    count: usize,
}

impl<'a> Slots<'a> {
    pub(crate) fn new<const N: usize>(given: [Slot<'a>; N]) -> Slots<'a> {
        let mut slots = std::array::from_fn(|_| Slot::new(Elements::U8(&mut []), &[]));
        slots.iter_mut().zip(given).for_each(|(to, slot)| *to = slot);
        Slots { slots, count: N.min(MOST_HOSTS) }
    }
}

impl<'a> Deref for Slots<'a> {
    type Target = [Slot<'a>];

    fn deref(&self) -> &[Slot<'a>] {
        &self.slots[..self.count]
    }
}

impl<'a> DerefMut for Slots<'a> {
    fn deref_mut(&mut self) -> &mut [Slot<'a>] {
        &mut self.slots[..self.count]
    }
}

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
    /// [`ErrorKind::Setting`] if the network has fewer inputs.
    pub fn input(&mut self, index: usize) -> Result<&mut Slot<'a>> {
        Ok(self.input_and_scratch(index)?.0)
    }

    /// Returns the slot of target number `index`.
    ///
    /// # Errors
    /// [`ErrorKind::Setting`] if the network has fewer targets.
    pub fn target(&mut self, index: usize) -> Result<&mut Slot<'a>> {
        let count = self.targets.len();
        self.targets.get_mut(index).ok_or_else(|| too_few("targets", count, index))
    }

    /// Returns the slot of input number `index` and the worker's buffers.
    ///
    /// # Errors
    /// [`ErrorKind::Setting`] if the network has fewer inputs.
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
