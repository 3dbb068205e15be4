//! The steps of a training: the loop itself.

use crate::best::{Best, Follow};
use crate::checkpoint::{Checkpoints, Counts, Place};
use crate::context::{Asked, Context};
use crate::error::{Error, NotFinite, Origin, Result};
use crate::evaluation::{Scores, evaluate, room};
use crate::every::{Due, Tick};
use crate::guards;
use crate::interrupt::Guard;
use crate::log::{Begin, Entry};
use crate::metrics::Table;
use crate::padding::Padding;
use crate::progress::{Display, Status, Unit, evaluation_line, memory};
use crate::replay::{Replay, interval, trained_samples};
use crate::report::{EvaluationReport, StepReport, Stop, TrainReport};
use crate::shard::shard;
use crate::start::{Opened, check_padding, display, last_step};
use crate::trainer::{Settings, Trainer};
use gpumem_core::network::Trains;
use gpumem_core::run::device::Device;
use gpumem_core::run::net::{Kind, Net};
use gpumem_data::{Batch, Batched, Loader, Position};
use std::time::{Duration, Instant};

/// The steps of a training, as an iterator that makes one at a time.
///
/// After each step it logs, evaluates and saves as the trainer's settings say. It ends when [`Trainer::run`] would. A loop may also be left
/// earlier: states that were saved until then are on the disk.
pub struct TrainSteps<'t, 'n, 'c, N: Trains, D: Device>
where
    N::Input: Batched,
    N::Target: Batched,
{
    trainer: &'t mut Trainer<'n, 'c, N, D>,
    loader: &'t mut Loader<N::Input, N::Target>,
    checkpoints: Option<Checkpoints>,
    evaluation: Due,
    follow: Option<Follow>,
    replay: Replay,
    guard: Option<Guard>,
    display: Display<'c>,
    facts: Facts,
    /// Training steps that have been made.
    step: u64,
    /// The epoch of the last batch.
    epoch: u64,
    /// The learning rate before a schedule.
    rate: f64,
    /// True if the network may have been changed by anything but steps.
    is_touched: bool,
    counts: Counts,
    run: RunCounts,
    /// The reason to stop after the current step. `None` if there is none.
    asked: Option<Stop>,
    /// The final report. `None` before the end.
    report: Option<TrainReport>,
    /// True after an error or the end.
    has_ended: bool,
}

/// The facts that do not change in a run.
#[derive(Debug)]
struct Facts {
    padding: Padding,
    /// Samples that a batch has room for.
    room: usize,
    /// The ranks that share the training.
    ranks: usize,
    unit: Unit,
    memory: String,
    /// Steps at the end of the training. `None` if they are not known.
    steps: Option<u64>,
    resumed: Option<u64>,
    start: Instant,
    /// The time that the loader had waited for data before this run.
    waited: Duration,
    /// Seconds of earlier runs.
    seconds: f64,
}

/// The counts of a run, for its display and its report.
#[derive(Debug, Default)]
struct RunCounts {
    samples: u64,
    steps: u64,
    /// Steps in a row that were skipped.
    skipped: u64,
    /// Time of steps, without evaluations.
    busy: Duration,
    last: Option<EvaluationReport>,
}

impl<'n, 'c, N: Trains, D: Device> Trainer<'n, 'c, N, D>
where
    N::Input: Batched,
    N::Target: Batched,
{
    /// Trains until the settings end the training, and returns its report.
    ///
    /// # Errors
    /// [`Error::Setting`] if no setting ends the training, and the errors of [`Trainer::steps`] and [`TrainSteps::advance`]. The network
    /// keeps the state of its last step.
    pub fn run(&mut self, loader: &mut Loader<N::Input, N::Target>) -> Result<TrainReport> {
        let Settings { epochs: None, max_steps: None, patience: None, .. } = &self.settings else {
            return self.steps(loader)?.finish();
        };
        Err(Error::setting(
            "nothing says when the training ends; add `.epochs(90)`, `.max_steps(10_000)` or `.early_stop(5)`",
        ))
    }

    /// Starts or resumes a training, and returns its steps: an iterator that makes one at a time.
    ///
    /// # Errors
    /// Settings that are not possible, and a checkpoint, loader or log that cannot be opened. No step is made then.
    pub fn steps<'t>(
        &'t mut self,
        loader: &'t mut Loader<N::Input, N::Target>,
    ) -> Result<TrainSteps<'t, 'n, 'c, N, D>> {
        TrainSteps::begin(self, loader)
    }
}

