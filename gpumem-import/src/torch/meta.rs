//! Tensors without data: a shape, strides, a type, and a storage that is counted while something owns it.

use super::autograd::History;
use super::eager::Eager;
use super::trace::{Purpose, Trace};
use crate::model::Dtype;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Memory that tensors share. It is given back when the last of them goes.
pub(super) struct Storage {
    /// `None` if it is empty: PyTorch takes no memory then.
    index: Option<u32>,
    purpose: Cell<Purpose>,
    trace: Rc<RefCell<Trace>>,
}

impl Drop for Storage {
    fn drop(&mut self) {
        if let Some(index) = self.index {
            self.trace.borrow_mut().free(index);
        }
    }
}

/// A tensor. Clones are the same tensor, as two names in Python are.
#[derive(Clone)]
pub(super) struct Tensor(pub(super) Rc<Inner>);

pub(super) struct Inner {
    pub shape: Vec<u64>,
    pub strides: Vec<u64>,
    pub dtype: Dtype,
    pub storage: Rc<Storage>,
    pub history: RefCell<History>,
}

impl std::ops::Deref for Tensor {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

/// Returns the number of elements, at most 2^64 - 1.
pub(super) fn elements(shape: &[u64]) -> u64 {
    shape.iter().fold(1, |product, &dim| product.saturating_mul(dim))
}

/// Returns the strides of a contiguous tensor.
pub(super) fn dense(shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![1; shape.len()];
    let mut product = 1u64;
    for (stride, &dim) in strides.iter_mut().zip(shape).rev() {
        *stride = product;
        product = product.saturating_mul(dim.max(1));
    }
    strides
}

/// Returns the strides of a dense tensor whose dimensions lie in memory in the order of `strides`.
pub(super) fn dense_in_order(shape: &[u64], strides: &[u64]) -> Vec<u64> {
    if shape.iter().zip(strides).any(|(&dim, &stride)| stride == 0 && dim > 1) {
        return dense(shape);
    }
    let mut order: Vec<usize> = (0..shape.len()).collect();
    order.sort_by_key(|&dim| (std::cmp::Reverse(strides[dim]), dim));
    in_order(shape, &order)
}

/// Returns the strides of a dense tensor whose dimensions lie in memory in this order, the outermost first.
pub(super) fn in_order(shape: &[u64], order: &[usize]) -> Vec<u64> {
    let mut result = vec![0; shape.len()];
    let mut product = 1u64;
    for &dim in order.iter().rev() {
        result[dim] = product;
        product = product.saturating_mul(shape[dim].max(1));
    }
    result
}

/// Returns the strides of an image whose channels lie innermost in memory. `None` if the shape is not one of images.
pub(super) fn channels_last(shape: &[u64]) -> Option<Vec<u64>> {
    match shape.len() {
        4 => Some(in_order(shape, &[0, 2, 3, 1])),
        5 => Some(in_order(shape, &[0, 2, 3, 4, 1])),
        _ => None,
    }
}

/// Returns the strides of a view of shape `new`. `None` if the layout forbids it.
pub(super) fn view_strides(shape: &[u64], strides: &[u64], new: &[u64]) -> Option<Vec<u64>> {
    if elements(shape) == 0 {
        return Some(dense(new));
    }
    // Runs of dimensions that are contiguous in themselves: elements, and the stride of the innermost dimension.
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for (&dim, &stride) in shape.iter().zip(strides).filter(|(dim, _)| **dim != 1) {
        match runs.last_mut() {
            Some(last) if last.1 == stride.saturating_mul(dim) => *last = (last.0.saturating_mul(dim), stride),
            _ => runs.push((dim, stride)),
        }
    }
    let mut result = vec![0; new.len()];
    let mut left: Option<(u64, u64)> = None;
    for (stride, &dim) in result.iter_mut().zip(new).rev() {
        let mut run = match left {
            Some(run) if run.0 != 1 => run,
            _ => runs.pop().unwrap_or((1, left.map_or(1, |run| run.1))),
        };
        *stride = run.1;
        if dim != 1 {
            if dim == 0 || run.0 % dim != 0 {
                return None;
            }
            run = (run.0 / dim, run.1.saturating_mul(dim));
        }
        left = Some(run);
    }
    Some(result)
}

/// True if a tensor of this shape and these strides is contiguous.
fn is_contiguous(shape: &[u64], strides: &[u64]) -> bool {
    let mut product = 1u64;
    for (&dim, &stride) in shape.iter().zip(strides).rev().filter(|(dim, _)| **dim != 1) {
        if stride != product {
            return false;
        }
        product = product.saturating_mul(dim);
    }
    true
}

impl Tensor {
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    pub fn elements(&self) -> u64 {
        elements(&self.shape)
    }

    pub fn is_float(&self) -> bool {
        self.dtype.is_float()
    }

    pub fn is_contiguous(&self) -> bool {
        is_contiguous(&self.shape, &self.strides)
    }

