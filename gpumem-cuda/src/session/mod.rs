//! A network on a card: one allocation, kernels compiled for its shapes, and each program as one replayed graph.

mod arena;
mod checks;
mod copy_streams;
mod environment;
mod exchanges;
mod graph;
mod inputs;
mod inspect;
mod losses;
mod modules;
mod profile;
mod programs;
mod ranks;
mod runner;
mod transfers;
mod warpgroups;

use crate::calls::Call;
use crate::card::Card;
use crate::context::bind;
use crate::error::failure;
use crate::libraries::cublaslt::Library;
use crate::libraries::cudnn;
use crate::libraries::nccl::Communicator;
use crate::memory_log::{Meter, Stage};
use crate::operations::attention::any as attends;
use crate::operations::conv::convolution::library::any as convolves;
use crate::operations::recurrence::whole::any as recurs;
use crate::operations::{LaunchContext, order};
use crate::warning::notice;
use arena::Arena;
use checks::{IndexChecks, Reader};
use copy_streams::Lanes;
use cudarc::driver::CudaStream;
use gpumem_core::error::Error;
use gpumem_core::memory::layout::channels_last_weights::Turned;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::StateWord;
use gpumem_core::run::device::Job;
use graph::{Binding, Libraries, Prepared};
use inputs::Feeding;
use modules::Modules;
use profile::Described;
use ranks::Group;
pub(crate) use ranks::{check_ranks, facts, ranks_of};
use std::collections::BTreeSet;
use std::sync::Arc;
use transfers::Transfers;

/// Bytes of [`StateWord::Readers`] and [`StateWord::Blocks`] between launches. With other values, blocks would wait for ever.
const NO_BLOCKS: [u8; 8] = [0; 8];
const _: () = assert!(StateWord::Blocks as usize == StateWord::Readers as usize + 1);

/// A network loaded onto a card.
#[derive(Debug)]
pub struct Session {
    // Fields are dropped in this order: graphs before the modules and the memory that they use.
    /// The training steps, and for each the program that computes its loss without an update.
    trains: Vec<Feeding>,
    evaluations: Vec<Option<Prepared>>,
    /// The index of the training step that calls refer to.
    at: usize,
    infer: Prepared,
    served: Option<Prepared>,
    /// True if work in the stream may use an input outside a step's program: a forward pass reads it, or it is being written.
    input_in_use: bool,
    modules: Modules,
    transfers: Transfers,
    /// Streams and memory for tensors in host memory; `None` if there are none.
    lanes: Option<Arc<Lanes>>,
    arena: Arena,
    stream: Arc<CudaStream>,
    /// The offset of the state of each training step.
    states: Vec<u64>,
    /// Offsets of the words with which blocks of a launch count each other, in every program's state.
    counters: BTreeSet<u64>,
    checks: IndexChecks,
    turned: Turned,
    described: Described,
    /// The other ranks; `None` if there are none.
    group: Option<Group>,
}

impl Session {
    /// Loads a network, as one of the ranks of `group`, which may take so many bytes of the card.
    pub(crate) fn new(
        card: &Card,
        job: Job,
        meter: &mut Meter<'_>,
        group: Option<(Arc<Communicator>, u64)>,
    ) -> Result<Session, Error> {
        let name = job.name;
        let made = Session::unconnected(card, job, meter, group.as_ref().map(|(group, _)| group));
        let mut session = match &group {
            Some((group, communication)) => {
                let mut session = group.agree(made, ranks::NOT_LOADED)?;
                session.connect(card, *communication)?;
                session
            }
            None => made?,
        };
        session.set_count()?;
        session.clear_counters()?;
        meter.ended(Stage::Modules)?;
        session.record(name)?;
        meter.ended(Stage::Graphs)?;
        Ok(session)
    }

