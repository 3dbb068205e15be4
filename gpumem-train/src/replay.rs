//! Finds the origin of a loss that is not finite: repeats the steps since a snapshot, and checks all tensors.

use crate::error::{Error, Origin, Result};
use gpumem_core::network::{Network, Trains};
use gpumem_core::run::device::Device;
use gpumem_core::run::net::Net;
use gpumem_core::run::non_finite::NonFinite;
use gpumem_core::run::state::Snapshot;
use gpumem_data::{Batch, Batched, Loader, Position};

/// Returns the samples of the step that a batch is for: those of all ranks that share the step.
pub(crate) fn trained_samples<I, T>(batch: &Batch<I, T>, ranks: usize) -> usize {
    if ranks > 1 { batch.global_len } else { batch.len }
}

/// A copy of the training state, with the data needed to repeat the steps after it.
#[derive(Debug)]
pub(crate) struct Safe {
    snapshot: Snapshot,
    /// The loader's position.
    position: Position,
    /// Training steps that had been made.
    step: u64,
    /// Learning rates that were set since, each with the number of steps before it.
    rates: Vec<(u64, f64)>,
}

/// The default of steps between copies.
const STEPS: u64 = 100;

/// The most bytes of a copy that is taken by default.
const MOST_BYTES: u64 = 4 << 30;

/// Returns the steps between copies that take so many bytes: the number that was set, or a default.
pub(crate) fn interval(asked: Option<u64>, bytes: u64) -> u64 {
    asked.unwrap_or(if bytes <= MOST_BYTES { STEPS } else { 0 })
}

/// Copies of the training state from time to time.
#[derive(Debug)]
pub(crate) struct Replay {
    /// Steps between copies. 0 takes none.
    every: u64,
    safe: Option<Safe>,
    /// True if the network was changed by anything but steps and learning rates.
    is_stale: bool,
}

impl Replay {
    pub fn new(every: u64) -> Replay {
        Replay { every, safe: None, is_stale: false }
    }

    /// Takes a copy if one is due before the next step. `step` have been made.
    pub fn prepare<N: Trains, D: Device>(&mut self, net: &mut Net<N, D>, position: Position, step: u64) -> Result<()> {
        let is_due = |safe: &Safe| self.is_stale || step - safe.step >= self.every;
        if self.every == 0 || !self.safe.as_ref().is_none_or(is_due) {
            return Ok(());
        }
        let error = Error::compute(step);
        let safe = match self.safe.take() {
            Some(Safe { mut snapshot, mut rates, .. }) => {
                net.snapshot_into(&mut snapshot).map_err(error)?;
                rates.clear();
                Safe { snapshot, position, step, rates }
            }
            None => Safe { snapshot: net.snapshot().map_err(error)?, position, step, rates: Vec::new() },
        };
        self.safe = Some(safe);
        self.is_stale = false;
        Ok(())
    }

    /// Records a learning rate that was set after `step` steps.
    pub fn set_rate(&mut self, step: u64, rate: f64) {
        if let Some(safe) = &mut self.safe {
            safe.rates.push((step, rate));
        }
    }

    /// Records that the network was changed otherwise, so that a replay from the copy would not reach its state.
    pub fn touch(&mut self) {
        self.is_stale = true;
    }

    /// Finds the first tensor of step `bad` that is not finite, whose batch was at `position`. Afterwards network and loader are as before
    /// that step.
    pub fn explain<N: Trains, D: Device>(
        &mut self,
        net: &mut Net<N, D>,
        loader: &mut Loader<N::Input, N::Target>,
        bad: u64,
        position: Position,
    ) -> Origin
    where
        N::Input: Batched,
        N::Target: Batched,
    {
        let Some(safe) = self.safe.take() else { return Origin::NoSnapshot };
        safe.replay(net, loader, bad, position).unwrap_or_else(|error| Origin::Failed(error.to_string()))
    }
}

/// A function that runs one step of a replay, and returns true if the next one should follow.
type RunStep<'a, N, D> = dyn FnMut(
        &mut Net<N, D>,
        &<N as Network>::Input,
        &<N as Network>::Target,
    ) -> std::result::Result<bool, gpumem_core::error::Error>
    + 'a;

