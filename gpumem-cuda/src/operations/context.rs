//! Facts that an operation's calls depend on.

use crate::calls::{Argument, Kernel, type_name};
use gpumem_core::error::Error;
use gpumem_core::memory::layout::channels_last::channels_last;
use gpumem_core::memory::place::Placed;
use gpumem_core::operation::Operations;
use gpumem_core::program::{Operation, Slot, Strides, Tensor, TensorId};
use gpumem_core::shape::Shape;
use gpumem_core::train::optim::Optimizer;
use gpumem_core::train::ranks::Sharding;
use gpumem_core::{Format, Precision};

/// Facts that the calls of a whole network depend on.
#[derive(Clone, Copy, Debug)]
pub struct LaunchContext {
    /// Samples of a batch.
    pub batch: u64,
    /// The network's precision.
    pub precision: Precision,
    /// The optimizer with its hyperparameters, except the learning rate, which is read from the state tensor.
    pub optimizer: Optimizer,
    /// Compute capability of the card, major and minor.
    pub capability: (i32, i32),
    /// Multiprocessors of the card; 0 if it does not take cooperative launches, which a grid barrier needs.
    pub multiprocessors: u32,
    /// True if f32 products may run in TensorFloat-32.
    pub tf32: bool,
    /// True if only algorithms may be chosen that give the same bits in every run.
    pub deterministic: bool,
    /// True if matrix products are computed by cuBLASLt, false if by gpumem's own kernels.
    pub library: bool,
    /// True if convolutions are computed by cuDNN, false if by gpumem's own kernels.
    pub cudnn: bool,
    /// The number of this rank among those that share a training step, from 0.
    pub rank: u64,
    /// The functions of the operations that users have declared.
    pub operations: &'static Operations,
}

/// An operation, with everything that its calls depend on.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The program and the places of its tensors.
    pub placed: &'a Placed,
    /// The operation.
    pub operation: &'a Operation,
    /// The facts of the network.
    pub setting: LaunchContext,
}

