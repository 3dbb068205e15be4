//! Convolutions, attention and recurrent layers by cuDNN. Descriptors and algorithms are made once, when a network is loaded; a step only enqueues
//! them.
//!
//! f32 convolutions are chosen by algorithm ([`legacy`], NVIDIA's word for these functions), 16-bit ones by engine ([`graph`]): only there does the
//! library report which engines use tensor cores on images with channels last.
//!
//! Scratch memory is the program's: the library gets the workspace that the plan gave to the operation, and nothing else. An algorithm is chosen by
//! the library's heuristics among those that need no more. It is run once on the network's own memory, which holds nothing yet, because only then
//! does the library report what it does not support. Each trial is waited for before the next decision. Unless autotuning is on, nothing is timed
//! ([`Race`](super::autotune::Race)), so that a network always gets the same algorithms on a card.
//!
//! Recurrent layers ([`recurrence`]) have one algorithm, and the memory that the network has planned for it.
//!
//! The handle uses the session's stream from the start, so that a step makes only calls that enqueue work, and can be captured into a graph.
//! NVIDIA's documentation does not promise this for these functions in any one place. PyTorch captures these functions too, and the library's
//! header says that graphs captured from it must not outlive what they were captured from. The order of a session's fields ensures that.

pub(crate) mod functions;
pub(crate) mod graph;
mod legacy;
pub(crate) mod recurrence;

use super::plan_cache::{Address, Planned};
use crate::calls::product::Element;
use crate::calls::{Attention, Convolution, Recurrence};
use crate::context::bind;
use crate::warning::notice;
use cudarc::cudnn::result::{self, CudnnError};
use cudarc::cudnn::sys::{self, cudnnDataType_t as DataType, cudnnStatus_t as Status};
use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUdeviceptr;
use gpumem_core::error::Error;
use legacy::AlgorithmChoice;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

/// Alignment of the start of a workspace, in bytes.
const ALIGNMENT: u64 = 256;

/// Returns a conversion of the library's failure to an error that names the failed call, `what`.
fn failure(what: String) -> impl Fn(CudnnError) -> Error {
    move |error| Error::failed_because("CUDA", format!("cuDNN: {what}: {:?}", error.0), error)
}

/// True if the library does not support a request: statuses from 3000 to 3999. False if something went wrong.
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
    /// The algorithm of each f32 convolution without its tensors; `None` if there is none.
    choices: Mutex<BTreeMap<Convolution, Option<AlgorithmChoice>>>,
    /// The engine of each 16-bit convolution.
    engines: graph::Known<Convolution>,
    /// True for each pass of a recurrent layer that the library can compute. The key is the layer without its tensors, and true for the backward
    /// pass.
    recurrences: Mutex<BTreeMap<(Recurrence, bool), bool>>,
    /// The engine of each attention.
    attentions: graph::Known<Attention>,
    /// The stream of the handle.
    stream: Arc<CudaStream>,
    /// True if algorithms are timed.
    autotune: bool,
    /// Guards the notice that the library does not support the card, which is printed once.
    told: Once,
}

impl Drop for Handle {
    fn drop(&mut self) {
        if bind(self.stream.context()).is_ok() {
            // SAFETY: made in `Library::new`; every plan that uses it owns a reference to it, so all plans are gone. A failure to free it leaves
            // nothing to do.
            let _ = unsafe { result::destroy_handle(self.handle) };
        }
    }
}

// SAFETY: a handle may be used by any thread whose context is bound, by one at a time. Only the session that it was made for uses it: when it is
// loaded, and to launch, for which it must be borrowed mutably.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Library {
    /// Prepares the library, which [`preflight`](super::preflight) has found, for a network on `stream`. With `autotune`, algorithms are timed.
    /// Returns `None` if the library does not support the card, and says so on stderr.
    ///
    /// # Errors
    /// [`Error::Device`] if it does not start.
    pub(crate) fn new(stream: &Arc<CudaStream>, autotune: bool) -> Result<Option<Library>, Error> {
        bind(stream.context())?;
        let Some(handle) = handle()? else { return Ok(None) };
        let handle = Handle {
            handle,
            choices: Mutex::default(),
            engines: Mutex::default(),
            recurrences: Mutex::default(),
            attentions: Mutex::default(),
            stream: stream.clone(),
            autotune,
            told: Once::new(),
        };
        // SAFETY: both were made for this context, and the handle keeps the stream alive.
        unsafe { result::set_stream(handle.handle, stream.cu_stream().cast()) }
            .map_err(failure("taking a stream".into()))?;
        Ok(Some(Library(Arc::new(handle))))
    }

    fn choices(&self) -> MutexGuard<'_, BTreeMap<Convolution, Option<AlgorithmChoice>>> {
        self.0.choices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recurrences(&self) -> MutexGuard<'_, BTreeMap<(Recurrence, bool), bool>> {
        self.0.recurrences.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a trial to end.
    fn wait(&self, name: &str) -> Result<(), Error> {
        self.0.stream.synchronize().map_err(crate::error::failure(&format!("cuDNN: trying {name}")))
    }

    /// Prints a notice if the library does not support the card.
    fn note(&self, error: CudnnError) {
        if error.0 == Status::CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH {
            self.0.told.call_once(|| refused_card(error));
        }
    }
}

