//! The loader: shuffles, reads ahead in worker threads, and returns batches in order.

mod engine;
mod epoch;
mod order;

pub use epoch::Epoch;

use crate::batch::{Batch, Batched, Position};
use crate::dataset::Dataset;
use crate::error::{Error, ErrorKind, Result};
use engine::Engine;
use epoch::EpochRun;
use gpumem_core::network::Network;
use order::{Division, EpochOrder, Shard};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// The label of padding unless [`Loader::ignore_label`] sets another: PyTorch's `ignore_index` of -100.
pub const IGNORED: u32 = (-100_i32).cast_unsigned();

/// The most workers, and the most batches that are read ahead.
const MOST: usize = 4096;

/// The loader of a network: `LoaderOf::<Net>::new(set)`.
pub type LoaderOf<N> = Loader<<N as Network>::Input, <N as Network>::Target>;

/// Reads batches of a data set in worker threads. `I` and `T` are the network's input and target, whose outermost dimension is the batch.
///
/// The samples of a batch and their augmentation depend on the data set, the seed, the epoch, the batch and the shard. They depend neither
/// on the number of workers nor on the point at which a training was resumed.
///
/// ```
/// use gpumem_core::run::tensor::Tensor;
/// use gpumem_core::typed::D;
/// use gpumem_data::{Loader, from_fn};
///
/// type Input = Tensor<f32, (D<4>, D<1>)>;
/// type Target = Tensor<u32, (D<4>,)>;
///
/// let set = from_fn(10, |index, _, sample| {
///     sample.input(0)?.put_numbers(&[index as f32])?;
///     sample.target(0)?.put_label(index as u32 % 2)
/// });
/// let mut loader = Loader::<Input, Target>::new(set).shuffle().seed(1);
/// let mut samples = 0;
/// for batch in loader.epoch()? {
///     let batch = batch?;
///     // net.train_step(&batch.input, &batch.target)?;
///     samples += batch.len;
/// }
/// assert_eq!(samples, 10);
/// # Ok::<(), gpumem_data::Error>(())
/// ```
///
/// # The last batch
///
/// The batch size is static, so the last batch may lack samples.
///
/// * By default the last batch is padded: inputs with zeros, labels and tokens of the target with -100. If the network's loss has
///   `ignore_index: -100`, padding has neither loss nor gradient and does not count in the mean. A loss without `ignore_index` refuses the
///   label with an error. Metrics take the first `batch.len` outputs: `outputs.samples().take(batch.len)`. A `BatchNorm` still includes
///   padding in its batch statistics.
/// * [`Loader::drop_last`] drops an incomplete batch. With shuffling, other samples are dropped in each epoch.
/// * A target of numbers has no value that a loss ignores. There, an incomplete batch is an error without `drop_last` or [`Loader::pad`].
///
/// # Memory and time
///
/// The loader holds `prefetch + 1` batches, and more only while the caller keeps batches. After the first epoch it allocates no memory for
/// a batch or a sample, unless the data set does. [`Loader::waited`] returns the time that the training has waited for data.
///
/// Batches are in ordinary host memory. A CUDA device encodes them into its own pinned memory, from which they are copied while an earlier
/// step runs.
pub struct Loader<I: Batched, T: Batched> {
    set: Arc<dyn Dataset>,
    seed: u64,
    is_shuffled: bool,
    /// `None` for one less than the cores.
    workers: Option<usize>,
    /// `None` for one more than the workers.
    prefetch: Option<usize>,
    drops_last: bool,
    pads: bool,
    ignored: u32,
    shard: Shard,
    position: Position,
    order: EpochOrder,
    /// `None` before the first epoch.
    engine: Option<Engine<I, T>>,
    /// The run of [`Loader::next_batch`]. `None` before the first batch of one.
    run: Option<EpochRun>,
    waited: Duration,
    tensors: PhantomData<fn() -> (I, T)>,
}

impl<I: Batched, T: Batched> Loader<I, T> {
    /// Returns a loader of a data set, or of an `Arc` of one, in the set's order. No sample is read yet.
    pub fn new(set: impl Dataset) -> Loader<I, T> {
        Loader {
            set: Arc::new(set),
            seed: 0,
            is_shuffled: false,
            workers: None,
            prefetch: None,
            drops_last: false,
            pads: false,
            ignored: IGNORED,
            shard: Shard { rank: 0, of: 1 },
            position: Position::default(),
            order: EpochOrder::default(),
            engine: None,
            run: None,
            waited: Duration::ZERO,
            tensors: PhantomData,
        }
    }

