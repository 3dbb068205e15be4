//! The CPU backend of gpumem: walks a planned program in one host arena.
//!
//! [`Cpu`] is a [`Device`]. Loading a [`Job`] allocates the arena, checks both programs against it and binds every
//! operation to its tensors; what is left at run time is a list of calls. The results are the reference for the other
//! backends, and on one machine they depend on the seed only: every reduction is cut at places that the shapes decide, never the number
//! of threads. On another machine products and elementary functions may round in another way.
//!
//! | layer of this crate | what it does |
//! | --- | --- |
//! | `arena` | the one allocation, and the only way to bytes in it |
//! | `operands` | checks an operation's tensors once and hands out slices that cannot overlap |
//! | `matrix`, `parallel` | products on top of `gemm-f32`, reductions on top of `rayon`, both with fixed cuts |
//! | `simd` | the widest instructions that the machine has, chosen at run time |
//! | `kernels` | one operation a file, forward and backward side by side |
//! | `load`, `session` | a program becomes a list of kernels; the list is run |
//!
//! # Example
//!
//! A program of one operation, `y = max(x, 0)` for four numbers, at the level at which the generated code works:
//!
//! ```
//! use gpumem_core::memory::place::Placed;
//! use gpumem_core::operation::Operations;
//! use gpumem_core::program::function::Function;
//! use gpumem_core::program::ops::Pointwise;
//! use gpumem_core::program::{
//!     Action, Class, Init, Layout, Op, Operand, Operation, Part, Pass, Program, Slot, Tensor,
//! };
//! use gpumem_core::run::device::{Device, Job, Runner};
//! use gpumem_core::shape::Shape;
//! use gpumem_core::train::optim::{Optimizer, Sgd};
//! use gpumem_core::{Precision, Role};
//! use gpumem_cpu::Cpu;
//!
//! let shape = Shape::new(&[2]);
//! let tensor = |class, part| Tensor {
//!     class, role: Role::Activation, part, name: String::new(), row: 0, shape, batched: true, once: 0,
//!     layout: Layout::DENSE, pitch: 0, trained: false, init: Init::Constant(0.0), first: 0, last: 0,
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
//!     tf32: false, deterministic: false, operations: &Operations::NONE,
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
//! # Outside the arena
//!
//! Unfolded images and packed blocks of matrix products live in buffers of the host that grow to the largest operation
//! and are reused from step to step; so do the samples of small maps that make one product (4 MiB unfolded, and what goes
//! into and comes out of it), partial sums of convolution weight gradients (16 MiB at most, or one copy of the weight), a gradient that
//! is clipped, a slice and the weight of a convolution of volumes, and with `emulate()` the tensors of an operation whose channels lie last.
//! A GPU's budget counts such workspaces; the host's memory is not what this library budgets.

mod arena;
mod kernels;
mod load;
mod matrix;
mod notice;
mod operands;
mod parallel;
mod session;
mod simd;
mod staging;

pub use session::Session;

use gpumem_core::Precision;
use gpumem_core::error::Error;
use gpumem_core::run::device::{Device, Job};
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::sync::Arc;

/// How messages call this device.
const DEVICE: &str = "the CPU";

/// The CPU as a device.
#[derive(Clone, Debug)]
pub struct Cpu {
    pool: Option<Arc<ThreadPool>>,
    poison: bool,
    emulates: bool,
}

impl Cpu {
    /// All cores, through rayon's global pool.
    pub fn new() -> Cpu {
        Cpu { pool: None, poison: cfg!(debug_assertions), emulates: false }
    }

    /// A pool of `threads` threads of its own. The results do not depend on their number.
    ///
    /// # Errors
    /// Threads that the system does not grant, and none at all.
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

    /// Whether memory is filled with NaN before a tensor's life begins and after it ends, so that a tensor that is read
    /// outside its planned lifetime shows in the results. On by default in builds with debug assertions.
    pub fn with_poison(self, poison: bool) -> Cpu {
        Cpu { poison, ..self }
    }

    /// The CPU in place of a card: a network that is aimed at 16 bits runs here in f32, so that a machine without a card can test
    /// it. The program and the order of its tensors in memory are the same, in an arena of twice the size; what rounding to 16
    /// bits does to the results is not shown. Without this, such a network is refused.
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
        Session::new(job, self.pool.clone(), self.poison)
    }

    fn precision(&self, aimed: Precision) -> Precision {
        if self.emulates { Precision::F32 } else { aimed }
    }
}