/// The network and the loader of a replay.
struct Stage<'a, N: Trains, D: Device>
where
    N::Input: Batched,
    N::Target: Batched,
{
    net: &'a mut Net<N, D>,
    loader: &'a mut Loader<N::Input, N::Target>,
}

impl Safe {
    fn replay<N: Trains, D: Device>(
        self,
        net: &mut Net<N, D>,
        loader: &mut Loader<N::Input, N::Target>,
        bad: u64,
        position: Position,
    ) -> Result<Origin>
    where
        N::Input: Batched,
        N::Target: Batched,
    {
        let last = bad.saturating_sub(1);
        let mut stage = Stage { net, loader };
        self.each_step(&mut stage, last, &mut |net, input, target| net.train_step(input, target).map(|_| true))?;
        let before = stage.net.snapshot().map_err(Error::compute(last))?;
        let batch = stage.next_batch()?;
        let found = stage.net.first_non_finite(&batch.input, &batch.target);
        let found = found.map_err(Error::compute(last))?.map(|found| (found, bad));
        drop(batch);
        let found = match found {
            // The number was there before the step: an earlier step computed it.
            Some((NonFinite { phase: None, .. }, _)) => self.search(&mut stage, last)?.or(found),
            found => found,
        };
        stage.net.restore(&before).map_err(Error::compute(last))?;
        stage.loader.resume(position);
        Ok(found.map_or(Origin::Vanished, |(found, step)| Origin::Found { tensor: found.to_string(), step }))
    }

    /// Checks each step up to step `last`, and returns the first tensor that broke the network, with its step. `None` if there is none.
    ///
    /// It has a NaN, or an infinity that stayed in the network.
    fn search<N: Trains, D: Device>(&self, stage: &mut Stage<'_, N, D>, last: u64) -> Result<Option<(NonFinite, u64)>>
    where
        N::Input: Batched,
        N::Target: Batched,
    {
        let (mut step, mut found) = (self.step, None);
        self.each_step(stage, last, &mut |net, input, target| {
            step += 1;
            let here = net.first_non_finite(input, target)?;
            let was_there = here.as_ref().is_some_and(|here| here.phase.is_none());
            // An infinity alone may be intended, unless it stays.
            let is_nan = here.as_ref().is_some_and(|here| here.is_nan);
            if !was_there || found.is_none() {
                found = here.map(|here| (here, step));
            }
            Ok(!was_there && !is_nan)
        })?;
        Ok(found)
    }

    /// Restores the copy, and calls `run` for each batch up to step `last`, or until it returns false.
    fn each_step<N: Trains, D: Device>(
        &self,
        stage: &mut Stage<'_, N, D>,
        last: u64,
        run: &mut RunStep<'_, N, D>,
    ) -> Result<()>
    where
        N::Input: Batched,
        N::Target: Batched,
    {
        stage.net.restore(&self.snapshot).map_err(Error::compute(self.step))?;
        stage.loader.resume(self.position);
        for step in self.step..=last {
            for &(_, rate) in self.rates.iter().filter(|(after, _)| *after == step) {
                stage.net.set_lr(rate).map_err(Error::compute(step))?;
            }
            if step == last {
                break;
            }
            let batch = stage.next_batch()?;
            if !run(stage.net, &batch.input, &batch.target).map_err(Error::compute(step))? {
                break;
            }
        }
        Ok(())
    }
}

impl<N: Trains, D: Device> Stage<'_, N, D>
where
    N::Input: Batched,
    N::Target: Batched,
{
    /// Returns the next batch that is trained on.
    fn next_batch(&mut self) -> Result<Batch<N::Input, N::Target>> {
        loop {
            let batch = self.loader.next_batch()?;
            if trained_samples(&batch, self.net.ranks()) > 0 {
                return Ok(batch);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::interval;

    #[test]
    fn a_large_state_is_copied_only_if_asked() {
        assert_eq!([interval(None, 1 << 20), interval(None, 5 << 30)], [100, 0]);
        assert_eq!([interval(Some(7), 5 << 30), interval(Some(0), 1)], [7, 0]);
    }
}
