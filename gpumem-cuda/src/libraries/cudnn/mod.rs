//! Convolutions through cuDNN: what it needs to know of each is made once, when a network is loaded; a step only hands it
//! over.
//!
//! Scratch memory is the program's: the library gets the workspace that the plan gave to the operation, and nothing else. An
//! algorithm is chosen by the library's heuristics among those that this is enough for, and tried once on the network's own
//! memory while there is nothing in it yet, since the library says only then what it does not support after all. Each trial
//! is waited for before anything else is decided. Nothing is timed: the same network gets the same algorithms on the same
//! card.
//!
//! The handle works on the session's stream from the start, so that a step makes no call but those that enqueue work, and can
//! be captured into a graph. NVIDIA's documentation promises that for these functions in no single place: PyTorch captures the
//! same ones, and the library's header says that graphs captured from it must not outlive what they were captured from,
//! which the order of a session's fields sees to.

mod algorithms;
mod descriptors;
pub(crate) mod functions;

use super::plans::{Address, Planned};
use crate::calls::Convolution;
use crate::context::bind;
use crate::notice::notice;
use algorithms::{Algorithm, Choice, Tail, ranked, tails, workspace};
use cudarc::cudnn::result::{self, CudnnError};
use cudarc::cudnn::sys::{self, cudnnConvolutionFwdAlgo_t as ForwardAlgorithm, cudnnStatus_t as Status};
use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUdeviceptr;
use descriptors::{Description, math};
use gpumem_core::error::Error;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, Once, PoisonError};

/// Bytes that the start of a workspace must be a multiple of.
const ALIGNMENT: u64 = 256;

/// A failure of the library as an error.
fn failure(what: String) -> impl Fn(CudnnError) -> Error {
    move |error| Error::failed_because("CUDA", format!("cuDNN: {what}: {:?}", error.0), error)
}

/// Whether the library says that it has no such thing, rather than that something went wrong: 3000 and up, but not 4000.
fn is_unsupported(error: CudnnError) -> bool {
    (3000..4000).contains(&(error.0 as u32))
}

fn refused_card(error: CudnnError) {
    notice(&format!(
        "cuDNN does not support this card ({:?}): convolutions run on gpumem's own kernels; an older version of the library may \
         support it",
        error.0
    ));
}

/// The library, ready for one network.
#[derive(Clone, Debug)]
pub(crate) struct Library(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    handle: sys::cudnnHandle_t,
    /// How convolutions of any tensors are computed, with `None` for those that there is no algorithm for.
    choices: Mutex<BTreeMap<Convolution, Option<Choice>>>,
    /// The stream that the handle works on.
    stream: Arc<CudaStream>,
    /// Said once: it does not support the card.
    told: Once,
}

impl Drop for Handle {
    fn drop(&mut self) {
        if bind(self.stream.context()).is_ok() {
            // SAFETY: made in `Library::new`; every plan that uses it holds it, and is gone therefore. A failure to free it
            // leaves nothing to do.
            let _ = unsafe { result::destroy_handle(self.handle) };
        }
    }
}

// SAFETY: a handle may be used by any thread whose context is bound, by one at a time. Only the session that it was made for
// has it: when it is loaded, and to launch, for which it must be borrowed mutably.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Library {
    /// Readies the library, which [`preflight`](super::preflight) has found, for a network whose work is on `stream`. `None` if
    /// it does not support the card, which is said on stderr.
    ///
    /// # Errors
    /// [`Error::Device`] if it does not start.
    pub(crate) fn new(stream: &Arc<CudaStream>) -> Result<Option<Library>, Error> {
        bind(stream.context())?;
        let Some(handle) = handle()? else { return Ok(None) };
        let handle = Handle { handle, choices: Mutex::default(), stream: stream.clone(), told: Once::new() };
        // SAFETY: both were made for this context, and the handle holds the stream.
        unsafe { result::set_stream(handle.handle, stream.cu_stream().cast()) }
            .map_err(failure("taking a stream".into()))?;
        Ok(Some(Library(Arc::new(handle))))
    }

    /// Says it if it is the card that the library does not support.
    fn note(&self, error: CudnnError) {
        if error.0 == Status::CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH {
            self.0.told.call_once(|| refused_card(error));
        }
    }
}

/// A handle for the current context, if the library supports its card. The library must have been found.
fn handle() -> Result<Option<sys::cudnnHandle_t>, Error> {
    match result::create_handle() {
        Ok(handle) => Ok(Some(handle)),
        Err(error) if is_unsupported(error) => {
            refused_card(error);
            Ok(None)
        }
        Err(error) => {
            let what = "making a handle (a network runs without the library on `Cuda::with_cudnn(false)`)";
            Err(failure(what.into())(error))
        }
    }
}

/// Where everything is that a convolution works on; 0 for what it has not.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Places {
    x: CUdeviceptr,
    w: CUdeviceptr,
    y: CUdeviceptr,
    bias: CUdeviceptr,
    /// The workspace and its bytes.
    workspace: (CUdeviceptr, usize),
}

