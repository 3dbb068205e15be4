//! Calls of MPI. They are made one after the other, whichever thread makes them, and none of them waits for another rank.

use mpi_sys as sys;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fmt, mem, ptr};

/// The lock under which every call is made.
static TURN: Mutex<()> = Mutex::new(());

/// Returns the turn of this thread, which lasts until the value is dropped.
fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The most elements of one message. Longer ones are sent as several.
const MOST: usize = 1 << 28;

/// A call that failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// MPI reported an error.
    Call {
        /// The rank that the call was about. `None` if it was about all.
        peer: Option<usize>,
        /// The text of the error.
        what: String,
    },
    /// A message of another length than the one that was expected.
    Length,
}

/// Returns the error that a call reported.
fn checked(code: c_int, peer: Option<usize>) -> Result<(), Failure> {
    // Constants have the type that the header of the MPI gives them.
    if code == sys::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let (mut class, mut text, mut length) = (code, [0u8; 4096], 0);
    // SAFETY: the buffer is longer than `MPI_MAX_ERROR_STRING` of every MPI, and the caller has the turn.
    unsafe {
        sys::MPI_Error_class(code, &mut class);
        sys::MPI_Error_string(code, text.as_mut_ptr().cast(), &mut length);
    }
    if class == sys::MPI_ERR_TRUNCATE as c_int {
        return Err(Failure::Length);
    }
    let text = text.get(..length.max(0) as usize).unwrap_or_default();
    Err(Failure::Call { peer, what: String::from_utf8_lossy(text).trim().into() })
}

/// Starts MPI, unless it was started. Returns true if it did, and false if somebody else has to end it.
///
/// # Errors
/// An MPI that has ended, or one that only one thread may call.
pub(super) fn start() -> Result<bool, String> {
    let _turn = turn();
    let (mut is_started, mut has_ended, mut level) = (0, 0, 0);
    // SAFETY: these three may be called at any time, and this thread has the turn.
    let owns = unsafe {
        sys::MPI_Finalized(&mut has_ended);
        if has_ended != 0 {
            let what = "MPI has ended with the last device, and cannot start again; keep one device until the end of the program";
            return Err(what.into());
        }
        sys::MPI_Initialized(&mut is_started);
        if is_started == 0 {
            sys::MPI_Init_thread(ptr::null_mut(), ptr::null_mut(), sys::RSMPI_THREAD_SERIALIZED, &mut level);
        } else {
            sys::MPI_Query_thread(&mut level);
        }
        is_started == 0
    };
    // SAFETY: it is a constant of the library.
    if level < unsafe { sys::RSMPI_THREAD_SERIALIZED } {
        let what = "this MPI may be called by one thread only, and networks run in several; build it with support of threads, or start MPI \
                    with `MPI_THREAD_SERIALIZED`";
        return Err(what.into());
    }
    Ok(owns)
}

/// Ends MPI. All ranks have come as far, and nothing of it is used afterwards.
pub(super) fn end() {
    let _turn = turn();
    // SAFETY: `start` has started MPI, and this thread has the turn.
    unsafe { sys::MPI_Finalize() };
}

/// A communicator with all ranks.
pub(super) struct Communicator(sys::MPI_Comm);

// SAFETY: the handle is a number or a pointer that MPI alone follows. MPI was started with `MPI_THREAD_SERIALIZED` at least, so that any thread
// may call it if no other one does at that time, and every call of this module is made under `TURN`.
unsafe impl Send for Communicator {}
// SAFETY: as for `Send`.
unsafe impl Sync for Communicator {}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Communicator").finish()
    }
}

/// A call that all ranks make, and that is done when all of them have made it.
pub(super) struct Together(sys::MPI_Request);

impl Together {
    /// Returns true once all ranks have made the call.
    pub(super) fn is_done(&mut self) -> Result<bool, Failure> {
        let _turn = turn();
        let mut is_done = 0;
        // SAFETY: the request is one of MPI's, or a null request after it was done. This thread has the turn.
        let code = unsafe { sys::MPI_Test(&mut self.0, &mut is_done, sys::RSMPI_STATUS_IGNORE) };
        checked(code, None).map(|()| is_done != 0)
    }
}

/// A communicator that all ranks are making.
pub(super) struct Making {
    all: Together,
    copy: *mut sys::MPI_Comm,
}

impl Making {
    /// Returns the communicator once all ranks have made it. It returns errors to its caller, instead of ending all ranks.
    pub(super) fn made(&mut self) -> Result<Option<Communicator>, Failure> {
        if !self.all.is_done()? {
            return Ok(None);
        }
        let _turn = turn();
        // SAFETY: the box was leaked, MPI has written it, and this thread has the turn.
        unsafe {
            let communicator = *self.copy;
            checked(sys::MPI_Comm_set_errhandler(communicator, sys::RSMPI_ERRORS_RETURN), None)?;
            Ok(Some(Communicator(communicator)))
        }
    }
}

