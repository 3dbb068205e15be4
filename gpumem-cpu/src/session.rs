//! Sessions: networks loaded onto the CPU.

use crate::DEVICE;
use crate::arena::Arena;
use crate::kernels::Frame;
use crate::load::Loaded;
use crate::ranks::{self, Group, Peers};
use gpumem_core::Precision;
use gpumem_core::error::Error;
use gpumem_core::memory::layout::channels_last_weights::Turned;
use gpumem_core::memory::layout::shards::{Shard as TensorShard, Shards};
use gpumem_core::memory::place::Placed;
use gpumem_core::run::device::{Fill, Inspected, Job, OtherStep, Runner, Served};
use gpumem_core::train::optim::{Optimizer, Sgd};
use rayon::ThreadPool;
use std::fmt;
use std::sync::Arc;

/// The message for training a network without `TRAIN`.
const UNTRAINED: &str = "was compiled without training; give it a `const TRAIN`";

/// A network loaded onto the CPU: an arena and the programs that run in it.
pub struct Session {
    name: &'static str,
    machine: Machine,
    turned: Turned,
    /// The other ranks. `None` if there are none.
    group: Option<Group>,
    /// The tensors of which this rank has a shard.
    shards: Shards,
    /// The training steps. Empty for a network without training.
    steps: Vec<TrainingPrograms>,
    /// The index of the selected training step.
    at: usize,
    infer: Loaded,
    served: Option<Loaded>,
}

/// A training step.
struct TrainingPrograms {
    train: Loaded,
    evaluation: Option<Loaded>,
    optimizer: Optimizer,
    /// The parts of a batch that have been accumulated for the current step.
    parts: u64,
    /// The offset of its loss, and the loss of the last step. Other passes overwrite the loss in the arena.
    loss: Option<(u64, f32)>,
}

impl Session {
    /// Loads a network, as one of the ranks of `group`.
    pub(crate) fn new(
        job: Job,
        pool: Option<Arc<ThreadPool>>,
        poison: bool,
        group: Option<Group>,
    ) -> Result<Session, Error> {
        check_ranks(&job, group.as_ref())?;
        if job.precision != Precision::F32 {
            let (name, precision) = (job.name, job.precision.name());
            let what = format!(
                "`{name}` has precision {precision}, but it runs F32 only; `Cpu::new().emulate()` runs it in F32"
            );
            return Err(Error::Unsupported { device: DEVICE, what });
        }
        let host = job.trainings().map(Placed::host).max().unwrap_or(0);
        let arena = Arc::new(Arena::with_host(job.arena, host)?);
        let load_with = |placed: &Placed, batch: u64, copies: bool| {
            Loaded::new(placed, &arena, batch, (job.operations, group.as_ref(), copies))
        };
        let load = |placed: &Placed, batch: u64| load_with(placed, batch, false);
        let step =
            |train: &Placed, evaluation: Option<&Placed>, batch: u64, optimizer: Optimizer| -> Result<_, Error> {
                let result = train.program.results.first().and_then(|&result| train.offsets.get(result as usize));
                let loss = result.map(|&offset| (offset, f32::NAN));
                let evaluation = evaluation.map(|placed| load(placed, batch)).transpose()?;
                Ok(TrainingPrograms { train: load(train, batch)?, evaluation, optimizer, parts: 0, loss })
            };
        let first = job.train.as_ref().map(|train| step(train, job.evaluation.as_ref(), job.batch, job.optimizer));
        let others_loaded = job.others.iter().map(|OtherStep { train, evaluation, batch, optimizer, .. }| {
            step(train, Some(evaluation), *batch, *optimizer)
        });
        let steps = first.into_iter().chain(others_loaded).collect::<Result<Vec<TrainingPrograms>, Error>>()?;
        // Evaluation mostly follows a training step, so that copies of parameters would be old.
        let infer = load_with(&job.infer, job.batch, true)?;
        let served = job.served.as_ref().map(|Served { placed, batch }| load_with(placed, *batch, true)).transpose()?;
        let programs = job.train.iter().chain(&job.evaluation).chain([&job.infer]);
        let programs = programs.chain(job.others.iter().flat_map(|other| [&other.train, &other.evaluation]));
        let programs = programs.chain(job.served.as_ref().map(|served| &served.placed));
        let shards = Shards::new(job.trainings(), job.precision)?;
        let turned = Turned::new(programs, job.precision)?;
        let peers = group.as_ref().filter(|_| job.train.is_some()).map(|(peers, _)| peers.clone());
        let (scratch, planes) = (Vec::new(), Vec::new());
        let machine = Machine { arena, pool, poison, peers, version: 0, scratch, planes };
        Ok(Session { name: job.name, machine, turned, group, shards, steps, at: 0, infer, served })
    }

    /// Returns the selected training step.
    fn step(&mut self) -> Result<(&mut Machine, &mut TrainingPrograms), Error> {
        let Session { name, machine, steps, at, .. } = self;
        let untrained = || unsupported(name, UNTRAINED);
        steps.get_mut(*at).map(|step| (machine, step)).ok_or_else(untrained)
    }

