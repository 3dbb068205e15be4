use super::{Cell, Recurrence};
use crate::number::Role;
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Inputs, Reads, Rule, Saved, Work, Workspace};
use crate::shape::{Shape, product};
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// A recurrent layer and the linear maps of its input as one operation. It has the memory that cuDNN needs for all. In training it
    /// replaces [`Product`](crate::program::ops::Product)s and the [`Recurrence`] after them if the network asks for cuDNN.
    ///
    /// * Inputs: x `[T, D]`, then for each direction the weight of its map `[G H, D]`, the inputs of a [`Recurrence`] after p, and with `bias`
    ///   the bias of the map, `[G H]`. Output: `[T, directions * outputs]`.
    /// * Saves one tensor, at least as large as cuDNN's reserve. Backends without cuDNN keep the gates of all directions in it. No other
    ///   operation reads it, and the gradient may overwrite it.
    /// * The gradient reads all inputs, the output and the saved tensor.
    pub struct WholeRecurrence {
        /// The cell.
        pub cell: Cell,
        /// Time steps of the sequence.
        pub steps: u64,
        /// Input features of a time step.
        pub in_features: u64,
        /// Hidden units.
        pub hidden: u64,
        /// Outputs of a time step in one direction.
        pub outputs: u64,
        /// 1, or 2 with a second direction that goes backwards.
        pub directions: u64,
        /// True if there are biases.
        pub bias: bool,
    }
}

/// Bytes of the smallest number format of a network. Sizes in bytes are divided by it to count elements.
const LEAST: u64 = 2;

/// Bytes of workspace that cuDNN takes for the matrix products of each direction, whatever the sizes.
const PRODUCTS: u64 = 8 << 20;

/// Most bytes that alignment to 256 bytes adds to all parts of the reserve, and of the workspace.
const GAPS: [u64; 2] = [512, 4096];

/// Time steps whose gates cuDNN has in memory at once, in the forward pass of a layer of one direction.
const AT_ONCE: u64 = 256;

fn sum(terms: &[u64]) -> u64 {
    terms.iter().copied().fold(0, u64::saturating_add)
}

impl WholeRecurrence {
    /// Returns the recurrence after the linear maps.
    pub fn recurrence(&self) -> Recurrence {
        let WholeRecurrence { cell, steps, hidden, outputs, directions, bias, .. } = *self;
        Recurrence { cell, steps, hidden, outputs, directions, bias, cudnn: true }
    }

    /// Returns the number of inputs of one direction.
    fn inputs(&self) -> u8 {
        self.recurrence().inputs().saturating_add(u8::from(self.bias))
    }

    /// Returns the index of the input that is the weight of a direction's map. After it come the inputs that a [`Recurrence`] has after p.
    pub fn map(&self, direction: u8) -> u8 {
        direction.saturating_mul(self.inputs()).saturating_add(1)
    }

    /// Returns the index of the input that is the bias of a direction's map, if there are biases.
    pub fn map_bias(&self, direction: u8) -> u8 {
        self.map(direction).saturating_add(self.recurrence().inputs())
    }

    /// Returns the elements of a direction's matrices.
    fn matrices(&self) -> u64 {
        let WholeRecurrence { hidden, outputs, .. } = *self;
        let projection = if self.recurrence().is_projected() { product(&[outputs, hidden]) } else { 0 };
        product(&[self.cell.gates(), hidden, self.in_features.saturating_add(outputs)]).saturating_add(projection)
    }

    /// Returns the elements of one set of weights and biases, which cuDNN wants in one piece.
    pub fn weights(&self) -> u64 {
        let biases = if self.bias { product(&[2, self.cell.gates(), self.hidden]) } else { 0 };
        self.directions.saturating_mul(self.matrices().saturating_add(biases))
    }

    /// Returns the most elements of a sample that cuDNN saves for the backward pass: the reserve of `cudnnGetRNNTempSpaceSizes`.
    pub fn reserve(&self) -> u64 {
        let units = |count: u64| self.hidden.saturating_mul(count);
        let each = match self.cell {
            // The input of the projection, and its output.
            Cell::Lstm if self.recurrence().is_projected() => units(6).saturating_add(self.outputs),
            Cell::Lstm => units(5),
            Cell::Gru => units(6),
            Cell::Tanh | Cell::Relu => units(1),
        };
        product(&[self.directions, self.steps, each]).saturating_add(GAPS[0] / LEAST)
    }

