//! Tensors on the host, whose shape is part of their type.

use crate::error::Error;
use crate::number::random::exp;
use crate::number::{Format, put_words};
use crate::run::display;
use crate::typed::D;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;

/// A tensor on the host: `Tensor<f32, (D<64>, D<3>, D<224>, D<224>)>` holds 64 images. Elements are in row-major order.
#[derive(Clone, PartialEq)]
pub struct Tensor<T, S> {
    elements: Vec<T>,
    shape: PhantomData<S>,
}

/// A shape that is known to the type system: a tuple of [`D`].
pub trait HostShape: Send + Sync + 'static {
    /// The dimensions, outermost first.
    const DIMS: &'static [usize];
    /// Number of elements.
    const ELEMENTS: usize;
}

macro_rules! host_shapes {
    ($(($($dim:ident),*))*) => {
        $(impl<$(const $dim: usize),*> HostShape for ($(D<$dim>,)*) {
            const DIMS: &'static [usize] = &[$($dim),*];
            const ELEMENTS: usize = 1 $(* $dim)*;
        })*
    };
}
host_shapes! { (A) (A, B) (A, B, C) (A, B, C, E) (A, B, C, E, F) (A, B, C, E, F, G) (A, B, C, E, F, G, H) }

/// An element type of tensors: `f32` for numbers, `u32` for indices, `u8` for images as they are stored.
pub trait Element: Copy + Default + fmt::Debug + Send + Sync + 'static {
    /// Writes elements in `format`, little-endian, until `out` is full.
    fn encode(elements: &[Self], format: Format, out: &mut [u8]);
    /// Returns the elements that these bytes are in `format`.
    fn decode(format: Format, bytes: &[u8]) -> Vec<Self>;
    /// Returns the elements as texts of equal width.
    fn texts(elements: &[Self]) -> Vec<String>;
}

impl Element for f32 {
    fn encode(elements: &[f32], format: Format, out: &mut [u8]) {
        format.encode(elements, out);
    }

    fn decode(format: Format, bytes: &[u8]) -> Vec<f32> {
        format.decode(bytes)
    }

    fn texts(elements: &[f32]) -> Vec<String> {
        display::floats(elements)
    }
}

impl Element for u32 {
    fn encode(elements: &[u32], _: Format, out: &mut [u8]) {
        put_words(elements, out, u32::to_le_bytes);
    }

    fn decode(_: Format, bytes: &[u8]) -> Vec<u32> {
        bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect()
    }

    fn texts(elements: &[u32]) -> Vec<String> {
        display::integers(elements.iter().copied())
    }
}

impl Element for u8 {
    fn encode(elements: &[u8], _: Format, out: &mut [u8]) {
        put_words(elements, out, u8::to_le_bytes);
    }

    fn decode(_: Format, bytes: &[u8]) -> Vec<u8> {
        bytes.to_vec()
    }

    fn texts(elements: &[u8]) -> Vec<String> {
        display::integers(elements.iter().map(|&element| element.into()))
    }
}

impl<T: Element, S: HostShape> Tensor<T, S> {
    /// Returns a tensor of zeros.
    pub fn zeros() -> Tensor<T, S> {
        Tensor { elements: vec![T::default(); S::ELEMENTS], shape: PhantomData }
    }

    /// Returns a tensor of these elements, in row-major order.
    ///
    /// # Errors
    /// [`Error::Length`] if their number is not that of the shape.
    pub fn from_vec(elements: Vec<T>) -> Result<Tensor<T, S>, Error> {
        if elements.len() != S::ELEMENTS {
            return Err(Error::Length {
                what: alloc::format!("a tensor of shape {:?}", S::DIMS).to_string(),
                expected: S::ELEMENTS as u64,
                found: elements.len() as u64,
            });
        }
        Ok(Tensor { elements, shape: PhantomData })
    }

    /// Returns a tensor whose elements are `f` of their row-major position.
    pub fn from_fn(f: impl FnMut(usize) -> T) -> Tensor<T, S> {
        Tensor { elements: (0..S::ELEMENTS).map(f).collect(), shape: PhantomData }
    }

