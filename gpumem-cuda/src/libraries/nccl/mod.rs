//! NCCL, by a table of its functions: exchanges between ranks.
//!
//! The library is opened when a rank is, and not before. Its functions are looked up by name. All of them have been there since version 2.22, apart
//! from `ncclCommMemStats`, which came with 2.29.7.
//!
//! A communicator is made by a configuration that limits its channels, and with them its memory. Variables of the environment win over the
//! configuration, so those that may add memory are refused: see [`check_environment`].

mod communicator;
mod environment;
pub(super) mod functions;
mod table;
#[cfg(test)]
mod tests;

use crate::calls::exchange::Reduction;
pub(crate) use communicator::{Communicator, Member};
use environment::check_environment;
use gpumem_core::Format;
use gpumem_core::error::Error;
use gpumem_core::run::ranks::Ranks;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::fmt;
use table::Functions;
pub(crate) use table::functions;

/// The variable with the place where ranks meet.
const MEETING: &str = "NCCL_COMM_ID";

/// The library's handle of a communicator.
pub(crate) type Comm = *mut c_void;

/// The id under which the ranks of a communicator meet: NCCL's `ncclUniqueId`.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct RankId {
    bytes: [u8; RankId::BYTES],
}

impl RankId {
    /// Bytes of an id.
    pub const BYTES: usize = 128;

    /// Makes an id. One rank makes it and gives its bytes to all others, which open their devices with it.
    ///
    /// If `NCCL_COMM_ID` is set to `host:port` for all processes, each of them gets one and the same id, and nothing has to be given.
    ///
    /// # Errors
    /// [`Error::Library`] if NCCL is missing or too old; [`Error::Device`] if it makes no id.
    pub fn new() -> Result<RankId, Error> {
        let mut id = RankId { bytes: [0; RankId::BYTES] };
        let functions = functions()?;
        // SAFETY: `id` is a place for the bytes that are written.
        let code = unsafe { (functions.get_unique_id)(&mut id) };
        functions.check(code, "making the id of the ranks", std::ptr::null_mut())?;
        Ok(id)
    }

    /// Returns the id of ranks that meet at the place that `NCCL_COMM_ID` names, which is equal on all of them.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without that variable, and those of [`RankId::new`].
    pub fn of(ranks: &Ranks) -> Result<RankId, Error> {
        if std::env::var_os(MEETING).is_none_or(|place| place.is_empty()) {
            // Each process would make an id of its own, and wait for the others in vain.
            let what = format!(
                "{} ranks were started, and nothing says where they meet; set `{MEETING}` to the machine of rank 0 and a free port on all of them, \
                 as `{MEETING}=localhost:29600`",
                ranks.count(),
            );
            return Err(Error::Unsupported { device: "CUDA", what });
        }
        RankId::new()
    }

    /// Returns the id with these bytes.
    pub const fn from_bytes(bytes: [u8; RankId::BYTES]) -> RankId {
        RankId { bytes }
    }

    /// Returns its bytes.
    pub const fn bytes(&self) -> &[u8; RankId::BYTES] {
        &self.bytes
    }
}

impl fmt::Debug for RankId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RankId").finish_non_exhaustive()
    }
}

/// The configuration of a communicator, as version 2.22 has it. Later versions have more fields after these, and take them as not set, because of
/// the size.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
    /// From 2.25 on. Before, it is padding.
    traffic_class: c_int,
}

/// `NCCL_API_MAGIC`, `NCCL_VERSION_CODE` of 2.22.0, and `NCCL_CONFIG_UNDEF_INT` of the header.
const MAGIC: c_uint = 0xcafe_beef;
const CONFIG_VERSION: c_uint = 22_200;
const NOT_SET: c_int = c_int::MIN;

impl Config {
    /// Returns the configuration of a communicator whose calls do not wait, with so many channels at most.
    pub(crate) fn new(channels: u64) -> Config {
        Config {
            size: size_of::<Config>(),
            magic: MAGIC,
            version: CONFIG_VERSION,
            blocking: 0,
            cga_cluster_size: NOT_SET,
            min_ctas: NOT_SET,
            max_ctas: c_int::try_from(channels.max(1)).unwrap_or(c_int::MAX),
            net_name: std::ptr::null(),
            split_share: NOT_SET,
            traffic_class: NOT_SET,
        }
    }
}

/// Results of the library: `ncclResult_t`.
pub(crate) const SUCCESS: c_int = 0;
/// A call that goes on after it has returned.
pub(crate) const IN_PROGRESS: c_int = 7;

/// Returns the library's number of a format: `ncclDataType_t`.
pub(crate) fn data_type(format: Format) -> c_int {
    match format {
        Format::U8 => 1,
        Format::U32 => 3,
        Format::F16 => 6,
        Format::F32 => 7,
        Format::Bf16 => 9,
    }
}

/// Returns the library's number of a reduction: `ncclRedOp_t`.
pub(crate) fn reduction(by: Reduction) -> c_int {
    match by {
        Reduction::Sum => 0,
        Reduction::Largest => 2,
        Reduction::Mean => 4,
    }
}
