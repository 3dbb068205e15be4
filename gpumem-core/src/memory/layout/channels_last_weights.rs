//! Weights of convolutions that are channels last in the arena. The host has them in the order of their shapes.

use crate::error::Error;
use crate::memory::place::Placed;
use crate::number::Precision;
use crate::program::{Class, Operation, Tensor, TensorId};
use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

/// A weight `[O, C, R, S]` that is stored as `[O, R, S, C]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Weight {
    bytes: u64,
    channels: usize,
    /// Elements of one channel of a filter: `R * S`.
    taps: usize,
    /// Bytes of an element.
    width: usize,
}

impl Weight {
    fn new(tensor: &Tensor, width: u64) -> Option<Weight> {
        let &[_, channels, height, columns] = tensor.shape.dims() else { return None };
        Some(Weight {
            bytes: tensor.elements(1)?.checked_mul(width)?,
            channels: usize::try_from(channels).ok()?,
            taps: usize::try_from(height.checked_mul(columns)?).ok()?,
            width: width as usize,
        })
    }
}

/// The tensors that a device stores in another layout than the host, by their offsets in the arena. Programs that share a parameter store it in
/// one layout.
#[derive(Clone, Debug, Default)]
pub struct Turned {
    weights: BTreeMap<u64, Weight>,
}

impl Turned {
    /// Returns these tensors of a network's programs. A program that does not touch a tensor has no say in its layout: the evaluation of the loss
    /// has the optimizer's state among its tensors.
    ///
    /// # Errors
    /// Programs that store one tensor in two layouts.
    pub fn new<'a>(programs: impl IntoIterator<Item = &'a Placed>, precision: Precision) -> Result<Turned, Error> {
        let mut found: BTreeMap<u64, Option<Weight>> = BTreeMap::new();
        let mut note = |offset: u64, tensor: &Tensor, width: u64| {
            let damaged = Error::Damaged("a weight's size exceeds 64 bits");
            let weight = if tensor.is_turned() { Some(Weight::new(tensor, width).ok_or(damaged)?) } else { None };
            let other = Error::Damaged("two programs keep a weight in different orders");
            if *found.entry(offset).or_insert(weight) == weight { Ok(()) } else { Err(other) }
        };
        for placed in programs {
            // Gradients of several steps share places, and the host reads none of them.
            let has_gradients = !placed.program.has_several_steps();
            let touched: BTreeSet<TensorId> = placed.program.operations.iter().flat_map(Operation::tensors).collect();
            let places = placed.offsets.iter().zip(&placed.masters);
            for ((id, tensor), (&offset, &master)) in (0..).zip(&placed.program.tensors).zip(places) {
                let is_gradient = tensor.class == Class::Gradient && has_gradients;
                let lasts = matches!(tensor.class, Class::Parameter | Class::Moment | Class::Average) || is_gradient;
                if !lasts || !touched.contains(&id) {
                    continue;
                }
                note(offset, tensor, tensor.role.bytes(precision))?;
                if let (Some(master), Some(format)) = (master, tensor.role.master(precision)) {
                    note(master, tensor, format.bytes())?;
                }
            }
        }
        let weights = found.into_iter().filter_map(|(offset, weight)| Some((offset, weight?))).collect();
        Ok(Turned { weights })
    }

    /// Returns the weight at these bytes of the arena, which must be whole filters of it. `None` if there is no weight.
    ///
    /// # Errors
    /// A part of a filter.
    fn find(&self, offset: u64, length: usize) -> Result<Option<Weight>, Error> {
        let end = offset.saturating_add(length as u64);
        let Some((&start, weight)) = self.weights.range(..end).next_back() else { return Ok(None) };
        if start.saturating_add(weight.bytes) <= offset {
            return Ok(None);
        }
        let filter = (weight.channels * weight.taps * weight.width) as u64;
        let is_inside = start <= offset && end <= start.saturating_add(weight.bytes);
        // Each filter is converted on its own.
        let is_whole = |bytes: u64| bytes.checked_rem(filter) == Some(0);
        if !(is_inside && is_whole(offset - start) && is_whole(length as u64)) {
            return Err(Error::Damaged("a weight that lies channels last is read or written in part"));
        }
        Ok(Some(*weight))
    }

    /// Returns what the host writes at `offset`, in the layout that is stored there.
    ///
    /// # Errors
    /// A part of a filter.
    pub fn stored<'a>(&self, offset: u64, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>, Error> {
        Ok(match self.find(offset, bytes.len())? {
            Some(Weight { channels, taps, width, .. }) => Cow::Owned(turned(bytes, [channels, taps], width)),
            None => Cow::Borrowed(bytes),
        })
    }

    /// Returns what the host writes to a whole tensor at `offset`, in the layout that is stored. `None` if that is the host's.
    pub fn stored_whole(&self, offset: u64, bytes: &[u8]) -> Option<Vec<u8>> {
        let Weight { channels, taps, width, .. } = self.weights.get(&offset)?;
        Some(turned(bytes, [*channels, *taps], *width))
    }

    /// Converts a whole tensor that was read at `offset` to the layout that the host expects.
    pub fn seen_whole(&self, offset: u64, bytes: &mut [u8]) {
        if let Some(Weight { channels, taps, width, .. }) = self.weights.get(&offset) {
            let seen = turned(bytes, [*taps, *channels], *width);
            bytes.copy_from_slice(&seen);
        }
    }

    /// Converts what was read at `offset` to the layout that the host expects.
    ///
    /// # Errors
    /// A part of a filter.
    pub fn seen(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        if let Some(Weight { channels, taps, width, .. }) = self.find(offset, bytes.len())? {
            let seen = turned(bytes, [taps, channels], width);
            bytes.copy_from_slice(&seen);
        }
        Ok(())
    }
}

