//! Training steps of a network with several: the data of each step, and the handle that runs it.

use crate::error::Error;
use crate::memory::Compiled;
use crate::memory::budget::Line;
use crate::memory::place::{Placed, place};
use crate::network::{NamedStep, Network, StepInfo};
use crate::program::{Class, Tensor};
use crate::run::device::{Device, OtherStep, Runner};
use crate::run::loss_denominators::Divisors;
use crate::run::named::Kind;
use crate::run::net::Net;
use crate::run::states::States;
use crate::run::tensor::Give;
use crate::run::train_step::TrainStep;
use crate::train::{Train, nothing_to_compare, single_value};
use alloc::vec::Vec;
use core::fmt;

/// The training steps of a network before they are loaded.
pub(super) struct TrainSteps {
    /// Each step with its name, which is empty if it is the only one.
    pub(super) all: Vec<(&'static str, Placed, Train)>,
    /// The bytes of an arena that each of them fits into.
    pub(super) arena: u64,
    pub(super) states: States,
}

impl TrainSteps {
    /// Returns the training steps of a network; none if it is not trained.
    ///
    /// # Errors
    /// Programs that do not match their plans, and a batch that is too small for a layer to normalise.
    pub(super) fn of<N: Network>() -> Result<TrainSteps, Error> {
        let only = N::TRAINING.zip(N::TRAIN).map(|(compiled, train)| StepInfo { name: "", compiled, train });
        let infos = if N::STEPS.is_empty() { only.as_slice() } else { N::STEPS };
        let mut all = Vec::new();
        let mut arena = 0;
        for &StepInfo { name, compiled, train } in infos {
            let placed = place(compiled)?;
            check_values::<N>(&placed, compiled, train.batch)?;
            arena = arena.max(compiled.budget[Line::Arena]);
            all.push((name, placed, train));
        }
        if let Some(((_, first, _), others)) = all.split_first()
            && !others.iter().all(|(_, other, _)| first.lasts_as(other))
        {
            return Err(Error::Damaged("two training steps have what lasts in other places"));
        }
        let programs = all.iter_mut().map(|(name, placed, train)| (*name, &mut placed.program, train.optimizer));
        let states = States::name(programs.collect());
        Ok(TrainSteps { all, arena, states })
    }

    /// Returns the placement with 4 bytes for every element, in an arena of twice the size.
    ///
    /// # Errors
    /// Offsets beyond 64 bits.
    pub(super) fn stretched(self) -> Result<TrainSteps, Error> {
        let stretched = |(name, placed, train): (&'static str, Placed, Train)| {
            let samples = samples(&train);
            Ok((name, placed.stretched(samples)?, train))
        };
        let all = self.all.into_iter().map(stretched).collect::<Result<_, Error>>()?;
        let arena = self.arena.checked_mul(2).ok_or(Error::Damaged("the arena's size exceeds 64 bits"))?;
        Ok(TrainSteps { all, arena, ..self })
    }

    /// Returns the steps after the first, in the form of [`Job::others`](crate::run::device::Job::others).
    ///
    /// # Errors
    /// A program without a loss.
    pub(super) fn others(&self) -> Result<Vec<OtherStep>, Error> {
        let other = |(name, placed, train): &(&'static str, Placed, Train)| {
            Ok(OtherStep {
                name,
                batch: samples(train),
                train: placed.clone(),
                evaluation: placed.evaluation()?,
                optimizer: train.optimizer,
                tf32: train.tf32,
            })
        };
        self.all.iter().skip(1).map(other).collect()
    }

