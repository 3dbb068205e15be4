//! Images: decoding, and the transforms of torchvision.

mod color_jitter;
mod decode;
mod transforms;

pub use transforms::{Transform, Transforms};

use crate::draw::Draw;
use crate::error::{Error, ErrorKind, Result};
use crate::slot::Slot;
use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use std::fmt;

/// The most bytes of a file, of a decoded image, and of a transformed one: 256 MiB. A data set may have another limit.
pub const MOST_IMAGE: u64 = 256 << 20;

/// An image while it is transformed: `[height, width, channels]`, bytes. A worker has one and reuses its memory.
pub(crate) struct Canvas {
    pixels: Vec<u8>,
    /// The buffer that the next transform writes to.
    spare: Vec<u8>,
    height: usize,
    width: usize,
    channels: usize,
    limit: u64,
    resizer: Resizer,
}

impl Default for Canvas {
    fn default() -> Canvas {
        let (pixels, spare, resizer) = (Vec::new(), Vec::new(), Resizer::new());
        Canvas { pixels, spare, height: 0, width: 0, channels: 0, limit: MOST_IMAGE, resizer }
    }
}

impl fmt::Debug for Canvas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Canvas[{}, {}, {}]", self.height, self.width, self.channels)
    }
}

/// A part of an image. It may reach beyond the edges, where it is black.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    top: isize,
    left: isize,
    height: usize,
    width: usize,
}

impl Canvas {
    /// Takes an image of `[channels, height, width]`.
    pub fn load_planes(&mut self, bytes: &[u8], dims: [usize; 3]) -> Result<()> {
        self.load(bytes, dims)?;
        let [channels, height, width] = dims;
        self.pixels.resize(bytes.len(), 0);
        for (channel, plane) in bytes.chunks_exact((height * width).max(1)).enumerate() {
            let to = self.pixels[channel..].iter_mut().step_by(channels);
            to.zip(plane).for_each(|(to, &byte)| *to = byte);
        }
        Ok(())
    }

    /// Takes an image of `[height, width, channels]`. Its dimensions are given as `[channels, height, width]`.
    pub fn load_pixels(&mut self, bytes: &[u8], dims: [usize; 3]) -> Result<()> {
        self.load(bytes, dims)?;
        self.pixels.extend_from_slice(bytes);
        Ok(())
    }

    /// Sets the dimensions of an image of these bytes, and clears the pixels.
    fn load(&mut self, bytes: &[u8], [channels, height, width]: [usize; 3]) -> Result<()> {
        (self.height, self.width, self.channels, self.limit) = (height, width, channels, MOST_IMAGE);
        self.pixels.clear();
        if bytes.len() as u64 > self.limit {
            return Err(Error::new(ErrorKind::TooLarge {
                needed: Some(bytes.len() as u64),
                limit: self.limit,
                advice: "make the images of the array smaller, or leave the transforms out",
            }));
        }
        Ok(())
    }

    /// Applies transforms in their order.
    pub fn apply(&mut self, transforms: &Transforms, draw: &mut Draw) -> Result<()> {
        transforms.iter().try_for_each(|transform| transform.apply(self, draw))
    }

    /// Writes the image to a slot of `[channels, height, width]`.
    pub fn put(&self, slot: &mut Slot<'_>) -> Result<()> {
        slot.put_pixels(&self.pixels, [self.height, self.width, self.channels])
    }

    /// Begins the next image in `spare`, which still has pixels of an earlier one.
    fn begin(&mut self, height: usize, width: usize) -> Result<()> {
        let bytes = (height as u64).saturating_mul(width as u64).saturating_mul(self.channels as u64);
        if bytes > self.limit {
            return Err(too_large(Some(bytes), self.limit));
        }
        self.spare.resize(bytes as usize, 0);
        Ok(())
    }

    /// Makes the image in `spare` the current one.
    fn finish(&mut self, height: usize, width: usize) {
        std::mem::swap(&mut self.pixels, &mut self.spare);
        (self.height, self.width) = (height, width);
    }

