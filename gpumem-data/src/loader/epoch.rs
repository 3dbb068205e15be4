//! One epoch, as an iterator over its batches.

use super::engine::{Engine, Wanted};
use super::order::{Division, EpochOrder};
use crate::batch::{Batch, Batched, Position};
use crate::error::{Error, Result};
use std::iter::FusedIterator;
use std::time::{Duration, Instant};

/// A run of an epoch, from a position to its end, with the next batches to request and to return.
pub(super) struct EpochRun {
    division: Division,
    epoch: u64,
    /// Samples of the epoch that were returned before this run.
    before: usize,
    /// Batches of this run.
    batches: usize,
    asked: usize,
    given: usize,
}

impl EpochRun {
    /// Begins a run at `position`, and requests its first batches.
    pub fn new<I: Batched, T: Batched>(
        engine: &mut Engine<I, T>,
        order: &EpochOrder,
        division: Division,
        position: Position,
    ) -> EpochRun {
        engine.begin();
        let (epoch, before) = (position.epoch, position.sample as usize);
        let batches = division.batches(before);
        let mut run = EpochRun { division, epoch, before, batches, asked: 0, given: 0 };
        run.ask(engine, order);
        run
    }

    /// Requests as many batches as may be in flight.
    fn ask<I: Batched, T: Batched>(&mut self, engine: &mut Engine<I, T>, order: &EpochOrder) {
        while self.asked < self.batches && engine.has_room(self.asked - self.given) {
            let number = self.asked;
            let first = self.before + number * self.division.global_batch();
            let after = if number + 1 == self.batches {
                Position { epoch: self.epoch.saturating_add(1), sample: 0 }
            } else {
                Position { epoch: self.epoch, sample: first.saturating_add(self.division.global_batch()) as u64 }
            };
            engine.ask(order, &self.division, Wanted { number, epoch: self.epoch, first, after });
            self.asked += 1;
        }
    }

    /// Returns the next batch, and adds the waiting time to `waited`. `None` at the end of the epoch.
    pub fn next<I: Batched, T: Batched>(
        &mut self,
        engine: &mut Engine<I, T>,
        order: &EpochOrder,
        waited: &mut Duration,
    ) -> Option<Result<Batch<I, T>>> {
        if self.given == self.batches {
            return None;
        }
        let job = loop {
            self.ask(engine, order);
            if let Some(job) = engine.take(self.given) {
                break job;
            }
            let start = Instant::now();
            let has_finished = engine.wait();
            *waited += start.elapsed();
            if !has_finished {
                self.end();
                return Some(Err(Error::setting("all workers have ended; make a new loader")));
            }
        };
        if let Err(error) = job.result {
            self.end();
            return Some(Err(error));
        }
        engine.keep(job.indices);
        self.given += 1;
        let batch = Batch::new(job.tensors, &engine.pool);
        // The workers continue while the caller computes.
        self.ask(engine, order);
        Some(Ok(batch))
    }

    /// Returns the number of batches that have not been returned.
    fn left(&self) -> usize {
        self.batches - self.given
    }

    /// Ends the run: there are no further batches.
    fn end(&mut self) {
        self.given = self.batches;
        self.asked = self.batches;
    }
}

/// The batches of an epoch, from the loader's position to the end: see [`Loader::epoch`](crate::Loader::epoch).
///
/// The first error is the last item. If the epoch is dropped before its end, the loader's next one continues there.
pub struct Epoch<'l, I: Batched, T: Batched> {
    engine: &'l mut Engine<I, T>,
    order: &'l EpochOrder,
    position: &'l mut Position,
    /// The loader's waiting time over all epochs.
    total_waited: &'l mut Duration,
    waited: Duration,
    run: EpochRun,
}

impl<'l, I: Batched, T: Batched> Epoch<'l, I, T> {
    pub(super) fn new(
        engine: &'l mut Engine<I, T>,
        order: &'l EpochOrder,
        position: &'l mut Position,
        total_waited: &'l mut Duration,
        run: EpochRun,
    ) -> Self {
        Epoch { engine, order, position, total_waited, waited: Duration::ZERO, run }
    }

    /// Returns the position after the last batch that was returned.
    pub fn position(&self) -> Position {
        *self.position
    }

    /// Returns the time that the caller has waited for batches of this epoch.
    pub fn waited(&self) -> Duration {
        self.waited
    }
}

impl<I: Batched, T: Batched> Iterator for Epoch<'_, I, T> {
    type Item = Result<Batch<I, T>>;

    fn next(&mut self) -> Option<Result<Batch<I, T>>> {
        let mut waited = Duration::ZERO;
        let next = self.run.next(self.engine, self.order, &mut waited);
        self.waited += waited;
        *self.total_waited += waited;
        if let Some(Ok(batch)) = &next {
            *self.position = batch.position;
        }
        next
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // An error may end the epoch earlier.
        (usize::from(self.run.left() > 0), Some(self.run.left()))
    }
}

impl<I: Batched, T: Batched> FusedIterator for Epoch<'_, I, T> {}
