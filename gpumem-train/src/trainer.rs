//! The trainer: settings of a training.

use crate::best::{Follow, listed};
use crate::checkpoint::{Resume, Settings as CheckpointSettings};
use crate::context::Context;
use crate::error::{BoxError, Error, Result};
use crate::evaluation::{Metrics, ValidateOn, evaluate, logged};
use crate::every::Every;
use crate::interrupt::Stopper;
use crate::log::Logger;
use crate::metrics::{Goal, Metric};
use crate::report::EvaluationReport;
use gpumem_core::network::Trains;
use gpumem_core::run::device::Device;
use gpumem_core::run::net::Net;
use gpumem_data::{Batched, Loader};
use std::io::Write;
use std::path::PathBuf;

/// A callback.
pub(crate) type Call<'c, N, D> = Box<dyn FnMut(&mut Context<'_, N, D>) -> std::result::Result<(), BoxError> + 'c>;

/// The value by which the best checkpoint is chosen.
#[derive(Clone, Debug)]
enum By {
    /// A value that is always logged. Its name determines the direction in which it is better.
    Known(String),
    /// Any value.
    Any(String, Goal),
}

/// The settings of a training that are plain values.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub epochs: Option<u64>,
    pub max_steps: Option<u64>,
    pub evaluate_every: Every,
    pub log_every: u64,
    /// `None` for the default.
    pub snapshot_every: Option<u64>,
    by: Option<By>,
    pub patience: Option<u64>,
    pub keep: Option<usize>,
    pub checkpoint: Option<(PathBuf, Every)>,
    resume: Resume,
    pub is_quiet: bool,
    pub catches_ctrl_c: bool,
}