    /// Loads a network without exchanges between ranks.
    fn unconnected(
        card: &Card,
        mut job: Job,
        meter: &mut Meter<'_>,
        group: Option<&Arc<Communicator>>,
    ) -> Result<Session, Error> {
        let is_offloading = job.trainings().any(|it| it.host() > 0);
        if !job.others.is_empty() && is_offloading {
            let what = format!(
                "`{}` has several training steps and `offload`, which go together on the CPU alone; remove `offload`",
                job.name
            );
            return Err(Error::Unsupported { device: "CUDA", what });
        }
        let served = job.served.as_mut().map(|served| &mut served.placed);
        let programs = job.train.iter_mut().chain(&mut job.evaluation).chain([&mut job.infer]).chain(served);
        let others = job.others.iter_mut().flat_map(|other| [&mut other.train, &mut other.evaluation]);
        let programs = programs.chain(others);
        order(&mut programs.collect::<Vec<_>>(), job.precision, card.capability);
        let Job { batch, precision, optimizer, tf32, deterministic, operations, .. } = job;
        let others = || job.others.iter().flat_map(|other| [&other.train, &other.evaluation]);
        let programs = job.train.iter().chain(&job.evaluation).chain([&job.infer]).chain(others());
        let turned = Turned::new(programs.chain(job.served.iter().map(|served| &served.placed)), precision)?;
        bind(&card.context)?;
        let stream = card.context.new_stream().map_err(failure("making a stream"))?;
        meter.ended(Stage::Modules)?;
        let arena = Arena::new(card, job.arena)?;
        let offloading = job.train.as_ref().filter(|placed| placed.host() > 0);
        let lanes = offloading.map(|placed| Lanes::new(&card.context, placed).map(Arc::new)).transpose()?;
        meter.ended(Stage::Arena)?;
        let products = if card.library { Library::new(&stream, card.autotune)? } else { None };
        // A library's handle takes memory of the card, so it is made only if it is used.
        let attends = |placed: &Placed| attends(placed, precision, card.capability) && !deterministic;
        let recurs = |placed: &Placed| recurs(placed) && !deterministic;
        let convolves = |placed: &Placed| convolves(placed, precision, card.capability);
        let is_used = |placed: &Placed| convolves(placed) || attends(placed) || recurs(placed);
        let convolves = card.cudnn && job.train.iter().chain([&job.infer]).chain(others()).any(is_used);
        let convolutions = if convolves { cudnn::Library::new(&stream, card.autotune)? } else { None };
        meter.ended(Stage::Handles)?;
        let (capability, library, cudnn) = (card.capability, products.is_some(), convolutions.is_some());
        // Blocks that wait for each other must find room beside those of an exchange.
        let multiprocessors = card.waiting().saturating_sub(group.map_or(0, |group| group.channels() as u32));
        let setting = LaunchContext {
            batch,
            precision,
            optimizer,
            capability,
            multiprocessors,
            tf32,
            deterministic,
            library,
            cudnn,
            rank: group.map_or(0, |group| group.rank()),
            operations,
        };
        let libraries = Libraries { products: products.as_ref(), convolutions: convolutions.as_ref() };
        let (mut calls, mut modules) = programs::load(card, &job, setting, (&arena, libraries), meter)?;
        warpgroups::choose(card, (&job, setting), (&arena, &stream), &mut calls, &mut modules)?;
        meter.ended(Stage::Modules)?;
        let binding = Binding { card, arena: &arena, modules: &modules, libraries, lanes: lanes.as_ref(), group };
        let first = job.train.as_ref().zip(calls.train.as_deref());
        let further = job.others.iter().zip(&calls.others).map(|(other, [train, _])| (&other.train, &**train));
        let numbered = first.into_iter().chain(further).enumerate();
        let feeding = |(number, (placed, steps))| Feeding::new(binding, number, placed, steps);
        let trains = numbered.map(feeding).collect::<Result<Vec<Feeding>, Error>>()?;
        let prepare = |(placed, steps)| Prepared::new(binding, placed, steps, 0, None);
        let first = job.evaluation.as_ref().zip(calls.evaluation.as_deref());
        let mut evaluations = Vec::from([first.map(prepare).transpose()?]);
        for (other, [_, evaluation]) in job.others.iter().zip(&calls.others) {
            evaluations.push(Some(prepare((&other.evaluation, &**evaluation))?));
        }
        let infer = Prepared::new(binding, &job.infer, &calls.infer, 0, None)?;
        let served = job.served.as_ref().map(|served| &served.placed).zip(calls.served.as_deref());
        let served = served.map(prepare).transpose()?;
        // The second half of a double buffer has other addresses, for which the libraries may choose other kernels.
        meter.ended(Stage::Trials)?;
        let halves: Vec<u64> = trains.iter().map(Feeding::half_bytes).collect();
        let checks = IndexChecks::new(&job, &halves);
        let state = |placed: &Placed| Some(placed.offsets[placed.program.state()? as usize]);
        let served_program = job.served.iter().map(|served| &served.placed);
        let programs =
            job.train.iter().chain(&job.evaluation).chain([&job.infer]).chain(served_program).chain(others());
        let counter = |state: u64| state + 4 * StateWord::Readers as u64;
        let counters: BTreeSet<u64> = programs.filter_map(state).map(counter).collect();
        let states: Vec<u64> = job.trainings().filter_map(state).collect();
        let transfers = Transfers::new(&stream)?;
        let group = group.map(|group| Group::new(group.clone(), &job)).transpose()?;
        Ok(Session {
            trains,
            evaluations,
            at: 0,
            infer,
            served,
            input_in_use: false,
            modules,
            transfers,
            lanes,
            arena,
            stream,
            states,
            counters,
            checks,
            turned,
            described: Described { job, calls, setting },
            group,
        })
    }

