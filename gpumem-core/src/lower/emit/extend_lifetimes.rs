//! Tensors that live for one operation longer, so that a backend can fuse that operation with the one before.
//!
//! The backward pass of an activation hands its gradient to that of a normalisation or a pooling, and one pass over memory could compute both.
//! But the tensors that the first one reads die with it, and a packing likes to put the output of the second one into their memory. Most of a
//! step needs much less memory than its peak: there, these tensors live one operation longer.

use crate::lower::emit::batch_updates::{AvailableBytes, may_live};
use crate::lower::liveness::{LiveRange, ranges};
use crate::program::{Action, Class, Op, Operand, Operation, Pass, Slot, Tensor, TensorId};
use alloc::vec::Vec;

/// True if an operation is the backward pass of an `Op` for which `is` returns true.
fn is_backward_of(operation: &Operation, is: impl Fn(&Op) -> bool) -> bool {
    matches!(&operation.action, Action::Run { op, pass: Pass::Backward } if is(op))
}

/// Returns the tensors that die at operation `at`, if the next one could be fused with it and read them.
fn read_before(operations: &[Operation], tensors: &[Tensor], lives: &[Option<LiveRange>], at: usize) -> Vec<TensorId> {
    let [first, second, ..] = &operations[at..] else { return Vec::new() };
    let between = first.written(Slot::InputGradient(0));
    let is_handed_on = !first.accumulate && between.is_some() && second.read(Slot::Gradient) == between;
    // A normalisation with running statistics may have no input from which the slope could be computed.
    let takes = |op: &Op| match op {
        Op::BatchNorm(_) => second.read(Slot::Input(0)).is_some(),
        op => matches!(op, Op::MaxPool(_)),
    };
    let is_pair = is_backward_of(first, |op| matches!(op, Op::Pointwise(_))) && is_backward_of(second, takes);
    if !is_handed_on || !is_pair {
        return Vec::new();
    }
    let dies = |id: &TensorId| {
        let is_transient = tensors[*id as usize].class == Class::Transient;
        is_transient && lives[*id as usize].is_some_and(|[_, last]| last == at)
    };
    [Slot::Gradient, Slot::Output].into_iter().filter_map(|slot| first.read(slot)).filter(dies).collect()
}

/// Lets the tensors of [`read_before`] live one operation longer, where no peak rises.
pub(in crate::lower) fn hold(mut operations: Vec<Operation>, tensors: &[Tensor]) -> Vec<Operation> {
    let lives = ranges(&operations, tensors.len(), []);
    let held =
        |at: usize| Some((at, read_before(&operations, tensors, &lives, at))).filter(|(_, held)| !held.is_empty());
    let pairs: Vec<(usize, Vec<TensorId>)> = (0..operations.len()).filter_map(held).collect();
    if pairs.is_empty() {
        return operations;
    }
    let rooms = AvailableBytes::of_all(&operations, tensors);
    for (at, held) in pairs {
        let all: Vec<&Tensor> = held.iter().map(|&id| &tensors[id as usize]).collect();
        if may_live(&rooms, at + 1, &all) {
            let operands = (0..).zip(held).map(|(index, tensor)| Operand { slot: Slot::Held(index), tensor });
            operations[at + 1].reads.extend(operands);
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
    use crate::program::Program;
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
        let is_held = |operand: &&Operand| matches!(operand.slot, Slot::Held(_));
        let count = |operation: &Operation| operation.reads.iter().filter(is_held).count();
        let holding = program.operations.iter().filter(|operation| count(operation) > 0);
        holding
            .map(|operation| (is_backward_of(operation, |op| matches!(op, Op::BatchNorm(_))), count(operation)))
            .collect()
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
