//! Ranks in processes of their own, which exchange messages of MPI.
//!
//! A sum is made of messages from each rank to each, not of MPI's own sums, which add up in another order on other machines. So the bits are those
//! of ranks in one process.
//!
//! No call waits inside MPI. A rank asks again and again for its messages, until they are there or its time is up, and looks for messages of ranks
//! that have stopped meanwhile. What MPI may still write is leaked then: a failure ends the exchanges of a session for good.

mod calls;

use super::{Peers, UNLOADED, add_up, mean_of, own_of, refused, timeout, waited};
use crate::DEVICE;
use calls::{Buffers, Communicator, Failure, Flight, Together};
use gpumem_core::error::Error;
use gpumem_core::run::ranks::Ranks;
use std::ffi::c_int;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::time::{Duration, Instant};

/// The numbers up to which a sum is one exchange of all of them. More are added up in shards, with less to send and another message to wait for.
const SHORT: usize = 4096;

/// The time that a rank whose exchanges failed gives the others to end in order.
const PATIENCE: Duration = Duration::from_secs(2);

/// The tag of the messages of ranks that end.
const ENDED: c_int = 0;

/// All ranks, one of which is this process.
#[derive(Debug)]
pub(crate) struct World {
    communicator: Communicator,
    rank: usize,
    count: usize,
    timeout: Duration,
    most_tags: c_int,
    /// The number of sessions so far.
    sessions: AtomicUsize,
    /// True after an exchange failed, so that other ranks may never come.
    has_failed: AtomicBool,
    /// The ranks that have ended.
    ended: Mutex<Vec<Ended>>,
    /// True if this library started MPI, and ends it.
    owns: bool,
}

/// A rank that has ended.
#[derive(Clone, Copy, Debug)]
struct Ended {
    rank: usize,
    /// The number of sessions that it had.
    sessions: usize,
    /// True if it ends without waiting for the others.
    is_in_haste: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unsupported(what: String) -> Error {
    Error::Unsupported { device: DEVICE, what }
}

/// Waits a little, and longer the more often it was called for one thing.
fn pause(passes: u32) {
    match passes {
        0..64 => std::hint::spin_loop(),
        64..4096 => std::thread::yield_now(),
        4096..20_000 => std::thread::sleep(Duration::from_micros(200)),
        _ => std::thread::sleep(Duration::from_millis(2)),
    }
}

/// Asks until there is something. Returns `None` if the time is up before.
fn until<T>(time: Duration, mut ask: impl FnMut() -> Result<Option<T>, Failure>) -> Result<Option<T>, Failure> {
    let begun = Instant::now();
    for passes in 0u32.. {
        let answer = ask()?;
        if answer.is_some() || begun.elapsed() >= time {
            return Ok(answer);
        }
        pause(passes);
    }
    Ok(None)
}

impl World {
    /// Returns all ranks. MPI starts with the first call.
    ///
    /// # Errors
    /// An MPI that counts other ranks than `ranks`, or that cannot be used.
    pub(crate) fn open(ranks: &Ranks) -> Result<Arc<World>, Error> {
        static OPEN: Mutex<Weak<World>> = Mutex::new(Weak::new());
        let mut open = locked(&OPEN);
        let world = match open.upgrade() {
            Some(world) => world,
            None => Arc::new(World::start(ranks)?),
        };
        *open = Arc::downgrade(&world);
        let (found, expected) = ((world.rank, world.count), (ranks.rank() as usize, ranks.count() as usize));
        if found != expected {
            return Err(unsupported(format!(
                "the environment says rank {} of {}, and MPI says rank {} of {}; start the program with the `mpirun` of the MPI that it was \
                 built with, as `mpirun -np {}`",
                expected.0, expected.1, found.0, found.1, expected.1
            )));
        }
        Ok(world)
    }

