//! The trait of data sets.

use crate::draw::Draw;
use crate::error::Result;
use crate::sample::Sample;
use std::path::Path;
use std::sync::Arc;

/// A set of samples. Each can be read by its index, from several threads at once.
///
/// ```
/// use gpumem_data::{Dataset, Draw, Result, Sample};
///
/// /// Points on a line, with the class that they belong to.
/// struct Points;
///
/// impl Dataset for Points {
///     fn len(&self) -> usize {
///         100
///     }
///
///     fn get(&self, index: usize, draw: &mut Draw, sample: &mut Sample<'_>) -> Result<()> {
///         let x = index as f32 / 100.0 + 0.01 * draw.uniform() as f32;
///         sample.input(0)?.put_numbers(&[x, 1.0])?;
///         sample.target(0)?.put_label(u32::from(index >= 50))
///     }
/// }
/// ```
pub trait Dataset: Send + Sync + 'static {
    /// Returns the number of samples.
    fn len(&self) -> usize;

    /// Writes sample `index`, which is below [`Dataset::len`], to all slots of `sample`.
    ///
    /// Augmentation must take its random numbers from `draw` alone, which is seeded by (seed, epoch, index).
    ///
    /// # Errors
    /// Any fault of the sample. The first error ends the epoch.
    fn get(&self, index: usize, draw: &mut Draw, sample: &mut Sample<'_>) -> Result<()>;

    /// True if there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the file or folder of the whole set, for messages. `None` if there is none.
    fn path(&self) -> Option<&Path> {
        None
    }
}

impl<D: Dataset + ?Sized> Dataset for Arc<D> {
    fn len(&self) -> usize {
        (**self).len()
    }

    fn get(&self, index: usize, draw: &mut Draw, sample: &mut Sample<'_>) -> Result<()> {
        (**self).get(index, draw, sample)
    }

    fn path(&self) -> Option<&Path> {
        (**self).path()
    }
}

/// Returns a data set of `len` samples that a function writes.
///
/// ```
/// let squares = gpumem_data::from_fn(10, |index, _, sample| {
///     sample.input(0)?.put_numbers(&[index as f32])?;
///     sample.target(0)?.put_numbers(&[(index * index) as f32])
/// });
/// assert_eq!(gpumem_data::Dataset::len(&squares), 10);
/// ```
pub fn from_fn<F>(len: usize, get: F) -> FromFn<F>
where
    F: Fn(usize, &mut Draw, &mut Sample<'_>) -> Result<()> + Send + Sync + 'static,
{
    FromFn { len, get }
}

/// A data set that a function writes: see [`from_fn`].
#[derive(Clone, Copy, Debug)]
pub struct FromFn<F> {
    len: usize,
    get: F,
}

impl<F> Dataset for FromFn<F>
where
    F: Fn(usize, &mut Draw, &mut Sample<'_>) -> Result<()> + Send + Sync + 'static,
{
    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, index: usize, draw: &mut Draw, sample: &mut Sample<'_>) -> Result<()> {
        (self.get)(index, draw, sample)
    }
}
