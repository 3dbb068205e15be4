//! Worker threads, which fill batches.

use super::order::{Division, EpochOrder};
use crate::batch::{Batched, Pool, Position, Tensors};
use crate::dataset::Dataset;
use crate::draw::Draw;
use crate::error::{Error, ErrorKind, Place, Result};
use crate::sample::{Sample, Scratch};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

/// A batch that is sent to a worker, filled there, and sent back.
pub(super) struct Job<I, T> {
    /// The number of the epoch run that requested it. Batches of an earlier run are discarded.
    run: u64,
    pub wanted: Wanted,
    /// Indices in the data set.
    pub indices: Vec<usize>,
    pub tensors: Tensors<I, T>,
    pub result: Result<()>,
}

/// The position of a batch in an epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// The number of the batch in its run.
    pub number: usize,
    pub epoch: u64,
    /// The first sample of the batches that all shards have at this place.
    pub first: usize,
    /// The position after the batch.
    pub after: Position,
}

/// The values that all workers share.
struct Shared {
    set: Arc<dyn Dataset>,
    seed: u64,
    /// The label of padding. `None` for zeros.
    ignored: Option<u32>,
    /// The number of the current run: workers skip batches of other runs.
    run: AtomicU64,
}

/// Worker threads and the batches in flight.
pub(super) struct Engine<I, T> {
    shared: Arc<Shared>,
    /// `None` in `drop` only: workers end when there is no sender.
    jobs: Option<SyncSender<Job<I, T>>>,
    done: Receiver<Job<I, T>>,
    workers: Vec<JoinHandle<()>>,
    pub pool: Arc<Pool<I, T>>,
    /// Lists of indices for reuse.
    spare: Vec<Vec<usize>>,
    /// Filled batches that wait for their turn, by their number modulo the length.
    ready: Vec<Option<Job<I, T>>>,
    /// Batches of all runs that a worker has or will get.
    in_flight: usize,
}

impl<I: Batched, T: Batched> Engine<I, T> {
    /// Starts the workers. At most `prefetch` batches are in flight.
    pub fn start(
        set: &Arc<dyn Dataset>,
        seed: u64,
        ignored: Option<u32>,
        workers: usize,
        prefetch: usize,
    ) -> Result<Engine<I, T>> {
        let shared = Arc::new(Shared { set: set.clone(), seed, ignored, run: AtomicU64::new(0) });
        // Neither channel ever has more than `prefetch` batches, so no send blocks.
        let (jobs, received) = sync_channel(prefetch);
        let (finished, done) = sync_channel(prefetch);
        let received = Arc::new(Mutex::new(received));
        let mut engine = Engine {
            shared,
            jobs: Some(jobs),
            done,
            workers: Vec::new(),
            pool: Arc::new(Pool::new(prefetch + 1)),
            spare: Vec::with_capacity(prefetch),
            ready: (0..prefetch).map(|_| None).collect(),
            in_flight: 0,
        };
        for number in 0..workers {
            let (shared, received, finished) = (engine.shared.clone(), received.clone(), finished.clone());
            let worker = Builder::new()
                .name(format!("gpumem-data-{number}"))
                .spawn(move || work(&shared, &received, &finished))
                .map_err(|error| {
                    Error::setting(format!(
                        "worker {number} cannot be started ({error}); take fewer with `.workers(n)`"
                    ))
                })?;
            engine.workers.push(worker);
        }
        Ok(engine)
    }

    /// Begins a run of an epoch. Batches that are left of an interrupted run are discarded.
    pub fn begin(&mut self) {
        self.shared.run.fetch_add(1, Ordering::Relaxed);
        for number in 0..self.ready.len() {
            if let Some(job) = self.ready[number].take() {
                self.recycle(job);
            }
        }
    }

    /// True if another batch can be requested. `unfinished` batches of this run were requested and not returned yet.
    pub fn has_room(&self, unfinished: usize) -> bool {
        self.in_flight.max(unfinished) < self.ready.len()
    }

