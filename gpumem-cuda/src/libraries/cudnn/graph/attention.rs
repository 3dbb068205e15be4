//! Attention by cuDNN's fused operation, available from 9.21 on. Scores are computed, masked by a graph of their own, and multiplied with the
//! values without being stored in memory.

use super::{
    ALIGNED, Engine, Known, Library, Numbers, OwnedDescriptors, Plan, Pointer, Question, Reference, Target, data_type,
    pack, signed,
};
use crate::calls::Attention;
use crate::calls::attention::Pass;
use crate::libraries::cudnn::ALIGNMENT;
use crate::libraries::cudnn::graph::backend::Descriptor;
use crate::libraries::plan_cache::Address;
use cudarc::cudnn::result::CudnnError;
use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t as Name, cudnnBackendDescriptorType_t as Kind, cudnnDataType_t as DataType,
    cudnnPointwiseMode_t as Pointwise,
};
use cudarc::driver::sys::CUdeviceptr;
use gpumem_core::error::Error;
use std::ffi::c_void;

/// Identifiers of tensors for the library.
const QUERIES: i64 = 1;
const KEYS: i64 = 2;
const VALUES: i64 = 3;
const OUTPUT: i64 = 4;
const LOGS: i64 = 5;
const OUTPUT_GRADIENT: i64 = 6;
const QUERIES_GRADIENT: i64 = 7;
const KEYS_GRADIENT: i64 = 8;
const VALUES_GRADIENT: i64 = 9;
/// Identifiers of numbers that are read from the host.
const SCALE: i64 = 10;
const BOUND: i64 = 11;
const FILL: i64 = 12;
/// Scores before and after the mask, which exist in registers only.
const SCORES: i64 = 13;
const MASKED: i64 = 14;

/// The memory that holds a tensor.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Card,
    Host,
    Registers,
}

