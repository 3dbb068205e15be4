use crate::number::Role;
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Layouts, Reads, Rule, Saved};
use crate::shape::{Shape, product};
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// A weight computed from its parameters: the slices of `v` along one axis, each normalised to one length, then scaled. A slice has one
    /// index along that axis.
    ///
    /// * Inputs: v and, with `scale`, g, a factor for each slice. Output: `factor * g * (v - mean) / sqrt(variance + eps)`, one for the
    ///   whole batch. Without `center` the mean is 0 and the variance is the mean square.
    /// * Saves the statistics of each slice: the mean, if it is subtracted, and `1 / sqrt(variance + eps)`.
    /// * The gradients read v, the saved statistics and g.
    pub struct Reparametrize {
        /// Elements of the axes before the axis of the slices, of that axis, and of the axes after it.
        pub sizes: [u64; 3],
        /// True if the mean is subtracted.
        pub center: bool,
        /// Added to the variance, or to the mean square.
        pub eps: f64,
        /// A factor of all elements.
        pub factor: f64,
        /// True if each slice also has a factor of its own.
        pub scale: bool,
        /// Dimensions of v and of the weight.
        pub shape: Shape,
    }
}

impl Reparametrize {
    /// Returns the slices along an axis of a weight, neither centred nor scaled.
    pub fn along(axis: usize, shape: Shape) -> Reparametrize {
        let dims = shape.dims();
        let of = |dims: Option<&[u64]>| product(dims.unwrap_or_default());
        let sizes = [of(dims.get(..axis)), dims.get(axis).copied().unwrap_or(1), of(dims.get(axis + 1..))];
        Reparametrize { sizes, center: false, eps: 0.0, factor: 1.0, scale: false, shape }
    }

    /// Returns the elements of a slice.
    pub fn length(&self) -> u64 {
        self.sizes[0].saturating_mul(self.sizes[2])
    }

    /// Returns the number of slices.
    pub fn parts(&self) -> u64 {
        self.sizes[1]
    }

    /// Returns the number of statistics of a slice.
    pub fn statistics(&self) -> u64 {
        1 + u64::from(self.center)
    }

    /// True if there are slices and they cover the weight.
    pub fn is_sound(&self) -> bool {
        let all = self.sizes.iter().try_fold(1u64, |all, &size| all.checked_mul(size));
        !self.sizes.contains(&0) && all.is_some() && all == self.shape.elements()
    }

    /// Returns the inputs that have a gradient and are read for it: `g`, if there is one, and `v`.
    fn inputs(&self) -> &'static [u8] {
        if self.scale { &[1, 0] } else { &[0] }
    }
}

impl Rule for Reparametrize {
    fn output(&self) -> Shape {
        self.shape
    }

    fn gradients(&self) -> Vec<Gradient> {
        let reads = Reads { saved: true, ..Reads::inputs(self.inputs()) };
        let of: Vec<(u8, Reads)> = self.inputs().iter().map(|&input| (input, reads)).collect();
        vec![Gradient::computed(&of)]
    }

    fn saved(&self) -> Vec<Saved> {
        vec![Saved::whole(Shape::new(&[self.statistics(), self.parts()]), Role::Statistic)]
    }

    /// Returns either order for slices that are filters, which have the same elements in both.
    fn layouts(&self) -> Layouts {
        if self.sizes[0] == 1 { Layouts::Filters(self.shape) } else { Layouts::Dense }
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        Edge::same(inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_along_one_axis() {
        let of = |axis, dims| Reparametrize::along(axis, Shape::new(dims));
        assert_eq!(of(0, &[6, 3, 5, 4]).sizes, [1, 6, 60]);
        assert_eq!(of(2, &[6, 3, 5]).sizes, [18, 5, 1]);
        assert_eq!((of(1, &[6, 3]).length(), of(1, &[6, 3]).parts()), (6, 3));
        assert!(of(1, &[6, 3, 5]).is_sound());
        for sizes in [[6, 3, 4], [0, 3, 5], [1 << 40, 1 << 40, 1]] {
            assert!(!Reparametrize { sizes, ..of(1, &[6, 3, 5]) }.is_sound(), "{sizes:?}");
        }
    }
}
