//! The values of a loss of several values, with their gradients.

use super::Logits;
use crate::operands::Operands;
use gpumem_core::error::Error;
use std::ops::Range;

/// Returns all inputs of a loss, starting with `first`.
pub(super) fn sides<const N: usize>(
    operands: &mut Operands<'_>,
    first: Logits,
    length: usize,
) -> Result<[Logits; N], Error> {
    let mut sides = vec![first];
    for number in 1..N {
        sides.push(Logits::new(operands, number as u8, length)?);
    }
    sides.try_into().map_err(|_| Error::Damaged("a loss of several values has another number of them"))
}

/// A vector, and its gradient, which may overwrite it.
pub(super) struct Vector<'a> {
    /// The elements of the vector. `None` if they are where the gradient will be written.
    held: Option<&'a [f32]>,
    gradient: Option<&'a mut [f32]>,
    accumulate: bool,
}

impl Vector<'_> {
    pub(super) fn of(side: &mut Logits, range: Range<usize>) -> Vector<'_> {
        match side {
            Logits::Alone(source) => Vector { held: Some(&source.get()[range]), gradient: None, accumulate: false },
            Logits::Pair(pair, accumulate) => {
                let (source, target) = pair.get();
                let held = source.map(|source| &source[range.clone()]);
                Vector { held, gradient: Some(&mut target[range]), accumulate: *accumulate }
            }
        }
    }

    pub(super) fn values(&self) -> &[f32] {
        self.held.or(self.gradient.as_deref()).unwrap_or(&[])
    }

    pub(super) fn put(&mut self, i: usize, slope: f64) {
        if let Some(gradient) = &mut self.gradient {
            gradient[i] = if self.accumulate { gradient[i] + slope as f32 } else { slope as f32 };
        }
    }
}
