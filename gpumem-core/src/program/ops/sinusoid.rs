use crate::program::encoding::{record, wire_enum};
use crate::program::op::{Edge, Gradient, Reads, Rule};
use crate::shape::{Shape, product};
use alloc::vec;
use alloc::vec::Vec;

/// Which numbers have sines and cosines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Angles {
    /// Those of the input.
    Numbers,
    /// Whole numbers of the input.
    Indices,
    /// The numbers of the rows, in two halves where they are positions of a grid: first the column's, then the row's.
    Steps,
    /// The same as parts of the grid, of which a whole row or column is 2 pi: positions are counted from 1. There are always two halves.
    Parts,
    /// The numbers of the rows behind those of the steps that went before in the sequence.
    Following,
}
wire_enum!(Angles { Numbers, Indices, Steps, Parts, Following });

record! {
    /// Sines and cosines of numbers, each at several frequencies.
    ///
    /// With `n = features / 2` frequencies, number `t` becomes `sin(t * f_i)` and `cos(t * f_i)` for
    /// `f_i = base^(-i / (n - shift))`.
    ///
    /// * Input: the numbers; none where they are those of the rows.
    /// * The gradient of numbers reads them.
    pub struct Sinusoid {
        /// Which numbers.
        pub angles: Angles,
        /// Dimensions of the output, of which the last axis are the features.
        pub shape: Shape,
        /// Rows and columns of the grid, where the numbers are those of positions in it; else one row.
        pub grid: [u64; 2],
        /// What the frequencies fall to.
        pub base: f64,
        /// What the number of frequencies is less, for that.
        pub shift: f64,
        /// Whether the row's half is before the column's.
        pub rows_first: bool,
        /// Whether cosines are before sines.
        pub cosines_first: bool,
        /// Whether sines and cosines take turns; else each are side by side.
        pub interleaved: bool,
    }
}

impl Sinusoid {
    /// Numbers.
    pub fn rows(&self) -> u64 {
        self.shape.dims().split_last().map_or(0, |(_, rows)| product(rows))
    }

    /// Whether the numbers are positions, and not those of an input.
    pub fn has_positions(&self) -> bool {
        matches!(self.angles, Angles::Steps | Angles::Parts | Angles::Following)
    }

    /// Of the steps of a sequence, those of so many at hand; `None` if these are other numbers.
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

    /// Whether there are a row's and a column's features.
    fn is_split(&self) -> bool {
        self.grid[0] > 1 || self.angles == Angles::Parts
    }

    /// Features of one number: half of a row where there are a row's and a column's.
    pub fn features(&self) -> u64 {
        if self.is_split() { self.shape.last() / 2 } else { self.shape.last() }
    }

    /// What is added to a row's or a column's number, and what that is multiplied with, along both axes of the grid.
    pub fn parts(&self) -> [[f32; 2]; 2] {
        /// What keeps parts of nothing from being infinite, in the original.
        const LEAST: f32 = 1e-6;
        let part = |length: u64| [1.0, core::f32::consts::TAU / (length as f32 + LEAST)];
        if self.angles == Angles::Parts { self.grid.map(part) } else { [[0.0, 1.0]; 2] }
    }

    /// Whether every row has as many sines as cosines, at frequencies that there are.
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

    /// The frequencies. The backends have `power`, `f64::powf`.
    pub fn frequencies(&self, power: impl Fn(f64, f64) -> f64) -> Vec<f32> {
        let count = self.features() / 2;
        (0..count).map(|i| power(self.base, -(i as f64) / (count as f64 - self.shift)) as f32).collect()
    }
}

impl Rule for Sinusoid {
    const NAME: &'static str = "Sinusoid";

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

    /// A damaged program may name any.
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