    fn train_with(&mut self, inspected: Option<&mut Inspected>) -> Result<(), Error> {
        let name = self.name;
        let (machine, TrainingPrograms { train, optimizer, parts, loss, .. }) = self.step()?;
        if !train.keeps(optimizer) {
            let what = "keeps less optimizer state than this optimizer needs; name the optimizer in `TRAIN`";
            return Err(unsupported(name, what));
        }
        crate::notice::training();
        machine.version += 1;
        if train.is_split() {
            train.begin(&machine.arena, *parts as u32)?;
        }
        *parts = 0;
        machine.run(train, optimizer, (false, true), inspected)?;
        if let Some((offset, loss)) = loss {
            let mut bytes = [0; 4];
            // SAFETY: as in `write`.
            unsafe { machine.arena.read(*offset, &mut bytes) }?;
            *loss = f32::from_le_bytes(bytes);
        }
        Ok(())
    }

    fn accumulate_with(&mut self, part: u64, inspected: Option<&mut Inspected>) -> Result<(), Error> {
        let whole = unsupported(self.name, "was compiled for whole batches; give it `micro_batches` in `TRAIN`");
        let Some((machine, step)) = self.step().ok().filter(|(_, step)| step.train.accumulates()) else {
            return Err(whole);
        };
        step.parts = 0;
        machine.version += 1;
        step.train.begin(&machine.arena, part as u32)?;
        machine.run(&mut step.train, &step.optimizer, (true, true), inspected)?;
        step.parts = part + 1;
        Ok(())
    }

    fn unsupported(&self, what: &str) -> Error {
        unsupported(self.name, what)
    }

    /// Counts a new version of the parameters if kernels keep a copy of one that has some of these bytes.
    fn change(&mut self, offset: u64, length: usize) {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = start..start.saturating_add(length);
        if self.infer.copies(&bytes) || self.served.as_ref().is_some_and(|served| served.copies(&bytes)) {
            self.machine.version += 1;
        }
    }

    /// Keeps this rank's shard of a whole tensor.
    fn write_shard(&mut self, offset: u64, bytes: &[u8], shard: TensorShard) -> Result<(), Error> {
        let rank = self.group.as_ref().map_or(0, |(peers, _)| peers.rank());
        let turned = self.turned.stored_whole(offset, bytes);
        let own = &turned.as_deref().unwrap_or(bytes)[shard.of(rank)];
        // SAFETY: as in `write`.
        unsafe { self.machine.arena.write(offset, own) }
    }

    /// Gathers the shards of all ranks, which all call it.
    fn read_shards(&mut self, offset: u64, bytes: &mut [u8], shard: TensorShard) -> Result<(), Error> {
        let Some((peers, _)) = &self.group else { return Err(Error::Damaged("one rank has a shard")) };
        let mut own = vec![0; shard.bytes];
        // SAFETY: as in `write`.
        unsafe { self.machine.arena.read(offset, &mut own) }?;
        let (words, _) = own.as_chunks::<4>();
        let own: Vec<f32> = words.iter().map(|&word| f32::from_le_bytes(word)).collect();
        let mut all = vec![0.0; own.len() * peers.count() as usize];
        peers.gather(&own, &mut all)?;
        bytes.chunks_exact_mut(4).zip(all).for_each(|(to, number)| to.copy_from_slice(&number.to_le_bytes()));
        self.turned.seen_whole(offset, bytes);
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some((peers, _)) = &self.group {
            peers.leave(ranks::UNLOADED);
        }
    }
}

/// Fails if a network was compiled for another number of ranks than the device has.
fn check_ranks(job: &Job, group: Option<&Group>) -> Result<(), Error> {
    let Some(train) = &job.train else { return Ok(()) };
    let (compiled, ranks) = (train.program.descent.ranks, group.map_or(1, |(peers, _)| peers.count()));
    let what = match (compiled.count, ranks) {
        (own, there) if own == there => return Ok(()),
        (1, there) => {
            format!("was compiled for one rank, and the device is one of {there}; write `ranks: {there}` in `TRAIN`")
        }
        (own, 1) => format!(
            "was compiled for {own} ranks; start them with `mpirun -np {own}` and open `Cpu::on(&ranks)`, open a device for each with \
             `Cpu::ranks({own})`, or build with `GPUMEM_RANKS=1`"
        ),
        (own, there) => {
            format!("was compiled for {own} ranks, and there are {there}; build with `GPUMEM_RANKS={there}`")
        }
    };
    Err(unsupported(job.name, &what))
}

/// Returns an error for something that a network does not support on this device.
fn unsupported(name: &str, what: &str) -> Error {
    Error::Unsupported { device: DEVICE, what: format!("`{name}` {what}") }
}

/// A placeholder optimizer for passes that update nothing.
const NO_OPTIMIZER: Optimizer = Optimizer::Sgd(Sgd::DEFAULT);

