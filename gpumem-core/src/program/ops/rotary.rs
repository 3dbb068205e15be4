use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Op, Reads, Rule, Sequence};
use crate::shape::Shape;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::f64::consts::TAU;

record! {
    /// Rotary position embedding: heads rotated by an angle that grows with the time step.
    ///
    /// Elements of a head form pairs. In time step `t`, pair `i` of `dims / 2` turns by `t * base^(-2 i / dims)` radians. If the time steps are
    /// positions of a grid, half of the pairs turn by the row, and the second half by the column. Each half has the angles of a head of its size.
    ///
    /// * Input: x, rows that begin with `heads` heads of `width` elements. The elements after them do not change, nor do the
    ///   elements of a head from `dims` on.
    /// * The gradient turns back and reads nothing, so not a byte is saved.
    pub struct Rotary {
        /// Dimensions of x and y: `[T, ..]`.
        pub shape: Shape,
        /// Heads that turn.
        pub heads: u64,
        /// Elements of a head.
        pub width: u64,
        /// Number of elements of a head that turn, an even number.
        pub dims: u64,
        /// The base of the angles: see above.
        pub base: f64,
        /// True if the elements of a pair are neighbours; else they are `dims / 2` apart.
        pub interleaved: bool,
        /// Rows and columns of the grid whose positions, row after row, are the time steps. `None` if they are a line.
        pub grid: Option<[u64; 2]>,
        /// Time steps before the grid, which do not turn.
        pub before: u64,
        /// True if the state says how many time steps came before the first one; else none did.
        pub follows: bool,
    }
}

impl Rotary {
    /// Returns how many of the turning elements depend on one coordinate. It is half of them if positions have a row and a column.
    pub fn along(&self) -> u64 {
        if self.grid.is_some() { self.dims / 2 } else { self.dims }
    }

    /// Returns the coordinate by which a pair turns in a time step. On a line any time step is allowed, in a grid one of a sample's.
    pub fn number(&self, step: u64, pair: u64) -> u64 {
        match self.grid {
            None => step,
            Some(_) if step < self.before => 0,
            Some([_, width]) if pair < self.along() / 2 => (step - self.before) / width,
            Some([_, width]) => (step - self.before) % width,
        }
    }

    /// Returns the angle of each pair from one coordinate to the next, in units of 2^-64 of a turn. Integers that wrap are then exact after any
    /// number of time steps. The caller passes `power`, `f64::powf`, since this crate has no `std`.
    pub fn turns(&self, power: impl Fn(f64, f64) -> f64) -> Vec<u64> {
        /// Units of 2^-64 of a turn in a radian.
        const RADIAN: f64 = 18_446_744_073_709_551_616.0 / TAU;
        let along = self.along();
        let pair = |pair: u64| (power(self.base, -2.0 * (pair % (along / 2)) as f64 / along as f64) * RADIAN) as u64;
        (0..self.dims / 2).map(pair).collect()
    }

    /// Returns the index of a pair's first element in its head, and the distance of the second one from it.
    pub fn pair(&self, pair: u64) -> [u64; 2] {
        if self.interleaved { [2 * pair, 1] } else { [pair, self.dims / 2] }
    }

    /// True if heads fit in their rows, and pairs in their heads. A damaged program may have other numbers.
    pub fn is_sound(&self) -> bool {
        let is_even = self.dims > 0 && self.dims.is_multiple_of(2) && self.dims <= self.width;
        let row = self.heads.checked_mul(self.width);
        let is_line = self.before == 0;
        let is_place = self.grid.map_or(is_line, |[height, width]| {
            let steps = height.checked_mul(width).and_then(|places| places.checked_add(self.before));
            let is_whole = width > 0 && steps.is_some() && steps == self.shape.dims().first().copied();
            is_whole && self.dims.is_multiple_of(4) && self.shape.rank() == 2 && !self.follows
        });
        let is_angle = self.base.is_finite() && self.base >= 1.0;
        is_even
            && is_angle
            && is_place
            && self.shape.rank() > 0
            && row.is_some_and(|row| row > 0 && row <= self.shape.last())
    }
}