    /// Returns a batch of these samples, and their number. Each sample has its elements in row-major order. If there are fewer samples than
    /// the batch has, the rest are zeros; `output.samples().take(count)` are then the results of the given ones.
    ///
    /// # Errors
    /// [`Error::Length`] if a sample has another number of elements, [`Error::Samples`] if there are more samples than the batch has.
    pub fn from_samples<I>(samples: I) -> Result<(Tensor<T, S>, usize), Error>
    where
        I: IntoIterator,
        I::Item: AsRef<[T]>,
    {
        let batch = Self::batch();
        let mut elements = Vec::with_capacity(S::ELEMENTS);
        let mut count = 0;
        for sample in samples {
            let (sample, expected) = (sample.as_ref(), S::ELEMENTS / batch);
            if sample.len() != expected {
                let what = alloc::format!("sample {count} of a batch of shape {:?}", S::DIMS);
                return Err(Error::Length { what, expected: expected as u64, found: sample.len() as u64 });
            }
            count += 1;
            if count <= batch {
                elements.extend_from_slice(sample);
            }
        }
        if count > batch {
            return Err(Error::Samples { batch: batch as u64, found: count as u64 });
        }
        elements.resize(S::ELEMENTS, T::default());
        Ok((Tensor { elements, shape: PhantomData }, count))
    }

    /// Returns the samples of a batch.
    fn batch() -> usize {
        S::DIMS.first().copied().unwrap_or(1).max(1)
    }

    /// Returns the dimensions, outermost first.
    pub fn dims(&self) -> &'static [usize] {
        S::DIMS
    }

    /// Returns the elements in row-major order.
    pub fn as_slice(&self) -> &[T] {
        &self.elements
    }

    /// Returns the elements in row-major order.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.elements
    }

    /// Returns the elements in row-major order.
    pub fn into_vec(self) -> Vec<T> {
        self.elements
    }

    /// Returns the element at this position, outermost dimension first: `logits.get(&[0, 3])`. `None` outside the shape.
    pub fn get(&self, position: &[usize]) -> Option<&T> {
        if position.len() != S::DIMS.len() {
            return None;
        }
        let mut index = 0;
        for (&at, &dim) in position.iter().zip(S::DIMS) {
            if at >= dim {
                return None;
            }
            index = index * dim + at;
        }
        self.elements.get(index)
    }

    /// Returns the elements of each sample, in order.
    pub fn samples(&self) -> impl Iterator<Item = &[T]> {
        self.elements.chunks_exact((S::ELEMENTS / Self::batch()).max(1))
    }
}

impl<T: Element, const B: usize, const C: usize, const H: usize, const W: usize> Tensor<T, (D<B>, D<C>, D<H>, D<W>)> {
    /// Returns a batch of images from pixels, and their number. Each image has `H * W * C` elements, as files store them, which are
    /// rearranged to `[C, H, W]`. Otherwise as [`Tensor::from_samples`].
    ///
    /// # Errors
    /// As for [`Tensor::from_samples`].
    pub fn from_pixels<I>(images: I) -> Result<(Self, usize), Error>
    where
        I: IntoIterator,
        I::Item: AsRef<[T]>,
    {
        let (mut batch, count) = Self::from_samples(images)?;
        let mut apart = vec![T::default(); C * H * W];
        for image in batch.elements.chunks_exact_mut(apart.len().max(1)).take(count) {
            for (pixel, channels) in image.chunks_exact(C.max(1)).enumerate() {
                channels.iter().enumerate().for_each(|(channel, &element)| apart[channel * H * W + pixel] = element);
            }
            image.copy_from_slice(&apart);
        }
        Ok((batch, count))
    }
}

impl<S: HostShape> Tensor<f32, S> {
    /// Returns the position of the largest element of each sample: of logits the predicted class. It is the first of several, or that of a
    /// NaN if there is one.
    ///
    /// PyTorch: `x.flatten(1).argmax(1)`.
    pub fn argmax(&self) -> Vec<usize> {
        let largest = |sample: &[f32]| {
            let mut largest = 0;
            for (index, &value) in sample.iter().enumerate() {
                let best = sample[largest];
                if value > best || (value.is_nan() && !best.is_nan()) {
                    largest = index;
                }
            }
            largest
        };
        self.samples().map(largest).collect()
    }

