//! The numbers of a program that const evaluation needs: the tables `network!` writes into the user's crate.
//!
//! Structure (which operation touches which tensor) is settled at macro time. What remains is arithmetic over these
//! tables: bytes from element counts, offsets from lifetimes, the budget from both.

use crate::memory::refusal::Aim;
use crate::number::Role;

/// A tensor that lives inside a step, `[role, fixed, per_sample, first, last]`: `fixed + per_sample * batch` elements of
/// [`Role`] `role`, alive from operation `first` to operation `last`, both included.
pub type Transient = [u64; 5];

/// A tensor that lives as long as the network does, `[role, elements]`.
pub type Persistent = [u64; 2];

/// A parameter, `[role, elements, trained]`; the last is 1 or 0.
pub type Parameter = [u64; 3];

/// An input or target, `[role, per_sample]` elements.
pub type BatchTensor = [u64; 2];

/// Everything that const evaluation needs to know of one program, training or inference.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    /// Number of operations.
    pub operations: u64,
    /// The tensors that live inside the step, in the order of [`Program::transients`](crate::program::Program).
    pub transients: &'static [Transient],
    /// The parameters.
    pub parameters: &'static [Parameter],
    /// Running statistics, step counter, random state.
    pub buffers: &'static [Persistent],
    /// Inputs, and in training the targets. In training each exists twice: one half is filled while the other is read.
    pub batch: &'static [BatchTensor],
    /// Optimizer state tensors for each parameter that is trained: 0 for inference and plain SGD, 1 for SGD with momentum, 2 for Adam.
    pub moments: u64,
    /// Whether all gradients are held until the end of the step ([`Update::Separate`](crate::Update)).
    pub holds_gradients: bool,
    /// Whether this is a training step.
    pub training: bool,
    /// Four bytes an operation: its [`Phase`](crate::program::Phase) and the layer's row, `[phase, 0, row & 255, row >> 8]`.
    pub operation_tags: &'static [u8],
    /// Four bytes a transient: its [`Part`](crate::program::Part) and the layer's row, laid out as in `operation_tags`.
    pub transient_tags: &'static [u8],
    /// The path of each layer row, such as `stage[0].conv2d[1]`.
    pub paths: &'static [&'static str],
    /// The most bytes of one workspace.
    pub workspaces: Workspaces,
}

impl Tables {
    /// The same step with other caps on its workspaces.
    pub const fn with_workspaces(mut self, workspaces: Workspaces) -> Tables {
        self.workspaces = workspaces;
        self
    }
}

/// The most bytes of one operation's workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workspaces {
    /// Of a matrix product.
    pub product: u64,
    /// Of a convolution.
    pub convolution: u64,
}

/// What is customary for cuBLASLt, in bytes: on cards of compute capability 9.0 and above, and below.
const PRODUCT_WORKSPACE: [u64; 2] = [32 << 20, 4 << 20];

impl Workspaces {
    /// Every workspace has what could be of use.
    pub const UNLIMITED: Workspaces = Workspaces { product: u64::MAX, convolution: u64::MAX };

    /// The caps for networks with this aim: of matrix products what is customary for the newest card, or for the newest there is
    /// where no card is named.
    pub const fn aimed(aim: &Aim<'_>, convolution: u64) -> Workspaces {
        let [newer, older] = PRODUCT_WORKSPACE;
        Workspaces { product: if aim.reaches(9) { newer } else { older }, convolution }
    }

    /// Bytes of a tensor of this role that would take `bytes` bytes.
    pub const fn cap(&self, role: Role, bytes: u64) -> u64 {
        let most = match role {
            Role::ProductWorkspace => self.product,
            Role::ConvolutionWorkspace => self.convolution,
            _ => u64::MAX,
        };
        if bytes < most { bytes } else { most }
    }
}
