//! Recurrent layers: one call of the library's forward, two of its gradients, around which weights are copied into one piece, as it wants them,
//! and their gradients out of one.
//!
//! The layer has the reserve and the workspace that were planned for it. What the library asks for on this card is compared with that when a
//! network is loaded, and each pass is tried once, as convolutions are. What the forward pass keeps is the library's own, so that it decides for
//! the gradients: where it needs more memory, or is refused, the own kernels run in both.

mod descriptors;

use super::{ALIGNMENT, Library, failure, is_refused};
use crate::calls::Recurrence;
use crate::calls::recurrence::{Parts, Pass, Sum};
use crate::error::failure as driver_failure;
use crate::libraries::plans::{Address, Planned};
use crate::notice::notice;
use cudarc::cudnn::result::CudnnError;
use cudarc::cudnn::sys;
use cudarc::driver::CudaStream;
use cudarc::driver::sys::{self as driver, CUdeviceptr};
pub use descriptors::absent_sizes;
use descriptors::{Description, Tensor};
use gpumem_core::error::Error;
use std::ffi::c_void;
use std::ptr::{null, null_mut};

/// A piece of a weight or a bias: where it is, where in all weights it goes, and its bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Piece {
    /// Which of the weights, and bytes in front of it there.
    of: usize,
    at: u64,
    /// Bytes in front of it where all are in one piece.
    packed: u64,
    bytes: usize,
}

/// Why a layer could not be enqueued.
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
    // Fields are dropped in this order: the handle last.
    description: Description,
    call: Recurrence,
    pieces: Vec<Piece>,
    parts: Parts,
    /// Bytes of all weights, of the workspace and the reserve, as the library says.
    weights: usize,
    workspace: usize,
    reserve: usize,
    places: Places,
    name: String,
    library: Library,
}

/// Where everything is; 0 for what there is not.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Places {
    x: CUdeviceptr,
    y: CUdeviceptr,
    weights: [CUdeviceptr; 4],
    reserve: CUdeviceptr,
    workspace: CUdeviceptr,
    dy: CUdeviceptr,
    dx: CUdeviceptr,
    /// With whether each is added to.
    sums: [Option<(CUdeviceptr, bool)>; 4],
}

impl Places {
    fn of(it: &Recurrence, address: &Address<'_>) -> Result<Places, Error> {
        let [workspace, reserve] = [address(it.workspace.tensor)?, address(it.reserve.tensor)?];
        if ![workspace, reserve].iter().all(|start| start.is_multiple_of(ALIGNMENT)) {
            return Err(Error::Damaged("the memory of a recurrence does not begin at a multiple of 256 bytes"));
        }
        let mut weights = [0; 4];
        for (at, weight) in weights.iter_mut().zip(it.weights) {
            *at = weight.map_or(Ok(0), address)?;
        }
        let (dy, dx, wanted) = match it.pass {
            Pass::Forward => (0, 0, [None; 4]),
            Pass::Backward { dy, dx, sums } => (address(dy)?, dx.map_or(Ok(workspace), address)?, sums),
        };
        let mut sums = [None; 4];
        for (place, sum) in sums.iter_mut().zip(wanted) {
            *place = sum.map(|(tensor, adds): Sum| Ok::<_, Error>((address(tensor)?, adds))).transpose()?;
        }
        Ok(Places { x: address(it.x)?, y: address(it.y)?, weights, reserve, workspace, dy, dx, sums })
    }
}

// SAFETY: descriptors are memory of the library's that belongs to this plan and is not changed after `new`; the addresses are
// numbers to the host.
unsafe impl Send for Plan {}
// SAFETY: as above; what a launch does with the handle, it does for the one who has the session mutably.
unsafe impl Sync for Plan {}

impl Plan {
    /// `None` if the library has no such layer, or wants more memory for it than is planned, which the forward pass finds.
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

