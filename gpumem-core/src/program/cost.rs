//! The arithmetic of an operation.

use super::{Action, Op, Operation, Pass, Slot};
use crate::program::op::Rule;
use crate::program::ops::{Cell, NormalizedConvolution, Recurrence};

/// Returns the floating-point operations of an operation: two for each multiply-accumulate, as `FlopCounterMode` counts them. Operations
/// without products have none.
pub fn flops(operation: &Operation, batch: u64) -> u64 {
    let Action::Run { op, pass } = &operation.action else { return 0 };
    let forward = op.macs().saturating_mul(2).saturating_mul(batch);
    let writes = |input: u8| u64::from(operation.written(Slot::InputGradient(input)).is_some());
    match (pass, op) {
        // The products of x with itself are computed once, and the gradient has a map of equal size. Work on sums that is done once for all
        // samples is not counted.
        (_, Op::NormalizedConvolution(op)) => {
            let map = |channels: u64| op.convolution(op.in_channels, channels, false).macs();
            let [outer, inner] = [op.out_channels, op.in_channels].map(|channels| map(channels).saturating_mul(2));
            let squares = u64::from(operation.written(Slot::Saved(NormalizedConvolution::SQUARES)).is_some());
            let of_sample = match pass {
                Pass::Backward => outer.saturating_add(outer.saturating_add(inner).saturating_mul(writes(0))),
                Pass::Forward | Pass::Again | Pass::Chunk => outer.saturating_add(inner.saturating_mul(squares)),
            };
            of_sample.saturating_mul(batch)
        }
        (Pass::Forward | Pass::Again | Pass::Chunk, _) => forward,
        // Five products in place of two: the scores a second time, and the gradients of values, weights, queries and keys.
        (Pass::Backward, Op::Attention(_)) => forward / 2 * 5,
        // The product in a GRU's `n` is recomputed: a third of all.
        (Pass::Backward, Op::Recurrence(Recurrence { cell: Cell::Gru, .. })) => {
            forward.saturating_mul(writes(0) + writes(1)).saturating_add(forward / 3)
        }
        // The products of the steps, and those of the map before them.
        (Pass::Backward, Op::WholeRecurrence(op)) => {
            let steps = op.recurrence().macs().saturating_mul(2).saturating_mul(batch);
            let again = if op.cell == Cell::Gru { steps / 3 } else { 0 };
            let map = forward.saturating_sub(steps).saturating_mul(writes(0) + writes(1));
            steps.saturating_mul(1 + writes(2)).saturating_add(again).saturating_add(map)
        }
        // One product of equal size for each input's gradient. The gradient of a bias is a sum.
        (Pass::Backward, _) => forward.saturating_mul(writes(0) + writes(1)),
    }
}