impl Places {
    fn of(convolution: &Convolution, address: &Address<'_>) -> Result<Places, Error> {
        let Convolution { x, w, y, bias, workspace, .. } = convolution;
        let start = workspace.map_or(Ok(0), |workspace| address(workspace.tensor))?;
        if !start.is_multiple_of(ALIGNMENT) {
            return Err(Error::Damaged("the workspace of a convolution does not begin at a multiple of 256 bytes"));
        }
        let size = usize::try_from(workspace.map_or(0, |workspace| workspace.bytes));
        let size = size.map_err(|_| Error::Damaged("the workspace of a convolution is larger than any memory"))?;
        let bias = bias.map_or(Ok(0), address)?;
        Ok(Places { x: address(*x)?, w: address(*w)?, y: address(*y)?, bias, workspace: (start, size) })
    }
}

/// A convolution with its addresses and its algorithm.
#[derive(Debug)]
pub(crate) struct Plan {
    // Fields are dropped in this order: the handle last.
    description: Description,
    choice: Choice,
    places: Places,
    /// What the result's former contents are multiplied with.
    beta: f32,
    name: String,
    library: Library,
}

// SAFETY: descriptors are memory of the library's that belongs to this plan and is not changed after `new`; the addresses are
// numbers to the host.
unsafe impl Send for Plan {}
// SAFETY: as above; what a launch does with the handle, it does for the one who has the session mutably.
unsafe impl Sync for Plan {}

impl Plan {
    /// `None` if the library has no algorithm for the convolution.
    fn new(library: &Library, convolution: &Convolution, address: &Address<'_>) -> Result<Option<Plan>, Error> {
        let places = Places::of(convolution, address)?;
        let known = {
            let choices = library.0.choices.lock().unwrap_or_else(PoisonError::into_inner);
            choices.get(&convolution.of_any()).copied()
        };
        if known == Some(None) {
            return Ok(None);
        }
        let name = convolution.to_string();
        let description = match Description::new(convolution) {
            Ok(description) => description,
            Err(error) if is_unsupported(error) => return Ok(None),
            Err(error) => return Err(failure(format!("describing {name}"))(error)),
        };
        // Every step of a choice replaces it.
        let nothing = Choice {
            algorithm: Algorithm::Forward(ForwardAlgorithm::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM),
            math: math(convolution),
            tail: Tail::None,
            memory: 0,
        };
        let beta = if convolution.accumulate { 1.0 } else { 0.0 };
        let mut plan = Plan { description, choice: nothing, places, beta, name, library: library.clone() };
        let choice = match known.flatten() {
            Some(choice) => Some(choice),
            None => {
                let choice = plan.choose(convolution)?;
                let mut choices = library.0.choices.lock().unwrap_or_else(PoisonError::into_inner);
                choices.insert(convolution.of_any(), choice);
                choice
            }
        };
        let Some(choice) = choice else { return Ok(None) };
        plan.take(choice).map_err(failure(format!("describing {}", plan.name)))?;
        Ok(Some(plan))
    }

    fn take(&mut self, choice: Choice) -> Result<(), CudnnError> {
        self.choice = choice;
        self.description.windows.set_math(choice.math)
    }

    /// The first way to compute the convolution, in the order of the library's heuristics, that keeps within the workspace and
    /// that the library does not refuse when it is tried. What is tried leaves nothing of worth in the tensors.
    fn choose(&mut self, convolution: &Convolution) -> Result<Option<Choice>, Error> {
        let failure = |name: &str| failure(format!("choosing an algorithm for {name}"));
        let handle = self.library.0.handle;
        let ranked = match ranked(handle, convolution.pass, &self.description) {
            Ok(ranked) => ranked,
            Err(error) if is_unsupported(error) => {
                self.library.note(error);
                return Ok(None);
            }
            Err(error) => return Err(failure(&self.name)(error)),
        };
        let bytes = self.places.workspace.1;
        for candidate in ranked {
            let Some(math) = candidate.usable(convolution, bytes) else { continue };
            let algorithm = candidate.algorithm;
            for &tail in tails(convolution, algorithm) {
                let choice = Choice { algorithm, math, tail, memory: 0 };
                match self.attempt(choice) {
                    Ok(Some(choice)) => {
                        // A kernel that fails has broken the context: there is no other algorithm to try.
                        let what = format!("cuDNN: trying {}", self.name);
                        self.library.0.stream.synchronize().map_err(crate::error::failure(&what))?;
                        return Ok(Some(choice));
                    }
                    Ok(None) => {}
                    Err(error) if is_refused(error) => self.library.note(error),
                    Err(error) => return Err(failure(&self.name)(error)),
                }
            }
        }
        Ok(None)
    }

    /// Tries a choice, with the scratch memory that the library says it takes; `None` if there is less.
    fn attempt(&mut self, choice: Choice) -> Result<Option<Choice>, CudnnError> {
        self.take(choice)?;
        let memory = workspace(self.library.0.handle, choice.algorithm, &self.description)?;
        if memory > self.places.workspace.1 {
            return Ok(None);
        }
        self.choice.memory = memory;
        self.run()?;
        Ok(Some(self.choice))
    }

