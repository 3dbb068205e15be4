//! Recurrent layers as data, in cuDNN's terms.

use super::launch::Argument;
use super::product::{Element, Scratch};
use gpumem_core::program::ops::{Cell, WholeRecurrence};
use std::fmt;

/// The gradient of a weight or bias, and true if it is added to its tensor.
pub type Sum = (Argument, bool);

/// A value for each weight of each direction: input weight `[gates * hidden, in_features]`, recurrent weight `[gates * hidden, outputs]`, their two
/// biases, and the projection `[outputs, hidden]`. `None` for a weight that the layer lacks.
pub type Each<T> = [[Option<T>; 5]; 2];

/// The forward or the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// Computes the output, in training.
    Forward,
    /// Computes the gradients from the gradient of the output.
    Backward {
        /// The gradient of the output, in the layout of `y`.
        dy: Argument,
        /// The gradient of the input. `None` if it is not wanted, or if it is added to another gradient; in that case it is at the start of the
        /// workspace.
        dx: Option<Argument>,
        /// The wanted gradients of the weights, in the order of [`Recurrence::weights`].
        sums: Each<Sum>,
    },
}

/// A recurrent layer including its input weights, or the gradients of one. The initial states are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Recurrence {
    /// The pass.
    pub pass: Pass,
    /// The recurrent cell.
    pub cell: Cell,
    /// Number of samples.
    pub batch: u64,
    /// Time steps of a sequence.
    pub steps: u64,
    /// Features of a time step of the input.
    pub in_features: u64,
    /// Hidden units.
    pub hidden: u64,
    /// Features that a direction outputs at each time step.
    pub outputs: u64,
    /// 1, or 2 if a second direction runs backwards.
    pub directions: u64,
    /// The input: `[batch, steps, in_features]`.
    pub x: Argument,
    /// The output: `[batch, steps, directions * outputs]`.
    pub y: Argument,
    /// The weights.
    pub weights: Each<Argument>,
    /// The memory in which the forward pass saves values for the backward pass.
    pub reserve: Scratch,
    /// Scratch memory.
    pub workspace: Scratch,
    /// Number format of all tensors.
    pub element: Element,
    /// True if factors of f32 may be rounded to TensorFloat-32.
    pub tf32: bool,
}

/// Offsets of the workspace's parts, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The lengths of the sequences. Below them is the gradient of the input, if that has no tensor.
    pub lengths: u64,
    /// Weights and biases in one buffer.
    pub weights: u64,
    /// Gradients of weights and biases, in one buffer.
    pub sums: u64,
    /// Scratch memory of cuDNN.
    pub rest: u64,
}

/// Alignment of each part, in bytes.
const ALIGNMENT: u64 = 256;

impl Recurrence {
    /// Returns the forward pass of this layer with all tensor numbers and scratch sizes set to 0: the key that its passes share.
    pub(crate) fn of_any(self) -> Recurrence {
        let none = Scratch { tensor: 0, bytes: 0 };
        let weights = self.weights.map(|direction| direction.map(|weight| weight.map(|_| 0)));
        Recurrence { pass: Pass::Forward, x: 0, y: 0, weights, reserve: none, workspace: none, ..self }
    }

    /// Returns the operation that the memory plan counts.
    fn op(&self) -> WholeRecurrence {
        let Recurrence { cell, steps, in_features, hidden, outputs, directions, .. } = *self;
        WholeRecurrence { cell, steps, in_features, hidden, outputs, directions, bias: self.has_bias() }
    }

    /// True if the layer has biases.
    pub fn has_bias(&self) -> bool {
        self.weights[0][2].is_some()
    }

    /// Returns the bytes of the weights and biases in cuDNN's single buffer.
    pub fn weight_bytes(&self) -> u64 {
        self.op().weights().saturating_mul(self.element.bytes())
    }

