//! Descriptors of a recurrent layer for cuDNN, and the memory that it needs.

use crate::calls::Recurrence;
use crate::calls::product::Element;
use crate::libraries::cudnn::data_type;
use cudarc::cudnn::result::CudnnError;
use cudarc::cudnn::sys::{self, cudnnDataType_t as DataType, cudnnMathType_t as Math, cudnnRNNMode_t as Mode};
use gpumem_core::program::ops::Cell;
use std::ffi::c_int;
use std::ptr::null_mut;

owned!(
    /// The layer.
    Layer(sys::cudnnRNNDescriptor_t),
    sys::cudnnDestroyRNNDescriptor
);
owned!(
    /// A dropout of nothing.
    Dropout(sys::cudnnDropoutDescriptor_t),
    sys::cudnnDestroyDropoutDescriptor
);
owned!(
    /// Sequences.
    Sequences(sys::cudnnRNNDataDescriptor_t),
    sys::cudnnDestroyRNNDataDescriptor
);
owned!(
    /// Any tensor.
    Tensor(sys::cudnnTensorDescriptor_t),
    sys::cudnnDestroyTensorDescriptor
);

/// `CUDNN_RNN_PADDED_IO_ENABLED`, which cudarc lacks: sequences need not be packed, so that samples may be outermost.
const PADDED: u32 = 1;

/// Returns the descriptor that a constructor of the library makes.
fn made<T>(make: impl FnOnce(*mut *mut T) -> sys::cudnnStatus_t) -> Result<*mut T, CudnnError> {
    let mut raw = null_mut();
    make(&raw mut raw).result()?;
    Ok(raw)
}

fn counted(size: u64) -> Result<c_int, CudnnError> {
    c_int::try_from(size).map_err(|_| CudnnError(sys::cudnnStatus_t::CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND))
}

/// Descriptors of a recurrent layer.
#[derive(Debug)]
pub(super) struct Description {
    pub(super) layer: Layer,
    /// The layer refers to this descriptor.
    _dropout: Dropout,
    pub(super) x: Sequences,
    pub(super) y: Sequences,
    /// States between time steps, of all directions: the outputs, and an LSTM's cells.
    pub(super) states: [Tensor; 2],
}

impl Sequences {
    fn new(it: &Recurrence, features: u64) -> Result<Sequences, CudnnError> {
        // SAFETY: the library writes to a place for a descriptor.
        let sequences = Sequences(made(|raw| unsafe { sys::cudnnCreateRNNDataDescriptor(raw) })?);
        let [steps, batch, features] = [counted(it.steps)?, counted(it.batch)?, counted(features)?];
        let (lengths, mut fill) = (vec![steps; batch as usize], 0f32);
        let layout = sys::cudnnRNNDataLayout_t::CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED;
        // SAFETY: the descriptor is alive; there is a length for each sample, and a fill value at least as wide as the tensors' numbers; both are
        // read before the call returns.
        unsafe {
            sys::cudnnSetRNNDataDescriptor(
                sequences.0,
                data_type(it.element),
                layout,
                steps,
                batch,
                features,
                lengths.as_ptr(),
                (&raw mut fill).cast(),
            )
        }
        .result()?;
        Ok(sequences)
    }
}

impl Tensor {
    pub(super) fn empty() -> Result<Tensor, CudnnError> {
        // SAFETY: the library writes to a place for a descriptor.
        Ok(Tensor(made(|raw| unsafe { sys::cudnnCreateTensorDescriptor(raw) })?))
    }

    /// Returns the tensor of the states of all samples, with `units` numbers for each direction.
    fn of_states(it: &Recurrence, units: u64) -> Result<Tensor, CudnnError> {
        let each = counted(it.batch.saturating_mul(units))?;
        let (tensor, [directions, batch, units]) =
            (Tensor::empty()?, [counted(it.directions)?, counted(it.batch)?, counted(units)?]);
        let (sizes, strides) = ([directions, batch, units], [each, units, 1]);
        // SAFETY: the descriptor is alive, and sizes and strides are three each.
        unsafe {
            sys::cudnnSetTensorNdDescriptor(tensor.0, data_type(it.element), 3, sizes.as_ptr(), strides.as_ptr())
        }
        .result()?;
        Ok(tensor)
    }
}