    /// Sets the seed of shuffling and augmentation. The default is 0.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Loader { seed, engine: None, run: None, ..self }
    }

    /// Visits the samples in another order in each epoch.
    #[must_use]
    pub fn shuffle(self) -> Self {
        Loader { is_shuffled: true, run: None, ..self }
    }

    /// Sets the number of worker threads, at least 1. The default is one less than the cores.
    #[must_use]
    pub fn workers(self, workers: usize) -> Self {
        Loader { workers: Some(workers), engine: None, run: None, ..self }
    }

    /// Sets the number of batches that are read ahead, at least 1. The default is one more than the workers.
    #[must_use]
    pub fn prefetch(self, batches: usize) -> Self {
        Loader { prefetch: Some(batches), engine: None, run: None, ..self }
    }

    /// Drops an incomplete last batch.
    #[must_use]
    #[doc(alias = "drop_remainder")]
    pub fn drop_last(self) -> Self {
        Loader { drops_last: true, run: None, ..self }
    }

    /// Pads a last batch even if no loss can ignore the padding: the target's numbers are then zeros.
    ///
    /// It is for networks that only run forward, and whose first `batch.len` outputs are used.
    #[must_use]
    pub fn pad(self) -> Self {
        Loader { pads: true, ..self }
    }

    /// Sets the label of padding, like `ignore_index` of the loss. The default is [`IGNORED`].
    #[must_use]
    pub fn ignore_label(self, label: u32) -> Self {
        Loader { ignored: label, engine: None, run: None, ..self }
    }

    /// Loads the share of process `rank` of `of`. The shares partition the samples, and have equally many batches.
    ///
    /// The batches that all shards have at one place are a batch of `of` times the size, cut into pieces in the order of ranks: what as many
    /// micro-batches of one process have. If there are fewer samples than all ranks need, some have a last batch of padding alone: `drop_last`
    /// avoids that. A trainer sets this by the rank of its network.
    #[must_use]
    pub fn shard(mut self, rank: usize, of: usize) -> Self {
        self.set_shard(rank, of);
        self
    }

    /// Sets the share as [`Loader::shard`] does. The next batch is that of the new share at the position.
    pub fn set_shard(&mut self, rank: usize, of: usize) {
        (self.shard, self.run) = (Shard { rank, of }, None);
    }

    /// Returns the number of this share, from 0, and that of all shares.
    pub fn share(&self) -> [usize; 2] {
        [self.shard.rank, self.shard.of]
    }

    /// Continues at a position of an earlier loader. `Position { epoch, sample: 0 }` is the start of an epoch.
    ///
    /// The next epoch returns the samples that the earlier loader would have returned, if data set, seed and order are equal. Another number of
    /// shards cuts the remaining samples into other pieces.
    pub fn resume(&mut self, position: Position) {
        self.position = position;
        self.run = None;
    }

    /// Returns the position after the last batch that was returned. Batches carry it too, as `batch.position`.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Returns the time that callers have waited for batches since the loader was created.
    ///
    /// If it is a notable share of the training's time, use more workers or a cheaper data set.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Returns the number of samples of the data set.
    pub fn samples(&self) -> usize {
        self.set.len()
    }

    /// Returns the number of batches of a whole epoch.
    ///
    /// # Errors
    /// As for [`Loader::epoch`].
    pub fn batches(&self) -> Result<usize> {
        Ok(self.division()?.batches(0))
    }

    /// Returns the batches from the position to the end of its epoch, and begins to read them. Starts the workers in the first call.
    ///
    /// # Errors
    /// Settings that are not possible: an empty set, fewer samples than a batch with [`Loader::drop_last`], an incomplete batch
    /// without a way to fill it, a shard that does not exist, a position beyond the set, no memory for the order of a shuffled set.
    pub fn epoch(&mut self) -> Result<Epoch<'_, I, T>> {
        self.run = None;
        let (engine, run) = self.begin()?;
        let engine = self.engine.insert(engine);
        Ok(Epoch::new(engine, &self.order, &mut self.position, &mut self.waited, run))
    }

    /// Returns the next batch, and after the last one of an epoch the first one of the next. It borrows the loader for the call alone.
    ///
    /// `batch.position.sample` is 0 after the last batch of an epoch. After an error, the next call tries the same batch again.
    ///
    /// # Errors
    /// As for [`Loader::epoch`], and any fault of a sample.
    pub fn next_batch(&mut self) -> Result<Batch<I, T>> {
        loop {
            let (mut engine, mut run) = match (self.engine.take(), self.run.take()) {
                (Some(engine), Some(run)) => (engine, run),
                (engine, _) => {
                    self.engine = engine;
                    self.begin()?
                }
            };
            let next = run.next(&mut engine, &self.order, &mut self.waited);
            self.engine = Some(engine);
            // At the end of the epoch there is no batch, and the next run begins with the next epoch.
            if let Some(batch) = next {
                let batch = batch?;
                self.position = batch.position;
                self.run = Some(run);
                return Ok(batch);
            }
        }
    }

    /// Begins a run at the position, or at the next epoch if this one has no batches left. Leaves the engine to the caller.
    fn begin(&mut self) -> Result<(Engine<I, T>, EpochRun)> {
        let division = self.division()?;
        if self.position.sample > division.samples as u64 {
            let Position { epoch, sample } = self.position;
            return Err(self.about_set(Error::setting(format!(
                "position {sample} of epoch {epoch} is beyond the {} samples of the data set; resume with the one it was saved with",
                division.samples
            ))));
        }
        if division.batches(self.position.sample as usize) == 0 {
            self.position = Position { epoch: self.position.epoch.saturating_add(1), sample: 0 };
        }
        if self.is_shuffled {
            let shuffled = self.order.shuffle(self.seed, self.position.epoch, division.samples);
            shuffled.map_err(|error| self.about_set(error))?;
        }
        let mut engine = match self.engine.take() {
            Some(engine) => engine,
            None => self.start()?,
        };
        let run = EpochRun::new(&mut engine, &self.order, division, self.position);
        Ok((engine, run))
    }

    fn start(&self) -> Result<Engine<I, T>> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = self.workers.unwrap_or(cores - 1).clamp(1, MOST);
        let prefetch = self.prefetch.unwrap_or(workers + 1).clamp(1, MOST);
        let ignored = T::is_ignorable().then_some(self.ignored);
        Engine::start(&self.set, self.seed, ignored, workers, prefetch)
    }

    /// Returns the division of an epoch into batches. The error is the reason why there is none.
    fn division(&self) -> Result<Division> {
        let division = Division {
            samples: self.set.len(),
            batch: batch::<I, T>()?,
            shard: self.shard,
            drops_last: self.drops_last,
        };
        let Shard { rank, of } = self.shard;
        if rank >= of {
            return Err(Error::setting(format!(
                "there is no shard {rank} of {of}; count ranks from 0 in `.shard(rank, of)`"
            )));
        }
        if division.samples == 0 {
            let wanted = "put files into it, or open another".into();
            return Err(self.about_set(Error::new(ErrorKind::Empty { wanted })));
        }
        if division.batches(0) == 0 {
            let kind = ErrorKind::FewSamples { samples: division.samples, batch: division.global_batch() };
            return Err(self.about_set(Error::new(kind)));
        }
        if division.is_padded() && !T::is_ignorable() && !self.pads {
            return Err(self.about_set(Error::setting(format!(
                "{} samples fill no whole number of batches of {} on each of {of} ranks, and no loss can leave out padding of this target; add `.drop_last()` to train, or `.pad()` to look at the first `batch.len` outputs",
                division.samples, division.batch
            ))));
        }
        Ok(division)
    }

    fn about_set(&self, error: Error) -> Error {
        match self.set.path() {
            Some(path) => error.with_file(path),
            None => error,
        }
    }
}

