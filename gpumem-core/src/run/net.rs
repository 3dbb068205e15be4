//! A network on a device, with its typed steps and passes. What else it does is in the files beside this one.

use crate::error::Error;
use crate::memory::budget::Line;
use crate::memory::place::Placed;
use crate::network::{Network, Trains};
use crate::number::Precision;
use crate::program::Class;
use crate::run::cache_state::CacheState;
use crate::run::device::{Device, Runner, Served};
use crate::run::host_copies::{HostPart, Outputs, Put, Spot, check_parts, encoded, give, nth_of, spot};
use crate::run::loss_denominators::Divisors;
pub use crate::run::named::{Kind, Named};
use crate::run::states::{States, of_another};
pub use crate::run::tensor::Given;
use crate::run::tensor::{Give, Hosts};
use crate::run::train_step::TrainStep;
use crate::suggest::nearest;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use core::ops::ControlFlow;

/// A function that runs one micro-batch: one before the last by its number, or `None` for the last.
pub(super) type RunPart<'r, R> = dyn FnMut(&mut R, Option<u64>) -> Result<(), Error> + 'r;

/// A network `N` loaded onto a device `D`: `let mut net = Vgg16::on(&device)?`.
///
/// Methods that compute take `&mut self`: one pass runs at a time. Threads share a network as `Arc<Mutex<Net<..>>>`. `gpumem::weights`
/// saves and loads it; [`Net::tensors`], [`Net::get`] and [`Net::set`] are for other file formats. There is no mode to switch:
/// [`Net::train_step`] trains, [`Net::forward`] and [`Net::eval_loss`] use running statistics and no dropout.
pub struct Net<N, D: Device> {
    pub(super) runner: D::Runner,
    /// The current training step: the first, except inside a call for another one.
    pub(super) step: TrainStep,
    /// The other steps of a network with several. While one of them is current, the first one is stored in its slot.
    pub(super) others: Vec<TrainStep>,
    /// The number of the current step.
    pub(super) at: usize,
    /// True inside a call for one of several steps, rather than for that of `TRAIN`.
    pub(super) in_step: bool,
    /// The number of the step whose batch is in the arena. `None` before the first step, and after an evaluation.
    pub(super) last: Option<usize>,
    /// A further forward pass: that of `INFER` in addition to a training step, or a single time step of a network with a cache.
    pub(super) served: Option<Served>,
    pub(super) infer: Placed,
    /// The state of the sequence cache; empty if `INFER` has no cache.
    pub(super) kept: CacheState,
    /// The number format in which the device runs it.
    pub(super) precision: Precision,
    pub(super) states: States,
    pub(super) buffer: Vec<u8>,
    pub(super) network: PhantomData<fn() -> N>,
}

impl<N: Network, D: Device> fmt::Debug for Net<N, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Net").field("name", &N::NAME).field("arena", &N::BUDGET[Line::Arena]).finish_non_exhaustive()
    }
}

impl<N: Network, D: Device> Net<N, D> {
    /// Micro-batches that a batch is split into.
    pub(super) const PARTS: usize = N::EVALUATION.tables.micro_batches as usize;

    /// Makes one training step: forward, backward and update. Returns the loss before the update, as soon as it is known: on a card the
    /// backward pass and the update may still be running.
    ///
    /// # Errors
    /// A network without `TRAIN`, or invalid data such as a label beyond the last class; the parameters are then as
    /// before.
    #[doc(alias = "backward")]
    #[doc(alias = "fit")]
    pub fn train_step<'i, 't>(
        &mut self,
        input: impl Give<'i, N::Input>,
        target: impl Give<'t, N::Target>,
    ) -> Result<f32, Error>
    where
        N: Trains,
    {
        self.enqueue_step(input, target)?;
        self.loss()
    }

    /// Starts one training step. It waits at most for the step before the last; [`Net::loss`] returns the loss. On a card the input is
    /// copied while an earlier step runs.
    ///
    /// # Errors
    /// As for [`Net::train_step`].
    pub fn enqueue_step<'i, 't>(
        &mut self,
        input: impl Give<'i, N::Input>,
        target: impl Give<'t, N::Target>,
    ) -> Result<(), Error>
    where
        N: Trains,
    {
        self.step_with::<N::Input, N::Target>(input.give(), target.give(), &mut |runner, part| match part {
            Some(part) => runner.accumulate(part),
            None => runner.train(),
        })
    }

