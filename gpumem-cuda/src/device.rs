//! The card: its context, its free memory, and networks loaded onto it.

use crate::card::{Card, holders};
use crate::compile::cache::Cache;
use crate::compile::target;
use crate::error::failure;
use crate::libraries::nvml::Nvml;
use crate::libraries::preflight;
use crate::session::Session;
use cudarc::driver::sys::{CUdevice, CUdevice_attribute, CUresult};
use cudarc::driver::{CudaContext, result};
use gpumem_core::error::Error;
use gpumem_core::run::device::{Device, Job};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError};

/// A CUDA device: `Cuda::new(0)?`.
#[derive(Clone, Debug)]
pub struct Cuda {
    card: Card,
    /// Bytes that the context took of the card, if that could be measured.
    context_bytes: Option<u64>,
}

/// Bytes that a context takes at least.
const SMALLEST_CONTEXT: u64 = 200 << 20;

impl Cuda {
    /// Opens the card with this number, counted from 0 as CUDA counts: the fastest first (as `nvidia-smi` counts with
    /// `CUDA_DEVICE_ORDER=PCI_BUS_ID`), and only those that `CUDA_VISIBLE_DEVICES` leaves.
    ///
    /// # Errors
    /// [`Error::Library`] if the driver, NVRTC or cuBLASLt is missing or too old ([`Error::Several`] for more than one of
    /// them); [`Error::Device`] if there is no such card; [`Error::Unsupported`] if the card is older than compute capability
    /// 6.0, or if this version of NVRTC cannot compile for it.
    pub fn new(ordinal: usize) -> Result<Cuda, Error> {
        preflight::check()?;
        let count = result::device::get_count().map_err(failure("counting the cards"))?;
        let number = c_int::try_from(ordinal).ok().filter(|number| *number < count);
        let number = number.ok_or_else(|| {
            let what = no_such_card(ordinal, count, preflight::visible_devices());
            Error::failed("CUDA", what)
        })?;
        let device = result::device::get(number).map_err(failure("looking for the card"))?;
        let capability = capability_of(device)?;
        target(capability)?;
        let uuid = result::device::get_uuid(device).ok().map(|uuid| uuid.bytes.map(|byte| byte as u8));
        let (context, context_bytes) = open_context(ordinal, device, uuid)?;
        // SAFETY: this type never uses the slices whose use events would order: all work is on one stream. Events would make
        // the capture of a graph fail.
        unsafe { context.disable_event_tracking() };
        let cudnn = preflight::cudnn().is_some();
        let card = Card { context, capability, cache: Cache::open(), library: true, cudnn, uuid };
        Ok(Cuda { card, context_bytes })
    }

    /// The same card with matrix products by cuBLASLt, as from the start, or by the project's own kernel, to compare them.
    pub fn with_library(self, library: bool) -> Cuda {
        Cuda { card: Card { library, ..self.card }, ..self }
    }

    /// The same card with convolutions by cuDNN, as from the start where it is installed, or by the project's own kernels, to
    /// compare them.
    pub fn with_cudnn(self, cudnn: bool) -> Cuda {
        let cudnn = cudnn && preflight::cudnn().is_some();
        Cuda { card: Card { cudnn, ..self.card }, ..self }
    }

    /// The card's name.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver does not answer.
    pub fn name(&self) -> Result<String, Error> {
        self.card.name()
    }

    /// Free and total memory of the card in bytes.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver does not answer.
    pub fn memory(&self) -> Result<(u64, u64), Error> {
        self.card.memory()
    }

    /// Bytes of device memory that this process's context took when it was made. `None` if NVML is not there, or if the
    /// context was there before.
    pub fn context_bytes(&self) -> Option<u64> {
        self.context_bytes
    }

    /// Compares what a network needs with what is free.
    fn has_room(&self, arena: u64, reserve: u64) -> Result<(), Error> {
        let (free, _) = self.memory()?;
        let needed = needed(arena, reserve, self.context_bytes);
        if free >= needed { Ok(()) } else { Err(self.card.shortage(needed)) }
    }
}