impl Communicator {
    /// Starts to make a communicator of all ranks for this library alone.
    pub(super) fn make() -> Result<Making, Failure> {
        let _turn = turn();
        // SAFETY: MPI was started, and this thread has the turn. MPI may write the handle until the call is done. It is leaked, so that it stays
        // where it is, and there is one in a program.
        unsafe {
            checked(sys::MPI_Comm_set_errhandler(sys::RSMPI_COMM_WORLD, sys::RSMPI_ERRORS_RETURN), None)?;
            let copy: *mut sys::MPI_Comm = Box::into_raw(Box::new(sys::RSMPI_COMM_NULL));
            let mut request = sys::RSMPI_REQUEST_NULL;
            checked(sys::MPI_Comm_idup(sys::RSMPI_COMM_WORLD, copy, &mut request), None)?;
            Ok(Making { all: Together(request), copy })
        }
    }

    /// Returns the number of this rank, and the number of ranks.
    pub(super) fn place(&self) -> Result<(usize, usize), Failure> {
        let _turn = turn();
        let (mut rank, mut count) = (0, 0);
        // SAFETY: the communicator is made, and this thread has the turn.
        unsafe {
            checked(sys::MPI_Comm_rank(self.0, &mut rank), None)?;
            checked(sys::MPI_Comm_size(self.0, &mut count), None)?;
        }
        Ok((rank as usize, count as usize))
    }

    /// Returns the largest tag of a message.
    pub(super) fn most_tags(&self) -> c_int {
        let _turn = turn();
        let (mut value, mut is_there): (*mut c_int, c_int) = (ptr::null_mut(), 0);
        let to: *mut *mut c_int = &mut value;
        // SAFETY: the call writes a pointer to a number that lives as long as MPI. The attribute belongs to all ranks, and every MPI has at
        // least 32,767 tags. This thread has the turn.
        unsafe {
            let code = sys::MPI_Comm_get_attr(
                sys::RSMPI_COMM_WORLD,
                sys::MPI_TAG_UB as c_int,
                to.cast::<c_void>(),
                &mut is_there,
            );
            let is_known = code == sys::MPI_SUCCESS as c_int && is_there != 0 && !value.is_null();
            if is_known { *value } else { 32_767 }
        }
    }

    /// Starts a call that is done when all ranks have made it.
    pub(super) fn meet(&self) -> Result<Together, Failure> {
        let _turn = turn();
        // SAFETY: the communicator is made, and this thread has the turn.
        unsafe {
            let mut request = sys::RSMPI_REQUEST_NULL;
            checked(sys::MPI_Ibarrier(self.0, &mut request), None)?;
            Ok(Together(request))
        }
    }

    /// Sends a short message that nobody needs to wait for.
    pub(super) fn tell(&self, peer: usize, tag: c_int, message: &[u8]) -> Result<(), Failure> {
        let _turn = turn();
        let length = message.len() as c_int;
        let message: *mut [u8] = Box::into_raw(message.into());
        let mut is_done = 0;
        // SAFETY: nothing frees the message, so that MPI may read it at any time, until MPI has read all of it. Nothing else refers to it. A freed
        // request ends by itself. This thread has the turn.
        unsafe {
            let mut request = sys::RSMPI_REQUEST_NULL;
            let bytes = message.cast::<c_void>();
            let code = sys::MPI_Isend(bytes, length, sys::RSMPI_UINT8_T, peer as c_int, tag, self.0, &mut request);
            checked(code, Some(peer))?;
            checked(sys::MPI_Test(&mut request, &mut is_done, sys::RSMPI_STATUS_IGNORE), Some(peer))?;
            if is_done == 0 {
                checked(sys::MPI_Request_free(&mut request), Some(peer))?;
            } else {
                drop(Box::from_raw(message));
            }
        }
        Ok(())
    }

    /// Returns the next short message of a tag and the rank that sent it. `None` if there is none yet.
    pub(super) fn heard(&self, tag: c_int) -> Result<Option<(usize, Vec<u8>)>, Failure> {
        let _turn = turn();
        let (mut is_there, mut length) = (0, 0);
        // SAFETY: zeros are a valid status, and all pointers are those of values that outlive the calls. The message has arrived, so that the
        // receive does not wait, and `message` has room for it. This thread has the turn from the probe to the receive.
        unsafe {
            let mut status: sys::MPI_Status = mem::zeroed();
            let any = sys::RSMPI_ANY_SOURCE;
            checked(sys::MPI_Iprobe(any, tag, self.0, &mut is_there, &mut status), None)?;
            if is_there == 0 {
                return Ok(None);
            }
            let peer = status.MPI_SOURCE;
            checked(sys::MPI_Get_count(&status, sys::RSMPI_UINT8_T, &mut length), None)?;
            let mut message = vec![0u8; length.max(0) as usize];
            let to = message.as_mut_ptr().cast::<c_void>();
            let ignored = sys::RSMPI_STATUS_IGNORE;
            let code = sys::MPI_Recv(to, length, sys::RSMPI_UINT8_T, peer, tag, self.0, ignored);
            checked(code, Some(peer as usize))?;
            Ok(Some((peer as usize, message)))
        }
    }
}

