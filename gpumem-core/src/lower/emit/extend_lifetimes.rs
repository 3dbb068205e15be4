//! Tensors that live for one operation longer, so that a backend can run a fusion group as one.
//!
//! The backward pass of an activation propagates a gradient to that of a normalisation or a pooling, and one pass over memory could compute both.
//! But the tensors that the first one reads die with it, and a packing likes to put the output of the second one into their memory. Most of a
//! step needs much less memory than its peak: there, these tensors live one operation longer.

use crate::lower::emit::batch_updates::{AvailableBytes, may_live};
use crate::lower::liveness::{LiveRange, ranges};
use crate::program::fusion::{Group, GroupKind, groups};
use crate::program::{Class, Operand, Operation, Slot, Tensor, TensorId};
use alloc::vec::Vec;

/// Returns the tensors that the first operation of a group reads, and that die with it.
fn dying(operations: &[Operation], tensors: &[Tensor], lives: &[Option<LiveRange>], group: Group) -> Vec<TensorId> {
    let first = &operations[group.first];
    let dies = |id: &TensorId| {
        let is_transient = tensors[*id as usize].class == Class::Transient;
        is_transient && lives[*id as usize].is_some_and(|[_, last]| last == group.first)
    };
    [Slot::Gradient, Slot::Output].into_iter().filter_map(|slot| first.read(slot)).filter(dies).collect()
}

/// Lets the tensors of [`dying`] live until the end of their group, where no peak rises.
pub(in crate::lower) fn hold(mut operations: Vec<Operation>, tensors: &[Tensor]) -> Vec<Operation> {
    let lives = ranges(&operations, tensors.len(), []);
    let is_pair = |group: &Group| matches!(group.kind, GroupKind::BatchNormGradient | GroupKind::MaxPoolGradient);
    let pairs = groups(&operations).into_iter().filter(is_pair);
    let pairs = pairs.map(|group| (group.last(), dying(&operations, tensors, &lives, group)));
    let pairs: Vec<(usize, Vec<TensorId>)> = pairs.filter(|(_, dying)| !dying.is_empty()).collect();
    if pairs.is_empty() {
        return operations;
    }
    let rooms = AvailableBytes::of_all(&operations, tensors);
    for (last, dying) in pairs {
        let all: Vec<&Tensor> = dying.iter().map(|&id| &tensors[id as usize]).collect();
        if may_live(&rooms, last, &all) {
            let operands = (0..).zip(dying).map(|(index, tensor)| Operand { slot: Slot::GroupInput(index), tensor });
            operations[last].reads.extend(operands);
        }
    }
    operations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Graph, Type};
    use crate::layers::arguments::Argument;
    use crate::layers::{Built, Entry, Written};
    use crate::lower::{Options, Term, Training, lower};
    use crate::program::{Op, Program};
    use crate::shape::Shape;
    use crate::train::Update;
    use alloc::string::String;

    /// Returns a training step of layers, each with its numeric arguments.
    fn step(layers: &[(&str, &[u64])]) -> Program {
        let mut graph = Graph::default();
        let mut value = graph.input(Type::numbers(Shape::new(&[3, 32, 32]))).unwrap();
        for (name, numbers) in layers {
            let written = numbers.iter().map(|&number| Written::positional(Argument::Integer(number)));
            let written: Vec<Written> = written.collect();
            let built = graph.layer(&Entry::find(name).unwrap(), &written, &[value], String::new(), None);
            let Built { value: next, .. } = built;
            value = next.unwrap();
        }
        let loss = &[Term::MSE];
        let training = Training {
            loss,
            moments: 1,
            update: Update::Fused,
            skips_overflow: false,
            input_gradient: false,
            descent: crate::train::Descent::PLAIN,
        };
        lower(&graph, &[value], &Options { training: Some(training) }).unwrap()
    }

    /// Returns the operations that hold tensors longer: true for those of a batch norm, and the number of tensors.
    fn held(program: &Program) -> Vec<(bool, usize)> {
        let is_held = |operand: &&Operand| matches!(operand.slot, Slot::GroupInput(_));
        let count = |operation: &Operation| operation.reads.iter().filter(is_held).count();
        let holding = program.operations.iter().filter(|operation| count(operation) > 0);
        holding.map(|operation| (matches!(operation.backward(), Some(Op::BatchNorm(_))), count(operation))).collect()
    }

    #[test]
    fn what_an_activation_reads_is_held_where_a_step_needs_little() {
        // The second normalisation is far from the peak, which the wide maps of the third convolution make.
        let program = step(&[
            ("Conv2d", &[4, 3]),
            ("Conv2d", &[8, 3]),
            ("BatchNorm2d", &[]),
            ("Sigmoid", &[]),
            ("Conv2d", &[64, 3]),
            ("Tanh", &[]),
            ("Conv2d", &[64, 3]),
            ("MaxPool2d", &[8]),
        ]);
        assert_eq!(held(&program), [(true, 1)]);
        let decoded = Program::decode(&program.encode()).unwrap();
        assert_eq!(held(&decoded), held(&program));
    }

    #[test]
    fn what_is_nearly_full_is_left_alone() {
        let program = step(&[("Conv2d", &[8, 3]), ("BatchNorm2d", &[]), ("Sigmoid", &[]), ("Conv2d", &[1, 3])]);
        assert_eq!(held(&program), []);
    }
}
