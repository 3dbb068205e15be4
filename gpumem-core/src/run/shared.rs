//! The training step and the forward pass of `INFER` in one arena, over one set of weights.

use crate::error::Error;
use crate::memory::Compiled;
use crate::memory::budget::Line;
use crate::memory::place::{Placed, place, share, share_lasting};
use crate::network::{Network, Serve};
use crate::run::device::{Device, Runner, Served};
use crate::run::host_copies::{Outputs, give};
use crate::run::net::Net;
use crate::run::tensor::Give;
use crate::train::Shard;

impl<N: Network, D: Device> Net<N, D> {
    /// Loads the training step and the forward pass of `INFER` in one arena, with one set of parameters. The pass keeps its own batch;
    /// [`Net::infer`] runs it.
    ///
    /// # Errors
    /// As for [`Net::load`]; [`Error::Unsupported`] if `INFER` has another precision, a larger batch, or more activations than `TRAIN`,
    /// or if ranks shard the parameters; load it alone with `infer_on` then.
    pub fn load_shared(device: &D) -> Result<Net<N, D>, Error>
    where
        N: Serve,
    {
        Self::load_with(device, Some(N::INFERENCE))
    }

    /// Runs one forward pass with the settings of `INFER` and the current parameters. Without `TRAIN` it is [`Net::forward`].
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a network with `TRAIN` that was not loaded with `shared_on`; invalid data such as a token beyond the table.
    pub fn infer<'i>(&mut self, input: impl Give<'i, N::ServedInput>) -> Result<N::ServedOutput, Error>
    where
        N: Serve,
    {
        let input = input.give();
        if N::TRAIN.is_none() && N::STEPS.is_empty() {
            return self.run::<N::ServedInput, N::ServedOutput>(input);
        }
        let Some(Served { placed, .. }) = &self.served else {
            let what = "it was loaded without the forward pass of `INFER`; load it with `shared_on`".into();
            return Err(Error::Unsupported { device: N::NAME, what });
        };
        self.last = None;
        give::<N::ServedInput, _>(&mut self.runner, placed, self.precision, &mut self.buffer, (0, 1), input)?;
        self.runner.serve()?;
        let mut outputs = Outputs::default();
        outputs.read(&mut self.runner, placed)?;
        outputs.finish(placed, self.precision)
    }
}

/// Places the forward pass `serving` in the arena of the training step, whose size does not change.
pub(super) fn beside<N: Network>(train: &Placed, arena: u64, serving: &Compiled<'_>) -> Result<Served, Error> {
    let refused = |why: &str| {
        let what =
            alloc::format!("`INFER` {why}, so they cannot share one set of weights; load it alone with `infer_on`");
        Err(Error::Unsupported { device: N::NAME, what })
    };
    if N::CACHED.is_some() {
        return refused("keeps a cache, for which a training step has no room");
    }
    let (own, step) = (N::EVALUATION.precision, N::EVALUATION.samples());
    if serving.precision != own {
        return refused(&alloc::format!("has precision {} and `TRAIN` {}", serving.precision.name(), own.name()));
    }
    // Its inputs have the offsets of the training step's.
    if serving.batch > step {
        let whole = N::EVALUATION.batch;
        let parts =
            if step == whole { "`TRAIN`".into() } else { alloc::format!("a micro-batch of {whole} in `TRAIN`") };
        return refused(&alloc::format!("has batch {}, more than {step} in {parts}", serving.batch));
    }
    if train.program.descent.ranks.shards(Shard::Parameters) {
        return refused("reads whole weights, and `TRAIN` keeps shards of them");
    }
    let mut placed = place(serving)?;
    let needed = match N::STEPS.is_empty() {
        true => share(train, &mut placed, arena, serving.budget[Line::Activations])?,
        false => share_lasting(train, &mut placed, arena, serving.budget[Line::Arena])?,
    };
    if needed > arena {
        return refused("needs more memory for its activations than `TRAIN`");
    }
    Ok(Served { placed, batch: serving.batch })
}