    /// Tries it while there is nothing of worth in the tensors: the library says only then what it does not support after all, and loads its
    /// kernels, which it cannot while a graph is captured.
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

    /// The layer as the library describes it, if it has one, in the memory that is planned.
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
        let pieces = pieces(&description, library, call, weights, places.workspace.saturating_add(parts.weights));
        let Some(pieces) = pieces.map_err(describing())? else { return Ok(None) };
        let library = library.clone();
        Ok(Some(Plan { description, call: *call, pieces, parts, weights, workspace, reserve, places, name, library }))
    }

    /// How the library computes it.
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
    /// [`Error::Device`] with the layer and what the library said.
    pub(crate) fn launch(&self, stream: &CudaStream) -> Result<(), Error> {
        self.launch_on(stream).map_err(|failed| failed.named(&self.name))
    }

    fn launch_on(&self, stream: &CudaStream) -> Result<(), Failed> {
        let Plan { parts, places, weights, .. } = self;
        let [all, sums] = [parts.weights, parts.sums].map(|part| places.workspace + part);
        for piece in &self.pieces {
            copy(all + piece.packed, places.weights[piece.of] + piece.at, piece.bytes, stream)?;
        }
        let (lengths, steps) = (places.workspace + parts.lengths, self.call.steps as u32);
        // SAFETY: the lengths have their place in the workspace, one word for each sample.
        unsafe { driver::cuMemsetD32Async(lengths, steps, self.call.batch as usize, stream.cu_stream()) }
            .result()
            .map_err(driver_failure("writing the lengths of sequences"))?;
        if self.call.pass == Pass::Forward {
            return Ok(self.forward()?);
        }
        self.backward_data()?;
        if places.sums.iter().all(Option::is_none) {
            return Ok(());
        }
        // The library adds.
        // SAFETY: the gradients have their place in the workspace.
        unsafe { driver::cuMemsetD8Async(sums, 0, *weights, stream.cu_stream()) }
            .result()
            .map_err(driver_failure("clearing gradients"))?;
        let wanted = || self.pieces.iter().filter_map(|piece| Some((piece, places.sums[piece.of]?)));
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
        let (state, training) = (description.state.0, sys::cudnnForwardMode_t::CUDNN_FWD_MODE_TRAINING);
        // SAFETY: handle and descriptors live as long as this plan. The addresses are of tensors in the arena, which outlives every plan,
        // each of the length that its descriptor says, because `Session` binds a call to the tensors of the program that it was made from;
        // reserve, weights and workspace have the bytes that the library asked for, as `new` has seen. What is null is a state before
        // the first step, which is 0 then, or one behind the last, which nobody wants.
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
                state,
                null(),
                null_mut(),
                state,
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
        let state = description.state.0;
        // SAFETY: as in `forward`; the gradient of what arrives has a tensor, or its place at the start of the workspace.
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
                state,
                null(),
                null(),
                null_mut(),
                state,
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
                description.state.0,
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

/// Copies from one place in the arena to another.
fn copy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: &CudaStream) -> Result<(), Error> {
    // SAFETY: both are pieces of tensors in the arena, or of their place in the workspace, as `pieces` has seen.
    unsafe { driver::cuMemcpyDtoDAsync_v2(to, from, bytes, stream.cu_stream()) }
        .result()
        .map_err(driver_failure("copying weights of a recurrence"))
}

