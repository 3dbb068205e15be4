//! A draft: a program before its live ranges are known and its tensors are numbered by class.

use crate::graph::NodeId;
use crate::program::{Operation, Tensor, TensorId};
use alloc::vec;
use alloc::vec::Vec;

/// The operations of a network or of its training step, in the order in which they run. Stages after differentiation change it.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::lower) struct Draft {
    pub(in crate::lower) tensors: Vec<Tensor>,
    pub(in crate::lower) operations: Vec<Operation>,
    /// The tensors that are read after the last operation.
    pub(in crate::lower) results: Vec<TensorId>,
    pub(in crate::lower) input_gradients: Vec<TensorId>,
    /// For each operation, the node whose value it computes or whose gradient it propagates.
    pub(in crate::lower) nodes: Vec<NodeId>,
    /// Normalisations of the forward pass that read their input from a concatenation if they run again.
    pub(in crate::lower) prefixes: Vec<ConcatPrefix>,
}

/// An input that is stored as the first channels of a concatenation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::lower) struct ConcatPrefix {
    /// The forward operation that reads the input.
    pub(in crate::lower) operation: u32,
    /// The concatenation.
    pub(in crate::lower) tensor: TensorId,
}

impl Draft {
    /// Sorts tensors by `key`, and returns the number that each has then.
    pub(in crate::lower) fn sort_tensors<K: Ord>(&mut self, key: impl Fn(TensorId) -> K) -> Vec<TensorId> {
        let mut order: Vec<TensorId> = (0..self.tensors.len() as TensorId).collect();
        order.sort_by_key(|&id| key(id));
        let mut numbers = vec![0; order.len()];
        (0..).zip(&order).for_each(|(number, &id)| numbers[id as usize] = number);
        self.tensors = order.iter().map(|&id| self.tensors[id as usize].clone()).collect();
        self.renumber(&numbers);
        numbers
    }

    /// Gives tensors the numbers that `numbers` has for them.
    pub(in crate::lower) fn renumber(&mut self, numbers: &[TensorId]) {
        for operand in self.operations.iter_mut().flat_map(|it| it.reads.iter_mut().chain(&mut it.writes)) {
            operand.tensor = numbers[operand.tensor as usize];
        }
        let prefixes = self.prefixes.iter_mut().map(|prefix| &mut prefix.tensor);
        for id in self.results.iter_mut().chain(&mut self.input_gradients).chain(prefixes) {
            *id = numbers[*id as usize];
        }
    }
}
