//! A session as one of several ranks: calls that all of them make together, and tensors of which each has a shard.

use super::{Session, outside};
use crate::card::Card;
use crate::context::bind;
use crate::error::failure;
use crate::libraries::nccl::Communicator;
use crate::operations::tensor_core_terms;
use gpumem_core::Precision;
use gpumem_core::error::Error;
use gpumem_core::memory::layout::shards::{Shard, Shards};
use gpumem_core::memory::place::{Placed, on_host};
use gpumem_core::run::device::{Fact, Job};
use gpumem_core::train::ranks::Ranks;
use std::sync::Arc;

/// The failure of a rank that could not load the network.
pub(super) const NOT_LOADED: &str = "could not load the network";

/// A bit of a rank's word: it refuses its batch.
const REFUSES: u32 = 1 << 31;

/// A call that all ranks make together, apart from a further forward pass, which exchanges nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum RankCall {
    Train = 1,
    Accumulate,
    Inspect,
    Evaluate,
    Infer,
    Serve,
}

impl RankCall {
    /// True if it reads a half of the double buffer.
    fn is_fed(self) -> bool {
        matches!(self, RankCall::Train | RankCall::Accumulate | RankCall::Inspect)
    }
}

/// The other ranks of a session.
#[derive(Debug)]
pub(super) struct Group {
    communicator: Arc<Communicator>,
    /// The tensors of which this rank has a shard.
    shards: Shards,
    /// The offset of the loss of each training step.
    losses: Vec<u64>,
    /// True if the forward pass gathers parameters, so that all ranks run it together.
    infers_together: bool,
    /// The first error of a batch that was given. The call that uses the batch returns it, on all ranks.
    refused: Option<Error>,
}

impl Group {
    pub(super) fn new(communicator: Arc<Communicator>, job: &Job) -> Result<Group, Error> {
        let loss = |placed: &Placed| Some(placed.offsets[*placed.program.results.first()? as usize]);
        let exchanges = |placed: &Placed| placed.program.operations.iter().any(|it| it.action.is_exchange());
        Ok(Group {
            communicator,
            shards: Shards::new(job.trainings(), job.precision)?,
            losses: job.trainings().filter_map(loss).collect(),
            infers_together: exchanges(&job.infer),
            refused: None,
        })
    }
}

/// Returns the ranks that a network was compiled for: one if it is not trained.
pub(crate) fn ranks_of(job: &Job) -> Ranks {
    job.train.as_ref().map_or(Ranks::ALONE, |train| train.program.descent.ranks)
}

/// Returns the facts that must be equal on all ranks: those of the job, and that of their cards.
pub(crate) fn facts(job: &Job, capability: (i32, i32)) -> Vec<Fact> {
    [job.facts(), vec![fact_of_card(job.precision, capability)]].concat()
}

/// Returns the fact on which the order of weights in memory depends. Ranks exchange elements in that order, so that it is one order on all of them.
fn fact_of_card(precision: Precision, capability: (i32, i32)) -> Fact {
    let has_cores = tensor_core_terms(precision.narrow(), capability) > 0;
    Fact::new("use of tensor cores", &[u8::from(has_cores)])
}

/// Checks that a network was compiled for as many ranks as there are.
///
/// # Errors
/// [`Error::Unsupported`] that says what to do.
pub(crate) fn check_ranks(job: &Job, ranks: u64) -> Result<(), Error> {
    let compiled = ranks_of(job).count;
    let what = match (compiled, ranks) {
        (own, there) if own == there => return Ok(()),
        // A network that is not trained has no ranks.
        _ if job.train.is_none() => return Ok(()),
        (1, there) => {
            format!("was compiled for one rank, and the device is one of {there}; write `ranks: {there}` in `TRAIN`")
        }
        (own, 1) => format!(
            "was compiled for {own} ranks; start a process for each, which opens its card with `Cuda::on_rank`, or build with `GPUMEM_RANKS=1`"
        ),
        (own, there) => {
            format!("was compiled for {own} ranks, and there are {there}; build with `GPUMEM_RANKS={there}`")
        }
    };
    Err(Error::Unsupported { device: "CUDA", what: format!("`{}` {what}", job.name) })
}

