//! Tables of a program: the numbers that const evaluation needs, which `network!` writes into the user's crate.
//!
//! Generated code has them as statics. Native code borrows them from an [`OwnedTables`](crate::lower::OwnedTables).
//!
//! The macro settles the structure, which is which operation touches which tensor. All that remains is arithmetic over these tables: bytes from
//! element counts, offsets from live ranges, the budget from both.

use crate::memory::target_cards::TargetCards;
use crate::number::Role;
use crate::train::Ranks;

/// A tensor that lives inside a step, `[role, fixed, per_sample, gaps, first, last]`. It has `fixed + per_sample * batch` elements of [`Role`]
/// `role`, and in 16-bit formats `gaps * batch` more. It is alive from operation `first` to operation `last`, both included.
pub type Transient = [u64; 6];

/// A size of tensors inside a step, `[role, fixed, per_sample, gaps, first, is_workspace]`. Elements are those of [`Transient`], `first` is the
/// index of the first tensor that has it, and `is_workspace` is 1 for workspaces, else 0.
pub type Size = [u64; 6];

/// Tensors that live as long as the network does, `[role, elements, count]`.
pub type Persistent = [u64; 3];

/// Parameters, `[role, elements, trained, count]`; `trained` is [`NOT_TRAINED`], [`TRAINED`] or [`TRAINED_ELSEWHERE`].
pub type Parameter = [u64; 4];

/// The mark of a parameter that no step of the network trains.
pub const NOT_TRAINED: u64 = 0;

/// The mark of a parameter that this step trains. In a network without named steps, its training does.
pub const TRAINED: u64 = 1;

/// The mark of a parameter that another step trains: it has a master copy and no gradient here.
pub const TRAINED_ELSEWHERE: u64 = 2;

/// An input or target, or an activation in host memory: `[role, per_sample]` elements.
pub type BatchTensor = [u64; 2];

/// A cache entry, `[role, row, steps, count]`: `row` elements for each of `steps` time steps of each sample. If `steps` is 0, it has `row`
/// elements for each sample, however many time steps there are.
pub type CacheTensor = [u64; 4];

/// The tensors that live inside a step, in the order of [`Program::transients`](crate::program::Program).
///
/// Few sizes are shared by many tensors, and of all operations a few can be the peak. Const evaluation takes about a microsecond for each
/// instruction, so it works on these.
#[derive(Clone, Copy, Debug)]
pub struct Transients<'a> {
    /// The sizes, in the order of the first tensor that has each.
    pub sizes: &'a [Size],
    /// The size and the live range of each tensor, as [`life`] packs them.
    pub lives: &'a [u64],
    /// Candidate peaks, as `[operation index, end]`: one of them is the peak, at any batch and in any format. `changes[previous end..end]` are
    /// the tensors that start or end since the candidate before.
    pub moments: &'a [[u32; 2]],
    /// Changes as `[size, tensors]`: how many more tensors of a size are alive.
    pub changes: &'a [[i32; 2]],
    /// Packings that the macro found, the best guess first. Empty natively, where nothing is replayed.
    pub orders: &'a [Order<'a>],
    /// The tensor directly below each tensor in the first order when that tensor begins, as [`below`](crate::memory::plan::below) has it. The
    /// orders agree on most neighbours. Empty without an order.
    pub below: &'a [u32],
}

/// An address order: a packing, as far as it does not depend on sizes.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// See [`order`](crate::memory::plan::order).
    pub entries: &'a [u64],
    /// Bytes of the packing, for the tensors that it was found for.
    pub size: u64,
    /// The lower bound of these tensors, in bytes.
    pub lower_bound: u64,
    /// The offset of each of these tensors, or nothing. Sizes of other bytes than these are placed by the entries.
    pub offsets: &'a [u64],
    /// Padded bytes of each size.
    pub bytes: &'a [u64],
}

/// The bits of an operation index in [`life`].
const LIFE_BITS: u32 = 22;

/// The mask of an operation index.
const LIFE_MASK: u64 = (1 << LIFE_BITS) - 1;

