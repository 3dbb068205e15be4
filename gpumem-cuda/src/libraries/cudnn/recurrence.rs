//! Recurrent layers by cuDNN: one call forward, two for the gradients. Before the calls, weights are copied into the one buffer that the library
//! requires; after them, gradients are copied out of one ([`pieces`]).
//!
//! The layer has the reserve and the workspace that were planned for it. When a network is loaded, the sizes that the library asks for on this card
//! are compared with them, and each pass is run once, as convolutions are. The library defines the format in which the forward pass saves values,
//! so forward and backward must be computed by the same side: if the library needs more memory or refuses, gpumem's own kernels compute both.

mod absent;
mod descriptors;
mod pieces;

use super::{ALIGNMENT, Library, failure, is_refused};
use crate::calls::Recurrence;
use crate::calls::recurrence::{Each, Parts, Pass, Sum};
use crate::error::failure as driver_failure;
use crate::libraries::plan_cache::{Address, Planned};
use crate::warning::notice;
pub use absent::{absent_pieces, absent_sizes};
use cudarc::cudnn::result::CudnnError;
use cudarc::cudnn::sys;
use cudarc::driver::CudaStream;
use cudarc::driver::sys::{self as driver, CUdeviceptr};
use descriptors::Description;
use gpumem_core::error::Error;
use pieces::WeightPiece;
use std::ffi::c_void;
use std::ptr::{null, null_mut};

/// The reason why a layer could not be enqueued.
enum Failed {
    Library(CudnnError),
    Driver(Error),
}

impl From<CudnnError> for Failed {
    fn from(error: CudnnError) -> Failed {
        Failed::Library(error)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Driver(error)
    }
}

impl Failed {
    fn named(self, name: &str) -> Error {
        match self {
            Failed::Library(error) => failure(name.into())(error),
            Failed::Driver(error) => error,
        }
    }
}

/// A layer that is ready to run.
#[derive(Debug)]
pub(crate) struct Plan {
    // Fields are dropped in this order, so that the handle is last.
    description: Description,
    call: Recurrence,
    pieces: Vec<WeightPiece>,
    parts: Parts,
    /// Bytes of all weights, of the workspace and of the reserve, as the library reports them.
    weights: usize,
    workspace: usize,
    reserve: usize,
    places: Places,
    name: String,
    library: Library,
}

/// Addresses of the tensors; 0 for those that are absent.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Places {
    x: CUdeviceptr,
    y: CUdeviceptr,
    weights: [[CUdeviceptr; 5]; 2],
    reserve: CUdeviceptr,
    workspace: CUdeviceptr,
    dy: CUdeviceptr,
    dx: CUdeviceptr,
    /// The gradients of the weights, each with true if it is added to its tensor.
    sums: Each<(CUdeviceptr, bool)>,
}

impl Places {
    fn of(it: &Recurrence, address: &Address<'_>) -> Result<Places, Error> {
        let [workspace, reserve] = [address(it.workspace.tensor)?, address(it.reserve.tensor)?];
        if ![workspace, reserve].iter().all(|start| start.is_multiple_of(ALIGNMENT)) {
            return Err(Error::Damaged("the memory of a recurrence does not begin at a multiple of 256 bytes"));
        }
        let mut weights = [[0; 5]; 2];
        for (at, weight) in weights.iter_mut().flatten().zip(it.weights.into_iter().flatten()) {
            *at = weight.map_or(Ok(0), address)?;
        }
        let (dy, dx, wanted) = match it.pass {
            Pass::Forward => (0, 0, [[None; 5]; 2]),
            Pass::Backward { dy, dx, sums } => (address(dy)?, dx.map_or(Ok(workspace), address)?, sums),
        };
        let mut sums = [[None; 5]; 2];
        for (place, sum) in sums.iter_mut().flatten().zip(wanted.into_iter().flatten()) {
            *place = sum.map(|(tensor, adds): Sum| Ok::<_, Error>((address(tensor)?, adds))).transpose()?;
        }
        Ok(Places { x: address(it.x)?, y: address(it.y)?, weights, reserve, workspace, dy, dx, sums })
    }
}