/// Checks that NCCL took no more bytes of the card than the budget has for it.
fn within(taken: u64, line: u64) -> Result<(), Error> {
    if taken <= line {
        return Ok(());
    }
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let what = format!(
        "NCCL took {} MiB of the card, and the budget of a rank has {} MiB for it; set fewer `channels` in `TRAIN`, or start all ranks with \
         `NCCL_ALGO=Ring`",
        mib(taken),
        mib(line)
    );
    Err(Error::failed("CUDA", what))
}

impl Session {
    /// Runs a call, which with other ranks may wait for them, and ends with an error if they do not come.
    pub(super) fn watched<T>(&mut self, run: impl FnOnce(&mut Session) -> Result<T, Error>) -> Result<T, Error> {
        let Some(communicator) = self.communicator() else { return run(self) };
        communicator.watched(|| run(self))
    }

    /// Returns the communicator; `None` without other ranks.
    pub(super) fn communicator(&self) -> Option<Arc<Communicator>> {
        self.group.as_ref().map(|group| group.communicator.clone())
    }

    /// Returns the number of this rank, and that of all ranks.
    pub(super) fn rank_of_all(&self) -> [u64; 2] {
        self.group.as_ref().map_or([0, 1], |group| [group.communicator.rank(), group.communicator.count()])
    }

    /// Returns true on all ranks if `condition` is true on one of them.
    pub(super) fn is_on_any(&mut self, condition: bool) -> Result<bool, Error> {
        let Some(group) = &self.group else { return Ok(condition) };
        Ok(group.communicator.words(u32::from(condition))?.iter().any(|&word| word != 0))
    }

    /// Keeps an error of a batch for the call that uses the batch. Without other ranks, returns it.
    pub(super) fn refuse(&mut self, refused: Result<(), Error>) -> Result<(), Error> {
        match (&mut self.group, refused) {
            (Some(group), Err(error)) => {
                group.refused.get_or_insert(error);
                Ok(())
            }
            (_, refused) => refused,
        }
    }

    /// Agrees with the other ranks on a call. `checked` is an error if this one cannot make it. Then no rank does.
    ///
    /// # Errors
    /// The error of this rank, or [`Error::Ranks`] if another one refuses its batch or makes another call.
    pub(super) fn agree(&mut self, step: RankCall, checked: Result<(), Error>) -> Result<(), Error> {
        let Some(group) = &mut self.group else { return checked };
        let own = group.refused.take().map_or(checked, Err);
        if step == RankCall::Serve || (step == RankCall::Infer && !group.infers_together) {
            return own;
        }
        let half = self.trains.get(self.at).filter(|_| step.is_fed()).map_or(0, |train| train.half() as u32);
        let call = step as u32 | half << 8 | (self.at as u32 & 0xffff) << 9;
        let words = group.communicator.words(if own.is_err() { call | REFUSES } else { call })?;
        if let Some(rank) = words.iter().position(|word| word & REFUSES != 0) {
            if let Some(train) = self.trains.get_mut(self.at) {
                train.restart();
                train.discard()?;
            }
            let what = "refused its batch, so that no rank made the step".into();
            return own.and(Err(Error::Ranks { rank: rank as u64, what }));
        }
        match words.iter().position(|&word| word != words[0]) {
            Some(rank) => {
                let what = "makes another call than rank 0; all ranks make the same calls in the same order".into();
                Err(Error::Ranks { rank: rank as u64, what })
            }
            None => Ok(()),
        }
    }

    /// Returns the result of the capture, or an error if another rank has no graphs: exchanges of graphs and others do not match.
    pub(super) fn agree_to_replay(&mut self, captured: Result<(), Error>) -> Result<Result<(), Error>, Error> {
        let Some(group) = &self.group else { return Ok(captured) };
        let has_none = captured.is_err() || !self.has_graphs();
        let words = group.communicator.words(u32::from(has_none))?;
        let other = words.iter().position(|&word| word != 0);
        let error = other.map(|rank| Error::Ranks { rank: rank as u64, what: "has no captured graphs".into() });
        Ok(captured.and(error.filter(|_| !has_none).map_or(Ok(()), Err)))
    }

