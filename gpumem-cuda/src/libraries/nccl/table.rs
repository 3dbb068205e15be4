//! The table of NCCL's functions, looked up by name.

use super::functions::nccl_functions;
use super::{Comm, Config, IN_PROGRESS, RankId, SUCCESS};
use crate::libraries::preflight::{damaged_exchanges, function, open_exchanges};
use cudarc::driver::sys::{CUdeviceptr, CUstream};
use gpumem_core::error::Error;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;

/// `ncclStatGpuMemTotal`: all bytes of the card that the library has allocated.
pub(super) const ALL_MEMORY: c_int = 3;

type Reduce = unsafe extern "C" fn(CUdeviceptr, CUdeviceptr, usize, c_int, c_int, Comm, CUstream) -> c_int;
type Gather = unsafe extern "C" fn(CUdeviceptr, CUdeviceptr, usize, c_int, Comm, CUstream) -> c_int;

/// Defines the table of functions, and its lookup by name.
macro_rules! table {
    ($($field:ident: $name:literal, $type:ty;)*) => {
        /// The functions of the library that are called.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct Functions {
            $(pub(crate) $field: $type,)*
            /// `None` before version 2.29.7.
            mem_stats: Option<unsafe extern "C" fn(Comm, c_int, *mut u64) -> c_int>,
        }

        impl Functions {
            /// Looks all functions up.
            ///
            /// # Errors
            /// A text that says what the library lacks.
            fn of(library: &Library) -> Result<Functions, String> {
                Ok(Functions {
                    $($field: *function::<$type>(library, $name)?,)*
                    mem_stats: function(library, "ncclCommMemStats").ok().map(|found| *found),
                })
            }
        }
    };
}

nccl_functions!(table);

/// Returns the library's functions. The library stays open as long as the process runs.
///
/// # Errors
/// [`Error::Library`] that says how to install it; [`Error::Unsupported`] on systems that it does not run on.
pub(crate) fn functions() -> Result<&'static Functions, Error> {
    static FOUND: OnceLock<Result<Functions, Error>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        if cfg!(windows) {
            let what =
                "several ranks need NCCL, which runs on Linux; use Linux, or train on one card with `GPUMEM_RANKS=1`";
            return Err(Error::Unsupported { device: "CUDA", what: what.into() });
        }
        Functions::of(open_exchanges()?.0).map_err(|what| damaged_exchanges(&what))
    });
    found.as_ref().map_err(Clone::clone)
}

/// Returns the text at an address; empty if there is none.
fn text(from: *const c_char) -> String {
    if from.is_null() {
        return String::new();
    }
    // SAFETY: the library returns texts that end with 0 and live until the next call.
    unsafe { CStr::from_ptr(from) }.to_string_lossy().trim().to_string()
}

impl Functions {
    /// Returns an error that names the failed call, unless it succeeded or goes on.
    pub(crate) fn check(&self, code: c_int, doing: &str, comm: Comm) -> Result<(), Error> {
        match code {
            SUCCESS | IN_PROGRESS => Ok(()),
            code => Err(Error::failed("CUDA", format!("NCCL: {doing}: {}", self.told(code, comm)))),
        }
    }

    /// Returns the library's words about a failure, and what to do.
    pub(crate) fn told(&self, code: c_int, comm: Comm) -> String {
        // SAFETY: the first takes any number; the second takes a communicator that is alive, or none.
        let (meaning, last) = unsafe { (text((self.error_string)(code)), text((self.last_error)(comm))) };
        let last = if last.is_empty() { last } else { format!(" ({last})") };
        let advice = if last.contains("driver version is insufficient") {
            "it is built for a newer CUDA than the driver's; install the package nvidia-nccl-cu12 with pip in its place"
        } else {
            "start all ranks with `NCCL_DEBUG=WARN` to see more"
        };
        format!("{meaning}{last}; {advice}")
    }

    /// Returns the bytes of the card that a communicator has allocated; `None` if this version does not tell.
    pub(crate) fn memory(&self, comm: Comm) -> Result<Option<u64>, Error> {
        let Some(stats) = self.mem_stats else { return Ok(None) };
        let mut bytes = 0;
        // SAFETY: the communicator is alive, and `bytes` is a place for the number that is written.
        let code = unsafe { stats(comm, ALL_MEMORY, &mut bytes) };
        self.check(code, "asking for its memory", comm)?;
        Ok(Some(bytes))
    }
}
