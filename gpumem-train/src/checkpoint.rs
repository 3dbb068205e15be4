//! Checkpoints of a training: the network's state, the loader's position, and the trainer's counts.

use crate::best::Follow;
use crate::error::{Error, Result};
use crate::every::{Due, Every, Tick};
use gpumem_core::network::Trains;
use gpumem_core::run::device::Device;
use gpumem_core::run::net::Net;
use gpumem_data::Position;
use gpumem_state::{NetState, Progress, Resumed, Saver, has_state};
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::time::Instant;

/// The key of the trainer's numbers among those that a program adds to a state.
const KEY: &str = "trainer";

/// The mark of the best state.
const BEST: &str = "best";

/// The start of a training: anew or from a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    /// It starts anew. Its folder must have no state.
    No,
    /// It resumes if there is a state.
    IfAny,
    /// It resumes. There must be a state.
    Must,
}

/// The settings of checkpoints.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub folder: PathBuf,
    pub every: Every,
    pub keep: Option<usize>,
    pub resume: Resume,
}

/// The numbers of a trainer that are restored when a training is resumed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    /// Sum over samples of the losses since the last evaluation.
    pub loss_sum: f64,
    /// Samples of that sum.
    pub loss_samples: u64,
    /// Seconds of training.
    pub seconds: f64,
    /// The loss of the last step.
    pub last_loss: f32,
    /// True if an evaluation after the last step was interrupted.
    pub owes_evaluation: bool,
}

/// The checkpoints of one run.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    saver: Saver,
    due: Due,
    /// Steps of the last state. `None` if none was saved in this run.
    last: Option<u64>,
}

/// The position and the counts of a training, without its network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub step: u64,
    pub position: Position,
    pub counts: Counts,
    pub follow: Option<&'a Follow>,
}

/// Opens the folder, and resumes if the settings say so.
pub(crate) fn open<N: Trains, D: Device>(
    settings: &Settings,
    net: &mut Net<N, D>,
    start: Instant,
) -> Result<(Checkpoints, Option<Resumed>)> {
    let Settings { folder, every, keep, resume } = settings;
    if *resume == Resume::No && has_state(folder)? {
        let what = "has states of an earlier training; go on from the newest with `.resume_if_any()`, or choose another folder";
        return Err(Error::file(folder, what));
    }
    let mut saver = Saver::on_rank(folder, net.rank())?;
    if let Some(keep) = *keep {
        saver = saver.keep(keep);
    }
    let resumed = match resume {
        Resume::No => None,
        Resume::IfAny => net.resume_if_any(folder)?,
        Resume::Must => Some(NetState::resume(net, folder)?),
    };
    let last = resumed.as_ref().map(|resumed| resumed.steps);
    Ok((Checkpoints { saver, due: Due::new(*every, start), last }, resumed))
}

impl Checkpoints {
    /// Saves if the interval has passed.
    pub fn tick<N: Trains, D: Device>(&mut self, net: &mut Net<N, D>, place: Place<'_>, tick: Tick) -> Result<()> {
        if self.due.is_due(tick, net)? { self.save(net, place) } else { Ok(()) }
    }

    /// Saves, unless the last state is of this step.
    pub fn save<N: Trains, D: Device>(&mut self, net: &mut Net<N, D>, place: Place<'_>) -> Result<()> {
        if self.last != Some(place.step) {
            self.saver.save(net, &place.progress())?;
            self.saved(place);
        }
        Ok(())
    }

    /// Saves a state that is the best one so far.
    pub fn save_best<N: Trains, D: Device>(&mut self, net: &mut Net<N, D>, place: Place<'_>) -> Result<()> {
        self.saver.save_marked(net, &place.progress(), BEST)?;
        self.saved(place);
        Ok(())
    }

    fn saved(&mut self, place: Place<'_>) {
        self.last = Some(place.step);
        tracing::info!(step = place.step, folder = %self.saver.folder().display(), "checkpoint");
    }

    /// Waits until all states are on the disk, and returns the last state of this run. `None` if there is none.
    pub fn wait(&mut self) -> Result<Option<PathBuf>> {
        Ok(self.saver.wait()?)
    }
}

impl Place<'_> {
    fn progress(&self) -> Progress {
        let Counts { loss_sum, loss_samples, seconds, last_loss, owes_evaluation } = self.counts;
        let mut own = Map::new();
        // As bits, so that numbers are restored exactly.
        own.insert("loss_sum_bits".into(), loss_sum.to_bits().into());
        own.insert("loss_samples".into(), loss_samples.into());
        own.insert("seconds".into(), seconds.into());
        own.insert("last_loss_bits".into(), last_loss.to_bits().into());
        own.insert("owes_evaluation".into(), owes_evaluation.into());
        if let Some(follow) = self.follow {
            own.insert("best".into(), follow.save());
        }
        let mut extra = Map::new();
        extra.insert(KEY.into(), Value::Object(own));
        Progress { epoch: self.position.epoch, sample: self.position.sample, extra }
    }
}

/// Returns the position and the numbers of a state, and restores `follow`. Numbers that are missing are 0.
pub(crate) fn read(progress: &Progress, follow: Option<&mut Follow>) -> (Position, Counts) {
    let own = progress.extra.get(KEY).unwrap_or(&Value::Null);
    let number = |name: &str| own.get(name).and_then(Value::as_u64).unwrap_or(0);
    let counts = Counts {
        loss_sum: f64::from_bits(number("loss_sum_bits")),
        loss_samples: number("loss_samples"),
        seconds: own.get("seconds").and_then(Value::as_f64).unwrap_or(0.0),
        last_loss: f32::from_bits(number("last_loss_bits") as u32),
        owes_evaluation: own.get("owes_evaluation").and_then(Value::as_bool).unwrap_or(false),
    };
    if let Some((follow, best)) = follow.zip(own.get("best")) {
        follow.resume(best);
    }
    (Position { epoch: progress.epoch, sample: progress.sample }, counts)
}

#[cfg(test)]
mod tests {
    use super::{Counts, Place, read};
    use crate::best::Follow;
    use crate::metrics::Goal;
    use gpumem_data::Position;
    use gpumem_state::Progress;

    #[test]
    fn a_place_is_read_as_it_was_written() {
        let mut follow = Follow::new("x".into(), Goal::Lowest, None);
        follow.look(&[("x".into(), 0.1)], 3, 0).unwrap();
        let counts =
            Counts { loss_sum: 0.1 + 0.2, loss_samples: 7, seconds: 1.5, last_loss: 0.3, owes_evaluation: true };
        let place = Place { step: 9, position: Position { epoch: 2, sample: 64 }, counts, follow: Some(&follow) };
        let text = serde_json::to_string(&place.progress()).unwrap();
        let progress: Progress = serde_json::from_str(&text).unwrap();
        let mut resumed = Follow::new("x".into(), Goal::Lowest, None);
        assert_eq!(read(&progress, Some(&mut resumed)), (place.position, counts));
        assert_eq!(resumed.best(), follow.best());
        assert_eq!(read(&Progress::default(), None), (Position::default(), Counts::default()));
    }
}