// SAFETY: descriptors are the library's memory that belongs to this plan and is not changed after `new`; the addresses are only numbers to the
// host.
unsafe impl Send for Plan {}
// SAFETY: as above; a launch uses the handle only on behalf of the one owner that has borrowed the session mutably.
unsafe impl Sync for Plan {}

impl Plan {
    /// Returns a plan; `None` if the library has no such layer, or needs more memory than is planned, which the forward pass finds out.
    fn new(library: &Library, call: &Recurrence, address: &Address<'_>) -> Result<Option<Plan>, Error> {
        let is_backward = call.pass != Pass::Forward;
        let known = |is_backward| library.recurrences().get(&(call.of_any(), is_backward)).copied();
        if known(false) == Some(false) || (is_backward && known(false).is_none()) {
            return Ok(None);
        }
        let plan = Plan::described(library, call, address)?;
        let plan = match (plan, known(is_backward)) {
            (Some(plan), None) if !plan.is_possible()? => None,
            (plan, _) => plan,
        };
        library.recurrences().insert((call.of_any(), is_backward), plan.is_some());
        if is_backward && plan.is_none() {
            let what = format!(
                "cuDNN: no {call}, though it computes the layer; the network runs without the library on `Cuda::with_cudnn(false)`"
            );
            return Err(Error::failed("CUDA", what));
        }
        Ok(plan)
    }

    /// True if a trial run succeeds. It must run while the tensors hold nothing yet: only then does the library report what it does not support,
    /// and load its kernels, which it cannot do while a graph is captured.
    fn is_possible(&self) -> Result<bool, Error> {
        let stream = self.library.0.stream.clone();
        let tried = self.launch_on(&stream);
        self.library.wait(&self.name)?;
        match tried {
            Ok(()) => Ok(true),
            Err(Failed::Library(error)) if is_refused(error) => {
                self.library.note(error);
                Ok(false)
            }
            Err(failed) => Err(failed.named(&self.name)),
        }
    }

    /// Describes the layer in the planned memory; `None` if the library has no such layer, or if the memory is too small.
    fn described(library: &Library, call: &Recurrence, address: &Address<'_>) -> Result<Option<Plan>, Error> {
        let (name, handle) = (call.to_string(), library.0.handle);
        let describing = || failure(format!("describing {name}"));
        let description = match Description::new(handle, call) {
            Ok(description) => description,
            Err(error) if is_refused(error) => return Ok(None),
            Err(error) => return Err(describing()(error)),
        };
        let ([workspace, reserve], status) = description.temporary(handle);
        match status {
            Ok(()) => {}
            Err(error) if is_refused(error) => return Ok(None),
            Err(error) => return Err(describing()(error)),
        }
        let weights = description.weights(handle).map_err(describing())?;
        let parts = call.parts();
        let fits = |bytes: usize, room: u64| u64::try_from(bytes).is_ok_and(|bytes| bytes <= room);
        let room = call.workspace.bytes.saturating_sub(parts.rest);
        if !(fits(weights, call.weight_bytes()) && fits(reserve, call.reserve.bytes) && fits(workspace, room)) {
            let mib = |bytes: u64| bytes as f64 / f64::from(1u32 << 20);
            notice(&format!(
                "cuDNN wants a reserve of {:.1} MiB and a workspace of {:.1} MiB for the {name}, and {:.1} and {:.1} are planned: it runs on \
                 gpumem's own kernels, which need less without `cudnn = true`",
                mib(reserve as u64),
                mib(workspace as u64),
                mib(call.reserve.bytes),
                mib(room)
            ));
            return Ok(None);
        }
        let places = Places::of(call, address)?;
        let start = places.workspace.saturating_add(parts.weights);
        let pieces = pieces::of(&description, library.0.handle, call, weights, start);
        let Some(pieces) = pieces.map_err(describing())? else { return Ok(None) };
        let library = library.clone();
        Ok(Some(Plan { description, call: *call, pieces, parts, weights, workspace, reserve, places, name, library }))
    }