    /// Returns the most elements of cuDNN's workspace in any pass of training: those of a sample, and those of the whole batch.
    ///
    /// It holds input and output with the time steps outermost, the gates or their gradients, and the weights in cuDNN's order.
    pub fn temporary(&self) -> [u64; 2] {
        // Two integers of 32 bits for each sample.
        let each = self.forward().max(self.gradient()).saturating_add(8 / LEAST);
        let room = PRODUCTS.saturating_mul(self.directions).saturating_add(GAPS[1]) / LEAST;
        [each, self.directions.saturating_mul(self.matrices()).saturating_add(room)]
    }

    /// Returns the elements of a sample in the forward pass.
    fn forward(&self) -> u64 {
        let WholeRecurrence { steps, in_features, hidden, outputs, directions, .. } = *self;
        let units = |count: u64| hidden.saturating_mul(count);
        let (gates, projected) = (units(self.cell.gates()), if outputs < hidden { outputs } else { 0 });
        let at_once = if directions == 1 { steps.min(AT_ONCE) } else { steps };
        let once = match self.cell {
            Cell::Lstm => sum(&[units(8), outputs, outputs]),
            Cell::Gru => units(5),
            Cell::Tanh | Cell::Relu => units(3),
        };
        let of_direction = sum(&[product(&[steps, sum(&[hidden, projected])]), product(&[at_once, gates]), once]);
        sum(&[product(&[steps, in_features]), directions.saturating_mul(of_direction), self.of_both(steps)])
    }

    /// Returns the elements of a sample in the backward pass.
    fn gradient(&self) -> u64 {
        let WholeRecurrence { steps, in_features, hidden, outputs, directions, .. } = *self;
        let units = |count: u64| hidden.saturating_mul(count);
        let of_step = if outputs < hidden { sum(&[units(2), outputs, outputs]) } else { units(3) };
        let once = match self.cell {
            Cell::Lstm => sum(&[units(7), product(&[4, outputs])]),
            Cell::Gru | Cell::Tanh | Cell::Relu => units(5),
        };
        let of_direction = sum(&[product(&[steps, of_step]), once]);
        let arriving = sum(&[in_features, in_features, product(&[directions, directions, in_features.max(hidden)])]);
        sum(&[product(&[steps, arriving]), directions.saturating_mul(of_direction), self.of_both(0)])
    }

    /// Returns the elements that two directions need in addition to those of each, for `steps` time steps and once.
    fn of_both(&self, steps: u64) -> u64 {
        let others = self.directions.saturating_sub(1);
        product(&[others, 4, self.hidden, steps.saturating_add(1)])
    }
}

impl Rule for WholeRecurrence {
    fn output(&self) -> Shape {
        self.recurrence().output()
    }

    fn gradients(&self) -> Vec<Gradient> {
        let inputs = 0..self.map(self.directions.min(2) as u8);
        let all = inputs.clone().fold(Inputs::NONE, Inputs::with);
        let reads = Reads { inputs: all, output: true, saved: true, ..Reads::NOTHING };
        vec![Gradient::computed(&inputs.map(|input| (input, reads)).collect::<Vec<_>>())]
    }

    fn saved(&self) -> Vec<Saved> {
        vec![Saved::each(Shape::new(&[self.reserve()]), Role::Activation)]
    }

    /// True: the gates are computed there.
    fn works_in_saved(&self) -> bool {
        true
    }

    /// Returns memory for cuDNN's workspace and the lengths of the sequences, and backward for the gradient of the input. The kernels of this
    /// project need less.
    fn workspace(&self, work: Work) -> Option<Workspace> {
        let [each, _] = self.temporary();
        let lengths = 4 / LEAST;
        let arriving = match work {
            Work::Training | Work::Inference => 0,
            Work::Gradient(_) => product(&[self.steps, self.in_features]),
        };
        let shape = Shape::new(&[each.saturating_add(lengths).saturating_add(arriving)]);
        Some(Workspace { role: Role::Activation, shape, batched: true })
    }

    /// Returns cuDNN's elements that are independent of the batch, its weights in one piece, and backward their gradients.
    fn workspace_once(&self, work: Work) -> u64 {
        let copies = match work {
            Work::Training | Work::Inference => 1,
            Work::Gradient(_) => 2,
        };
        self.temporary()[1].saturating_add(self.weights().saturating_mul(copies))
    }

    fn macs(&self) -> u64 {
        let recurrence = self.recurrence();
        product(&[self.directions, self.steps, recurrence.width(), self.in_features]).saturating_add(recurrence.macs())
    }

    /// Returns none: the operations that it replaces have the assertions.
    fn edges(&self, _inputs: &[Shape]) -> Vec<Edge> {
        Vec::new()
    }
}