    /// Makes the connections of all exchanges, and compares the bytes that NCCL took with those of the budget, `line`.
    ///
    /// # Errors
    /// An error on all ranks if one of them has less memory for it.
    pub(super) fn connect(&mut self, card: &Card, line: u64) -> Result<(), Error> {
        let Some(group) = &self.group else { return Ok(()) };
        bind(self.stream.context())?;
        let (before, _) = card.memory()?;
        self.trains.iter().try_for_each(|train| train.connect(&self.stream))?;
        let others = self.evaluations.iter().flatten().chain([&self.infer]).chain(&self.served);
        others.into_iter().try_for_each(|program| program.connect(&self.stream))?;
        self.stream.synchronize().map_err(failure("connecting ranks"))?;
        let (after, _) = card.memory()?;
        let checked = group.communicator.taken(before.saturating_sub(after)).and_then(|taken| within(taken, line));
        group.communicator.agree(checked, "has less memory for exchanges than NCCL takes")
    }

    /// Replaces this rank's share of the loss by the sum of all shares, added up in the order of ranks.
    pub(super) fn share_loss(&mut self) -> Result<(), Error> {
        let Some(group) = &self.group else { return Ok(()) };
        let Some(&offset) = group.losses.get(self.at) else { return Ok(()) };
        let mut own = [0; 4];
        self.transfers.read(&self.arena, offset, &mut own)?;
        let shares = group.communicator.words(u32::from_le_bytes(own))?;
        let loss: f32 = shares.into_iter().map(f32::from_bits).sum();
        self.transfers.write(&self.arena, offset, None, &loss.to_le_bytes())
    }

    /// Returns the shard of this rank of the whole tensor at an offset; `None` if the tensor is not sharded.
    pub(super) fn shard(&self, offset: u64, length: usize) -> Result<Option<Shard>, Error> {
        self.group.as_ref().map_or(Ok(None), |group| group.shards.find(offset, length))
    }

    /// Keeps this rank's shard of a whole tensor.
    pub(super) fn write_shard(&mut self, offset: u64, bytes: &[u8], shard: Shard) -> Result<(), Error> {
        let turned = self.turned.stored_whole(offset, bytes);
        let [rank, _] = self.rank_of_all();
        let own = &turned.as_deref().unwrap_or(bytes)[shard.of(rank)];
        let Some(place) = on_host(offset) else { return self.transfers.write(&self.arena, offset, None, own) };
        self.transfers.wait()?;
        self.lanes.as_ref().ok_or_else(|| outside(offset, own))?.write(place, own)
    }

    /// Gathers the shards of all ranks, which all call it.
    pub(super) fn read_shards(&mut self, offset: u64, bytes: &mut [u8], shard: Shard) -> Result<(), Error> {
        let mut own = vec![0; shard.bytes];
        match on_host(offset) {
            None => self.transfers.read(&self.arena, offset, &mut own)?,
            Some(place) => {
                self.transfers.wait()?;
                self.lanes.as_ref().ok_or_else(|| outside(offset, bytes))?.read(place, &mut own)?;
            }
        }
        let Some(group) = &self.group else { return Err(Error::Damaged("one rank has a shard")) };
        let all = group.communicator.gather(&own)?;
        bytes.copy_from_slice(all.get(..bytes.len()).ok_or(Error::Damaged("shards are smaller than their tensor"))?);
        self.turned.seen_whole(offset, bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpumem_core::Half;

    /// Cards with tensor cores for a format store weights in another order than those without.
    #[test]
    fn cards_of_ranks_are_of_one_kind() {
        let of = |precision| [(7, 0), (7, 5), (8, 0), (9, 0)].map(|card| fact_of_card(precision, card));
        let is_like_the_last = |precision| of(precision).map(|fact| fact == fact_of_card(precision, (9, 0)));
        assert_eq!(is_like_the_last(Precision::F32), [true; 4]);
        assert_eq!(is_like_the_last(Precision::Mixed(Half::F16)), [false, true, true, true]);
        assert_eq!(is_like_the_last(Precision::Bf16), [false, false, true, true]);
    }
}