fn tensor(
    name: i64,
    data: DataType,
    sizes: [u64; 4],
    strides: [u64; 4],
    place: Place,
) -> Result<Descriptor, CudnnError> {
    let whole = |numbers: [u64; 4]| numbers.into_iter().map(signed).collect::<Result<Vec<i64>, CudnnError>>();
    let tensor = Descriptor::new(Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?;
    tensor.set(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[name])?;
    tensor.set(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, &[data])?;
    tensor.set(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[if place == Place::Host { 4 } else { ALIGNED }])?;
    tensor.set(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, &whole(sizes)?)?;
    tensor.set(Name::CUDNN_ATTR_TENSOR_STRIDES, &whole(strides)?)?;
    tensor.set(Name::CUDNN_ATTR_TENSOR_IS_VIRTUAL, &[place == Place::Registers])?;
    tensor.set(Name::CUDNN_ATTR_TENSOR_IS_BY_VALUE, &[place == Place::Host])?;
    tensor.finalize()
}

fn number(name: i64, data: DataType) -> Result<Descriptor, CudnnError> {
    tensor(name, data, [1; 4], [1; 4], Place::Host)
}

impl Attention {
    /// Returns a tensor of `heads` heads; time steps are `row` elements apart.
    fn heads_of(&self, name: i64, heads: u64, row: u64) -> Result<Descriptor, CudnnError> {
        let Attention { batch, steps, width, element, .. } = *self;
        let strides = [steps.saturating_mul(row), width, row, 1];
        tensor(name, data_type(element), [batch, heads, steps, width], strides, Place::Card)
    }

    /// Returns the tensor of the scores of all queries and keys.
    fn scores(&self, name: i64) -> Result<Descriptor, CudnnError> {
        let Attention { batch, heads, steps, .. } = *self;
        let square = steps.saturating_mul(steps);
        let strides = [heads.saturating_mul(square), square, steps, 1];
        tensor(name, DataType::CUDNN_DATA_FLOAT, [batch, heads, steps, steps], strides, Place::Registers)
    }

    /// Describes the mask's graph: a query attends to the keys of its own time step and earlier ones.
    fn mask(&self, kept: &mut OwnedDescriptors, target: Target<'_>) -> Result<Reference, CudnnError> {
        let scores = kept.keep(self.scores(SCORES)?);
        let masked = kept.keep(self.scores(MASKED)?);
        let bound = kept.keep(number(BOUND, DataType::CUDNN_DATA_INT32)?);
        let fill = kept.keep(number(FILL, DataType::CUDNN_DATA_FLOAT)?);
        let mask = Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_DIAGONAL_BAND_MASK_DESCRIPTOR)?;
        mask.set(Name::CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_XDESC, &[scores])?;
        mask.set(Name::CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_SHIFT_RIGHT_BOUND_DESC, &[bound])?;
        mask.set(Name::CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_BDESC, &[fill])?;
        mask.set(Name::CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_YDESC, &[masked])?;
        let keeps = Pointwise::CUDNN_POINTWISE_CMP_GE;
        mask.set(Name::CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_COMPARISON_MODE, &[keeps])?;
        let mask = kept.keep(mask.finalize()?);
        let graph = Descriptor::new(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?;
        target.tell(&graph, Some(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE), None)?;
        graph.set(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &[mask])?;
        Ok(kept.keep(graph.finalize()?))
    }

    fn logs_of(&self) -> Result<Descriptor, CudnnError> {
        let Attention { batch, heads, steps, .. } = *self;
        let strides = [heads.saturating_mul(steps), steps, 1, 1];
        tensor(LOGS, DataType::CUDNN_DATA_FLOAT, [batch, heads, steps, 1], strides, Place::Card)
    }

    /// Describes the operation with all its tensors.
    fn operation(&self, kept: &mut OwnedDescriptors, target: Target<'_>) -> Result<Reference, CudnnError> {
        let (row, features) = (self.row(), self.heads.saturating_mul(self.width));
        let queries = kept.keep(self.heads_of(QUERIES, self.heads, row)?);
        let keys = kept.keep(self.heads_of(KEYS, self.kv_heads, row)?);
        let values = kept.keep(self.heads_of(VALUES, self.kv_heads, row)?);
        let output = kept.keep(self.heads_of(OUTPUT, self.heads, features)?);
        let scale = kept.keep(number(SCALE, DataType::CUDNN_DATA_FLOAT)?);
        let logs = self.logs.map(|_| self.logs_of()).transpose()?.map(|logs| kept.keep(logs));
        let mask = self.mask(kept, target)?;
        let operation = match self.pass {
            Pass::Forward => {
                let operation = Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR)?;
                operation.set(Name::CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, &[queries])?;
                operation.set(Name::CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, &[keys])?;
                operation.set(Name::CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, &[values])?;
                operation.set(Name::CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, &[output])?;
                operation.set(Name::CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, &[scale])?;
                if let Some(logs) = logs {
                    operation.set(Name::CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, &[logs])?;
                }
                operation.set(Name::CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH, &[mask])?;
                operation.set(Name::CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_INPUT_UID, &[SCORES])?;
                operation.set(Name::CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_OUTPUT_UID, &[MASKED])?;
                operation
            }
            Pass::Backward { .. } => {
                let dy = kept.keep(self.heads_of(OUTPUT_GRADIENT, self.heads, features)?);
                let dq = kept.keep(self.heads_of(QUERIES_GRADIENT, self.heads, row)?);
                let dk = kept.keep(self.heads_of(KEYS_GRADIENT, self.kv_heads, row)?);
                let dv = kept.keep(self.heads_of(VALUES_GRADIENT, self.kv_heads, row)?);
                let operation = Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR)?;
                operation.set(Name::CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC, &[queries])?;
                operation.set(Name::CUDNN_ATTR_OPERATION_SDPA_BWD_KDESC, &[keys])?;
                operation.set(Name::CUDNN_ATTR_OPERATION_SDPA_BWD_VDESC, &[values])?;
                operation.set(Name::CUDNN_ATTR_OPERATION_SDPA_BWD_ODESC, &[output])?;
                operation.set(Name::CUDNN_ATTR_OPERATION_SDPA_BWD_SCALEDESC, &[scale])?;
                if let Some(logs) = logs {
                    operation.set(Name::CUDNN_ATTR_OPERATION_SDPA_BWD_STATSDESC, &[logs])?;
                }
                operation.set(Name::CUDNN_ATTR_OPERATION_SDPA_BWD_DODDESC, &[dy])?;
                operation.set(Name::CUDNN_ATTR_OPERATION_SDPA_BWD_DQDESC, &[dq])?;
                operation.set(Name::CUDNN_ATTR_OPERATION_SDPA_BWD_DKDESC, &[dk])?;
                operation.set(Name::CUDNN_ATTR_OPERATION_SDPA_BWD_DVDESC, &[dv])?;
                operation.set(Name::CUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH, &[mask])?;
                operation.set(Name::CUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH_INPUT_UID, &[SCORES])?;
                operation.set(Name::CUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH_OUTPUT_UID, &[MASKED])?;
                operation
            }
        };
        Ok(kept.keep(operation.finalize()?))
    }
}