/// What is still to be taken of the card: the arena, and what the reserve holds for modules and library handles beside the
/// context, which is there already. Where the context could not be measured it counts as the whole reserve: a network that
/// fits is never refused.
fn needed(arena: u64, reserve: u64, context: Option<u64>) -> u64 {
    arena.saturating_add(context.map_or(0, |context| reserve.saturating_sub(context)))
}

fn no_such_card(ordinal: usize, count: c_int, visible: Option<String>) -> String {
    let cards = if count == 1 { "1 card" } else { &format!("{count} cards") };
    let hidden = visible.map_or_else(String::new, |visible| {
        format!("; CUDA_VISIBLE_DEVICES is `{visible}`, and what it leaves out is not counted")
    });
    format!("there is no card number {ordinal}; CUDA sees {cards}, counted from 0{hidden}")
}

fn capability_of(card: CUdevice) -> Result<(i32, i32), Error> {
    let attribute = |attribute| {
        // SAFETY: the driver is initialised and gave this device.
        unsafe { result::device::get_attribute(card, attribute) }.map_err(failure("asking for the compute capability"))
    };
    Ok((
        attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    ))
}

/// Makes the card's context and measures the memory that it takes, if it is made here. A context that this process has had
/// before took what it took then.
fn open_context(
    ordinal: usize,
    card: CUdevice,
    uuid: Option<[u8; 16]>,
) -> Result<(Arc<CudaContext>, Option<u64>), Error> {
    static MEASURED: Mutex<BTreeMap<[u8; 16], u64>> = Mutex::new(BTreeMap::new());
    // Held until the context is there, so that two threads do not measure each other's.
    let mut measured = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_new = !is_active(card);
    let nvml = if is_new { Nvml::open() } else { None };
    let used = || nvml.as_ref().and_then(|nvml| nvml.card(uuid?)).and_then(|card| card.used());
    let before = used();
    let context = CudaContext::new(ordinal).map_err(|error| match error.0 {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
            Error::Memory { device: "CUDA", needed: SMALLEST_CONTEXT, free: None, holders: holders(uuid) }
        }
        _ => failure("opening the card")(error),
    })?;
    if let (Some(uuid), Some(before), Some(after)) = (uuid, before, used()) {
        measured.insert(uuid, after.saturating_sub(before));
    }
    let bytes = uuid.and_then(|uuid| measured.get(&uuid).copied());
    Ok((context, bytes))
}

/// Whether this process has the card's primary context already.
fn is_active(card: CUdevice) -> bool {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: both are valid places for the integers that are written; the driver is initialised and gave this device.
    let code = unsafe { cudarc::driver::sys::cuDevicePrimaryCtxGetState(card, &mut flags, &mut active) };
    // What is not known is not measured.
    code != CUresult::CUDA_SUCCESS || active != 0
}

impl Device for Cuda {
    type Runner = Session;

    fn load(&self, job: Job) -> Result<Session, Error> {
        self.has_room(job.arena, job.reserve)?;
        Session::new(&self.card, job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opening_a_card_never_panics() {
        match Cuda::new(0) {
            Ok(card) => assert!(card.memory().unwrap().1 > 0),
            Err(Error::Library { .. } | Error::Several(_) | Error::Device { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(Cuda::new(1_000).is_err());
        assert!(Cuda::new(usize::MAX).is_err());
    }

    #[test]
    fn the_rest_of_the_reserve_is_needed_beside_the_arena() {
        const MIB: u64 = 1 << 20;
        assert_eq!(needed(1000 * MIB, 512 * MIB, Some(428 * MIB)), 1084 * MIB);
        assert_eq!(needed(1000 * MIB, 512 * MIB, Some(600 * MIB)), 1000 * MIB);
        assert_eq!(needed(1000 * MIB, 512 * MIB, None), 1000 * MIB);
        assert_eq!(needed(u64::MAX, 512 * MIB, Some(0)), u64::MAX);
    }

    #[test]
    fn a_card_that_is_not_there_is_explained() {
        assert_eq!(no_such_card(3, 2, None), "there is no card number 3; CUDA sees 2 cards, counted from 0");
        assert_eq!(
            no_such_card(1, 1, Some("2".into())),
            "there is no card number 1; CUDA sees 1 card, counted from 0; CUDA_VISIBLE_DEVICES is `2`, and what it leaves out \
             is not counted"
        );
    }
}
