//! TensorBoard's event files: scalars, images and histograms.
//!
//! A file is a sequence of records: length, masked crc32c of the length, an `Event`, masked crc32c of the event. Of existing files only the
//! names are read.

mod histogram;
mod proto;

use crate::error::{Error, Result};
use histogram::Histogram;
use proto::{event, image, start, summary};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The first part of every event file's name.
const PREFIX: &str = "events.out.tfevents.";

/// The most pixels of an image.
const MOST_PIXELS: usize = 1 << 26;

/// An image in row-major order, with interleaved channels.
#[derive(Clone, Copy, Debug)]
pub struct Picture<'a> {
    /// Pixels of a row.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
    /// Channels of a pixel: 1 for grey, 3 for red, green and blue, 4 with opacity.
    pub channels: usize,
    /// `width * height * channels` bytes.
    pub pixels: &'a [u8],
}

/// A writer of one event file. Each event has been written to the file when the call returns.
///
/// ```
/// use gpumem_train::tensorboard::EventWriter;
///
/// let folder = tempfile::tempdir().unwrap();
/// let mut events = EventWriter::create(folder.path())?;
/// events.scalar("loss", 1, 0.5)?;
/// events.histogram("fc.weight", 1, &[0.1, -0.2, 0.3])?;
/// # Ok::<(), gpumem_train::Error>(())
/// ```
#[derive(Debug)]
pub struct EventWriter {
    path: PathBuf,
    file: File,
}

impl EventWriter {
    /// Creates a new event file in `folder`, which is created too if there is none.
    ///
    /// # Errors
    /// [`Error::File`] if the folder or the file cannot be written.
    pub fn create(folder: impl AsRef<Path>) -> Result<EventWriter> {
        let folder = folder.as_ref();
        fs::create_dir_all(folder).map_err(|error| Error::io(folder, &error))?;
        let (path, file) = create_file(folder).map_err(|error| Error::io(folder, &error))?;
        let mut writer = EventWriter { path, file };
        let version = proto::Message::new().double(1, now()).bytes(3, b"brain.Event:2");
        writer.put(version)?;
        Ok(writer)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes that a run starts before `step`. TensorBoard then ignores events of this step and later ones in earlier files.
    ///
    /// # Errors
    /// [`Error::File`] if the file cannot be written.
    pub fn start(&mut self, step: u64) -> Result<()> {
        self.put(event(now(), step).message(7, &start()))
    }

    /// Writes a number.
    ///
    /// # Errors
    /// [`Error::File`] if the file cannot be written.
    pub fn scalar(&mut self, tag: &str, step: u64, value: f64) -> Result<()> {
        let summary = summary(tag, |entry| entry.float(2, value as f32));
        self.put(event(now(), step).message(5, &summary))
    }

    /// Writes a histogram of the finite values. Writes nothing if there are none.
    ///
    /// # Errors
    /// [`Error::File`] if the file cannot be written.
    pub fn histogram(&mut self, tag: &str, step: u64, values: &[f32]) -> Result<()> {
        let Some(histogram) = Histogram::of(values) else { return Ok(()) };
        let summary = summary(tag, |entry| entry.message(5, &histogram.message()));
        self.put(event(now(), step).message(5, &summary))
    }

    /// Writes an image, as a PNG.
    ///
    /// # Errors
    /// [`Error::Setting`] for an image without pixels, of more than 67,108,864 pixels, of another number of channels than 1, 3 or 4, or with
    /// another number of bytes. [`Error::File`] if the file cannot be written.
    pub fn image(&mut self, tag: &str, step: u64, picture: Picture<'_>) -> Result<()> {
        let png = encode(picture)?;
        let summary = summary(tag, |entry| entry.message(4, &image(picture, &png)));
        self.put(event(now(), step).message(5, &summary))
    }

    fn put(&mut self, event: proto::Message) -> Result<()> {
        self.file.write_all(&record(&event.finish())).map_err(|error| Error::io(&self.path, &error))
    }
}

/// Returns a record of an event: length, checksum, event, checksum.
fn record(event: &[u8]) -> Vec<u8> {
    let length = (event.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), event, &masked(event)].concat()
}

/// Returns the crc32c of `bytes`, rotated and shifted so that a record may contain another record with its checksum.
fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// Creates a file whose name comes after those of all event files in the folder.
///
/// TensorBoard reads them in the order of their names.
fn create_file(folder: &Path) -> std::io::Result<(PathBuf, File)> {
    let mut second = now() as u64;
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('.').next()?.parse::<u64>().ok());
        second = second.max(number.map_or(0, |number| number.saturating_add(1)));
    }
    loop {
        let path = folder.join(format!("{PREFIX}{second:010}.gpumem.{}", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && second < u64::MAX => second += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Encodes an image as a PNG.
fn encode(image: Picture<'_>) -> Result<Vec<u8>> {
    let Picture { width, height, channels, pixels } = image;
    let color = match channels {
        1 => png::ColorType::Grayscale,
        3 => png::ColorType::Rgb,
        4 => png::ColorType::Rgba,
        _ => return Err(Error::setting(format!("an image of {channels} channels cannot be shown; give it 1, 3 or 4"))),
    };
    let area = width.checked_mul(height).filter(|&area| area > 0 && area <= MOST_PIXELS);
    if area.is_none_or(|area| area * channels != pixels.len()) {
        return Err(Error::setting(format!(
            "an image of {width} x {height} pixels with {channels} channels does not go with {} bytes; give width * height * channels bytes, \
             and at most {MOST_PIXELS} pixels",
            pixels.len()
        )));
    }
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width as u32, height as u32);
    encoder.set_color(color);
    encoder.set_depth(png::BitDepth::Eight);
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(pixels));
    written.map_err(|error| Error::setting(format!("the image cannot be written as PNG ({error}); leave it out")))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
