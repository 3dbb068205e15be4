//! Loads a network onto a device, and fills its tensors as before the first step.

use crate::error::Error;
use crate::memory::Compiled;
use crate::memory::budget::{Budget, Line};
use crate::memory::place::{place, share, share_lasting};
use crate::network::{Cached, Network};
use crate::number::{Format, Precision, Role};
use crate::program::{Class, StateWord, TensorId};
use crate::run::agreement;
use crate::run::cache_state::CacheState;
use crate::run::device::{Device, Job, Runner, Served};
use crate::run::host_copies::{Spot, encode, spot};
use crate::run::net::Net;
use crate::run::quantized::Coded;
use crate::run::shared::beside;
use crate::run::states::StateOf;
use crate::run::steps::TrainSteps;
use crate::run::train_step::TrainStep;
use crate::train::{Schedule, Train};
use alloc::vec;
use alloc::vec::Vec;
use core::marker::PhantomData;

impl<N: Network, D: Device> Net<N, D> {
    /// Loads the network onto `device`: one allocation, then the parameters are initialised from the seed in `TRAIN`.
    ///
    /// # Errors
    /// Too little memory, or a precision that the device cannot run.
    pub fn load(device: &D) -> Result<Net<N, D>, Error> {
        Self::load_with(device, None)
    }

    pub(super) fn load_with(device: &D, serving: Option<&Compiled<'_>>) -> Result<Net<N, D>, Error> {
        let () = N::CHECKED;
        if !N::RUNS {
            let what = "it has neither `const TRAIN` nor `const INFER`, so nothing says at which batch it runs; add `const INFER: \
                        Infer = Infer { batch: 1 };` to use it, or `const TRAIN` to train it"
                .into();
            return Err(Error::Unsupported { device: N::NAME, what });
        }
        let mut train = TrainSteps::of::<N>()?;
        let mut infer = place(N::EVALUATION)?;
        let mut arena = N::EVALUATION.budget[Line::Arena];
        match &*train.all {
            [] => {}
            [(_, train, _)] if N::STEPS.is_empty() => {
                let inside = N::EVALUATION.budget[Line::Activations];
                arena = share(train, &mut infer, N::PROGRAM.budget[Line::Arena], inside)?;
            }
            [(_, first, _), ..] => arena = share_lasting(first, &mut infer, train.arena, arena)?,
        }
        let first = train.all.first().map(|(_, placed, _)| placed);
        let mut served = serving.zip(first).map(|(serving, train)| beside::<N>(train, arena, serving)).transpose()?;
        // A network that trains takes whole samples, and has no cache.
        let cached = N::CACHED.filter(|_| train.all.is_empty());
        if let Some(Cached { one_step: Some(one_step), .. }) = cached {
            let (batch, precision) = (N::EVALUATION.batch, N::EVALUATION.precision);
            served = Some(Served { placed: infer.covering(one_step, batch, precision)?, batch });
        }
        let kept = CacheState::new(cached.map_or([0; 2], |cached| [cached.steps, cached.chunk]), &infer.program);
        let (wanted, batch) = (N::EVALUATION.precision, N::EVALUATION.samples());
        let precision = device.precision(wanted);
        if precision != wanted {
            train = train.stretched()?;
            infer = infer.stretched(batch)?;
            let stretched = |Served { placed, batch }| Ok(Served { placed: placed.stretched(batch)?, batch });
            served = served.map(stretched).transpose()?;
            arena = arena.checked_mul(2).ok_or(Error::Damaged("the arena's size exceeds 64 bits"))?;
        }
        let first = train.all.first().map(|(_, placed, train)| (placed, train));
        let evaluation = first.map(|(placed, _)| placed.evaluation()).transpose()?;
        let settings = first.map_or(Train::DEFAULT, |(_, train)| *train);
        let times = if precision == wanted { 1 } else { 2 };
        let job = Job {
            name: N::NAME,
            arena,
            reserve: N::BUDGET[Line::Reserve],
            batch,
            precision,
            train: first.map(|(placed, _)| placed.clone()),
            evaluation,
            others: train.others()?,
            served: served.clone(),
            infer: infer.clone(),
            optimizer: settings.optimizer,
            tf32: settings.tf32,
            deterministic: train.all.iter().any(|(_, _, train)| train.deterministic),
            settings: agreement::settings(train.all.iter().map(|(_, _, train)| train)),
            operations: N::OPERATIONS,
        };
        let runner = device.load(job);
        let runner = runner.map_err(|error| with_lasting(error, &N::PROGRAM.budget, (arena, times)))?;
        let states = core::mem::take(&mut train.states);
        let (step, others) = train.loaded()?;
        let (at, in_step, last, buffer, network) = (0, false, None, Vec::new(), PhantomData);
        let mut net =
            Net { runner, step, others, at, in_step, last, served, infer, kept, precision, states, buffer, network };
        net.reset()?;
        Ok(net)
    }

