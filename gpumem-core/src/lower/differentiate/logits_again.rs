//! Logits that are computed a second time during the backward pass: see [`chunk_logits`](crate::lower::rewrite::chunk_logits).

use crate::graph::NodeId;
use crate::lower::differentiate::builder::{Builder, LogitsAgain};
use crate::lower::options::Training;
use alloc::vec;
use alloc::vec::Vec;

impl Builder<'_> {
    /// Computes logits a second time, and from them the gradients of shared weights: those to which the backward pass of node `next` adds, or all
    /// for `None`.
    pub(super) fn logits_again(&mut self, training: Training<'_>, next: Option<NodeId>) {
        let parameters =
            |id: NodeId| self.analysis.node(id).inputs().iter().filter_map(|&it| self.analysis.parameter(it));
        let added: Vec<usize> = next.into_iter().flat_map(parameters).collect();
        if next.is_some() && added.is_empty() {
            return;
        }
        let adds = |parameter: usize| next.is_none() || added.contains(&parameter);
        let is_now = |logits: &LogitsAgain| logits.nodes.clone().flat_map(parameters).any(adds);
        let (now, later) = self.again.iter().cloned().partition(is_now);
        self.again = later;
        for LogitsAgain { nodes, value, criterion, compared, mut divisor } in now {
            let first = self.nodes.len();
            for id in nodes.clone() {
                self.node_forward(id).expect("operations of chunks work in place only if nothing forbids it");
            }
            self.term(&[vec![value]], criterion, compared, (&mut None, &mut divisor));
            let pieces = self.pieces_of(nodes.rev());
            self.waiting.extend(&pieces);
            pieces.into_iter().for_each(|piece| self.piece(training, piece));
            // They belong to the operation before which they run.
            self.nodes[first..].fill(next.unwrap_or(0));
        }
    }
}
