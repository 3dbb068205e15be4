//! The CPU backend of gpumem. It runs a planned program in one arena in host memory.
//!
//! [`Cpu`] is a [`Device`]. Loading a [`Job`] allocates the arena, checks all programs against it and binds each operation to its tensors.
//! At run time, only a list of calls is left. The results are the reference for the other backends. On one machine they depend on the seed
//! only: each reduction is split at points that the shapes determine, never the number of threads. On another machine, products and
//! elementary functions may round differently.
//!
//! | layer of this crate | what it does |
//! | --- | --- |
//! | `arena` | owns the one allocation and gives the only access to its bytes |
//! | `operands` | checks an operation's tensors once and returns slices that cannot overlap |
//! | `matrix`, `parallel` | compute products with the kernels of `gemm-f32`, and reductions with `rayon`; bits do not depend on the threads |
//! | `simd` | selects the widest vector instructions of the machine at run time |
//! | `kernels` | implement one operation per file, forward and backward |
//! | `load`, `session` | turn a program into a list of kernels, and run that list |
//!
//! # Example
//!
//! A program of one operation, `y = max(x, 0)` for four numbers, on the level of the generated code:
//!
//! ```
//! use gpumem_core::memory::place::Placed;
//! use gpumem_core::operation::Operations;
//! use gpumem_core::program::functions::Function;
//! use gpumem_core::program::ops::Pointwise;
//! use gpumem_core::program::{
//!     Action, Class, Init, Layout, Op, Operand, Operation, Part, Pass, Program, Slot, Tensor,
//! };
//! use gpumem_core::run::device::{Device, Job, Runner};
//! use gpumem_core::shape::Shape;
//! use gpumem_core::train::optim::{Optimizer, Sgd};
//! use gpumem_core::train::ranks::Sharding;
//! use gpumem_core::{Precision, Role};
//! use gpumem_cpu::Cpu;
//!
//! let shape = Shape::new(&[2]);
//! let tensor = |class, part| Tensor {
//!     class, role: Role::Activation, part, name: String::new(), row: 0, shape, batched: true, once: 0,
//!     layout: Layout::DENSE, pitch: 0, sharding: Sharding::Replicated, trained: false, init: Init::Constant(0.0), first: 0, last: 0,
//! };
//! let relu = Op::from(Pointwise { function: Function::Relu, arguments: vec![], shape });
//! let program = Program {
//!     training: false, moments: 0, holds_gradients: false, descent: gpumem_core::train::Descent::PLAIN,
//!     tensors: vec![tensor(Class::Input, Part::Output), tensor(Class::Transient, Part::Output)],
//!     operations: vec![Operation {
//!         action: Action::Run { op: relu, pass: Pass::Forward }, row: 0, accumulate: false,
//!         reads: vec![Operand { slot: Slot::Input(0), tensor: 0 }],
//!         writes: vec![Operand { slot: Slot::Output, tensor: 1 }],
//!     }],
//!     paths: vec!["relu".into()], results: vec![1],
//! };
//! let job = Job {
//!     name: "Positive", arena: 512, reserve: 0, batch: 2, precision: Precision::F32, train: None, evaluation: None,
//!     served: None,
//!     others: vec![], infer: Placed::new(program, vec![0, 256], 2, Precision::F32),
//!     optimizer: Optimizer::Sgd(Sgd::DEFAULT),
//!     tf32: false, deterministic: false, settings: 0, operations: &Operations::NONE,
//! };
//!
//! let mut session = Cpu::new().load(job)?;
//! let bytes: Vec<u8> = [-1.0f32, 2.0, -3.0, 4.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
//! session.write(0, &bytes)?;
//! session.infer()?;
//! let mut last = [0; 4];
//! session.read(256 + 12, &mut last)?;
//! assert_eq!(f32::from_ne_bytes(last), 4.0);
//! # Ok::<(), gpumem_core::error::Error>(())
//! ```
//!
//! # Memory outside the arena
//!
//! These values are in host buffers, which grow to the largest operation and are reused from step to step. After the first steps, a step
//! allocates nothing, but for the queue of `rayon` (1.5 KiB for every 63 steps on one thread), and for operations that the user declared:
//!
//! * blocks of images with their padding (512 KiB a thread, or what 192 positions need), or unfolded ones, and packed blocks of products;
//! * packed copies of the weights of `Linear` layers, which inference keeps from run to run until a weight changes (256 MiB at most for a program);
//! * the turned weight of a convolution, for its gradient, and what positions of up to 64 channels contribute to that of the weight;
//! * samples of small maps that form one product (4 MiB unfolded, plus the product's input and output);
//! * partial sums of convolution weight gradients (16 MiB at most, or one copy of the weight);
//! * a clipped gradient, and a slice and the weight of a convolution of volumes;
//! * with `emulate()`, the tensors of an operation in channels-last layout.
//!
//! A GPU's budget counts such workspaces. The host's memory is not what this library budgets.