    /// Returns the first step of a network, and the others.
    ///
    /// # Errors
    /// A term of a loss with a divisor, but without a target.
    pub(super) fn loaded(self) -> Result<(TrainStep, Vec<TrainStep>), Error> {
        let loaded = |(_, placed, train): (&'static str, Placed, Train)| {
            Ok(TrainStep {
                divisors: Divisors::new(&placed)?,
                seed: train.seed,
                optimizer: train.optimizer,
                schedule: placed.program.descent.schedule,
                written_total: placed.program.descent.schedule.total(),
                parts: train.micro_batches.max(1),
                has_stepped: false,
                train: Some(placed),
            })
        };
        let mut all = self.all.into_iter().map(loaded).collect::<Result<Vec<TrainStep>, Error>>()?.into_iter();
        Ok((all.next().unwrap_or_else(TrainStep::none), all.collect()))
    }
}

/// Returns the samples that are in the arena at once.
fn samples(train: &Train) -> u64 {
    crate::memory::tables::samples(train.batch as u64, (train.micro_batches * train.ranks) as u64)
}

/// Refuses a batch that is too small for a layer or the loss. A layer that normalises over the batch needs several values of a channel, and
/// a loss that compares samples needs several samples. The macro checks it if it knows the batch. A network that is generic over its batch
/// may serve single samples.
fn check_values<N: Network>(placed: &Placed, compiled: &Compiled<'_>, batch: usize) -> Result<(), Error> {
    let parts = compiled.tables.parts;
    if let Some(loss) = placed.program.compares_samples().filter(|_| batch == 1) {
        let what = nothing_to_compare::<512>(loss).as_str().into();
        return Err(Error::Unsupported { device: N::NAME, what });
    }
    match placed.program.normalizes_single().filter(|_| batch as u64 == parts) {
        Some(layer) => {
            let what = single_value::<512>(&layer, parts).as_str().into();
            Err(Error::Unsupported { device: N::NAME, what })
        }
        None => Ok(()),
    }
}

impl<N: Network, D: Device> Net<N, D> {
    /// Makes the step of this number the current one, on the device too.
    pub(super) fn choose(&mut self, number: usize) -> Result<(), Error> {
        if self.at == number {
            return Ok(());
        }
        let missing = Error::Damaged("the network has no training step of this number");
        if number > self.others.len() {
            return Err(missing);
        }
        self.runner.select(number)?;
        for at in [self.at, number] {
            if let Some(other) = at.checked_sub(1).and_then(|at| self.others.get_mut(at)) {
                core::mem::swap(&mut self.step, other);
            }
        }
        self.at = number;
        Ok(())
    }

    /// Calls `work` with the step of this number as the current one, and goes back to the first.
    pub(super) fn with_step<T>(
        &mut self,
        number: usize,
        work: impl FnOnce(&mut Net<N, D>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.choose(number)?;
        self.in_step = true;
        let done = work(self);
        self.in_step = false;
        self.choose(0)?;
        done
    }

    /// Returns the first step, whichever is current. Tensors that last have the numbers of its program.
    pub(super) fn first(&self) -> &TrainStep {
        self.at.checked_sub(1).and_then(|at| self.others.get(at)).unwrap_or(&self.step)
    }

    /// True if a tensor has a name for the host. Gradients of several steps overwrite each other, so none of them has.
    pub(super) fn is_named(&self, tensor: &Tensor) -> bool {
        let is_passing = tensor.class == Class::Gradient && !self.others.is_empty();
        Kind::of(tensor).is_some() && !is_passing
    }
}

/// One of several training steps of a network: `Gan::critic(&mut net)`, of `const CRITIC: Train`.
///
/// It has the methods that [`Net`] has for `TRAIN`. Parameters that it does not train behave as with `requires_grad_(False)`. Each step has
/// its own optimizer state, count, learning rate, schedule and seed, and takes only the inputs that its loss depends on.
///
/// PyTorch: `loss.backward(inputs=critic_parameters); critic_optimizer.step()`.
pub struct Step<'n, N: Network, const NUMBER: usize, D: Device> {
    net: &'n mut Net<N, D>,
}

impl<N: Network, const NUMBER: usize, D: Device> fmt::Debug for Step<'_, N, NUMBER, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = N::STEPS.get(NUMBER).map_or("", |step| step.name);
        f.debug_struct("Step").field("name", &name).field("net", &self.net).finish_non_exhaustive()
    }
}

