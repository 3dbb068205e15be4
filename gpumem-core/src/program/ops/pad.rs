use crate::program::encoding::{record, wire_enum};
use crate::program::op::{Edge, Gradient, Layouts, Reads, Rule};
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

/// The continuation of a map beyond its edges, along each axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// A constant.
    Constant,
    /// The map, reflected at its outermost element.
    Reflect,
    /// Its outermost element.
    Replicate,
    /// The map again, from its other side.
    Circular,
}
wire_enum!(Beyond { Constant, Reflect, Replicate, Circular });

record! {
    /// Padding: a map with rows and columns added around it, or cut off.
    ///
    /// * Input: x `[channels, H, W]`.
    /// * The gradient reads nothing.
    pub struct Pad {
        /// Channels.
        pub channels: u64,
        /// The continuation of x beyond its edges.
        pub beyond: Beyond,
        /// The constant, if it is used.
        pub value: f64,
        /// Height and width of x.
        pub input: [u64; 2],
        /// Rows added above and below, and columns added to the left and to the right.
        pub added: [[u64; 2]; 2],
        /// Rows cut off above and below, and columns cut off to the left and to the right.
        pub removed: [[u64; 2]; 2],
    }
}

impl Pad {
    /// Returns height and width of y.
    pub fn sides(&self) -> [u64; 2] {
        let sum = |[front, end]: [u64; 2]| front.saturating_add(end);
        [0, 1]
            .map(|axis| self.input[axis].saturating_add(sum(self.added[axis])).saturating_sub(sum(self.removed[axis])))
    }

    /// Returns the rows and columns of y before the first ones of x; below 0 if x is cut off there.
    pub fn before(&self) -> [i64; 2] {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        [0, 1].map(|axis| number(self.added[axis][0]).saturating_sub(number(self.removed[axis][0])))
    }

    /// True if every element of y comes from an element of x or is the constant. A damaged program may have other numbers.
    pub fn is_sound(&self) -> bool {
        let axis = |axis: usize| {
            let (size, [front, end]) = (self.input[axis], self.added[axis]);
            let most = front.max(end);
            let fits = match self.beyond {
                Beyond::Constant | Beyond::Replicate => true,
                Beyond::Reflect => most < size,
                Beyond::Circular => most <= size,
            };
            let is_whole = self.removed[axis] == [0, 0];
            let [rows, columns] = self.sides();
            fits && (is_whole || self.beyond == Beyond::Constant) && self.channels.min(rows).min(columns).min(size) > 0
        };
        axis(0) && axis(1)
    }
}

impl Rule for Pad {
    fn output(&self) -> Shape {
        let [height, width] = self.sides();
        Shape::new(&[self.channels, height, width])
    }

    fn gradients(&self) -> Vec<Gradient> {
        vec![Gradient::computed(&[(0, Reads::NOTHING)])]
    }

    fn layouts(&self) -> Layouts {
        let [height, width] = self.input;
        Layouts::Maps(vec![Shape::new(&[self.channels, height, width]), self.output()])
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        let sum = |[front, end]: [u64; 2]| front.saturating_add(end);
        let [rows, columns] = [0, 1].map(|axis| [self.added[axis], self.removed[axis]].map(sum));
        vec![Edge::new("Pad", &[rows, columns].concat(), inputs[0], self.output())]
    }
}
