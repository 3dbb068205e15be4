//! Scratch memory of an update that needs sums over its parameter.

use super::muon::Iteration;
use super::table::{Extent, has_extent};
use crate::shape::Shape;

/// The parts of the scratch memory of `Adafactor`'s update, one after the other, in elements of f32. A backend that adds up in another way
/// does not use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    /// Sums of the gradient's squares in each strip of rows, one for each column. 0 if one strip has all rows.
    pub columns: u64,
    /// The means of the means of rows, one for each matrix.
    pub means: u64,
    /// Sums of the squares of weights, and of changes, one of each for each piece.
    pub squares: u64,
    /// The factor of changes.
    pub factor: u64,
}

impl Sums {
    /// The number of rows of a strip.
    pub const STRIP: u64 = 256;

    /// The number of elements of a piece.
    pub const PIECE: u64 = 1024;

    /// Returns the scratch memory for a parameter of this shape.
    pub fn new(parameter: Shape) -> Sums {
        let elements = parameter.elements().unwrap_or(u64::MAX);
        let (columns, means) = match *parameter.dims() {
            [.., height, width] => {
                let all = elements.checked_div(height).unwrap_or(0);
                let strips = height.div_ceil(Sums::STRIP);
                (if strips > 1 { all.saturating_mul(strips) } else { 0 }, all.checked_div(width).unwrap_or(0))
            }
            _ => (0, 0),
        };
        Sums { columns, means, squares: elements.div_ceil(Sums::PIECE).saturating_mul(2), factor: 1 }
    }

    /// Returns the elements of all parts together.
    pub fn all(self) -> u64 {
        [self.means, self.squares, self.factor].into_iter().fold(self.columns, u64::saturating_add)
    }
}

/// Returns the scratch memory of the update of a parameter of this shape, in elements of f32. `moments` are the state tensors: see
/// [`with_state`](super::with_state). `is_matrix` says that the parameter is a matrix of a hidden layer.
pub fn scratch(moments: u64, parameter: Shape, is_matrix: bool) -> u64 {
    match (has_extent(moments, Extent::Rows), is_matrix && has_extent(moments, Extent::Others)) {
        (true, _) => Sums::new(parameter).all(),
        (false, true) => Iteration::new(parameter).all(),
        (false, false) => 0,
    }
}

/// Returns the scratch memory of several updates that need so much each. Updates of Muon run one after the other and share it; those of
/// other optimizers have memory of their own.
pub fn scratch_of_all(moments: u64, each: impl Iterator<Item = u64>) -> u64 {
    if has_extent(moments, Extent::Others) { each.fold(0, u64::max) } else { each.fold(0, u64::saturating_add) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_those_of_the_shape() {
        let sums = |dims: &[u64]| {
            let Sums { columns, means, squares, factor } = Sums::new(Shape::new(dims));
            [columns, means, squares, factor]
        };
        assert_eq!(sums(&[]), [0, 0, 2, 1]);
        assert_eq!(sums(&[1025]), [0, 0, 4, 1]);
        assert_eq!(sums(&[256, 4]), [0, 1, 2, 1]);
        assert_eq!(sums(&[257, 4]), [8, 1, 4, 1]);
        assert_eq!(sums(&[5, 6, 3, 2]), [0, 30, 2, 1]);
        assert_eq!(Sums::new(Shape::new(&[257, 4])).all(), 8 + 1 + 4 + 1);
    }
}
