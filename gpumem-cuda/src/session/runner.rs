//! The interface of a session. With other ranks, each call is watched, so that none waits for ever.

use super::checks::Reader;
use super::inputs::Feeding;
use super::losses::replaced;
use super::ranks::RankCall;
use super::{NO_BLOCKS, Session, outside, untrained};
use crate::context::bind;
use gpumem_core::error::Error;
use gpumem_core::memory::place::on_host;
use gpumem_core::program::StateWord;
use gpumem_core::run::device::{Fill, Inspected, Runner};
use gpumem_core::train::optim::Optimizer;

impl Runner for Session {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.watched(|session| session.write_now(offset, bytes))
    }

    fn feed_with(&mut self, offset: u64, length: usize, put: &Fill<'_>) -> Result<(), Error> {
        self.watched(|session| session.feed_with_now(offset, length, put))
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        self.watched(|session| session.read_now(offset, bytes))
    }

    fn loss(&mut self, offset: u64) -> Result<f32, Error> {
        self.watched(|session| session.loss_now(offset))
    }

    fn select(&mut self, step: usize) -> Result<(), Error> {
        self.watched(|session| session.select_now(step))
    }

    fn accumulate(&mut self, part: u64) -> Result<(), Error> {
        self.watched(|session| session.accumulate_now(part))
    }

    fn train(&mut self) -> Result<(), Error> {
        self.watched(|session| session.train_now())
    }

    fn inspect(&mut self, part: Option<u64>) -> Result<Inspected, Error> {
        self.watched(|session| session.inspect_now(part))
    }

    fn evaluate(&mut self) -> Result<(), Error> {
        self.watched(|session| session.evaluate_now())
    }

    fn infer(&mut self) -> Result<(), Error> {
        self.watched(|session| session.infer_now())
    }

    fn serve(&mut self) -> Result<(), Error> {
        self.watched(|session| session.serve_now())
    }

    fn set_optimizer(&mut self, optimizer: Optimizer) -> Result<(), Error> {
        self.watched(|session| session.set_optimizer_now(optimizer))
    }

    fn rank(&self) -> [u64; 2] {
        self.rank_of_all()
    }

    fn any_rank(&mut self, condition: bool) -> Result<bool, Error> {
        self.watched(|session| session.is_on_any(condition))
    }
}

impl Session {
    fn write_now(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        if let Err(error) = self.checks.refuse(offset, bytes) {
            return self.refuse(Err(error));
        }
        self.follow_feeds()?;
        if let Some(shard) = self.shard(offset, bytes.len())? {
            return self.write_shard(offset, bytes, shard);
        }
        if let Some(place) = on_host(offset) {
            let bytes = self.turned.stored(offset, bytes)?;
            // The last step has ended, and its copies with it.
            self.transfers.wait()?;
            return self.lanes.as_ref().ok_or_else(|| outside(offset, &bytes))?.write(place, &bytes);
        }
        let mut bytes = self.turned.stored(offset, bytes)?;
        for train in &self.trains {
            bytes = train.keep_count(offset, bytes);
        }
        for &counter in &self.counters {
            bytes = replaced((offset, bytes), counter, &NO_BLOCKS);
        }
        self.write_arena(offset, &bytes)
    }

    fn feed_with_now(&mut self, offset: u64, length: usize, put: &Fill<'_>) -> Result<(), Error> {
        if self.input_in_use {
            self.wait()?;
            self.input_in_use = false;
        }
        bind(self.stream.context())?;
        let Some(train) = self.trains.get_mut(self.at) else {
            let mut bytes = vec![0; length];
            put(0, &mut bytes);
            return self.write_now(offset, &bytes);
        };
        let fed = train.feed(&self.arena, (offset, length), put, &mut self.checks);
        self.refuse(fed)
    }