    /// Requests a batch from the workers.
    pub fn ask(&mut self, order: &EpochOrder, division: &Division, wanted: Wanted) {
        let mut indices = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(division.batch));
        order.indices(division, wanted.first, &mut indices);
        let tensors = self.pool.take().unwrap_or_else(Tensors::zeros);
        let global_len = division.global_len(wanted.first);
        let tensors = Tensors { len: indices.len(), global_len, position: wanted.after, ..tensors };
        let run = self.shared.run.load(Ordering::Relaxed);
        let job = Job { run, wanted, indices, tensors, result: Ok(()) };
        if let Some(jobs) = &self.jobs
            && jobs.send(job).is_ok()
        {
            self.in_flight += 1;
        }
    }

    /// Returns batch `number` of this run if it is filled. `None` if it is not.
    pub fn take(&mut self, number: usize) -> Option<Job<I, T>> {
        let place = number % self.ready.len();
        self.ready[place].take()
    }

    /// Waits for a worker to finish a batch. Returns false if there is none to wait for.
    pub fn wait(&mut self) -> bool {
        let Ok(job) = self.done.recv() else { return false };
        self.in_flight -= 1;
        if job.run == self.shared.run.load(Ordering::Relaxed) {
            let place = job.wanted.number % self.ready.len();
            self.ready[place] = Some(job);
        } else {
            self.recycle(job);
        }
        true
    }

    /// Keeps the memory of a batch for later ones.
    pub fn recycle(&mut self, job: Job<I, T>) {
        self.pool.give(job.tensors);
        self.keep(job.indices);
    }

    /// Keeps the memory of a list of indices for later batches.
    pub fn keep(&mut self, indices: Vec<usize>) {
        if self.spare.len() < self.ready.len() {
            self.spare.push(indices);
        }
    }
}

impl<I, T> Drop for Engine<I, T> {
    /// Waits for the samples that workers are reading, not for whole batches.
    fn drop(&mut self) {
        self.shared.run.fetch_add(1, Ordering::Relaxed);
        self.jobs = None;
        for worker in self.workers.drain(..) {
            // Workers catch panics of data sets, and do not panic themselves.
            let _ = worker.join();
        }
    }
}

/// Fills batches until the loader is dropped.
fn work<I: Batched, T: Batched>(shared: &Shared, jobs: &Mutex<Receiver<Job<I, T>>>, done: &SyncSender<Job<I, T>>) {
    let mut scratch = Scratch::default();
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(mut job) = job else { return };
        // If a batch were not sent back, the loader would wait for it forever.
        let filled = catch_unwind(AssertUnwindSafe(|| fill(shared, &mut job, &mut scratch)));
        job.result = filled.unwrap_or_else(|payload| Err(panicked(&*payload)));
        if done.send(job).is_err() {
            return;
        }
    }
}

/// Writes the samples of a batch and its padding. Stops at the first error, or if the batch is no longer wanted.
fn fill<I: Batched, T: Batched>(shared: &Shared, job: &mut Job<I, T>, scratch: &mut Scratch) -> Result<()> {
    let Tensors { input, target, len, .. } = &mut job.tensors;
    for (row, &index) in job.indices.iter().enumerate() {
        if shared.run.load(Ordering::Relaxed) != job.run {
            return Ok(());
        }
        let mut draw = Draw::new(shared.seed, job.wanted.epoch, index);
        let mut sample = Sample::new(input.slots(row), target.slots(row), scratch);
        let get = AssertUnwindSafe(|| shared.set.get(index, &mut draw, &mut sample));
        let result = match catch_unwind(get) {
            Ok(result) => result.and_then(|()| sample.check_written()),
            Err(payload) => {
                *scratch = Scratch::default();
                Err(panicked(&*payload))
            }
        };
        result.map_err(|error| located(error, shared, index))?;
    }
    input.pad(*len, None);
    target.pad(*len, shared.ignored);
    Ok(())
}

/// Adds the number of the sample to an error, and the file of the set if the error names none.
fn located(error: Error, shared: &Shared, index: usize) -> Error {
    let error = error.with_place(Place::Sample(index));
    match shared.set.path() {
        Some(path) => error.with_file(path),
        None => error,
    }
}

/// Returns the error of a panic.
fn panicked(payload: &(dyn Any + Send)) -> Error {
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    Error::new(ErrorKind::Panic { message: text.unwrap_or("a panic without a message").into() })
}