    /// Returns the algorithm and its scratch memory.
    pub(crate) fn choice(&self) -> crate::profile::Choice {
        crate::profile::Choice {
            library: "cuDNN",
            algorithm: "CUDNN_RNN_ALGO_STANDARD".into(),
            settings: Vec::new(),
            workspace: self.workspace as u64,
        }
    }

    /// Enqueues the layer on the session's stream.
    ///
    /// # Errors
    /// [`Error::Device`] with the layer and the library's error.
    pub(crate) fn launch(&self, stream: &CudaStream) -> Result<(), Error> {
        self.launch_on(stream).map_err(|failed| failed.named(&self.name))
    }

    fn launch_on(&self, stream: &CudaStream) -> Result<(), Failed> {
        let Plan { parts, places, weights, .. } = self;
        let [all, sums] = [parts.weights, parts.sums].map(|part| places.workspace + part);
        for piece in &self.pieces {
            copy(all + piece.packed, *piece.among(&places.weights) + piece.at, piece.bytes, stream)?;
        }
        let (lengths, steps) = (places.workspace + parts.lengths, self.call.steps as u32);
        // SAFETY: the workspace has space for the lengths, one word for each sample.
        unsafe { driver::cuMemsetD32Async(lengths, steps, self.call.batch as usize, stream.cu_stream()) }
            .result()
            .map_err(driver_failure("writing the lengths of sequences"))?;
        if self.call.pass == Pass::Forward {
            return Ok(self.forward()?);
        }
        self.backward_data()?;
        if places.sums.iter().flatten().all(Option::is_none) {
            return Ok(());
        }
        // SAFETY: the workspace has space for the gradients. They are cleared because the library adds to them.
        unsafe { driver::cuMemsetD8Async(sums, 0, *weights, stream.cu_stream()) }
            .result()
            .map_err(driver_failure("clearing gradients"))?;
        let wanted = || self.pieces.iter().filter_map(|piece| Some((piece, (*piece.among(&places.sums))?)));
        for (piece, (sum, _)) in wanted().filter(|(_, (_, adds))| *adds) {
            copy(sums + piece.packed, sum + piece.at, piece.bytes, stream)?;
        }
        self.backward_weights()?;
        for (piece, (sum, _)) in wanted() {
            copy(sum + piece.at, sums + piece.packed, piece.bytes, stream)?;
        }
        Ok(())
    }

    fn forward(&self) -> Result<(), CudnnError> {
        let (Plan { description, places, parts, .. }, at) = (self, |part: u64| self.at(part));
        let [outputs, cells] = description.states.each_ref().map(|state| state.0);
        let training = sys::cudnnForwardMode_t::CUDNN_FWD_MODE_TRAINING;
        // SAFETY: handle and descriptors live as long as this plan. The addresses are of tensors in the arena, which outlives every plan, each of
        // the length that its descriptor says, because `Session` binds a call to the tensors of the program that it was made from; reserve, weights
        // and workspace have the bytes that the library asked for, which `new` has checked. A null pointer is a state before the first time step,
        // which is then 0, or one after the last, which is not wanted.
        unsafe {
            sys::cudnnRNNForward(
                self.library.0.handle,
                description.layer.0,
                training,
                at(parts.lengths).cast_const().cast(),
                description.x.0,
                places.x as *const c_void,
                description.y.0,
                places.y as *mut c_void,
                outputs,
                null(),
                null_mut(),
                cells,
                null(),
                null_mut(),
                self.weights,
                at(parts.weights),
                self.workspace,
                at(parts.rest),
                self.reserve,
                places.reserve as *mut c_void,
            )
        }
        .result()
    }

