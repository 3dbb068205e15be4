//! The start of a training: checkpoints to resume from, the display, and the number of steps to make.

use crate::best::Follow;
use crate::checkpoint::{self, Checkpoints, Counts};
use crate::error::{Error, Result};
use crate::padding::Padding;
use crate::progress::Display;
use crate::trainer::Trainer;
use gpumem_core::network::Trains;
use gpumem_core::run::device::Device;
use gpumem_data::{Batched, Loader};
use std::time::Instant;

/// The checkpoints of a run, and the numbers that it starts with.
pub(crate) struct Opened {
    pub(crate) checkpoints: Option<Checkpoints>,
    pub(crate) counts: Counts,
    /// Steps of the checkpoint. `None` if the training starts anew.
    pub(crate) resumed: Option<u64>,
}

impl Opened {
    /// Opens the folder of checkpoints if one is set. Resumes network, loader and the best value if the settings say so.
    pub(crate) fn new<N: Trains, D: Device>(
        trainer: &mut Trainer<'_, '_, N, D>,
        loader: &mut Loader<N::Input, N::Target>,
        follow: Option<&mut Follow>,
        start: Instant,
    ) -> Result<Opened>
    where
        N::Input: Batched,
        N::Target: Batched,
    {
        let anew = Opened { checkpoints: None, counts: Counts::default(), resumed: None };
        let Some(settings) = trainer.checkpoint_settings() else { return Ok(anew) };
        let (opened, state) = checkpoint::open(&settings, trainer.net, start)?;
        let checkpoints = Some(opened);
        let Some(state) = state else { return Ok(Opened { checkpoints, ..anew }) };
        let (position, counts) = checkpoint::read(&state.progress, follow);
        loader.resume(position);
        Ok(Opened { checkpoints, counts, resumed: Some(state.steps) })
    }
}

/// Returns the display that the settings ask for.
pub(crate) fn display<'c, N: Trains, D: Device>(
    trainer: &mut Trainer<'_, 'c, N, D>,
    resumed: Option<u64>,
) -> Display<'c>
where
    N::Input: Batched,
    N::Target: Batched,
{
    if trainer.settings.is_quiet || trainer.net.rank() > 0 {
        return Display::Quiet;
    }
    let mut display = trainer.progress.take().map_or_else(Display::on_stderr, Display::lines);
    if let Some(step) = resumed {
        display.line(&format!("goes on after step {step}"));
    }
    display
}

/// Checks before the first step that the loss ignores the padding of a loader's last batch.
pub(crate) fn check_padding<I: Batched, T: Batched>(
    loader: &Loader<I, T>,
    padding: Padding,
    room: usize,
) -> Result<()> {
    let (batches, samples) = (loader.batches()?, loader.samples());
    let batch = room.saturating_mul(loader.share()[1]);
    if batches.saturating_mul(batch) > samples && !padding.leaves_out() {
        return Err(Error::Padding { samples: samples % batch.max(1), batch });
    }
    Ok(())
}

/// Returns the number of steps at the end of a training, after `made` steps with batches of `batch` samples of all ranks. `None` if only early stopping ends it.
pub(crate) fn last_step<I: Batched, T: Batched>(
    loader: &Loader<I, T>,
    (made, batch): (u64, usize),
    epochs: Option<u64>,
    max_steps: Option<u64>,
) -> Result<Option<u64>> {
    let Some(epochs) = epochs else { return Ok(max_steps) };
    let batches = loader.batches()? as u64;
    let position = loader.position();
    let all = epochs.saturating_sub(position.epoch).saturating_mul(batches);
    let left = all.saturating_sub(position.sample / (batch as u64).max(1));
    let last = made.saturating_add(left);
    Ok(Some(max_steps.map_or(last, |steps| steps.min(last))))
}
