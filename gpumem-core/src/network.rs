//! The traits that `network!` implements for the struct that it generates.

use crate::cards::Card;
use crate::error::Error;
use crate::memory::Compiled;
use crate::memory::budget::{Budget, Line};
use crate::number::{Precision, Role};
use crate::operation::Operations;
use crate::run::device::Device;
use crate::run::net::Net;
use crate::run::tensor::{Compared, Hosts, Learned, NoConstTrain};
use crate::train::Train;
use alloc::string::String;
use core::marker::PhantomData;

/// Returns the name in PyTorch's state dict for a path of the network: `layer1[0].conv1.weight` is `layer1.0.conv1.weight`.
///
/// ```
/// assert_eq!(gpumem_core::network::torch_name("layer1[0].conv1.weight"), "layer1.0.conv1.weight");
/// assert_eq!(gpumem_core::network::torch_name("[0][2].weight"), "0.2.weight");
/// ```
pub fn torch_name(path: &str) -> String {
    let name = path.replace('[', ".").replace(']', "");
    // A path begins with a number if `forward` itself is the `nn.Sequential`.
    name.strip_prefix('.').map_or(name.clone(), String::from)
}

/// One line of a network's layer table.
#[derive(Clone, Copy, Debug)]
pub struct LayerInfo {
    /// The layer's path, such as `stage[0].conv2d[1]`.
    pub path: &'static str,
    /// The layer's name in the language, such as `Conv2d`.
    pub kind: &'static str,
    /// Dimensions of its output, without the batch.
    pub output_shape: &'static [u64],
    /// Elements of the parameters that it owns.
    pub parameters: u64,
    /// Multiply-accumulates of one sample's forward pass up to the network's outputs. A layer that the loss alone reads, such as one of an
    /// auxiliary head, has none.
    pub macs: u64,
    /// Elements of its saved tensors, without those that an earlier layer saves. In order: activations that exist once, activations for
    /// each sample, 4-byte elements that exist once, 4-byte elements for each sample, bytes that exist once, bytes for each sample.
    pub kept: [u64; 6],
}

impl LayerInfo {
    /// Returns the bytes of its saved tensors, without those that an earlier layer saves.
    pub const fn kept_bytes(&self, batch: u64, precision: Precision) -> u64 {
        kept_bytes(self.kept, batch, precision)
    }
}

/// Returns the bytes of [`LayerInfo::kept`].
pub const fn kept_bytes(kept: [u64; 6], batch: u64, precision: Precision) -> u64 {
    let [once, each, wide_once, wide_each, bytes_once, bytes_each] = kept;
    (once + each * batch) * Role::Activation.bytes(precision)
        + (wide_once + wide_each * batch) * Role::Statistic.bytes(precision)
        + (bytes_once + bytes_each * batch)
}

