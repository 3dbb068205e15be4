//! Decodes image files to pixels.

use super::{Canvas, too_large};
use crate::error::{Error, Result};
use image::error::{ImageError, LimitErrorKind};
use image::{ColorType, ImageDecoder, ImageFormat, ImageReader, Limits};
use std::io::{Cursor, Read};
use std::path::Path;

impl Canvas {
    /// Reads an image file and converts it to `channels`: 1 (grey), 3 (RGB) or 4 (RGBA). `file` is a buffer for the bytes of the file.
    ///
    /// Neither file nor image may exceed `limit` bytes. As in PIL's `convert`, alpha is dropped if the network does not take it, and grey
    /// is `0.299 R + 0.587 G + 0.114 B`. The orientation in EXIF is ignored.
    pub fn read(&mut self, path: &Path, file: &mut Vec<u8>, channels: usize, limit: u64) -> Result<()> {
        file.clear();
        let opened = crate::sets::bytes::open(path)?;
        opened.take(limit.saturating_add(1)).read_to_end(file).map_err(|error| Error::io(path, &error))?;
        if file.len() as u64 > limit {
            return Err(too_large(None, limit).with_file(path));
        }
        self.decode(file, channels, limit).map_err(|error| error.with_file(path))
    }

    fn decode(&mut self, file: &[u8], channels: usize, limit: u64) -> Result<()> {
        let format = image::guess_format(file).map_err(|error| unreadable(&error, limit))?;
        if format == ImageFormat::Jpeg && !has_end(file) {
            return Err(Error::format("is a JPEG that is cut off; copy or download it again, or remove it"));
        }
        let mut reader = ImageReader::with_format(Cursor::new(file), format);
        let mut limits = Limits::default();
        limits.max_alloc = Some(limit);
        reader.limits(limits);
        let decoder = reader.into_decoder().map_err(|error| unreadable(&error, limit))?;

        let (width, height) = decoder.dimensions();
        let (found, depth) = layout(decoder.color_type())?;
        (self.width, self.height, self.channels, self.limit) = (width as usize, height as usize, channels, limit);
        if decoder.total_bytes() > limit {
            return Err(too_large(Some(decoder.total_bytes()), limit));
        }
        // Clear the buffer, so that no pixels of an earlier image show if a decoder skips damaged parts.
        self.spare.clear();
        self.spare.resize(decoder.total_bytes() as usize, 0);
        decoder.read_image(&mut self.spare).map_err(|error| unreadable(&error, limit))?;
        if depth == 2 {
            halve(&mut self.spare);
        }
        if found == channels {
            std::mem::swap(&mut self.pixels, &mut self.spare);
            return Ok(());
        }
        self.convert(found)
    }

    /// Converts pixels of `found` channels in `spare` to those of the canvas.
    fn convert(&mut self, found: usize) -> Result<()> {
        let channels = self.channels;
        let bytes = self.width as u64 * self.height as u64 * channels as u64;
        if bytes > self.limit {
            return Err(too_large(Some(bytes), self.limit));
        }
        self.pixels.clear();
        self.pixels.resize(bytes as usize, 0);
        let pixels = self.pixels.chunks_exact_mut(channels.max(1)).zip(self.spare.chunks_exact(found));
        for (to, from) in pixels {
            let alpha = if found.is_multiple_of(2) { from[found - 1] } else { u8::MAX };
            let rgb = if found < 3 { [from[0]; 3] } else { [from[0], from[1], from[2]] };
            match to {
                [grey] if found < 3 => *grey = rgb[0],
                [grey] => *grey = luma(rgb),
                [red, green, blue] => [*red, *green, *blue] = rgb,
                [red, green, blue, opacity] => ([*red, *green, *blue], *opacity) = (rgb, alpha),
                // Data sets of images accept no other number of channels.
                _ => {}
            }
        }
        Ok(())
    }
}

/// True if a JPEG has its end marker. The decoder accepts a truncated file as complete, and the rest of the image would be garbage.
fn has_end(jpeg: &[u8]) -> bool {
    if jpeg.ends_with(&[0xff, 0xd9]) {
        return true;
    }
    let mut rest = jpeg.get(2..).unwrap_or_default();
    // Among coded pixels, a marker is 0xff followed by neither 0 nor the byte of a restart marker.
    while let Some(start) =
        rest.windows(2).position(|pair| pair[0] == 0xff && !matches!(pair[1], 0 | 0xff | 0xd0..=0xd7))
    {
        if rest[start + 1] == 0xd9 {
            return true;
        }
        // A segment has its length after the marker; it includes the two bytes of the length.
        let Some(&[high, low]) = rest.get(start + 2..start + 4) else { return false };
        let length = usize::from(u16::from_be_bytes([high, low]));
        rest = rest.get(start + 2 + length.max(2)..).unwrap_or_default();
    }
    false
}

/// Returns the channels of a pixel and the bytes of a channel.
fn layout(color: ColorType) -> Result<(usize, usize)> {
    Ok(match color {
        ColorType::L8 => (1, 1),
        ColorType::La8 => (2, 1),
        ColorType::Rgb8 => (3, 1),
        ColorType::Rgba8 => (4, 1),
        ColorType::L16 => (1, 2),
        ColorType::La16 => (2, 2),
        ColorType::Rgb16 => (3, 2),
        ColorType::Rgba16 => (4, 2),
        // Formats that another crate may have enabled in `image`.
        _ => return Err(Error::format(format!("has pixels of type {color:?}; convert it to 8 bits a channel"))),
    })
}

/// Keeps the upper byte of each `u16` in native byte order.
fn halve(bytes: &mut Vec<u8>) {
    let length = bytes.len() / 2;
    for index in 0..length {
        bytes[index] = (u16::from_ne_bytes([bytes[2 * index], bytes[2 * index + 1]]) >> 8) as u8;
    }
    bytes.truncate(length);
}

/// Returns the grey of a colour, as PIL rounds it.
fn luma([red, green, blue]: [u8; 3]) -> u8 {
    ((19595 * u32::from(red) + 38470 * u32::from(green) + 7471 * u32::from(blue) + 0x8000) >> 16) as u8
}

fn unreadable(error: &ImageError, limit: u64) -> Error {
    match error {
        ImageError::Limits(limits) if matches!(limits.kind(), LimitErrorKind::InsufficientMemory) => {
            too_large(None, limit)
        }
        _ => Error::format(format!(
            "is no image that can be read ({error}); replace or remove it, or convert it to PNG or JPEG"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::{ColorType, layout};

    #[test]
    fn pixels_of_fractions_are_an_error() {
        assert_eq!(layout(ColorType::La16).unwrap(), (2, 2));
        let error = layout(ColorType::Rgb32F).unwrap_err().to_string();
        assert_eq!(error, "has pixels of type Rgb32F; convert it to 8 bits a channel");
    }
}