/// Transposes matrices of `rows` x `columns` elements of `width` bytes, which come one after the other.
fn turned(bytes: &[u8], [rows, columns]: [usize; 2], width: usize) -> Vec<u8> {
    match width {
        2 => transposed::<2>(bytes, [rows, columns]),
        _ => transposed::<4>(bytes, [rows, columns]),
    }
}

fn transposed<const WIDTH: usize>(bytes: &[u8], [rows, columns]: [usize; 2]) -> Vec<u8> {
    let mut to = vec![0; bytes.len()];
    let (from, _) = bytes.as_chunks::<WIDTH>();
    let (elements, _) = to.as_chunks_mut::<WIDTH>();
    let matrix = rows * columns;
    for (from, to) in from.chunks_exact(matrix).zip(elements.chunks_exact_mut(matrix)) {
        for (column, line) in to.chunks_exact_mut(rows).enumerate() {
            line.iter_mut().enumerate().for_each(|(row, element)| *element = from[row * columns + column]);
        }
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    /// Returns two filters of three channels and two taps in both layouts. Each number says which element it is.
    fn weight<const WIDTH: usize>() -> [Vec<u8>; 2] {
        let element = |o: u8, c: u8, tap: u8| {
            let mut bytes = [0; WIDTH];
            (bytes[0], bytes[WIDTH - 1]) = (100 * o + 10 * c + tap, 7);
            bytes
        };
        let filters = |o| (0..3).flat_map(move |c| (0..2).map(move |tap| (o, c, tap)));
        let first = (0..2).flat_map(filters).flat_map(|(o, c, tap)| element(o, c, tap)).collect();
        let filters = |o| (0..2).flat_map(move |tap| (0..3).map(move |c| (o, c, tap)));
        let last = (0..2).flat_map(filters).flat_map(|(o, c, tap)| element(o, c, tap)).collect();
        [first, last]
    }

    fn there_and_back<const WIDTH: usize>() {
        let [first, last] = weight::<WIDTH>();
        let bytes = first.len() as u64;
        let weights = BTreeMap::from([(512, Weight { bytes, channels: 3, taps: 2, width: WIDTH })]);
        let all = Turned { weights };
        assert_eq!(all.stored(512, &first).unwrap(), last);
        let mut seen = last.clone();
        all.seen(512, &mut seen).unwrap();
        assert_eq!(seen, first);
        // One filter, of two.
        let filter = first.len() / 2;
        assert_eq!(*all.stored(512 + bytes / 2, &first[filter..]).unwrap(), last[filter..]);
        let mut seen = last[..filter].to_vec();
        all.seen(512, &mut seen).unwrap();
        assert_eq!(seen, first[..filter]);
        let beyond = all.stored(512 + bytes / 2, &first).unwrap_err();
        assert!(beyond.to_string().contains("in part"), "{beyond}");
        // Other tensors stay unchanged.
        assert_eq!(all.stored(256, &first).unwrap(), first);
        assert_eq!(all.stored(512 + bytes, &first).unwrap(), first);
        for (offset, length) in [(512, 4), (516, 4), (508, 8), (512 + bytes - 4, 8)] {
            let error = all.stored(offset, &first[..length]).unwrap_err();
            assert!(error.to_string().contains("in part"), "{error}");
        }
    }

    #[test]
    fn weights_are_turned_there_and_back() {
        there_and_back::<2>();
        there_and_back::<4>();
    }
}
