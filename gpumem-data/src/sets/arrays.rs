//! A data set of arrays: numpy's files and IDX files.

use super::array::Array;
#[cfg(feature = "image")]
use super::array::Number;
use crate::dataset::Dataset;
use crate::draw::Draw;
use crate::error::{Error, Result};
#[cfg(feature = "image")]
use crate::image::{Canvas, Transforms};
use crate::sample::Sample;
use std::path::Path;

/// Samples along the first axes of arrays: one array for each input and each target of the network.
///
/// Axes of length 1 may be left out or added: `[N, 28, 28]` fits a network of `[1, 28, 28]`. Tensors of `u8` take bytes, those of `f32` any
/// numbers, and labels and tokens of `u32` any integers.
///
/// ```no_run
/// use gpumem_data::sets::{Array, Arrays};
///
/// let set = Arrays::new([Array::npy("images.npy")?], [Array::npy("labels.npy")?])?.classes(10);
/// let mnist = Arrays::mnist("mnist", true)?;
/// # Ok::<(), gpumem_data::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Arrays {
    inputs: Vec<Array>,
    targets: Vec<Array>,
    samples: usize,
    classes: u64,
    is_channels_last: bool,
    #[cfg(feature = "image")]
    transforms: Transforms,
}

impl Arrays {
    /// Returns a data set of these arrays.
    ///
    /// # Errors
    /// No input, or arrays with different numbers of samples.
    pub fn new(inputs: impl IntoIterator<Item = Array>, targets: impl IntoIterator<Item = Array>) -> Result<Arrays> {
        let (inputs, targets): (Vec<_>, Vec<_>) = (inputs.into_iter().collect(), targets.into_iter().collect());
        let Some(first) = inputs.first() else {
            return Err(Error::setting("there is no array for the input; give at least one"));
        };
        let samples = first.samples();
        if let Some(other) = inputs.iter().chain(&targets).find(|array| array.samples() != samples) {
            let what = format!(
                "has {} samples, but `{}` has {samples}; give arrays whose first axes are equally long",
                other.samples(),
                first.path().display()
            );
            return Err(Error::format(what).with_file(other.path()));
        }
        Ok(Arrays {
            inputs,
            targets,
            samples,
            classes: u64::MAX,
            is_channels_last: false,
            #[cfg(feature = "image")]
            transforms: Transforms::new(),
        })
    }

    /// Sets the number of classes: an integer in a target that is not below it is an error, unless it is -100.
    #[must_use]
    pub fn classes(self, classes: u64) -> Arrays {
        Arrays { classes, ..self }
    }

    /// Declares that the first input is an array of `[N, H, W, C]`, like most files of images. The network takes `[C, H, W]`.
    #[must_use]
    pub fn channels_last(self) -> Arrays {
        Arrays { is_channels_last: true, ..self }
    }

    /// Sets the transforms of the first input, whose elements are bytes.
    ///
    /// It is an array of `[N, C, H, W]`, `[N, H, W]`, or `[N, H, W, C]` after [`Arrays::channels_last`].
    #[cfg(feature = "image")]
    #[must_use]
    pub fn transforms(self, transforms: Transforms) -> Arrays {
        Arrays { transforms, ..self }
    }

    /// Returns the dimensions of the first input as an image: `[channels, height, width]`.
    #[cfg(feature = "image")]
    fn image(&self, array: &Array) -> Result<[usize; 3]> {
        let dims = match (array.number(), array.sample_dims(), self.is_channels_last) {
            (Number::U8, &[height, width], _) => [1, height, width],
            (Number::U8, &[channels, height, width], false) => [channels, height, width],
            (Number::U8, &[height, width, channels], true) => [channels, height, width],
            (number, dims, _) => {
                let what = format!(
                    "holds samples of {number} of shape {dims:?}, which are no images; give bytes of [N, C, H, W], or leave transforms and `channels_last` out"
                );
                return Err(Error::format(what).with_file(array.path()));
            }
        };
        Ok(dims)
    }

    #[cfg(feature = "image")]
    fn put_image(&self, index: usize, draw: &mut Draw, sample: &mut Sample<'_>) -> Result<bool> {
        let array = &self.inputs[0];
        if self.transforms.is_empty() && !self.is_channels_last {
            return Ok(false);
        }
        let dims = self.image(array)?;
        let (slot, scratch) = sample.input_and_scratch(0)?;
        let canvas = &mut scratch.canvas;
        let load = if self.is_channels_last { Canvas::load_pixels } else { Canvas::load_planes };
        load(canvas, array.sample(index), dims)
            .and_then(|()| canvas.apply(&self.transforms, draw))
            .and_then(|()| canvas.put(slot))
            .map_err(|error| error.with_file(array.path()))?;
        Ok(true)
    }

    #[cfg(not(feature = "image"))]
    fn put_image(&self, index: usize, _: &mut Draw, sample: &mut Sample<'_>) -> Result<bool> {
        let (array, slot) = (&self.inputs[0], sample.input(0)?);
        match array.sample_dims() {
            &[height, width, channels] if self.is_channels_last => {
                slot.put_pixels(array.sample(index), [height, width, channels])
                    .map_err(|error| error.with_file(array.path()))?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

impl Dataset for Arrays {
    fn len(&self) -> usize {
        self.samples
    }

    fn get(&self, index: usize, draw: &mut Draw, sample: &mut Sample<'_>) -> Result<()> {
        let is_put = self.put_image(index, draw, sample)?;
        for (number, array) in self.inputs.iter().enumerate().skip(usize::from(is_put)) {
            let put = array.put(index, sample.input(number)?, true, u64::MAX);
            put.map_err(|error| error.with_file(array.path()))?;
        }
        for (number, array) in self.targets.iter().enumerate() {
            let put = array.put(index, sample.target(number)?, false, self.classes);
            put.map_err(|error| error.with_file(array.path()))?;
        }
        Ok(())
    }

    fn path(&self) -> Option<&Path> {
        self.inputs.first().map(Array::path)
    }
}