    /// Returns the softmax over the last dimension, computed in double precision: of logits `[batch, classes]` the probability of each
    /// class.
    ///
    /// PyTorch: `x.softmax(-1)`.
    pub fn softmax(&self) -> Self {
        let mut probabilities = Tensor { elements: self.elements.clone(), shape: PhantomData };
        let last = S::DIMS.last().copied().unwrap_or(1).max(1);
        for row in probabilities.elements.chunks_exact_mut(last) {
            let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let powers: Vec<f64> = row.iter().map(|&value| exp(f64::from(value) - f64::from(largest))).collect();
            let sum: f64 = powers.iter().sum();
            row.iter_mut().zip(powers).for_each(|(value, power)| *value = (power / sum) as f32);
        }
        probabilities
    }
}

impl<T: Element, const A: usize> From<[T; A]> for Tensor<T, (D<A>,)> {
    fn from(elements: [T; A]) -> Self {
        Tensor { elements: elements.to_vec(), shape: PhantomData }
    }
}

impl<T: Element, const A: usize, const B: usize> From<[[T; B]; A]> for Tensor<T, (D<A>, D<B>)> {
    fn from(elements: [[T; B]; A]) -> Self {
        Tensor { elements: elements.as_flattened().to_vec(), shape: PhantomData }
    }
}

impl<T: Element, const A: usize, const B: usize, const C: usize> From<[[[T; C]; B]; A]>
    for Tensor<T, (D<A>, D<B>, D<C>)>
{
    fn from(elements: [[[T; C]; B]; A]) -> Self {
        Tensor { elements: elements.as_flattened().as_flattened().to_vec(), shape: PhantomData }
    }
}

impl<T: fmt::Debug, S: HostShape> fmt::Debug for Tensor<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.elements[..self.elements.len().min(8)];
        write!(f, "Tensor{:?} {shown:?}", S::DIMS)?;
        if self.elements.len() > shown.len() { f.write_str(" ..") } else { Ok(()) }
    }
}

/// Prints the elements in brackets, as numpy prints an array: in full up to 1000 elements, else three indices at both ends of each axis.
/// `{:?}` prints one line with the shape.
///
/// ```
/// # use gpumem_core::run::tensor::Tensor;
/// # use gpumem_core::typed::D;
/// let logits: Tensor<f32, (D<2>, D<3>)> = Tensor::from([[1.0, -0.25, 3.5], [0.0, 10.0, 2.0]]);
/// assert_eq!(logits.to_string(), "[[ 1.   -0.25  3.5 ]\n [ 0.   10.    2.  ]]");
/// ```
impl<T: Element, S: HostShape> fmt::Display for Tensor<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<T> = display::shown(S::DIMS).into_iter().map(|position| self.elements[position]).collect();
        f.pad(&display::array(S::DIMS, T::texts(&shown)))
    }
}

/// Something whose elements can be copied into the arena and out of it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no tensor on the host",
    label = "what goes into a network and comes out of it is a `gpumem::Tensor`"
)]
pub trait Host: Sized + Sync + 'static {
    /// Number of elements.
    const ELEMENTS: usize;
    /// Writes the elements from number `first` on in `format`, until `out` is full.
    fn put(&self, format: Format, first: usize, out: &mut [u8]);
    /// Returns the tensor that these bytes are in `format`.
    ///
    /// # Errors
    /// [`Error::Length`] if there are too few or too many.
    fn take(format: Format, bytes: &[u8]) -> Result<Self, Error>;
}

impl<T: Element, S: HostShape> Host for Tensor<T, S> {
    const ELEMENTS: usize = S::ELEMENTS;

    fn put(&self, format: Format, first: usize, out: &mut [u8]) {
        T::encode(self.elements.get(first..).unwrap_or_default(), format, out);
    }

    fn take(format: Format, bytes: &[u8]) -> Result<Tensor<T, S>, Error> {
        Tensor::from_vec(T::decode(format, bytes))
    }
}

/// The type of an argument for inputs or targets `T`: `&Tensor<..>`, or `(&Tensor<..>, &Tensor<..>)` for several.
pub type Given<'a, T> = <T as Hosts>::Given<'a>;

