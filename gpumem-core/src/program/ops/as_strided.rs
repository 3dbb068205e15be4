use super::permute::strides;
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Rule};
use crate::shape::Shape;
use alloc::vec::Vec;

record! {
    /// Indices of a value at strides: a part of them, their axes in another order, or some of them several times.
    ///
    /// * Input: indices x. The output is `y[i, j, ..] = x[start + i * strides[0] + j * strides[1] + ..]`, where x counts as one row a sample.
    /// * Indices have no gradient.
    pub struct AsStrided {
        /// Dimensions of x.
        pub input: Shape,
        /// Dimensions of y.
        pub output: Shape,
        /// The element of x that is the first of y.
        pub start: u64,
        /// Elements of x from one index of an axis of y to the next; 0 along an axis that repeats.
        pub strides: Vec<u64>,
    }
}

impl AsStrided {
    /// Returns `length` elements from `start` on along an axis.
    pub fn part(input: Shape, axis: usize, [start, length]: [u64; 2]) -> AsStrided {
        let strides = strides(input);
        let first = strides.get(axis).map_or(0, |stride| start.saturating_mul(*stride));
        AsStrided { input, output: input.with(axis, length), start: first, strides }
    }

    /// Returns the axes in another order: axis `i` of y is axis `order[i]` of x.
    pub fn permuted(input: Shape, order: &[u64]) -> AsStrided {
        let own = strides(input);
        let at = |list: &[u64]| order.iter().filter_map(|&axis| list.get(axis as usize).copied()).collect::<Vec<_>>();
        AsStrided { input, output: Shape::new(&at(input.dims())), start: 0, strides: at(&own) }
    }

    /// Returns axes of length 1 repeated, and new ones before the others, until the dimensions are `output`.
    pub fn expanded(input: Shape, output: Shape) -> AsStrided {
        let (own, new) = (strides(input), output.rank().saturating_sub(input.rank()));
        let stride = |axis: usize| match axis.checked_sub(new) {
            Some(axis) if input.dims()[axis] != 1 => own[axis],
            _ => 0,
        };
        AsStrided { input, output, start: 0, strides: (0..output.rank()).map(stride).collect() }
    }

    /// Returns the elements of x up to the last that is read; `None` if there are more than 64 bits count.
    fn reach(&self) -> Option<u64> {
        let mut last = self.start;
        for (length, stride) in self.output.dims().iter().zip(&self.strides) {
            last = last.checked_add(length.checked_sub(1)?.checked_mul(*stride)?)?;
        }
        last.checked_add(1)
    }

    /// True if all that it reads is in x: a damaged program may read anything.
    pub fn is_sound(&self) -> bool {
        let is_within = |reach: u64| self.input.elements().is_some_and(|elements| reach <= elements);
        self.strides.len() == self.output.rank() && self.reach().is_some_and(is_within)
    }

    /// Returns the view without repetitions, which reads the same elements of x.
    pub fn distinct(&self) -> AsStrided {
        let axes = self.output.dims().iter().zip(&self.strides);
        let dims: Vec<u64> = axes.map(|(&length, &stride)| if stride == 0 { length.min(1) } else { length }).collect();
        AsStrided { output: Shape::new(&dims), ..self.clone() }
    }

    /// Returns the element of x that an element of y is, both counted in a sample.
    pub fn place(&self, element: u64) -> u64 {
        let (mut rest, mut place) = (element, self.start);
        for (length, stride) in self.output.dims().iter().zip(&self.strides).rev() {
            place += rest % length * stride;
            rest /= length;
        }
        place
    }
}

impl Rule for AsStrided {
    fn output(&self) -> Shape {
        self.output
    }

    fn makes_indices(&self) -> bool {
        true
    }

    fn gradients(&self) -> Vec<Gradient> {
        Vec::new()
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        let rules = ["AsStrided1", "AsStrided2", "AsStrided3", "AsStrided4", "AsStrided5", "AsStrided6"];
        let numbers = [&[self.reach().unwrap_or(u64::MAX)], self.output.dims()].concat();
        let rule = rules[self.output.rank().clamp(1, rules.len()) - 1];
        [Edge { rule, arguments: numbers, inputs: inputs.to_vec(), output: self.output }].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(op: &AsStrided) -> Vec<u64> {
        (0..op.output.elements().unwrap()).map(|element| op.place(element)).collect()
    }

    /// x is `[[0, 1, 2], [3, 4, 5]]`.
    #[test]
    fn parts_orders_and_repetitions() {
        let x = Shape::new(&[2, 3]);
        assert_eq!(read(&AsStrided::part(x, 1, [1, 2])), [1, 2, 4, 5]);
        assert_eq!(read(&AsStrided::part(x, 0, [1, 1])), [3, 4, 5]);
        assert_eq!(read(&AsStrided::permuted(x, &[1, 0])), [0, 3, 1, 4, 2, 5]);
        let row = Shape::new(&[3, 1]);
        assert_eq!(read(&AsStrided::expanded(row, Shape::new(&[3, 2]))), [0, 0, 1, 1, 2, 2]);
        let twice = AsStrided::expanded(Shape::new(&[3]), Shape::new(&[2, 3]));
        assert_eq!(read(&twice), [0, 1, 2, 0, 1, 2]);
        assert_eq!(read(&twice.distinct()), [0, 1, 2]);
    }

    /// A damaged program may say anything.
    #[test]
    fn elements_that_there_are_not_are_not_sound() {
        let op = AsStrided::part(Shape::new(&[2, 3]), 1, [1, 2]);
        assert!(op.is_sound());
        for changed in [
            AsStrided { start: 2, ..op.clone() },
            AsStrided { start: u64::MAX, ..op.clone() },
            AsStrided { strides: [4, 1].to_vec(), ..op.clone() },
            AsStrided { strides: [u64::MAX; 2].to_vec(), ..op.clone() },
            AsStrided { strides: [1].to_vec(), ..op.clone() },
            AsStrided { output: Shape::new(&[2, 0]), ..op.clone() },
            AsStrided { input: Shape::new(&[5]), ..op.clone() },
        ] {
            assert!(!changed.is_sound(), "{changed:?}");
        }
    }
}