impl Description {
    pub(super) fn new(handle: sys::cudnnHandle_t, it: &Recurrence) -> Result<Description, CudnnError> {
        // SAFETY: the library writes to places for descriptors.
        let dropout = Dropout(made(|raw| unsafe { sys::cudnnCreateDropoutDescriptor(raw) })?);
        // SAFETY: as above.
        let layer = Layer(made(|raw| unsafe { sys::cudnnCreateRNNDescriptor(raw) })?);
        let [inputs, hidden, outputs] = [counted(it.in_features)?, counted(it.hidden)?, counted(it.outputs)?];
        let mode = match it.cell {
            Cell::Lstm => Mode::CUDNN_LSTM,
            Cell::Gru => Mode::CUDNN_GRU,
            Cell::Tanh => Mode::CUDNN_RNN_TANH,
            Cell::Relu => Mode::CUDNN_RNN_RELU,
        };
        let bias = match it.has_bias() {
            true => sys::cudnnRNNBiasMode_t::CUDNN_RNN_DOUBLE_BIAS,
            false => sys::cudnnRNNBiasMode_t::CUDNN_RNN_NO_BIAS,
        };
        let directions = match it.directions {
            2 => sys::cudnnDirectionMode_t::CUDNN_BIDIRECTIONAL,
            _ => sys::cudnnDirectionMode_t::CUDNN_UNIDIRECTIONAL,
        };
        let math = match it.element {
            Element::F32 if it.tf32 => Math::CUDNN_DEFAULT_MATH,
            Element::F32 => Math::CUDNN_FMA_MATH,
            Element::Bf16 | Element::F16 => Math::CUDNN_TENSOR_OP_MATH,
        };
        // SAFETY: descriptors are alive. Without dropout there is no state, and the handle is not used.
        unsafe {
            sys::cudnnSetDropoutDescriptor(dropout.0, handle, 0.0, null_mut(), 0, 0).result()?;
            sys::cudnnSetRNNDescriptor_v8(
                layer.0,
                sys::cudnnRNNAlgo_t::CUDNN_RNN_ALGO_STANDARD,
                mode,
                bias,
                directions,
                sys::cudnnRNNInputMode_t::CUDNN_LINEAR_INPUT,
                data_type(it.element),
                DataType::CUDNN_DATA_FLOAT,
                math,
                inputs,
                hidden,
                outputs,
                1,
                dropout.0,
                PADDED,
            )
            .result()?;
        }
        let x = Sequences::new(it, it.in_features)?;
        let y = Sequences::new(it, it.directions.saturating_mul(it.outputs))?;
        let states = [Tensor::of_states(it, it.outputs)?, Tensor::of_states(it, it.hidden)?];
        Ok(Description { layer, _dropout: dropout, x, y, states })
    }

    /// Returns the bytes of workspace and reserve in training, and the library's status.
    pub(super) fn temporary(&self, handle: sys::cudnnHandle_t) -> ([usize; 2], Result<(), CudnnError>) {
        let (mut workspace, mut reserve) = (0, 0);
        let training = sys::cudnnForwardMode_t::CUDNN_FWD_MODE_TRAINING;
        // SAFETY: handle and descriptors are alive; both are valid places for what is written.
        let status = unsafe {
            sys::cudnnGetRNNTempSpaceSizes(
                handle,
                self.layer.0,
                training,
                self.x.0,
                &raw mut workspace,
                &raw mut reserve,
            )
        };
        ([workspace, reserve], status.result())
    }

    /// Returns the bytes of all weights in one buffer.
    pub(super) fn weights(&self, handle: sys::cudnnHandle_t) -> Result<usize, CudnnError> {
        let mut bytes = 0;
        // SAFETY: as above.
        unsafe { sys::cudnnGetRNNWeightSpaceSize(handle, self.layer.0, &raw mut bytes) }.result()?;
        Ok(bytes)
    }
}
