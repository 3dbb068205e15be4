use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Op, Reads, Rule, Sequence};
use crate::shape::{Shape, product};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// A permutation of a value's axes.
    ///
    /// * Input: x.
    /// * The gradient reads nothing.
    pub struct Permute {
        /// Dimensions of x.
        pub input: Shape,
        /// The index in x of each axis of y.
        pub order: Vec<u64>,
    }
}

/// An axis along which elements move, with its strides in x and in y.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Its length.
    pub length: u64,
    /// Elements between neighbours in the tensor that is read.
    pub from: u64,
    /// Elements between neighbours in the tensor that is written.
    pub to: u64,
}

/// Returns how far apart neighbours along each axis are.
pub(super) fn strides(shape: Shape) -> Vec<u64> {
    (0..shape.rank()).map(|axis| product(&shape.dims()[axis + 1..])).collect()
}

impl Permute {
    /// Returns the operation that undoes this one.
    pub fn inverse(&self) -> Permute {
        let position = |axis: usize| self.order.iter().position(|&from| from == axis as u64).unwrap_or(axis) as u64;
        Permute { input: self.output(), order: (0..self.input.rank()).map(position).collect() }
    }

    /// True if each axis of x is one of y.
    pub fn is_sound(&self) -> bool {
        let rank = self.input.rank();
        self.order.len() == rank && (0..rank).all(|axis| self.order.contains(&(axis as u64)))
    }

    /// Returns the axes of y, outermost first, beginning with the samples. Axes of length 1 are left out, and axes that stay neighbours are
    /// merged. There is at least one.
    pub fn moved(&self, samples: u64) -> Vec<Moved> {
        let (from, to) = (strides(self.input), strides(self.output()));
        let size = product(self.input.dims());
        let of = |axis: usize| {
            let source = self.order.get(axis).map_or(axis, |&source| source as usize);
            let at = |list: &[u64]| list.get(source).copied().unwrap_or(1);
            Moved { length: at(self.input.dims()), from: at(&from), to: to[axis] }
        };
        let all = [Moved { length: samples, from: size, to: size }].into_iter().chain((0..self.input.rank()).map(of));
        let mut axes: Vec<Moved> = Vec::new();
        for axis in all.filter(|axis| axis.length != 1) {
            let reach = |step: u64| step.checked_mul(axis.length);
            match axes.last_mut() {
                Some(last) if reach(axis.from) == Some(last.from) && reach(axis.to) == Some(last.to) => {
                    *last = Moved { length: last.length.saturating_mul(axis.length), ..axis };
                }
                _ => axes.push(axis),
            }
        }
        if axes.is_empty() {
            axes.push(Moved { length: 1, from: 1, to: 1 });
        }
        axes
    }
}

impl Rule for Permute {
    fn output(&self) -> Shape {
        let dims = self.input.dims();
        let dims: Vec<u64> = self.order.iter().map(|&axis| dims.get(axis as usize).copied().unwrap_or(1)).collect();
        Shape::new(&dims)
    }

    fn gradients(&self) -> Vec<Gradient> {
        vec![Gradient::computed(&[(0, Reads::NOTHING)])]
    }

    fn stepped(&self, sequence: &Sequence<'_>) -> Result<(Op, usize), String> {
        let axis = sequence.of_first()?;
        let to = self.order.iter().position(|&from| from == axis as u64).ok_or_else(Sequence::refusal)?;
        Ok((Permute { input: sequence.cut(self.input, axis), ..self.clone() }.into(), to))
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        let rule = match self.order.len() {
            2 => "Permute2",
            3 => "Permute3",
            4 => "Permute4",
            5 => "Permute5",
            _ => "Permute6",
        };
        vec![Edge::new(rule, &self.order, inputs[0], self.output())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes(dims: &[u64], order: &[u64], samples: u64) -> Vec<(u64, u64, u64)> {
        let op = Permute { input: Shape::new(dims), order: order.to_vec() };
        assert!(op.is_sound());
        let inverse = op.inverse();
        assert_eq!((inverse.output(), inverse.inverse()), (op.input, op.clone()));
        op.moved(samples).iter().map(|axis| (axis.length, axis.from, axis.to)).collect()
    }

    #[test]
    fn neighbours_that_stay_neighbours_are_one_axis() {
        assert_eq!(axes(&[3, 4, 5], &[1, 2, 0], 2), [(2, 60, 60), (20, 1, 3), (3, 20, 1)]);
        assert_eq!(axes(&[3, 4, 5], &[2, 1, 0], 1), [(5, 1, 12), (4, 5, 3), (3, 20, 1)]);
        assert_eq!(axes(&[3, 1, 5], &[1, 0, 2], 4), [(60, 1, 1)]);
        assert_eq!(axes(&[2, 3, 4, 5], &[0, 2, 1, 3], 7), [(14, 60, 60), (4, 5, 15), (3, 20, 5), (5, 1, 1)]);
        assert_eq!(axes(&[1, 1], &[1, 0], 1), [(1, 1, 1)]);
    }

    /// A damaged program may name any axes.
    #[test]
    fn axes_that_are_not_there_are_not_sound() {
        let op = Permute { input: Shape::new(&[3, 4]), order: vec![0, 7] };
        assert!(!op.is_sound() && op.moved(2).len() <= 3);
        assert!(!Permute { order: vec![0, 0], ..op.clone() }.is_sound());
        assert!(!Permute { order: vec![0], ..op }.is_sound());
    }
}
