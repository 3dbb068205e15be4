//! Measurement of a training step: the time and the algorithm of each launch. Training itself calls none of these functions.

use super::arena::{Arena, Pinned};
use super::graph::Prepared;
use super::inputs::Feeding;
use super::programs::Calls;
use super::{Session, bind};
use crate::error::failure;
use crate::libraries::driver::elapsed_us;
use crate::operations::LaunchContext;
use crate::profile::{Launched, Profile, Program};
use crate::program_calls::OperationCalls;
use crate::traffic::{Counted, counted};
use cudarc::driver::sys::{CUdeviceptr, CUevent_flags};
use cudarc::driver::{CudaEvent, CudaStream, result};
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::run::device::{Job, Runner};
use std::sync::Arc;

/// Steps before those that are timed, so that caches and clocks settle.
const WARM_UP: usize = 2;

/// Bytes that are copied to the host before each timed launch, which takes some 80 to 160 microseconds.
const HELD: u64 = 4 << 20;

/// The name of the training step.
const TRAIN: &str = "train";

/// The job, calls and settings from which a session's programs were made.
#[derive(Debug)]
pub(super) struct Described {
    pub(super) job: Job,
    pub(super) calls: Calls,
    pub(super) setting: LaunchContext,
}

impl Described {
    /// Returns the launches of a program, by its name, each with the number of its runs in a step.
    fn launches(&self, name: &str) -> Vec<(Counted, u64)> {
        let Described { job, calls, setting } = self;
        let all = |placed: &Placed, steps: &[OperationCalls], batch| -> Vec<(Counted, u64)> {
            let (parts, repeated) = (placed.program.descent.micro_batches, placed.program.repeated());
            let counted = |step: &OperationCalls| {
                let is_repeated = name == TRAIN && step.operations()[0] < repeated;
                let runs = if is_repeated { parts } else { 1 };
                counted(placed, LaunchContext { batch, ..*setting }, step)
                    .into_iter()
                    .map(move |counted| (counted, runs))
            };
            steps.iter().flat_map(counted).collect()
        };
        let (placed, steps, batch) = match name {
            TRAIN => (job.train.as_ref(), calls.train.as_ref(), job.batch),
            "evaluation" => (job.evaluation.as_ref(), calls.evaluation.as_ref(), job.batch),
            "infer" => (Some(&job.infer), Some(&calls.infer), job.batch),
            _ => {
                let served = job.served.as_ref();
                (served.map(|it| &it.placed), calls.served.as_ref(), served.map_or(0, |it| it.batch))
            }
        };
        placed.zip(steps).map_or(Vec::new(), |(placed, steps)| all(placed, steps, batch))
    }

    /// Returns a bound program, with the time of each launch, if it was timed.
    fn program(&self, name: &'static str, bound: &Prepared, us: Vec<Vec<f64>>) -> Result<Program, Error> {
        let (counted, choices) = (self.launches(name), bound.choices());
        if counted.len() != choices.len() {
            return Err(Error::Damaged("a program has another number of launches than was counted"));
        }
        let us = us.into_iter().chain(std::iter::repeat(Vec::new()));
        let launches = counted.into_iter().zip(choices).zip(us);
        let launches = launches.map(|(((counted, runs), choice), us)| Launched { counted, choice, runs, us }).collect();
        Ok(Program { name, launches, graphs: bound.nodes()?.into_iter().collect() })
    }
}

/// A copy that keeps the card busy while a launch is enqueued after it, and changes nothing on the card. So the time between two events is that of
/// the launch, not of the host's call.
struct Hold<'a> {
    from: CUdeviceptr,
    to: Pinned,
    bytes: usize,
    stream: &'a CudaStream,
}

impl Hold<'_> {
    fn new<'a>(arena: &Arena, stream: &'a CudaStream) -> Result<Hold<'a>, Error> {
        let bytes = arena.bytes.min(HELD);
        let (from, bytes) = (arena.address(0, bytes)?, bytes as usize);
        Ok(Hold { from, to: Pinned::new(stream.context(), bytes)?, bytes, stream })
    }

    fn start(&self) -> Result<(), Error> {
        let to: *mut u8 = self.to.word(0)?.cast();
        // SAFETY: the pinned memory has that many bytes, outlives the copy, for which its freeing waits, and is never read.
        let to = unsafe { std::slice::from_raw_parts_mut(to, self.bytes) };
        // SAFETY: `address` checked that the range is inside the arena.
        unsafe { result::memcpy_dtoh_async(to, self.from, self.stream.cu_stream()) }
            .map_err(failure("copying from the card"))
    }
}

