//! Reports of a training: of a step, of an evaluation, of its end.

use crate::best::Best;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A training step that was made.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepReport {
    /// Training steps that have been made, this one included.
    pub step: u64,
    /// The epoch of its batch; the first is 0.
    pub epoch: u64,
    /// The loss before the step's update.
    pub loss: f32,
    /// Samples of the batch, without padding.
    pub samples: usize,
    /// True if the step updated nothing, because a gradient was not finite: with `skip: NonFinite` in `TRAIN`. `step` does not count it.
    pub is_skipped: bool,
    /// The evaluation after the step. `None` if none was due.
    pub evaluation: Option<EvaluationReport>,
}

/// An evaluation, at the end of an epoch or at the interval of [`Trainer::evaluate_every`](crate::Trainer::evaluate_every).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EvaluationReport {
    /// Names and values: `train_loss`, `val_loss`, `val_accuracy`, and values that callbacks logged.
    pub values: Vec<(String, f64)>,
    /// True if it is the best one so far.
    pub is_best: bool,
}

impl EvaluationReport {
    /// Returns the value of this name. `None` if there is none.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|(other, _)| other == name).map(|(_, value)| *value)
    }
}

/// The reason why a training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// All epochs or steps were made.
    Finished,
    /// There was no better value for as many evaluations as [`Trainer::early_stop`](crate::Trainer::early_stop) allows.
    Stalled,
    /// Ctrl-C.
    Interrupted,
    /// A callback or a [`Stopper`](crate::Stopper) asked for it.
    Asked,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stop::Finished => "finished",
            Stop::Stalled => "stopped early",
            Stop::Interrupted => "interrupted by Ctrl-C",
            Stop::Asked => "stopped as asked",
        })
    }
}

/// A training that ended. `Display` prints it in a few lines.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TrainReport {
    /// The reason why it ended.
    pub stop: Stop,
    /// Training steps that have been made, those of earlier runs included.
    pub steps: u64,
    /// Whole epochs that have been made, those of earlier runs included.
    pub epochs: u64,
    /// Steps of the checkpoint from which it was resumed. `None` if it started anew.
    pub resumed: Option<u64>,
    /// The last evaluation. `None` if there was none in this run.
    pub last: Option<EvaluationReport>,
    /// The best evaluation. `None` if no value is followed, or none was a number.
    pub best: Option<Best>,
    /// The last checkpoint. `None` if none was saved in this run.
    pub checkpoint: Option<PathBuf>,
    /// Time of this run.
    pub elapsed: Duration,
    /// Time of this run in which the training waited for data.
    pub waited: Duration,
}

impl fmt::Display for TrainReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TrainReport { stop, steps, epochs, last, best, checkpoint, elapsed, waited, .. } = self;
        let plural = |count: &u64| if *count == 1 { "" } else { "s" };
        write!(f, "{stop} after {epochs} epoch{} and {steps} step{}", plural(epochs), plural(steps))?;
        write!(f, ", in {:.1} s ({:.1} s of them waiting for data)", elapsed.as_secs_f64(), waited.as_secs_f64())?;
        if let Some(last) = last {
            f.write_str("\n  last:")?;
            last.values.iter().try_for_each(|(name, value)| write!(f, " {name} {value:.4}"))?;
        }
        if let Some(Best { name, value, step, epoch, .. }) = best {
            write!(f, "\n  best: {name} {value:.4} in epoch {}, step {step}", epoch + 1)?;
        }
        match checkpoint {
            Some(path) => write!(f, "\n  saved: {}", path.display()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Best, EvaluationReport, Stop, TrainReport};
    use std::time::Duration;

    #[test]
    fn a_report_is_a_few_lines() {
        let report = TrainReport {
            stop: Stop::Interrupted,
            steps: 120,
            epochs: 1,
            resumed: None,
            last: None,
            best: None,
            checkpoint: None,
            elapsed: Duration::from_millis(1250),
            waited: Duration::ZERO,
        };
        let first = "interrupted by Ctrl-C after 1 epoch and 120 steps, in 1.2 s (0.0 s of them waiting for data)";
        assert_eq!(report.to_string(), first);
        let values = vec![("train_loss".to_string(), 0.5), ("val_loss".to_string(), 0.25)];
        let best = Best { name: "val_loss".into(), value: 0.125, step: 90, epoch: 0 };
        let whole = TrainReport {
            last: Some(EvaluationReport { values, is_best: false }),
            best: Some(best),
            checkpoint: Some("run/step-00000120".into()),
            ..report
        };
        let others = "\n  last: train_loss 0.5000 val_loss 0.2500\n  best: val_loss 0.1250 in epoch 1, step 90\n  saved: run/step-00000120";
        assert_eq!(whole.to_string(), format!("{first}{others}"));
        let texts = [Stop::Finished, Stop::Stalled, Stop::Asked].map(|stop| stop.to_string());
        assert_eq!(texts, ["finished", "stopped early", "stopped as asked"]);
    }
}