    /// Captures each program of the network into a graph, or prints a notice that there will be none.
    fn record(&mut self, name: &str) -> Result<(), Error> {
        let captured = self.capture();
        if let Err(error) = self.agree_to_replay(captured)? {
            // If the card is broken, this returns the error.
            self.discard_graphs()?;
            notice(&format!("the steps of `{name}` could not be captured and are launched call by call: {error}"));
        }
        Ok(())
    }

    fn capture(&mut self) -> Result<(), Error> {
        self.trains.iter_mut().try_for_each(|train| train.capture(&self.stream))?;
        for program in self.evaluations.iter_mut().flatten().chain([&mut self.infer]).chain(&mut self.served) {
            program.capture(&self.stream)?;
        }
        self.wait()
    }

    /// Discards all graphs, so that calls are launched one by one. All are discarded, so that a step does not depend on the half of the input that
    /// it reads.
    fn discard_graphs(&mut self) -> Result<(), Error> {
        self.trains.iter_mut().for_each(Feeding::discard_graphs);
        let others = self.evaluations.iter_mut().flatten().chain([&mut self.infer]).chain(&mut self.served);
        others.for_each(Prepared::discard_graph);
        self.wait()
    }

    /// True if its programs are replayed from graphs.
    pub(crate) fn has_graphs(&self) -> bool {
        self.infer.has_graph()
    }

    /// Returns the number of kernels that were compiled for this network.
    pub fn kernels(&self) -> usize {
        self.modules.count()
    }

    /// Returns the number of matrix products of a forward pass that cuBLASLt computes. [`Session::profile`] lists those of every program.
    pub fn products(&self) -> usize {
        self.infer.products()
    }

    /// Returns the number of convolutions of a forward pass that cuDNN computes.
    pub fn convolutions(&self) -> usize {
        self.infer.convolutions()
    }

    /// Returns the number of attention layers of a forward pass that cuDNN computes.
    pub fn attentions(&self) -> usize {
        self.infer.attentions()
    }

    /// Returns the number of attention layers of a forward pass that run on Hopper's warpgroup instructions: see [`Cuda::with_wgmma`].
    ///
    /// [`Cuda::with_wgmma`]: crate::Cuda::with_wgmma
    pub fn warpgroup_attentions(&self) -> usize {
        let calls = self.described.calls.infer.iter().flat_map(|step| &step.calls);
        calls.filter(|call| matches!(call, Call::Kernel(launch) if launch.kernel.is_of_one_architecture())).count()
    }

    /// Returns the number of passes of recurrent layers in a training step, forward and backward, that cuDNN computes.
    pub fn recurrences(&self) -> usize {
        self.trains.iter().map(Feeding::recurrences).sum()
    }

