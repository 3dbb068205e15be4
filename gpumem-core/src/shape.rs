//! Shapes of one sample. The batch is never part of a [`Shape`].

use core::fmt;

/// The dimensions of one sample: `[C, H, W]` of a feature map, `[T, D]` of a sequence, `[N]` of a vector or of tokens.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Shape {
    dims: [u64; Shape::MAX_RANK],
    rank: usize,
}

impl Shape {
    /// Most dimensions that a shape can have.
    pub const MAX_RANK: usize = 6;

    /// Returns a shape with these dimensions. Dimensions beyond [`Shape::MAX_RANK`] are dropped.
    pub fn new(dims: &[u64]) -> Shape {
        let rank = dims.len().min(Shape::MAX_RANK);
        let mut shape = Shape { dims: [0; Shape::MAX_RANK], rank };
        shape.dims[..rank].copy_from_slice(&dims[..rank]);
        shape
    }

    /// Returns the dimensions, outermost first.
    pub fn dims(&self) -> &[u64] {
        &self.dims[..self.rank]
    }

    /// Returns the number of dimensions.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the innermost dimension, or 1 for a shape without dimensions.
    pub fn last(&self) -> u64 {
        self.dims().last().copied().unwrap_or(1)
    }

    /// Returns the elements of one sample, or `None` if they exceed `u64`.
    pub fn elements(&self) -> Option<u64> {
        self.dims().iter().try_fold(1u64, |product, &dim| product.checked_mul(dim))
    }

    /// Replaces the innermost dimension.
    pub fn with_last(self, dim: u64) -> Shape {
        self.with(self.rank.wrapping_sub(1), dim)
    }

    /// Replaces the length of one axis. Returns the shape unchanged if it has no such axis.
    pub fn with(mut self, axis: usize, length: u64) -> Shape {
        if axis < self.rank {
            self.dims[axis] = length;
        }
        self
    }

    /// True if channels first and channels last are one order, since there is one channel or one pixel. False for shapes of fewer axes.
    pub fn is_same_in_both_orders(&self) -> bool {
        matches!(self.dims(), [.., channels, height, width] if *channels == 1 || (*height == 1 && *width == 1))
    }

    /// Returns `[C, H, W]` of a feature map, or `None` if the shape does not have three axes.
    pub fn as_map(&self) -> Option<[u64; 3]> {
        <[u64; 3]>::try_from(self.dims()).ok()
    }
}

/// Returns the product of `factors`, or `u64::MAX` if it exceeds `u64`. A network with such a product is refused for its element
/// counts before any other figure of it is shown.
pub(crate) fn product(factors: &[u64]) -> u64 {
    factors.iter().fold(1, |product, &factor| product.saturating_mul(factor))
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (index, dim) in self.dims().iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{dim}")?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
