//! The ranks of a device: a communicator of NCCL, the stream of its exchanges, and a thread that watches it.
//!
//! No call of the library waits. A thread asks it for failures, and looks if a call of the session takes longer than `GPUMEM_RANKS_TIMEOUT` seconds.
//! In either case it aborts the communicator. Kernels of exchanges then end, waits return, and each later call returns the failure.

use super::{
    Comm, Config, Functions, IN_PROGRESS, RankId, SUCCESS, check_environment, data_type, functions, reduction,
};
use crate::calls::exchange::Kind;
use crate::context::bind;
use crate::error::failure;
use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaContext, CudaStream, result};
use gpumem_core::Format;
use gpumem_core::error::Error;
use gpumem_core::run::ranks::{Ranks, TIMEOUT, timeout, waited};
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time from one look of the watch to the next, and from one question for the state of a call to the next.
const LOOK: Duration = Duration::from_millis(100);
const POLL: Duration = Duration::from_micros(200);

/// The longest time for which the end of a communicator waits for the other ranks.
const FAREWELL: Duration = Duration::from_secs(10);

/// Bytes of the memory through which hosts exchange numbers, if there are few ranks.
const STAGED: usize = 1 << 20;

/// The other ranks of a device.
#[derive(Debug)]
pub(crate) struct Communicator {
    /// The place of this rank among all.
    ranks: Ranks,
    /// The most channels that it uses.
    channels: u64,
    stream: Arc<CudaStream>,
    staging: Staging,
    /// Bytes of the card that it has taken, as far as free memory tells.
    taken: AtomicU64,
    shared: Arc<Shared>,
    watch: Option<JoinHandle<()>>,
}

/// State that the watch and the session share.
#[derive(Debug)]
struct Shared {
    functions: Functions,
    rank: u64,
    timeout: Duration,
    /// `None` after the communicator was aborted.
    comm: Mutex<Option<Handle>>,
    watched: Mutex<Watched>,
    changed: Condvar,
}

/// A communicator of the library.
#[derive(Clone, Copy, Debug)]
struct Handle(Comm);

// SAFETY: the library takes a communicator from any thread, one at a time, which the mutex around it ensures.
unsafe impl Send for Handle {}

#[derive(Debug, Default)]
struct Watched {
    /// The beginning of the running call of the session; `None` between calls.
    since: Option<Instant>,
    failure: Option<Error>,
    ends: bool,
}

/// A tensor of an exchange, with its addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub(crate) kind: Kind,
    pub(crate) format: Format,
    pub(crate) count: usize,
    pub(crate) sent: CUdeviceptr,
    pub(crate) received: CUdeviceptr,
}

/// Memory of the card through which hosts exchange numbers.
#[derive(Debug)]
struct Staging {
    start: CUdeviceptr,
    /// Bytes of each rank.
    each: usize,
    context: Arc<CudaContext>,
}

