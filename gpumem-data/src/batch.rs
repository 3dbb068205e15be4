//! Batches and their tensors.

use crate::element::Elements;
use crate::slot::{Slot, Slots};
use gpumem_core::run::tensor::{Element, Host, HostShape, Hosts, Tensor};
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

mod scalar {
    use super::{Element, Elements};

    /// An element type whose place in a batch can be written.
    pub trait Scalar: Element {
        /// The value of a target that a loss ignores. `None` if there is none.
        const IGNORED: Option<fn(u32) -> Self>;
        /// Returns the elements with their type.
        fn elements(elements: &mut [Self]) -> Elements<'_>;
    }

    impl Scalar for u8 {
        const IGNORED: Option<fn(u32) -> u8> = None;

        fn elements(elements: &mut [u8]) -> Elements<'_> {
            Elements::U8(elements)
        }
    }

    impl Scalar for f32 {
        const IGNORED: Option<fn(u32) -> f32> = None;

        fn elements(elements: &mut [f32]) -> Elements<'_> {
            Elements::F32(elements)
        }
    }

    impl Scalar for u32 {
        const IGNORED: Option<fn(u32) -> u32> = Some(|label| label);

        fn elements(elements: &mut [u32]) -> Elements<'_> {
            Elements::U32(elements)
        }
    }
}
use scalar::Scalar;

/// The input or the target of a network: a tensor whose outermost dimension is the batch, a tuple of them, or `()`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no batch that a loader can fill",
    label = "expected a `Tensor` of `u8`, `f32` or `u32`, a tuple of them, or `()`",
    note = "the target of a network without `const TRAIN` is `NoConstTrain`: give the loader `()` in its place"
)]
pub trait Batched: Hosts + Send {
    /// Returns tensors of zeros.
    fn zeros() -> Self;

    /// Returns the number of samples of each tensor.
    fn batches() -> Vec<usize>;

    /// True if a loss can ignore samples of each tensor, because they are labels or tokens.
    fn is_ignorable() -> bool;

    /// Returns the slots of sample number `row`, which is below the batch.
    fn slots(&mut self, row: usize) -> Slots<'_>;

    /// Fills the samples from number `first` on with zeros, or labels with `ignored` if it is given.
    fn pad(&mut self, first: usize, ignored: Option<u32>);
}

fn batch_of<S: HostShape>() -> usize {
    S::DIMS.first().copied().unwrap_or(0)
}

fn slot_of<T: Scalar, S: HostShape>(tensor: &mut Tensor<T, S>, row: usize) -> Slot<'_> {
    let size = S::ELEMENTS.checked_div(batch_of::<S>()).unwrap_or(0);
    let elements = tensor.as_mut_slice().get_mut(row * size..(row + 1) * size).unwrap_or_default();
    Slot::new(T::elements(elements), S::DIMS.get(1..).unwrap_or_default())
}

impl<T: Scalar, S: HostShape> Batched for Tensor<T, S> {
    fn zeros() -> Self {
        Tensor::zeros()
    }

    fn batches() -> Vec<usize> {
        vec![batch_of::<S>()]
    }

    fn is_ignorable() -> bool {
        T::IGNORED.is_some()
    }

    fn slots(&mut self, row: usize) -> Slots<'_> {
        Slots::new([slot_of(self, row)])
    }

    fn pad(&mut self, first: usize, ignored: Option<u32>) {
        let size = S::ELEMENTS.checked_div(batch_of::<S>()).unwrap_or(0);
        let value = T::IGNORED.zip(ignored).map_or(T::default(), |(make, label)| make(label));
        self.as_mut_slice().get_mut(first * size..).unwrap_or_default().fill(value);
    }
}

/// One tensor of a tuple.
pub trait BatchedTensor: Host + Batched {
    /// Returns the slot of sample number `row`.
    fn slot(&mut self, row: usize) -> Slot<'_>;
}

impl<T: Scalar, S: HostShape> BatchedTensor for Tensor<T, S> {
    fn slot(&mut self, row: usize) -> Slot<'_> {
        slot_of(self, row)
    }
}

