//! The slots of one sample in a batch, which a data set writes.

use crate::element::{ElementType, Elements};
use crate::error::{Error, ErrorKind, Result};
use gpumem_core::run::tensor::MOST_HOSTS;
use std::ops::{Deref, DerefMut};

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
