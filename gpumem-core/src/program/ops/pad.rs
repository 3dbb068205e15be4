use crate::program::encoding::{record, wire_enum};
use crate::program::op::{Edge, Gradient, Layouts, Reads, Rule};
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

/// What stands beyond the edges of a map, along each axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// A number.
    Constant,
    /// The map once more, turned around at its outermost element.
    Reflect,
    /// Its outermost element.
    Replicate,
    /// The map once more, from its other side.
    Circular,
}
wire_enum!(Beyond { Constant, Reflect, Replicate, Circular });

record! {
    /// A map with more rows and columns around it, or fewer.
    ///
    /// * Input: x `[channels, H, W]`.
    /// * The gradient reads nothing.
    pub struct Pad {
        /// Channels.
        pub channels: u64,
        /// What stands beyond the edges of x.
        pub beyond: Beyond,
        /// The number that stands there, if it is one.
        pub value: f64,
        /// Height and width of x.
        pub input: [u64; 2],
        /// Rows that are added above and below, columns that are added to the left and to the right.
        pub added: [[u64; 2]; 2],
        /// The same that are cut off.
        pub removed: [[u64; 2]; 2],
    }
}

impl Pad {
    /// Height and width of y.
    pub fn sides(&self) -> [u64; 2] {
        let sum = |[front, end]: [u64; 2]| front.saturating_add(end);
        [0, 1]
            .map(|axis| self.input[axis].saturating_add(sum(self.added[axis])).saturating_sub(sum(self.removed[axis])))
    }

    /// How far in front of the first row and the first column of x those of y are; below 0 where x is cut off.
    pub fn before(&self) -> [i64; 2] {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        [0, 1].map(|axis| number(self.added[axis][0]).saturating_sub(number(self.removed[axis][0])))
    }

    /// Whether every element of y is one of x or stands for one: numbers that a damaged program need not have.
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
    const NAME: &'static str = "Pad";

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
