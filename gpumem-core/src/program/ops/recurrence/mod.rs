mod cached;
mod whole;

pub use cached::CachedRecurrence;
pub use whole::WholeRecurrence;

use crate::number::Role;
use crate::program::encoding::{record, wire_enum};
use crate::program::op::{Edge, Gradient, Op, Reads, Rule, Saved, Sequence, Work, Workspace};
use crate::shape::{Shape, product};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// The cell of a recurrent layer, as PyTorch defines it. `p` is the mapped input, `s` comes from the time step before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Cell {
    /// Gates i, f, g and o: `c = f * c + i * g`, `h = o * tanh(c)`.
    Lstm,
    /// Gates r, z and n: `n = tanh(p_n + r * s_n)`, `h = (1 - z) * n + z * h`.
    Gru,
    /// `h = tanh(p + s)`.
    Tanh,
    /// `h = relu(p + s)`.
    Relu,
}
wire_enum!(Cell { Lstm, Gru, Tanh, Relu });

impl Cell {
    /// Returns the number of gates of each hidden unit.
    pub fn gates(self) -> u64 {
        match self {
            Cell::Lstm => 4,
            Cell::Gru => 3,
            Cell::Tanh | Cell::Relu => 1,
        }
    }

    /// True if there is only one gate, which is the output.
    pub fn is_plain(self) -> bool {
        self.gates() == 1
    }
}

record! {
    /// A recurrent layer after the linear map of its input. The gates of each time step are `p + s` with `s = W h + b`. Here h is the output of
    /// the time step before, and 0 before the first one. A second direction goes from the last time step to the first.
    ///
    /// * The time steps of an LSTM may have fewer outputs than units: `h = W_r (o * tanh(c))`.
    /// * Inputs, for each direction: the mapped input p `[T, gates * H]`, W `[gates * H, outputs]` and, with `bias`, b `[gates * H]`. With fewer
    ///   outputs than units also W_r `[outputs, H]`. Output: `[T, directions * outputs]`, each row with both directions.
    /// * Saves the gates after their functions, in the memory of p if nothing else needs that. A plain cell's one gate is the output.
    /// * The gradient reads y, W, W_r, and for LSTM and GRU the gates; for GRU also b. The gradient of p overwrites the gates, or dy if a plain
    ///   cell has one direction. The gradient recomputes the rest: an LSTM's c from the gates, one time step after another, and the input of
    ///   W_r from both; a GRU's `s_n` from y and W.
    pub struct Recurrence {
        /// The cell.
        pub cell: Cell,
        /// Time steps of the sequence.
        pub steps: u64,
        /// Hidden units.
        pub hidden: u64,
        /// Outputs of a time step, which the next one reads: as many as hidden units, or fewer.
        pub outputs: u64,
        /// 1, or 2 with a second direction that goes backwards.
        pub directions: u64,
        /// True if there is a bias b.
        pub bias: bool,
        /// True if the network asks for cuDNN. In training this operation and the linear maps before it are then one
        /// [`WholeRecurrence`].
        pub cudnn: bool,
    }
}

impl Recurrence {
    /// True if its cell can have these units and outputs, and there are one or two directions.
    pub fn is_sound(&self) -> bool {
        let has_outputs = match self.cell {
            Cell::Lstm => self.outputs > 0 && self.outputs <= self.hidden,
            Cell::Gru | Cell::Tanh | Cell::Relu => self.outputs == self.hidden,
        };
        self.hidden > 0 && has_outputs && self.steps > 0 && (self.directions == 1 || self.directions == 2)
    }

    /// True if its units are mapped to fewer outputs.
    pub fn is_projected(&self) -> bool {
        self.outputs < self.hidden
    }

    /// Returns the gates of a time step, over all units.
    pub fn width(&self) -> u64 {
        self.cell.gates().saturating_mul(self.hidden)
    }

    /// Returns the number of inputs of one direction.
    pub fn inputs(&self) -> u8 {
        self.projection() + u8::from(self.is_projected())
    }

    /// Returns the index of W_r among the inputs of a direction, if it is there.
    pub fn projection(&self) -> u8 {
        2 + u8::from(self.bias)
    }

    /// Returns the index of a direction's first input: p, which W, b and W_r follow.
    pub fn first_input(&self, direction: u8) -> u8 {
        direction.saturating_mul(self.inputs())
    }

    /// Returns the range of directions.
    fn all_directions(&self) -> core::ops::Range<u8> {
        0..self.directions.min(2) as u8
    }
}