impl Staging {
    fn new(context: &Arc<CudaContext>, ranks: usize) -> Result<Staging, Error> {
        let each = (STAGED / ranks.max(1)).max(64) / 4 * 4;
        // SAFETY: the context is bound; the allocation is freed in `drop` and nowhere else.
        let start = unsafe { result::malloc_sync(each * ranks) };
        Ok(Staging { start: start.map_err(failure("allocating memory for ranks"))?, each, context: context.clone() })
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if bind(&self.context).is_ok() {
            // SAFETY: allocated in `new`; freeing waits for work that uses it.
            let _ = unsafe { result::free_sync(self.start) };
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Returns the error that the other ranks did not come in time.
    fn late(&self) -> Error {
        waited(self.rank, self.timeout, "the others")
    }

    /// Records the first failure, and aborts the communicator, so that nothing waits for it.
    fn fail(&self, error: Error) {
        lock(&self.watched).failure.get_or_insert(error);
        if let Some(Handle(comm)) = lock(&self.comm).take() {
            // SAFETY: the communicator is alive, and no other thread has it: it was taken out of the mutex.
            let _ = unsafe { (self.functions.abort)(comm) };
        }
    }

    fn failure(&self) -> Option<Error> {
        lock(&self.watched).failure.clone()
    }

    /// Returns the state of the communicator: true if its last call has ended.
    ///
    /// # Errors
    /// A failure of an exchange, or of this rank before.
    fn state(&self) -> Result<bool, Error> {
        let state = self.with(|comm| {
            let mut state = SUCCESS;
            // SAFETY: the communicator is alive while the mutex is locked, and `state` is a place for the number.
            let code = unsafe { (self.functions.async_error)(comm, &mut state) };
            let state = if code == SUCCESS { state } else { code };
            if matches!(state, SUCCESS | IN_PROGRESS) {
                Ok(state == SUCCESS)
            } else {
                let told = self.functions.told(state, comm);
                Err(Error::Ranks {
                    rank: self.rank,
                    what: format!("cannot exchange numbers with the others: NCCL: {told}"),
                })
            }
        })?;
        state.inspect_err(|error| self.fail(error.clone()))
    }

    /// Calls `run` with the communicator.
    ///
    /// # Errors
    /// The failure for which it was aborted.
    fn with<T>(&self, run: impl FnOnce(Comm) -> T) -> Result<T, Error> {
        let found = lock(&self.comm).map_or(None, |Handle(comm)| Some(run(comm)));
        found.ok_or_else(|| self.failure().unwrap_or(Error::Damaged("ranks have ended")))
    }

    /// Waits until the last call of the library has ended.
    fn settle(&self, until: Instant) -> Result<(), Error> {
        while !self.state()? {
            if Instant::now() >= until {
                let late = self.late();
                self.fail(late.clone());
                return Err(late);
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Looks for failures until the communicator ends.
    fn watch(&self) {
        loop {
            let watched = lock(&self.watched);
            let (watched, _) =
                self.changed.wait_timeout_while(watched, LOOK, |it| !it.ends).unwrap_or_else(PoisonError::into_inner);
            if watched.ends || watched.failure.is_some() {
                return;
            }
            let is_late = watched.since.is_some_and(|since| since.elapsed() >= self.timeout);
            drop(watched);
            if is_late {
                self.fail(self.late());
            }
            // A failure is recorded.
            let _ = self.state();
        }
    }
}

impl Communicator {
    /// Meets the other ranks on the card whose context this is.
    ///
    /// # Errors
    /// [`Error::Library`] if NCCL is missing; [`Error::Unsupported`] for variables that it must not have; [`Error::Ranks`] if the others do not
    /// come.
    pub(crate) fn new(
        context: &Arc<CudaContext>,
        (ranks, id): (Ranks, RankId),
        channels: u64,
        deterministic: bool,
    ) -> Result<Communicator, Error> {
        check_environment(&|name| std::env::var(name).ok(), deterministic)?;
        let timeout = timeout("CUDA", std::env::var(TIMEOUT).ok().as_deref())?;
        let functions = *functions()?;
        let too_many = || Error::Unsupported { device: "CUDA", what: "more ranks than NCCL counts".into() };
        let [count, number] =
            [ranks.count(), ranks.rank()].map(|number| c_int::try_from(number).map_err(|_| too_many()));
        bind(context)?;
        let staging = Staging::new(context, usize::try_from(ranks.count()).map_err(|_| too_many())?)?;
        let stream = context.new_stream().map_err(failure("making a stream"))?;
        let mut config = Config::new(channels);
        let mut comm: Comm = std::ptr::null_mut();
        // SAFETY: both are valid places; the library copies the configuration before it returns.
        let code = unsafe { (functions.init)(&mut comm, count?, id, number?, &mut config) };
        if let Err(error) = functions.check(code, "meeting the other ranks", comm) {
            if !comm.is_null() {
                // SAFETY: the communicator was made by the call that failed, and nothing else has it.
                let _ = unsafe { (functions.abort)(comm) };
            }
            return Err(error);
        }
        let shared = Shared {
            functions,
            rank: ranks.rank(),
            timeout,
            comm: Mutex::new(Some(Handle(comm))),
            watched: Mutex::default(),
            changed: Condvar::new(),
        };
        let mut made = Communicator {
            ranks,
            channels,
            stream,
            staging,
            taken: AtomicU64::new(0),
            shared: Arc::new(shared),
            watch: None,
        };
        made.shared.settle(Instant::now() + made.shared.timeout)?;
        let watched = made.shared.clone();
        let watch = std::thread::Builder::new().name("gpumem ranks".into()).spawn(move || watched.watch());
        made.watch = Some(watch.map_err(|error| Error::failed("CUDA", format!("starting a thread: {error}")))?);
        Ok(made)
    }

    /// Returns the number of this rank.
    pub(crate) fn rank(&self) -> u64 {
        self.ranks.rank()
    }

    /// Returns the number of ranks.
    pub(crate) fn count(&self) -> u64 {
        self.ranks.count()
    }

    /// Returns the most channels that it uses.
    pub(crate) fn channels(&self) -> u64 {
        self.channels
    }

    /// Returns the stream of exchanges.
    pub(crate) fn stream(&self) -> &CudaStream {
        &self.stream
    }

    /// Returns the bytes of the card that it has taken. Before NCCL 2.29.7, which tells them, they are the sum of `more` bytes of free memory by
    /// which each call found less than before.
    pub(crate) fn taken(&self, more: u64) -> Result<u64, Error> {
        let before = self.taken.fetch_add(more, Ordering::Relaxed);
        let told = self.shared.with(|comm| self.shared.functions.memory(comm))??;
        Ok(told.unwrap_or(before.saturating_add(more)))
    }

    /// Runs a call of the session, which may wait for the other ranks.
    ///
    /// # Errors
    /// The errors of the call, and [`Error::Ranks`] if the others did not come in time, or after an earlier failure.
    pub(crate) fn watched<T>(&self, run: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        if let Some(failure) = self.shared.failure() {
            return Err(failure);
        }
        let done = self.timed(run);
        // After a failure the results of an exchange are undefined.
        self.shared.state()?;
        done
    }

    /// Runs something that may wait for the other ranks, also after a failure.
    pub(crate) fn timed<T>(&self, run: impl FnOnce() -> T) -> T {
        lock(&self.shared.watched).since = Some(Instant::now());
        let done = run();
        lock(&self.shared.watched).since = None;
        done
    }

    /// Enqueues exchanges at once on the stream of exchanges.
    pub(crate) fn exchange(&self, members: &[Member]) -> Result<(), Error> {
        self.shared.with(|comm| self.enqueue(comm, members))??;
        self.shared.settle(Instant::now() + self.shared.timeout)
    }

    fn enqueue(&self, comm: Comm, members: &[Member]) -> Result<(), Error> {
        let functions = &self.shared.functions;
        let check = |code| functions.check(code, "exchanging numbers", comm);
        // SAFETY: the functions of a group take no argument.
        check(unsafe { (functions.group_start)() })?;
        let exchanged = members.iter().try_for_each(|member| {
            let Member { kind, format, count, sent, received } = *member;
            let (format, stream) = (data_type(format), self.stream.cu_stream());
            // SAFETY: the communicator is alive while its mutex is locked. Both ranges are in the arena or the staging memory, which outlive the
            // stream's work, have as many elements as the exchange takes, and nothing else touches them until it has ended.
            check(unsafe {
                match kind {
                    Kind::Reduce(by) => {
                        (functions.all_reduce)(sent, received, count, format, reduction(by), comm, stream)
                    }
                    Kind::Scatter => {
                        let sum = reduction(crate::calls::exchange::Reduction::Sum);
                        (functions.reduce_scatter)(sent, received, count, format, sum, comm, stream)
                    }
                    Kind::Gather => (functions.all_gather)(sent, received, count, format, comm, stream),
                }
            })
        });
        // SAFETY: as above. The group ends even if a call failed, since all later ones would belong to it otherwise.
        let ended = check(unsafe { (functions.group_end)() });
        exchanged.and(ended)
    }

    /// Gathers numbers of all hosts: those of each rank one after the other. All ranks give as many bytes, a multiple of 4.
    pub(crate) fn gather(&self, own: &[u8]) -> Result<Vec<u8>, Error> {
        bind(self.stream.context())?;
        let count = self.count() as usize;
        let mut all = vec![0; own.len() * count];
        for first in (0..own.len()).step_by(self.staging.each) {
            let piece = &own[first..own.len().min(first + self.staging.each)];
            let staged = self.gather_piece(piece)?;
            for (rank, shard) in staged.chunks_exact(piece.len()).enumerate() {
                all[rank * own.len() + first..][..piece.len()].copy_from_slice(shard);
            }
        }
        Ok(all)
    }

    fn gather_piece(&self, own: &[u8]) -> Result<Vec<u8>, Error> {
        let (stream, start) = (self.stream.cu_stream(), self.staging.start);
        let mut all = vec![0; own.len() * self.count() as usize];
        let sent = start + self.rank() * own.len() as u64;
        // SAFETY: the staging memory has place for the pieces of all ranks. `own` lives until the stream has done its work, for which this waits.
        let copied = unsafe { result::memcpy_htod_async(sent, own, stream) };
        copied.map_err(failure("copying to the card"))?;
        let member = Member { kind: Kind::Gather, format: Format::U32, count: own.len() / 4, sent, received: start };
        let gathered = self.exchange(&[member]);
        let copied = gathered.and_then(|()| {
            // SAFETY: as above; `all` has as many bytes as the pieces, and is not touched before the copy has ended.
            unsafe { result::memcpy_dtoh_async(&mut all, start, stream) }.map_err(failure("copying from the card"))
        });
        let waited = self.stream.synchronize().map_err(failure("waiting for the other ranks"));
        copied.and(waited)?;
        // Without this, bytes of an exchange that failed would be taken for those of other ranks.
        self.shared.state()?;
        Ok(all)
    }

    /// Gathers one word of each rank.
    pub(crate) fn words(&self, own: u32) -> Result<Vec<u32>, Error> {
        self.all_words(&[own])
    }

    /// Gathers words of all ranks, in the order of ranks. All ranks give as many.
    pub(crate) fn all_words(&self, own: &[u32]) -> Result<Vec<u32>, Error> {
        let own: Vec<u8> = own.iter().flat_map(|word| word.to_le_bytes()).collect();
        let all = self.gather(&own)?;
        Ok(all.as_chunks::<4>().0.iter().map(|&word| u32::from_le_bytes(word)).collect())
    }

    /// Returns a result, if all ranks have one.
    ///
    /// # Errors
    /// The error of this rank, or else [`Error::Ranks`] that says which other rank `failed`.
    pub(crate) fn agree<T>(&self, own: Result<T, Error>, failed: &str) -> Result<T, Error> {
        let words = self.words(u32::from(own.is_err()));
        let own = own?;
        match words?.iter().position(|&word| word != 0) {
            Some(rank) => Err(Error::Ranks { rank: rank as u64, what: failed.into() }),
            None => Ok(own),
        }
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        lock(&self.shared.watched).ends = true;
        self.shared.changed.notify_all();
        if let Some(watch) = self.watch.take() {
            // A watch that panicked has nothing to tell any more.
            let _ = watch.join();
        }
        let functions = &self.shared.functions;
        let is_healthy = self.shared.failure().is_none() && bind(self.stream.context()).is_ok();
        let ends = |comm| {
            // SAFETY: the communicator is alive while its mutex is locked.
            functions.check(unsafe { (functions.finalize)(comm) }, "ending", comm)
        };
        let ended = is_healthy && matches!(self.shared.with(ends), Ok(Ok(())));
        // Another rank may be reading memory of this one until all have ended.
        let settled = ended && self.shared.settle(Instant::now() + FAREWELL.min(self.shared.timeout)).is_ok();
        if let Some(Handle(comm)) = lock(&self.shared.comm).take() {
            let end = if settled { functions.destroy } else { functions.abort };
            // SAFETY: the communicator is alive, and nothing uses it any more: it was taken out of the mutex.
            let _ = unsafe { end(comm) };
        }
    }
}