/// A message on its way.
struct Pending {
    request: sys::MPI_Request,
    peer: usize,
    /// The elements that a receive waits for. `None` for a message that is sent.
    expected: Option<usize>,
}

/// Numbers that are sent and received.
#[derive(Default)]
pub(super) struct Buffers {
    pub(super) sent: Vec<f32>,
    pub(super) received: Vec<f32>,
}

/// Messages on their way, with the memory that MPI reads and writes meanwhile. Nobody else sees that memory until all have arrived.
pub(super) struct Flight {
    buffers: Buffers,
    pending: Vec<Pending>,
}

// SAFETY: as for `Communicator`; its memory belongs to it alone.
unsafe impl Send for Flight {}

/// Returns the ranges of the messages that a range of `available` numbers is sent in.
fn messages(range: Range<usize>, available: usize) -> Result<impl Iterator<Item = Range<usize>>, Failure> {
    if range.start > range.end || range.end > available {
        return Err(Failure::Length);
    }
    let end = range.end;
    Ok(range.step_by(MOST).map(move |first| first..(first + MOST).min(end)))
}

impl Flight {
    /// Returns no messages yet.
    pub(super) fn new(buffers: Buffers) -> Flight {
        Flight { buffers, pending: Vec::new() }
    }

    /// Waits for numbers of a rank, which are written to this range of what is received.
    pub(super) fn receive(
        &mut self,
        on: &Communicator,
        (peer, tag): (usize, c_int),
        range: Range<usize>,
    ) -> Result<(), Failure> {
        let _turn = turn();
        let numbers = self.buffers.received.as_mut_ptr();
        for part in messages(range, self.buffers.received.len())? {
            // SAFETY: `messages` checks the range. The numbers are on the heap, where they stay until MPI has written them: `land` gives them
            // back only then, and `drop` leaks them before. The ranges of an exchange do not overlap. This thread has the turn.
            let request = unsafe {
                let mut request = sys::RSMPI_REQUEST_NULL;
                let (to, length) = (numbers.add(part.start).cast::<c_void>(), part.len() as c_int);
                let code = sys::MPI_Irecv(to, length, sys::RSMPI_FLOAT, peer as c_int, tag, on.0, &mut request);
                checked(code, Some(peer))?;
                request
            };
            self.pending.push(Pending { request, peer, expected: Some(part.len()) });
        }
        Ok(())
    }

    /// Sends this range of the numbers to a rank.
    pub(super) fn send(
        &mut self,
        on: &Communicator,
        (peer, tag): (usize, c_int),
        range: Range<usize>,
    ) -> Result<(), Failure> {
        let _turn = turn();
        let numbers = self.buffers.sent.as_ptr();
        for part in messages(range, self.buffers.sent.len())? {
            // SAFETY: as in `receive`; MPI only reads these.
            let request = unsafe {
                let mut request = sys::RSMPI_REQUEST_NULL;
                let (from, length) = (numbers.add(part.start).cast::<c_void>(), part.len() as c_int);
                let code = sys::MPI_Isend(from, length, sys::RSMPI_FLOAT, peer as c_int, tag, on.0, &mut request);
                checked(code, Some(peer))?;
                request
            };
            self.pending.push(Pending { request, peer, expected: None });
        }
        Ok(())
    }

    /// Returns true once all messages have arrived.
    ///
    /// # Errors
    /// A rank that cannot be reached, or a message of another length.
    pub(super) fn has_arrived(&mut self) -> Result<bool, Failure> {
        let _turn = turn();
        let mut at = 0;
        while let Some(pending) = self.pending.get_mut(at) {
            let (mut is_done, mut length) = (0, 0);
            // SAFETY: the request is one of MPI's that is not done. Zeros are a valid status. This thread has the turn.
            unsafe {
                let mut status: sys::MPI_Status = mem::zeroed();
                checked(sys::MPI_Test(&mut pending.request, &mut is_done, &mut status), Some(pending.peer))?;
                if is_done != 0 && pending.expected.is_some() {
                    checked(sys::MPI_Get_count(&status, sys::RSMPI_FLOAT, &mut length), Some(pending.peer))?;
                }
            }
            if is_done == 0 {
                at += 1;
                continue;
            }
            let Pending { expected, .. } = self.pending.swap_remove(at);
            if expected.is_some_and(|expected| expected != length.max(0) as usize) {
                return Err(Failure::Length);
            }
        }
        Ok(self.pending.is_empty())
    }

    /// Returns the ranks whose messages have not arrived, and those that have not taken theirs.
    pub(super) fn awaited(&self) -> Vec<usize> {
        let mut peers: Vec<usize> = self.pending.iter().map(|pending| pending.peer).collect();
        peers.sort_unstable();
        peers.dedup();
        peers
    }

    /// Returns the numbers, if all messages have arrived.
    pub(super) fn land(mut self) -> Option<Buffers> {
        self.pending.is_empty().then(|| mem::take(&mut self.buffers))
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        // MPI may read and write this memory until the process ends.
        if !self.pending.is_empty() {
            mem::forget(mem::take(&mut self.buffers));
        }
    }
}
