use crate::number::Role;
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Op, Reads, Rule, Saved, Sequence, Work, Workspace};
use crate::shape::{Shape, product};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Row norms, such as LayerNorm, RmsNorm and GroupNorm. Rows are brought to mean 0 and variance 1, or with `center = false` to a mean
    /// square of 1, each by its own statistics, and are then scaled and shifted.
    ///
    /// * Inputs: x, with `scale` factors and with `shift` summands. Each of these has [`Normalize::parameters`] elements.
    /// * Saves the statistics of each row: the mean, if rows are centred, and `1 / sqrt(variance + eps)`.
    /// * The gradients read x, the saved statistics and the factors.
    pub struct Normalize {
        /// Rows a sample.
        pub rows: u64,
        /// Elements of a row.
        pub length: u64,
        /// True if the mean is subtracted.
        pub center: bool,
        /// Added to the variance, or to the mean square.
        pub eps: f64,
        /// Rows after which factors and summands repeat: 1 if all rows have the same.
        pub groups: u64,
        /// Adjacent elements that share a factor and a summand.
        pub shared: u64,
        /// True if there are factors.
        pub scale: bool,
        /// True if there are summands. There are factors then, too.
        pub shift: bool,
        /// Dimensions of x and y.
        pub shape: Shape,
    }
}

impl Normalize {
    /// Returns the norm of rows of this shape, `[rows, elements]` or `[elements]`, with or without factors and summands.
    pub fn of_rows(shape: Shape, center: bool, eps: f64, [scale, shift]: [bool; 2]) -> Normalize {
        let length = shape.last();
        let rows = product(&shape.dims()[..shape.rank().saturating_sub(1)]);
        Normalize { rows, length, center, eps, groups: 1, shared: 1, scale, shift, shape }
    }

    /// Returns the number of factors, which is also that of summands.
    pub fn parameters(&self) -> u64 {
        self.groups.saturating_mul(self.length.checked_div(self.shared).unwrap_or(0))
    }

    /// True if rows are whole groups, and rows divide into equal runs of elements that share a factor.
    pub fn is_sound(&self) -> bool {
        let divides = |part: u64, whole: u64| part > 0 && whole.is_multiple_of(part);
        divides(self.groups, self.rows) && divides(self.shared, self.length)
    }

    /// Returns the number of statistics of a row.
    pub fn statistics(&self) -> u64 {
        1 + u64::from(self.center)
    }
}

/// Number of parts of the rows over which the gradients of factors and summands are summed separately.
const PARTS: u64 = 128;

impl Rule for Normalize {
    fn output(&self) -> Shape {
        self.shape
    }

    fn gradients(&self) -> Vec<Gradient> {
        let inputs: &[u8] = if self.scale { &[0, 1] } else { &[0] };
        let reads = Reads { saved: true, ..Reads::inputs(inputs) };
        let parameters = [self.scale.then_some(1), self.shift.then_some(2)];
        let of: Vec<(u8, Reads)> = parameters.into_iter().flatten().chain([0]).map(|input| (input, reads)).collect();
        vec![Gradient::in_place(&of)]
    }

    fn saved(&self) -> Vec<Saved> {
        vec![Saved::each(Shape::new(&[self.statistics(), self.rows]), Role::Statistic)]
    }

    /// Returns memory for the gradients of factors and summands, each over that many parts of the rows.
    fn workspace(&self, work: Work) -> Option<Workspace> {
        let shape = Shape::new(&[2, PARTS, self.parameters()]);
        let wanted = self.scale && matches!(work, Work::Gradient(_));
        wanted.then_some(Workspace { role: Role::Statistic, shape, batched: false })
    }

    /// True: it matters in inference, since the gradient reads x.
    fn in_place(&self) -> bool {
        true
    }

    /// Decodes rows that each belong to one time step.
    fn stepped(&self, sequence: &Sequence<'_>) -> Result<(Op, usize), String> {
        let axis = sequence.of_first()?;
        let step = product(&self.shape.dims()[axis + 1..]);
        let rows = step / self.length.max(1);
        if !step.is_multiple_of(self.length) || !rows.is_multiple_of(self.groups) {
            return Err(Sequence::refusal());
        }
        let (rows, shape) = (sequence.share(self.rows), sequence.cut(self.shape, axis));
        Ok((Normalize { rows, shape, ..self.clone() }.into(), axis))
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        // A group of all channels is a row, too. It is not the last axis if axes of length 1 follow.
        let are_rows =
            self.groups == 1 && self.shared == 1 && (self.shape.rank() > 2 || self.shape.last() == self.length);
        if are_rows && self.shape.rank() > 2 {
            return Edge::same(inputs);
        }
        let (rule, number) = if are_rows { ("Rows", self.length) } else { ("Channels", self.parameters()) };
        vec![Edge::new(rule, &[number], inputs[0], self.shape)]
    }
}
