//! The card: its context, its free memory, and networks loaded onto it.

use crate::card::{Card, Warpgroups, holders};
use crate::compile::cache::Cache;
use crate::compile::target;
use crate::context::{bind, lower_limits};
use crate::error::failure;
use crate::libraries::nccl::{self, Communicator, RankId};
use crate::libraries::nvml::Nvml;
use crate::libraries::preflight;
use crate::memory_log::{ContextBytes, Meter, Records, Stages, network};
use crate::session::{Session, check_ranks, facts, ranks_of};
use cudarc::driver::sys::{CUdevice, CUdevice_attribute, CUresult};
use cudarc::driver::{CudaContext, result};
use gpumem_core::error::{Beside, Error};
use gpumem_core::run::agreement;
use gpumem_core::run::device::{Device, Job};
use gpumem_core::run::ranks::Ranks;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A CUDA device: `Cuda::new(0)?`.
#[derive(Clone, Debug)]
pub struct Cuda {
    pub(crate) card: Card,
    /// Bytes that the context took; `None` if they could not be measured.
    pub(crate) context: Option<ContextBytes>,
    /// The other ranks; `None` if there are none.
    ranks: Option<Arc<Membership>>,
}

/// The place of a rank, the id under which all ranks meet, and its communicator from the first network on that is trained.
#[derive(Debug)]
struct Membership {
    place: Ranks,
    id: RankId,
    communicator: Mutex<Option<Arc<Communicator>>>,
}

/// The fewest bytes that a context takes.
const SMALLEST_CONTEXT: u64 = 200 << 20;