/// Inputs, targets or outputs of a network: one tensor, a tuple of several, or `()` for none.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a tensor on the host nor a tuple of tensors",
    label = "what goes into a network and comes out of it is a `gpumem::Tensor`, or a tuple of them where there are several"
)]
pub trait Hosts: Sized + 'static {
    /// The type of it as an argument: `&Tensor<..>`, `(&Tensor<..>, &Tensor<..>)` or `()`.
    type Given<'a>: Copy + Give<'a, Self>
    where
        Self: 'a;

    /// Returns itself as an argument.
    fn given(&self) -> Self::Given<'_>;

    /// Calls `each` with the number of each tensor, its count of elements, and a function that writes them.
    ///
    /// # Errors
    /// Those of `each`.
    fn put(given: Self::Given<'_>, each: &mut PutEach<'_>) -> Result<(), Error>;

    /// Builds the tensors from the bytes that `each` returns for their numbers.
    ///
    /// # Errors
    /// Those of `each`, and [`Error::Length`].
    fn take(each: &mut TakeEach<'_>) -> Result<Self, Error>;
}

/// An argument for a network that takes `T`: a `&T` or, if `T` is a tuple, a tuple of references.
#[diagnostic::on_unimplemented(
    message = "the network takes a `{T}` here, not `{Self}`",
    label = "expected `&{T}`",
    note = "a batch is a `Tensor`, whose shape is a part of its type: `Tensor::from_vec(elements)?`, `Tensor::from_samples(samples)?`, `Tensor::from_fn(..)`",
    note = "several tensors are handed in as a tuple, `(&images, &tokens)`"
)]
pub trait Give<'a, T: Hosts> {
    /// Returns the tensors that the network reads.
    fn give(self) -> T::Given<'a>;
}

#[diagnostic::do_not_recommend]
impl<'a, T: Hosts> Give<'a, T> for &'a T {
    fn give(self) -> T::Given<'a> {
        self.given()
    }
}

/// The target of a loss. A network without `const TRAIN` has none.
#[diagnostic::on_unimplemented(
    message = "the network has no `const TRAIN`, so it makes no training steps",
    label = "add `const TRAIN: Train = Train {{ batch: 32, optimizer: AdamW {{ lr: 1e-3 }}, loss: CrossEntropy }};` to the network, and load it with `on`",
    note = "a function for all networks that train has the bound `N: Trains`; a step whose constant has another name is made as \
            `Gan::critic(&mut net).train_step(..)`"
)]
pub trait Compared: Hosts {}

/// The target of a network that makes training steps: that of `const TRAIN`, or [`NamedSteps`].
#[diagnostic::on_unimplemented(
    message = "the network has no constant of type `Train`, so it makes no training steps",
    label = "add `const TRAIN: Train = Train {{ batch: 32, optimizer: AdamW {{ lr: 1e-3 }}, loss: CrossEntropy }};` to the network, and load it with `on`",
    note = "a function for all networks that train has the bound `N: Trains`"
)]
pub trait Learned: Hosts {}

#[diagnostic::do_not_recommend]
impl<T: Compared> Learned for T {}

#[diagnostic::do_not_recommend]
impl Learned for NamedSteps {}

#[diagnostic::do_not_recommend]
impl<T: Element, S: HostShape> Compared for Tensor<T, S> {}

/// A function that takes the number of a tensor, its count of elements, and a function that writes them: see [`Host::put`].
pub type PutEach<'a> = dyn FnMut(usize, usize, &(dyn Fn(Format, usize, &mut [u8]) + Sync)) -> Result<(), Error> + 'a;

/// A function that returns the format and the bytes of a tensor by its number.
pub type TakeEach<'a> = dyn FnMut(usize) -> Result<(Format, Vec<u8>), Error> + 'a;

impl<T: Element, S: HostShape> Hosts for Tensor<T, S> {
    type Given<'a>
        = &'a Tensor<T, S>
    where
        Self: 'a;

    fn given(&self) -> &Tensor<T, S> {
        self
    }

