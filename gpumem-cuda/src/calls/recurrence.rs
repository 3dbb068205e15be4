//! Recurrent layers as data: what cuDNN is asked for, in its own terms.

use super::launch::Argument;
use super::product::{Element, Scratch};
use gpumem_core::program::ops::{Cell, WholeRecurrence};
use std::fmt;

/// A gradient of a weight or a bias, and whether it is added to what is there.
pub type Sum = (Argument, bool);

/// What there is of each direction's weights: those of the map and of the steps, `[gates * hidden, in_features]` and
/// `[gates * hidden, outputs]`, their biases, and the projection `[outputs, hidden]`.
pub type Each<T> = [[Option<T>; 5]; 2];

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// The output, in training.
    Forward,
    /// The gradients, from that of the output.
    Backward {
        /// The gradient of the output, as the output lies.
        dy: Argument,
        /// The gradient of what arrives; `None` for one that nobody wants, or that is added to another: it is at the start of the workspace
        /// then.
        dx: Option<Argument>,
        /// Those of the weights, as [`Recurrence::weights`] has them, that are wanted.
        sums: Each<Sum>,
    },
}

/// A recurrent layer with the maps of what arrives, or its gradients. The states before the first step are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Recurrence {
    /// What is computed.
    pub pass: Pass,
    /// What a step computes.
    pub cell: Cell,
    /// Samples.
    pub batch: u64,
    /// Steps of each.
    pub steps: u64,
    /// Numbers of a step that arrives.
    pub in_features: u64,
    /// Hidden units.
    pub hidden: u64,
    /// Numbers that a step of a direction puts out.
    pub outputs: u64,
    /// 1, or 2 where another one goes backwards.
    pub directions: u64,
    /// What arrives: `[batch, steps, in_features]`.
    pub x: Argument,
    /// The output: `[batch, steps, directions * outputs]`.
    pub y: Argument,
    /// The weights.
    pub weights: Each<Argument>,
    /// What the forward pass keeps for the gradients.
    pub reserve: Scratch,
    /// Scratch memory.
    pub workspace: Scratch,
    /// Number format of all tensors.
    pub element: Element,
    /// Whether factors of f32 may be rounded to TensorFloat-32.
    pub tf32: bool,
}

/// Where everything begins in the workspace, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The lengths of the sequences. In front of them is the gradient of what arrives where that has no tensor.
    pub lengths: u64,
    /// Weights and biases in one piece.
    pub weights: u64,
    /// Their gradients.
    pub sums: u64,
    /// What cuDNN works with.
    pub rest: u64,
}

/// Bytes that each part begins at a multiple of.
const ALIGNMENT: u64 = 256;

impl Recurrence {
    /// The layer of any tensors, in whatever memory: what its passes have in common.
    pub(crate) fn of_any(self) -> Recurrence {
        let none = Scratch { tensor: 0, bytes: 0 };
        let weights = self.weights.map(|direction| direction.map(|weight| weight.map(|_| 0)));
        Recurrence { pass: Pass::Forward, x: 0, y: 0, weights, reserve: none, workspace: none, ..self }
    }

    /// As the plan counts it.
    fn op(&self) -> WholeRecurrence {
        let Recurrence { cell, steps, in_features, hidden, outputs, directions, .. } = *self;
        WholeRecurrence { cell, steps, in_features, hidden, outputs, directions, bias: self.has_bias() }
    }

    /// Whether there are biases.
    pub fn has_bias(&self) -> bool {
        self.weights[0][2].is_some()
    }

    /// Bytes of the weights and biases in one piece, as cuDNN has them.
    pub fn weight_bytes(&self) -> u64 {
        self.op().weights().saturating_mul(self.element.bytes())
    }

    /// Where the parts of the workspace begin.
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

    /// Bytes from one gate of a weight or a bias to the next: of the map's and the steps' weight, and of a bias. The bytes of a projection
    /// are those of the steps' weight.
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

    /// Sizes that are all different.
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
        // Of each direction 44 rows of 5, of 4, two biases, and the projection.
        let wide = Recurrence { directions: 2, outputs: 4, ..it };
        assert_eq!((wide.weight_bytes(), wide.gate_bytes()), (4 * 2 * (44 * 11 + 44), [4 * 55, 4 * 44, 44]));
    }
}
