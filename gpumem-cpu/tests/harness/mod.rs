//! Networks built, lowered, planned and run without the macro, and files of expected tensors.
#![allow(dead_code)]

#[path = "../../../gpumem-core/tests/common/mod.rs"]
pub mod graphs;

use gpumem_core::Precision;
use gpumem_core::device::{Device, Job, Placed, Runner};
use gpumem_core::error::Error;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Training, lower};
use gpumem_core::optim::Optimizer;
use gpumem_core::program::Class;
use gpumem_cpu::Cpu;
pub use graphs::compile;
use safetensors::SafeTensors;
use std::collections::BTreeMap;

/// A network on the CPU, with tensors reached by name.
pub struct Loaded {
    runner: <Cpu as Device>::Runner,
    pub train: Placed,
    pub batch: u64,
}

impl Loaded {
    pub fn new(graph: &Graph, output: NodeId, training: Training, batch: u64, optimizer: Optimizer) -> Loaded {
        Loaded::with_threads(graph, output, Some(training), batch, optimizer, 2)
    }

    /// A training step, or without `training` the forward pass, on this many threads.
    pub fn with_threads(
        graph: &Graph,
        output: NodeId,
        training: Option<Training>,
        batch: u64,
        optimizer: Optimizer,
        threads: usize,
    ) -> Loaded {
        let train = compile(&lower(graph, output, &Options { training }).unwrap(), batch);
        let arena = train
            .program
            .tensors
            .iter()
            .zip(&train.offsets)
            .map(|(tensor, offset)| offset + tensor.elements(batch).unwrap() * 4)
            .max()
            .unwrap()
            .next_multiple_of(256);
        // Only one of the two is used here; a copy of it stands in for the other.
        let job = Job {
            name: "test",
            arena,
            reserve: 0,
            batch,
            precision: Precision::F32,
            train: Some(train.clone()),
            infer: train.clone(),
            optimizer,
            tf32: false,
            deterministic: false,
        };
        let runner = Cpu::with_threads(threads).unwrap().with_poison(true).load(job).unwrap();
        let mut loaded = Loaded { runner, train, batch };
        for id in 0..loaded.train.program.tensors.len() {
            let tensor = loaded.train.program.tensors[id].clone();
            if matches!(tensor.class, Class::Moment | Class::State | Class::Buffer) {
                let words = vec![0; tensor.elements(batch).unwrap() as usize];
                loaded.write(id, &words);
            }
        }
        loaded
    }

    fn write(&mut self, id: usize, words: &[u32]) {
        let tensor = &self.train.program.tensors[id];
        assert_eq!(tensor.elements(self.batch), Some(words.len() as u64), "{}", tensor.name);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.runner.write(self.train.offsets[id], &bytes).unwrap();
    }

    fn id(&self, name: &str) -> Option<usize> {
        self.train.program.tensors.iter().position(|tensor| tensor.name == name)
    }

    pub fn set(&mut self, name: &str, words: &[u32]) {
        let id = self.id(name).unwrap_or_else(|| panic!("nothing is called {name}"));
        self.write(id, words);
    }

    pub fn step(&mut self) -> Result<f32, Error> {
        self.runner.train()?;
        Ok(self.read(self.train.program.result as usize)[0])
    }

    /// The output of a forward pass.
    pub fn infer(&mut self) -> Result<Vec<f32>, Error> {
        self.runner.infer()?;
        Ok(self.read(self.train.program.result as usize))
    }

    fn read(&mut self, id: usize) -> Vec<f32> {
        let mut bytes = vec![0; self.train.program.tensors[id].elements(self.batch).unwrap() as usize * 4];
        self.runner.read(self.train.offsets[id], &mut bytes).unwrap();
        bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect()
    }

    pub fn get(&mut self, name: &str) -> Option<Vec<f32>> {
        self.id(name).map(|id| self.read(id))
    }
}

/// Tensors of a file as 32-bit words; 64-bit integers become 32-bit ones.
pub struct Truth(BTreeMap<String, (Vec<u64>, Vec<u32>)>);

impl Truth {
    pub fn read(path: &str) -> Truth {
        let path = format!("{}/tests/truth/{path}", env!("CARGO_MANIFEST_DIR"));
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let file = SafeTensors::deserialize(&bytes).unwrap();
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

pub fn assert_close(what: &str, found: &[f32], expected: &[f32], tolerance: f64) {
    let error = relative_error(found, expected);
    assert!(error <= tolerance, "{what}: relative error {error:e}\nfound    {found:?}\nexpected {expected:?}");
}
