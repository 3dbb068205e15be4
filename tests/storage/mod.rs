//! A device for tests of what the host writes and reads.

use gpumem::__private::run::device::{Device, Job, Runner};
use gpumem::Error;
use gpumem::optim::Optimizer;

/// A device that holds the arena, and what it was asked for, and computes nothing.
pub struct Storage;

/// The arena, and the job.
pub struct Held(pub Vec<u8>, #[allow(dead_code, reason = "not every test asks for it")] pub Job);

impl Device for Storage {
    type Runner = Held;

    fn load(&self, job: Job) -> Result<Held, Error> {
        Ok(Held(vec![0xff; job.arena as usize], job))
    }
}

impl Runner for Held {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.0[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        bytes.copy_from_slice(&self.0[offset as usize..][..bytes.len()]);
        Ok(())
    }

    fn train(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn evaluate(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn infer(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn set_optimizer(&mut self, _: Optimizer) -> Result<(), Error> {
        Ok(())
    }
}
