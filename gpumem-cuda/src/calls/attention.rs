//! Attention as data: what cuDNN is asked for, in its own terms.

use super::launch::Argument;
use super::product::{Element, Scratch};
use std::fmt;

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// The output.
    Forward,
    /// The gradients of queries, keys and values, from that of the output.
    Backward {
        /// The gradient of the output, as the output lies.
        dy: Argument,
        /// The gradients, as queries, keys and values lie.
        dx: Argument,
    },
}

/// Causal scaled dot-product attention, or its gradient: in each head `softmax(q k^T / sqrt(width)) v`, where a step sees itself and
/// the steps before it. Nothing is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attention {
    /// What is computed.
    pub pass: Pass,
    /// Samples.
    pub batch: u64,
    /// Heads of the queries.
    pub heads: u64,
    /// Heads of the keys, and of the values: a divisor of `heads`.
    pub kv_heads: u64,
    /// Steps of a sequence.
    pub steps: u64,
    /// Elements of a head.
    pub width: u64,
    /// Queries, keys and values of a step side by side: `[batch, steps, (heads + 2 * kv_heads) * width]`.
    pub x: Argument,
    /// The output: `[batch, steps, heads * width]`.
    pub y: Argument,
    /// The logarithm of each softmax's denominator, in f32: `[batch, heads, steps]`. A forward pass writes it where there is room for it.
    pub logs: Option<Argument>,
    /// Number format of all tensors but `logs`, of 16 bits. Sums are f32.
    pub element: Element,
    /// Scratch memory, if there is any.
    pub workspace: Option<Scratch>,
}

impl Attention {
    /// What queries times keys are multiplied with.
    pub fn scale(&self) -> f32 {
        (1.0 / (self.width as f64).sqrt()) as f32
    }

    /// Elements from one step to the next in `x`.
    pub fn row(&self) -> u64 {
        self.heads.saturating_add(self.kv_heads.saturating_mul(2)).saturating_mul(self.width)
    }

    /// Elements before the first query, key and value of a step.
    pub fn parts(&self) -> [u64; 3] {
        let [queries, keys] = [self.heads, self.kv_heads].map(|heads| heads.saturating_mul(self.width));
        [0, queries, queries.saturating_add(keys)]
    }

    /// The same attention of any tensors: what the choice of an engine depends on.
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

    /// Sizes that are all different.
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