/// Returns the batch of all tensors, or an error if they differ.
fn batch<I: Batched, T: Batched>() -> Result<usize> {
    let batches = [I::batches(), T::batches()].concat();
    match batches.first() {
        Some(&batch) if batch > 0 && batches.iter().all(|&other| other == batch) => Ok(batch),
        _ => Err(Error::setting(format!(
            "the outermost dimensions of the tensors are {batches:?}; make them one batch of at least 1, as a network's input and target have"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::{Dataset, Engine, Loader};
    use gpumem_core::run::tensor::Tensor;
    use gpumem_core::typed::D;
    use std::sync::Arc;

    /// Workers end with their loader. If they ended before, the loader would have no batch to wait for.
    #[test]
    fn without_workers_there_is_an_error() {
        type Input = Tensor<u8, (D<2>, D<1>)>;
        let set: Arc<dyn Dataset> = Arc::new(crate::from_fn(4, |_, _, sample| sample.input(0)?.put_bytes(&[1])));
        let mut loader = Loader::<Input, ()>::new(set.clone());
        loader.engine = Some(Engine::start(&set, 0, None, 0, 1).unwrap());
        let mut epoch = loader.epoch().unwrap();
        let error = epoch.next().unwrap().unwrap_err().to_string();
        assert_eq!(error, "all workers have ended; make a new loader");
        assert!(epoch.next().is_none());
    }
}
