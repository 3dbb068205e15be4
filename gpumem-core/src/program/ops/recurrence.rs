use super::CachedRecurrence;
use crate::number::Role;
use crate::program::encoding::{record, wire_enum};
use crate::program::op::{Edge, Gradient, Op, Reads, Rule, Saved, Sequence, Work, Workspace};
use crate::shape::{Shape, product};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// What a step makes of what arrives and of the step before: PyTorch's cells.
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
    /// Gates of each hidden unit.
    pub fn gates(self) -> u64 {
        match self {
            Cell::Lstm => 4,
            Cell::Gru => 3,
            Cell::Tanh | Cell::Relu => 1,
        }
    }

    /// Whether there is one gate alone, which is the output.
    pub fn is_plain(self) -> bool {
        self.gates() == 1
    }
}

record! {
    /// A recurrent layer behind the map of what arrives: each step's gates are `p + s` with `s = W h + b`, where h is the output of the step
    /// before, 0 before the first one. A second direction goes from the last step to the first.
    ///
    /// * An LSTM's steps may put out fewer numbers than they have units: `h = W_r (o * tanh(c))`.
    /// * Inputs, for each direction: the mapped input p `[T, gates * H]`, W `[gates * H, outputs]` and, with `bias`, b `[gates * H]`; where
    ///   there are fewer outputs than units, W_r `[outputs, H]`. Output `[T, directions * outputs]`, the directions side by side.
    /// * Saves the gates after their functions, in place of p where nothing else needs that. A plain cell's one gate is the output.
    /// * The gradient reads y, W, W_r, and of LSTM and GRU the gates; of GRU also b. The gradient of p takes the place of the gates, or
    ///   of dy where a plain cell has one direction. What else it needs is computed again: an LSTM's c from the gates, step by step, and
    ///   what W_r multiplies from both; a GRU's `s_n` from y and W.
    pub struct Recurrence {
        /// What a step computes.
        pub cell: Cell,
        /// Steps of the sequence.
        pub steps: u64,
        /// Hidden units.
        pub hidden: u64,
        /// Numbers that a step puts out and the next one goes on from: as many as hidden units, or fewer.
        pub outputs: u64,
        /// 1, or 2 where another one goes backwards.
        pub directions: u64,
        /// Whether there is a b.
        pub bias: bool,
        /// Whether the network asks for cuDNN: in training it is then one with the maps in front of it, a
        /// [`WholeRecurrence`](super::WholeRecurrence).
        pub cudnn: bool,
    }
}

impl Recurrence {
    /// Whether it has units and outputs that its cell can have, and one direction or two.
    pub fn is_sound(&self) -> bool {
        let has_outputs = match self.cell {
            Cell::Lstm => self.outputs > 0 && self.outputs <= self.hidden,
            Cell::Gru | Cell::Tanh | Cell::Relu => self.outputs == self.hidden,
        };
        self.hidden > 0 && has_outputs && self.steps > 0 && (self.directions == 1 || self.directions == 2)
    }

    /// Whether its units are mapped to fewer outputs.
    pub fn is_projected(&self) -> bool {
        self.outputs < self.hidden
    }

    /// Gates of a step, over all units.
    pub fn width(&self) -> u64 {
        self.cell.gates().saturating_mul(self.hidden)
    }

    /// Inputs of one direction.
    pub fn inputs(&self) -> u8 {
        self.projection() + u8::from(self.is_projected())
    }

    /// Which of a direction's inputs is W_r, if there is one.
    pub fn projection(&self) -> u8 {
        2 + u8::from(self.bias)
    }

    /// The number of a direction's first input: p, which W, b and W_r follow.
    pub fn first_input(&self, direction: u8) -> u8 {
        direction.saturating_mul(self.inputs())
    }

    /// The directions, by their numbers.
    fn all_directions(&self) -> core::ops::Range<u8> {
        0..self.directions.min(2) as u8
    }
}

impl Rule for Recurrence {
    const NAME: &'static str = "Recurrence";

    fn output(&self) -> Shape {
        Shape::new(&[self.steps, self.directions.saturating_mul(self.outputs)])
    }

    /// All at once: the gradients of the weights are sums over what the walk through the steps makes.
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

    fn saved(&self) -> Vec<Saved> {
        let gates = |direction| Saved {
            shape: Shape::new(&[self.steps, self.width()]),
            batched: true,
            role: Role::Activation,
            over: Some(self.first_input(direction)),
        };
        if self.cell.is_plain() { Vec::new() } else { self.all_directions().map(gates).collect() }
    }

    /// Forward an LSTM's c of one step, and what W_r multiplies. Backward, for each unit and step, an LSTM's c, and then what W_r
    /// multiplies, or what of a GRU's gates the gradients of `W_n` and `b_n` are made of; and what a step hands to the one before beside
    /// the gates' gradients. With W_r also the gradients of all outputs.
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

    /// A plain cell's gates become the output, and the gradient of the output that of the gates.
    fn in_place(&self) -> bool {
        self.cell.is_plain() && self.directions == 1
    }

    /// The product with the step before, and that with W_r. That with the input is another operation.
    fn macs(&self) -> u64 {
        let projected = if self.is_projected() { self.hidden } else { 0 };
        product(&[self.directions, self.steps, self.width().saturating_add(projected), self.outputs])
    }

    /// The mapped input goes step by step; weights are the same for all.
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
