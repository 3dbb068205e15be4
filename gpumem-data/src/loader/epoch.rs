//! One epoch, as an iterator over its batches.

use super::engine::{Engine, Wanted};
use super::order::{Division, Order};
use crate::batch::{Batch, Batched, Position};
use crate::error::{Error, Result};
use std::iter::FusedIterator;
use std::time::{Duration, Instant};

/// The batches of an epoch, from the loader's position to the end: see [`Loader::epoch`](crate::Loader::epoch).
///
/// The first error is the last item. If the epoch is dropped before its end, the loader's next one goes on where this one ended.
pub struct Epoch<'l, I: Batched, T: Batched> {
    engine: &'l mut Engine<I, T>,
    order: &'l Order,
    position: &'l mut Position,
    /// The loader's sum over all epochs.
    total_waited: &'l mut Duration,
    waited: Duration,
    division: Division,
    epoch: u64,
    /// Samples that were given out before this run of the epoch.
    before: usize,
    /// Batches of this run.
    batches: usize,
    asked: usize,
    given: usize,
}

impl<'l, I: Batched, T: Batched> Epoch<'l, I, T> {
    /// Begins a run of the epoch at `position`, and asks for its first batches.
    pub(super) fn new(
        engine: &'l mut Engine<I, T>,
        order: &'l Order,
        division: Division,
        position: &'l mut Position,
        total_waited: &'l mut Duration,
    ) -> Self {
        engine.begin();
        let (epoch, before) = (position.epoch, position.sample as usize);
        let batches = division.batches(before);
        let waited = Duration::ZERO;
        let (asked, given) = (0, 0);
        let mut run =
            Epoch { engine, order, position, total_waited, waited, division, epoch, before, batches, asked, given };
        run.ask();
        run
    }

    /// Returns the place after the last batch that was given out.
    pub fn position(&self) -> Position {
        *self.position
    }

    /// Returns how long the caller has waited for batches of this epoch.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Asks for as many batches as may be on their way.
    fn ask(&mut self) {
        while self.asked < self.batches && self.engine.has_room(self.asked - self.given) {
            let number = self.asked;
            let first = self.before + number * self.division.batch;
            let after = if number + 1 == self.batches {
                Position { epoch: self.epoch.saturating_add(1), sample: 0 }
            } else {
                Position { epoch: self.epoch, sample: (first + self.division.batch) as u64 }
            };
            self.engine.ask(self.order, &self.division, Wanted { number, epoch: self.epoch, first, after });
            self.asked += 1;
        }
    }

    fn wait(&mut self) -> bool {
        let start = Instant::now();
        let has_finished = self.engine.wait();
        let waited = start.elapsed();
        self.waited += waited;
        *self.total_waited += waited;
        has_finished
    }

    /// Ends the epoch: there are no further batches.
    fn end(&mut self) {
        self.given = self.batches;
        self.asked = self.batches;
    }
}

impl<I: Batched, T: Batched> Iterator for Epoch<'_, I, T> {
    type Item = Result<Batch<I, T>>;

    fn next(&mut self) -> Option<Result<Batch<I, T>>> {
        if self.given == self.batches {
            return None;
        }
        let job = loop {
            self.ask();
            if let Some(job) = self.engine.take(self.given) {
                break job;
            }
            if !self.wait() {
                self.end();
                return Some(Err(Error::setting("all workers have ended; make a new loader")));
            }
        };
        if let Err(error) = job.result {
            self.end();
            return Some(Err(error));
        }
        self.engine.keep(job.indices);
        self.given += 1;
        *self.position = job.tensors.position;
        let batch = Batch::new(job.tensors, &self.engine.pool);
        // The workers go on while the caller computes.
        self.ask();
        Some(Ok(batch))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // An error may end the epoch before.
        (usize::from(self.given < self.batches), Some(self.batches - self.given))
    }
}

impl<I: Batched, T: Batched> FusedIterator for Epoch<'_, I, T> {}
