//! A network loaded onto the CPU.

use crate::DEVICE;
use crate::arena::Arena;
use crate::kernels::Frame;
use crate::kernels::optimizer::is_known;
use crate::load::Loaded;
use gpumem_core::Precision;
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::memory::turned::Turned;
use gpumem_core::run::device::{Fill, Inspected, Job, Runner, Served};
use gpumem_core::train::optim::Optimizer;
use rayon::ThreadPool;
use std::fmt;
use std::sync::Arc;

/// What is said of a network without `TRAIN` that is to be trained.
const UNTRAINED: &str = "was compiled without training; give it a `const TRAIN`";

/// A network loaded onto the CPU: an arena and the programs that run in it.
pub struct Session {
    name: &'static str,
    machine: Machine,
    turned: Turned,
    /// Parts of a batch that were added up for the step that is under way.
    parts: u64,
    /// Where a training step leaves its loss, and what it was in the last one: what runs in between has its own numbers there.
    loss: Option<(u64, f32)>,
    train: Option<Loaded>,
    evaluation: Option<Loaded>,
    infer: Loaded,
    served: Option<Loaded>,
}

impl Session {
    pub(crate) fn new(job: Job, pool: Option<Arc<ThreadPool>>, poison: bool) -> Result<Session, Error> {
        if job.precision != Precision::F32 {
            let (name, precision) = (job.name, job.precision.name());
            let what = format!(
                "`{name}` has precision {precision}, but it runs F32 only; `Cpu::new().emulate()` runs it in F32"
            );
            return Err(Error::Unsupported { device: DEVICE, what });
        }
        let host = job.train.as_ref().map_or(0, Placed::host);
        let arena = Arc::new(Arena::with_host(job.arena, host)?);
        let load = |placed: &Placed, batch: u64| Loaded::new(placed, &arena, batch, job.operations);
        let train = job.train.as_ref().map(|placed| load(placed, job.batch)).transpose()?;
        let evaluation = job.evaluation.as_ref().map(|placed| load(placed, job.batch)).transpose()?;
        let infer = load(&job.infer, job.batch)?;
        let served = job.served.as_ref().map(|Served { placed, batch }| load(placed, *batch)).transpose()?;
        let programs = job.train.iter().chain(&job.evaluation).chain([&job.infer]);
        let programs = programs.chain(job.served.as_ref().map(|served| &served.placed));
        let turned = Turned::new(programs, job.precision)?;
        let loss_of = |placed: &Placed| {
            let offset = placed.offsets.get(*placed.program.results.first()? as usize)?;
            Some((*offset, f32::NAN))
        };
        let loss = job.train.as_ref().and_then(loss_of);
        let Job { name, optimizer, .. } = job;
        let machine = Machine { arena, optimizer, pool, poison, scratch: Vec::new(), planes: Vec::new() };
        Ok(Session { name, machine, turned, parts: 0, loss, train, evaluation, infer, served })
    }

    fn train_with(&mut self, inspected: Option<&mut Inspected>) -> Result<(), Error> {
        let Some(program) = &mut self.train else {
            return Err(self.unsupported(UNTRAINED));
        };
        if !is_known(&self.machine.optimizer) {
            return Err(self.unsupported("has an optimizer that has no rule here; train it on another device"));
        }
        if !program.keeps(&self.machine.optimizer) {
            let what = "keeps less optimizer state than this optimizer needs; name the optimizer in `TRAIN`";
            return Err(self.unsupported(what));
        }
        crate::notice::training();
        if program.accumulates() {
            program.begin(&self.machine.arena, self.parts as u32)?;
        }
        self.parts = 0;
        self.machine.run(program, false, inspected)?;
        if let Some((offset, loss)) = &mut self.loss {
            let mut bytes = [0; 4];
            // SAFETY: as in `write`.
            unsafe { self.machine.arena.read(*offset, &mut bytes) }?;
            *loss = f32::from_le_bytes(bytes);
        }
        Ok(())
    }

