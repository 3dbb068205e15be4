//! A log of TensorBoard's event files.

use super::{Begin, Entry, Logger};
use crate::error::{Error, Result};
use crate::metrics::Table;
use crate::tensorboard::{EventWriter, Picture};
use std::path::PathBuf;

/// The least and the most pixels of a side of a table's image, unless it has more rows.
const SIDE: usize = 512;

/// A log for TensorBoard: a folder of event files.
///
/// Values are scalars, tables are images, and parameters are histograms if asked for. Each run writes a file of its own. TensorBoard shows
/// a resumed training without the steps that were made twice. If another network is trained in the same folder, it shows the newest
/// training alone.
///
/// ```text
/// tensorboard --logdir runs
/// ```
#[derive(Debug)]
pub struct TensorBoard {
    folder: PathBuf,
    has_histograms: bool,
    writer: Option<EventWriter>,
}

impl TensorBoard {
    /// Returns a log in this folder, which is created when the training starts.
    pub fn new(folder: impl Into<PathBuf>) -> TensorBoard {
        TensorBoard { folder: folder.into(), has_histograms: false, writer: None }
    }

    /// Adds a histogram of each parameter after each evaluation.
    #[must_use]
    pub fn histograms(mut self) -> TensorBoard {
        self.has_histograms = true;
        self
    }

    fn writer(&mut self) -> Result<&mut EventWriter> {
        let TensorBoard { folder, writer, .. } = self;
        writer.as_mut().ok_or_else(|| {
            Error::file(&*folder, "the log was not started; give it to a trainer, or call `begin` first")
        })
    }
}

impl Logger for TensorBoard {
    fn begin(&mut self, begin: &Begin<'_>) -> Result<()> {
        let writer = self.writer.insert(EventWriter::create(&self.folder)?);
        writer.start(if begin.step == 0 { 0 } else { begin.step.saturating_add(1) })
    }

    fn record(&mut self, record: &Entry<'_>) -> Result<()> {
        let writer = self.writer()?;
        for (name, value) in record.values {
            writer.scalar(name, record.step, *value)?;
        }
        for table in record.tables {
            let (width, height, pixels) = picture(table);
            if width > 0 && height > 0 {
                writer.image(&table.name, record.step, Picture { width, height, channels: 1, pixels: &pixels })?;
            }
        }
        Ok(())
    }

    fn wants_parameters(&self) -> bool {
        self.has_histograms
    }

    fn parameter(&mut self, step: u64, name: &str, values: &[f32]) -> Result<()> {
        self.writer()?.histogram(name, step, values)
    }
}

/// Returns width, height and grey pixels of a table. Black is a count equal to the sum of its row, white is 0.
fn picture(table: &Table) -> (usize, usize, Vec<u8>) {
    let rows = table.rows().count();
    let cell = (SIDE / rows.max(table.columns).max(1)).max(1);
    let mut pixels = Vec::with_capacity(rows * table.columns * cell * cell);
    for row in table.rows() {
        let sum = row.iter().sum::<u64>().max(1);
        let shade = |&count: &u64| 255 - (255.0 * count as f64 / sum as f64).round() as u8;
        let line: Vec<u8> = row.iter().flat_map(|count| std::iter::repeat_n(shade(count), cell)).collect();
        (0..cell).for_each(|_| pixels.extend_from_slice(&line));
    }
    (table.columns * cell, rows * cell, pixels)
}

#[cfg(test)]
mod tests {
    use super::picture;
    use crate::metrics::Table;

    #[test]
    fn a_picture_shows_shares_of_rows() {
        let table = Table { name: "t".into(), columns: 2, counts: vec![3, 1, 0, 0] };
        let (width, height, pixels) = picture(&table);
        assert_eq!((width, height, pixels.len()), (512, 512, 512 * 512));
        assert_eq!([0, 511, 511 * 512, 511 * 512 + 511].map(|index| pixels[index]), [255 - 191, 255 - 64, 255, 255]);
        let wide = Table { name: "t".into(), columns: 1000, counts: vec![1; 2000] };
        assert_eq!(picture(&wide).0, 1000);
    }
}
