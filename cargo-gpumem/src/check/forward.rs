//! Runs the forward pass of a network on the CPU, in f32.

use super::memory::refuse_too_large;
use super::samples::{Numbers, Samples};
use crate::Failure;
use crate::models::read::Imported;
use gpumem_core::lower::{Blueprint, tables};
use gpumem_core::memory::Compiled;
use gpumem_core::memory::budget::{Line, pack_at};
use gpumem_core::memory::levels::Level;
use gpumem_core::memory::place::{Placed, place};
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::memory::target_cards::TargetCards;
use gpumem_core::network::torch_name;
use gpumem_core::operation::Operations;
use gpumem_core::program::{Class, Tensor};
use gpumem_core::report::NotPlanned;
use gpumem_core::run::device::{Device, Job, Runner};
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_core::{Precision, Role, Train};
use gpumem_cpu::Cpu;
use gpumem_import::weights::Tensors;

static NO_OPERATIONS: Operations = Operations::NONE;

/// A forward pass that is loaded, and where its tensors are.
pub struct Forward {
    runner: <Cpu as Device>::Runner,
    placed: Placed,
    samples: u64,
}

impl Forward {
    /// Plans and loads the forward pass for a number of samples. `beside` are bytes that are needed outside of its arena.
    pub fn load(blueprint: &Blueprint, samples: u64, beside: u64) -> Result<Forward, Failure> {
        let program = blueprint.forward_pass().map_err(|error| NotPlanned::Lower(error).to_string())?;
        let owned = tables(&program);
        let workspaces = Workspaces::of(&TargetCards::at(&[]), Train::DEFAULT.conv_workspace);
        let tables = owned.as_tables().with_workspaces(workspaces);
        let precision = Precision::F32;
        let packed = pack_at(&tables, samples, precision);
        let (budget, offsets) = packed.map_err(|error| NotPlanned::Plan(samples, error).to_string())?;
        refuse_too_large(budget[Line::Arena].saturating_add(beside), samples)?;
        let compiled = Compiled {
            program: &program.encode(),
            tables: &tables,
            offsets: &offsets,
            budget,
            batch: samples,
            precision,
            level: Level::ONLY,
        };
        let placed = place(&compiled)?;
        let job = Job {
            name: "the network",
            arena: budget[Line::Arena],
            reserve: 0,
            batch: samples,
            precision,
            train: None,
            evaluation: None,
            served: None,
            others: Vec::new(),
            infer: placed.clone(),
            optimizer: Optimizer::Sgd(Sgd { lr: 0.0, ..Sgd::DEFAULT }),
            tf32: false,
            deterministic: false,
            settings: 0,
            operations: &NO_OPERATIONS,
        };
        Ok(Forward { runner: Cpu::new().load(job)?, placed, samples })
    }

    /// Gives the network its weights and running statistics. One tensor at a time is in memory.
    pub fn set_weights(&mut self, weights: &mut Tensors) -> Result<(), Failure> {
        for (tensor, &offset) in self.placed.program.tensors.iter().zip(&self.placed.offsets) {
            if matches!(tensor.class, Class::Parameter | Class::Buffer) {
                let bytes = weights.read_f32(&torch_name(&tensor.name), tensor.shape.dims())?;
                self.runner.write(offset, &bytes)?;
            }
        }
        Ok(())
    }

    /// Gives the network its inputs. Returns the number of those that the model draws at random, which are 0.
    pub fn set_inputs(&mut self, imported: &Imported, samples: &mut Samples) -> Result<usize, Failure> {
        let tensors = self.placed.program.tensors.iter().zip(&self.placed.offsets);
        let inputs: Vec<(Tensor, u64)> = tensors
            .filter(|(tensor, _)| tensor.class == Class::Input)
            .map(|(tensor, &offset)| (tensor.clone(), offset))
            .collect();
        if inputs.len() != imported.given.len() {
            let (has, reads) = (inputs.len(), imported.given.len());
            return Err(format!("the network has {has} inputs, and the model's operations read {reads}").into());
        }
        let mut drawn = 0;
        for ((tensor, offset), value) in inputs.iter().zip(&imported.given) {
            let elements = tensor.elements(self.samples).unwrap_or(u64::MAX);
            let words = match imported.model.inputs.iter().position(|input| input == value) {
                Some(index) => words(samples.input(imported, index)?, tensor.role)
                    .map_err(|what| format!("{}: `input.{index}` {what}", samples.path().display()))?,
                None => {
                    drawn += 1;
                    vec![0; usize::try_from(elements)?]
                }
            };
            if words.len() as u64 != elements {
                let found = words.len();
                return Err(
                    format!("the network reads {elements} numbers in an input, and {found} were recorded").into()
                );
            }
            let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
            self.runner.feed(*offset, &bytes)?;
        }
        Ok(drawn)
    }

    /// Runs the forward pass once.
    pub fn run(&mut self) -> Result<(), Failure> {
        Ok(self.runner.infer()?)
    }

    /// Reads an output, with the batch outermost.
    pub fn output(&mut self, index: usize) -> Result<Vec<f32>, Failure> {
        let Some(&id) = self.placed.program.results.get(index) else {
            return Err(format!("the network has no output {index}").into());
        };
        let (tensor, offset) = (&self.placed.program.tensors[id as usize], self.placed.offsets[id as usize]);
        let elements = usize::try_from(tensor.elements(self.samples).unwrap_or(u64::MAX))?;
        let mut bytes = vec![0; elements.checked_mul(4).ok_or("an output is longer than memory")?];
        self.runner.read(offset, &mut bytes)?;
        let words = bytes.as_chunks().0.iter().map(|four| u32::from_le_bytes(*four));
        Ok(match tensor.role {
            Role::Index => words.map(|word| word as f32).collect(),
            _ => words.map(f32::from_bits).collect(),
        })
    }
}

/// Returns the words of an input: indices, or the bits of numbers.
fn words(numbers: Numbers, role: Role) -> Result<Vec<u32>, String> {
    match (numbers, role) {
        (Numbers::Whole(numbers), Role::Index) => {
            let word = |number: i64| {
                u32::try_from(number).map_err(|_| format!("has {number}, and indices are from 0 to 2^32 - 1"))
            };
            numbers.into_iter().map(word).collect()
        }
        (Numbers::Floats(_), Role::Index) => Err("has floating-point numbers, and the model reads indices".into()),
        (Numbers::Whole(numbers), _) => Ok(numbers.into_iter().map(|number| (number as f32).to_bits()).collect()),
        (Numbers::Floats(numbers), _) => Ok(numbers.into_iter().map(f32::to_bits).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_indices_or_numbers() {
        assert_eq!(words(Numbers::Whole(vec![0, 7]), Role::Index), Ok(vec![0, 7]));
        assert_eq!(words(Numbers::Whole(vec![2]), Role::Activation), Ok(vec![2f32.to_bits()]));
        assert_eq!(words(Numbers::Floats(vec![0.5]), Role::Activation), Ok(vec![0.5f32.to_bits()]));
        assert_eq!(
            words(Numbers::Whole(vec![-1]), Role::Index),
            Err("has -1, and indices are from 0 to 2^32 - 1".into())
        );
        let mixed = words(Numbers::Floats(vec![1.0]), Role::Index);
        assert_eq!(mixed, Err("has floating-point numbers, and the model reads indices".into()));
    }
}
