//! Programs that are given numbers and are asked for what these become, on the kernels.

use super::tested::{Tested, everyone, without_chains};
use super::{CAPABILITY, beginning, filled, job, prepare_programs};
use crate::host::harness::given::Given;
use gpumem_core::Precision;
use gpumem_core::program::Program;
use gpumem_core::train::optim::Optimizer;

/// A program on the kernels.
struct OnKernels {
    program: Program,
    tested: Box<dyn Tested>,
}

impl OnKernels {
    fn id(&self, name: &str) -> Option<usize> {
        self.program.tensors.iter().position(|tensor| tensor.name == name)
    }

    fn read(&mut self, id: usize) -> Vec<f32> {
        self.tested.get(id).into_iter().map(f32::from_bits).collect()
    }
}

impl Given for OnKernels {
    fn set_words(&mut self, name: &str, words: &[u32]) {
        let id = self.id(name).unwrap_or_else(|| panic!("nothing is called {name}"));
        self.tested.put(id, words);
    }

    fn part(&mut self, part: u64) {
        self.tested.accumulate(part);
    }

    fn run(&mut self) {
        self.tested.step();
    }

    fn find(&mut self, name: &str) -> Option<Vec<f32>> {
        self.id(name).map(|id| self.read(id))
    }

    fn result(&mut self) -> Vec<f32> {
        self.read(self.program.results[0] as usize)
    }
}

/// Everything that can run the kernels here, in f32: chains as one launch, and as a launch for each operation.
pub fn on_kernels(program: &Program, batch: u64, optimizer: Optimizer) -> Vec<(String, Box<dyn Given>)> {
    prepare_programs(&[(Precision::F32, CAPABILITY)], std::slice::from_ref(program), batch, optimizer);
    let job = job(program, batch, Precision::F32, optimizer);
    if !filled::capabilities().is_empty() {
        filled::fill(&job, CAPABILITY);
        return Vec::new();
    }
    let all = everyone(&job, CAPABILITY, 0..2).into_iter().chain(without_chains(&job, CAPABILITY));
    let given = all.map(|(who, mut tested)| -> (String, Box<dyn Given>) {
        for id in 0..program.tensors.len() {
            if let Some(words) = beginning(program, id, batch, 1, optimizer) {
                tested.put(id, &words);
            }
        }
        (who, Box::new(OnKernels { program: program.clone(), tested }))
    });
    given.collect()
}