    fn start(ranks: &Ranks) -> Result<World, Error> {
        let timeout = timeout()?;
        let late = || waited(ranks.rank(), timeout, "the others to start");
        // MPI itself waits for all ranks when it starts, without end if one of them never comes.
        let (sender, started) = mpsc::channel();
        std::thread::spawn(move || sender.send(calls::start()));
        let owns = started.recv_timeout(timeout).map_err(|_| late())?.map_err(unsupported)?;
        let failed = |failure| error_of(failure, ranks.rank() as usize);
        let mut making = Communicator::make().map_err(failed)?;
        let made = until(timeout, || making.made()).map_err(failed)?;
        let communicator = made.ok_or_else(late)?;
        let ((rank, count), most_tags) = (communicator.place().map_err(failed)?, communicator.most_tags());
        let (sessions, has_failed, ended) = Default::default();
        Ok(World { communicator, rank, count, timeout, most_tags, sessions, has_failed, ended, owns })
    }

    /// Returns the other ranks of the next session. Every rank begins its sessions in the same order.
    ///
    /// # Errors
    /// More sessions than MPI has tags for.
    pub(crate) fn join(self: &Arc<World>) -> Result<Remote, Error> {
        let number = self.sessions.fetch_add(1, Ordering::Relaxed);
        let tags = c_int::try_from(2 * number + 1).ok().filter(|&first| first < self.most_tags);
        let tag = tags.ok_or_else(|| {
            unsupported(format!(
                "MPI has no messages for network {number}; load a network once and train it, instead of loading it anew"
            ))
        })?;
        Ok(Remote { world: self.clone(), number, tag, state: Mutex::default() })
    }

    /// Returns the numbers of the other ranks, in order.
    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.rank;
        (0..self.count).filter(move |&rank| rank != own)
    }

    /// Reads the messages of ranks that have ended, and returns all of these so far.
    fn ended(&self) -> Result<Vec<Ended>, Failure> {
        let mut ended = locked(&self.ended);
        while let Some((rank, message)) = self.communicator.heard(ENDED)? {
            let mut words = Words(&message);
            let (sessions, is_in_haste) = (words.next() as usize, words.next() > 0);
            ended.push(Ended { rank, sessions, is_in_haste });
        }
        Ok(ended.clone())
    }

    /// Tells the others that this rank ends, and waits until all end. Returns true if all do without a failure.
    ///
    /// A rank without a failure waits as long as it takes: another one may evaluate or write files. A rank after a failure has to end, so that the
    /// launcher ends those that never come.
    fn end(&self) -> Result<bool, Failure> {
        let is_in_haste = self.has_failed.load(Ordering::Relaxed);
        let words = [self.sessions.load(Ordering::Relaxed) as u64, u64::from(is_in_haste)];
        let message: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.others().try_for_each(|peer| self.communicator.tell(peer, ENDED, &message))?;
        let mut all: Together = self.communicator.meet()?;
        let begun = Instant::now();
        for passes in 0u32.. {
            let ended = self.ended()?;
            let is_hasty = is_in_haste || ended.iter().any(|ended| ended.is_in_haste);
            // All ranks have the same messages then, and decide alike: MPI ends on all of them, or waits on none for one that has given up.
            if all.is_done()? && ended.len() + 1 == self.count {
                return Ok(!is_hasty);
            }
            if is_hasty && begun.elapsed() >= PATIENCE {
                break;
            }
            pause(passes);
        }
        Ok(false)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // If a rank does not end MPI, the launcher ends the others.
        if !std::thread::panicking() && matches!(self.end(), Ok(true)) && self.owns {
            calls::end();
        }
    }
}

/// Numbers at the beginning of a message. A message that is too short has zeros.
struct Words<'m>(&'m [u8]);

impl Words<'_> {
    fn next(&mut self) -> u64 {
        let Some((word, rest)) = self.0.split_first_chunk() else { return 0 };
        self.0 = rest;
        u64::from_le_bytes(*word)
    }
}