/// Packs the size and the live range of a tensor into one number. A number that does not fit becomes the largest, which no plan accepts.
pub const fn life(size: u64, first: u64, last: u64) -> u64 {
    let most_sizes = u64::MAX >> (2 * LIFE_BITS);
    let size = if size < most_sizes { size } else { most_sizes };
    let first = if first < LIFE_MASK { first } else { LIFE_MASK };
    let last = if last < LIFE_MASK { last } else { LIFE_MASK };
    (size << (2 * LIFE_BITS)) | (first << LIFE_BITS) | last
}

/// Returns what [`life`] packed: the size, and the first and the last operation.
pub(super) const fn unpack(life: u64) -> (usize, u32, u32) {
    ((life >> (2 * LIFE_BITS)) as usize, (life >> LIFE_BITS & LIFE_MASK) as u32, (life & LIFE_MASK) as u32)
}

/// Returns the size of a tensor that [`life`] packed.
pub(crate) const fn size_of(life: u64) -> usize {
    unpack(life).0
}

impl Transients<'static> {
    /// The tables of no tensor.
    pub const NONE: Transients<'static> =
        Transients { sizes: &[], lives: &[], moments: &[], changes: &[], orders: &[], below: &[] };
}

impl Transients<'_> {
    /// Returns the peak in bytes and an operation that reaches it, if sizes have these bytes. No packing is smaller. `None` if the sum does not
    /// fit 64 bits.
    pub(super) const fn peak(&self, bytes: &[u64]) -> Option<(u64, u32)> {
        let (mut live, mut most, mut at) = (0i128, 0, 0);
        let mut i = 0;
        let mut moment = 0;
        while moment < self.moments.len() {
            let [operation, end] = self.moments[moment];
            while i < end as usize {
                let [size, more] = self.changes[i];
                live += bytes[size as usize] as i128 * more as i128;
                i += 1;
            }
            if live > most {
                (most, at) = (live, operation);
            }
            moment += 1;
        }
        if most > u64::MAX as i128 { None } else { Some((most as u64, at)) }
    }
}

/// The paths of the layer rows, such as `stage[0].conv2d[1]`, one after the other in one text.
#[derive(Clone, Copy, Debug)]
pub struct Paths<'a> {
    /// All paths, without anything between them.
    pub text: &'a str,
    /// The end of each path in the text, in bytes.
    pub ends: &'a [u32],
}

impl<'a> Paths<'a> {
    /// The paths of a network without layers.
    pub const NONE: Paths<'static> = Paths { text: "", ends: &[] };

    /// Returns the path of a layer row; `None` if there is no such row.
    pub const fn get(&self, row: usize) -> Option<&'a str> {
        if row >= self.ends.len() {
            return None;
        }
        let start = if row == 0 { 0 } else { self.ends[row - 1] as usize };
        Some(self.text.split_at(self.ends[row] as usize).0.split_at(start).1)
    }
}

/// The tables of one program, training or inference.
#[derive(Clone, Copy, Debug)]
pub struct Tables<'a> {
    /// The number of operations.
    pub operations: u64,
    /// The tensors that live inside the step.
    pub transients: Transients<'a>,
    /// The parameters; those that are alike are one entry.
    pub parameters: &'a [Parameter],
    /// Running statistics, step counter and random state; those that are alike are one entry. All states of optimizers are here, too, if one has
    /// states that are smaller than their parameters or the network has several steps.
    pub buffers: &'a [Persistent],
    /// Inputs, and in training the targets. In training each exists twice: one half is filled while the other is read.
    pub batch: &'a [BatchTensor],
    /// Keys and values that a forward pass with a cache keeps; those that are alike are one entry.
    pub caches: &'a [CacheTensor],
    /// Optimizer states of each trained parameter that have its size, if they are not among `buffers`. 0 for inference and plain SGD, 1 for SGD
    /// with momentum, 2 for Adam, 3 at most.
    pub moments: u64,
    /// True if each parameter that is trained has a moving average in f32.
    pub averages: bool,
    /// True if all gradients live until the end of the step ([`Update::Separate`](crate::Update)).
    pub holds_gradients: bool,
    /// True if gradients of weights that have master copies are held in f32, as these are.
    pub wide_sums: bool,
    /// True for a training step.
    pub training: bool,
    /// Four bytes for each operation: its [`Phase`](crate::program::Phase) and the layer's row, `[phase, 0, row & 255, row >> 8]`.
    pub operation_tags: &'a [u8],
    /// Four bytes for each transient tensor: its [`Part`](crate::program::Part) and the layer's row, laid out as in `operation_tags`.
    pub transient_tags: &'a [u8],
    /// The path of each layer row.
    pub paths: Paths<'a>,
    /// The most bytes of one workspace.
    pub workspaces: Workspaces,
    /// The number of micro-batches, which run one after the other in the same memory: at least 1.
    pub micro_batches: u64,
    /// Parts of a batch, of which one is in the memory of a card at a time: micro-batches of all ranks.
    pub parts: u64,
    /// The ranks that share the step. Each has what these tables count, at its part of the batch.
    pub ranks: Ranks,
    /// True if optimizer state and master copies are in host memory.
    pub offloads: bool,
    /// Activations that are parked in host memory for a while of each micro-batch.
    pub parked: &'a [BatchTensor],
    /// The name of the step's constant; empty if the network has no named steps.
    pub step: &'a str,
}