/// Returns a handle for the current context; `None` if the library does not support its card. The library must have been found.
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

/// Addresses of the tensors of a convolution; 0 for those that it lacks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Places {
    x: CUdeviceptr,
    w: CUdeviceptr,
    y: CUdeviceptr,
    bias: CUdeviceptr,
    addend: CUdeviceptr,
    /// The workspace and its bytes.
    workspace: (CUdeviceptr, usize),
}

impl Places {
    fn of(convolution: &Convolution, address: &Address<'_>) -> Result<Places, Error> {
        let Convolution { x, w, y, bias, addend, workspace, .. } = convolution;
        let start = workspace.map_or(Ok(0), |workspace| address(workspace.tensor))?;
        if !start.is_multiple_of(ALIGNMENT) {
            return Err(Error::Damaged("the workspace of a convolution does not begin at a multiple of 256 bytes"));
        }
        let size = usize::try_from(workspace.map_or(0, |workspace| workspace.bytes));
        let size = size.map_err(|_| Error::Damaged("the workspace of a convolution is larger than any memory"))?;
        let [bias, addend] = [bias, addend].map(|vector| vector.map_or(Ok(0), address));
        let (bias, addend, workspace) = (bias?, addend?, (start, size));
        Ok(Places { x: address(*x)?, w: address(*w)?, y: address(*y)?, bias, addend, workspace })
    }
}

/// True if another algorithm may still work: the library does not support this one, or calls a parameter wrong, which it also does for some
/// unsupported combinations.
fn is_refused(error: CudnnError) -> bool {
    is_unsupported(error) || (2000..3000).contains(&(error.0 as u32))
}

fn data_type(element: Element) -> DataType {
    match element {
        Element::F32 => DataType::CUDNN_DATA_FLOAT,
        Element::Bf16 => DataType::CUDNN_DATA_BFLOAT16,
        Element::F16 => DataType::CUDNN_DATA_HALF,
    }
}

/// A convolution that is ready to run.
#[derive(Debug)]
pub(crate) enum Plan {
    Legacy(legacy::Plan),
    Graph(graph::Plan),
}

impl Plan {
    /// Returns the algorithm and its settings.
    pub(crate) fn choice(&self) -> crate::profile::Choice {
        match self {
            Plan::Legacy(plan) => plan.choice(),
            Plan::Graph(plan) => plan.choice(),
        }
    }

    /// Enqueues the convolution on the session's stream.
    ///
    /// # Errors
    /// [`Error::Device`] with the convolution and the library's error.
    pub(crate) fn launch(&self) -> Result<(), Error> {
        match self {
            Plan::Legacy(plan) => plan.launch(),
            Plan::Graph(plan) => plan.launch(),
        }
    }
}

impl Planned for Convolution {
    type Library = Library;
    type Plan = Plan;

    // The tensors hold no data yet, so a new convolution is run once.
    fn plan(&self, library: &Library, address: &Address<'_>) -> Result<Option<Plan>, Error> {
        Ok(match self.element {
            Element::F32 => legacy::Plan::new(library, self, address)?.map(Plan::Legacy),
            Element::Bf16 | Element::F16 => graph::Plan::new(library, self, address)?.map(Plan::Graph),
        })
    }
}

impl Planned for Attention {
    type Library = Library;
    type Plan = Plan;

    // As for convolutions, a new one is run once.
    fn plan(&self, library: &Library, address: &Address<'_>) -> Result<Option<Plan>, Error> {
        Ok(graph::Plan::of_attention(library, self, address)?.map(Plan::Graph))
    }
}

#[cfg(test)]
mod tests;