    /// Replaces the image by a part of it.
    fn crop(&mut self, window: Window) -> Result<()> {
        let Window { top, left, height, width } = window;
        if (top, left, height, width) == (0, 0, self.height, self.width) {
            return Ok(());
        }
        self.begin(height, width)?;
        let inside = |first: isize, length: usize, whole: usize| {
            let end = (first + length as isize).clamp(0, whole as isize) as usize;
            (first.max(0) as usize).min(end)..end
        };
        let (rows, columns) = (inside(top, height, self.height), inside(left, width, self.width));
        if (rows.len(), columns.len()) != (height, width) {
            self.spare.fill(0);
        }
        let channels = self.channels;
        for row in rows {
            let from = (row * self.width + columns.start) * channels..(row * self.width + columns.end) * channels;
            let (to_row, to_column) = ((row as isize - top) as usize, (columns.start as isize - left).max(0) as usize);
            let to = (to_row * width + to_column) * channels;
            if !from.is_empty() {
                self.spare[to..to + from.len()].copy_from_slice(&self.pixels[from]);
            }
        }
        self.finish(height, width);
        Ok(())
    }

    /// Resizes a part of the image, with triangle filters that widen when it shrinks: PyTorch's bilinear with `antialias=True`.
    fn resize(&mut self, from: Window, height: usize, width: usize) -> Result<()> {
        let is_whole = from == Window { top: 0, left: 0, height: self.height, width: self.width };
        if is_whole && (height, width) == (self.height, self.width) {
            return Ok(());
        }
        let pixel = match self.channels {
            1 => PixelType::U8,
            2 => PixelType::U8x2,
            3 => PixelType::U8x3,
            4 => PixelType::U8x4,
            channels => {
                return Err(Error::setting(format!(
                    "images of {channels} channels cannot be resized; crop them, or store them in the network's size"
                )));
            }
        };
        self.begin(height, width)?;
        let failed = |error: &dyn fmt::Display| {
            Error::format(format!("cannot be resized to [{height}, {width}] ({error}); give an image with pixels"))
        };
        let source = ImageRef::new(self.width as u32, self.height as u32, &self.pixels, pixel);
        let source = source.map_err(|error| failed(&error))?;
        let to = Image::from_slice_u8(width as u32, height as u32, &mut self.spare, pixel);
        let mut to = to.map_err(|error| failed(&error))?;
        let options = ResizeOptions::new()
            .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
            .use_alpha(false)
            .crop(from.left as f64, from.top as f64, from.width as f64, from.height as f64);
        self.resizer.resize(&source, &mut to, &options).map_err(|error| failed(&error))?;
        self.finish(height, width);
        Ok(())
    }

    /// Mirrors the image from left to right.
    fn flip_horizontally(&mut self) {
        let channels = self.channels.max(1);
        for row in self.pixels.chunks_exact_mut((self.width * channels).max(1)) {
            match channels {
                1 => row.reverse(),
                3 => row.as_chunks_mut::<3>().0.reverse(),
                _ => {
                    // Reverse all bytes of the row, then those of each pixel.
                    row.reverse();
                    row.chunks_exact_mut(channels).for_each(<[u8]>::reverse);
                }
            }
        }
    }

    fn whole(&self) -> Window {
        Window { top: 0, left: 0, height: self.height, width: self.width }
    }
}

fn too_large(needed: Option<u64>, limit: u64) -> Error {
    let advice = "make the image smaller, or raise the limit of the set with `.limit(bytes)`";
    Error::new(ErrorKind::TooLarge { needed, limit, advice })
}

#[cfg(test)]
mod tests {
    use super::{Canvas, MOST_IMAGE, Window};

    #[test]
    fn arrays_of_large_images_are_errors() {
        // Zero pages that are never touched take no memory.
        let bytes = vec![0; MOST_IMAGE as usize + 1];
        let error = "takes 268435457 bytes of memory, but at most 268435456 are allowed; \
            make the images of the array smaller, or leave the transforms out";
        for load in [Canvas::load_pixels, Canvas::load_planes] {
            let loaded = load(&mut Canvas::default(), &bytes, [1, 1, bytes.len()]);
            assert_eq!(loaded.unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn a_resize_of_what_is_not_there_is_an_error() {
        let mut canvas = Canvas::default();
        canvas.load_pixels(&[1, 2], [1, 1, 2]).unwrap();
        let error = canvas.resize(Window { top: 0, left: 5, height: 1, width: 1 }, 1, 1).unwrap_err().to_string();
        assert!(error.starts_with("cannot be resized to [1, 1] ("), "{error}");
        assert!(error.ends_with("); give an image with pixels"), "{error}");
    }
}