/// Returns the error that a failure of a call is to this rank.
fn error_of(failure: Failure, rank: usize) -> Error {
    match failure {
        Failure::Length => Error::Damaged("ranks exchange different numbers of elements"),
        Failure::Call { peer, what } => {
            let peer = peer.unwrap_or(rank) as u64;
            Error::Ranks {
                rank: peer,
                what: format!("has a failure of MPI ({what}); look for its message among the launcher's"),
            }
        }
    }
}

/// A session of this rank, and its part in the exchanges.
#[derive(Debug)]
pub(crate) struct Remote {
    world: Arc<World>,
    number: usize,
    /// The tag of numbers. The next one is that of ranks that leave.
    tag: c_int,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    buffers: Buffers,
    /// The number of exchanges that are done.
    done: u64,
    /// The ranks that left, with the number of exchanges that they took part in.
    left: Vec<(u64, Error)>,
    failed: Option<Error>,
    /// True if the others were told that this rank takes part no longer.
    has_told: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("done", &self.done).field("failed", &self.failed).finish_non_exhaustive()
    }
}

impl Remote {
    /// Sends each rank the range of `sent` that `to` returns for it, and receives `each` numbers from each. Calls `receive` with those of all ranks.
    fn exchange(
        &self,
        sent: &[f32],
        (to, each): (impl Fn(usize) -> Range<usize>, usize),
        receive: impl FnOnce(&[&[f32]]),
    ) -> Result<(), Error> {
        let mut state = locked(&self.state);
        if let Some(failed) = &state.failed {
            return Err(failed.clone());
        }
        match self.exchanged(&mut state, sent, (to, each)) {
            Ok(buffers) => {
                receive(&buffers.received.chunks_exact(each.max(1)).collect::<Vec<_>>());
                state.buffers = buffers;
                state.done += 1;
                Ok(())
            }
            Err(error) => {
                self.world.has_failed.store(true, Ordering::Relaxed);
                state.failed = Some(error.clone());
                self.tell(&mut state, &error);
                Err(error)
            }
        }
    }

    /// Returns the numbers of all ranks, in their order.
    fn exchanged(
        &self,
        state: &mut State,
        sent: &[f32],
        (to, each): (impl Fn(usize) -> Range<usize>, usize),
    ) -> Result<Buffers, Error> {
        let World { communicator, rank, count, timeout, .. } = &*self.world;
        let mut buffers = std::mem::take(&mut state.buffers);
        buffers.sent.clear();
        buffers.sent.extend_from_slice(sent);
        buffers.received.resize(count * each, 0.0);
        buffers.received[rank * each..][..each].copy_from_slice(&sent[to(*rank)]);
        let failed = |failure| error_of(failure, *rank);
        let mut flight = Flight::new(buffers);
        for peer in self.world.others() {
            flight.receive(communicator, (peer, self.tag), peer * each..(peer + 1) * each).map_err(failed)?;
        }
        for peer in self.world.others() {
            flight.send(communicator, (peer, self.tag), to(peer)).map_err(failed)?;
        }
        let begun = Instant::now();
        for passes in 0u32.. {
            if flight.has_arrived().map_err(failed)? {
                break;
            }
            if passes % 64 == 63 {
                self.look_for_failures(state, &flight.awaited())?;
            }
            if begun.elapsed() >= *timeout {
                return Err(waited(*rank as u64, *timeout, &named(&flight.awaited())));
            }
            pause(passes);
        }
        flight.land().ok_or(Error::Damaged("messages of ranks are on their way"))
    }

    /// Fails if a rank that is waited for takes no part in the exchange.
    fn look_for_failures(&self, state: &mut State, awaited: &[usize]) -> Result<(), Error> {
        let failed = |failure| error_of(failure, self.world.rank);
        while let Some((_, message)) = self.world.communicator.heard(self.tag + 1).map_err(failed)? {
            let mut words = Words(&message);
            let (done, rank) = (words.next(), words.next());
            let what = String::from_utf8_lossy(words.0).into_owned();
            state.left.push((done, Error::Ranks { rank, what }));
        }
        if let Some((_, error)) = state.left.iter().find(|(done, _)| *done <= state.done) {
            return Err(error.clone());
        }
        let ended = self.world.ended().map_err(failed)?;
        match ended.iter().find(|ended| ended.sessions <= self.number && awaited.contains(&ended.rank)) {
            Some(ended) => Err(Error::Ranks { rank: ended.rank as u64, what: UNLOADED.into() }),
            None => Ok(()),
        }
    }

