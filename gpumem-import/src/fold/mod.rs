//! Evaluates what no input reaches: positions, masks, tables of indices.

mod evaluate;
mod operations;
mod tensor;

pub use tensor::Tensor;

use crate::memory::{changes_first, families, roots};
use crate::model::{Argument, Dtype, Model, Node, StateKind, ValueId};

/// The origin of a value.
#[derive(Clone, Debug)]
pub enum Origin {
    /// From the inputs: it differs from sample to sample.
    Sample,
    /// From random numbers, and from nothing else.
    Random,
    /// From parameters, and maybe constants.
    Parameters,
    /// From constants alone, with its numbers. `None` if they are not in the file, or an operation on them is not known.
    Constant(Option<Tensor>),
}

impl Origin {
    /// Returns the numbers of a constant. `None` if it is none, or they are not known.
    pub fn numbers(&self) -> Option<&Tensor> {
        match self {
            Origin::Constant(tensor) => tensor.as_ref(),
            _ => None,
        }
    }
}

/// Operations that draw random numbers.
const RANDOM: [&str; 10] = [
    "rand",
    "randn",
    "rand_like",
    "randn_like",
    "randint",
    "bernoulli",
    "uniform",
    "normal",
    "exponential",
    "randperm",
];
/// Operations that read an input's shape and type, and none of its numbers.
const LIKE: [&str; 9] = [
    "zeros_like",
    "ones_like",
    "full_like",
    "empty_like",
    "new_zeros",
    "new_ones",
    "new_full",
    "new_empty",
    "new_tensor",
];

/// Returns the origin of every value of a model.
pub fn origins(model: &Model) -> Vec<Origin> {
    let mut origins: Vec<Origin> = model.values.iter().map(|_| Origin::Sample).collect();
    for state in &model.state {
        let value = &model.values[state.value];
        origins[state.value] = match state.kind {
            StateKind::Parameter { .. } => Origin::Parameters,
            _ => {
                let data = state.data.as_ref();
                Origin::Constant(data.and_then(|data| Tensor::read(data, &value.shape, value.dtype)))
            }
        };
    }
    let roots = roots(model);
    let mut families = families(model, &roots);
    let mut budget = BUDGET;
    for node in &model.nodes {
        trace(model, node, &mut origins, &mut budget);
        // A change in place gives the value, and all that share its memory, a new origin.
        if let (true, Some(first), Some(&output)) = (changes_first(node), node.tensors().next(), node.outputs.first())
            && !matches!(origins[output], Origin::Constant(Some(_)))
            && matches!(origins[first], Origin::Constant(_))
        {
            let changed = origins[output].clone();
            // Once is enough: what is made of them later has their origin.
            for value in families.remove(&roots[first]).unwrap_or_default() {
                origins[value] = changed.clone();
            }
        }
    }
    origins
}

/// The most elements of all constants of a model that are evaluated: masks and tables have far fewer.
pub(crate) const BUDGET: u64 = 1 << 27;

/// Finds the origins of what a node returns, from those of what it reads. Numbers beyond `budget` are not evaluated.
pub(crate) fn trace(model: &Model, node: &Node, origins: &mut [Origin], budget: &mut u64) {
    let origin = origin(model, node, origins);
    let numbers = match origin {
        Origin::Constant(_) => {
            let cost = |&output: &ValueId| model.values[output].elements().unwrap_or(u64::MAX);
            let left = node.outputs.iter().map(cost).try_fold(*budget, u64::checked_sub);
            *budget = left.unwrap_or(*budget);
            left.and_then(|_| evaluate::evaluate(model, node, origins)).unwrap_or_default()
        }
        _ => Vec::new(),
    };
    for (index, &output) in node.outputs.iter().enumerate() {
        origins[output] = match origin {
            Origin::Constant(_) => Origin::Constant(numbers.get(index).cloned()),
            ref other => other.clone(),
        };
    }
}

/// Returns the origin of what an operation returns, without numbers.
fn origin(model: &Model, node: &Node, origins: &[Origin]) -> Origin {
    let op = node.op.strip_suffix('_').filter(|op| !op.ends_with('_')).unwrap_or(&node.op);
    if RANDOM.contains(&op) {
        return Origin::Random;
    }
    if LIKE.contains(&op) {
        return Origin::Constant(None);
    }
    let mut found = Origin::Constant(None);
    for value in node.tensors() {
        match (&origins[value], &found) {
            (Origin::Sample, _) => return Origin::Sample,
            (Origin::Random, _) => found = Origin::Random,
            (Origin::Parameters, Origin::Constant(_)) => found = Origin::Parameters,
            _ => {}
        }
    }
    debug_assert!(node.outputs.iter().all(|&output| output < model.values.len()));
    found
}

/// Reads the arguments of a node whose tensors are all known.
struct Call<'m> {
    model: &'m Model,
    node: &'m Node,
    origins: &'m [Origin],
}

impl Call<'_> {
    fn tensor(&self, name: &str) -> Option<Tensor> {
        self.of(self.node.tensor(name)?)
    }

    fn of(&self, value: ValueId) -> Option<Tensor> {
        self.origins[value].numbers().cloned()
    }

    /// Returns a tensor, or a number as a tensor without dimensions.
    fn operand(&self, name: &str) -> Option<Tensor> {
        match self.node.argument(name)? {
            Argument::Tensor(value) => self.of(*value),
            Argument::Int(number) => Tensor::full(*number as f64, &[], Dtype::I64),
            Argument::Float(number) => Tensor::full(*number, &[], Dtype::F32),
            Argument::Bool(number) => Tensor::full(f64::from(u8::from(*number)), &[], Dtype::Bool),
            _ => None,
        }
    }

    fn number(&self, name: &str) -> Option<f64> {
        match self.node.argument(name)? {
            Argument::Int(number) => Some(*number as f64),
            Argument::Float(number) => Some(*number),
            Argument::Bool(number) => Some(f64::from(u8::from(*number))),
            Argument::Tensor(value) => {
                self.of(*value).filter(|tensor| tensor.shape.is_empty())?.numbers().first().copied()
            }
            _ => None,
        }
    }

    fn integer(&self, name: &str, default: i64) -> i64 {
        match self.node.argument(name) {
            Some(Argument::Int(number)) => *number,
            _ => default,
        }
    }

    fn flag(&self, name: &str) -> bool {
        matches!(self.node.argument(name), Some(Argument::Bool(true)))
    }

    fn integers(&self, name: &str) -> Option<Vec<i64>> {
        match self.node.argument(name)? {
            Argument::Ints(numbers) => Some(numbers.clone()),
            Argument::Int(number) => Some(vec![*number]),
            _ => None,
        }
    }

    fn tensors(&self, name: &str) -> Option<Vec<Option<Tensor>>> {
        match self.node.argument(name)? {
            Argument::Tensors(values) => values
                .iter()
                .map(|value| match value {
                    Some(value) => self.of(*value).map(Some),
                    None => Some(None),
                })
                .collect(),
            _ => None,
        }
    }

    /// Returns the type and the shape of an output, as the file says.
    fn output(&self, index: usize) -> Option<(Dtype, &[u64])> {
        let value = &self.model.values[*self.node.outputs.get(index)?];
        Some((value.dtype, &value.shape))
    }
}
