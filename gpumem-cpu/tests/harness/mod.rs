//! Networks built, lowered, planned and run without the macro, and files of expected tensors.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]

pub mod bottleneck;
pub mod curves;
pub mod filled;
pub mod functions;
pub mod given;
#[path = "../../../gpumem-core/tests/common/mod.rs"]
pub mod graphs;
pub mod layouts;
pub mod masked;
pub mod rules;

use gpumem_core::error::Error;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Training, lower};
use gpumem_core::memory::Compiled;
use gpumem_core::memory::budget::Budget;
use gpumem_core::memory::budget::Line;
use gpumem_core::memory::place::Placed;
use gpumem_core::memory::place::place;
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::memory::target_cards::TargetCards;
use gpumem_core::program::{Class, Program, StateWord, Tensor};
use gpumem_core::run::device::{Device, Job, Runner};
use gpumem_core::train::optim::Optimizer;
use gpumem_core::{Precision, Role, Train};
use gpumem_cpu::Cpu;
pub use graphs::compile;
use safetensors::SafeTensors;
use std::collections::BTreeMap;

/// A network on a device, with tensors reached by name.
pub struct Loaded<R = <Cpu as Device>::Runner> {
    runner: R,
    pub train: Placed,
    pub batch: u64,
    pub budget: Budget,
}

impl Loaded {
    /// A training step on the CPU, on two threads.
    pub fn new(graph: &Graph, output: NodeId, training: Training, batch: u64, optimizer: Optimizer) -> Loaded {
        Loaded::with_threads(graph, output, Some(training), batch, optimizer, 2)
    }

    /// A training step, or without `training` the forward pass, on this many threads of the CPU.
    pub fn with_threads(
        graph: &Graph,
        output: NodeId,
        training: Option<Training>,
        batch: u64,
        optimizer: Optimizer,
        threads: usize,
    ) -> Loaded {
        let cpu = Cpu::with_threads(threads).unwrap().with_poison(true);
        Loaded::on(&cpu, graph, output, training, batch, optimizer).unwrap()
    }
}

impl<R: Runner> Loaded<R> {
    /// A training step, or without `training` the forward pass, on any device, in the arena that its budget has.
    pub fn on(
        device: &impl Device<Runner = R>,
        graph: &Graph,
        output: NodeId,
        training: Option<Training>,
        batch: u64,
        optimizer: Optimizer,
    ) -> Result<Loaded<R>, Error> {
        Loaded::of(device, &lower(graph, &[output], &Options { training }).unwrap(), batch, optimizer)
    }

    /// A program on any device, in the arena that its budget has. Where its batch is split, it holds a part of it.
    pub fn of(
        device: &impl Device<Runner = R>,
        program: &Program,
        batch: u64,
        optimizer: Optimizer,
    ) -> Result<Loaded<R>, Error> {
        let compiled = plan(program, batch);
        let (train, budget, batch) = (place(&compiled).unwrap(), compiled.budget, compiled.samples());
        // Only one of the two is used here; a copy of it stands in for the other.
        let job = Job {
            name: "test",
            arena: budget[Line::Arena],
            reserve: 0,
            batch,
            precision: Precision::F32,
            train: Some(train.clone()),
            evaluation: train.evaluation().ok(),
            served: None,
            others: Vec::new(),
            infer: train.clone(),
            optimizer,
            tf32: false,
            deterministic: false,
            settings: 0,
            operations: &graphs::own::OPERATIONS,
        };
        let mut loaded = Loaded { runner: device.load(job)?, train, batch, budget };
        for id in 0..loaded.train.program.tensors.len() {
            let tensor = loaded.train.program.tensors[id].clone();
            let mut words = vec![0; tensor.elements(batch).unwrap() as usize];
            match tensor.class {
                Class::State => {
                    words[StateWord::LearningRate as usize] = (optimizer.lr() as f32).to_bits();
                    words[StateWord::LossScale as usize] = 1f32.to_bits();
                    words[StateWord::Schedule as usize..][..8].copy_from_slice(&program.descent.schedule.words());
                }
                Class::Moment | Class::Buffer => {}
                _ => continue,
            }
            loaded.write(id, &words);
        }
        Ok(loaded)
    }

