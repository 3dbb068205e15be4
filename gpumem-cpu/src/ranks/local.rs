//! Ranks in one process, each used by a thread of its own.

use super::{Peers, add_up, mean_of, own_of, refused, waited};
use gpumem_core::error::Error;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

/// Sessions of one network, one on each rank. Every rank loads its networks in the same order.
#[derive(Debug)]
pub(crate) struct Hub {
    count: usize,
    /// The time that a rank waits for the others.
    timeout: Duration,
    groups: Mutex<Vec<Arc<Group>>>,
}

impl Hub {
    /// Returns the meeting places of so many ranks.
    pub(crate) fn new(count: usize, timeout: Duration) -> Hub {
        Hub { count, timeout, groups: Mutex::default() }
    }

    /// Returns the part of a rank in the session that it loads after `number` others.
    pub(crate) fn join(&self, rank: usize, number: usize) -> Local {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        while groups.len() <= number {
            groups.push(Arc::new(Group::new(self.count, self.timeout)));
        }
        Local { group: groups[number].clone(), rank, failed: Mutex::default() }
    }
}

/// The ranks of one session.
struct Group {
    meeting: Mutex<Meeting>,
    changed: Condvar,
    /// The numbers that each rank sends.
    sent: Vec<RwLock<Vec<f32>>>,
    timeout: Duration,
}

/// The ranks that have arrived at the next meeting.
#[derive(Default)]
struct Meeting {
    arrived: usize,
    /// The number of meetings that took place.
    past: u64,
    /// A rank that refuses its batch.
    refusing: Option<usize>,
    failure: Option<Error>,
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("ranks", &self.sent.len()).finish_non_exhaustive()
    }
}

/// A rank and its group.
#[derive(Debug)]
pub(crate) struct Local {
    group: Arc<Group>,
    rank: usize,
    /// The first failure of an exchange of this rank.
    failed: Mutex<Option<Error>>,
}

impl Group {
    fn new(count: usize, timeout: Duration) -> Group {
        let sent = (0..count).map(|_| RwLock::default()).collect();
        Group { meeting: Mutex::default(), changed: Condvar::new(), sent, timeout }
    }

    fn meeting(&self) -> MutexGuard<'_, Meeting> {
        self.meeting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all ranks have arrived.
    fn meet(&self, rank: usize) -> Result<(), Error> {
        let mut meeting = self.meeting();
        if let Some(failure) = &meeting.failure {
            return Err(failure.clone());
        }
        let past = meeting.past;
        meeting.arrived += 1;
        if meeting.arrived == self.sent.len() {
            (meeting.arrived, meeting.past) = (0, past + 1);
            self.changed.notify_all();
            return Ok(());
        }
        let waits = |meeting: &mut Meeting| meeting.past == past && meeting.failure.is_none();
        let (mut meeting, end) =
            self.changed.wait_timeout_while(meeting, self.timeout, waits).unwrap_or_else(PoisonError::into_inner);
        // A meeting that took place counts, even if a rank has left since.
        if meeting.past > past {
            return Ok(());
        }
        if end.timed_out() && meeting.failure.is_none() {
            meeting.failure = Some(waited(rank as u64, self.timeout, "the others"));
            self.changed.notify_all();
        }
        Err(meeting.failure.clone().unwrap_or(Error::Damaged("a meeting of ranks ended early")))
    }

    /// Returns the numbers that all ranks have sent.
    fn sent(&self) -> Vec<RwLockReadGuard<'_, Vec<f32>>> {
        self.sent.iter().map(|sent| sent.read().unwrap_or_else(PoisonError::into_inner)).collect()
    }
}

impl Local {
    /// Sends numbers to all ranks, and calls `receive` with those of all.
    fn exchange(&self, sent: &[f32], receive: impl FnOnce(&[&[f32]])) -> Result<(), Error> {
        let done = self.exchanged(sent, receive);
        if let Err(error) = &done {
            self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| error.clone());
        }
        done
    }

    fn exchanged(&self, sent: &[f32], receive: impl FnOnce(&[&[f32]])) -> Result<(), Error> {
        {
            let mut own = self.group.sent[self.rank].write().unwrap_or_else(PoisonError::into_inner);
            own.clear();
            own.extend_from_slice(sent);
        }
        self.group.meet(self.rank)?;
        {
            let all = self.group.sent();
            let all: Vec<&[f32]> = all.iter().map(|sent| sent.as_slice()).collect();
            if all.iter().any(|other| other.len() != sent.len()) {
                return Err(Error::Damaged("ranks exchange different numbers of elements"));
            }
            receive(&all);
        }
        // Until then nobody sends anything else.
        self.group.meet(self.rank)
    }
}

impl Peers for Local {
    fn rank(&self) -> u64 {
        self.rank as u64
    }

    fn count(&self) -> u64 {
        self.group.sent.len() as u64
    }

    fn sum(&self, numbers: &mut [f32]) -> Result<(), Error> {
        let sent = numbers.to_vec();
        self.exchange(&sent, |all| add_up(all, numbers))
    }

    fn sum_shard(&self, all: &[f32], own: &mut [f32]) -> Result<(), Error> {
        self.exchange(all, |all| {
            let shards: Vec<&[f32]> = all.iter().map(|all| own_of(all, self.rank(), self.count())).collect();
            add_up(&shards, own);
        })
    }

    fn gather(&self, own: &[f32], all: &mut [f32]) -> Result<(), Error> {
        self.exchange(own, |shards| {
            shards.iter().zip(all.chunks_exact_mut(own.len().max(1))).for_each(|(shard, to)| to.copy_from_slice(shard));
        })
    }

    fn mean(&self, numbers: &mut [f32]) -> Result<(), Error> {
        let sent = numbers.to_vec();
        self.exchange(&sent, |all| mean_of(all, numbers))
    }

    fn agree(&self, refuses: bool) -> Result<(), Error> {
        if refuses {
            self.group.meeting().refusing.get_or_insert(self.rank);
        }
        self.group.meet(self.rank)?;
        let refusing = self.group.meeting().refusing;
        self.group.meet(self.rank)?;
        // All ranks have seen it.
        self.group.meeting().refusing = None;
        self.group.meet(self.rank)?;
        match refusing {
            Some(rank) if rank != self.rank => Err(refused(rank as u64)),
            _ => Ok(()),
        }
    }

    fn failure(&self) -> Option<Error> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn leave(&self, what: &str) {
        let mut meeting = self.group.meeting();
        meeting.failure.get_or_insert(Error::Ranks { rank: self.rank as u64, what: what.into() });
        self.group.changed.notify_all();
    }
}
