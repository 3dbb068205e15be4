//! The axis of a value's channels, which layers before it may have moved.

use super::builder::{Builder, Value};
use crate::graph::{Graph, NodeId, Source};
use crate::program::Op;
use crate::program::ops::Permute;
use crate::shape::{Shape, product};
use alloc::vec::Vec;

/// A layer's effect on the axes of a value.
enum Move {
    /// The elements do not move in memory.
    View {
        from: Shape,
        to: Shape,
    },
    Permute(Permute),
}

impl Move {
    /// Returns the position of an axis after the move. `None` if it is no longer an axis by itself, or has length 1 and could be any.
    fn apply(&self, axis: usize) -> Option<usize> {
        match self {
            Move::Permute(permute) => permute.order.iter().position(|&from| from == axis as u64),
            Move::View { from, to } => {
                let (length, before) = (from.dims()[axis], product(&from.dims()[..axis]));
                let is_it =
                    |&axis: &usize| to.dims()[axis] == length && product(&to.dims()[..axis]) == before && length > 1;
                (0..to.rank()).find(is_it)
            }
        }
    }
}

impl Builder<'_> {
    /// Returns the axis of the channels of `x`, derived from the layers before it. That is the first axis of outputs of convolutions and
    /// batch norms and of an input `[C, H, W]`, and the last axis of rows; later moves of axes are followed. `None` if it cannot be
    /// derived.
    pub(super) fn channel_axis(&self, x: Value) -> Option<usize> {
        let mut moves = Vec::new();
        let axis = origin(self.graph(), x.node, &mut moves)?;
        moves.iter().rev().try_fold(axis, |axis, it| it.apply(axis))
    }
}

/// Returns the channel axis of the value that `node` is derived from. Appends all `moves` since then, the last one first.
fn origin(graph: &Graph, mut node: NodeId, moves: &mut Vec<Move>) -> Option<usize> {
    loop {
        let value = graph.value(node);
        let rank = value.shape.rank();
        let is_alike = |input: &&NodeId| {
            let input = graph.value(**input);
            input.batched && input.shape.rank() == rank
        };
        // Three axes could have any meaning. With fewer or more, the last one has the features.
        let features = if rank == 3 { None } else { rank.checked_sub(1) };
        node = match &graph.nodes[node].source {
            Source::View(input) => {
                let from = graph.value(*input).shape;
                if from != value.shape {
                    moves.push(Move::View { from, to: value.shape });
                }
                *input
            }
            Source::Op { op, inputs, .. } => match op {
                Op::Convolution(_)
                | Op::Convolution3d(_)
                | Op::BatchNorm(_)
                | Op::InplaceNorm(_)
                | Op::Standardize(_) => {
                    return Some(0);
                }
                Op::Permute(permute) => {
                    moves.push(Move::Permute(permute.clone()));
                    *inputs.first()?
                }
                Op::MatMul(_) | Op::Attention(_) => return features,
                _ => match inputs.iter().find(is_alike) {
                    Some(input) => *input,
                    None => return features,
                },
            },
            Source::Input if rank == 3 => return Some(0),
            Source::Input | Source::Parameter(_) => return rank.checked_sub(1),
        };
    }
}