    /// Fills parameters and running statistics as a network's first step finds them, from this seed.
    pub fn initialise(&mut self, seed: u64) {
        for id in 0..self.train.program.tensors.len() {
            let tensor = &self.train.program.tensors[id];
            if tensor.role.coding().is_some() {
                self.set_coded(id, &self.train.program.initial(id as u32, seed));
            } else if tensor.role != Role::Scale && matches!(tensor.class, Class::Parameter | Class::Buffer) {
                let words: Vec<u32> =
                    self.train.program.initial(id as u32, seed).into_iter().map(f32::to_bits).collect();
                self.write(id, &words);
            }
        }
    }

    fn write(&mut self, id: usize, words: &[u32]) {
        let tensor = &self.train.program.tensors[id];
        let elements = tensor.elements(self.batch).map(|elements| elements.div_ceil(tensor.role.packed()));
        assert_eq!(elements, Some(words.len() as u64), "{}", tensor.name);
        let bytes: Vec<u8> = match tensor.role {
            // Bytes and codes as the numbers that `read` says they are.
            Role::Byte | Role::Code | Role::Int8 | Role::Nf4 | Role::Nf4Double => {
                words.iter().map(|&word| f32::from_bits(word) as u8).collect()
            }
            _ => words.iter().flat_map(|word| word.to_le_bytes()).collect(),
        };
        match tensor.class {
            // As a network's own step does it.
            Class::Input | Class::Target => self.runner.feed(self.train.offsets[id], &bytes).unwrap(),
            _ => self.runner.write(self.train.offsets[id], &bytes).unwrap(),
        }
    }

    fn id(&self, name: &str) -> Option<usize> {
        self.train.program.tensors.iter().position(|tensor| tensor.name == name)
    }

    pub fn set(&mut self, name: &str, words: &[u32]) {
        let id = self.id(name).unwrap_or_else(|| panic!("nothing is called {name}"));
        self.write(id, words);
    }

    /// Gives a weight that is kept in codes the nearest ones, and their scales.
    pub fn set_coded(&mut self, id: usize, values: &[f32]) {
        let tensor = &self.train.program.tensors[id];
        let scales = format!("{}{}", tensor.name, gpumem_core::graph::SCALES);
        let (codes, of_blocks) = tensor.role.coding().expect("a weight in codes").quantize(values);
        self.write(id, &codes.into_iter().map(|code| f32::from(code).to_bits()).collect::<Vec<u32>>());
        self.set(&scales, &of_blocks.into_iter().map(f32::to_bits).collect::<Vec<u32>>());
    }

    pub fn runner_mut(&mut self) -> &mut R {
        &mut self.runner
    }

    /// One step on all parts of a batch: the inputs and targets of each, by name.
    pub fn step_of(&mut self, parts: &[Vec<(String, Vec<u32>)>]) -> Result<f32, Error> {
        let (last, others) = parts.split_last().expect("a step has a part");
        let give = |loaded: &mut Self, part: &Vec<(String, Vec<u32>)>| {
            part.iter().for_each(|(name, words)| loaded.set(name, words));
        };
        for (number, part) in others.iter().enumerate() {
            give(self, part);
            self.runner.accumulate(number as u64)?;
        }
        give(self, last);
        self.step()
    }

