//! The last stage of lowering: tensors are sorted by class, and live ranges read off the operations.

use crate::graph::{Graph, Source};
use crate::lower::differentiate::builder::Builder;
use crate::lower::draft::Draft;
use crate::lower::emit::{averages, batch_updates, extend_lifetimes, guard, micro_batches, pad_logits};
use crate::lower::options::Training;
use crate::lower::schedule::offload;
use crate::program::{Class, Program, TensorId};
use crate::train::Descent;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

/// The order of tensors in a program, by class.
const ORDER: [Class; 11] = [
    Class::Parameter,
    Class::Gradient,
    Class::Moment,
    Class::Average,
    Class::Buffer,
    Class::State,
    Class::Cache,
    Class::Input,
    Class::Target,
    Class::Host,
    Class::Transient,
];

impl Builder<'_> {
    /// Returns the draft that was built, before its updates are gathered.
    pub(in crate::lower) fn into_draft(mut self) -> Draft {
        let input_gradients = self.name_input_gradients();
        let Builder { tensors, operations, results, nodes, .. } = self;
        Draft { tensors, operations, results, input_gradients, nodes, prefixes: Vec::new() }
    }

    /// Names the gradients of inputs after the inputs, and returns them. Inputs whose gradients are one tensor share the first one's name.
    fn name_input_gradients(&mut self) -> Vec<TensorId> {
        let mut named = Vec::new();
        for id in 0..self.analysis.graph.nodes.len() {
            let (Source::Input, Some(gradient), Some(input)) =
                (&self.analysis.node(id).source, self.gradients[id], self.holder(id))
            else {
                continue;
            };
            if !named.contains(&gradient) {
                self.tensors[gradient as usize].name = format!("{}.gradient", self.tensors[input as usize].name);
                named.push(gradient);
            }
        }
        named
    }
}

impl Draft {
    /// Finishes the program, with the settings of training if it trains.
    pub(in crate::lower) fn finish(self, graph: &Graph, training: Option<Training<'_>>) -> Program {
        let Draft { mut tensors, mut operations, results, input_gradients, .. } = self;
        if training.is_some_and(|training| training.descent.parks()) {
            let lasting: Vec<TensorId> = results.iter().chain(&input_gradients).copied().collect();
            offload::park(&mut operations, &mut tensors, &lasting);
        }
        let moments = training.map_or(0, |training| training.moments);
        let operations = extend_lifetimes::hold(operations, &tensors);
        let mut operations = match training {
            Some(training) if training.descent.offloads() => offload::stream(operations, &mut tensors),
            _ => batch_updates::gather(operations, &tensors, moments),
        };
        let accumulates = training.is_some_and(|training| training.descent.accumulates());
        batch_updates::with_scratch(&mut operations, &mut tensors, moments);
        if training.is_some_and(|training| training.descent.ema.is_some()) {
            operations = averages::average(operations, &tensors);
        }
        if training.is_some_and(|training| training.descent.skips) {
            operations = guard::guard_statistics(operations, &mut tensors);
        }

        let mut used = vec![false; tensors.len()];
        for (index, operation) in operations.iter().enumerate() {
            for id in operation.tensors() {
                let tensor = &mut tensors[id as usize];
                if !used[id as usize] {
                    tensor.first = index as u32;
                }
                used[id as usize] = true;
                tensor.last = index as u32;
            }
        }
        // Results are read after the last operation, and so are the gradients of inputs if they are asked for.
        let end = operations.len() as u32 - 1;
        for id in results.iter().copied().chain(input_gradients) {
            tensors[id as usize].last = end;
        }
        if accumulates {
            micro_batches::keep_loss(&mut operations, &mut tensors, &results);
            guard::keep_statistics(&operations, &mut tensors, end);
        }

        let keep = |id: &usize| tensors[*id].class != Class::Transient || used[*id];
        let ids: Vec<usize> = (0..tensors.len()).filter(keep).collect();
        let mut order: Vec<usize> = Vec::with_capacity(ids.len());
        for class in ORDER {
            order.extend(ids.iter().filter(|&&id| tensors[id].class == class));
        }
        let mut numbers: Vec<TensorId> = vec![0; tensors.len()];
        order.iter().enumerate().for_each(|(number, &id)| numbers[id] = number as TensorId);

        for operation in &mut operations {
            for operand in operation.reads.iter_mut().chain(&mut operation.writes) {
                operand.tensor = numbers[operand.tensor as usize];
            }
        }
        let mut program = Program {
            training: training.is_some(),
            moments,
            holds_gradients: training.is_some_and(|training| training.holds_gradients()),
            descent: training.map_or(Descent::PLAIN, |training| training.descent),
            tensors: order.into_iter().map(|id| tensors[id].clone()).collect(),
            operations,
            paths: graph.rows.iter().map(|row| row.path.clone()).collect(),
            results: results.into_iter().map(|id| numbers[id as usize]).collect(),
        };
        pad_logits::pad_classes(&mut program);
        program
    }
}
