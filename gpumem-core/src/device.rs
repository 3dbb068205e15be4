//! What a backend is given and what it must do.

use crate::error::Error;
use crate::optim::Optimizer;
use crate::program::{Program, Tensor};
use crate::role::Precision;
use alloc::vec::Vec;

/// A program with a place in the arena for each of its tensors.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The program.
    pub program: Program,
    /// Byte offset of each tensor in the arena, a multiple of 256.
    pub offsets: Vec<u64>,
    /// Bytes of each tensor, without padding.
    pub bytes: Vec<u64>,
    /// Byte offset of the f32 master copy of each tensor that has one.
    pub masters: Vec<Option<u64>>,
}

impl Placed {
    /// Tensors at these offsets, with whole workspaces and without master copies.
    pub fn new(program: Program, offsets: Vec<u64>, batch: u64, precision: Precision) -> Placed {
        let size = |tensor: &Tensor| tensor.elements(batch)?.checked_mul(tensor.role.bytes(precision));
        // What cannot be counted is larger than any arena.
        let bytes = program.tensors.iter().map(|tensor| size(tensor).unwrap_or(u64::MAX)).collect();
        let masters = alloc::vec![None; program.tensors.len()];
        Placed { program, offsets, bytes, masters }
    }
}

/// Everything a backend needs to run a network.
#[derive(Clone, Debug)]
pub struct Job {
    /// The network's name, for messages.
    pub name: &'static str,
    /// Size of the arena in bytes.
    pub arena: u64,
    /// Bytes that context, modules and library handles take on the device beside the arena, by the budget.
    pub reserve: u64,
    /// Samples in a step.
    pub batch: u64,
    /// Number format.
    pub precision: Precision,
    /// The training step, if the network is trained.
    pub train: Option<Placed>,
    /// The forward pass. Its parameters and buffers are where the training step's are.
    pub infer: Placed,
    /// The optimizer with its hyperparameters.
    pub optimizer: Optimizer,
    /// Whether f32 products may run in TensorFloat-32.
    pub tf32: bool,
    /// Whether every run must give the same bits. A device whose algorithms all do may leave it.
    pub deterministic: bool,
}

/// Something that networks run on.
pub trait Device {
    /// A network loaded onto this device.
    type Runner: Runner;

    /// Allocates the arena and prepares both programs. The arena's contents are undefined.
    ///
    /// # Errors
    /// A precision or a program that the device cannot run, or too little memory.
    fn load(&self, job: Job) -> Result<Self::Runner, Error>;
}

/// A network loaded onto a device: an arena and the programs that run in it.
pub trait Runner {
    /// Copies `bytes` into the arena at byte `offset`.
    ///
    /// # Errors
    /// A range outside the arena.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error>;

    /// Gives the next training step its input or target, whose first place is at byte `offset`. The bytes may be copied while
    /// an earlier step runs. Whoever feeds one tensor of a step feeds all of them.
    ///
    /// # Errors
    /// A range outside the arena, or invalid data such as a label beyond the last class.
    fn feed(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.write(offset, bytes)
    }

    /// The loss of the last training step, which is at byte `offset`, as soon as it is known.
    ///
    /// # Errors
    /// A failure of the device.
    fn loss(&mut self, offset: u64) -> Result<f32, Error> {
        let mut loss = [0; 4];
        self.read(offset, &mut loss)?;
        Ok(f32::from_le_bytes(loss))
    }

    /// Copies out of the arena at byte `offset`, after everything that was started has ended.
    ///
    /// # Errors
    /// A range outside the arena, or a failure of what was started before.
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), Error>;

    /// Runs one training step on the input and target in the arena.
    ///
    /// # Errors
    /// A network without training, or invalid data such as a label beyond the last class.
    fn train(&mut self) -> Result<(), Error>;

    /// Runs one forward pass on the input in the arena.
    ///
    /// # Errors
    /// Invalid data such as a token beyond the table.
    fn infer(&mut self) -> Result<(), Error>;

    /// Changes the optimizer's hyperparameters from the next step on.
    fn set_optimizer(&mut self, optimizer: Optimizer);
}
