//! The interface of callbacks to a training: its values, and the changes that they may request.

use crate::report::StepReport;
use gpumem_core::error::Error;
use gpumem_core::network::Trains;
use gpumem_core::run::device::Device;
use gpumem_core::run::net::Net;

/// The requests of callbacks.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// Values to log.
    pub values: Vec<(String, f64)>,
    /// The learning rate that was set. `None` if it was not.
    pub rate: Option<f64>,
    /// True if a callback may have changed the network in another way.
    pub is_touched: bool,
    /// True if the training is to stop.
    pub stops: bool,
}

/// A training after a step, as a callback sees it.
pub struct Context<'a, N: Trains, D: Device> {
    net: &'a mut Net<N, D>,
    report: &'a StepReport,
    asked: &'a mut Asked,
}

impl<'a, N: Trains, D: Device> Context<'a, N, D> {
    pub(crate) fn new(net: &'a mut Net<N, D>, report: &'a StepReport, asked: &'a mut Asked) -> Self {
        Context { net, report, asked }
    }

    /// Returns the step that was made.
    pub fn report(&self) -> &StepReport {
        self.report
    }

    /// Returns the number of training steps that have been made, those before a resume included.
    pub fn step(&self) -> u64 {
        self.report.step
    }

    /// Returns the epoch of the step; the first is 0.
    pub fn epoch(&self) -> u64 {
        self.report.epoch
    }

    /// Returns the loss of the step.
    pub fn loss(&self) -> f32 {
        self.report.loss
    }

    /// Returns a value of the evaluation after the step, or one that was logged. `None` if there is none of this name.
    pub fn value(&self, name: &str) -> Option<f64> {
        let logged = self.asked.values.iter().find(|(other, _)| other == name).map(|(_, value)| *value);
        logged.or_else(|| self.report.evaluation.as_ref()?.get(name))
    }

    /// Logs a value: after a step together with its loss, after an evaluation together with `train_loss`.
    pub fn log(&mut self, name: impl Into<String>, value: f64) {
        let name = name.into();
        self.asked.values.retain(|(other, _)| *other != name);
        self.asked.values.push((name, value));
    }

    /// Sets the learning rate from the next step on, as [`Net::set_lr`] does.
    ///
    /// # Errors
    /// As for [`Net::set_lr`].
    pub fn set_lr(&mut self, lr: f64) -> Result<(), Error> {
        self.net.set_lr(lr)?;
        self.asked.rate = Some(lr);
        Ok(())
    }

    /// Returns the network. Its state may be read and changed.
    ///
    /// The trainer then takes a new snapshot before the next step, so that it can still find the origin of a NaN. That takes time: do not
    /// call it in each step if [`Context::set_lr`] suffices.
    pub fn net(&mut self) -> &mut Net<N, D> {
        self.asked.is_touched = true;
        self.net
    }

    /// Asks the training to stop after this step. It saves a checkpoint if it has a folder for them.
    pub fn stop(&mut self) {
        self.asked.stops = true;
    }
}