    /// Enqueues the convolution on the session's stream.
    ///
    /// # Errors
    /// [`Error::Device`] with the convolution and what the library said.
    pub(crate) fn launch(&self) -> Result<(), Error> {
        self.run().map_err(|error| failure(self.name.clone())(error))
    }

    fn run(&self) -> Result<(), CudnnError> {
        let Plan { description, choice, library, .. } = self;
        let (handle, alpha, beta) = (library.0.handle, 1f32, self.beta);
        let (one, beta): (*const c_void, *const c_void) = ((&raw const alpha).cast(), (&raw const beta).cast());
        let (x_layout, w_layout, y_layout) = (description.x.0, description.w.0, description.y.0);
        let windows = description.windows.0;
        let Places { x, w, y, .. } = self.places;
        let (x, w, y) = (x as *mut c_void, w as *mut c_void, y as *mut c_void);
        let memory = choice.memory;
        let scratch = if memory == 0 { std::ptr::null_mut() } else { self.places.workspace.0 as *mut c_void };
        // SAFETY: handle and descriptors live as long as this plan. The addresses are of tensors in the arena, which outlives
        // every plan, each of the length that its descriptor says, because `Session` binds a convolution to the tensors of
        // the program that it was made from; the workspace has the bytes that the algorithm takes. Alpha and beta are f32 on
        // the host, as the library wants it for all of these formats, and are read before the call returns.
        unsafe {
            match choice.algorithm {
                Algorithm::Forward(algorithm) if choice.tail == Tail::Fused => self.fused(algorithm, one, scratch),
                Algorithm::Forward(algorithm) => {
                    result::convolution_forward(
                        handle, one, x_layout, x, w_layout, w, windows, algorithm, scratch, memory, beta, y_layout, y,
                    )?;
                    if choice.tail == Tail::Apart { self.add_bias(one) } else { Ok(()) }
                }
                Algorithm::Data(algorithm) => result::convolution_backward_data(
                    handle, one, w_layout, w, y_layout, y, windows, algorithm, scratch, memory, beta, x_layout, x,
                ),
                Algorithm::Filter(algorithm) => result::convolution_backward_filter(
                    handle, one, x_layout, x, y_layout, y, windows, algorithm, scratch, memory, beta, w_layout, w,
                ),
            }
        }
    }

    /// The forward pass with its bias and what follows.
    ///
    /// # Safety
    /// As in `run`, whose `one` and workspace are given.
    unsafe fn fused(
        &self,
        algorithm: ForwardAlgorithm,
        one: *const c_void,
        scratch: *mut c_void,
    ) -> Result<(), CudnnError> {
        let Description { x, w, y, windows, bias } = &self.description;
        let Some((bias, following)) = bias else { return Err(CudnnError(Status::CUDNN_STATUS_BAD_PARAM)) };
        let Places { x: x_at, w: w_at, y: y_at, bias: bias_at, .. } = self.places;
        let none = 0f32;
        // SAFETY: as in `run`. What is added is the result's former contents times zero: the library wants a tensor for it.
        unsafe {
            result::convolution_bias_activation_forward(
                self.library.0.handle,
                one,
                x.0,
                x_at as *const c_void,
                w.0,
                w_at as *const c_void,
                windows.0,
                algorithm,
                scratch,
                self.choice.memory,
                (&raw const none).cast(),
                y.0,
                y_at as *const c_void,
                bias.0,
                bias_at as *const c_void,
                following.0,
                y.0,
                y_at as *mut c_void,
            )
        }
    }

    /// Adds the bias to the output.
    ///
    /// # Safety
    /// As in `run`, whose `one` is given.
    unsafe fn add_bias(&self, one: *const c_void) -> Result<(), CudnnError> {
        let Description { y, bias, .. } = &self.description;
        let Some((bias, _)) = bias else { return Err(CudnnError(Status::CUDNN_STATUS_BAD_PARAM)) };
        let (from, to) = (self.places.bias as *const c_void, self.places.y as *mut c_void);
        // SAFETY: as in `run`.
        unsafe { sys::cudnnAddTensor(self.library.0.handle, one, bias.0, from, one, y.0, to) }.result()
    }
}

/// Whether another way may do where this one failed: the library knows no such thing, or takes a parameter for wrong, which is
/// what it says of some combinations that it does not support.
fn is_refused(error: CudnnError) -> bool {
    is_unsupported(error) || (2000..3000).contains(&(error.0 as u32))
}

impl Planned for Convolution {
    type Library = Library;
    type Plan = Plan;

    // Its tensors hold nothing yet: a new convolution is tried.
    fn plan(&self, library: &Library, address: &Address<'_>) -> Result<Option<Plan>, Error> {
        Plan::new(library, self, address)
    }
}

#[cfg(test)]
mod tests;