impl Question for Attention {
    fn describe(&self, target: Target<'_>) -> Result<(OwnedDescriptors, Reference), CudnnError> {
        let mut kept = OwnedDescriptors::default();
        let operation = self.operation(&mut kept, target)?;
        let graph = Descriptor::new(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?;
        target.tell(&graph, Some(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE), None)?;
        graph.set(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &[operation])?;
        let graph = kept.keep(graph.finalize()?);
        Ok((kept, graph))
    }

    // Deterministic attention never gets here: gpumem's own kernels compute it.
    fn accepts(&self, engine: Engine) -> bool {
        engine.tensor_cores && !engine.rounds
    }

    fn room(&self) -> u64 {
        self.workspace.map_or(0, |workspace| workspace.bytes)
    }

    fn is_deterministic(&self) -> bool {
        false
    }
}

/// Addresses of the tensors; 0 for those that are absent.
struct Places {
    x: CUdeviceptr,
    y: CUdeviceptr,
    logs: CUdeviceptr,
    gradients: Option<[CUdeviceptr; 2]>,
    workspace: (CUdeviceptr, usize),
}

impl Places {
    fn of(attention: &Attention, address: &Address<'_>) -> Result<Places, Error> {
        let Attention { x, y, logs, workspace, pass, .. } = *attention;
        let start = workspace.map_or(Ok(0), |workspace| address(workspace.tensor))?;
        if !start.is_multiple_of(ALIGNMENT) {
            return Err(Error::Damaged("the workspace of attention does not begin at a multiple of 256 bytes"));
        }
        let size = usize::try_from(workspace.map_or(0, |workspace| workspace.bytes));
        let size = size.map_err(|_| Error::Damaged("the workspace of attention is larger than any memory"))?;
        let gradients = match pass {
            Pass::Forward => None,
            Pass::Backward { dy, dx } => Some([address(dy)?, address(dx)?]),
        };
        let logs = logs.map_or(Ok(0), address)?;
        Ok(Places { x: address(x)?, y: address(y)?, logs, gradients, workspace: (start, size) })
    }

    fn pack(&self, attention: &Attention, numbers: &Numbers) -> Result<Descriptor, CudnnError> {
        let part = |start: CUdeviceptr, index: usize| start + attention.parts()[index] * attention.element.bytes();
        let mut all = vec![
            (QUERIES, part(self.x, 0)),
            (KEYS, part(self.x, 1)),
            (VALUES, part(self.x, 2)),
            (OUTPUT, self.y),
            (SCALE, std::ptr::from_ref(&numbers.scale) as CUdeviceptr),
            (BOUND, std::ptr::from_ref(&numbers.bound) as CUdeviceptr),
            (FILL, std::ptr::from_ref(&numbers.fill) as CUdeviceptr),
        ];
        all.extend((self.logs != 0).then_some((LOGS, self.logs)));
        if let Some([dy, dx]) = self.gradients {
            all.push((OUTPUT_GRADIENT, dy));
            let names = [QUERIES_GRADIENT, KEYS_GRADIENT, VALUES_GRADIENT];
            all.extend(names.into_iter().enumerate().map(|(index, name)| (name, part(dx, index))));
        }
        let all: Vec<_> = all.into_iter().map(|(name, address)| (name, Pointer(address as *mut c_void))).collect();
        pack(&all, self.workspace)
    }
}

impl Plan {
    /// Returns a plan; `None` if the library has no engine for it. The first plan for a kind of attention is run once.
    pub(in crate::libraries::cudnn) fn of_attention(
        library: &Library,
        attention: &Attention,
        address: &Address<'_>,
    ) -> Result<Option<Plan>, Error> {
        let places = Places::of(attention, address)?;
        let numbers = || Numbers { scale: attention.scale(), bound: 0, fill: f32::NEG_INFINITY };
        let known: &Known<Attention> = &library.0.attentions;
        Plan::of(library, (attention, attention.of_any()), known, numbers, |numbers| places.pack(attention, numbers))
    }
}