impl Rule for Rotary {
    fn output(&self) -> Shape {
        self.shape
    }

    fn gradients(&self) -> Vec<Gradient> {
        vec![Gradient::in_place(&[(0, Reads::NOTHING)])]
    }

    fn in_place(&self) -> bool {
        true
    }

    fn is_positioned(&self) -> bool {
        self.follows
    }

    fn stepped(&self, sequence: &Sequence<'_>) -> Result<(Op, usize), String> {
        match sequence.of_first()? {
            0 if self.grid.is_none() => {
                Ok((Rotary { shape: sequence.cut(self.shape, 0), follows: true, ..self.clone() }.into(), 0))
            }
            _ => Err(Sequence::refusal()),
        }
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        Edge::same(inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A damaged program may have any numbers.
    #[test]
    fn heads_that_are_not_in_their_rows_are_not_sound() {
        let op = Rotary {
            shape: Shape::new(&[5, 12]),
            heads: 2,
            width: 4,
            dims: 4,
            base: 1e4,
            interleaved: false,
            grid: None,
            before: 0,
            follows: false,
        };
        assert!(op.is_sound());
        assert!(Rotary { grid: Some([2, 2]), before: 1, ..op.clone() }.is_sound());
        for changed in [
            Rotary { heads: 0, ..op.clone() },
            Rotary { heads: 4, ..op.clone() },
            Rotary { heads: u64::MAX, ..op.clone() },
            Rotary { dims: 0, ..op.clone() },
            Rotary { dims: 3, ..op.clone() },
            Rotary { dims: 6, ..op.clone() },
            Rotary { base: f64::NAN, ..op.clone() },
            Rotary { base: 0.5, ..op.clone() },
            Rotary { shape: Shape::new(&[]), ..op.clone() },
            Rotary { before: 1, ..op.clone() },
            Rotary { grid: Some([2, 2]), ..op.clone() },
            Rotary { grid: Some([0, 0]), before: 5, ..op.clone() },
            Rotary { grid: Some([u64::MAX, 2]), before: 1, ..op.clone() },
            Rotary { grid: Some([2, 2]), before: 1, dims: 2, ..op.clone() },
            Rotary { grid: Some([2, 2]), before: 1, follows: true, ..op.clone() },
        ] {
            assert!(!changed.is_sound(), "{changed:?}");
        }
    }

    /// A radian is 2^64 / (2 pi) units.
    #[test]
    fn pairs_turn_less_and_less() {
        let op = Rotary {
            shape: Shape::new(&[5, 8]),
            heads: 1,
            width: 8,
            dims: 6,
            base: 100.0,
            interleaved: true,
            grid: None,
            before: 0,
            follows: false,
        };
        let turns = op.turns(|base, exponent| if exponent == 0.0 { 1.0 } else { base.recip() });
        assert_eq!(turns, [2_935_890_503_282_001_408, 29_358_905_032_820_016, 29_358_905_032_820_016]);
        assert_eq!([0, 1, 2].map(|pair| op.pair(pair)), [[0, 1], [2, 1], [4, 1]]);
        assert_eq!(Rotary { interleaved: false, ..op }.pair(2), [2, 3]);
    }

    /// The first half of the pairs turns by the row, the second half by the column.
    #[test]
    fn steps_of_a_grid_turn_by_row_and_column() {
        let shape = Shape::new(&[7, 8]);
        let grid = Some([2, 3]);
        let op = Rotary {
            shape,
            heads: 1,
            width: 8,
            dims: 8,
            base: 100.0,
            interleaved: true,
            grid,
            before: 1,
            follows: false,
        };
        assert!(op.is_sound());
        let numbers = |step| [0, 1, 2, 3].map(|pair| op.number(step, pair));
        assert_eq!([0, 1, 3, 4, 6].map(numbers), [[0; 4], [0; 4], [0, 0, 2, 2], [1, 1, 0, 0], [1, 1, 2, 2]]);
        let turns = op.turns(|base, exponent| if exponent == 0.0 { 1.0 } else { base.recip() });
        assert_eq!(turns[..2], turns[2..]);
    }
}
