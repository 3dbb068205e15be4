use crate::program::encoding::{record, wire_enum};
use crate::program::op::{Edge, Gradient, Layouts, Op, Reads, Rule, Sequence};
use crate::shape::Shape;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// A function of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BinaryFunction {
    /// `a + b`. Values of one shape are better added by a [`Sum`](super::Sum).
    Add,
    /// `a - b`.
    Subtract,
    /// `a * b`.
    Multiply,
    /// `a / b`.
    Divide,
    /// `a` if `a` is above 0, else `a * b`, as PReLU has it.
    Rectify,
    /// The larger one of `a` and `b`; NaN if one of them is.
    Maximum,
    /// The smaller one of `a` and `b`; NaN if one of them is.
    Minimum,
}
wire_enum!(BinaryFunction { Add, Subtract, Multiply, Divide, Rectify, Maximum, Minimum });

impl BinaryFunction {
    /// Every function.
    pub const ALL: [BinaryFunction; 7] = [
        BinaryFunction::Add,
        BinaryFunction::Subtract,
        BinaryFunction::Multiply,
        BinaryFunction::Divide,
        BinaryFunction::Rectify,
        BinaryFunction::Maximum,
        BinaryFunction::Minimum,
    ];

    /// Returns the inputs that the gradient of each input reads.
    const fn kept(self) -> [&'static [u8]; 2] {
        match self {
            BinaryFunction::Add | BinaryFunction::Subtract => [&[], &[]],
            BinaryFunction::Multiply => [&[1], &[0]],
            BinaryFunction::Divide => [&[1], &[0, 1]],
            BinaryFunction::Rectify => [&[0, 1], &[0]],
            BinaryFunction::Maximum | BinaryFunction::Minimum => [&[0, 1], &[0, 1]],
        }
    }
}

record! {
    /// A function of two numbers, for each pair of elements. Shapes are broadcast as in numpy: they are aligned at their last axes, and an
    /// axis that is missing or has length 1 is repeated. A value that all samples share is repeated as well.
    ///
    /// * Inputs: a and b.
    /// * Gradients are summed over repeated axes. For a sum and a difference they read nothing, and for a product the other input. For a
    ///   quotient they read the divisor, and the divisor's own reads both inputs. For `Rectify` the gradient of b reads a, and that of a
    ///   reads both. For a maximum or minimum they read both.
    pub struct Binary {
        /// The function.
        pub function: BinaryFunction,
        /// Dimensions of a.
        pub left: Shape,
        /// Dimensions of b.
        pub right: Shape,
    }
}

/// An axis of the output, or several adjacent axes of which each input has all or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Its length.
    pub length: u64,
    /// True for each of a and b that has the axis, rather than repeats it.
    pub has: [bool; 2],
}

/// Returns the length of an axis, counted from the last one; 1 if there is no such axis.
fn from_last(shape: Shape, axis: usize) -> u64 {
    shape.dims().iter().rev().nth(axis).copied().unwrap_or(1)
}

/// Returns the shape to which both are broadcast, or `None` if they do not fit.
pub fn broadcast(left: Shape, right: Shape) -> Option<Shape> {
    let rank = left.rank().max(right.rank());
    let mut dims = [0; Shape::MAX_RANK];
    for axis in 0..rank {
        dims[rank - 1 - axis] = match (from_last(left, axis), from_last(right, axis)) {
            (a, b) if a == b => a,
            (1, other) | (other, 1) => other,
            _ => return None,
        };
    }
    Some(Shape::new(&dims[..rank]))
}

impl Binary {
    /// True if no input is repeated within a sample.
    pub fn is_plain(&self) -> bool {
        self.left == self.right
    }

    /// Returns the axes of an output of `samples` samples, outermost first, beginning with the batch. Axes of length 1 are left out, and
    /// adjacent axes that the same inputs have are merged. `batched` is true for each input that differs between samples.
    ///
    /// Returns `None` if the shapes do not fit.
    pub fn axes(&self, samples: u64, batched: [bool; 2]) -> Option<Vec<Axis>> {
        let shape = broadcast(self.left, self.right)?;
        let mut axes: Vec<Axis> = Vec::new();
        let mut add = |length: u64, has: [bool; 2]| match axes.last_mut() {
            _ if length == 1 => {}
            Some(last) if last.has == has => last.length = last.length.saturating_mul(length),
            _ => axes.push(Axis { length, has }),
        };
        add(samples, batched);
        for axis in (0..shape.rank()).rev() {
            add(from_last(shape, axis), [self.left, self.right].map(|input| from_last(input, axis) != 1));
        }
        if axes.is_empty() {
            axes.push(Axis { length: 1, has: [true; 2] });
        }
        Some(axes)
    }
}