impl Cuda {
    /// Opens the card with this number, counted from 0 as CUDA counts: the fastest first (as `nvidia-smi` counts with
    /// `CUDA_DEVICE_ORDER=PCI_BUS_ID`), and only those that `CUDA_VISIBLE_DEVICES` leaves.
    ///
    /// The context is the primary one, which the whole process shares. If it is made here, a thread's stack, the heap of `malloc` and the buffer of
    /// `printf` on the card become as small as the driver allows. If your own kernels need them, make the context first.
    ///
    /// # Errors
    /// [`Error::Library`] if the driver, NVRTC or cuBLASLt is missing or too old ([`Error::Several`] for more than one of them); [`Error::Device`]
    /// if there is no such card; [`Error::Unsupported`] if the card is older than compute capability 6.0, or if this version of NVRTC cannot
    /// compile for it.
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
        let multiprocessors = multiprocessors_of(device)?;
        let maps = maps_host_memory(device)?;
        let uuid = result::device::get_uuid(device).ok().map(|uuid| uuid.bytes.map(|byte| byte as u8));
        let Opened { context, bytes, is_new, driver } = open_context(ordinal, device, uuid)?;
        // SAFETY: this type never uses the slices whose use events would order: all work is on one stream. Events would make
        // the capture of a graph fail.
        unsafe { context.disable_event_tracking() };
        let cudnn = preflight::cudnn().is_some();
        let (is_new, taken) = (Arc::new(AtomicBool::new(is_new)), Arc::default());
        let cache = Cache::open();
        let card = Card {
            context,
            capability,
            multiprocessors,
            barriers: true,
            maps,
            cache,
            library: true,
            cudnn,
            autotune: false,
            warpgroups: Warpgroups::Timed,
            uuid,
            driver,
            is_new,
            taken,
        };
        let cuda = Cuda { card, context: bytes, ranks: None };
        if let (Some(bytes), true) = (bytes, cuda.card.is_new.load(Ordering::Relaxed)) {
            Records::of(&cuda.card)?.update(|record| record.add_context(bytes));
        }
        Ok(cuda)
    }

    /// Opens the card of this process among `ranks`, which a launcher started: `Cuda::on(&Ranks::from_environment()?)`. It is the card whose number is
    /// that of the rank on its machine. Several ranks meet at the place that `NCCL_COMM_ID` names.
    ///
    /// # Errors
    /// As for [`Cuda::new`] and [`Cuda::on_rank`]; [`Error::Unsupported`] if several ranks have no such variable.
    pub fn on(ranks: &Ranks) -> Result<Cuda, Error> {
        let ordinal = usize::try_from(ranks.local_rank()).unwrap_or(usize::MAX);
        if ranks.is_alone() {
            return Cuda::new(ordinal);
        }
        let id = RankId::of(ranks)?;
        Cuda::new(ordinal)?.on_rank(ranks, id)
    }

    /// Returns this card as that of one of several ranks. They share the training steps of networks with `ranks` in `TRAIN`. Each rank is a process
    /// with a card of its own. All ranks load the same networks and make the same calls, in the same order.
    ///
    /// They meet when the first network is loaded that is trained. From then on, a rank waits for the others at most `GPUMEM_RANKS_TIMEOUT` seconds,
    /// 600 without it, and then returns [`Error::Ranks`]. Start the processes with a launcher, such as `torchrun`, which ends all of them if one ends.
    ///
    /// ```no_run
    /// # fn id_of_rank_0() -> gpumem_cuda::RankId { gpumem_cuda::RankId::from_bytes([0; 128]) }
    /// use gpumem_core::run::ranks::Ranks;
    /// use gpumem_cuda::Cuda;
    ///
    /// // Rank 0 makes the id with `RankId::new()` and sends it to the others. With `NCCL_COMM_ID=host:port`, each makes the same one.
    /// let card = Cuda::new(1)?.on_rank(&Ranks::new(1, 2)?, id_of_rank_0())?;
    /// # Ok::<(), gpumem_core::error::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Library`] if NCCL is missing, which says how to install it.
    pub fn on_rank(self, ranks: &Ranks, id: RankId) -> Result<Cuda, Error> {
        if ranks.is_alone() {
            return Ok(Cuda { ranks: None, ..self });
        }
        nccl::functions()?;
        Ok(Cuda { ranks: Some(Arc::new(Membership { place: *ranks, id, communicator: Mutex::default() })), ..self })
    }

    /// Returns the communicator of a job that is trained; `None` without other ranks.
    fn communicator(&self, job: &Job) -> Result<Option<Arc<Communicator>>, Error> {
        let Some(Membership { place, id, communicator }) = self.ranks.as_deref().filter(|_| job.train.is_some()) else {
            return Ok(None);
        };
        let channels = ranks_of(job).channels;
        let mut made = communicator.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = &*made {
            if channels < made.channels() {
                let what = format!(
                    "`{}` has `channels: {channels}`, and a network with {} was loaded before; load them in the other order, or give them equal ones",
                    job.name,
                    made.channels()
                );
                return Err(Error::Unsupported { device: "CUDA", what });
            }
            return Ok(Some(made.clone()));
        }
        let (before, _) = self.memory()?;
        let new = Communicator::new(&self.card.context, (*place, *id), channels, job.deterministic)?;
        let (after, _) = self.memory()?;
        new.taken(before.saturating_sub(after))?;
        Ok(Some(made.insert(Arc::new(new)).clone()))
    }

    /// Returns this card with matrix products by cuBLASLt, the default, or by gpumem's own kernels, to compare the two.
    pub fn with_library(self, library: bool) -> Cuda {
        Cuda { card: Card { library, ..self.card }, ..self }
    }

    /// Returns this card with convolutions, attention and recurrent layers by cuDNN or by gpumem's own kernels, to compare the two. The default is
    /// cuDNN if it is installed.
    pub fn with_cudnn(self, cudnn: bool) -> Cuda {
        let cudnn = cudnn && preflight::cudnn().is_some();
        Cuda { card: Card { cudnn, ..self.card }, ..self }
    }

    /// Enables or disables kernels whose blocks wait for each other. Without them, there is a launch before and one after each such barrier. The
    /// default is on. A card without cooperative launches always has the latter.
    pub fn with_grid_barriers(self, barriers: bool) -> Cuda {
        Cuda { card: Card { barriers, ..self.card }, ..self }
    }

    /// Returns this card with algorithms of cuBLASLt and cuDNN chosen by their measured time: autotuning.
    ///
    /// When a network is loaded, up to eight of the algorithms that the library ranks highest for each product and convolution run in the network's
    /// own memory; no memory is added for them. PyTorch has it as `torch.backends.cudnn.benchmark`; here it covers products too, and on Hopper
    /// [attention of gpumem's own kernels](Cuda::with_wgmma).
    ///
    /// By default the library's ranking decides. The network then gets the same algorithms, and the same bits, each time that it is loaded.
    /// Networks that are `deterministic` always use the ranking. Autotuning makes loading take seconds longer. Kernels that lose stay on the card
    /// with those that win, so the libraries take more of its memory.
    pub fn with_autotuning(self, autotune: bool) -> Cuda {
        Cuda { card: Card { autotune, ..self.card }, ..self }
    }

    /// Returns this card with attention on Hopper's warpgroup instructions wherever gpumem's kernel supports the heads, or nowhere.
    ///
    /// By default they are a candidate of [autotuning](Cuda::with_autotuning), and run only if they are faster there.
    ///
    /// The kernel is for compute capability 9.0: attention in 16 bits with heads of 64 or 128 elements, causal or not, that cuDNN does not compute,
    /// without a bias, a window, lengths and dropout. When a network is loaded, its results are compared with those of the kernel that every card
    /// runs, within what roundings explain. If they differ, a notice says so, and no network of the process has it any more.
    pub fn with_wgmma(self, wgmma: bool) -> Cuda {
        let warpgroups = if wgmma { Warpgroups::Always } else { Warpgroups::Never };
        Cuda { card: Card { warpgroups, ..self.card }, ..self }
    }

    /// Returns the card's name.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver does not answer.
    pub fn name(&self) -> Result<String, Error> {
        self.card.name()
    }

    /// Returns the card's compute capability: its major and its minor number.
    pub fn capability(&self) -> (i32, i32) {
        self.card.capability
    }

    /// Returns the free and the total memory of the card in bytes.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver does not answer.
    pub fn memory(&self) -> Result<(u64, u64), Error> {
        self.card.memory()
    }

    /// Returns the bytes of device memory that this process's context took, made with the smallest limits. `None` if NVML is missing, or if the
    /// context existed before.
    pub fn context_bytes(&self) -> Option<u64> {
        self.context.map(|context| context.bytes)
    }

    /// Checks that the bytes a network needs are free.
    fn has_room(&self, arena: u64, beside: Beside) -> Result<(), Error> {
        let (free, _) = self.memory()?;
        let needed = arena.saturating_add(beside.bytes());
        if free >= needed { Ok(()) } else { Err(self.card.shortage(needed, Some(beside))) }
    }

    /// Loads a network. Also returns the bytes that it took, if it is the first network of this process and no other process used the card
    /// meanwhile.
    pub(crate) fn load_measured(&self, job: Job) -> Result<(Session, Option<Stages>), Error> {
        check_ranks(&job, self.ranks.as_ref().map_or(1, |ranks| ranks.place.count()))?;
        let Some(group) = self.communicator(&job)? else { return self.load_alone(job) };
        // The library's memory would be taken for that of the network, so nothing is recorded.
        self.card.is_new.store(false, Ordering::Relaxed);
        group.watched(|| {
            agreement::agree(&facts(&job, self.card.capability), |own| group.all_words(own))?;
            let communication = ranks_of(&job).communication(self.row()?);
            let beside = beside(None, job.reserve, self.context.map(|context| context.bytes), 0);
            group
                .agree(self.has_room(job.arena.saturating_add(communication), beside), "has too little free memory")?;
            let mut meter = Meter::start(&self.card)?;
            Ok((Session::new(&self.card, job, &mut meter, Some((group.clone(), communication)))?, None))
        })
    }

    /// Loads a network without other ranks.
    fn load_alone(&self, job: Job) -> Result<(Session, Option<Stages>), Error> {
        let records = Records::of(&self.card)?;
        let (name, arena) = (network(&job, &self.card), job.arena);
        let record = records.get();
        let seen = [self.context, record.context].into_iter().flatten().map(|context| context.bytes).min();
        // This process's context may have other limits, set elsewhere. The smallest context leaves most of the reserve to be taken, so count that
        // one.
        let context = self.context.and(seen);
        let taken = self.card.taken.load(Ordering::Relaxed);
        let beside = beside(record.of(&name), job.reserve, context, taken);
        self.has_room(arena, beside)?;
        // The libraries load once for the first network; later networks would seem to take less.
        let is_first = self.card.is_new.swap(false, Ordering::Relaxed);
        let mut meter = Meter::start(&self.card)?;
        match Session::new(&self.card, job, &mut meter, None) {
            Ok(session) => {
                let stages = if is_first { meter.stages(arena) } else { None };
                if let Some(stages) = stages {
                    self.card.taken.store(stages.beside(), Ordering::Relaxed);
                    // Without graphs the network took less than it will with them.
                    if session.has_graphs() {
                        records.update(|record| record.add(&name, stages));
                    }
                }
                Ok((session, stages))
            }
            Err(error) => {
                // The figure may have been too small, so it must not be used again.
                if matches!(beside, Beside::Measured(_)) {
                    records.update(|record| record.forget(&name));
                }
                Err(error)
            }
        }
    }
}