    fn read_now(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        self.follow_feeds()?;
        if let Some(shard) = self.shard(offset, bytes.len())? {
            return self.read_shards(offset, bytes, shard);
        }
        if let Some(place) = on_host(offset) {
            self.transfers.wait()?;
            self.lanes.as_ref().ok_or_else(|| outside(offset, bytes))?.read(place, bytes)?;
            return self.turned.seen(offset, bytes);
        }
        self.transfers.read(&self.arena, offset, bytes)?;
        self.turned.seen(offset, bytes)
    }

    fn loss_now(&mut self, offset: u64) -> Result<f32, Error> {
        bind(self.stream.context())?;
        if let Some(loss) = self.trains.get(self.at).map_or(Ok(None), Feeding::loss)? {
            return Ok(loss);
        }
        let mut loss = [0; 4];
        self.read_now(offset, &mut loss)?;
        Ok(f32::from_le_bytes(loss))
    }

    fn select_now(&mut self, step: usize) -> Result<(), Error> {
        if step == self.at {
            return Ok(());
        }
        if step >= self.trains.len().max(1) {
            return Err(Error::Damaged("no training step of this number was loaded"));
        }
        // The inputs of this step share memory with activations of the previous one, which may still be running.
        self.follow_feeds()?;
        self.at = step;
        self.trains.get(step).map_or(Ok(()), |train| train.follow(&self.stream))
    }

    fn accumulate_now(&mut self, part: u64) -> Result<(), Error> {
        bind(self.stream.context())?;
        let checked = self.check_step();
        self.agree(RankCall::Accumulate, checked)?;
        let train = self.trains.get_mut(self.at).ok_or_else(untrained)?;
        let reader = train.reader();
        let run = train.accumulate(&self.stream, part);
        self.checks.ran(reader);
        run
    }

    fn train_now(&mut self) -> Result<(), Error> {
        bind(self.stream.context())?;
        let checked = self.check_step();
        self.agree(RankCall::Train, checked)?;
        let Some(train) = self.trains.get_mut(self.at) else {
            return Err(untrained());
        };
        let reader = train.reader();
        let run = train.run(&self.stream);
        self.checks.ran(reader);
        if run.is_err() {
            // The progress of a failed step is unknown. If the card is broken, the next step reports it as well.
            let _ = self.set_count();
        }
        run
    }

    fn inspect_now(&mut self, part: Option<u64>) -> Result<Inspected, Error> {
        self.inspect_step(part)
    }

    fn evaluate_now(&mut self) -> Result<(), Error> {
        self.follow_feeds()?;
        let checked = self.check_indices(Reader::Evaluation(self.at));
        self.agree(RankCall::Evaluate, checked)?;
        self.input_in_use = true;
        self.checks.ran(Reader::Evaluation(self.at));
        let evaluation = self.evaluations.get(self.at).and_then(Option::as_ref);
        evaluation.ok_or_else(untrained)?.run(&self.stream)?;
        self.share_loss()
    }

    fn infer_now(&mut self) -> Result<(), Error> {
        self.follow_feeds()?;
        let checked = self.check_indices(Reader::Infer);
        self.agree(RankCall::Infer, checked)?;
        self.input_in_use = true;
        self.checks.ran(Reader::Infer);
        self.infer.run(&self.stream)
    }

    fn serve_now(&mut self) -> Result<(), Error> {
        self.follow_feeds()?;
        let checked = self.check_indices(Reader::Served);
        self.agree(RankCall::Serve, checked)?;
        self.input_in_use = true;
        self.checks.ran(Reader::Served);
        let unknown = Error::Damaged("no further forward pass was loaded");
        self.served.as_ref().ok_or(unknown)?.run(&self.stream)
    }

    fn set_optimizer_now(&mut self, optimizer: Optimizer) -> Result<(), Error> {
        // Only the learning rate changes between steps; it is read from device memory.
        let Some(state) = self.states.get(self.at) else { return Ok(()) };
        self.write_now(state + 4 * StateWord::LearningRate as u64, &(optimizer.lr() as f32).to_le_bytes())
    }
}