impl<'a> Tables<'a> {
    /// Returns the tables with other limits of workspaces.
    pub const fn with_workspaces(mut self, workspaces: Workspaces) -> Tables<'a> {
        self.workspaces = workspaces;
        self
    }

    /// Returns the tables with the limits of workspaces for these target cards. One convolution may use `convolution` bytes.
    pub const fn for_cards(self, cards: &TargetCards<'_>, convolution: u64) -> Tables<'a> {
        self.with_workspaces(Workspaces::of(cards, convolution))
    }

    /// Returns the tables for another number of micro-batches, of a training step or of a network's forward pass.
    pub const fn with_micro_batches(mut self, micro_batches: u64) -> Tables<'a> {
        self.micro_batches = micro_batches;
        self.parts = micro_batches.saturating_mul(self.ranks.count);
        self
    }

    /// Returns the tables of one part of a batch, as if it were a batch of its own.
    pub const fn of_part(mut self) -> Tables<'a> {
        (self.micro_batches, self.parts) = (1, 1);
        self
    }

    /// Returns the tables of a forward pass that so many ranks run side by side, each with all parameters. A program of several ranks keeps its
    /// own.
    pub const fn on_ranks(mut self, count: u64) -> Tables<'a> {
        if !self.training && self.ranks.is_alone() {
            self.ranks = Ranks { count, ..Ranks::ALONE };
        }
        let micro_batches = self.micro_batches;
        self.with_micro_batches(micro_batches)
    }

    /// Returns the samples of a batch that are in memory at once: those of one micro-batch of one rank.
    pub const fn samples(&self, batch: u64) -> u64 {
        samples(batch, self.parts)
    }

    /// True if anything is in host memory.
    pub const fn has_host(&self) -> bool {
        self.offloads || !self.parked.is_empty()
    }
}

/// Returns the samples of one of so many parts of a batch. If their number does not divide the batch, the largest part counts.
pub const fn samples(batch: u64, parts: u64) -> u64 {
    batch.div_ceil(if parts > 0 { parts } else { 1 })
}

/// The most bytes of one operation's workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workspaces {
    /// The limit of a matrix product.
    pub product: u64,
    /// The limit of a convolution.
    pub convolution: u64,
}

/// The usual workspace of cuBLASLt, in bytes: on cards of compute capability 9.0 and above, and below.
const PRODUCT_WORKSPACE: [u64; 2] = [32 << 20, 4 << 20];

impl Workspaces {
    /// No limits: every workspace has what could be of use.
    pub const UNLIMITED: Workspaces = Workspaces { product: u64::MAX, convolution: u64::MAX };

    /// Returns the limits for these target cards. Matrix products have the usual workspace of the newest card, or of the newest there is if no
    /// card is named.
    pub const fn of(cards: &TargetCards<'_>, convolution: u64) -> Workspaces {
        let [newer, older] = PRODUCT_WORKSPACE;
        Workspaces { product: if cards.reaches(9) { newer } else { older }, convolution }
    }

    /// Returns the bytes of a tensor of this role that would take `bytes` bytes without limits.
    pub const fn cap(&self, role: Role, bytes: u64) -> u64 {
        let most = match role {
            Role::ProductWorkspace => self.product,
            Role::ConvolutionWorkspace => self.convolution,
            _ => u64::MAX,
        };
        if bytes < most { bytes } else { most }
    }
}
