//! Convolutions through cuDNN: what it needs to know of each is made once, when a network is loaded; a step only hands it
//! over. Those in f32 are asked for by algorithm ([`legacy`], as NVIDIA calls these functions), those in 16 bits by engine
//! ([`graph`]): only there does the library say which of them use the tensor cores of images with channels last.
//!
//! Scratch memory is the program's: the library gets the workspace that the plan gave to the operation, and nothing else. An
//! algorithm is chosen by the library's heuristics among those that this is enough for, and tried once on the network's own
//! memory while there is nothing in it yet, since the library says only then what it does not support after all. Each trial
//! is waited for before anything else is decided. Unless it is asked for, nothing is timed ([`Race`](super::race::Race)): the same network
//! gets the same algorithms on the same card.
//!
//! Recurrent layers ([`recurrence`]) have one algorithm, and the memory that the network has planned for it.
//!
//! The handle works on the session's stream from the start, so that a step makes no call but those that enqueue work, and can
//! be captured into a graph. NVIDIA's documentation promises that for these functions in no single place: PyTorch captures the
//! same ones, and the library's header says that graphs captured from it must not outlive what they were captured from,
//! which the order of a session's fields sees to.

pub(crate) mod functions;
pub(crate) mod graph;
mod legacy;
pub(crate) mod recurrence;

use super::plans::{Address, Planned};
use crate::calls::product::Element;
use crate::calls::{Attention, Convolution, Recurrence};
use crate::context::bind;
use crate::notice::notice;
use cudarc::cudnn::result::{self, CudnnError};
use cudarc::cudnn::sys::{self, cudnnDataType_t as DataType, cudnnStatus_t as Status};
use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUdeviceptr;
use gpumem_core::error::Error;
use legacy::Choice;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

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
    /// The same of those in 16 bits.
    engines: graph::Known<Convolution>,
    /// Which passes of recurrent layers it computes, of any tensors, forward and backward.
    recurrences: Mutex<BTreeMap<(Recurrence, bool), bool>>,
    /// Those for attention.
    attentions: graph::Known<Attention>,
    /// The stream that the handle works on.
    stream: Arc<CudaStream>,
    /// Whether algorithms are timed.
    autotune: bool,
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
    /// Readies the library, which [`preflight`](super::preflight) has found, for a network whose work is on `stream`. With `autotune`,
    /// algorithms are timed. `None` if it does not support the card, which is said on stderr.
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
        // SAFETY: both were made for this context, and the handle holds the stream.
        unsafe { result::set_stream(handle.handle, stream.cu_stream().cast()) }
            .map_err(failure("taking a stream".into()))?;
        Ok(Some(Library(Arc::new(handle))))
    }

    fn choices(&self) -> MutexGuard<'_, BTreeMap<Convolution, Option<Choice>>> {
        self.0.choices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recurrences(&self) -> MutexGuard<'_, BTreeMap<(Recurrence, bool), bool>> {
        self.0.recurrences.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the trial of a convolution.
    fn wait(&self, name: &str) -> Result<(), Error> {
        self.0.stream.synchronize().map_err(crate::error::failure(&format!("cuDNN: trying {name}")))
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

/// Whether another way may do where this one failed: the library knows no such thing, or takes a parameter for wrong, which is
/// what it says of some combinations that it does not support.
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
    /// How the library computes it.
    pub(crate) fn choice(&self) -> crate::profile::Choice {
        match self {
            Plan::Legacy(plan) => plan.choice(),
            Plan::Graph(plan) => plan.choice(),
        }
    }

    /// Enqueues the convolution on the session's stream.
    ///
    /// # Errors
    /// [`Error::Device`] with the convolution and what the library said.
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

    // Its tensors hold nothing yet: a new convolution is tried.
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

    // As for convolutions.
    fn plan(&self, library: &Library, address: &Address<'_>) -> Result<Option<Plan>, Error> {
        Ok(graph::Plan::of_attention(library, self, address)?.map(Plan::Graph))
    }
}

#[cfg(test)]
mod tests;
