use crate::program::encoding::{record, wire_enum};
use crate::program::op::{Edge, Gradient, Reads, Rule};
use crate::shape::{Shape, product};
use alloc::vec;
use alloc::vec::Vec;

/// The numbers whose sines and cosines are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Angles {
    /// Numbers of the input.
    Numbers,
    /// Indices of the input.
    Indices,
    /// Indices of the rows. For positions of a grid there are two halves: first the column's, then the row's.
    Steps,
    /// Positions of the grid as parts of a whole row or column, which is 2 pi. They are counted from 1, and there are always two halves.
    Parts,
    /// Indices of the rows plus the number of time steps in earlier calls.
    Following,
}
wire_enum!(Angles { Numbers, Indices, Steps, Parts, Following });

record! {
    /// Sines and cosines of numbers, each at several frequencies.
    ///
    /// With `n = features / 2` frequencies, number `t` becomes `sin(t * f_i)` and `cos(t * f_i)` for
    /// `f_i = base^(-i / (n - shift))`.
    ///
    /// * Input: the numbers; none if they are positions.
    /// * The gradient of numbers reads them. Indices and positions have no gradient.
    pub struct Sinusoid {
        /// The kind of numbers.
        pub angles: Angles,
        /// Dimensions of the output, whose last axis has the features.
        pub shape: Shape,
        /// Rows and columns of the grid, if the numbers are positions; a sequence is one row.
        pub grid: [u64; 2],
        /// The base of the frequencies: see `f_i` above.
        pub base: f64,
        /// The number subtracted from the count of frequencies in `f_i`.
        pub shift: f64,
        /// True if the row's half comes before the column's.
        pub rows_first: bool,
        /// True if cosines come before sines.
        pub cosines_first: bool,
        /// True if sines and cosines alternate; else all of one kind come first.
        pub interleaved: bool,
    }
}

impl Sinusoid {
    /// Returns the number of numbers: rows of the output.
    pub fn rows(&self) -> u64 {
        self.shape.dims().split_last().map_or(0, |(_, rows)| product(rows))
    }

    /// True if the numbers are positions, and not read from an input.
    pub fn has_positions(&self) -> bool {
        matches!(self.angles, Angles::Steps | Angles::Parts | Angles::Following)
    }

    /// Returns the embedding of `chunk` time steps in a call that decodes a sequence of `whole`. `None` if the numbers are not its time steps.
    pub fn following(&self, whole: u64, chunk: u64) -> Option<Sinusoid> {
        let is_sequence = self.angles == Angles::Steps && self.grid == [1, whole] && self.shape.rank() == 2;
        let at_hand = || Sinusoid {
            angles: Angles::Following,
            shape: self.shape.with(0, chunk),
            grid: [1, chunk],
            ..self.clone()
        };
        is_sequence.then(at_hand)
    }

    /// True if a row and a column have features of their own.
    fn is_split(&self) -> bool {
        self.grid[0] > 1 || self.angles == Angles::Parts
    }

    /// Returns the features of one number: half of the last axis if it is split between row and column.
    pub fn features(&self) -> u64 {
        if self.is_split() { self.shape.last() / 2 } else { self.shape.last() }
    }

    /// Returns a summand and then a factor of a position's coordinate, along both axes of the grid.
    pub fn parts(&self) -> [[f32; 2]; 2] {
        /// The summand that keeps parts of an empty axis finite in the original.
        const LEAST: f32 = 1e-6;
        let part = |length: u64| [1.0, core::f32::consts::TAU / (length as f32 + LEAST)];
        if self.angles == Angles::Parts { self.grid.map(part) } else { [[0.0, 1.0]; 2] }
    }

    /// True if every row has as many sines as cosines, at frequencies that exist.
    pub fn is_sound(&self) -> bool {
        let features = self.features();
        let [height, width] = self.grid;
        let is_grid = height > 0 && (!self.is_split() || self.shape.last().is_multiple_of(4) && self.has_positions());
        let is_whole = !self.has_positions() || Some(self.rows()) == height.checked_mul(width);
        let is_even = features > 0 && features.is_multiple_of(2) && features <= 1 << 20;
        let falls =
            self.base.is_finite() && self.base >= 1.0 && self.shift.is_finite() && self.shift < (features / 2) as f64;
        is_grid && is_whole && is_even && falls && self.shape.elements().is_some_and(|all| all > 0)
    }

    /// Returns the frequencies. The caller passes `power`, `f64::powf`, since this crate has no `std`.
    pub fn frequencies(&self, power: impl Fn(f64, f64) -> f64) -> Vec<f32> {
        let count = self.features() / 2;
        (0..count).map(|i| power(self.base, -(i as f64) / (count as f64 - self.shift)) as f32).collect()
    }
}

impl Rule for Sinusoid {
    fn output(&self) -> Shape {
        self.shape
    }

    fn gradients(&self) -> Vec<Gradient> {
        match self.angles {
            Angles::Numbers => vec![Gradient::computed(&[(0, Reads::inputs(&[0]))])],
            Angles::Indices | Angles::Steps | Angles::Parts | Angles::Following => Vec::new(),
        }
    }

    fn is_positioned(&self) -> bool {
        self.angles == Angles::Following
    }

    fn edges(&self, _: &[Shape]) -> Vec<Edge> {
        Edge::same(&[self.shape])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A damaged program may have any numbers.
    #[test]
    fn features_that_are_not_whole_pairs_are_not_sound() {
        let op = Sinusoid {
            angles: Angles::Steps,
            shape: Shape::new(&[6, 8]),
            grid: [2, 3],
            base: 1e4,
            shift: 0.0,
            rows_first: false,
            cosines_first: false,
            interleaved: false,
        };
        assert!(op.is_sound());
        assert_eq!((op.rows(), op.features()), (6, 4));
        assert_eq!(op.frequencies(|base, exponent| if exponent == 0.0 { 1.0 } else { base.recip() }), [1.0, 1e-4]);
        assert_eq!(op.following(6, 2), None);
        let row = Sinusoid { grid: [1, 6], ..op.clone() };
        let at_hand = row.following(6, 2).unwrap();
        assert_eq!((at_hand.rows(), at_hand.is_sound(), row.following(5, 2)), (2, true, None));
        assert_eq!(Sinusoid { angles: Angles::Parts, grid: [1, 6], ..op.clone() }.features(), 4);
        for changed in [
            Sinusoid { angles: Angles::Parts, grid: [1, 6], shape: Shape::new(&[6, 6]), ..op.clone() },
            Sinusoid { grid: [2, 4], ..op.clone() },
            Sinusoid { grid: [0, 6], ..op.clone() },
            Sinusoid { angles: Angles::Numbers, ..op.clone() },
            Sinusoid { shape: Shape::new(&[6, 6]), ..op.clone() },
            Sinusoid { grid: [1, 6], shape: Shape::new(&[6, 5]), ..op.clone() },
            Sinusoid { base: 0.5, ..op.clone() },
            Sinusoid { shift: 2.0, ..op.clone() },
            Sinusoid { shift: f64::NAN, ..op.clone() },
        ] {
            assert!(!changed.is_sound(), "{changed:?}");
        }
    }
}