/// Times training steps on a stream.
struct Clock<'a> {
    train: &'a mut Feeding,
    stream: &'a Arc<CudaStream>,
    repetitions: usize,
}

impl Clock<'_> {
    fn pair(&self) -> Result<[CudaEvent; 2], Error> {
        let event = || self.stream.context().new_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
        Ok([event().map_err(failure("making an event"))?, event().map_err(failure("making an event"))?])
    }

    /// Returns the microseconds of whole steps, replayed.
    fn steps(&mut self) -> Result<Vec<f64>, Error> {
        let [start, end] = self.pair()?;
        let record = |event: &CudaEvent| event.record(self.stream).map_err(failure("recording an event"));
        let mut step = || {
            record(&start)?;
            self.train.run_all(self.stream)?;
            record(&end)?;
            elapsed_us(&start, &end)
        };
        (0..WARM_UP).try_for_each(|_| step().map(|_| ()))?;
        (0..self.repetitions).map(|_| step()).collect()
    }

    /// Returns the microseconds of each launch in each of several steps; with micro-batches, in the last one of each step.
    fn launches(&mut self, hold: &Hold<'_>) -> Result<Vec<Vec<f64>>, Error> {
        let count = self.train.program().choices().len();
        let events = (0..count).map(|_| self.pair()).collect::<Result<Vec<_>, Error>>()?;
        let mut us = vec![Vec::with_capacity(self.repetitions); count];
        for step in 0..WARM_UP + self.repetitions {
            let between = |program: &Prepared| program.launch_between(self.stream, &events, &|| hold.start());
            self.train.run_all_by(self.stream, between)?;
            for (us, [start, end]) in us.iter_mut().zip(&events) {
                let elapsed = elapsed_us(start, end)?;
                if step >= WARM_UP {
                    us.push(elapsed);
                }
            }
        }
        Ok(us)
    }
}

impl Session {
    /// Measures the network's programs on the card: the algorithm of each launch and the nodes of each graph. If the network is trained, also the
    /// time of whole steps and of each single launch, `repetitions` times (at least once).
    ///
    /// It times `2 * (repetitions + 2)` training steps on the batch that was fed last, half of them replayed, half launched one by one. With
    /// micro-batches, each step runs all of them; single launches are timed in the last one, and [`Launched::runs`] says how often each launch
    /// runs. These are real training steps: parameters, statistics and the optimizer's state change, and training may continue from there. As for
    /// any step, parameters must be initialised and a batch must have been fed or written.
    ///
    /// With several training steps, the first one is measured.
    ///
    /// No memory of the card is allocated for it, but the host pins a few MiB, makes events and waits.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver fails, and as for [`Runner::train`].
    ///
    /// [`Runner::train`]: gpumem_core::run::device::Runner::train
    pub fn profile(&mut self, repetitions: usize) -> Result<Profile, Error> {
        bind(self.stream.context())?;
        Runner::select(self, 0)?;
        self.check_step()?;
        let (mut step_us, mut us) = (Vec::new(), Vec::new());
        if let Some(train) = self.trains.first_mut() {
            let hold = Hold::new(&self.arena, &self.stream)?;
            let mut clock = Clock { train, stream: &self.stream, repetitions: repetitions.max(1) };
            step_us = clock.steps()?;
            us = clock.launches(&hold)?;
            self.wait()?;
        }
        let mut programs = Vec::new();
        if let Some(train) = self.trains.first() {
            let mut program = self.described.program(TRAIN, train.program(), us)?;
            program.graphs =
                train.programs().filter_map(|program| program.nodes().transpose()).collect::<Result<_, _>>()?;
            programs.push(program);
        }
        let others = [
            ("evaluation", self.evaluations.first().and_then(Option::as_ref)),
            ("infer", Some(&self.infer)),
            ("served", self.served.as_ref()),
        ];
        for (name, bound) in others {
            if let Some(bound) = bound {
                programs.push(self.described.program(name, bound, Vec::new())?);
            }
        }
        Ok(Profile { programs, step_us })
    }
}