/// A network that `network!` declared.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no network",
    label = "a network is declared with `network! {{ pub struct Name; fn forward(..) -> .. {{ [..] }} }}`"
)]
pub trait Network: Sized {
    /// The struct's name.
    const NAME: &'static str;
    /// The file that declares it and the line that a refusal points at. Records of its instances name the network by them. Empty and 0 if
    /// they are not known.
    #[doc(hidden)]
    const PLACE: (&'static str, u32) = ("", 0);
    /// The layer table.
    const LAYERS: &'static [LayerInfo];
    /// The training step; of several, the one that needs the largest arena. `None` without training.
    const TRAINING: Option<&'static Compiled<'static>>;
    /// The training steps of a network that names their constants, that of `TRAIN` first if there is one. Empty for other networks.
    const STEPS: &'static [StepInfo] = &[];
    /// The forward pass, with the settings of `const INFER`, or with the batch and the precision of `const TRAIN`.
    const INFERENCE: &'static Compiled<'static>;
    /// The forward pass with the batch and the precision of `const TRAIN`, which shares the training step's arena. It equals
    /// [`Network::INFERENCE`] for a network without `const TRAIN` or without `const INFER`.
    const EVALUATION: &'static Compiled<'static>;
    /// The sizes of the cache of [`Network::INFERENCE`]. `None` if `const INFER` has no `cache`.
    const CACHED: Option<Cached> = None;
    /// The value of `const TRAIN`. `None` if the network has none.
    const TRAIN: Option<Train>;
    /// Bytes of each card that [`Network::PROGRAM`] leaves to other processes.
    const HEADROOM: u64;
    /// The cards that [`Network::PROGRAM`] was written for.
    const CARDS: &'static [Card] = &[];
    /// False if its batch is not known, because there is neither `const TRAIN` nor `const INFER`.
    #[doc(hidden)]
    const RUNS: bool = true;
    /// The functions of the operations that the user declared.
    const OPERATIONS: &'static Operations = &Operations::NONE;
    /// The blueprint that its programs were lowered from, for tools that lower it at another precision or for another card.
    const BLUEPRINT: &'static [u8] = &[];
    /// The memory that [`Network::TRAINING`] needs, or [`Network::INFERENCE`] for a network without training.
    const BUDGET: Budget = Self::PROGRAM.budget;
    /// The training step, or the forward pass for a network without training.
    const PROGRAM: &'static Compiled<'static> = match Self::TRAINING {
        Some(training) => training,
        None => Self::INFERENCE,
    };
    /// The byte offset of each tensor that lives only inside [`Network::PROGRAM`]'s step.
    const PLAN: &'static [u64] = Self::PROGRAM.offsets;

    /// The settings of [`Network::TRAINING`]: those of `TRAIN`, or of the largest of several steps. `None` without training.
    const TRAINED: Option<Train> = match Self::STEPS {
        [] => Self::TRAIN,
        steps => Some(StepInfo::largest(steps).train),
    };

    /// A constant whose evaluation fails to compile if the network does not fit its target cards.
    const CHECKED: ();

    /// A batch of inputs: a tensor, or a tuple of several.
    type Input: Hosts;
    /// A batch of targets: a tensor, or a tuple of several. `()` for a loss without targets, and [`NoConstTrain`] for a network without
    /// training.
    type Target: Hosts;
    /// A batch of outputs: a tensor, or a tuple of several.
    type Output: Hosts;

    /// A stand-in for `infer_on` of a network without `INFER`. A call does not compile, and the error explains the fix.
    #[doc(hidden)]
    fn infer_on<D: Device>(device: &D) -> Result<Net<Serving<Self>, D>, Error>
    where
        Self: Serve,
    {
        Net::load(device)
    }

    /// Stands in for `shared_on` of a network without `INFER`: see [`Network::infer_on`].
    #[doc(hidden)]
    fn shared_on<D: Device>(device: &D) -> Result<Net<Self, D>, Error>
    where
        Self: Serve,
    {
        Net::load_shared(device)
    }
}

/// A network with `const TRAIN`. Generic code that trains has it as a bound: `fn fit<N: Trains>(net: &mut Net<N, AnyDevice>, ..)`.
pub trait Trains: Learns {}

impl<N: Network<Target: Compared>> Trains for N {}

/// A network that makes training steps: those of `const TRAIN`, or of constants with other names.
pub trait Learns: Network {}

impl<N: Network<Target: Learned>> Learns for N {}

/// A training step of a network that has several.
#[derive(Clone, Copy, Debug)]
pub struct StepInfo {
    /// The name of its constant, such as `CRITIC`.
    pub name: &'static str,
    /// Its program with its plan and its budget.
    pub compiled: &'static Compiled<'static>,
    /// The value of its constant.
    pub train: Train,
}

impl StepInfo {
    /// Returns the step that needs the largest arena; the first if several need as much.
    ///
    /// # Panics
    /// Without a step.
    pub const fn largest(steps: &[StepInfo]) -> &StepInfo {
        let mut largest = &steps[0];
        let mut number = 1;
        while number < steps.len() {
            if steps[number].compiled.budget.get(Line::Arena) > largest.compiled.budget.get(Line::Arena) {
                largest = &steps[number];
            }
            number += 1;
        }
        largest
    }
}

/// A network with a training step of this number in [`Network::STEPS`]. `Gan::critic(&mut net)` makes such a step.
pub trait NamedStep<const NUMBER: usize>: Network {
    /// A batch of the inputs that its loss depends on.
    type StepInput: Hosts;
    /// A batch of the targets of its loss.
    type StepTarget: Hosts;
}

/// A network with `batch: Largest`: the largest batches that fit the cards of its constants.
#[doc(hidden)]
pub trait Largest {
    /// The largest batch of `const TRAIN`.
    const TRAIN: u64 = 1;
    /// The largest batch of `const INFER`.
    const INFER: u64 = 1;
}

/// The sizes of a forward pass with a cache of keys and values.
#[derive(Clone, Copy, Debug)]
pub struct Cached {
    /// The most time steps of a sequence.
    pub steps: u64,
    /// Time steps in one pass of [`Network::INFERENCE`].
    pub chunk: u64,
    /// The pass of a single time step, encoded by [`Program::encode`](crate::program::Program::encode). `None` if [`Network::INFERENCE`]
    /// takes single steps. Its tensors have the offsets of those of [`Network::INFERENCE`].
    pub one_step: Option<&'static [u8]>,
}

/// A network whose `const INFER` has a `cache`.
#[diagnostic::on_unimplemented(
    message = "network `{Self}` keeps no cache, so it cannot continue a sequence",
    label = "write `const INFER: Infer = Infer {{ cache: 1024 }};` in the network"
)]
pub trait Caches: Serve {}