    fn put(given: &Tensor<T, S>, each: &mut PutEach<'_>) -> Result<(), Error> {
        each(0, Self::ELEMENTS, &|format, first, out| Host::put(given, format, first, out))
    }

    fn take(each: &mut TakeEach<'_>) -> Result<Self, Error> {
        let (format, bytes) = each(0)?;
        <Self as Host>::take(format, &bytes)
    }
}

macro_rules! hosts {
    ($(($($name:ident: $index:tt),*))*) => {
        $(
            #[diagnostic::do_not_recommend]
            impl<$($name: Host),*> Compared for ($($name,)*) {}

            #[diagnostic::do_not_recommend]
            #[allow(clippy::unused_unit, reason = "there is a tuple of none")]
            impl<'a, $($name: Host),*> Give<'a, ($($name,)*)> for ($(&'a $name,)*) {
                fn give(self) -> ($(&'a $name,)*) {
                    self
                }
            }

            #[diagnostic::do_not_recommend]
            impl<'a, $($name: Host),*> Give<'a, NoConstTrain> for ($(&'a $name,)*) {
                fn give(self) {}
            }

            #[diagnostic::do_not_recommend]
            impl<'a, $($name: Host),*> Give<'a, NamedSteps> for ($(&'a $name,)*) {
                fn give(self) {}
            }

            #[allow(unused_variables, clippy::unused_unit, reason = "there is a tuple of none")]
            impl<$($name: Host),*> Hosts for ($($name,)*) {
                type Given<'a> = ($(&'a $name,)*) where Self: 'a;

                fn given(&self) -> Self::Given<'_> {
                    ($(&self.$index,)*)
                }

                fn put(given: Self::Given<'_>, each: &mut PutEach<'_>) -> Result<(), Error> {
                    $(each($index, $name::ELEMENTS, &|format, first, out| given.$index.put(format, first, out))?;)*
                    Ok(())
                }

                fn take(each: &mut TakeEach<'_>) -> Result<Self, Error> {
                    Ok(($({
                        let (format, bytes) = each($index)?;
                        $name::take(format, &bytes)?
                    },)*))
                }
            }
        )*
    };
}
hosts! {
    ()
    (A: 0, B: 1)
    (A: 0, B: 1, C: 2)
    (A: 0, B: 1, C: 2, E: 3)
    (A: 0, B: 1, C: 2, E: 3, F: 4)
    (A: 0, B: 1, C: 2, E: 3, F: 4, G: 5)
    (A: 0, B: 1, C: 2, E: 3, F: 4, G: 5, H: 6)
    (A: 0, B: 1, C: 2, E: 3, F: 4, G: 5, H: 6, I: 7)
}

/// The target of a network that has no `const TRAIN`: **add one to train it**. There is no value of this type.
#[derive(Clone, Copy, Debug)]
pub enum NoConstTrain {}

impl Hosts for NoConstTrain {
    type Given<'a> = ();

    fn given(&self) {
        match *self {}
    }

    fn put((): (), _: &mut PutEach<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn take(_: &mut TakeEach<'_>) -> Result<Self, Error> {
        Err(Error::Damaged("a network without `const TRAIN` has no target"))
    }
}

/// The target of a network whose training steps have names of their own: **each has its own**, `Gan::critic(&mut net)`. There is no value of
/// this type.
#[derive(Clone, Copy, Debug)]
pub enum NamedSteps {}

impl Hosts for NamedSteps {
    type Given<'a> = ();

    fn given(&self) {
        match *self {}
    }

    fn put((): (), _: &mut PutEach<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn take(_: &mut TakeEach<'_>) -> Result<Self, Error> {
        Err(Error::Damaged("each of the network's steps has a target of its own"))
    }
}

/// Accepts any target, so that the compiler reports the missing `const TRAIN` alone.
#[diagnostic::do_not_recommend]
impl<'a, T: Compared> Give<'a, NamedSteps> for &'a T {
    fn give(self) {}
}

/// Accepts any target, so that the compiler reports alone that the network makes no training steps.
#[diagnostic::do_not_recommend]
impl<'a, T: Compared> Give<'a, NoConstTrain> for &'a T {
    fn give(self) {}
}

/// The most tensors of a tuple.
pub const MOST_HOSTS: usize = 8;