impl Rule for Recurrence {
    fn output(&self) -> Shape {
        Shape::new(&[self.steps, self.directions.saturating_mul(self.outputs)])
    }

    /// Returns one rule for all: the gradients of the weights sum intermediate results of the walk through the time steps.
    fn gradients(&self) -> Vec<Gradient> {
        let mut reads = Reads { output: true, saved: !self.cell.is_plain(), ..Reads::NOTHING };
        let mut of = Vec::new();
        for first in self.all_directions().map(|direction| self.first_input(direction)) {
            let reads_it = |input: &u8| *input == 1 || *input >= self.projection() || self.cell == Cell::Gru;
            let inputs = (1..self.inputs()).filter(reads_it);
            reads.inputs = inputs.fold(reads.inputs, |all, input| all.with(first + input));
            of.extend((0..self.inputs()).map(|input| first + input));
        }
        vec![Gradient::in_place(&of.into_iter().map(|input| (input, reads)).collect::<Vec<_>>())]
    }

    /// The gradients of weights are sums over those of the gates of each direction.
    fn works_in_gradient(&self, input: u8) -> bool {
        self.all_directions().any(|direction| self.first_input(direction) == input)
    }

    fn saved(&self) -> Vec<Saved> {
        let gates = |direction| Saved {
            shape: Shape::new(&[self.steps, self.width()]),
            batched: true,
            role: Role::Activation,
            over: Some(self.first_input(direction)),
        };
        if self.cell.is_plain() { Vec::new() } else { self.all_directions().map(gates).collect() }
    }

    /// Returns memory for intermediate results. Forward: an LSTM's c of one time step, and the input of W_r. Backward, for each unit and
    /// time step: an LSTM's c, which the input of W_r then overwrites, or the part of a GRU's gates from which the gradients of `W_n` and `b_n`
    /// are computed. Also what a time step hands to the one before besides the gates' gradients, and with W_r the gradients of all outputs.
    fn workspace(&self, work: Work) -> Option<Workspace> {
        let (steps, projected) = (self.steps, self.is_projected());
        let [rows, outputs] = match (self.cell, work) {
            (Cell::Lstm, Work::Training | Work::Inference) => [1 + u64::from(projected), 0],
            (Cell::Lstm | Cell::Gru, Work::Gradient(_)) => [steps.saturating_add(1), if projected { steps } else { 0 }],
            (Cell::Gru | Cell::Tanh | Cell::Relu, _) => return None,
        };
        let shape = match outputs {
            0 => Shape::new(&[self.directions, rows, self.hidden]),
            _ => Shape::new(&[
                self.directions,
                product(&[rows, self.hidden]).saturating_add(product(&[outputs, self.outputs])),
            ]),
        };
        Some(Workspace { role: Role::Statistic, shape, batched: true })
    }

    /// True for a plain cell of one direction. Its gate becomes the output, and the output's gradient that of the gate.
    fn in_place(&self) -> bool {
        self.cell.is_plain() && self.directions == 1
    }

    /// Counts the products with the time step before and with W_r. The map of the input is another operation.
    fn macs(&self) -> u64 {
        let projected = if self.is_projected() { self.hidden } else { 0 };
        product(&[self.directions, self.steps, self.width().saturating_add(projected), self.outputs])
    }

    /// Decodes the mapped input; all time steps share the weights.
    fn stepped(&self, sequence: &Sequence<'_>) -> Result<(Op, usize), String> {
        let Recurrence { cell, hidden, outputs, directions, bias, .. } = *self;
        if directions > 1 {
            return Err("goes from the last step to the first, too, which `cache` in `INFER` does not know when it comes to a step before; \
                        leave out `bidirectional`"
                .into());
        }
        match sequence.of_first()? {
            0 => Ok((CachedRecurrence { cell, steps: sequence.chunk, hidden, outputs, bias }.into(), 0)),
            _ => Err(Sequence::refusal()),
        }
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        let Recurrence { hidden, outputs, directions, .. } = *self;
        let edge = |&input| match self.is_projected() {
            false => Edge::new("Recurrence", &[self.cell.gates(), hidden, directions], input, self.output()),
            true => Edge::new(
                "ProjectedRecurrence",
                &[self.cell.gates(), hidden, outputs, directions],
                input,
                self.output(),
            ),
        };
        inputs.iter().step_by(usize::from(self.inputs())).map(edge).collect()
    }
}
