//! CIFAR-10 and CIFAR-100 in their binary versions.

use super::array::label;
use super::bytes::Bytes;
use crate::dataset::Dataset;
use crate::draw::Draw;
use crate::error::{Error, ErrorKind, Result};
#[cfg(feature = "image")]
use crate::image::Transforms;
use crate::sample::Sample;
use std::path::{Path, PathBuf};

/// Bytes of an image: `[3, 32, 32]`.
const IMAGE: usize = 3 * 32 * 32;

/// Images of `[3, 32, 32]` in 10 or 100 classes, from the binary version of the data set. Its files are mapped: they must not be
/// changed while the set is open.
///
/// ```no_run
/// # #[cfg(feature = "image")] {
/// use gpumem_data::sets::Cifar;
/// use gpumem_data::Transforms;
///
/// let training = Cifar::ten("cifar-10-batches-bin", true)?
///     .transforms(Transforms::new().random_crop(32, 4).random_horizontal_flip(0.5));
/// # }
/// # Ok::<(), gpumem_data::Error>(())
/// ```
#[derive(Debug)]
pub struct Cifar {
    folder: PathBuf,
    files: Vec<CifarFile>,
    /// Bytes of labels before an image. The last one is the label that is used.
    labels: usize,
    classes: u64,
    #[cfg(feature = "image")]
    transforms: Transforms,
}

#[derive(Debug)]
struct CifarFile {
    path: PathBuf,
    bytes: Bytes,
}

impl Cifar {
    /// Opens CIFAR-10: `data_batch_1.bin` to `data_batch_5.bin` for training, `test_batch.bin` for testing.
    ///
    /// # Errors
    /// A file that cannot be read, or whose length is no multiple of 3073 bytes.
    pub fn ten(folder: impl AsRef<Path>, is_training: bool) -> Result<Cifar> {
        let training: Vec<String> = (1..=5).map(|number| format!("data_batch_{number}.bin")).collect();
        let names = if is_training { training } else { vec!["test_batch.bin".into()] };
        Cifar::open(folder.as_ref(), &names, 1, 10)
    }

    /// Opens CIFAR-100 with its 100 fine classes: `train.bin` or `test.bin`.
    ///
    /// # Errors
    /// A file that cannot be read, or whose length is no multiple of 3074 bytes.
    pub fn hundred(folder: impl AsRef<Path>, is_training: bool) -> Result<Cifar> {
        let name = if is_training { "train.bin" } else { "test.bin" };
        Cifar::open(folder.as_ref(), &[name.into()], 2, 100)
    }

    fn open(folder: &Path, names: &[String], labels: usize, classes: u64) -> Result<Cifar> {
        let file = |name: &String| {
            let path = folder.join(name);
            let bytes = Bytes::map(&path)?;
            let record = labels + IMAGE;
            if bytes.is_empty() {
                let wanted = "the file is empty; download it again".into();
                return Err(Error::new(ErrorKind::Empty { wanted }).with_file(path));
            }
            if bytes.len() % record != 0 {
                return Err(Error::format(format!(
                    "has {} bytes, which is no multiple of the {record} of a CIFAR-{classes} image; download the binary version again",
                    bytes.len()
                ))
                .with_file(path));
            }
            Ok(CifarFile { path, bytes })
        };
        Ok(Cifar {
            folder: folder.into(),
            files: names.iter().map(file).collect::<Result<_>>()?,
            labels,
            classes,
            #[cfg(feature = "image")]
            transforms: Transforms::new(),
        })
    }

    /// Sets the transforms of the images.
    #[cfg(feature = "image")]
    #[must_use]
    pub fn transforms(self, transforms: Transforms) -> Cifar {
        Cifar { transforms, ..self }
    }

    /// Returns the file of a sample, its labels and its image.
    fn record(&self, index: usize) -> (&Path, &[u8], &[u8]) {
        let record = self.labels + IMAGE;
        let (mut first, mut number) = (index * record, 0);
        while first >= self.files[number].bytes.len() {
            first -= self.files[number].bytes.len();
            number += 1;
        }
        let CifarFile { path, bytes } = &self.files[number];
        let (labels, image) = bytes[first..first + record].split_at(self.labels);
        (path, labels, image)
    }

    fn put(&self, labels: &[u8], image: &[u8], draw: &mut Draw, sample: &mut Sample<'_>) -> Result<()> {
        let value = labels.last().map_or(0, |&byte| i64::from(byte));
        sample.target(0)?.put_label(label(value, self.classes)?)?;
        let (slot, scratch) = sample.input_and_scratch(0)?;
        #[cfg(feature = "image")]
        if !self.transforms.is_empty() {
            scratch.canvas.load_planes(image, [3, 32, 32])?;
            scratch.canvas.apply(&self.transforms, draw)?;
            return scratch.canvas.put(slot);
        }
        let _ = (draw, scratch);
        if slot.shape() != [3, 32, 32] {
            return Err(slot.shape_error(&[3, 32, 32]));
        }
        slot.put_bytes(image)
    }
}

impl Dataset for Cifar {
    fn len(&self) -> usize {
        self.files.iter().map(|file| file.bytes.len() / (self.labels + IMAGE)).sum()
    }

    fn get(&self, index: usize, draw: &mut Draw, sample: &mut Sample<'_>) -> Result<()> {
        let (path, labels, image) = self.record(index);
        self.put(labels, image, draw, sample).map_err(|error| error.with_file(path))
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.folder)
    }
}