mod arena;
mod element;
mod kernels;
mod load;
mod math;
mod matrix;
mod notice;
mod operands;
mod packed;
mod parallel;
mod ranks;
mod session;
mod simd;
mod staging;

#[doc(hidden)]
pub use kernels::optimizer::corrections;
pub use session::Session;

use gpumem_core::Precision;
use gpumem_core::error::Error;
use gpumem_core::run::device::{Device, Job};
use gpumem_core::run::ranks::Ranks;
use ranks::Peers;
use ranks::local::Hub;
#[cfg(feature = "mpi")]
use ranks::mpi::World;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The name of this device in messages.
const DEVICE: &str = "the CPU";

/// The CPU as a device.
#[derive(Clone, Debug)]
pub struct Cpu {
    pool: Option<Arc<ThreadPool>>,
    poison: bool,
    emulates: bool,
    rank: Option<Rank>,
}

/// The place of a device among ranks.
#[derive(Clone, Debug)]
struct Rank {
    others: Others,
    /// True if exchanges take place when they are awaited, not when they start.
    is_late: bool,
}

/// The other ranks of a device.
#[derive(Clone, Debug)]
enum Others {
    /// In threads of this process.
    Threads {
        hub: Arc<Hub>,
        number: usize,
        /// The number of networks that were loaded for training.
        loaded: Arc<AtomicUsize>,
    },
    /// In processes of their own.
    #[cfg(feature = "mpi")]
    Processes(Arc<World>),
}

impl Others {
    /// Returns the other ranks of the next network that is loaded for training.
    fn join(&self) -> Result<Arc<dyn Peers>, Error> {
        match self {
            Others::Threads { hub, number, loaded } => {
                Ok(Arc::new(hub.join(*number, loaded.fetch_add(1, Ordering::Relaxed))))
            }
            #[cfg(feature = "mpi")]
            Others::Processes(world) => Ok(Arc::new(world.join()?)),
        }
    }
}

impl Cpu {
    /// Returns a device that uses all cores, through rayon's global pool.
    pub fn new() -> Cpu {
        Cpu { pool: None, poison: cfg!(debug_assertions), emulates: false, rank: None }
    }

    /// Returns a device with its own pool of `threads` threads. The results do not depend on their number.
    ///
    /// # Errors
    /// Returns an error for 0 threads, or if the system refuses to start the threads.
    pub fn with_threads(threads: usize) -> Result<Cpu, Error> {
        if threads == 0 {
            let what = "nothing runs on 0 threads; use 1 or more, or Cpu::new()".into();
            return Err(Error::Unsupported { device: DEVICE, what });
        }
        let pool = ThreadPoolBuilder::new().num_threads(threads).build().map_err(|cause| Error::Unsupported {
            device: DEVICE,
            what: format!("{threads} threads cannot be started ({cause}); use fewer, or Cpu::new()"),
        })?;
        Ok(Cpu { pool: Some(Arc::new(pool)), ..Cpu::new() })
    }

    /// Returns a device for each of `count` ranks, which share the steps of a network with `ranks` in `TRAIN`. Each is used by a thread of its own,
    /// has its part of the cores, and loads the same networks for training in the same order. [`Ranks::in_process`] has their numbers.
    ///
    /// All ranks make the same calls in the same order: a step, a loss, a read of the training state. A rank that has an error, or whose network
    /// is dropped, ends the steps of all with [`Error::Ranks`]. `GPUMEM_RANKS_TIMEOUT` sets the seconds that a rank waits for the others: 600 if
    /// it is not set.
    ///
    /// # Errors
    /// No ranks, threads that the system refuses to start, or a time that is no number.
    pub fn ranks(count: usize) -> Result<Vec<Cpu>, Error> {
        if count == 0 {
            let what = "there is at least 1 rank; write how many, as Cpu::ranks(2)".into();
            return Err(Error::Unsupported { device: DEVICE, what });
        }
        let threads = std::thread::available_parallelism().map_or(1, usize::from) / count;
        let hub = Arc::new(Hub::new(count, ranks::timeout()?));
        let rank = |number| {
            let others = Others::Threads { hub: hub.clone(), number, loaded: Arc::default() };
            Ok(Cpu { rank: Some(Rank { others, is_late: false }), ..Cpu::with_threads(threads.max(1))? })
        };
        (0..count).map(rank).collect()
    }

