//! The interface of a backend: the job that it gets, and the methods that it implements.

use crate::error::Error;
use crate::memory::place::Placed;
use crate::number::Precision;
use crate::operation::Operations;
use crate::program::TensorId;
use crate::train::optim::Optimizer;
use alloc::vec;
use alloc::vec::Vec;

/// Everything that a backend needs to run a network.
#[derive(Clone, Debug)]
pub struct Job {
    /// The network's name, for messages.
    pub name: &'static str,
    /// Size of the arena in bytes.
    pub arena: u64,
    /// Bytes that context, modules and library handles take on the device besides the arena, by the budget.
    pub reserve: u64,
    /// Samples that are in the arena at once: those of a step, or of a micro-batch.
    pub batch: u64,
    /// The number format.
    pub precision: Precision,
    /// The training step. `None` if the network is not trained.
    pub train: Option<Placed>,
    /// The loss of the training step without its update, in the step's part of the arena. `None` without a training step.
    pub evaluation: Option<Placed>,
    /// The other training steps of a network with several. Tensors that last have equal offsets in all of them.
    pub others: Vec<OtherStep>,
    /// The forward pass. Its parameters and buffers have the offsets of the training step's.
    pub infer: Placed,
    /// A further forward pass with a batch of its own, over the same parameters. `None` if it was not asked for.
    pub served: Option<Served>,
    /// The optimizer with its hyperparameters.
    pub optimizer: Optimizer,
    /// True if f32 products may run in TensorFloat-32.
    pub tf32: bool,
    /// True if every run must give the same bits. A device whose algorithms are all deterministic may ignore it.
    pub deterministic: bool,
    /// A digest of all settings of `TRAIN`, which [ranks compare](Job::facts). 0 for a job that was made without them.
    pub settings: u64,
    /// The functions of the operations that the user declared.
    pub operations: &'static Operations,
}

impl Job {
    /// Returns the training steps in order; none for a network without training.
    pub fn trainings(&self) -> impl Iterator<Item = &Placed> {
        self.train.iter().chain(self.others.iter().map(|other| &other.train))
    }
}

/// A training step after the first one: see [`Job::others`].
#[derive(Clone, Debug)]
pub struct OtherStep {
    /// The name of its constant, for messages.
    pub name: &'static str,
    /// Samples that are in the arena at once.
    pub batch: u64,
    /// The step.
    pub train: Placed,
    /// Its loss without the update, in the step's part of the arena.
    pub evaluation: Placed,
    /// The optimizer with its hyperparameters.
    pub optimizer: Optimizer,
    /// True if f32 products may run in TensorFloat-32.
    pub tf32: bool,
}

/// A forward pass in addition to the training step: see [`Job::served`].
#[derive(Clone, Debug)]
pub struct Served {
    /// The program, in the training step's arena.
    pub placed: Placed,
    /// Samples in a pass.
    pub batch: u64,
}

/// Something that networks run on.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no device that networks run on",
    label = "open one, as `let device = gpumem::default_device()?;`"
)]
pub trait Device {
    /// A network loaded onto this device.
    type Runner: Runner;

    /// Allocates the arena and prepares the programs. The arena's contents are undefined.
    ///
    /// # Errors
    /// A precision or a program that the device cannot run, or too little memory.
    fn load(&self, job: Job) -> Result<Self::Runner, Error>;

    /// Returns the precision in which a network that is meant for `wanted` runs on this device. It is `wanted`, unless the device was asked
    /// to emulate another device.
    fn precision(&self, wanted: Precision) -> Precision {
        wanted
    }
}

/// The first numbers of a step that are not finite: the index of the operation that wrote them, and the tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inspected {
    /// The first NaN.
    pub nan: Option<(usize, TensorId)>,
    /// The first infinity.
    pub infinite: Option<(usize, TensorId)>,
}

/// A fact about a network that must be equal on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The name of the fact, to be read after *its*.
    pub name: &'static str,
    /// A digest of what it says.
    pub digest: u64,
}

/// A function that fills a slice with a tensor's bytes, from a given byte on. It is called for all bytes at once, or for pieces that begin
/// at multiples of 64.
pub type Fill<'a> = dyn Fn(usize, &mut [u8]) + Sync + 'a;

/// A network loaded onto a device: an arena and the programs that run in it.
pub trait Runner {
    /// Copies `bytes` into the arena at byte `offset`, or into host memory if `offset` is a [place there](crate::memory::place::HOST).
    ///
    /// # Errors
    /// A range outside the arena.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error>;