impl<'n, N: NamedStep<NUMBER>, const NUMBER: usize, D: Device> Step<'n, N, NUMBER, D> {
    /// Returns the step of a loaded network. `Gan::critic(&mut net)` calls it.
    #[doc(hidden)]
    pub fn of(net: &'n mut Net<N, D>) -> Step<'n, N, NUMBER, D> {
        Step { net }
    }

    /// Makes one of these steps, as [`Net::train_step`] does.
    ///
    /// # Errors
    /// As for that method.
    pub fn train_step<'i, 't>(
        &mut self,
        input: impl Give<'i, N::StepInput>,
        target: impl Give<'t, N::StepTarget>,
    ) -> Result<f32, Error> {
        self.enqueue_step(input, target)?;
        self.loss()
    }

    /// Starts one of these steps, as [`Net::enqueue_step`] does.
    ///
    /// # Errors
    /// As for that method.
    pub fn enqueue_step<'i, 't>(
        &mut self,
        input: impl Give<'i, N::StepInput>,
        target: impl Give<'t, N::StepTarget>,
    ) -> Result<(), Error> {
        let (input, target) = (input.give(), target.give());
        self.net.with_step(NUMBER, |net| {
            net.step_with::<N::StepInput, N::StepTarget>(input, target, &mut |runner, part| match part {
                Some(part) => runner.accumulate(part),
                None => runner.train(),
            })
        })
    }

    /// Returns the loss of this step without an update, as [`Net::eval_loss`] does.
    ///
    /// # Errors
    /// As for that method.
    pub fn eval_loss<'i, 't>(
        &mut self,
        input: impl Give<'i, N::StepInput>,
        target: impl Give<'t, N::StepTarget>,
    ) -> Result<f32, Error> {
        let (input, target) = (input.give(), target.give());
        self.net.with_step(NUMBER, |net| net.evaluate_with::<N::StepInput, N::StepTarget>(input, target))
    }

    /// Returns the loss of the last of these steps, as [`Net::loss`] does.
    ///
    /// # Errors
    /// As for that method.
    pub fn loss(&mut self) -> Result<f32, Error> {
        self.net.with_step(NUMBER, Net::loss)
    }

    /// Starts one more of these steps on the last batch, as [`Net::train_again`] does.
    ///
    /// # Errors
    /// As for [`Net::train_again`], and [`Error::Unsupported`] after another step or an evaluation, which has overwritten this one's batch.
    pub fn train_again(&mut self) -> Result<(), Error> {
        self.net.with_step(NUMBER, Net::train_again)
    }

    /// Returns the number of these steps that have been made.
    ///
    /// # Errors
    /// A failure of the device.
    pub fn steps(&mut self) -> Result<u64, Error> {
        self.net.with_step(NUMBER, Net::steps)
    }

    /// Sets the number of these steps that have been made, as [`Net::set_steps`] does.
    ///
    /// # Errors
    /// As for that method.
    pub fn set_steps(&mut self, steps: u64) -> Result<(), Error> {
        self.net.with_step(NUMBER, |net| net.set_steps(steps))
    }

    /// Returns the learning rate of the next of these steps, as [`Net::lr`] does.
    ///
    /// # Errors
    /// A failure of the device.
    pub fn lr(&mut self) -> Result<f64, Error> {
        self.net.with_step(NUMBER, Net::lr)
    }

    /// Changes the learning rate of these steps, as [`Net::set_lr`] does.
    ///
    /// # Errors
    /// As for that method.
    pub fn set_lr(&mut self, lr: f64) -> Result<(), Error> {
        self.net.with_step(NUMBER, |net| net.set_lr(lr))
    }

    /// Sets the `total` of the schedule of these steps, as [`Net::set_total`] does.
    ///
    /// # Errors
    /// As for that method.
    pub fn set_total(&mut self, total: u64) -> Result<(), Error> {
        self.net.with_step(NUMBER, |net| net.take_total(total))
    }

    /// Returns the norm of all gradients of the last of these steps, before they were clipped.
    ///
    /// PyTorch: the result of `torch.nn.utils.clip_grad_norm_(critic.parameters(), c)`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the constant has neither `clip: GlobalNorm(c)` nor `measure: GradientNorm`, or before the first step. A failure
    /// of the device.
    pub fn gradient_norm(&mut self) -> Result<f64, Error> {
        self.net.with_step(NUMBER, Net::norm_of_gradients)
    }

    /// Returns the number of these steps that updated nothing, because a gradient was not finite.
    ///
    /// # Errors
    /// A failure of the device.
    pub fn skipped(&mut self) -> Result<u64, Error> {
        self.net.with_step(NUMBER, Net::skipped_steps)
    }
}
