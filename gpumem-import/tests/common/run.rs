//! Runs the forward pass of a graph on the CPU.

use super::Network;
use gpumem_core::lower::{Options, lower, tables};
use gpumem_core::memory::Compiled;
use gpumem_core::memory::budget::{Line, pack_at};
use gpumem_core::memory::levels::Level;
use gpumem_core::memory::place::{Placed, place};
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::memory::target_cards::TargetCards;
use gpumem_core::operation::Operations;
use gpumem_core::program::Class;
use gpumem_core::run::device::{Device, Job, Runner};
use gpumem_core::train::optim::{Optimizer, Sgd};
use gpumem_core::{Precision, Train};
use gpumem_cpu::Cpu;

static NO_OPERATIONS: Operations = Operations::NONE;

/// A network that has been loaded.
pub struct Running {
    runner: <Cpu as Device>::Runner,
    placed: Placed,
    batch: u64,
}

impl Running {
    pub fn load(network: &Network, batch: u64) -> Running {
        let program = lower(&network.graph, &network.outputs, &Options { training: None }).expect("it is lowered");
        let tables = Box::leak(Box::new(tables(&program)));
        let workspaces = Workspaces::of(&TargetCards::at(&[]), Train::DEFAULT.conv_workspace);
        let tables = Box::leak(Box::new(tables.as_tables().with_workspaces(workspaces)));
        let (budget, offsets) = pack_at(tables, batch, Precision::F32).expect("it is packed");
        let (program, offsets) = (program.encode().leak(), offsets.leak());
        let compiled =
            Compiled { program, tables, offsets, budget, batch, precision: Precision::F32, level: Level::ONLY };
        let placed = place(&compiled).expect("it is placed");
        let job = Job {
            name: "lifted",
            arena: budget[Line::Arena],
            reserve: 0,
            batch,
            precision: Precision::F32,
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
        let runner = Cpu::with_threads(2).unwrap().load(job).expect("it is loaded");
        Running { runner, placed, batch }
    }

    /// Returns the bytes of the arena of a network's forward pass.
    pub fn arena(network: &Network, batch: u64) -> u64 {
        let program = lower(&network.graph, &network.outputs, &Options { training: None }).expect("it is lowered");
        let tables = tables(&program);
        let workspaces = Workspaces::of(&TargetCards::at(&[]), Train::DEFAULT.conv_workspace);
        let tables = tables.as_tables().with_workspaces(workspaces);
        pack_at(&tables, batch, Precision::F32).expect("it is packed").0[Line::Arena]
    }

    /// Returns name, class and shape of each tensor that the user gives: inputs, parameters and running statistics.
    pub fn given(&self) -> Vec<(usize, String, Class, Vec<u64>)> {
        let tensors = self.placed.program.tensors.iter().enumerate();
        let given =
            tensors.filter(|(_, tensor)| matches!(tensor.class, Class::Input | Class::Parameter | Class::Buffer));
        given.map(|(id, tensor)| (id, tensor.name.clone(), tensor.class, tensor.shape.dims().to_vec())).collect()
    }

    pub fn write(&mut self, id: usize, words: impl Iterator<Item = u32>) {
        let tensor = &self.placed.program.tensors[id];
        let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        assert_eq!(tensor.elements(self.batch), Some(bytes.len() as u64 / 4), "{}", tensor.name);
        let offset = self.placed.offsets[id];
        match tensor.class {
            Class::Input => self.runner.feed(offset, &bytes).unwrap(),
            _ => self.runner.write(offset, &bytes).unwrap(),
        }
    }

    /// Gives an input its bytes.
    pub fn feed(&mut self, id: usize, bytes: &[u8]) {
        self.runner.feed(self.placed.offsets[id], bytes).unwrap();
    }

    /// Runs the forward pass, and returns its outputs.
    pub fn outputs(&mut self) -> Vec<Vec<f32>> {
        self.runner.infer().unwrap();
        let results = self.placed.program.results.clone();
        let read = |&id: &u32| {
            let tensor = &self.placed.program.tensors[id as usize];
            let mut bytes = vec![0; tensor.elements(self.batch).unwrap() as usize * 4];
            self.runner.read(self.placed.offsets[id as usize], &mut bytes).unwrap();
            bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect()
        };
        results.iter().map(read).collect()
    }
}