    /// True if the elements lie in memory without gaps and without overlap, in any order of dimensions.
    pub fn is_dense(&self) -> bool {
        let pairs = self.strides.iter().zip(&self.shape);
        let mut pairs: Vec<(u64, u64)> =
            pairs.filter(|(_, dim)| **dim != 1).map(|(&stride, &dim)| (stride, dim)).collect();
        pairs.sort_unstable();
        let mut product = 1u64;
        for (stride, dim) in pairs {
            if stride != product {
                return false;
            }
            product = product.saturating_mul(dim);
        }
        true
    }

    /// True if PyTorch takes the tensor for images whose channels lie innermost in memory: `suggest_memory_format`. It may have gaps.
    pub fn is_channels_last(&self) -> bool {
        let order: &[usize] = match self.rank() {
            4 => &[1, 3, 2, 0],
            5 => &[1, 4, 3, 2, 0],
            _ => return false,
        };
        if self.strides[1] == 0 {
            return false;
        }
        let mut least = 0;
        for &dim in order {
            let (size, stride) = (self.shape[dim], self.strides[dim]);
            // An image of one pixel and one channel is taken for a contiguous one.
            if size == 0 || stride < least || (dim == 0 && least == self.strides[1]) {
                return false;
            }
            least = stride.saturating_mul(size);
        }
        true
    }

    /// True if the strides are these, in dimensions of more than one element.
    pub fn has_strides(&self, strides: &[u64]) -> bool {
        let mut dims = self.shape.iter().zip(&self.strides).zip(strides);
        dims.all(|((&dim, stride), other)| dim == 1 || stride == other)
    }

    /// Returns the index of a dimension that may be counted from the end. `None` if there is none.
    pub fn dim(&self, dim: i64) -> Option<usize> {
        index(dim, self.rank())
    }

    /// Returns another view of the memory, without a history.
    pub fn alias(&self, shape: Vec<u64>, strides: Vec<u64>) -> Tensor {
        let (dtype, storage) = (self.dtype, self.storage.clone());
        Tensor(Rc::new(Inner { shape, strides, dtype, storage, history: RefCell::default() }))
    }

    /// Returns this tensor without its history.
    pub fn detached(&self) -> Tensor {
        self.alias(self.shape.clone(), self.strides.clone())
    }

    /// Returns the tensor without a dimension, as `select` views it. Its memory stays alive.
    pub fn without(&self, dim: usize) -> Tensor {
        let (mut shape, mut strides) = (self.shape.clone(), self.strides.clone());
        shape.remove(dim);
        strides.remove(dim);
        self.alias(shape, strides)
    }

    /// True if nothing else holds this tensor.
    pub fn is_sole(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }

    /// True if no other tensor has this memory.
    pub fn has_sole_memory(&self) -> bool {
        Rc::strong_count(&self.storage) == 1
    }

    /// Notes the purpose of the memory in the trace. What is saved for the backward pass may have a purpose already, which it keeps.
    pub fn mark(&self, purpose: Purpose) {
        let before = self.storage.purpose.get();
        if before == purpose || (purpose == Purpose::Saved && before != Purpose::Temporary) {
            return;
        }
        self.storage.purpose.set(purpose);
        if let Some(index) = self.storage.index {
            self.storage.trace.borrow_mut().mark(index, purpose);
        }
    }

    /// Returns the number of the storage. `None` if it is empty.
    pub fn storage_index(&self) -> Option<u32> {
        self.storage.index
    }
}

/// Returns the index of a dimension that may be counted from the end. `None` if there is none.
pub(super) fn index(dim: i64, rank: usize) -> Option<usize> {
    let rank_signed = i64::try_from(rank).ok()?;
    let dim = if dim < 0 { dim.checked_add(rank_signed)? } else { dim };
    usize::try_from(dim).ok().filter(|&dim| dim < rank || (rank == 0 && dim == 0))
}

impl Eager {
    /// Makes a contiguous tensor.
    pub fn new_tensor(&self, shape: &[u64], dtype: Dtype) -> Tensor {
        self.strided(shape, dense(shape), dtype)
    }

    /// Makes a tensor with these strides.
    pub fn strided(&self, shape: &[u64], strides: Vec<u64>, dtype: Dtype) -> Tensor {
        let bytes = elements(shape).saturating_mul(dtype.bytes());
        let index = (bytes > 0).then(|| self.trace().borrow_mut().make(bytes));
        let purpose = Cell::new(Purpose::Temporary);
        let storage = Rc::new(Storage { index, purpose, trace: self.trace().clone() });
        Tensor(Rc::new(Inner { shape: shape.to_vec(), strides, dtype, storage, history: RefCell::default() }))
    }

    /// Makes a tensor with the shape, the type and the layout of another.
    pub fn like(&self, other: &Tensor) -> Tensor {
        self.like_as(other, other.dtype)
    }

    /// Makes a tensor with the shape and the layout of another.
    pub fn like_as(&self, other: &Tensor, dtype: Dtype) -> Tensor {
        let strides = if other.is_contiguous() {
            dense(&other.shape)
        } else if other.is_dense() {
            other.strides.clone()
        } else {
            dense_in_order(&other.shape, &other.strides)
        };
        self.strided(&other.shape, strides, dtype)
    }

    /// Makes a bool of each element.
    pub fn mask_of(&self, other: &Tensor) -> Tensor {
        self.like_as(other, Dtype::Bool)
    }
}