impl Rule for Binary {
    fn output(&self) -> Shape {
        broadcast(self.left, self.right).unwrap_or(self.left)
    }

    fn gradients(&self) -> Vec<Gradient> {
        let kept = self.function.kept();
        let computed = |input: u8| Gradient::in_place(&[(input, Reads::inputs(kept[usize::from(input)]))]);
        let passes = matches!(self.function, BinaryFunction::Add | BinaryFunction::Subtract);
        let first = if passes && self.left == self.output() { Gradient::Passes(0) } else { computed(0) };
        vec![first, computed(1)]
    }

    fn in_place(&self) -> bool {
        true
    }

    fn layouts(&self) -> Layouts {
        if self.is_plain() { Layouts::Alike } else { Layouts::Dense }
    }

    /// Decodes inputs that have the same time steps. An input without time steps is repeated for each.
    fn stepped(&self, sequence: &Sequence<'_>) -> Result<(Op, usize), String> {
        let rank = self.left.rank().max(self.right.rank());
        let shapes = [self.left, self.right];
        let places = [0, 1].map(|input| sequence.axes[input].map(|axis| axis + rank - shapes[input].rank()));
        let (Some(place), Some(same)) = (places[0].or(places[1]), places[1].or(places[0])) else {
            return Err(Sequence::refusal());
        };
        let is_repeated = |input: usize| places[input].is_some() || from_last(shapes[input], rank - 1 - place) == 1;
        if place != same || !is_repeated(0) || !is_repeated(1) {
            return Err(Sequence::refusal());
        }
        let cut = |input: usize| sequence.axes[input].map_or(shapes[input], |axis| sequence.cut(shapes[input], axis));
        Ok((Binary { left: cut(0), right: cut(1), ..self.clone() }.into(), place))
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        // Types have at least one axis. An input that is repeated for all elements changes no shape.
        if let Some(scalar) = inputs.iter().position(|shape| shape.rank() == 0) {
            return Edge::same(&inputs[1 - scalar..]);
        }
        let rule = if self.is_plain() { "Equal" } else { "Broadcast" };
        vec![Edge { rule, arguments: Vec::new(), inputs: inputs.to_vec(), output: self.output() }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_aligned_at_their_last_axes() {
        let both = |a: &[u64], b: &[u64]| broadcast(Shape::new(a), Shape::new(b)).map(|shape| shape.dims().to_vec());
        assert_eq!(both(&[64, 7, 5], &[64, 1, 1]), Some(vec![64, 7, 5]));
        assert_eq!(both(&[5], &[64, 7, 5]), Some(vec![64, 7, 5]));
        assert_eq!(both(&[3, 1], &[1, 4]), Some(vec![3, 4]));
        assert_eq!(both(&[3, 2], &[4]), None);
        assert_eq!(both(&[64], &[64, 7, 5]), None);
    }

    #[test]
    fn axes_that_are_alike_are_one() {
        let axes = |left: &[u64], right: &[u64], batched| {
            let op = Binary { function: BinaryFunction::Add, left: Shape::new(left), right: Shape::new(right) };
            let axes = op.axes(2, batched).expect("shapes that fit");
            axes.iter().map(|axis| (axis.length, axis.has)).collect::<Vec<_>>()
        };
        assert_eq!(axes(&[3, 4, 5], &[3, 4, 5], [true, true]), [(120, [true, true])]);
        assert_eq!(axes(&[3, 4, 5], &[3, 1, 1], [true, true]), [(6, [true, true]), (20, [true, false])]);
        assert_eq!(axes(&[3, 4, 5], &[5], [true, false]), [(24, [true, false]), (5, [true, true])]);
        assert_eq!(axes(&[1], &[1], [true, true]), [(2, [true, true])]);
    }
}