    /// Returns the offsets of the workspace's parts.
    pub fn parts(&self) -> Parts {
        let is_backward = self.pass != Pass::Forward;
        let after = |start: u64, bytes: u64| start.saturating_add(bytes).div_ceil(ALIGNMENT).saturating_mul(ALIGNMENT);
        let arriving = [self.batch, self.steps, self.in_features, self.element.bytes()];
        let arriving = if is_backward { arriving.into_iter().fold(1, u64::saturating_mul) } else { 0 };
        let lengths = after(0, arriving);
        let weights = after(lengths, self.batch.saturating_mul(4));
        let sums = after(weights, self.weight_bytes());
        let rest = if is_backward { after(sums, self.weight_bytes()) } else { sums };
        Parts { lengths, weights, sums, rest }
    }

    /// Returns the bytes from one gate to the next in the input weight, the recurrent weight and a bias. A projection has as many bytes as one gate
    /// of the recurrent weight.
    pub fn gate_bytes(&self) -> [u64; 3] {
        [self.in_features, self.outputs, 1]
            .map(|row| row.saturating_mul(self.hidden).saturating_mul(self.element.bytes()))
    }
}

impl fmt::Display for Recurrence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Recurrence { cell, batch, steps, in_features, hidden, outputs, element, workspace, .. } = self;
        let pass = if self.pass == Pass::Forward { "recurrence" } else { "gradient of the recurrence" };
        let cell = if self.directions == 2 { format!("{cell:?} in both directions") } else { format!("{cell:?}") };
        write!(f, "{pass} {cell} of {batch}x{steps} steps, {in_features} to {hidden}")?;
        if outputs < hidden {
            write!(f, " and {outputs}")?;
        }
        write!(f, " in {element:?}, workspace of {} bytes", workspace.bytes)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns an example whose sizes all differ.
    pub(crate) fn example(pass: Pass) -> Recurrence {
        Recurrence {
            pass,
            cell: Cell::Lstm,
            batch: 3,
            steps: 7,
            in_features: 5,
            hidden: 11,
            outputs: 11,
            directions: 1,
            x: 1,
            y: 2,
            weights: [[Some(3), Some(4), Some(5), Some(6), None], [None; 5]],
            reserve: Scratch { tensor: 7, bytes: 1 << 20 },
            workspace: Scratch { tensor: 8, bytes: 64 << 20 },
            element: Element::F32,
            tf32: false,
        }
    }

    #[test]
    fn a_recurrence_says_what_it_is() {
        assert_eq!(
            example(Pass::Forward).to_string(),
            "recurrence Lstm of 3x7 steps, 5 to 11 in F32, workspace of 67108864 bytes"
        );
        let backward = example(Pass::Backward { dy: 9, dx: None, sums: [[None; 5]; 2] });
        assert!(backward.to_string().starts_with("gradient of the recurrence Lstm of 3x7"), "{backward}");
        let wide = Recurrence { directions: 2, outputs: 4, ..example(Pass::Forward) };
        let start = "recurrence Lstm in both directions of 3x7 steps, 5 to 11 and 4 in F32";
        assert!(wide.to_string().starts_with(start), "{wide}");
    }

    #[test]
    fn parts_follow_each_other() {
        let it = example(Pass::Forward);
        // 44 rows of 5, of 11, and two biases.
        assert_eq!((it.weight_bytes(), it.gate_bytes()), (4 * 44 * 18, [4 * 55, 4 * 121, 44]));
        assert_eq!(it.parts(), Parts { lengths: 0, weights: 256, sums: 3584, rest: 3584 });
        let backward = example(Pass::Backward { dy: 9, dx: None, sums: [[None; 5]; 2] });
        assert_eq!(backward.parts(), Parts { lengths: 512, weights: 768, sums: 4096, rest: 7424 });
        let bare = Recurrence { weights: [[Some(3), Some(4), None, None, None], [None; 5]], ..it };
        assert_eq!(bare.weight_bytes(), 4 * 44 * 16);
        // Each direction has 44 rows of 5 and of 4, two biases, and the projection.
        let wide = Recurrence { directions: 2, outputs: 4, ..it };
        assert_eq!((wide.weight_bytes(), wide.gate_bytes()), (4 * 2 * (44 * 11 + 44), [4 * 55, 4 * 44, 44]));
    }
}