    /// Returns the device of this process among `ranks`, which a launcher started: `Cpu::on(&Ranks::from_environment()?)`. For one rank it is
    /// [`Cpu::new`]. Several exchange messages of MPI, which needs the feature `mpi`.
    ///
    /// All ranks open it at the beginning, and make the same calls in the same order, as those of [`Cpu::ranks`] do. Each has its part of the
    /// machine's cores, unless `RAYON_NUM_THREADS` is set. When the last device and the last network on it are dropped, a rank waits until all
    /// ranks have come as far, as the end of a program of MPI does.
    ///
    /// # Errors
    /// Several ranks without the feature `mpi`, an MPI that counts other ranks than the environment, or one that cannot be called from several
    /// threads.
    pub fn on(ranks: &Ranks) -> Result<Cpu, Error> {
        if ranks.is_alone() {
            return Ok(Cpu::new());
        }
        #[cfg(feature = "mpi")]
        {
            let others = Others::Processes(World::open(ranks)?);
            let threads = std::thread::available_parallelism().map_or(1, usize::from) / ranks.local_count() as usize;
            let device = match std::env::var_os("RAYON_NUM_THREADS") {
                Some(_) => Cpu::new(),
                None => Cpu::with_threads(threads.max(1))?,
            };
            Ok(Cpu { rank: Some(Rank { others, is_late: false }), ..device })
        }
        #[cfg(not(feature = "mpi"))]
        {
            let count = ranks.count();
            let what = format!(
                "{count} ranks were started, and this program was built without MPI; build it with `--features mpi`, or run all ranks in one \
                 process with `Cpu::ranks({count})`"
            );
            Err(Error::Unsupported { device: DEVICE, what })
        }
    }

    /// Lets exchanges between ranks take place when they are awaited, not when they start. The results are equal to the bit.
    #[doc(hidden)]
    pub fn with_late_exchanges(mut self) -> Cpu {
        self.rank.iter_mut().for_each(|rank| rank.is_late = true);
        self
    }

    /// Enables or disables poisoning: memory is filled with NaN before a tensor's lifetime begins and after it ends. A tensor that is read outside
    /// its planned lifetime then shows in the results. The default is on in builds with debug assertions.
    pub fn with_poison(self, poison: bool) -> Cpu {
        Cpu { poison, ..self }
    }

    /// Lets the CPU stand in for a card: a network for 16-bit precision runs in f32, so that a machine without a card can test it. The program and
    /// the order of its tensors in memory are the same, in an arena of twice the size. The effect of rounding to 16 bits does not show.
    /// Without this setting, such a network is refused.
    pub fn emulate(self) -> Cpu {
        Cpu { emulates: true, ..self }
    }
}

impl Default for Cpu {
    fn default() -> Cpu {
        Cpu::new()
    }
}

impl Device for Cpu {
    type Runner = Session;

    fn load(&self, job: Job) -> Result<Session, Error> {
        // A network without training exchanges nothing, and one rank may load it alone.
        let rank = self.rank.as_ref().filter(|_| job.train.is_some());
        let group = rank.map(|Rank { others, is_late }| Ok((others.join()?, *is_late))).transpose()?;
        let peers = group.as_ref().map(|(peers, _)| peers.clone());
        let facts = peers.as_ref().map(|_| job.facts());
        // The other ranks need not wait for a network that is not loaded here.
        let session = Session::new(job, self.pool.clone(), self.poison, group);
        let session = session.inspect_err(|error| {
            peers.iter().for_each(|it| it.leave(&format!("could not load its network: {error}")));
        })?;
        peers.iter().zip(&facts).try_for_each(|(peers, facts)| ranks::compare(&**peers, facts))?;
        Ok(session)
    }

    fn precision(&self, aimed: Precision) -> Precision {
        if self.emulates { Precision::F32 } else { aimed }
    }
}