    /// Tells the others, once, that this rank takes part in no further exchange.
    fn tell(&self, state: &mut State, error: &Error) {
        if std::mem::replace(&mut state.has_told, true) {
            return;
        }
        let (rank, what) = match error {
            Error::Ranks { rank, what } => (*rank, what.clone()),
            other => (self.world.rank as u64, format!("has failed: {other}")),
        };
        let mut message: Vec<u8> = [state.done, rank].iter().flat_map(|word| word.to_le_bytes()).collect();
        message.extend(what.bytes());
        for peer in self.world.others() {
            // A rank that cannot be told finds out by itself, when its time is up.
            let _ = self.world.communicator.tell(peer, self.tag + 1, &message);
        }
    }

    /// Replaces numbers by a combination of those of all ranks, which `combine` computes for each number by itself.
    fn combined(&self, numbers: &mut [f32], combine: fn(&[&[f32]], &mut [f32])) -> Result<(), Error> {
        let (length, count) = (numbers.len(), self.world.count);
        if length <= SHORT {
            let sent = numbers.to_vec();
            return self.exchange(&sent, (|_| 0..length, length), |all| combine(all, numbers));
        }
        // The last shards may be padded.
        let each = length.div_ceil(count);
        let mut sent = numbers.to_vec();
        sent.resize(each * count, 0.0);
        let mut own = vec![0.0; each];
        self.exchange(&sent, (|rank| rank * each..(rank + 1) * each, each), |all| combine(all, &mut own))?;
        self.exchange(&own, (|_| 0..each, each), |all| {
            numbers.chunks_mut(each).zip(all).for_each(|(to, shard)| to.copy_from_slice(&shard[..to.len()]));
        })
    }
}

/// Returns `rank 1`, or `ranks 1, 2`.
fn named(ranks: &[usize]) -> String {
    let list: Vec<String> = ranks.iter().map(usize::to_string).collect();
    format!("{} {}", if list.len() == 1 { "rank" } else { "ranks" }, list.join(", "))
}

impl Peers for Remote {
    fn rank(&self) -> u64 {
        self.world.rank as u64
    }

    fn count(&self) -> u64 {
        self.world.count as u64
    }

    fn sum(&self, numbers: &mut [f32]) -> Result<(), Error> {
        self.combined(numbers, add_up)
    }

    fn sum_shard(&self, all: &[f32], own: &mut [f32]) -> Result<(), Error> {
        let each = own_of(all, self.rank(), self.count()).len();
        self.exchange(all, (|rank| rank * each..(rank + 1) * each, each), |shards| add_up(shards, own))
    }

    fn gather(&self, own: &[f32], all: &mut [f32]) -> Result<(), Error> {
        let each = own.len();
        self.exchange(own, (|_| 0..each, each), |shards| {
            all.chunks_exact_mut(each.max(1)).zip(shards).for_each(|(to, shard)| to.copy_from_slice(shard));
        })
    }

    fn mean(&self, numbers: &mut [f32]) -> Result<(), Error> {
        self.combined(numbers, mean_of)
    }

    fn agree(&self, refuses: bool) -> Result<(), Error> {
        let mut all = vec![0.0; self.world.count];
        self.gather(&[f32::from(refuses)], &mut all)?;
        match all.iter().position(|&refuses| refuses > 0.0) {
            Some(rank) if !refuses => Err(refused(rank as u64)),
            _ => Ok(()),
        }
    }

    fn failure(&self) -> Option<Error> {
        locked(&self.state).failed.clone()
    }

    fn leave(&self, what: &str) {
        let error = Error::Ranks { rank: self.world.rank as u64, what: what.into() };
        self.tell(&mut locked(&self.state), &error);
    }
}
