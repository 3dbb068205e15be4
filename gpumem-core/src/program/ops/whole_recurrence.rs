use super::{Cell, Recurrence};
use crate::number::Role;
use crate::program::encoding::record;
use crate::program::op::{Edge, Gradient, Inputs, Reads, Rule, Saved, Work, Workspace};
use crate::shape::{Shape, product};
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// A recurrent layer of one direction and the map of what arrives as one, in the memory that cuDNN takes for both: what a
    /// [`Product`](super::Product) and the [`Recurrence`] behind it are in training where the network asks for cuDNN.
    ///
    /// * Inputs: x `[T, D]`, the weight of the map `[G H, D]`, that of the steps `[G H, H]` and, with `bias`, the bias of the steps and that of
    ///   the map, `[G H]`. Output `[T, H]`. All but the map's weight and bias are where a [`Recurrence`] has them, counted from 1.
    /// * Saves one tensor that is at least as large as cuDNN's reserve, in which backends that run without it have the gates. Nobody else
    ///   reads it, and the gradient may overwrite it.
    /// * The gradient reads everything.
    pub struct WholeRecurrence {
        /// What a step computes.
        pub cell: Cell,
        /// Steps of the sequence.
        pub steps: u64,
        /// Numbers of a step that arrives.
        pub in_features: u64,
        /// Hidden units.
        pub hidden: u64,
        /// Whether there are biases.
        pub bias: bool,
    }
}

/// Bytes of the smallest numbers that a network has. What is counted in bytes takes as many numbers as it has of these.
const LEAST: u64 = 2;

/// Bytes of its workspace that cuDNN takes for products, whatever the sizes.
const PRODUCTS: u64 = 8 << 20;

/// Bytes by which parts of reserve and workspace may be larger so that each begins at a multiple of 256, all together.
const GAPS: [u64; 2] = [512, 4096];

impl WholeRecurrence {
    /// The input that is the map's bias.
    pub const MAP_BIAS: u8 = 4;

    /// The layer behind the map.
    pub fn recurrence(&self) -> Recurrence {
        let WholeRecurrence { cell, steps, hidden, bias, .. } = *self;
        Recurrence { cell, steps, hidden, outputs: hidden, directions: 1, bias, cudnn: true }
    }

    /// Elements of one set of weights and biases, as cuDNN wants them in one piece.
    pub fn weights(&self) -> u64 {
        let each = self.in_features.saturating_add(self.hidden).saturating_add(if self.bias { 2 } else { 0 });
        product(&[self.cell.gates(), self.hidden, each])
    }

    /// The most that cuDNN keeps for the backward pass, in elements of a sample: what `cudnnGetRNNTempSpaceSizes` calls the reserve.
    pub fn reserve(&self) -> u64 {
        let numbers = match self.cell {
            Cell::Lstm => 5,
            Cell::Gru => 6,
            Cell::Tanh | Cell::Relu => 1,
        };
        product(&[numbers, self.steps, self.hidden]).saturating_add(GAPS[0] / LEAST)
    }

    /// The most that cuDNN works with in any pass of training, in elements of a sample and in elements of the whole batch: its workspace.
    ///
    /// It has what arrives and what leaves with the steps outermost, the gates or their gradients, and the weights in an order of its own.
    pub fn temporary(&self) -> [u64; 2] {
        let (inputs, hidden) = (self.in_features, self.hidden);
        let sum = |terms: [u64; 3]| terms.into_iter().fold(0, u64::saturating_add);
        // For each step, and once for each sample, in units of H: where the forward pass needs more, and where the gradient does.
        let (gates, of_sample, of_gradient) = match self.cell {
            Cell::Lstm => (5, 10, 11),
            Cell::Gru => (4, 5, 5),
            Cell::Tanh | Cell::Relu => (2, 3, 5),
        };
        let units = |count: u64| count.saturating_mul(hidden);
        let of = |step: u64, sample: u64| product(&[self.steps, step]).saturating_add(units(sample));
        let forward = of(inputs.saturating_add(units(gates)), of_sample);
        let gradient = of(sum([inputs.saturating_mul(2), units(3), inputs.max(hidden)]), of_gradient);
        // Two whole numbers of 32 bits for each sample.
        let each = forward.max(gradient).saturating_add(8 / LEAST);
        let matrices = product(&[self.cell.gates(), hidden, inputs.saturating_add(hidden)]);
        [each, matrices.saturating_add((PRODUCTS + GAPS[1]) / LEAST)]
    }
}

impl Rule for WholeRecurrence {
    const NAME: &'static str = "WholeRecurrence";

    fn output(&self) -> Shape {
        Shape::new(&[self.steps, self.hidden])
    }

    fn gradients(&self) -> Vec<Gradient> {
        let inputs = 0..if self.bias { 5 } else { 3 };
        let all = inputs.clone().fold(Inputs::NONE, Inputs::with);
        let reads = Reads { inputs: all, output: true, saved: true, ..Reads::NOTHING };
        vec![Gradient::computed(&inputs.map(|input| (input, reads)).collect::<Vec<_>>())]
    }

    fn saved(&self) -> Vec<Saved> {
        vec![Saved::each(Shape::new(&[self.reserve()]), Role::Activation)]
    }

    /// The gates come about there.
    fn works_in_saved(&self) -> bool {
        true
    }

    /// cuDNN's, and the lengths of the sequences; backward also room for the gradient of what arrives. What the own kernels work with is
    /// less.
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

    /// cuDNN's, its weights in one piece, and backward their gradients.
    fn workspace_once(&self, work: Work) -> u64 {
        let copies = match work {
            Work::Training | Work::Inference => 1,
            Work::Gradient(_) => 2,
        };
        self.temporary()[1].saturating_add(self.weights().saturating_mul(copies))
    }

    fn macs(&self) -> u64 {
        let recurrence = self.recurrence();
        product(&[self.steps, recurrence.width(), self.in_features]).saturating_add(recurrence.macs())
    }

    /// The assertions are those of the two that it stands for.
    fn edges(&self, _inputs: &[Shape]) -> Vec<Edge> {
        Vec::new()
    }
}