/// Trains a network: epochs, validation, metrics, logs, checkpoints.
///
/// It borrows the network, which is trained in place: even after an error it has the state of the last step. `'c` is the lifetime of
/// borrows in callbacks, metrics and logs.
///
/// ```
/// use gpumem::prelude::*;
/// use gpumem_train::metrics::Accuracy;
/// use gpumem_train::{Every, Trainer};
/// use gpumem_data::{LoaderOf, from_fn};
///
/// network! {
///     pub struct Small;
///
///     const TRAIN: Train = Train { batch: 16, optimizer: Sgd { lr: 0.5 }, loss: CrossEntropy };
///
///     fn forward(point: Features<2>) -> Logits<2> {
///         [Linear(16), Relu, Linear(2)]
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let points = |seed: u64| {
///     from_fn(256, move |index, _, sample| {
///         let mut draw = gpumem_data::Draw::new(seed, 0, index);
///         let (x, y) = (draw.uniform() as f32, draw.uniform() as f32);
///         sample.input(0)?.put_numbers(&[x, y])?;
///         sample.target(0)?.put_label(u32::from(x > y))
///     })
/// };
/// let device = gpumem::default_device()?;
/// let mut net = Small::on(&device)?;
/// let mut loader = LoaderOf::<Small>::new(points(1)).shuffle().drop_last();
/// let runs = tempfile::tempdir()?;
/// let report = Trainer::new(&mut net)
///     .epochs(10)
///     .validate(points(2))
///     .metrics(Accuracy::new())
///     .checkpoint(runs.path(), Every::Epoch)
///     .keep(3)
///     .best_by("val_accuracy")
///     .early_stop(5)
///     .run(&mut loader)?;
/// println!("{report}");
/// assert!(report.best.unwrap().value > 0.8);
/// # Ok(())
/// # }
/// ```
///
/// With a custom loop:
///
/// ```no_run
/// # use gpumem::prelude::*;
/// # use gpumem_train::Trainer;
/// # use gpumem_data::LoaderOf;
/// # network! {
/// #     pub struct Small;
/// #     const TRAIN: Train = Train { batch: 16, optimizer: Sgd { lr: 0.5 }, loss: CrossEntropy };
/// #     fn forward(point: Features<2>) -> Logits<2> { [Linear(2)] }
/// # }
/// # fn example(mut net: Net<Small, AnyDevice>, mut loader: LoaderOf<Small>) -> Result<(), gpumem_train::Error> {
/// let mut trainer = Trainer::new(&mut net).max_steps(1000);
/// for step in trainer.steps(&mut loader)? {
///     let step = step?;
///     println!("step {}: loss {}", step.step, step.loss);
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Validation
///
/// `val_loss` is the mean over samples of [`Net::eval_loss`]: each batch's loss is weighted by its samples. Metrics read the first
/// `batch.len` outputs of [`Net::forward`], which is a second pass; it does not run without metrics.
///
/// An incomplete last batch counts in `val_loss` if the loss ignores its padding: every term must be a mean of classes with
/// `ignore_index: -100`. Otherwise `val_loss` is the mean over the other batches. Metrics count its samples in any case.
///
/// # A loss that is no number
///
/// NaN and infinite losses end the training with [`Error::NotFinite`]. The trainer goes back to its last snapshot of the network, repeats
/// the steps since then, and reports the first tensor that was not finite. See [`Trainer::snapshot_every`].
///
/// # Ctrl-C
///
/// The first Ctrl-C ends the training after its step. It saves a checkpoint if there is a folder for them, and `run` returns a report with
/// [`Stop::Interrupted`](crate::Stop::Interrupted). An evaluation is interrupted, and repeated when the training is resumed. A second
/// Ctrl-C ends the process.
pub struct Trainer<'n, 'c, N: Trains, D: Device>
where
    N::Input: Batched,
    N::Target: Batched,
{
    pub(crate) net: &'n mut Net<N, D>,
    pub(crate) settings: Settings,
    pub(crate) metrics: Metrics<'c, N>,
    pub(crate) validation: Option<Loader<N::Input, N::Target>>,
    pub(crate) logs: Vec<Box<dyn Logger + 'c>>,
    pub(crate) on_step: Vec<Call<'c, N, D>>,
    pub(crate) on_epoch: Vec<Call<'c, N, D>>,
    pub(crate) progress: Option<Box<dyn Write + 'c>>,
    pub(crate) stopper: Stopper,
}

impl<'n, 'c, N: Trains, D: Device> Trainer<'n, 'c, N, D>
where
    N::Input: Batched,
    N::Target: Batched,
{
    /// Returns a trainer of a network with default settings.
    pub fn new(net: &'n mut Net<N, D>) -> Self {
        let settings = Settings {
            epochs: None,
            max_steps: None,
            evaluate_every: Every::Epoch,
            log_every: 10,
            snapshot_every: None,
            by: None,
            patience: None,
            keep: None,
            checkpoint: None,
            resume: Resume::No,
            is_quiet: false,
            catches_ctrl_c: true,
        };
        Trainer {
            net,
            settings,
            metrics: Vec::new(),
            validation: None,
            logs: Vec::new(),
            on_step: Vec::new(),
            on_epoch: Vec::new(),
            progress: None,
            stopper: Stopper::default(),
        }
    }

    /// Trains until the loader has returned so many epochs, those of earlier runs included.
    #[must_use]
    pub fn epochs(mut self, epochs: u64) -> Self {
        self.settings.epochs = Some(epochs);
        self
    }

    /// Trains until the network has made so many steps, those of earlier runs included.
    #[must_use]
    pub fn max_steps(mut self, steps: u64) -> Self {
        self.settings.max_steps = Some(steps);
        self
    }

    /// Validates on a data set, or on a loader of one, at each evaluation. See [Validation](Trainer#validation).
    #[must_use]
    pub fn validate<K>(mut self, samples: impl ValidateOn<N::Input, N::Target, K>) -> Self {
        self.validation = Some(samples.loader());
        self
    }

    /// Adds a metric of the validation set. Each call adds one.
    #[must_use]
    #[doc(alias = "metric")]
    pub fn metrics(mut self, metric: impl Metric<N::Output, N::Target> + 'c) -> Self {
        self.metrics.push(Box::new(metric));
        self
    }

    /// Sets the interval of evaluations. The default is the end of each epoch.
    ///
    /// `train_loss` is the mean over samples of the losses of all steps since the last evaluation.
    #[must_use]
    pub fn evaluate_every(mut self, every: Every) -> Self {
        self.settings.evaluate_every = every;
        self
    }

    /// Saves checkpoints to a folder, and one at the end.
    ///
    /// A state is copied to host memory, and a thread writes it during training. `latest` in the folder names the newest one. See
    /// [`gpumem_state`].
    #[must_use]
    pub fn checkpoint(mut self, folder: impl Into<PathBuf>, every: Every) -> Self {
        self.settings.checkpoint = Some((folder.into(), every));
        self
    }

    /// Keeps the last so many checkpoints and the best one. Without it, all are kept.
    #[must_use]
    pub fn keep(mut self, checkpoints: usize) -> Self {
        self.settings.keep = Some(checkpoints);
        self
    }

    /// Resumes from the newest checkpoint: step, loader's position, learning rate, best value, patience and logs.
    ///
    /// On the CPU, and on a card with `deterministic: true`, the training then equals an uninterrupted one to the bit.
    #[must_use]
    pub fn resume(mut self) -> Self {
        self.settings.resume = Resume::Must;
        self
    }

    /// Resumes as [`Trainer::resume`] does if the folder has a checkpoint. Starts anew otherwise, so that a program may always call it.
    #[must_use]
    pub fn resume_if_any(mut self) -> Self {
        self.settings.resume = Resume::IfAny;
        self
    }

    /// Chooses the best evaluation by a value: `val_loss`, `train_loss` or a metric as `val_accuracy`. Its checkpoint is marked `best`.
    ///
    /// Losses and errors are better if they are lower, accuracies if they are higher: see [`Metric::goal`].
    #[must_use]
    pub fn best_by(mut self, name: impl Into<String>) -> Self {
        self.settings.by = Some(By::Known(name.into()));
        self
    }

    /// Chooses the best evaluation by the highest value of any name, also one that a callback logs. Otherwise as [`Trainer::best_by`].
    #[must_use]
    pub fn best_by_highest(mut self, name: impl Into<String>) -> Self {
        self.settings.by = Some(By::Any(name.into(), Goal::Highest));
        self
    }

    /// Chooses the best evaluation by the lowest value of any name, also one that a callback logs. Otherwise as [`Trainer::best_by`].
    #[must_use]
    pub fn best_by_lowest(mut self, name: impl Into<String>) -> Self {
        self.settings.by = Some(By::Any(name.into(), Goal::Lowest));
        self
    }

    /// Stops after so many evaluations in a row without a better value than the best.
    ///
    /// The value is that of [`Trainer::best_by`]; without one, `val_loss` if there is validation, and `train_loss` otherwise.
    #[must_use]
    pub fn early_stop(mut self, evaluations: u64) -> Self {
        self.settings.patience = Some(evaluations);
        self
    }

    /// Adds a log: [`JsonLines`](crate::log::JsonLines), [`Csv`](crate::log::Csv), [`TensorBoard`](crate::log::TensorBoard), or a user's
    /// own.
    #[must_use]
    pub fn log(mut self, log: impl Logger + 'c) -> Self {
        self.logs.push(Box::new(log));
        self
    }

    /// Logs the loss of each step whose number is a multiple of `steps`. The default is 10; 0 logs evaluations alone.
    #[must_use]
    pub fn log_every(mut self, steps: u64) -> Self {
        self.settings.log_every = steps;
        self
    }

    /// Calls a function after each step. It may log values, set the learning rate, or stop the training.
    ///
    /// ```no_run
    /// # use gpumem::prelude::*;
    /// # use gpumem_train::Trainer;
    /// # network! {
    /// #     pub struct Small;
    /// #     const TRAIN: Train = Train { batch: 16, optimizer: Sgd { lr: 0.5 }, loss: CrossEntropy };
    /// #     fn forward(point: Features<2>) -> Logits<2> { [Linear(2)] }
    /// # }
    /// # fn example(net: &mut Net<Small, AnyDevice>) {
    /// let trainer = Trainer::new(net).max_steps(10_000).on_step(|context| {
    ///     context.set_lr(1e-3 / (1.0 + context.step() as f64 / 1000.0))?;
    ///     Ok(())
    /// });
    /// # }
    /// ```
    #[must_use]
    pub fn on_step(
        mut self,
        call: impl FnMut(&mut Context<'_, N, D>) -> std::result::Result<(), BoxError> + 'c,
    ) -> Self {
        self.on_step.push(Box::new(call));
        self
    }

    /// Calls a function after each evaluation: at the end of each epoch, or at the interval of [`Trainer::evaluate_every`].
    #[must_use]
    pub fn on_epoch(
        mut self,
        call: impl FnMut(&mut Context<'_, N, D>) -> std::result::Result<(), BoxError> + 'c,
    ) -> Self {
        self.on_epoch.push(Box::new(call));
        self
    }

    /// Copies the training state to host memory every so many steps, to find the origin of a NaN.
    ///
    /// The default is 100, or none if the state is larger than 4 GiB. 0 takes no copies.
    ///
    /// A copy takes as much host memory as parameters, statistics and optimizer state take on the device, and the time to copy them. After
    /// a NaN, at most so many steps are repeated.
    #[must_use]
    pub fn snapshot_every(mut self, steps: u64) -> Self {
        self.settings.snapshot_every = Some(steps);
        self
    }

    /// Shows no progress.
    #[must_use]
    pub fn quiet(mut self) -> Self {
        self.settings.is_quiet = true;
        self
    }

    /// Writes progress as plain lines to `writer`, rather than to standard error.
    #[must_use]
    pub fn progress_to(mut self, writer: impl Write + 'c) -> Self {
        self.progress = Some(Box::new(writer));
        self
    }

    /// Leaves Ctrl-C to the program, which may stop the training with [`Trainer::stopper`].
    #[must_use]
    pub fn ignore_ctrl_c(mut self) -> Self {
        self.settings.catches_ctrl_c = false;
        self
    }

    /// Returns a handle that stops the training after its current step, from any thread.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Returns the network.
    pub fn net(&mut self) -> &mut Net<N, D> {
        self.net
    }

    /// Evaluates the network on the validation set now, and returns `val_loss` and the metrics. Nothing is logged.
    ///
    /// # Errors
    /// [`Error::Setting`] without a validation set, and any error of the validation.
    pub fn evaluate(&mut self) -> Result<EvaluationReport> {
        self.check()?;
        let Some(validation) = &mut self.validation else {
            return Err(Error::setting("there is nothing to evaluate on; add `.validate(set)`"));
        };
        let step = self.net.steps().map_err(Error::compute(0))?;
        let scores = evaluate(self.net, validation, &mut self.metrics, step, &|| false)?.unwrap_or_default();
        Ok(EvaluationReport { values: scores.values, is_best: false })
    }

    /// Checks the settings.
    pub(crate) fn check(&self) -> Result<()> {
        let settings = &self.settings;
        if !self.metrics.is_empty() && self.validation.is_none() {
            return Err(Error::setting(
                "metrics need samples that the network is not trained on; add `.validate(set)`",
            ));
        }
        let names = self.names();
        if let Some((_, name)) = names.iter().enumerate().find(|(index, name)| names[..*index].contains(name)) {
            return Err(Error::setting(format!(
                "two values have the name `{name}`; give one metric a name of its own, as \
                 `select(metric, |outputs| outputs, |targets| targets).named(\"other\")` does"
            )));
        }
        if settings.patience == Some(0) {
            return Err(Error::setting(
                "early stopping after 0 evaluations stops at once; take `.early_stop(1)` or more",
            ));
        }
        let every = [Some(settings.evaluate_every), settings.checkpoint.as_ref().map(|checkpoint| checkpoint.1)];
        if every.into_iter().flatten().any(|every| !every.is_possible()) {
            return Err(Error::setting("an interval of 0 steps or minutes is none; take `Every::Steps(1)` or more"));
        }
        if settings.checkpoint.is_none() && (settings.resume != Resume::No || settings.keep.is_some()) {
            return Err(Error::setting(
                "`resume`, `resume_if_any` and `keep` are about checkpoints; add `.checkpoint(\"run\", Every::Epoch)`",
            ));
        }
        self.follow().map(|_| ())
    }

    /// Returns the names of all values of steps and evaluations, except those of callbacks.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = ["loss", "lr", "train_loss"].map(String::from).to_vec();
        if self.validation.is_some() {
            names.push("val_loss".into());
            names.extend(self.metrics.iter().map(|metric| logged(&metric.name())));
        }
        names
    }

    /// Returns the tracker of the best value. `None` if no value is followed.
    pub(crate) fn follow(&self) -> Result<Option<Follow>> {
        let Settings { by, patience, .. } = &self.settings;
        let default = if self.validation.is_some() { "val_loss" } else { "train_loss" };
        let by = match by {
            None if patience.is_none() => return Ok(None),
            None => By::Known(default.into()),
            Some(by) => by.clone(),
        };
        let (name, goal) = match by {
            By::Any(name, goal) => (name, goal),
            By::Known(name) => {
                let goal = self.goal(&name)?;
                (name, goal)
            }
        };
        Ok(Some(Follow::new(name, goal, *patience)))
    }

    /// Returns the direction in which a value of an evaluation is better.
    fn goal(&self, name: &str) -> Result<Goal> {
        let mut known = vec![("train_loss".to_string(), Goal::Lowest)];
        if self.validation.is_some() {
            known.push(("val_loss".into(), Goal::Lowest));
            known.extend(self.metrics.iter().map(|metric| (logged(&metric.name()), metric.goal())));
        }
        if let Some((_, goal)) = known.iter().find(|(other, _)| other == name) {
            return Ok(*goal);
        }
        let names: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
        Err(Error::setting(format!(
            "no evaluation has a value `{name}` to choose the best by; there is {}: for a value that a callback logs, take \
             `.best_by_highest(\"{name}\")` or `.best_by_lowest(\"{name}\")`",
            listed(&names)
        )))
    }

    /// Returns the settings of checkpoints. `None` if there are none.
    pub(crate) fn checkpoint_settings(&self) -> Option<CheckpointSettings> {
        let Settings { checkpoint, keep, resume, .. } = &self.settings;
        let (folder, every) = checkpoint.clone()?;
        Some(CheckpointSettings { folder, every, keep: *keep, resume: *resume })
    }
}