    /// Selects the training step for all later calls: 0 for [`Job::train`], and from 1 on those of [`Job::others`].
    ///
    /// # Errors
    /// A step that was not loaded.
    fn select(&mut self, step: usize) -> Result<(), Error> {
        if step == 0 { Ok(()) } else { Err(Error::Damaged("no further training step was loaded")) }
    }

    /// Gives the next training step an input or target of `length` bytes at byte `offset`. `put` writes them to a staging buffer of the
    /// device, perhaps in several threads. They may be copied to the arena while an earlier step runs. A caller that feeds one tensor of a
    /// step must feed all of them.
    ///
    /// # Errors
    /// A range outside the arena, or invalid data such as a label beyond the last class.
    fn feed_with(&mut self, offset: u64, length: usize, put: &Fill<'_>) -> Result<(), Error> {
        let mut bytes = vec![0; length];
        put(0, &mut bytes);
        self.write(offset, &bytes)
    }

    /// Gives the next training step an input or target. Unlike [`Runner::feed_with`], takes bytes that exist already.
    ///
    /// # Errors
    /// As for [`Runner::feed_with`].
    fn feed(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.feed_with(offset, bytes.len(), &|first, to| to.copy_from_slice(&bytes[first..first + to.len()]))
    }

    /// Returns the loss of the last training step, which is at byte `offset`, as soon as it is known.
    ///
    /// # Errors
    /// A failure of the device.
    fn loss(&mut self, offset: u64) -> Result<f32, Error> {
        let mut loss = [0; 4];
        self.read(offset, &mut loss)?;
        Ok(f32::from_le_bytes(loss))
    }

    /// Waits for all work that was started, and copies bytes out of the arena at byte `offset`, or out of host memory.
    ///
    /// # Errors
    /// A range outside the arena, or a failure of earlier work.
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), Error>;

    /// Runs a training step on a micro-batch that is not the last one, without updates. Micro-batch `part`, counted from 0, is in the
    /// arena. Gradients and losses are added up from micro-batch 0 on; [`Runner::train`] runs the last one.
    ///
    /// # Errors
    /// As for [`Runner::train`], or a network whose batch is not split. After an error, the next step begins with its first micro-batch.
    fn accumulate(&mut self, part: u64) -> Result<(), Error> {
        let _ = part;
        Err(Error::Damaged("this device splits no batch"))
    }

    /// Runs one training step on the input and target in the arena. If the batch is split, these are the last micro-batch.
    ///
    /// # Errors
    /// A network without training, or invalid data such as a label beyond the last class.
    fn train(&mut self) -> Result<(), Error>;

    /// Runs a micro-batch, and checks the results of each operation before the next one runs. `part` is the argument of
    /// [`Runner::accumulate`], or `None` for [`Runner::train`].
    ///
    /// # Errors
    /// As for these two, or a device that cannot do it.
    fn inspect(&mut self, part: Option<u64>) -> Result<Inspected, Error> {
        let _ = part;
        let what =
            "it cannot look into a step; run the network on `Cpu::new()` to find the first number that is not finite"
                .into();
        Err(Error::Unsupported { device: "this device", what })
    }

    /// Computes the loss of the input and target in the arena in evaluation mode, and changes no tensor that lasts. If the batch is split,
    /// it is the micro-batch's share of the whole loss.
    ///
    /// # Errors
    /// A network without training, or invalid data such as a label beyond the last class.
    fn evaluate(&mut self) -> Result<(), Error>;

    /// Runs one forward pass on the input in the arena.
    ///
    /// # Errors
    /// Invalid data such as a token beyond the table.
    fn infer(&mut self) -> Result<(), Error>;

    /// Runs one forward pass of [`Job::served`] on its input in the arena.
    ///
    /// # Errors
    /// As for [`Runner::infer`], or if there is no such pass.
    fn serve(&mut self) -> Result<(), Error> {
        Err(Error::Damaged("no further forward pass was loaded"))
    }

    /// Returns the number of this rank, from 0, and that of all ranks. A device without other ranks is the only one.
    fn rank(&self) -> [u64; 2] {
        [0, 1]
    }

    /// Returns true on all ranks if `condition` is true on one of them. All ranks call it.
    ///
    /// # Errors
    /// A failure of the exchange.
    fn any_rank(&mut self, condition: bool) -> Result<bool, Error> {
        Ok(condition)
    }

    /// Changes the optimizer's hyperparameters from the next step on.
    ///
    /// # Errors
    /// A failure of the device.
    fn set_optimizer(&mut self, optimizer: Optimizer) -> Result<(), Error>;
}