/// Returns the bytes that a network is still to take outside its arena.
///
/// They are measured, if the network was loaded before. Otherwise they are the reserve less the context, which exists already, and less the bytes
/// that the first network of this process took: all networks share one reserve. If the context could not be measured, it counts as the whole
/// reserve: by the rule, a network that fits is never refused.
fn beside(measured: Option<Stages>, reserve: u64, context: Option<u64>, taken: u64) -> Beside {
    let rule = context.map(|context| reserve.saturating_sub(context.saturating_add(taken)));
    match (measured, rule) {
        // The measured bytes include what the libraries load once.
        (Some(stages), Some(rule)) if taken > 0 && rule < stages.beside() => Beside::Rule(rule),
        (Some(stages), _) => Beside::Measured(stages.beside()),
        (None, Some(rule)) => Beside::Rule(rule),
        (None, None) => Beside::NotCounted,
    }
}

fn no_such_card(ordinal: usize, count: c_int, visible: Option<String>) -> String {
    let cards = if count == 1 { "1 card" } else { &format!("{count} cards") };
    let hidden = visible.map_or_else(String::new, |visible| {
        format!("; CUDA_VISIBLE_DEVICES is `{visible}`, and what it leaves out is not counted")
    });
    format!("there is no card number {ordinal}; CUDA sees {cards}, counted from 0{hidden}")
}

