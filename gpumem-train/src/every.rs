//! Intervals of a training.

use crate::error::{Error, Result};
use gpumem_core::network::Network;
use gpumem_core::run::device::Device;
use gpumem_core::run::net::Net;
use std::time::{Duration, Instant};

/// An interval between checkpoints or evaluations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// The end of each epoch.
    Epoch,
    /// Each number of steps that is a multiple of this one.
    Steps(u64),
    /// The first step after so many minutes since the last time, or since the training started.
    Minutes(u64),
}

/// The facts after a step that intervals depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tick {
    pub step: u64,
    /// True after the last batch of an epoch.
    pub ends_epoch: bool,
    pub now: Instant,
}

/// An interval, and the last time it was due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    every: Every,
    last: Instant,
}

impl Due {
    pub fn new(every: Every, start: Instant) -> Due {
        Due { every, last: start }
    }

    /// True if it is due after a step, on all ranks of a network.
    pub fn is_due<N: Network, D: Device>(&mut self, tick: Tick, net: &mut Net<N, D>) -> Result<bool> {
        let own = self.has_passed(tick);
        // Clocks differ; epochs and steps do not.
        let is_due = match self.every {
            Every::Minutes(_) => net.any_rank(own).map_err(Error::compute(tick.step))?,
            Every::Epoch | Every::Steps(_) => own,
        };
        if is_due {
            self.last = tick.now;
        }
        Ok(is_due)
    }

    /// True if the interval has passed since the last time.
    fn has_passed(&self, tick: Tick) -> bool {
        match self.every {
            Every::Epoch => tick.ends_epoch,
            Every::Steps(steps) => tick.step.is_multiple_of(steps),
            Every::Minutes(minutes) => {
                tick.now.saturating_duration_since(self.last) >= Duration::from_secs(minutes.saturating_mul(60))
            }
        }
    }
}

impl Every {
    /// True unless it is an interval of 0, which would be due after each step.
    pub(crate) fn is_possible(self) -> bool {
        !matches!(self, Every::Steps(0) | Every::Minutes(0))
    }
}

#[cfg(test)]
mod tests {
    use super::{Due, Every, Tick};
    use std::time::{Duration, Instant};

    #[test]
    fn intervals_are_due_when_they_have_passed() {
        let start = Instant::now();
        let due = |every, ticks: &[(u64, bool, u64)]| {
            let mut due = Due::new(every, start);
            let tick = |&(step, ends_epoch, seconds): &(u64, bool, u64)| {
                let tick = Tick { step, ends_epoch, now: start + Duration::from_secs(seconds) };
                let has_passed = due.has_passed(tick);
                if has_passed {
                    due.last = tick.now;
                }
                has_passed
            };
            ticks.iter().map(tick).collect::<Vec<bool>>()
        };
        assert_eq!(due(Every::Epoch, &[(1, false, 0), (2, true, 0), (3, false, 0)]), [false, true, false]);
        assert_eq!(due(Every::Steps(2), &[(1, true, 0), (2, false, 0), (4, false, 0)]), [false, true, true]);
        let minutes = due(Every::Minutes(2), &[(1, true, 119), (2, true, 121), (3, true, 200), (4, false, 241)]);
        assert_eq!(minutes, [false, true, false, true]);
        assert!(!Every::Steps(0).is_possible() && !Every::Minutes(0).is_possible() && Every::Epoch.is_possible());
    }
}