impl<'t, 'n, 'c, N: Trains, D: Device> TrainSteps<'t, 'n, 'c, N, D>
where
    N::Input: Batched,
    N::Target: Batched,
{
    /// Starts a training: checks, resumes, opens logs.
    pub(crate) fn begin(
        trainer: &'t mut Trainer<'n, 'c, N, D>,
        loader: &'t mut Loader<N::Input, N::Target>,
    ) -> Result<TrainSteps<'t, 'n, 'c, N, D>> {
        trainer.check()?;
        let (padding, room) = (Padding::of::<N>(), room::<N>());
        let start = Instant::now();
        let mut follow = trainer.follow()?;
        shard(trainer.net, loader)?;
        check_padding(loader, padding, room)?;
        let Opened { checkpoints, counts, resumed } = Opened::new(trainer, loader, follow.as_mut(), start)?;
        let numbers = trainer.net.state_numbers().map_err(Error::compute(0))?;
        let names = trainer.names();
        let begin = Begin { network: N::NAME, resumed, step: numbers.steps, names: &names };
        let ranks = trainer.net.ranks();
        if trainer.net.rank() == 0 {
            trainer.logs.iter_mut().try_for_each(|log| log.begin(&begin))?;
        }
        let display = display(trainer, resumed);
        let bytes: u64 = trainer.net.state_tensors().iter().map(|tensor| tensor.bytes).sum();
        let settings = &trainer.settings;
        let steps = last_step(
            loader,
            (numbers.steps, room.saturating_mul(loader.share()[1])),
            settings.epochs,
            settings.max_steps,
        )?;
        guards::end_schedule(trainer.net, steps)?;
        let facts = Facts {
            padding,
            room,
            ranks,
            unit: Unit::of::<N::Input>(),
            memory: memory::<N>(),
            steps,
            resumed,
            start,
            waited: loader.waited(),
            seconds: counts.seconds,
        };
        tracing::info!(network = N::NAME, step = numbers.steps, resumed = resumed.is_some(), "training starts");
        Ok(TrainSteps {
            evaluation: Due::new(settings.evaluate_every, start),
            // Ranks of one machine each have a copy.
            replay: Replay::new(interval(settings.snapshot_every, bytes.saturating_mul(ranks as u64))),
            guard: settings.catches_ctrl_c.then(Guard::new).flatten(),
            step: numbers.steps,
            epoch: last_epoch(loader.position()),
            rate: numbers.lr,
            is_touched: false,
            run: RunCounts::default(),
            asked: follow.as_ref().filter(|follow| follow.has_stalled()).map(|_| Stop::Stalled),
            report: None,
            has_ended: false,
            trainer,
            loader,
            checkpoints,
            follow,
            display,
            facts,
            counts,
        })
    }

    /// Returns the network, between two steps.
    pub fn net(&mut self) -> &mut Net<N, D> {
        self.is_touched = true;
        self.trainer.net
    }

    /// Makes the remaining steps, and returns the report of the training.
    ///
    /// # Errors
    /// As for [`TrainSteps::advance`].
    pub fn finish(mut self) -> Result<TrainReport> {
        while self.advance()?.is_some() {}
        self.report.take().ok_or_else(|| Error::setting("the training ended with an error before; start it again"))
    }

    /// Returns the report. `None` until the training has ended.
    pub fn report(&self) -> Option<&TrainReport> {
        self.report.as_ref()
    }

    /// Makes one step. `None` if the training has ended.
    ///
    /// # Errors
    /// Any error of the step, or of the logs, evaluation and checkpoint after it; [`Error::NotFinite`] for a loss that is not finite. The
    /// training has ended then, and the network has the state of the last step.
    pub fn advance(&mut self) -> Result<Option<StepReport>> {
        if self.has_ended {
            return Ok(None);
        }
        let result = self.next_step();
        if !matches!(result, Ok(Some(_))) {
            self.has_ended = true;
            self.guard = None;
            self.trainer.progress = std::mem::replace(&mut self.display, Display::Quiet).into_lines();
        }
        if let Err(error) = &result {
            tracing::error!(step = self.step, %error, "training failed");
        }
        result
    }

    fn next_step(&mut self) -> Result<Option<StepReport>> {
        loop {
            // A request to stop is one of a rank; all ranks evaluate together.
            if self.counts.owes_evaluation && (self.facts.ranks > 1 || !self.is_asked()) {
                let mut report = self.step_report(self.counts.last_loss, 0);
                self.evaluate(&mut report)?;
            }
            if let Some(stop) = self.due_stop()? {
                self.end(stop)?;
                return Ok(None);
            }
            let start = Instant::now();
            let before = self.loader.position();
            let batch = self.loader.next_batch()?;
            let (position, samples) = (batch.position, trained_samples(&batch, self.facts.ranks));
            let ends_epoch = position.sample == 0;
            self.epoch = last_epoch(position);
            // A batch of padding alone, because other shards have more samples.
            if samples == 0 {
                drop(batch);
                let mut report = self.step_report(f32::NAN, 0);
                if ends_epoch {
                    self.after(&mut report, ends_epoch)?;
                }
                continue;
            }
            let loss = self.train(&batch, before)?;
            drop(batch);
            self.run.busy += start.elapsed();
            let is_skipped = self.run.skipped > 0;
            let mut report = StepReport { is_skipped, ..self.step_report(loss, samples) };
            self.after_step(&report)?;
            // After a skipped step the number of steps is unchanged, and all that was due at it has been done already.
            if !is_skipped || ends_epoch {
                self.after(&mut report, ends_epoch)?;
            }
            return Ok(Some(report));
        }
    }

    /// True if Ctrl-C or a stopper asks the training to stop.
    fn is_asked(&self) -> bool {
        self.guard.as_ref().is_some_and(Guard::is_interrupted) || self.trainer.stopper.is_asked()
    }

    fn step_report(&self, loss: f32, samples: usize) -> StepReport {
        StepReport { step: self.step, epoch: self.epoch, loss, samples, is_skipped: false, evaluation: None }
    }

    /// Returns the reason why no further step follows, on this rank or on another one. `None` if one follows.
    fn due_stop(&mut self) -> Result<Option<Stop>> {
        let own = self.own_stop();
        let is_due = self.trainer.net.any_rank(own.is_some()).map_err(Error::compute(self.step))?;
        Ok(own.or(is_due.then_some(Stop::Asked)))
    }

    /// Returns the reason why no further step follows on this rank.
    fn own_stop(&mut self) -> Option<Stop> {
        if self.guard.as_ref().is_some_and(Guard::is_interrupted) {
            return Some(Stop::Interrupted);
        }
        if self.trainer.stopper.take() {
            return Some(Stop::Asked);
        }
        let settings = &self.trainer.settings;
        let is_over = settings.epochs.is_some_and(|epochs| whole_epochs(self.loader) >= epochs)
            || settings.max_steps.is_some_and(|steps| self.step >= steps);
        self.asked.or(is_over.then_some(Stop::Finished))
    }

    /// Makes a training step, whose batch was at `before`, and returns its loss.
    fn train(&mut self, batch: &Batch<N::Input, N::Target>, before: Position) -> Result<f32> {
        let Facts { padding, room, .. } = self.facts;
        if batch.len < room && !padding.is_left_out(&batch.target, batch.len, room) {
            self.loader.resume(before);
            return Err(Error::Padding { samples: batch.len, batch: room });
        }
        let net = &mut *self.trainer.net;
        if std::mem::take(&mut self.is_touched) {
            let numbers = net.state_numbers().map_err(Error::compute(self.step))?;
            (self.step, self.rate) = (numbers.steps, numbers.lr);
            self.replay.touch();
        }
        let skips = net.skips_non_finite();
        // A skipped step does not change the network, so no copy is needed to repeat it.
        if !skips {
            self.replay.prepare(net, before, self.step)?;
        }
        let stepped = net.train_step(&batch.input, &batch.target);
        if stepped.is_err() {
            // After the error, network and loader are as before the batch.
            self.loader.resume(before);
        }
        let loss = stepped.map_err(Error::compute(self.step))?;
        if skips && net.steps().map_err(Error::compute(self.step))? == self.step {
            return self.skipped(batch, before, loss);
        }
        self.run.skipped = 0;
        self.step += 1;
        self.run.steps += 1;
        let samples = trained_samples(batch, self.facts.ranks) as u64;
        self.run.samples += samples;
        if loss.is_finite() {
            self.counts.last_loss = loss;
            self.counts.loss_sum += f64::from(loss) * samples as f64;
            self.counts.loss_samples += samples;
            return Ok(loss);
        }
        let origin = self.replay.explain(net, self.loader, self.step, before);
        let not_finite = NotFinite { step: self.step, loss, position: before, samples: batch.len, skipped: 0, origin };
        if matches!(not_finite.origin, Origin::Found { .. } | Origin::Vanished) {
            self.step -= 1;
        }
        Err(Error::NotFinite(Box::new(not_finite)))
    }

    /// Counts a step that was skipped.
    fn skipped(&mut self, batch: &Batch<N::Input, N::Target>, before: Position, loss: f32) -> Result<f32> {
        self.run.skipped += 1;
        tracing::warn!(step = self.step, loss, "step skipped: a gradient is not finite");
        if self.run.skipped < guards::MOST_SKIPPED {
            return Ok(loss);
        }
        let step = self.step + 1;
        let origin = guards::origin(self.trainer.net, batch, step);
        self.loader.resume(before);
        let not_finite =
            NotFinite { step, loss, position: before, samples: batch.len, skipped: self.run.skipped, origin };
        Err(Error::NotFinite(Box::new(not_finite)))
    }

    /// Calls callbacks, logs and shows a step.
    fn after_step(&mut self, report: &StepReport) -> Result<()> {
        // The rate of the step itself, before a callback changes it.
        let made = self.step.saturating_sub(1);
        let rate = self.trainer.net.schedule().rate(self.rate, made);
        let mut asked = Asked::default();
        for call in &mut self.trainer.on_step {
            let called = call(&mut Context::new(self.trainer.net, report, &mut asked));
            called.map_err(|error| Error::Callback { step: self.step, error })?;
        }
        let is_due = match self.trainer.settings.log_every {
            0 => false,
            every => self.step.is_multiple_of(every) && !report.is_skipped,
        };
        let mut values = Vec::new();
        if is_due {
            values.extend([("loss".to_string(), f64::from(report.loss)), ("lr".to_string(), rate)]);
            values.extend(guards::values(self.trainer.net, self.step, self.run.steps > 0)?);
        }
        values.append(&mut asked.values);
        self.heed(&asked);
        if !values.is_empty() {
            self.record(&values, &[])?;
        }
        let Facts { unit, ref memory, steps, waited, .. } = self.facts;
        let status = Status {
            epoch: self.epoch,
            epochs: self.trainer.settings.epochs,
            step: self.step,
            steps,
            loss: report.loss.into(),
            samples: self.run.samples,
            busy: self.run.busy,
            steps_made: self.run.steps,
            waited: self.loader.waited().saturating_sub(waited),
            unit,
            memory,
        };
        self.display.step(&status);
        Ok(())
    }

    /// Carries out the requests of a callback.
    fn heed(&mut self, asked: &Asked) {
        if let Some(rate) = asked.rate {
            self.rate = rate;
            self.replay.set_rate(self.step, rate);
        }
        self.is_touched |= asked.is_touched;
        if asked.stops {
            self.asked = Some(Stop::Asked);
        }
    }

    /// Evaluates and saves if that is due after a batch.
    fn after(&mut self, report: &mut StepReport, ends_epoch: bool) -> Result<()> {
        let tick = Tick { step: self.step, ends_epoch, now: Instant::now() };
        if self.evaluation.is_due(tick, self.trainer.net)? {
            self.evaluate(report)?;
        }
        let seconds = self.seconds();
        if let Some(checkpoints) = &mut self.checkpoints {
            let counts = Counts { seconds, ..self.counts };
            let place =
                Place { step: self.step, position: self.loader.position(), counts, follow: self.follow.as_ref() };
            checkpoints.tick(self.trainer.net, place, tick)?;
        }
        Ok(())
    }

    /// Evaluates the network, logs it, and follows the best value.
    fn evaluate(&mut self, report: &mut StepReport) -> Result<()> {
        let mut values = Vec::new();
        if self.counts.loss_samples > 0 {
            values.push(("train_loss".to_string(), self.counts.loss_sum / self.counts.loss_samples as f64));
        }
        let Trainer { net, validation, metrics, on_epoch, stopper, .. } = &mut *self.trainer;
        let mut tables = Vec::new();
        if let Some(validation) = validation {
            let guard = self.guard.as_ref();
            let is_alone = self.facts.ranks == 1;
            let is_asked = || is_alone && (guard.is_some_and(Guard::is_interrupted) || stopper.is_asked());
            let Some(scores) = evaluate(net, validation, metrics, self.step, &is_asked)? else {
                self.counts.owes_evaluation = true;
                return Ok(());
            };
            let Scores { values: found, tables: counted } = scores;
            values.extend(found);
            tables = counted;
        }
        (self.counts.loss_sum, self.counts.loss_samples, self.counts.owes_evaluation) = (0.0, 0, false);
        report.evaluation = Some(EvaluationReport { values, is_best: false });
        let mut asked = Asked::default();
        for call in on_epoch {
            let called = call(&mut Context::new(net, report, &mut asked));
            called.map_err(|error| Error::Callback { step: self.step, error })?;
        }
        let mut values = report.evaluation.take().map(|evaluation| evaluation.values).unwrap_or_default();
        values.append(&mut asked.values);
        self.heed(&asked);
        self.record(&values, &tables)?;
        self.log_parameters()?;
        let is_best = self.choose(&values)?;
        tracing::info!(step = self.step, epoch = self.epoch, is_best, ?values, "evaluation");
        self.display.line(&evaluation_line(self.epoch, self.step, &values, is_best));
        let evaluation = EvaluationReport { values, is_best };
        self.run.last = Some(evaluation.clone());
        report.evaluation = Some(evaluation);
        Ok(())
    }

    /// Checks whether an evaluation is the best one, and saves it then. Stops a training that has stalled.
    fn choose(&mut self, values: &[(String, f64)]) -> Result<bool> {
        let seconds = self.seconds();
        let Some(follow) = &mut self.follow else { return Ok(false) };
        let is_best = follow.look(values, self.step, self.epoch)?;
        if follow.has_stalled() {
            self.asked = self.asked.or(Some(Stop::Stalled));
        }
        if let Some(checkpoints) = self.checkpoints.as_mut().filter(|_| is_best) {
            let counts = Counts { seconds, ..self.counts };
            let place =
                Place { step: self.step, position: self.loader.position(), counts, follow: self.follow.as_ref() };
            checkpoints.save_best(self.trainer.net, place)?;
        }
        Ok(is_best)
    }

    fn record(&mut self, values: &[(String, f64)], tables: &[Table]) -> Result<()> {
        if self.trainer.net.rank() > 0 {
            return Ok(());
        }
        let record = Entry { step: self.step, epoch: self.epoch, seconds: self.seconds(), values, tables };
        self.trainer.logs.iter_mut().try_for_each(|log| log.record(&record))
    }

    /// Passes parameters to the logs that want them, one at a time.
    fn log_parameters(&mut self) -> Result<()> {
        let Trainer { net, logs, .. } = &mut *self.trainer;
        if !logs.iter().any(|log| log.wants_parameters()) {
            return Ok(());
        }
        let is_parameter = net.tensors().filter(|tensor| tensor.kind == Kind::Parameter);
        let names: Vec<String> = is_parameter.map(|tensor| tensor.name.to_string()).collect();
        for name in names {
            // All ranks gather it, and the first one logs it.
            let values = net.get(&name).map_err(Error::compute(self.step))?;
            if net.rank() > 0 {
                continue;
            }
            for log in logs.iter_mut().filter(|log| log.wants_parameters()) {
                log.parameter(self.step, &name, &values)?;
            }
        }
        Ok(())
    }

    /// Returns the seconds of training, over all runs.
    fn seconds(&self) -> f64 {
        self.facts.seconds + self.facts.start.elapsed().as_secs_f64()
    }

    /// Ends the training: saves a checkpoint, and builds the report.
    fn end(&mut self, stop: Stop) -> Result<()> {
        let seconds = self.seconds();
        let mut saved = None;
        if let Some(checkpoints) = &mut self.checkpoints {
            let counts = Counts { seconds, ..self.counts };
            let place =
                Place { step: self.step, position: self.loader.position(), counts, follow: self.follow.as_ref() };
            checkpoints.save(self.trainer.net, place)?;
            saved = checkpoints.wait()?;
        }
        let best: Option<Best> = self.follow.as_ref().and_then(|follow| follow.best().cloned());
        let report = TrainReport {
            stop,
            steps: self.step,
            epochs: whole_epochs(self.loader),
            resumed: self.facts.resumed,
            last: self.run.last.take(),
            best,
            checkpoint: saved,
            elapsed: self.facts.start.elapsed(),
            waited: self.loader.waited().saturating_sub(self.facts.waited),
        };
        tracing::info!(step = self.step, %stop, "training ends");
        self.display.line(&report.to_string());
        self.report = Some(report);
        Ok(())
    }
}

impl<N: Trains, D: Device> Iterator for TrainSteps<'_, '_, '_, N, D>
where
    N::Input: Batched,
    N::Target: Batched,
{
    type Item = Result<StepReport>;

    fn next(&mut self) -> Option<Result<StepReport>> {
        self.advance().transpose()
    }
}

/// Returns the epoch of the last batch before a position.
fn last_epoch(position: Position) -> u64 {
    if position.sample == 0 { position.epoch.saturating_sub(1) } else { position.epoch }
}

/// Returns the number of complete epochs that a loader has returned.
fn whole_epochs<I: Batched, T: Batched>(loader: &Loader<I, T>) -> u64 {
    loader.position().epoch
}