    /// Feeds a batch, and calls `run` for each micro-batch: those before the last by their number, and `None` for the last.
    pub(super) fn step_with<I: Hosts, T: Hosts>(
        &mut self,
        input: Given<'_, I>,
        target: Given<'_, T>,
        run: &mut RunPart<'_, D::Runner>,
    ) -> Result<(), Error> {
        self.check_schedule()?;
        let TrainStep { train: Some(train), divisors, parts, .. } = &mut self.step else {
            return Err(Self::untrained());
        };
        let (runner, precision, parts) = (&mut self.runner, self.precision, *parts);
        check_parts::<I>(train, Class::Input, parts, input, &mut self.buffer)?;
        check_parts::<T>(train, Class::Target, parts, target, &mut self.buffer)?;
        Self::count::<I, T>(divisors, input, target)?;
        self.last = Some(self.at);
        for part in 0..parts {
            let mut feed = |class, index, elements: usize, put: &Put<'_>| {
                let Spot { offset, format } = nth_of(train, class, index, precision)?;
                let elements = elements / parts;
                let each = format.bytes() as usize;
                let fill = |first: usize, to: &mut [u8]| put(format, part * elements + first / each, to);
                runner.feed_with(offset, elements * each, &fill)
            };
            I::put(input, &mut |index, elements, put| feed(Class::Input, index, elements, put))?;
            T::put(target, &mut |index, elements, put| feed(Class::Target, index, elements, put))?;
            divisors.feed(runner)?;
            run(runner, (part + 1 < parts).then_some(part as u64))?;
        }
        self.step.has_stepped = true;
        Ok(())
    }

    /// Counts targets and lengths of a whole batch, if terms of the loss divide by these counts.
    fn count<I: Hosts, T: Hosts>(
        divisors: &mut Divisors,
        input: Given<'_, I>,
        target: Given<'_, T>,
    ) -> Result<(), Error> {
        let mut count = |class, index, elements, put: &Put<'_>| {
            divisors.count((class, index), elements, put);
            Ok(())
        };
        I::put(input, &mut |index, elements, put| count(Class::Input, index, elements, put))?;
        T::put(target, &mut |index, elements, put| count(Class::Target, index, elements, put))
    }

    /// Returns the loss without an update, for validation. It has all terms of the training step's loss, but uses BatchNorm's running
    /// statistics and no dropout. No tensor that lasts is changed.
    ///
    /// # Errors
    /// As for [`Net::train_step`].
    #[doc(alias = "evaluate")]
    pub fn eval_loss<'i, 't>(
        &mut self,
        input: impl Give<'i, N::Input>,
        target: impl Give<'t, N::Target>,
    ) -> Result<f32, Error>
    where
        N: Trains,
    {
        self.evaluate_with::<N::Input, N::Target>(input.give(), target.give())
    }

    /// Returns the loss of the current step without an update.
    pub(super) fn evaluate_with<I: Hosts, T: Hosts>(
        &mut self,
        input: Given<'_, I>,
        target: Given<'_, T>,
    ) -> Result<f32, Error> {
        let TrainStep { train: Some(train), divisors, parts, .. } = &mut self.step else {
            return Err(Self::untrained());
        };
        let (runner, buffer, precision, parts) = (&mut self.runner, &mut self.buffer, self.precision, *parts);
        self.last = None;
        check_parts::<I>(train, Class::Input, parts, input, buffer)?;
        check_parts::<T>(train, Class::Target, parts, target, buffer)?;
        Self::count::<I, T>(divisors, input, target)?;
        let mut sum = 0.0;
        for part in 0..parts {
            let mut write = |class, index, elements, put: &Put<'_>| {
                let part = HostPart { number: part, of: parts, elements, put };
                let offset = encoded(train, (class, index), precision, part, buffer)?;
                runner.write(offset, buffer)
            };
            I::put(input, &mut |index, elements, put| write(Class::Input, index, elements, put))?;
            T::put(target, &mut |index, elements, put| write(Class::Target, index, elements, put))?;
            divisors.write(runner)?;
            runner.evaluate()?;
            let mut loss = [0; 4];
            // The loss has the offset that it has in the training step.
            runner.read(train.offsets[train.program.results[0] as usize], &mut loss)?;
            sum += f32::from_le_bytes(loss);
        }
        Ok(sum)
    }

    /// Returns the loss of the last training step, and waits for it if it is not known yet.
    ///
    /// # Errors
    /// A network without `TRAIN`, one that has had no step since it was loaded, or a failure of the device.
    pub fn loss(&mut self) -> Result<f32, Error> {
        let train = self.trained()?;
        if !self.step.has_stepped {
            let what = "there has been no training step whose loss this could be; call `train_step`".into();
            return Err(Error::Unsupported { device: N::NAME, what });
        }
        let offset = train.offsets[train.program.results[0] as usize];
        self.runner.loss(offset)
    }

    /// Starts one more training step on the batch that is on the device: that of the last step, unless [`Net::forward`] or
    /// [`Net::eval_loss`] has overwritten it. Nothing is copied, and on a card up to eight steps may be in flight.
    ///
    /// # Errors
    /// A network without `TRAIN`, one with `micro_batches`, since only the last micro-batch is on the device, or a failure of the device.
    pub fn train_again(&mut self) -> Result<(), Error> {
        self.trained()?;
        let what = if self.step.parts > 1 {
            "only the last of its `micro_batches` is on the device; hand the batch in again, with `enqueue_step`"
        } else if !self.others.is_empty() && self.last != Some(self.at) {
            "what ran last has taken the place of this step's batch; hand it in again, with `enqueue_step`"
        } else {
            self.check_schedule()?;
            self.runner.train()?;
            self.step.has_stepped = true;
            return Ok(());
        };
        Err(Error::Unsupported { device: N::NAME, what: what.into() })
    }

    /// Runs one forward pass, with BatchNorm's running statistics and without dropout. If `INFER` has a `cache`, it takes the first `chunk`
    /// time steps of a sequence, which are then in the cache.
    ///
    /// # Errors
    /// Invalid data such as a token beyond the table.
    #[doc(alias = "predict")]
    pub fn forward<'i>(&mut self, input: impl Give<'i, N::Input>) -> Result<N::Output, Error> {
        self.run::<N::Input, N::Output>(input.give())
    }

    /// Runs the main forward pass, rather than `served`, on one micro-batch after the other.
    pub(super) fn run<I: Hosts, O: Hosts>(&mut self, input: Given<'_, I>) -> Result<O, Error> {
        let mut outputs = Outputs::default();
        self.last = None;
        check_parts::<I>(&self.infer, Class::Input, Self::PARTS, input, &mut self.buffer)?;
        for number in 0..Self::PARTS {
            let of = (number, Self::PARTS);
            give::<I, _>(&mut self.runner, &self.infer, self.precision, &mut self.buffer, of, input)?;
            if self.kept.most > 0 {
                self.kept.steps = 0;
                self.begin_at(0, self.kept.chunk)?;
            }
            self.runner.infer()?;
            self.kept.steps = self.kept.chunk;
            outputs.read(&mut self.runner, &self.infer)?;
        }
        outputs.finish(&self.infer, self.precision)
    }

    /// Returns the names of all parameters, their averages, running statistics and optimizer state, such as `stage[0].conv2d[1].weight`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.main().program.tensors.iter().filter(|tensor| self.is_named(tensor)).map(|tensor| tensor.name.as_str())
    }

    /// Returns the tensors of [`Net::names`], each with its shape and kind, in the same order.
    #[doc(alias = "named_parameters")]
    #[doc(alias = "parameters")]
    pub fn tensors(&self) -> impl Iterator<Item = Named<'_>> {
        let tensors = self.main().program.tensors.iter().filter(|tensor| self.is_named(tensor));
        tensors.filter_map(|tensor| {
            let kind = Kind::of(tensor)?;
            Some(Named { name: &tensor.name, shape: tensor.shape.dims(), kind })
        })
    }

    /// Returns the shape of a parameter, a running statistic or an optimizer state, in PyTorch's order of axes: `[out, in, height, width]`
    /// for a convolution's weight. `None` if there is nothing of that name.
    pub fn shape(&self, name: &str) -> Option<&[u64]> {
        self.tensors().find(|tensor| tensor.name == name).map(|tensor| tensor.shape)
    }

    /// Returns the values of a parameter, a running statistic or an optimizer state, in row-major order. Under mixed precision a
    /// parameter's values are those of its f32 master copy. A quantized weight's values are decoded, but not rounded to the network's
    /// format; [`Net::set`] quantizes them to the same codes.
    ///
    /// # Errors
    /// [`Error::Name`] if there is nothing of that name, [`Error::State`] if it is a state of another optimizer.
    #[doc(alias = "weight")]
    pub fn get(&mut self, name: &str) -> Result<Vec<f32>, Error> {
        let mut values = Vec::new();
        let take = |part: &[f32]| {
            values.extend_from_slice(part);
            ControlFlow::<()>::Continue(())
        };
        let _ = self.get_with(name, take)?;
        Ok(values)
    }

    /// Sets a parameter, a running statistic or an optimizer state, in row-major order. A quantized weight gets the nearest codes.
    ///
    /// # Errors
    /// [`Error::Name`] if there is nothing of that name, [`Error::State`] if it is a state of another optimizer, [`Error::Length`] if it has
    /// another number of elements, [`Error::Value`] for a negative variance and other values that it cannot have. Nothing is set then.
    pub fn set(&mut self, name: &str, values: &[f32]) -> Result<(), Error> {
        self.check(name, values)?;
        self.set_with(name, |first, part| part.copy_from_slice(&values[first..first + part.len()]))
    }

    pub(super) fn trained(&self) -> Result<&Placed, Error> {
        // Calls on the network itself mean the step of `TRAIN`.
        let has_own = self.in_step || N::TRAIN.is_some() || N::STEPS.is_empty();
        self.step.train.as_ref().filter(|_| has_own).ok_or_else(Self::untrained)
    }

    fn untrained() -> Error {
        let what = if N::STEPS.is_empty() {
            "the network has no `const TRAIN`, so it makes no steps"
        } else {
            "the network has no `const TRAIN`; its steps have names of their own, as `Gan::critic(&mut net)`"
        };
        Error::Unsupported { device: N::NAME, what: what.into() }
    }

    /// Returns the place of a word of the state.
    pub(super) fn state_place(&self, word: usize) -> Result<u64, Error> {
        let placed = self.trained()?;
        let state = placed.program.state().ok_or(Error::Damaged("the program lacks a state"))?;
        Ok(spot(placed, state as usize, self.precision).offset + 4 * word as u64)
    }

    /// Returns the device's runner, for methods that only one backend has.
    pub fn runner_mut(&mut self) -> &mut D::Runner {
        &mut self.runner
    }

    pub(super) fn main(&self) -> &Placed {
        self.first().train.as_ref().unwrap_or(&self.infer)
    }

    /// Returns the error for a name that would be a state if another optimizer trained the network; `None` for other names.
    fn state_of_another(&self, name: &str) -> Option<Error> {
        // States of named steps have the step in their names.
        self.first().train.as_ref().filter(|_| N::STEPS.is_empty())?;
        let of = |kind| self.tensors().filter(move |tensor| tensor.kind == kind).map(|tensor| tensor.name);
        of_another(name, &self.first().optimizer, of(Kind::Parameter), of(Kind::OptimizerState))
    }

    /// Returns number and elements of the tensor with this name.
    pub(super) fn find(&self, name: &str) -> Result<(usize, u64), Error> {
        let mut tensors = self.main().program.tensors.iter().enumerate();
        match tensors.find(|(_, tensor)| self.is_named(tensor) && tensor.name == name) {
            Some((id, tensor)) => Ok((id, tensor.elements(1).unwrap_or(0))),
            None => {
                if let Some(error) = self.state_of_another(name) {
                    return Err(error);
                }
                let known: Vec<&str> = self.names().collect();
                let nearest = nearest(name, &known).map(String::from);
                Err(Error::Name { name: name.to_string(), nearest })
            }
        }
    }
}