    /// The inputs and targets of each of so many parts of the batch that is loaded.
    pub fn parts(&mut self, count: usize) -> Vec<Vec<(String, Vec<u32>)>> {
        let given = |tensor: &Tensor| matches!(tensor.class, Class::Input | Class::Target);
        let ids: Vec<usize> =
            (0..self.train.program.tensors.len()).filter(|&id| given(&self.train.program.tensors[id])).collect();
        let mut parts = vec![Vec::new(); count];
        for id in ids {
            let name = self.train.program.tensors[id].name.clone();
            let words: Vec<u32> = self.read(id).into_iter().map(f32::to_bits).collect();
            let each = words.len() / count;
            parts
                .iter_mut()
                .zip(words.chunks(each))
                .for_each(|(part, words)| part.push((name.clone(), words.to_vec())));
        }
        parts
    }

    pub fn step(&mut self) -> Result<f32, Error> {
        self.train()?;
        self.loss()
    }

    /// A step that nobody waits for.
    pub fn train(&mut self) -> Result<(), Error> {
        self.runner.train()
    }

    pub fn loss(&mut self) -> Result<f32, Error> {
        self.runner.loss(self.train.offsets[self.train.program.results[0] as usize])
    }

    /// The loss without an update.
    pub fn evaluate(&mut self) -> Result<f32, Error> {
        self.runner.evaluate()?;
        let placed = self.train.evaluation()?;
        let mut bytes = [0; 4];
        self.runner.read(placed.offsets[placed.program.results[0] as usize], &mut bytes)?;
        Ok(f32::from_le_bytes(bytes))
    }

    /// The values, as bits, of everything that is carried from step to step: parameters, statistics, optimizer state.
    pub fn carried(&mut self) -> Vec<(String, Vec<u32>)> {
        let carried = |tensor: &Tensor| matches!(tensor.class, Class::Parameter | Class::Buffer | Class::Moment);
        let ids: Vec<usize> =
            (0..self.train.program.tensors.len()).filter(|&id| carried(&self.train.program.tensors[id])).collect();
        let value = |id: usize| (self.train.program.tensors[id].name.clone(), self.read(id));
        ids.into_iter().map(value).map(|(name, values)| (name, values.iter().map(|x| x.to_bits()).collect())).collect()
    }

    /// The output of a forward pass.
    pub fn infer(&mut self) -> Result<Vec<f32>, Error> {
        self.runner.infer()?;
        Ok(self.read(self.train.program.results[0] as usize))
    }

    fn read(&mut self, id: usize) -> Vec<f32> {
        let tensor = &self.train.program.tensors[id];
        let width = tensor.role.bytes(Precision::F32);
        let elements = tensor.elements(self.batch).unwrap().div_ceil(tensor.role.packed());
        let mut bytes = vec![0; (elements * width) as usize];
        self.runner.read(self.train.offsets[id], &mut bytes).unwrap();
        if width == 1 {
            return bytes.into_iter().map(f32::from).collect();
        }
        bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect()
    }

    pub fn get(&mut self, name: &str) -> Option<Vec<f32>> {
        self.id(name).map(|id| self.read(id))
    }
}

/// Plans a program as for a network whose `TRAIN` names no cards and no `conv_workspace`.
fn plan(program: &Program, batch: u64) -> Compiled<'static> {
    let workspaces = Workspaces::of(&TargetCards::at(&[]), Train::DEFAULT.conv_workspace);
    graphs::plan_within(program, batch, Precision::F32, workspaces)
}

/// Tensors of a file as 32-bit words; 64-bit integers become 32-bit ones.
pub struct Truth(BTreeMap<String, (Vec<u64>, Vec<u32>)>);

impl Truth {
    pub fn read(path: &str) -> Truth {
        let path = format!("{}/tests/truth/{path}", env!("CARGO_MANIFEST_DIR"));
        Truth::parse(&std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}")))
    }

