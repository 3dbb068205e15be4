//! Numbers of training steps that a running program sets or reads: the steps of a schedule, the norm of gradients, steps that were skipped.

use crate::error::Error;
use crate::network::{Network, Trains};
use crate::program::StateWord;
use crate::run::device::{Device, Runner};
use crate::run::net::Net;
use crate::train::{Descent, Schedule};
use alloc::format;
use alloc::string::String;

/// The first number of training steps that double precision cannot tell from the next.
const MOST_STEPS: u64 = 1 << 53;

impl<N: Network, D: Device> Net<N, D> {
    /// Returns the number of training steps that have been made. To resume elsewhere, a training needs it besides all tensors in
    /// [`Net::names`], since optimizers correct by the step and dropout draws by it.
    ///
    /// # Errors
    /// A network without `TRAIN`, or a failure of the device.
    pub fn steps(&mut self) -> Result<u64, Error> {
        let offset = self.state_place(StateWord::Step as usize)?;
        let mut bytes = [0; 8];
        self.runner.read(offset, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Sets the number of training steps that have been made, below 2^53: schedules and bias corrections compute with it in double
    /// precision.
    ///
    /// # Errors
    /// As for [`Net::steps`], or a number that is too large.
    pub fn set_steps(&mut self, steps: u64) -> Result<(), Error> {
        let offset = self.state_place(StateWord::Step as usize)?;
        Self::check_steps(steps)?;
        self.runner.write(offset, &steps.to_le_bytes())
    }

    /// Refuses a number of training steps that cannot have been made.
    pub(super) fn check_steps(steps: u64) -> Result<(), Error> {
        if steps < MOST_STEPS {
            return Ok(());
        }
        let what = format!(
            "{steps} training steps cannot have been made: their number is below {MOST_STEPS}; the file that says so is damaged, or the \
             number was read at another place than it was written"
        );
        Err(Error::Unsupported { device: N::NAME, what })
    }

    /// Refuses a learning rate that no training has.
    pub(super) fn check_lr(lr: f64) -> Result<(), Error> {
        if (0.0..=f64::from(f32::MAX)).contains(&lr) {
            return Ok(());
        }
        let what = format!("a learning rate must be 0 or more and finite, not {lr}");
        Err(Error::Unsupported { device: N::NAME, what })
    }

    /// Returns the learning rate of the next step: that of the schedule if `TRAIN` has one. Rates of groups are in proportion to it.
    ///
    /// PyTorch: `scheduler.get_last_lr()[0]`.
    ///
    /// # Errors
    /// A network without `TRAIN`, a schedule whose `total` was left out and is not set, or a failure of the device.
    #[doc(alias = "get_last_lr")]
    pub fn lr(&mut self) -> Result<f64, Error> {
        self.check_schedule()?;
        let steps = self.steps()?;
        Ok(self.step.schedule.rate(self.step.optimizer.lr(), steps))
    }

    /// Changes the learning rate from the next step on, and those of groups of parameters in the same proportion. If `TRAIN` has a
    /// [`schedule`](crate::train::Schedule), this sets its `lr`, from which the schedule computes the rate of each step.
    ///
    /// # Errors
    /// A network without `TRAIN`, a rate that is negative or not finite, or a failure of the device.
    pub fn set_lr(&mut self, lr: f64) -> Result<(), Error> {
        self.trained()?;
        Self::check_lr(lr)?;
        let optimizer = self.step.optimizer.with_lr(lr);
        self.runner.set_optimizer(optimizer)?;
        self.step.optimizer = optimizer;
        Ok(())
    }

    /// Refuses a schedule whose `total` is neither written nor set.
    pub(super) fn check_schedule(&self) -> Result<(), Error> {
        if !self.step.schedule.is_open() {
            return Ok(());
        }
        let what = "its schedule has no `total`; call `net.set_total(steps)` before the first step".into();
        Err(Error::Unsupported { device: N::NAME, what })
    }

    /// Writes the numbers of the schedule to the state.
    pub(super) fn write_schedule(&mut self) -> Result<(), Error> {
        let place = self.state_place(StateWord::Schedule as usize)?;
        let bytes: alloc::vec::Vec<u8> =
            self.step.schedule.words().iter().flat_map(|word| word.to_le_bytes()).collect();
        self.runner.write(place, &bytes)
    }

    /// Checks that [`Net::set_total`] would take this `total`.
    pub(super) fn check_total(&self, total: u64) -> Result<(), Error> {
        let schedule = self.step.schedule;
        let what: String = if schedule.total().is_none() {
            format!(
                "its schedule is `{}`, which has no `total`; give it one that ends, as `schedule: Cosine {{ warmup: 100 }}`",
                schedule.name()
            )
        } else if let Some((field, rule)) = schedule.mistake_of_total(total) {
            match field {
                "total" => format!("the `total` of its schedule {rule}"),
                field => format!("with a `total` of {total}, the `{field}` of its schedule {rule}"),
            }
        } else {
            return Ok(());
        };
        Err(Error::Unsupported { device: N::NAME, what })
    }

    /// Sets the `total` of the schedule.
    pub(super) fn take_total(&mut self, total: u64) -> Result<(), Error> {
        self.check_total(total)?;
        self.step.schedule = self.step.schedule.with_total(total);
        self.write_schedule()
    }

    /// Returns the norm of all gradients of the last step.
    pub(super) fn norm_of_gradients(&mut self) -> Result<f64, Error> {
        let what = if !self.descent().needs_norm() {
            "the norm of its gradients is not computed; write `measure: GradientNorm` in `TRAIN`, or `clip: GlobalNorm(1.0)`"
        } else if !self.step.has_stepped {
            "there has been no training step whose gradients this could be the norm of; call `train_step`"
        } else {
            return Ok(f32::from_bits(self.state_word(StateWord::Norm as usize)?).into());
        };
        Err(Error::Unsupported { device: N::NAME, what: what.into() })
    }

    /// Returns the number of steps that updated nothing.
    pub(super) fn skipped_steps(&mut self) -> Result<u64, Error> {
        self.state_word(StateWord::Skipped as usize).map(u64::from)
    }

    fn descent(&self) -> Descent {
        self.step.train.as_ref().map_or(Descent::PLAIN, |placed| placed.program.descent)
    }
}

impl<N: Trains, D: Device> Net<N, D> {
    /// Sets the `total` of the schedule, from the next step on: the step at which the learning rate is the last one. Nothing is compiled or
    /// captured again. A `total` that `TRAIN` leaves out must be set before the first step; one that is written may be replaced.
    ///
    /// PyTorch: the `T_max`, `total_iters` or `total_steps` of `torch.optim.lr_scheduler`, which a program computes before it makes the
    /// scheduler.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a schedule without a `total`, for 0 steps, and for no more than those of its warm-up: nothing is set then.
    /// A failure of the device.
    pub fn set_total(&mut self, total: u64) -> Result<(), Error> {
        self.take_total(total)
    }

    /// Returns the schedule with the numbers of the next step. Its `total` is 0 if it is neither written nor set.
    pub fn schedule(&self) -> Schedule {
        self.step.schedule
    }

    /// Returns the norm of all gradients of the last training step, before they were clipped, and without the loss scale.
    ///
    /// It is infinite or NaN if a gradient was.
    ///
    /// PyTorch: the result of `torch.nn.utils.clip_grad_norm_(model.parameters(), c)`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if `TRAIN` has neither `clip: GlobalNorm(c)` nor `measure: GradientNorm`, or before the first step. A failure of
    /// the device.
    pub fn gradient_norm(&mut self) -> Result<f64, Error> {
        self.norm_of_gradients()
    }

    /// Returns the number of training steps that updated nothing, because a gradient was not finite: with `skip: NonFinite` in `TRAIN`, or
    /// if the loss is scaled. [`Net::steps`] does not count them.
    ///
    /// # Errors
    /// A failure of the device.
    pub fn skipped(&mut self) -> Result<u64, Error> {
        self.skipped_steps()
    }

    /// True if `TRAIN` has `skip: NonFinite`, so that a loss that is not finite changes nothing.
    pub fn skips_non_finite(&self) -> bool {
        self.descent().skips
    }

    /// True if [`Net::gradient_norm`] returns a norm after each step.
    pub fn measures_gradient_norm(&self) -> bool {
        self.descent().needs_norm()
    }
}