    fn accumulate_with(&mut self, part: u64, inspected: Option<&mut Inspected>) -> Result<(), Error> {
        let Some(program) = self.train.as_mut().filter(|program| program.accumulates()) else {
            return Err(self.unsupported("was compiled for whole batches; give it `micro_batches` in `TRAIN`"));
        };
        self.parts = 0;
        program.begin(&self.machine.arena, part as u32)?;
        self.machine.run(program, true, inspected)?;
        self.parts = part + 1;
        Ok(())
    }

    fn unsupported(&self, what: &str) -> Error {
        Error::Unsupported { device: DEVICE, what: format!("`{}` {what}", self.name) }
    }
}

/// What runs the programs of a session.
struct Machine {
    arena: Arc<Arena>,
    optimizer: Optimizer,
    pool: Option<Arc<ThreadPool>>,
    poison: bool,
    scratch: Vec<f32>,
    planes: Vec<f32>,
}

impl Machine {
    /// Runs a program on the session's threads, or with `repeated` what of it runs for each part of a batch, if the indices among its inputs
    /// are valid.
    fn run(&mut self, program: &mut Loaded, repeated: bool, inspected: Option<&mut Inspected>) -> Result<(), Error> {
        program.check()?;
        let Machine { arena, optimizer, pool, poison, scratch, planes } = self;
        let frame = Frame { optimizer, scratch, planes };
        match pool {
            Some(pool) => pool.install(|| program.run(arena, frame, (repeated, *poison), inspected)),
            None => program.run(arena, frame, (repeated, *poison), inspected),
        }
        Ok(())
    }
}

impl Runner for Session {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let bytes = self.turned.stored(offset, bytes)?;
        // SAFETY: slices over the arena live inside kernels only, and none runs while the session is borrowed here.
        unsafe { self.machine.arena.write(offset, &bytes) }
    }

    fn feed_with(&mut self, offset: u64, length: usize, put: &Fill<'_>) -> Result<(), Error> {
        // Inputs and targets lie here as the host has them.
        // SAFETY: as in `write`.
        unsafe { self.machine.arena.write_with(offset, length as u64, put) }
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        // SAFETY: as in `write`.
        unsafe { self.machine.arena.read(offset, bytes) }?;
        self.turned.seen(offset, bytes)
    }

    fn train(&mut self) -> Result<(), Error> {
        self.train_with(None)
    }

    fn loss(&mut self, offset: u64) -> Result<f32, Error> {
        match self.loss {
            Some((own, loss)) if own == offset => Ok(loss),
            _ => Err(self.unsupported(UNTRAINED)),
        }
    }

    fn accumulate(&mut self, part: u64) -> Result<(), Error> {
        self.accumulate_with(part, None)
    }

    fn inspect(&mut self, part: Option<u64>) -> Result<Inspected, Error> {
        let mut inspected = Inspected::default();
        match part {
            Some(part) => self.accumulate_with(part, Some(&mut inspected))?,
            None => self.train_with(Some(&mut inspected))?,
        }
        Ok(inspected)
    }

    fn evaluate(&mut self) -> Result<(), Error> {
        let Some(program) = &mut self.evaluation else { return Err(self.unsupported(UNTRAINED)) };
        self.machine.run(program, false, None)
    }

    fn infer(&mut self) -> Result<(), Error> {
        self.machine.run(&mut self.infer, false, None)
    }

    fn serve(&mut self) -> Result<(), Error> {
        let Some(program) = &mut self.served else { return Err(self.unsupported("was loaded without it")) };
        self.machine.run(program, false, None)
    }

    fn set_optimizer(&mut self, optimizer: Optimizer) -> Result<(), Error> {
        self.machine.optimizer = optimizer;
        Ok(())
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("name", &self.name)
            .field("arena", &self.machine.arena.bytes())
            .field("optimizer", &self.machine.optimizer)
            .field("poison", &self.machine.poison)
            .finish_non_exhaustive()
    }
}