impl Context<'_> {
    /// Returns the tensor read as `slot`.
    ///
    /// # Errors
    /// [`Error::Damaged`] if there is none.
    pub fn read(&self, slot: Slot) -> Result<TensorId, Error> {
        self.operation.read(slot).ok_or(Error::Damaged("an operation lacks a tensor that its kernel reads"))
    }

    /// Returns the tensor written as `slot`.
    ///
    /// # Errors
    /// [`Error::Damaged`] if there is none.
    pub fn written(&self, slot: Slot) -> Result<TensorId, Error> {
        self.operation.written(slot).ok_or(Error::Damaged("an operation lacks a tensor that its kernel writes"))
    }

    /// Returns a tensor by its number.
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        self.placed.program.tensor(id)
    }

    /// Returns the stored elements of a tensor, including gaps between rows. Operations that treat each element by itself process all of them.
    pub fn elements(&self, id: TensorId) -> u64 {
        self.tensor(id).stored(self.setting.batch).unwrap_or(u64::MAX)
    }

    /// Returns the stored elements of a tensor, without the padding that fills up the shard of the last rank.
    pub fn unpadded(&self, id: TensorId) -> u64 {
        let tensor = self.tensor(id);
        match tensor.sharding {
            Sharding::Gathered(_) => tensor.unsharded().unwrap_or(u64::MAX),
            Sharding::Replicated | Sharding::Sharded(_) => self.elements(id),
        }
    }

    /// Returns the stored elements of a tensor that this rank updates: all of them, or those of its shard.
    pub fn own(&self, id: TensorId) -> u64 {
        let tensor = self.tensor(id);
        match tensor.sharding {
            Sharding::Gathered(_) => tensor.own_shard().unwrap_or(u64::MAX),
            Sharding::Replicated | Sharding::Sharded(_) => self.elements(id),
        }
    }

    /// Returns the bytes from the beginning of a tensor to the elements that this rank updates.
    ///
    /// # Errors
    /// [`Error::Damaged`] if they exceed 64 bits.
    pub fn own_start(&self, id: TensorId) -> Result<u64, Error> {
        let tensor = self.tensor(id);
        let Sharding::Gathered(_) = tensor.sharding else { return Ok(0) };
        let width = tensor.role.bytes(self.setting.precision);
        let start = tensor.own_shard().and_then(|own| own.checked_mul(self.setting.rank)?.checked_mul(width));
        start.ok_or(Error::Damaged("a rank's shard begins beyond 64 bits"))
    }

    /// Returns the elements of a tensor, without gaps.
    pub fn count(&self, id: TensorId) -> u64 {
        self.tensor(id).elements(self.setting.batch).unwrap_or(u64::MAX)
    }

    /// Returns the pitch of an argument, in elements from one row to the next; `None` without gaps. Second halves and master copies have none.
    pub fn pitch(&self, id: Argument) -> Option<u64> {
        let pitch = self.placed.program.tensors.get(id as usize)?.layout.pitch;
        Some(pitch).filter(|&pitch| pitch > 0)
    }

    /// Adds the strides of maps to a kernel, if they are not all dense: see `kernels/common/layout.cuh`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if a map that is not dense has another shape than that of the operation.
    pub fn with_strides(&self, kernel: Kernel, maps: &[(&'static str, TensorId, Shape)]) -> Result<Kernel, Error> {
        if maps.iter().all(|(_, id, _)| self.tensor(*id).layout.is_dense()) {
            return Ok(kernel);
        }
        maps.iter().try_fold(kernel, |kernel, &(name, id, shape)| {
            let tensor = self.tensor(id);
            let fits = tensor.layout.is_dense() || tensor.shape == shape;
            let (_, strides) = tensor.layout.places(shape).filter(|_| fits).ok_or_else(other_layout)?;
            Ok(kernel.with(name, in_braces(strides)))
        })
    }

    /// Returns the samples in a tensor: the batch, or 1 for a tensor that exists once for the whole batch.
    pub fn samples(&self, id: TensorId) -> u64 {
        if self.tensor(id).batched { self.setting.batch } else { 1 }
    }

    /// Returns 1 if a gradient is added to its tensor and 0 if it overwrites it, for a constant.
    pub fn adds(&self, slot: Slot) -> u8 {
        u8::from(self.operation.accumulate && self.operation.read(slot).is_some())
    }

    /// Returns the bytes of the operation's workspace; 0 if it has none.
    pub fn workspace_bytes(&self) -> u64 {
        let workspace = self.operation.written(Slot::Workspace);
        workspace.map_or(0, |id| self.placed.bytes[id as usize])
    }

    /// Returns a kernel of `file` for this network's number format.
    pub fn kernel(&self, file: &'static str, entry: &'static str) -> Kernel {
        Kernel::new(file, entry).with("REAL", type_name(self.setting.precision.narrow()))
    }

    /// Returns a kernel of a file whose products can be computed by tensor cores.
    pub fn product_kernel(&self, file: &'static str, entry: &'static str) -> Kernel {
        self.kernel(file, entry).with("TENSOR_CORES", self.tensor_core_terms())
    }

    /// Returns [`tensor_core_terms`] for this network's number format and the card.
    pub fn tensor_core_terms(&self) -> u8 {
        tensor_core_terms(self.setting.precision.narrow(), self.setting.capability)
    }

    /// Returns the branch whose gradient the operation writes, and that gradient.
    ///
    /// # Errors
    /// [`Error::Damaged`] if there is none.
    pub fn gradient_of_branch(&self, branches: usize) -> Result<(u8, TensorId), Error> {
        for index in 0..branches {
            let index = branch(index)?;
            if let Some(tensor) = self.operation.written(Slot::InputGradient(index)) {
                return Ok((index, tensor));
            }
        }
        Err(Error::Damaged("the gradient of a join is that of no branch"))
    }
}

/// Returns the index of a branch as a slot's number.
pub(super) fn branch(index: usize) -> Result<u8, Error> {
    u8::try_from(index).map_err(|_| Error::Damaged("a join has over 256 branches"))
}

/// Returns the constant `TENSOR_CORES` of the kernels: the number of terms that one tensor-core instruction sums, for a number format at this
/// compute capability. It is 0 if the kernels do not use tensor cores.
///
/// Volta's tensor cores have different instructions and are not used.
pub fn tensor_core_terms(format: Format, capability: (i32, i32)) -> u8 {
    match format {
        Format::Bf16 | Format::F16 if capability >= (8, 0) => 16,
        Format::F16 if capability >= (7, 5) => 8,
        Format::F32 | Format::Bf16 | Format::F16 | Format::U32 | Format::U8 => 0,
    }
}

/// Stores maps and weights with channels last, if the card has tensor cores for the format: see [`channels_last`]. Must be called before a
/// program's calls are requested.
pub fn order(programs: &mut [&mut Placed], precision: Precision, capability: (i32, i32)) {
    if tensor_core_terms(precision.narrow(), capability) > 0 {
        channels_last(programs);
    }
}

/// Returns strides in the syntax of the kernels' constants.
pub(super) fn in_braces(Strides { sample, channel, row, column }: Strides) -> String {
    format!("{{{sample}ull,{channel}ull,{row}ull,{column}ull}}")
}

/// Returns the error of an operation that does not support a tensor's layout.
pub(super) fn other_layout() -> Error {
    let what = "a tensor in another layout than its shape is written in, for this operation".into();
    Error::Unsupported { device: "CUDA", what }
}

#[cfg(test)]
mod tests {
    use super::tensor_core_terms;
    use gpumem_core::Format;

    #[test]
    fn tensor_cores_are_used_where_they_have_the_format() {
        let terms = |format| [(6, 1), (7, 0), (7, 5), (8, 0), (12, 0)].map(|card| tensor_core_terms(format, card));
        assert_eq!(terms(Format::F32), [0; 5]);
        assert_eq!(terms(Format::Bf16), [0, 0, 0, 16, 16]);
        assert_eq!(terms(Format::F16), [0, 0, 8, 16, 16]);
    }
}
