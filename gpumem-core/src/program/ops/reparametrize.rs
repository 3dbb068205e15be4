use crate::number::Role;
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Layouts, Reads, Rule, Saved};
use crate::shape::{Shape, product};
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// A weight as a function of its parameters: the parts of `v`, each brought to one length, then scaled. A part is all that has one
    /// place along one axis.
    ///
    /// * Inputs: v and, with `scale`, g, a factor for each part. Output: `factor * g * (v - mean) / sqrt(variance + eps)`, one for the
    ///   whole batch, where without `center` the mean is 0 and the variance the mean square.
    /// * Saves the statistics of each part: the mean, where it is subtracted, and `1 / sqrt(variance + eps)`.
    /// * The gradients read v, what was saved and g.
    pub struct Reparametrize {
        /// Elements of the axes before the one of the parts, of that one, and of those behind it.
        pub sizes: [u64; 3],
        /// Whether the mean is subtracted.
        pub center: bool,
        /// Added to the variance, or to the mean square.
        pub eps: f64,
        /// What all are multiplied with.
        pub factor: f64,
        /// Whether each part has a factor of its own, too.
        pub scale: bool,
        /// Dimensions of v and of the weight.
        pub shape: Shape,
    }
}

impl Reparametrize {
    /// Parts along an axis of a weight, which are neither centred nor scaled.
    pub fn along(axis: usize, shape: Shape) -> Reparametrize {
        let dims = shape.dims();
        let of = |dims: Option<&[u64]>| product(dims.unwrap_or_default());
        let sizes = [of(dims.get(..axis)), dims.get(axis).copied().unwrap_or(1), of(dims.get(axis + 1..))];
        Reparametrize { sizes, center: false, eps: 0.0, factor: 1.0, scale: false, shape }
    }

    /// Elements of a part.
    pub fn length(&self) -> u64 {
        self.sizes[0].saturating_mul(self.sizes[2])
    }

    /// Parts.
    pub fn parts(&self) -> u64 {
        self.sizes[1]
    }

    /// Statistics of a part.
    pub fn statistics(&self) -> u64 {
        1 + u64::from(self.center)
    }

    /// Whether there are parts, and those are all of the weight.
    pub fn is_sound(&self) -> bool {
        let all = self.sizes.iter().try_fold(1u64, |all, &size| all.checked_mul(size));
        !self.sizes.contains(&0) && all.is_some() && all == self.shape.elements()
    }

    /// The gradient of `g`, if there is one, and of `v`.
    fn inputs(&self) -> &'static [u8] {
        if self.scale { &[1, 0] } else { &[0] }
    }
}

impl Rule for Reparametrize {
    const NAME: &'static str = "Reparametrize";

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

    /// Parts that are filters are the same elements in either order.
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