    pub fn parse(bytes: &[u8]) -> Truth {
        let file = SafeTensors::deserialize(bytes).unwrap();
        let tensors = file.iter().map(|(name, view)| {
            let words = match view.dtype() {
                safetensors::Dtype::F32 => {
                    view.data().chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
                }
                safetensors::Dtype::I64 => view
                    .data()
                    .chunks_exact(8)
                    .map(|word| u64::from_le_bytes(word.try_into().unwrap()) as u32)
                    .collect(),
                other => panic!("{name} is {other:?}"),
            };
            (name.to_string(), (view.shape().iter().map(|&dim| dim as u64).collect(), words))
        });
        Truth(tensors.collect())
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub fn shape(&self, name: &str) -> &[u64] {
        &self.0[name].0
    }

    pub fn words(&self, name: &str) -> &[u32] {
        &self.0[name].1
    }

    pub fn floats(&self, name: &str) -> Vec<f32> {
        self.words(name).iter().map(|&word| f32::from_bits(word)).collect()
    }
}

/// The largest difference, relative to the largest expected value.
pub fn relative_error(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let scale = expected.iter().fold(1e-30f64, |scale, &value| scale.max(f64::from(value.abs())));
    found.iter().zip(expected).fold(0.0, |worst: f64, (&found, &expected)| {
        let difference = f64::from(found - expected).abs();
        // A NaN must not pass.
        if difference.is_nan() { f64::INFINITY } else { worst.max(difference / scale) }
    })
}

/// Every tensor of a class, beside the largest number of all: small gradients are often sums whose terms cancel, or 0 but for rounding. More
/// loosely beside its own largest number, if that is not next to nothing: there a part too much or too little shows.
pub fn assert_class_close(class: Class, found: &mut Loaded, expected: &mut Loaded, tolerance: f64) {
    let of_class = expected.train.program.tensors.iter().filter(|tensor| tensor.class == class);
    let names: Vec<String> = of_class.map(|tensor| tensor.name.clone()).collect();
    let pairs: Vec<[Vec<f32>; 2]> =
        names.iter().map(|name| [found.get(name).unwrap(), expected.get(name).unwrap()]).collect();
    let named: Vec<(String, [Vec<f32>; 2])> = names.into_iter().zip(pairs).collect();
    assert_pairs_close(&named, tolerance);
}

/// The same of tensors that are found and expected.
pub fn assert_pairs_close(pairs: &[(String, [Vec<f32>; 2])], tolerance: f64) {
    let largest = |values: &[f32]| values.iter().fold(0.0f64, |most, &value| most.max(f64::from(value.abs())));
    let of_all = pairs.iter().map(|(_, [_, expected])| largest(expected)).fold(0.0, f64::max);
    for (name, [found, expected]) in pairs {
        let own = largest(expected);
        let error = relative_error(found, expected) * own.max(1e-30);
        let most = (tolerance * of_all).min(1e-2 * own.max(1e-2 * of_all));
        assert!(
            error <= most,
            "{name}: {error:e} of {own:e} and {of_all:e}\nfound    {found:?}\nexpected {expected:?}"
        );
    }
}

/// The largest difference of an element beside itself and the mean of all: one large element does not hide what is wrong with
/// small ones, as it does in [`relative_error`].
fn error_of_elements(found: &[f32], expected: &[f32]) -> f64 {
    let mean = expected.iter().map(|&value| f64::from(value.abs())).sum::<f64>() / expected.len().max(1) as f64;
    found.iter().zip(expected).fold(0.0, |worst: f64, (&found, &expected)| {
        worst.max(f64::from(found - expected).abs() / (f64::from(expected.abs()) + mean).max(1e-30))
    })
}

/// How much larger that may be: an element near 0 is often a sum whose terms cancel, and shows how each of them was rounded.
const OF_ELEMENTS: f64 = 5.0;

pub fn assert_close(what: &str, found: &[f32], expected: &[f32], tolerance: f64) {
    let error = relative_error(found, expected);
    assert!(error <= tolerance, "{what}: relative error {error:e}\nfound    {found:?}\nexpected {expected:?}");
    let error = error_of_elements(found, expected);
    assert!(
        error <= OF_ELEMENTS * tolerance,
        "{what}: error of an element {error:e}\nfound    {found:?}\nexpected {expected:?}"
    );
}