macro_rules! batched {
    ($(($($name:ident: $index:tt),*))*) => {
        $(
            #[allow(unused_variables, clippy::unused_unit, reason = "there is a tuple of none")]
            impl<$($name: BatchedTensor),*> Batched for ($($name,)*) {
                fn zeros() -> Self {
                    ($($name::zeros(),)*)
                }

                fn batches() -> Vec<usize> {
                    [$($name::batches()),*].concat()
                }

                fn is_ignorable() -> bool {
                    true $(&& $name::is_ignorable())*
                }

                fn slots(&mut self, row: usize) -> Slots<'_> {
                    Slots::new([$(self.$index.slot(row)),*])
                }

                fn pad(&mut self, first: usize, ignored: Option<u32>) {
                    $(self.$index.pad(first, ignored);)*
                }
            }
        )*
    };
}
batched! {
    (A: 0, B: 1)
    (A: 0, B: 1, C: 2)
    (A: 0, B: 1, C: 2, E: 3)
    (A: 0, B: 1, C: 2, E: 3, F: 4)
    (A: 0, B: 1, C: 2, E: 3, F: 4, G: 5)
    (A: 0, B: 1, C: 2, E: 3, F: 4, G: 5, H: 6)
    (A: 0, B: 1, C: 2, E: 3, F: 4, G: 5, H: 6, I: 7)
}

/// No target: the loss has none.
impl Batched for () {
    fn zeros() {}

    fn batches() -> Vec<usize> {
        Vec::new()
    }

    fn is_ignorable() -> bool {
        false
    }

    fn slots(&mut self, _: usize) -> Slots<'_> {
        Slots::new([])
    }

    fn pad(&mut self, _: usize, _: Option<u32>) {}
}

/// A position in a training: the loader has returned all samples before it.
///
/// Plain numbers, to be stored together with the weights: see [`Loader::resume`](crate::Loader::resume).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The epoch; the first is 0.
    pub epoch: u64,
    /// Samples that the epoch has returned, those of all shards counted.
    pub sample: u64,
}

/// The tensors of a batch.
#[derive(Clone, Debug)]
pub struct Tensors<I, T> {
    /// The network's input.
    pub input: I,
    /// The network's target.
    pub target: T,
    /// Samples that come from the data set: the first ones. The others are padding.
    pub len: usize,
    /// Samples of the batches that all shards have at this place: `len` without other shards.
    pub global_len: usize,
    /// The position after this batch.
    pub position: Position,
}

impl<I: Batched, T: Batched> Tensors<I, T> {
    /// Returns tensors of zeros, without samples.
    pub(crate) fn zeros() -> Tensors<I, T> {
        Tensors { input: I::zeros(), target: T::zeros(), len: 0, global_len: 0, position: Position::default() }
    }
}

/// A batch of samples. It dereferences to its [`Tensors`]: `net.train_step(&batch.input, &batch.target)?`.
///
/// When it is dropped, a later batch takes over its memory.
pub struct Batch<I, T> {
    /// `None` in `drop` alone.
    tensors: Option<Tensors<I, T>>,
    pool: Arc<Pool<I, T>>,
}

impl<I, T> Batch<I, T> {
    pub(crate) fn new(tensors: Tensors<I, T>, pool: &Arc<Pool<I, T>>) -> Batch<I, T> {
        Batch { tensors: Some(tensors), pool: pool.clone() }
    }
}

impl<I, T> Deref for Batch<I, T> {
    type Target = Tensors<I, T>;

    fn deref(&self) -> &Tensors<I, T> {
        self.tensors.as_ref().expect("a batch has its tensors until it is dropped")
    }
}

impl<I, T> Drop for Batch<I, T> {
    fn drop(&mut self) {
        if let Some(tensors) = self.tensors.take() {
            self.pool.give(tensors);
        }
    }
}

impl<I: std::fmt::Debug, T: std::fmt::Debug> std::fmt::Debug for Batch<I, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

/// Tensors of dropped batches, for reuse.
pub(crate) struct Pool<I, T> {
    free: Mutex<Vec<Tensors<I, T>>>,
    most: usize,
}

impl<I, T> Pool<I, T> {
    /// Returns a pool that keeps at most `most` tensors.
    pub(crate) fn new(most: usize) -> Pool<I, T> {
        Pool { free: Mutex::new(Vec::with_capacity(most)), most }
    }

    /// Returns tensors of a dropped batch. `None` if there are none.
    pub(crate) fn take(&self) -> Option<Tensors<I, T>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// Keeps tensors for a later batch, or drops them if there are enough.
    pub(crate) fn give(&self, tensors: Tensors<I, T>) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < self.most {
            free.push(tensors);
        }
    }
}
