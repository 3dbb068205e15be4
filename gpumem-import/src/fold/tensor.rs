//! Small tensors with their numbers, as views of shared memory.

use crate::model::{Data, Dtype};
use std::cell::RefCell;
use std::rc::Rc;

/// The most elements of a tensor that is evaluated.
pub(super) const MOST: u64 = 1 << 24;

/// A tensor with its numbers. Clones and views share them, so that a change in place is seen by all.
///
/// Integers and truth values are kept as f64: those of position tables and masks are far below 2^53.
#[derive(Clone, Debug)]
pub struct Tensor {
    numbers: Rc<RefCell<Vec<f64>>>,
    offset: usize,
    /// Dimensions, in elements.
    pub shape: Vec<u64>,
    /// Distances between elements, in elements.
    strides: Vec<u64>,
    /// The type that the numbers are rounded to.
    pub dtype: Dtype,
}

/// Rounds a number to a type.
pub(super) fn round(number: f64, dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F32 => f64::from(number as f32),
        Dtype::Bool => f64::from(u8::from(number != 0.0)),
        Dtype::F64 | Dtype::F16 | Dtype::Bf16 => number,
        _ => number.trunc(),
    }
}

/// Returns the strides of a contiguous tensor.
pub(super) fn contiguous(shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![1; shape.len()];
    for dim in (1..shape.len()).rev() {
        strides[dim - 1] = strides[dim] * shape[dim].max(1);
    }
    strides
}

/// Returns the number of elements. `None` if they are too many.
pub(super) fn elements(shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim)).filter(|elements| *elements <= MOST)
}

impl Tensor {
    /// Makes a contiguous tensor of numbers in row order. `None` if there are too many, or not as many as the shape has.
    pub fn new(numbers: Vec<f64>, shape: &[u64], dtype: Dtype) -> Option<Tensor> {
        (elements(shape)? == numbers.len() as u64).then(|| Tensor {
            numbers: Rc::new(RefCell::new(numbers)),
            offset: 0,
            shape: shape.to_vec(),
            strides: contiguous(shape),
            dtype,
        })
    }

    /// Makes a tensor of one number everywhere.
    pub fn full(number: f64, shape: &[u64], dtype: Dtype) -> Option<Tensor> {
        Tensor::new(vec![round(number, dtype); elements(shape)? as usize], shape, dtype)
    }

    /// Reads the bytes of a file. `None` for types without numbers, and if their count is another one.
    pub fn read(data: &Data, shape: &[u64], dtype: Dtype) -> Option<Tensor> {
        let bytes = &data.0[..];
        fn all<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f64) -> Vec<f64> {
            bytes.as_chunks::<N>().0.iter().map(|chunk| number(*chunk)).collect()
        }
        let numbers = match dtype {
            Dtype::F32 => all(bytes, |b| f64::from(f32::from_le_bytes(b))),
            Dtype::F64 => all(bytes, f64::from_le_bytes),
            Dtype::I64 => all(bytes, |b| i64::from_le_bytes(b) as f64),
            Dtype::I32 => all(bytes, |b| f64::from(i32::from_le_bytes(b))),
            Dtype::I16 => all(bytes, |b| f64::from(i16::from_le_bytes(b))),
            Dtype::I8 => all(bytes, |b: [u8; 1]| f64::from(b[0] as i8)),
            Dtype::U8 | Dtype::Bool => all(bytes, |b: [u8; 1]| f64::from(b[0])),
            Dtype::Bf16 => all(bytes, |b| f64::from(f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16))),
            Dtype::F16 | Dtype::Other(_) => return None,
        };
        Tensor::new(numbers, shape, dtype)
    }

    /// Returns a view of the same numbers.
    pub(super) fn view(&self, offset: usize, shape: Vec<u64>, strides: Vec<u64>) -> Tensor {
        Tensor { numbers: self.numbers.clone(), offset: self.offset + offset, shape, strides, dtype: self.dtype }
    }

    pub(super) fn strides(&self) -> &[u64] {
        &self.strides
    }

    /// True if two tensors are equal views of one memory.
    pub(crate) fn is_same(&self, other: &Tensor) -> bool {
        let layout = |tensor: &Tensor| (tensor.offset, tensor.dtype);
        Rc::ptr_eq(&self.numbers, &other.numbers)
            && layout(self) == layout(other)
            && (&self.shape, &self.strides) == (&other.shape, &other.strides)
    }

    /// Returns the positions of all elements, in row order.
    fn positions(&self) -> Vec<usize> {
        let count = elements(&self.shape).unwrap_or(0) as usize;
        let mut positions = Vec::with_capacity(count);
        let mut index = vec![0; self.shape.len()];
        let mut position = self.offset;
        for _ in 0..count {
            positions.push(position);
            for dim in (0..self.shape.len()).rev() {
                index[dim] += 1;
                position += self.strides[dim] as usize;
                if index[dim] < self.shape[dim] {
                    break;
                }
                position -= (self.strides[dim] * index[dim]) as usize;
                index[dim] = 0;
            }
        }
        positions
    }

    /// Returns all numbers in row order.
    pub fn numbers(&self) -> Vec<f64> {
        let numbers = self.numbers.borrow();
        self.positions().into_iter().map(|position| numbers[position]).collect()
    }

    /// Writes numbers in row order, for all that share them.
    pub(super) fn write(&self, values: &[f64]) {
        let mut numbers = self.numbers.borrow_mut();
        for (position, &value) in self.positions().into_iter().zip(values) {
            numbers[position] = round(value, self.dtype);
        }
    }

    /// Returns a view of a larger shape, whose further dimensions repeat the numbers. `None` if the shapes do not fit.
    pub(super) fn broadcast(&self, shape: &[u64]) -> Option<Tensor> {
        let shift = shape.len().checked_sub(self.shape.len())?;
        let mut strides = vec![0; shape.len()];
        for (dim, (&size, &stride)) in self.shape.iter().zip(&self.strides).enumerate() {
            match shape[shift + dim] == size {
                true => strides[shift + dim] = stride,
                false if size == 1 => {}
                false => return None,
            }
        }
        elements(shape)?;
        Some(self.view(0, shape.to_vec(), strides))
    }

    /// Returns a view of another shape with the elements in the same order, or a copy if none is possible.
    pub(super) fn reshape(&self, shape: &[u64]) -> Option<Tensor> {
        if elements(shape)? != elements(&self.shape)? {
            return None;
        }
        if self.strides == contiguous(&self.shape) {
            return Some(self.view(0, shape.to_vec(), contiguous(shape)));
        }
        Tensor::new(self.numbers(), shape, self.dtype)
    }

    /// Returns the tensor with each number changed.
    pub(super) fn map(&self, dtype: Dtype, change: impl Fn(f64) -> f64) -> Option<Tensor> {
        let numbers = self.numbers().into_iter().map(|number| round(change(number), dtype)).collect();
        Tensor::new(numbers, &self.shape, dtype)
    }
}

/// Returns the shape to which both broadcast.
pub(super) fn common(a: &[u64], b: &[u64]) -> Option<Vec<u64>> {
    let rank = a.len().max(b.len());
    let at = |shape: &[u64], dim: usize| (dim + shape.len()).checked_sub(rank).map_or(1, |dim| shape[dim]);
    (0..rank)
        .map(|dim| match (at(a, dim), at(b, dim)) {
            (a, b) if a == b || b == 1 => Some(a),
            (1, b) => Some(b),
            _ => None,
        })
        .collect()
}
