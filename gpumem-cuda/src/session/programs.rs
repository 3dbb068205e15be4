//! The calls of all programs of a network, and their kernels on the card.

use super::arena::Arena;
use super::graph::{Libraries, possible_steps};
use super::modules::Modules;
use crate::calls::{Call, Kernel, Launch};
use crate::card::Card;
use crate::error::failure;
use crate::memory_log::{Meter, Stage};
use crate::operations::LaunchContext;
use crate::program_calls::OperationCalls;
use cudarc::driver::result::occupancy;
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::run::device::{Job, OtherStep, Served};
use std::ffi::c_int;

/// The calls of each program.
#[derive(Debug)]
pub(super) struct Calls {
    pub(super) train: Option<Vec<OperationCalls>>,
    pub(super) evaluation: Option<Vec<OperationCalls>>,
    /// Calls of each further training step, and of its loss without an update.
    pub(super) others: Vec<[Vec<OperationCalls>; 2]>,
    pub(super) infer: Vec<OperationCalls>,
    pub(super) served: Option<Vec<OperationCalls>>,
}

/// A program with what its calls depend on, and its calls.
type Program<'c> = (&'c Placed, LaunchContext, &'c mut Vec<OperationCalls>);

/// Returns what the calls of a further training step depend on.
fn of_other(setting: LaunchContext, other: &OtherStep) -> LaunchContext {
    LaunchContext { batch: other.batch, optimizer: other.optimizer, tf32: other.tf32, ..setting }
}

/// Returns what the calls of a forward pass for another batch depend on.
fn of_served(setting: LaunchContext, served: &Served) -> LaunchContext {
    LaunchContext { batch: served.batch, ..setting }
}

impl Calls {
    fn new(job: &Job, setting: LaunchContext, arena: &Arena, libraries: Libraries<'_>) -> Result<Calls, Error> {
        let steps = |placed: &Placed| possible_steps(placed, setting, arena, libraries);
        let other = |other: &OtherStep| {
            let steps = |placed| possible_steps(placed, of_other(setting, other), arena, libraries);
            Ok([steps(&other.train)?, steps(&other.evaluation)?])
        };
        let serving = |served: &Served| possible_steps(&served.placed, of_served(setting, served), arena, libraries);
        Ok(Calls {
            train: job.train.as_ref().map(steps).transpose()?,
            evaluation: job.evaluation.as_ref().map(steps).transpose()?,
            others: job.others.iter().map(other).collect::<Result<_, Error>>()?,
            infer: steps(&job.infer)?,
            served: job.served.as_ref().map(serving).transpose()?,
        })
    }

    /// Returns each program with its calls, and the facts that these depend on.
    pub(super) fn programs<'c>(&'c mut self, job: &'c Job, setting: LaunchContext) -> Vec<Program<'c>> {
        let Calls { train, evaluation, others, infer, served } = self;
        let own = job.train.iter().zip(train).chain(job.evaluation.iter().zip(evaluation)).chain([(&job.infer, infer)]);
        let mut programs: Vec<Program<'c>> = own.map(|(placed, calls)| (placed, setting, calls)).collect();
        for (other, [train, evaluation]) in job.others.iter().zip(others) {
            let setting = of_other(setting, other);
            programs.extend([(&other.train, setting, train), (&other.evaluation, setting, evaluation)]);
        }
        let served = job.served.iter().zip(served);
        programs.extend(served.map(|(served, calls)| (&served.placed, of_served(setting, served), calls)));
        programs
    }

    /// Returns the launches of gpumem's own kernels.
    fn launches(&self) -> impl Iterator<Item = &Launch> {
        let steps = self.train.iter().chain(&self.evaluation).chain(&self.served).chain(self.others.iter().flatten());
        let steps = steps.flatten().chain(&self.infer);
        steps.flat_map(|step| &step.calls).filter_map(|call| match call {
            Call::Kernel(launch) => Some(launch),
            Call::Product(_) | Call::Convolution(_) | Call::Attention(_) | Call::Recurrence(_) => None,
            Call::Passage(_) | Call::Exchange(_) => None,
        })
    }

    fn modules(&self, card: &Card) -> Result<Modules, Error> {
        let kernel = |launch: &Launch| -> Kernel { launch.kernel.clone() };
        Modules::new(card, self.launches().map(kernel).collect())
    }
}

/// Returns the calls of a network's programs, with their kernels loaded in the bound context.
///
/// A grid barrier needs all blocks of a launch to be resident at once. If the blocks of one such launch are not, as when the compiler used more
/// registers than its limit, no launch uses a grid barrier.
pub(super) fn load(
    card: &Card,
    job: &Job,
    setting: LaunchContext,
    (arena, libraries): (&Arena, Libraries<'_>),
    meter: &mut Meter<'_>,
) -> Result<(Calls, Modules), Error> {
    let calls = Calls::new(job, setting, arena, libraries)?;
    meter.ended(Stage::Trials)?;
    let modules = calls.modules(card)?;
    meter.ended(Stage::Modules)?;
    for launch in calls.launches().filter(|launch| launch.kernel.is_cooperative()) {
        if !runs_at_once(launch, &modules, setting.multiprocessors)? {
            drop(modules);
            let setting = LaunchContext { multiprocessors: 0, ..setting };
            return load(card, job, setting, (arena, libraries), meter);
        }
    }
    Ok((calls, modules))
}

/// True if the card can run all blocks of a launch at once.
fn runs_at_once(launch: &Launch, modules: &Modules, multiprocessors: u32) -> Result<bool, Error> {
    let product = |sizes: [u32; 3]| sizes.iter().fold(1, |product: u32, &size| product.saturating_mul(size));
    let threads = c_int::try_from(product(launch.block)).unwrap_or(c_int::MAX);
    let function = modules.function(&launch.kernel)?;
    // SAFETY: the function belongs to a loaded module, and the context is bound.
    let each = unsafe { occupancy::max_active_block_per_multiprocessor(function, threads, 0) }
        .map_err(failure("asking how many blocks run at once"))?;
    Ok(product(launch.grid) <= u32::try_from(each).unwrap_or(0).saturating_mul(multiprocessors))
}