fn attribute(card: CUdevice, attribute: CUdevice_attribute, doing: &'static str) -> Result<c_int, Error> {
    // SAFETY: the driver is initialised and returned this device.
    unsafe { result::device::get_attribute(card, attribute) }.map_err(failure(doing))
}

fn capability_of(card: CUdevice) -> Result<(i32, i32), Error> {
    let capability = |name| attribute(card, name, "asking for the compute capability");
    Ok((
        capability(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        capability(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    ))
}

/// Returns the card's multiprocessors; 0 if it does not take cooperative launches, which a grid barrier needs.
fn multiprocessors_of(card: CUdevice) -> Result<u32, Error> {
    let doing = "asking for the number of multiprocessors";
    if attribute(card, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, doing)? == 0 {
        return Ok(0);
    }
    let count = attribute(card, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, doing)?;
    Ok(u32::try_from(count).unwrap_or(0))
}

fn maps_host_memory(card: CUdevice) -> Result<bool, Error> {
    let maps = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY;
    Ok(attribute(card, maps, "asking whether memory of the host can be mapped")? != 0)
}

/// A card's context.
struct Opened {
    context: Arc<CudaContext>,
    bytes: Option<ContextBytes>,
    /// True if the context was made by this call.
    is_new: bool,
    /// The driver's version; `None` if NVML does not report it.
    driver: Option<String>,
}

/// Makes the card's context with the smallest limits, and measures its memory if it is made here. For a context that this process made before,
/// returns the earlier measurement; other users may need its limits, so they stay.
fn open_context(ordinal: usize, card: CUdevice, uuid: Option<[u8; 16]>) -> Result<Opened, Error> {
    static MEASURED: Mutex<BTreeMap<[u8; 16], ContextBytes>> = Mutex::new(BTreeMap::new());
    // Held until the context exists, so that two threads do not measure each other's.
    let mut measured = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_new = !is_active(card);
    let nvml = Nvml::open();
    let driver = nvml.as_ref().and_then(Nvml::driver);
    let usage = || {
        let card = nvml.as_ref().and_then(|nvml| nvml.card(uuid?));
        card.map(|card| Usage { own: card.own(), all: card.used() }).unwrap_or_default()
    };
    let before = usage();
    let context = CudaContext::new(ordinal).map_err(|error| match error.0 {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
            let (needed, holders) = (SMALLEST_CONTEXT, holders(uuid));
            Error::Memory { device: "CUDA", needed, beside: None, lasting: 0, free: None, holders }
        }
        _ => failure("opening the card")(error),
    })?;
    if is_new {
        let made = usage().since(before);
        bind(&context)?;
        lower_limits();
        if let (Some(uuid), Some(made), Some(bytes)) = (uuid, made, usage().since(before)) {
            measured.insert(uuid, ContextBytes { bytes, given_back: made.saturating_sub(bytes) });
        }
    }
    let bytes = uuid.and_then(|uuid| measured.get(&uuid).copied());
    Ok(Opened { context, bytes, is_new, driver })
}

/// Bytes in use on a card; `None` if NVML does not report them.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    /// Bytes of this process.
    own: Option<u64>,
    /// Bytes of all processes together.
    all: Option<u64>,
}

