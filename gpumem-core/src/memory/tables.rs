//! The numbers of a program that const evaluation needs: the tables `network!` writes into the user's crate.
//!
//! Structure (which operation touches which tensor) is settled at macro time. What remains is arithmetic over these
//! tables: bytes from element counts, offsets from lifetimes, the budget from both.

use crate::memory::refusal::Aim;
use crate::number::Role;

/// A tensor that lives inside a step, `[role, fixed, per_sample, gaps, first, last]`: `fixed + per_sample * batch` elements of
/// [`Role`] `role`, in formats of 16 bits `gaps * batch` more, alive from operation `first` to operation `last`, both included.
pub type Transient = [u64; 6];

/// A size that tensors inside a step have, `[role, fixed, per_sample, gaps, first, is_workspace]`: elements as those of [`Transient`],
/// the index of the first tensor that has it, and 1 if it is that of workspaces, else 0.
pub type Size = [u64; 6];

/// Tensors that live as long as the network does, `[role, elements, count]`.
pub type Persistent = [u64; 3];

/// Parameters, `[role, elements, trained, count]`; `trained` is [`NOT_TRAINED`], [`TRAINED`] or [`TRAINED_ELSEWHERE`].
pub type Parameter = [u64; 4];

/// No step of the network changes the parameter.
pub const NOT_TRAINED: u64 = 0;

/// This step changes the parameter, or the network has no several steps and its training changes it.
pub const TRAINED: u64 = 1;

/// Another step of the network changes the parameter, so that it has a master copy and no gradient here.
pub const TRAINED_ELSEWHERE: u64 = 2;

/// An input or target, or an activation in host memory: `[role, per_sample]` elements.
pub type BatchTensor = [u64; 2];

/// What is kept of a sequence, `[role, row, steps, count]`: `row` elements for each of `steps` steps of each sample, or where `steps` is 0,
/// `row` elements of each sample however many steps there are.
pub type CacheTensor = [u64; 4];

/// The tensors that live inside a step, in the order of [`Program::transients`](crate::program::Program).
///
/// Few sizes are shared by many tensors, and of all operations a few can be the peak: const evaluation takes about a microsecond a
/// step, so it works on these.
#[derive(Clone, Copy, Debug)]
pub struct Transients {
    /// The sizes, in the order of the first tensor that has each.
    pub sizes: &'static [Size],
    /// Each tensor: its size and the operations between which it is alive, as [`life`] packs them.
    pub lives: &'static [u64],
    /// `[operation, end]`: the operations of which one is the peak, at any batch and in any format. What changes from the one before
    /// it is in `changes` before `end`, from where that one ends.
    pub moments: &'static [[u32; 2]],
    /// `[size, tensors]`: how many more tensors of a size are alive.
    pub changes: &'static [[i32; 2]],
    /// Packings that the macro found, the best guess first.
    pub orders: &'static [Order],
    /// Of each tensor what lies right below it in the first order when it begins, as [`below`](crate::memory::plan::below) has it: the orders
    /// agree on most neighbours. Empty where there is no order.
    pub below: &'static [u32],
}

/// A packing, as far as it does not depend on sizes.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// See [`order`](crate::memory::plan::order).
    pub entries: &'static [u64],
    /// Bytes of the packing, of the tensors that it was found for.
    pub size: u64,
    /// The lower bound of those.
    pub lower_bound: u64,
    /// Where each of those tensors lies, or nothing: sizes of other bytes than these are placed by the entries.
    pub offsets: &'static [u64],
    /// Padded bytes of each size.
    pub bytes: &'static [u64],
}

/// Bits of an operation's number in [`life`].
const LIFE_BITS: u32 = 22;

/// The bits of one.
const LIFE_MASK: u64 = (1 << LIFE_BITS) - 1;

/// The size and the life of a tensor in one number. What has no room in it is the largest number there, which no plan accepts.
pub const fn life(size: u64, first: u64, last: u64) -> u64 {
    let most_sizes = u64::MAX >> (2 * LIFE_BITS);
    let size = if size < most_sizes { size } else { most_sizes };
    let first = if first < LIFE_MASK { first } else { LIFE_MASK };
    let last = if last < LIFE_MASK { last } else { LIFE_MASK };
    (size << (2 * LIFE_BITS)) | (first << LIFE_BITS) | last
}

/// What [`life`] packed: the size, the first and the last operation.
pub(super) const fn unpack(life: u64) -> (usize, u32, u32) {
    ((life >> (2 * LIFE_BITS)) as usize, (life >> LIFE_BITS & LIFE_MASK) as u32, (life & LIFE_MASK) as u32)
}

/// The size of a tensor, of those that [`life`] packed.
pub(crate) const fn size_of(life: u64) -> usize {
    unpack(life).0
}

impl Transients {
    /// No tensor.
    pub const NONE: Transients =
        Transients { sizes: &[], lives: &[], moments: &[], changes: &[], orders: &[], below: &[] };
}

/// Everything that const evaluation needs to know of one program, training or inference.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    /// Number of operations.
    pub operations: u64,
    /// The tensors that live inside the step.
    pub transients: Transients,
    /// The parameters, those that are alike as one.
    pub parameters: &'static [Parameter],
    /// Running statistics, step counter, random state, and all states of optimizers if one has states that are smaller than their
    /// parameters or the network has several steps; those that are alike as one.
    pub buffers: &'static [Persistent],
    /// Inputs, and in training the targets. In training each exists twice: one half is filled while the other is read.
    pub batch: &'static [BatchTensor],
    /// Keys and values that a forward pass with a cache keeps, those that are alike as one.
    pub caches: &'static [CacheTensor],
    /// Optimizer state tensors of its size for each parameter that is trained, if they are not among `buffers`: 0 for inference and plain SGD, 1 for SGD with momentum, 2 for Adam, 3 at most.
    pub moments: u64,
    /// True if each parameter that is trained has a moving average in f32.
    pub averages: bool,
    /// Whether all gradients are held until the end of the step ([`Update::Separate`](crate::Update)).
    pub holds_gradients: bool,
    /// Whether gradients of weights that have master copies are held in f32, as these are.
    pub wide_sums: bool,
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
    /// Parts of a batch that run one after the other, in the same memory: at least 1.
    pub micro_batches: u64,
    /// Whether optimizer state and master copies lie in host memory.
    pub offloads: bool,
    /// Activations whose contents lie in host memory for a while of each part of a batch.
    pub parked: &'static [BatchTensor],
    /// The name of the step's constant, of a network with named steps; else empty.
    pub step: &'static str,
}

impl Tables {
    /// The same step with other caps on its workspaces.
    pub const fn with_workspaces(mut self, workspaces: Workspaces) -> Tables {
        self.workspaces = workspaces;
        self
    }

    /// The same step, or a forward pass beside it, for so many parts of a batch.
    pub const fn with_micro_batches(mut self, micro_batches: u64) -> Tables {
        self.micro_batches = micro_batches;
        self
    }

    /// Samples that are in memory at once, of a batch: those of one part.
    pub const fn samples(&self, batch: u64) -> u64 {
        samples(batch, self.micro_batches)
    }

    /// Whether anything lies in host memory.
    pub const fn has_host(&self) -> bool {
        self.offloads || !self.parked.is_empty()
    }
}

/// Samples of a part of a batch. Where it does not divide the batch, the largest part counts.
pub const fn samples(batch: u64, micro_batches: u64) -> u64 {
    batch.div_ceil(if micro_batches > 0 { micro_batches } else { 1 })
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