    fn backward_data(&self) -> Result<(), CudnnError> {
        let (Plan { description, places, parts, .. }, at) = (self, |part: u64| self.at(part));
        let [outputs, cells] = description.states.each_ref().map(|state| state.0);
        // SAFETY: as in `forward`; the gradient of the input has a tensor, or its place at the start of the workspace.
        unsafe {
            sys::cudnnRNNBackwardData_v8(
                self.library.0.handle,
                description.layer.0,
                at(parts.lengths).cast_const().cast(),
                description.y.0,
                places.y as *const c_void,
                places.dy as *const c_void,
                description.x.0,
                places.dx as *mut c_void,
                outputs,
                null(),
                null(),
                null_mut(),
                cells,
                null(),
                null(),
                null_mut(),
                self.weights,
                at(parts.weights),
                self.workspace,
                at(parts.rest),
                self.reserve,
                places.reserve as *mut c_void,
            )
        }
        .result()
    }

    fn backward_weights(&self) -> Result<(), CudnnError> {
        let (Plan { description, places, parts, .. }, at) = (self, |part: u64| self.at(part));
        // SAFETY: as in `forward`.
        unsafe {
            sys::cudnnRNNBackwardWeights_v8(
                self.library.0.handle,
                description.layer.0,
                sys::cudnnWgradMode_t::CUDNN_WGRAD_MODE_ADD,
                at(parts.lengths).cast_const().cast(),
                description.x.0,
                places.x as *const c_void,
                description.states[0].0,
                null(),
                description.y.0,
                places.y as *const c_void,
                self.weights,
                at(parts.sums),
                self.workspace,
                at(parts.rest),
                self.reserve,
                places.reserve as *mut c_void,
            )
        }
        .result()
    }

    fn at(&self, part: u64) -> *mut c_void {
        (self.places.workspace + part) as *mut c_void
    }
}

/// Copies bytes within the arena.
fn copy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: &CudaStream) -> Result<(), Error> {
    // SAFETY: both are parts of tensors in the arena, or of the workspace, which `pieces` has checked.
    unsafe { driver::cuMemcpyDtoDAsync_v2(to, from, bytes, stream.cu_stream()) }
        .result()
        .map_err(driver_failure("copying weights of a recurrence"))
}

impl Planned for Recurrence {
    type Library = Library;
    type Plan = Plan;

    fn plan(&self, library: &Library, address: &Address<'_>) -> Result<Option<Plan>, Error> {
        Plan::new(library, self, address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::Argument;
    use crate::calls::recurrence::tests::example;

    /// Returns an address for a tensor, a MiB above that of the tensor before.
    fn address(tensor: Argument) -> Result<CUdeviceptr, Error> {
        Ok(0x7f00_0000_0000 + (u64::from(tensor) << 20))
    }

    #[test]
    fn a_gradient_without_a_tensor_is_in_the_workspace() {
        let [scratch, own] = [8, 10].map(|tensor| address(tensor).unwrap());
        let of = |dx| {
            let sums = [[Some((11, true)), None, None, None, None], [None; 5]];
            Places::of(&example(Pass::Backward { dy: 9, dx, sums }), &address)
        };
        assert_eq!([of(None).unwrap().dx, of(Some(10)).unwrap().dx], [scratch, own]);
        let sums = [[Some((address(11).unwrap(), true)), None, None, None, None], [None; 5]];
        assert_eq!(of(None).unwrap().sums, sums);
        let forward = Places::of(&example(Pass::Forward), &address).unwrap();
        assert_eq!((forward.dx, forward.dy, forward.sums), (0, 0, [[None; 5]; 2]));
    }

    #[test]
    fn memory_in_the_wrong_place_is_an_error() {
        let error = Places::of(&example(Pass::Forward), &|_| Ok(128)).unwrap_err();
        assert!(error.to_string().contains("multiple of 256 bytes"), "{error}");
    }
}