/// The arena, threads and scratch memory that run the programs of a session.
struct Machine {
    arena: Arc<Arena>,
    pool: Option<Arc<ThreadPool>>,
    poison: bool,
    /// The ranks that share the training steps.
    peers: Option<Arc<dyn Peers>>,
    /// See [`Frame::version`].
    version: u64,
    scratch: Vec<f32>,
    planes: Vec<f32>,
}

impl Machine {
    /// Runs a program on the session's threads, if the indices among its inputs are valid. With `repeated`, it runs only the operations for each
    /// part of a batch. With `shared`, all ranks run it together, or none does.
    fn run(
        &mut self,
        program: &mut Loaded,
        optimizer: &Optimizer,
        (repeated, shared): (bool, bool),
        inspected: Option<&mut Inspected>,
    ) -> Result<(), Error> {
        let checked = program.check();
        if let Some(peers) = self.peers.as_ref().filter(|_| shared) {
            peers.agree(checked.is_err())?;
        }
        checked?;
        let Machine { arena, pool, poison, peers, version, scratch, planes } = self;
        let frame = Frame { optimizer, version: *version, scratch, planes };
        match pool {
            Some(pool) => pool.install(|| program.run(arena, frame, (repeated, *poison), inspected)),
            None => program.run(arena, frame, (repeated, *poison), inspected),
        }
        peers.as_ref().filter(|_| shared).and_then(|peers| peers.failure()).map_or(Ok(()), Err)
    }
}

impl Runner for Session {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.change(offset, bytes.len());
        if let Some(shard) = self.shards.find(offset, bytes.len())? {
            return self.write_shard(offset, bytes, shard);
        }
        let bytes = self.turned.stored(offset, bytes)?;
        // SAFETY: slices over the arena live inside kernels only, and no kernel runs while the session is borrowed here.
        unsafe { self.machine.arena.write(offset, &bytes) }
    }

    fn feed_with(&mut self, offset: u64, length: usize, put: &Fill<'_>) -> Result<(), Error> {
        self.change(offset, length);
        // Inputs and targets have the same bytes as on the host.
        // SAFETY: as in `write`.
        unsafe { self.machine.arena.write_with(offset, length as u64, put) }
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        if let Some(shard) = self.shards.find(offset, bytes.len())? {
            return self.read_shards(offset, bytes, shard);
        }
        // SAFETY: as in `write`.
        unsafe { self.machine.arena.read(offset, bytes) }?;
        self.turned.seen(offset, bytes)
    }

    fn select(&mut self, step: usize) -> Result<(), Error> {
        // Without training there is no step to select, and a later call to train returns the error.
        if step > 0 && step >= self.steps.len() {
            return Err(self.unsupported("was loaded without this training step"));
        }
        self.at = step;
        Ok(())
    }

    fn train(&mut self) -> Result<(), Error> {
        self.train_with(None)
    }

    fn loss(&mut self, offset: u64) -> Result<f32, Error> {
        match self.steps.get(self.at).and_then(|step| step.loss) {
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
        let Session { name, machine, steps, at, .. } = self;
        let step = steps.get_mut(*at).and_then(|step| Some((step.evaluation.as_mut()?, step.loss)));
        let Some((program, loss)) = step else { return Err(unsupported(name, UNTRAINED)) };
        machine.run(program, &NO_OPTIMIZER, (false, true), None)?;
        let (Some(peers), Some((offset, _))) = (&machine.peers, loss) else { return Ok(()) };
        // Each rank has its share of the loss.
        let mut bytes = [0; 4];
        // SAFETY: as in `write`.
        unsafe { machine.arena.read(offset, &mut bytes) }?;
        let mut loss = [f32::from_le_bytes(bytes)];
        peers.sum(&mut loss)?;
        // SAFETY: as in `write`.
        unsafe { machine.arena.write(offset, &loss[0].to_le_bytes()) }
    }

    fn infer(&mut self) -> Result<(), Error> {
        // A pass that gathers parameters is one of all ranks.
        let is_shared = self.infer.exchanges();
        self.machine.run(&mut self.infer, &NO_OPTIMIZER, (false, is_shared), None)
    }

    fn serve(&mut self) -> Result<(), Error> {
        let Some(program) = &mut self.served else { return Err(self.unsupported("was loaded without it")) };
        self.machine.run(program, &NO_OPTIMIZER, (false, false), None)
    }

    fn rank(&self) -> [u64; 2] {
        self.machine.peers.as_ref().map_or([0, 1], |peers| [peers.rank(), peers.count()])
    }

    fn any_rank(&mut self, condition: bool) -> Result<bool, Error> {
        let Some(peers) = &self.machine.peers else { return Ok(condition) };
        let mut votes = [f32::from(u8::from(condition))];
        peers.sum(&mut votes)?;
        Ok(votes[0] > 0.0)
    }

    fn set_optimizer(&mut self, optimizer: Optimizer) -> Result<(), Error> {
        if let Some(step) = self.steps.get_mut(self.at) {
            step.optimizer = optimizer;
        }
        Ok(())
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("name", &self.name)
            .field("arena", &self.machine.arena.bytes())
            .field("steps", &self.steps.len())
            .field("poison", &self.machine.poison)
            .finish_non_exhaustive()
    }
}