/// Where the library has the weights and biases of each gate, of all weights at an address: those of the map, then those of the steps. The
/// gates have the order that they have in the network. `None` if it has them elsewhere than between there and the end.
fn pieces(
    description: &Description,
    library: &Library,
    call: &Recurrence,
    bytes: usize,
    start: CUdeviceptr,
) -> Result<Option<Vec<Piece>>, CudnnError> {
    let (gates, [matrix, bias]) = (call.cell.gates(), [Tensor::empty()?, Tensor::empty()?]);
    let [of_map, of_steps, of_bias] = call.gate_bytes();
    let mut pieces = Vec::new();
    for number in 0..2 * gates {
        let (side, gate) = ((number / gates) as usize, number % gates);
        let (mut weight_at, mut bias_at) = (null_mut(), null_mut());
        // SAFETY: handle and descriptors are alive, and both are valid places for an address. The library counts from the address of the
        // weights and reads nothing there.
        unsafe {
            sys::cudnnGetRNNWeightParams(
                library.0.handle,
                description.layer.0,
                0,
                bytes,
                start as *const c_void,
                number as i32,
                matrix.0,
                &raw mut weight_at,
                bias.0,
                &raw mut bias_at,
            )
        }
        .result()?;
        let found = [(side, weight_at, [of_map, of_steps][side]), (2 + side, bias_at, of_bias)];
        for (of, address, length) in found.into_iter().filter(|(of, ..)| call.weights[*of].is_some()) {
            let packed = (address as CUdeviceptr).checked_sub(start).filter(|_| !address.is_null());
            let is_inside = |packed: &u64| packed.checked_add(length).is_some_and(|end| end <= bytes as u64);
            let Some(packed) = packed.filter(is_inside) else { return Ok(None) };
            pieces.push(Piece { of, at: gate * length, packed, bytes: length as usize });
        }
    }
    Ok(Some(joined(pieces)))
}

/// The same with those as one that follow each other on both sides.
fn joined(mut pieces: Vec<Piece>) -> Vec<Piece> {
    pieces.sort_by_key(|piece| (piece.of, piece.at));
    let mut all: Vec<Piece> = Vec::new();
    for piece in pieces {
        match all.last_mut() {
            Some(last)
                if last.of == piece.of
                    && last.at + last.bytes as u64 == piece.at
                    && last.packed + last.bytes as u64 == piece.packed =>
            {
                last.bytes += piece.bytes;
            }
            _ => all.push(piece),
        }
    }
    all
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

    #[test]
    fn pieces_that_follow_each_other_are_one() {
        let piece = |of, at, packed, bytes| Piece { of, at, packed, bytes };
        // Gates in the order in which the library is asked for them: a weight and a bias each.
        let asked =
            vec![piece(0, 0, 0, 8), piece(2, 0, 32, 4), piece(0, 8, 8, 8), piece(2, 4, 36, 4), piece(1, 0, 16, 8)];
        assert_eq!(joined(asked), [piece(0, 0, 0, 16), piece(1, 0, 16, 8), piece(2, 0, 32, 8)]);
        // Another order of the library's is kept.
        let turned = vec![piece(0, 0, 8, 8), piece(0, 8, 0, 8)];
        assert_eq!(joined(turned.clone()), turned);
    }

    /// Each tensor a MiB after the one before.
    fn address(tensor: Argument) -> Result<CUdeviceptr, Error> {
        Ok(0x7f00_0000_0000 + (u64::from(tensor) << 20))
    }

    #[test]
    fn a_gradient_without_a_tensor_is_in_the_workspace() {
        let [scratch, own] = [8, 10].map(|tensor| address(tensor).unwrap());
        let of = |dx| {
            Places::of(&example(Pass::Backward { dy: 9, dx, sums: [Some((11, true)), None, None, None] }), &address)
        };
        assert_eq!([of(None).unwrap().dx, of(Some(10)).unwrap().dx], [scratch, own]);
        assert_eq!(of(None).unwrap().sums, [Some((address(11).unwrap(), true)), None, None, None]);
        let forward = Places::of(&example(Pass::Forward), &address).unwrap();
        assert_eq!((forward.dx, forward.dy, forward.sums), (0, 0, [None; 4]));
    }

    #[test]
    fn memory_in_the_wrong_place_is_an_error() {
        let error = Places::of(&example(Pass::Forward), &|_| Ok(128)).unwrap_err();
        assert!(error.to_string().contains("multiple of 256 bytes"), "{error}");
    }
}
