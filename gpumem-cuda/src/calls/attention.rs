//! Attention as data, in cuDNN's terms.

use super::launch::Argument;
use super::product::{Element, Scratch};
use std::fmt;

/// The forward or the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// Computes the output.
    Forward,
    /// Computes the gradients of queries, keys and values from the gradient of the output.
    Backward {
        /// The gradient of the output, in the layout of `y`.
        dy: Argument,
        /// The gradients of queries, keys and values, in the layout of `x`.
        dx: Argument,
    },
}

/// Causal scaled dot-product attention, or its gradient: in each head `softmax(q k^T / sqrt(width)) v`.
///
/// A time step attends to itself and to the time steps before it. Nothing is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attention {
    /// The pass.
    pub pass: Pass,
    /// Number of samples.
    pub batch: u64,
    /// Number of query heads.
    pub heads: u64,
    /// Number of key heads, and of value heads: a divisor of `heads`.
    pub kv_heads: u64,
    /// Time steps of a sequence.
    pub steps: u64,
    /// Elements of a head.
    pub width: u64,
    /// Queries, keys and values of each time step, in this order: `[batch, steps, (heads + 2 * kv_heads) * width]`.
    pub x: Argument,
    /// The output: `[batch, steps, heads * width]`.
    pub y: Argument,
    /// The logarithm of each softmax's denominator, in f32: `[batch, heads, steps]`. A forward pass writes it unless it is `None`.
    pub logs: Option<Argument>,
    /// Number format of all tensors but `logs`, of 16 bits. Sums are f32.
    pub element: Element,
    /// Scratch memory; `None` if there is none.
    pub workspace: Option<Scratch>,
}

impl Attention {
    /// Returns the factor of `q k^T`: `1 / sqrt(width)`.
    pub fn scale(&self) -> f32 {
        (1.0 / (self.width as f64).sqrt()) as f32
    }

    /// Returns the elements from one time step to the next in `x`.
    pub fn row(&self) -> u64 {
        self.heads.saturating_add(self.kv_heads.saturating_mul(2)).saturating_mul(self.width)
    }

    /// Returns the offsets, in elements, of queries, keys and values within a time step of `x`.
    pub fn parts(&self) -> [u64; 3] {
        let [queries, keys] = [self.heads, self.kv_heads].map(|heads| heads.saturating_mul(self.width));
        [0, queries, queries.saturating_add(keys)]
    }

    /// Returns this attention with all tensor numbers set to 0: the key by which an engine is chosen.
    pub(crate) fn of_any(self) -> Attention {
        let pass = match self.pass {
            Pass::Forward => Pass::Forward,
            Pass::Backward { .. } => Pass::Backward { dy: 0, dx: 0 },
        };
        let workspace = self.workspace.map(|workspace| Scratch { tensor: 0, ..workspace });
        Attention { pass, x: 0, y: 0, logs: self.logs.map(|_| 0), workspace, ..self }
    }
}

impl fmt::Display for Attention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Attention { batch, heads, kv_heads, steps, width, element, .. } = self;
        let pass = if self.pass == Pass::Forward { "attention" } else { "gradient of the attention" };
        write!(f, "{pass} of {batch}x{steps} steps, {heads} heads of {width}")?;
        if kv_heads != heads {
            write!(f, " with {kv_heads} of keys and values")?;
        }
        write!(f, " in {element:?}, workspace of {} bytes", self.workspace.map_or(0, |workspace| workspace.bytes))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns an example whose sizes all differ.
    pub(crate) fn example(pass: Pass) -> Attention {
        Attention {
            pass,
            batch: 2,
            heads: 6,
            kv_heads: 3,
            steps: 77,
            width: 40,
            x: 1,
            y: 2,
            logs: Some(3),
            element: Element::Bf16,
            workspace: Some(Scratch { tensor: 4, bytes: 4096 }),
        }
    }

    #[test]
    fn attention_says_what_it_is() {
        assert_eq!(
            example(Pass::Forward).to_string(),
            "attention of 2x77 steps, 6 heads of 40 with 3 of keys and values in Bf16, workspace of 4096 bytes"
        );
        let alike = Attention { kv_heads: 6, workspace: None, ..example(Pass::Backward { dy: 5, dx: 6 }) };
        assert_eq!(
            alike.to_string(),
            "gradient of the attention of 2x77 steps, 6 heads of 40 in Bf16, workspace of 0 bytes"
        );
    }

    #[test]
    fn queries_keys_and_values_lie_side_by_side() {
        let it = example(Pass::Forward);
        assert_eq!((it.row(), it.parts()), (480, [0, 240, 360]));
    }
}
