//! A network on a card: one allocation, kernels compiled for its shapes, and each program as one replayed graph.

mod arena;
mod checks;
mod feeding;
mod modules;
mod prepared;

use crate::cublaslt::Library;
use crate::cudnn;
use crate::device::{Cuda, failure};
use crate::launch::Call;
use crate::operations::{Setting, convolutions};
use arena::Arena;
use checks::{IndexCheck, index_checks};
use cudarc::driver::{CudaStream, result};
use feeding::Feeding;
use gpumem_core::device::{Job, Placed, Runner};
use gpumem_core::error::Error;
use gpumem_core::optim::Optimizer;
use gpumem_core::program::{Class, StateWord};
use modules::Modules;
use prepared::{Binding, Libraries, Prepared, possible_steps};
use std::sync::Arc;

/// A network loaded onto a card.
#[derive(Debug)]
pub struct Session {
    // Fields are dropped in this order: graphs before the modules and the memory that they use.
    train: Option<Feeding>,
    infer: Prepared,
    has_inferred: bool,
    /// Whether a forward pass may be reading its input.
    is_inferring: bool,
    modules: Modules,
    arena: Arena,
    stream: Arc<CudaStream>,
    state: Option<u64>,
    checks: Vec<IndexCheck>,
}

impl Session {
    pub(crate) fn new(card: &Cuda, job: Job) -> Result<Session, Error> {
        let Job { batch, precision, optimizer, tf32, deterministic, .. } = job;
        let stream = card.context.new_stream().map_err(failure("making a stream"))?;
        let arena = Arena::new(card, job.arena)?;
        let (capability, library, cudnn) = (card.capability, card.library, card.cudnn);
        let setting = Setting { batch, precision, optimizer, tf32, deterministic, capability, library, cudnn };
        let library = library.then(|| Library::new(card)).transpose()?;
        // Its handle takes memory of the card.
        let cudnn = cudnn && job.train.iter().chain([&job.infer]).any(convolutions::any);
        let cudnn = cudnn.then(|| cudnn::Library::new(card, &stream)).transpose()?;
        let libraries = Libraries { products: library.as_ref(), convolutions: cudnn.as_ref() };
        let steps = |placed: &Placed| possible_steps(placed, setting, &arena, libraries);
        let train_steps = job.train.as_ref().map(steps).transpose()?;
        let infer_steps = steps(&job.infer)?;
        let calls = train_steps.iter().flatten().chain(&infer_steps).flat_map(|step| &step.calls);
        let kernel = |call: &Call| match call {
            Call::Kernel(launch) => Some(launch.kernel.clone()),
            Call::Product(_) | Call::Convolution(_) => None,
        };
        let modules = Modules::new(card, calls.filter_map(kernel).collect())?;
        let binding = Binding { card, arena: &arena, modules: &modules, libraries };
        let train = job.train.as_ref().zip(train_steps.as_deref());
        let train = train.map(|(placed, steps)| Feeding::new(binding, placed, steps)).transpose()?;
        let infer = Prepared::new(binding, &job.infer, &infer_steps, 0, None)?;
        let programs = job.train.iter().chain([&job.infer]);
        let checks = programs.flat_map(|placed| index_checks(placed, batch)).collect();
        let state = job
            .train
            .as_ref()
            .and_then(|placed| placed.program.of_class(Class::State).next().map(|id| placed.offsets[id as usize]));
        Ok(Session { train, infer, has_inferred: false, is_inferring: false, modules, arena, stream, state, checks })
    }

    /// The number of kernels that were compiled for this network.
    pub fn kernels(&self) -> usize {
        self.modules.count()
    }

    /// The number of matrix products of a forward pass that go to cuBLASLt.
    pub fn products(&self) -> usize {
        self.infer.products()
    }

    /// The number of convolutions of a forward pass that go to cuDNN.
    pub fn convolutions(&self) -> usize {
        self.infer.convolutions()
    }

    /// Bytes of the one allocation on the card.
    pub fn arena_bytes(&self) -> u64 {
        self.arena.bytes
    }

    fn check(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.checks.iter().filter(|check| check.offset == offset).try_for_each(|check| check.run(bytes))
    }

    /// Waits until the card has done everything that was asked of it.
    fn wait(&self) -> Result<(), Error> {
        self.stream.context().bind_to_thread().map_err(failure("binding the context"))?;
        if let Some(train) = &self.train {
            train.wait()?;
        }
        self.stream.synchronize().map_err(failure("waiting for the card"))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Nothing may run in memory that is being freed. A failure leaves nothing to wait for.
        let _ = self.wait();
    }
}

impl Runner for Session {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.check(offset, bytes)?;
        self.wait()?;
        let address = self.arena.address(offset, bytes.len() as u64)?;
        // SAFETY: `address` checked that the range lies inside the arena, and nothing runs on the card.
        unsafe { result::memcpy_htod_sync(address, bytes) }.map_err(failure("copying to the card"))?;
        // A step without anything fed may read either half.
        let Some(shift) = self.train.as_ref().and_then(|train| train.other_half(offset)) else { return Ok(()) };
        let address = self.arena.address(offset + shift, bytes.len() as u64)?;
        // SAFETY: as above.
        unsafe { result::memcpy_htod_sync(address, bytes) }.map_err(failure("copying to the card"))
    }

    fn feed(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.check(offset, bytes)?;
        if self.is_inferring {
            self.wait()?;
            self.is_inferring = false;
        }
        match &mut self.train {
            Some(train) => train.feed(&self.arena, offset, bytes),
            None => self.write(offset, bytes),
        }
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        self.wait()?;
        let address = self.arena.address(offset, bytes.len() as u64)?;
        // SAFETY: as in `write`.
        unsafe { result::memcpy_dtoh_sync(bytes, address) }.map_err(failure("copying from the card"))
    }

    fn loss(&mut self, offset: u64) -> Result<f32, Error> {
        if let Some(loss) = self.train.as_ref().and_then(Feeding::loss) {
            return loss;
        }
        let mut loss = [0; 4];
        self.read(offset, &mut loss)?;
        Ok(f32::from_le_bytes(loss))
    }

    fn train(&mut self) -> Result<(), Error> {
        let Some(train) = &mut self.train else {
            let what = "the network has no training step; add `const TRAIN`".into();
            return Err(Error::Unsupported { device: "CUDA", what });
        };
        train.run(&self.stream)
    }

    fn infer(&mut self) -> Result<(), Error> {
        self.infer.run(&self.stream, !self.has_inferred)?;
        (self.has_inferred, self.is_inferring) = (true, true);
        Ok(())
    }

    fn set_optimizer(&mut self, optimizer: Optimizer) {
        // Only the learning rate changes between steps; it is read from device memory.
        if let Some(state) = self.state {
            let rate = (optimizer.lr() as f32).to_le_bytes();
            // A failure shows at the next step: the context keeps it.
            let _ = self.write(state + 4 * StateWord::LearningRate as u64, &rate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_may_move_to_another_thread() {
        fn moves<T: Send>() {}
        moves::<Session>();
    }
}