    /// Returns the bytes of the one allocation on the card.
    pub fn arena_bytes(&self) -> u64 {
        self.arena.bytes
    }

    /// Resets the words with which blocks of a launch count each other.
    fn clear_counters(&mut self) -> Result<(), Error> {
        let mut counters = self.counters.iter();
        counters.try_for_each(|&counter| self.transfers.write(&self.arena, counter, None, &NO_BLOCKS))
    }

    /// Writes the number of losses sent so far to the card.
    fn set_count(&mut self) -> Result<(), Error> {
        let mut counts = self.trains.iter().filter_map(Feeding::count);
        counts.try_for_each(|(offset, count)| self.transfers.write(&self.arena, offset, None, &count))
    }

    /// Checks the indices that a program reads.
    ///
    /// # Errors
    /// An index that is too large, in a tensor that was written in part, or never.
    fn check_indices(&mut self, reader: Reader) -> Result<(), Error> {
        while let Some((offset, bytes)) = self.checks.unknown(reader) {
            let length = usize::try_from(bytes).map_err(|_| outside(offset, &[]))?;
            let mut found = vec![0; length];
            self.follow_feeds()?;
            self.transfers.read(&self.arena, offset, &mut found)?;
            self.checks.look(reader, offset, &found)?;
        }
        Ok(())
    }

    /// Checks the indices that the next training step reads.
    fn check_step(&mut self) -> Result<(), Error> {
        let Some(train) = self.trains.get(self.at) else { return Ok(()) };
        let checked = self.check_indices(train.reader());
        if let (Err(_), Some(train)) = (&checked, self.trains.get_mut(self.at)) {
            train.restart();
        }
        checked
    }

    /// Copies `bytes` to `offset` in the arena. Bytes of an input or target of a training step are also copied to the second half of the double
    /// buffer.
    fn write_arena(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let length = bytes.len() as u64;
        self.checks.forget(offset, length);
        // A step without new input may read either half. With several training steps, others have their activations there.
        let only = self.trains.first().filter(|_| self.trains.len() == 1);
        let mirrored = only.and_then(|train| train.in_first_half(offset, length));
        let mirrored = mirrored.filter(|(part, _)| !part.is_empty());
        self.input_in_use |= self.trains.len() > 1 || only.is_some_and(|train| train.is_fed(offset, length));
        let Some((part, shift)) = mirrored else {
            self.transfers.write(&self.arena, offset, None, bytes)?;
            self.checks.written(offset, bytes);
            return Ok(());
        };
        let (second, part) = (offset + part.start as u64 + shift, &bytes[part]);
        self.checks.forget(second, part.len() as u64);
        if part.len() == bytes.len() {
            self.transfers.write(&self.arena, offset, Some(second), bytes)?;
        } else {
            self.transfers.write(&self.arena, offset, None, bytes)?;
            self.transfers.write(&self.arena, second, None, part)?;
        }
        self.checks.written(offset, bytes);
        self.checks.written(second, part);
        Ok(())
    }

    /// Makes later work in the stream wait for the copies of inputs so far.
    fn follow_feeds(&self) -> Result<(), Error> {
        bind(self.stream.context())?;
        self.trains.iter().try_for_each(|train| train.lead(&self.stream))
    }

    /// Waits until the card has done all enqueued work.
    fn wait(&mut self) -> Result<(), Error> {
        bind(self.stream.context())?;
        self.trains.iter().try_for_each(Feeding::wait)?;
        self.transfers.wait()
    }
}

/// Returns the error for a place in host memory of a network that has none.
fn outside(offset: u64, bytes: &[u8]) -> Error {
    Error::Range { offset, length: bytes.len() as u64, arena: 0 }
}

/// Returns the error for training a network without `TRAIN`.
fn untrained() -> Error {
    Error::Unsupported { device: "CUDA", what: "the network has no training step; add `const TRAIN`".into() }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Nothing may run in memory that is being freed. A failure leaves nothing to wait for.
        let _ = match self.communicator() {
            Some(communicator) => communicator.timed(|| self.wait()),
            None => self.wait(),
        };
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
