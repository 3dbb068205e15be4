//! Places of the largest or smallest elements along an axis: a heap of the best places that were found, in the memory of the output.

pub(in crate::kernels) use crate::kernels::no_backward as backward;
use crate::kernels::{Bound, kernel};
use crate::operands::{Operands, count};
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::TopK;
use rayon::prelude::*;

/// Returns a number that is larger for a better element: NaN is the largest, -0 is 0.
fn key(x: f32, smallest: bool) -> u32 {
    // The bits of numbers below 0 fall where these grow.
    let bits = (x + 0.0).to_bits();
    let ordered = match x.is_nan() {
        true => u32::MAX,
        false if bits >> 31 == 1 => !bits,
        false => bits | 1 << 31,
    };
    if smallest { !ordered } else { ordered }
}

/// The places found in one of the columns `[.., inner]` of x and of the output.
struct Column<'a> {
    x: &'a [f32],
    places: &'a mut [u32],
    inner: usize,
    at: usize,
    smallest: bool,
}

impl Column<'_> {
    fn place(&self, number: usize) -> u32 {
        self.places[number * self.inner + self.at]
    }

    /// Returns a number that is larger for a better place: of equal elements the first.
    fn rank(&self, place: u32) -> u64 {
        u64::from(key(self.x[place as usize * self.inner + self.at], self.smallest)) << 32 | u64::from(!place)
    }

    fn put(&mut self, number: usize, place: u32) {
        self.places[number * self.inner + self.at] = place;
    }

    /// Puts a place where it belongs among those from `hole` down, each of the first `length` better than its parent.
    fn sink(&mut self, mut hole: usize, length: usize, place: u32) {
        let rank = self.rank(place);
        loop {
            let children = (2 * hole + 1..length.min(2 * hole + 3)).map(|child| (self.rank(self.place(child)), child));
            match children.min() {
                Some((worst, child)) if worst < rank => {
                    let place = self.place(child);
                    self.put(hole, place);
                    hole = child;
                }
                _ => return self.put(hole, place),
            }
        }
    }

    /// Finds the `k` best of `length` places.
    fn find(&mut self, k: usize, length: usize) {
        (0..k).for_each(|number| self.put(number, number as u32));
        for hole in (0..k / 2).rev() {
            let place = self.place(hole);
            self.sink(hole, k, place);
        }
        // The worst of those that were found is the first.
        for place in k..length {
            if self.rank(place as u32) > self.rank(self.place(0)) {
                self.sink(0, k, place as u32);
            }
        }
        for end in (1..k).rev() {
            let (worst, last) = (self.place(0), self.place(end));
            self.sink(0, end, last);
            self.put(end, worst);
        }
    }
}

/// `y` from `x`.
pub(in crate::kernels) fn forward(op: &TopK, operands: &mut Operands<'_>) -> Bound {
    if !op.is_sound() {
        return Err(Error::Damaged("places of more elements than an axis has"));
    }
    let [outer, length, inner] = op.extents();
    let blocks = operands.batch().saturating_mul(outer);
    let input = operands.source(Slot::Input(0), count(&[blocks, length, inner]))?;
    let mut output = operands.word_target(Slot::Output, count(&[blocks, op.k, inner]))?;
    let [length, inner, k] = [length, inner, op.k].map(|number| count(&[number]));
    let smallest = op.smallest;
    kernel(move |_| {
        let blocks = output.get().par_chunks_mut(k * inner).zip(input.get().par_chunks(length * inner));
        blocks.for_each(|(places, x)| {
            (0..inner).for_each(|at| Column { x, places: &mut *places, inner, at, smallest }.find(k, length));
        });
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All lengths up to 12 with every `k`, in columns side by side, beside a stable sort.
    #[test]
    fn places_are_those_of_a_sort() {
        const SIGNIFICANT: [f32; 7] = [-0.0, 0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-40, -1e-40];
        for (length, k) in (1..=12).flat_map(|length| (1..=length).map(move |k| (length, k))) {
            for (smallest, salt) in [(false, 3), (true, 5), (false, 11)] {
                let inner = 3;
                let number = |at: usize| match at * salt % 10 {
                    number @ 0..7 => SIGNIFICANT[number],
                    number => number as f32 - 8.0,
                };
                let x: Vec<f32> = (0..length * inner).map(number).collect();
                let mut places = vec![u32::MAX; k * inner];
                for at in 0..inner {
                    Column { x: &x, places: &mut places, inner, at, smallest }.find(k, length);
                    let mut sorted: Vec<usize> = (0..length).collect();
                    let of = |place: usize| x[place * inner + at];
                    sorted.sort_by(|&a, &b| {
                        let [a, b] = [of(a), of(b)];
                        let larger = match (a.is_nan(), b.is_nan()) {
                            (false, false) => b.partial_cmp(&a).unwrap(),
                            (a, b) => b.cmp(&a),
                        };
                        if smallest { larger.reverse() } else { larger }
                    });
                    let found: Vec<usize> = (0..k).map(|number| places[number * inner + at] as usize).collect();
                    assert_eq!(found, sorted[..k], "{k} of {x:?}, column {at}");
                }
            }
        }
    }
}