/// A network that was loaded to continue sequences: with `infer_on`, or without `const TRAIN` with `on`.
#[diagnostic::on_unimplemented(
    message = "network `{Self}` keeps no cache, so it cannot continue a sequence",
    label = "write `const INFER: Infer = Infer {{ cache: 1024 }};` in the network, and load it with `infer_on`"
)]
pub trait Generate: Network {}

impl<N: Caches> Generate for Serving<N> {}

/// A network with `const INFER`, whose forward pass can be loaded alone: see [`Serving`].
#[diagnostic::on_unimplemented(
    message = "network `{Self}` has no `const INFER`",
    label = "add `const INFER: Infer = Infer {{ batch: 1 }};` to it to load the forward pass alone, or load it with `on`, which has `forward`"
)]
pub trait Serve: Network {
    /// Bytes of each card that the forward pass leaves to other processes.
    const SERVED_HEADROOM: u64;
    /// A batch of inputs, of the size in `const INFER`.
    type ServedInput: Hosts;
    /// A batch of outputs, of the size in `const INFER`.
    type ServedOutput: Hosts;
}

/// The forward pass of a network alone, with the batch, the precision and the other settings of `const INFER`.
#[derive(Debug)]
pub struct Serving<N>(PhantomData<fn() -> N>);

impl<N: Serve> Network for Serving<N> {
    const NAME: &'static str = N::NAME;
    const PLACE: (&'static str, u32) = N::PLACE;
    const LAYERS: &'static [LayerInfo] = N::LAYERS;
    const TRAINING: Option<&'static Compiled<'static>> = None;
    const INFERENCE: &'static Compiled<'static> = N::INFERENCE;
    const EVALUATION: &'static Compiled<'static> = N::INFERENCE;
    const CACHED: Option<Cached> = N::CACHED;
    const TRAIN: Option<Train> = None;
    const HEADROOM: u64 = N::SERVED_HEADROOM;
    const OPERATIONS: &'static Operations = N::OPERATIONS;
    const CHECKED: () = N::CHECKED;
    type Input = N::ServedInput;
    type Target = NoConstTrain;
    type Output = N::ServedOutput;
}