impl Usage {
    /// Returns the bytes added since `before`. Prefers this process's own bytes, if NVML lists them, since they exclude those of other processes.
    fn since(self, before: Usage) -> Option<u64> {
        match self.own {
            Some(own) => Some(own.saturating_sub(before.own.unwrap_or(0))),
            None => Some(self.all?.saturating_sub(before.all?)),
        }
    }
}

/// True if this process already has the card's primary context, or if the driver does not answer.
fn is_active(card: CUdevice) -> bool {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: both are valid places for the integers that are written; the driver is initialised and returned this device.
    let code = unsafe { cudarc::driver::sys::cuDevicePrimaryCtxGetState(card, &mut flags, &mut active) };
    // If the state is unknown, the context is not measured.
    code != CUresult::CUDA_SUCCESS || active != 0
}

impl Device for Cuda {
    type Runner = Session;

    fn load(&self, job: Job) -> Result<Session, Error> {
        self.load_measured(job).map(|(session, _)| session)
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
        assert_eq!(beside(None, 512 * MIB, Some(428 * MIB), 0), Beside::Rule(84 * MIB));
        assert_eq!(beside(None, 512 * MIB, Some(600 * MIB), 0), Beside::Rule(0));
        assert_eq!(beside(None, 512 * MIB, None, 0), Beside::NotCounted);
        // All networks of a process share one reserve.
        assert_eq!(beside(None, 512 * MIB, Some(428 * MIB), 50 * MIB), Beside::Rule(34 * MIB));
        assert_eq!(beside(None, 512 * MIB, Some(428 * MIB), 90 * MIB), Beside::Rule(0));
    }

    #[test]
    fn a_measured_figure_takes_the_place_of_the_rule() {
        let stages = Stages { arena: 100, handles: 20, trials: 7, modules: 3, graphs: 1, process: None };
        assert_eq!(beside(Some(stages), 512, Some(428), 0), Beside::Measured(31));
        assert_eq!(beside(Some(stages), 0, None, 0), Beside::Measured(31));
        // The rule applies if another network has already taken what both need once.
        assert_eq!(beside(Some(stages), 512, Some(428), 60), Beside::Rule(24));
        assert_eq!(beside(Some(stages), 512, Some(428), 40), Beside::Measured(31));
    }

    #[test]
    fn a_context_is_measured_without_neighbours_where_that_is_possible() {
        let usage = |own, all| Usage { own, all };
        assert_eq!(usage(Some(400), Some(9000)).since(usage(None, Some(8000))), Some(400));
        assert_eq!(usage(Some(400), Some(9000)).since(usage(Some(100), Some(8000))), Some(300));
        assert_eq!(usage(None, Some(9000)).since(usage(None, Some(8000))), Some(1000));
        assert_eq!(usage(None, Some(7000)).since(usage(None, Some(8000))), Some(0));
        assert_eq!(usage(None, None).since(usage(None, Some(8000))), None);
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
