use super::CachedRecurrence;
use crate::number::Role;
use crate::program::encoding::{record, wire_enum};
use crate::program::op::{Edge, Gradient, Op, Reads, Rule, Saved, Sequence, Work, Workspace};
use crate::shape::{Shape, product};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// What a step makes of what arrives and of the step before: PyTorch's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// * Inputs, for each direction: the mapped input p `[T, gates * H]`, W `[gates * H, H]` and, with `bias`, b `[gates * H]`. Output
    ///   `[T, directions * H]`, the directions side by side.
    /// * Saves the gates after their functions, in place of p where nothing else needs that. A plain cell's one gate is the output.
    /// * The gradient reads y, W, and of LSTM and GRU the gates; of GRU also b. The gradient of p takes the place of the gates, or
    ///   of dy where a plain cell has one direction. What else it needs is computed again: an LSTM's c from the gates, step by step;
    ///   a GRU's `s_n` from y and W.
    pub struct Recurrence {
        /// What a step computes.
        pub cell: Cell,
        /// Steps of the sequence.
        pub steps: u64,
        /// Hidden units.
        pub hidden: u64,
        /// 1, or 2 where another one goes backwards.
        pub directions: u64,
        /// Whether there is a b.
        pub bias: bool,
    }
}

impl Recurrence {
    /// Whether it has units, and one direction or two.
    pub fn is_sound(&self) -> bool {
        self.hidden > 0 && self.steps > 0 && (self.directions == 1 || self.directions == 2)
    }

    /// Gates of a step, over all units.
    pub fn width(&self) -> u64 {
        self.cell.gates().saturating_mul(self.hidden)
    }

    /// Inputs of one direction.
    pub fn inputs(&self) -> u8 {
        2 + u8::from(self.bias)
    }

    /// The number of a direction's first input: p, which W and b follow.
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
        Shape::new(&[self.steps, self.directions.saturating_mul(self.hidden)])
    }

    /// All at once: the gradients of the weights are sums over what the walk through the steps makes.
    fn gradients(&self) -> Vec<Gradient> {
        let mut reads = Reads { output: true, saved: !self.cell.is_plain(), ..Reads::NOTHING };
        let mut of = Vec::new();
        for first in self.all_directions().map(|direction| self.first_input(direction)) {
            let inputs: &[u8] = if self.bias && self.cell == Cell::Gru { &[1, 2] } else { &[1] };
            reads.inputs = inputs.iter().fold(reads.inputs, |all, input| all.with(first + input));
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

    /// Forward an LSTM's c of one step. Backward, for each unit and step, an LSTM's c, or what of a GRU's gates the gradients of `W_n`
    /// and `b_n` are made of; and what a step hands to the one before beside the gates' gradients.
    fn workspace(&self, work: Work) -> Option<Workspace> {
        let steps = match (self.cell, work) {
            (Cell::Lstm, Work::Training | Work::Inference) => 1,
            (Cell::Lstm | Cell::Gru, Work::Gradient(_)) => self.steps.saturating_add(1),
            (Cell::Gru | Cell::Tanh | Cell::Relu, _) => return None,
        };
        let shape = Shape::new(&[self.directions, steps, self.hidden]);
        Some(Workspace { role: Role::Statistic, shape, batched: true })
    }

    /// A plain cell's gates become the output, and the gradient of the output that of the gates.
    fn in_place(&self) -> bool {
        self.cell.is_plain() && self.directions == 1
    }

    /// The product with the step before. That with the input is another operation.
    fn macs(&self) -> u64 {
        product(&[self.directions, self.steps, self.width(), self.hidden])
    }

    /// The mapped input goes step by step; weights are the same for all.
    fn stepped(&self, sequence: &Sequence<'_>) -> Result<(Op, usize), String> {
        let Recurrence { cell, hidden, directions, bias, .. } = *self;
        if directions > 1 {
            return Err("goes from the last step to the first, too, which `cache` in `INFER` does not know when it comes to a step before; \
                        leave out `bidirectional`"
                .into());
        }
        match sequence.of_first()? {
            0 => Ok((CachedRecurrence { cell, steps: sequence.chunk, hidden, bias }.into(), 0)),
            _ => Err(Sequence::refusal()),
        }
    }

    fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
        let numbers = [self.cell.gates(), self.hidden, self.directions];
        let mapped = inputs.iter().step_by(usize::from(self.inputs()));
        mapped.map(|&input| Edge::new("Recurrence", &numbers, input, self.output())).collect()
    }
}