    /// Fills parameters, optimizer state and running statistics as before the first step.
    ///
    /// # Errors
    /// A failure of the device.
    pub fn reset(&mut self) -> Result<(), Error> {
        (self.kept.steps, self.last) = (0, None);
        self.others.iter_mut().chain([&mut self.step]).for_each(|step| step.has_stepped = false);
        let (first, others) = (&self.step, &self.others);
        let of_step = |number: usize| number.checked_sub(1).and_then(|other| others.get(other)).unwrap_or(first);
        let (seed, mut number) = (first.seed, 0);
        let placed = first.train.as_ref().unwrap_or(&self.infer);
        for (id, tensor) in placed.program.tensors.iter().enumerate() {
            if let Some(coded) = Coded::of(placed, id)? {
                coded.write(&mut self.runner, &placed.program.initial(id as TensorId, seed))?;
                continue;
            }
            let elements = tensor.elements(1).unwrap_or(0);
            let Spot { offset, format } = spot(placed, id, self.precision);
            let bytes = match tensor.class {
                // Scales are written with their codes.
                _ if tensor.role == Role::Scale => continue,
                // Averages start from the parameters, after all of these have been written.
                Class::Average => continue,
                Class::Parameter | Class::Moment | Class::Buffer => {
                    let values = match self.states.of(id as TensorId) {
                        Some(StateOf { step, number, .. }) => {
                            vec![of_step(step).optimizer.initial(number) as f32; elements as usize]
                        }
                        None => placed.program.initial(id as TensorId, seed),
                    };
                    if let Some(master) = placed.masters[id] {
                        self.runner.write(master, &encode(Format::F32, &values))?;
                    }
                    encode(format, &values)
                }
                Class::State => {
                    // There is one state for each step, in order.
                    let TrainStep { seed, optimizer, schedule: numbers, .. } = of_step(number);
                    number += 1;
                    let mut words = [0; StateWord::COUNT];
                    words[StateWord::Seed as usize] = *seed as u32;
                    words[StateWord::Seed as usize + 1] = (seed >> 32) as u32;
                    words[StateWord::LearningRate as usize] = (optimizer.lr() as f32).to_bits();
                    words[StateWord::LossScale as usize] = loss_scale(self.precision).to_bits();
                    let schedule = StateWord::Schedule as usize;
                    words[schedule..schedule + Schedule::WORDS].copy_from_slice(&numbers.words());
                    words.iter().flat_map(|word| word.to_le_bytes()).collect()
                }
                Class::Gradient => vec![0; (tensor.unsharded().unwrap_or(0) * format.bytes()) as usize],
                Class::Input | Class::Target => vec![0; placed.bytes[id] as usize],
                // No byte of a cache is read before it is written.
                Class::Transient | Class::Host | Class::Cache => continue,
            };
            self.runner.write(offset, &bytes)?;
        }
        self.begin_averages()
    }
}

/// Adds to an error of too little memory the bytes that no smaller batch saves: the budget lines that do not depend on the batch, `times`
/// over.
fn with_lasting(error: Error, budget: &Budget, (arena, times): (u64, u64)) -> Error {
    let lines = [Line::Weights, Line::Master, Line::Gradients, Line::Optimizer, Line::Ema, Line::Buffers];
    match error {
        Error::Memory { device, needed, beside, free, holders, .. } if needed >= arena => {
            let bytes = lines.into_iter().fold(0u64, |sum, line| sum.saturating_add(budget[line]));
            let lasting = bytes.saturating_mul(times).min(needed);
            Error::Memory { device, needed, beside, lasting, free, holders }
        }
        other => other,
    }
}

/// Returns the loss scale of the first step: gradients in binary16 would be lost below 6e-8. A backend changes it if gradients overflow, or
/// have been finite for long.
fn loss_scale(precision: Precision) -> f32 {
    if precision.scales_loss() { 65536.0 } else { 1.0 }
}
