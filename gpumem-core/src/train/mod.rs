//! Settings of a network: the fields that users write in `const TRAIN` and `const INFER`.

mod clip;
mod ema;
pub mod optim;
pub mod ranks;
mod schedule;
mod single;
mod split;

use alloc::borrow::Cow;
use alloc::vec::Vec;

use crate::cards::Card;
use crate::number::Precision;
use crate::program::encoding::{Reader, Wire, wire_enum};
pub use crate::program::loss::{Chunks, LossOptions, Mining, Reduction, Weighting};
pub use crate::program::losses::Loss;
use crate::train::optim::{Optimizer, Sgd};
pub use clip::Clip;
pub use ema::Ema;
pub use ranks::{Ranks, Shard};
#[doc(hidden)]
pub use schedule::assert_falls;
pub use schedule::{Field, Schedule};
#[doc(hidden)]
pub use single::{assert_compares, assert_varies, nothing_to_compare, single_value};
pub use split::{assert_splits, not_split, not_split_over_ranks};

/// Settings of a training step: `const TRAIN: Train = Train { batch: 64, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy };`. Fields that
/// are left out take the values of [`Train::DEFAULT`], except the batch, which must be written.
#[derive(Clone, Copy, Debug)]
pub struct Train {
    /// Samples in one training step, or `Largest`: as many as fit every one of the cards. `network!` requires it, since there is no good
    /// default.
    pub batch: usize,
    /// Names of the parameters that the step trains, as `"critic*, head.weight"`: `*` stands for any text. Parameters that only other steps
    /// train get no gradient in this one. All if left out.
    ///
    /// PyTorch: `loss.backward(inputs=[p for n, p in model.named_parameters() if n.startswith("critic")])`.
    pub trains: &'static str,
    /// The number of micro-batches that a batch is split into. They run one after the other; their gradients are added up for one update.
    /// It must divide the batch. 1 if left out.
    ///
    /// Loss, gradients and dropout are those of the whole batch, but BatchNorm normalises each micro-batch by itself. Gradients live from
    /// the first micro-batch on, so that updates are `Separate`; under `Mixed(..)` they are added up in f32.
    pub micro_batches: usize,
    /// The processes that share a step, each with a device of its own. Each takes `batch / ranks` samples; gradients are added up over all of
    /// them. 1 if left out. `ranks * micro_batches` must divide the batch. See [`ranks`].
    ///
    /// Loss, gradients and dropout are those of the whole batch, but BatchNorm normalises the samples of each rank by themselves unless
    /// `sync_batch_norm` is true.
    pub ranks: usize,
    /// Tensors of which each rank keeps only its shard: `Optimizer`, `Gradients` or `Parameters`, each of which includes those before it. `None`
    /// if left out. See [`Shard`].
    pub shard: Shard,
    /// Most bytes of gradients that ranks exchange at once, as `mib(64.0)`. Exchanges run beside the backward pass, which fills the next bucket.
    /// 32 MiB if left out.
    ///
    /// PyTorch: `DistributedDataParallel(model, bucket_cap_mb=32)`.
    pub bucket: u64,
    /// Most channels of the communication library on a card. Each takes memory and a multiprocessor. 8 if left out.
    pub channels: usize,
    /// True if BatchNorm normalises by the statistics of all ranks. Each then exchanges two numbers for each channel forward, and two backward, and
    /// `conv_norm` is `Separate`. False if left out.
    ///
    /// PyTorch: `nn.SyncBatchNorm.convert_sync_batchnorm(model)`.
    pub sync_batch_norm: bool,
    /// Number format of weights and activations: `F32` (if left out), `Bf16`, `F16`, `Mixed(Bf16)` or `Mixed(F16)`.
    pub precision: Precision,
    /// The optimizer and its hyperparameters, as `Adam { lr: 1e-3 }`. `Sgd { lr: 1e-3 }` if left out.
    pub optimizer: Optimizer,
    /// The loss that training minimises, as `CrossEntropy + 0.3 * CrossEntropy(from = aux)`: the sum of these terms. `CrossEntropy`
    /// if left out.
    pub loss: &'static [LossTerm],
    /// The cards that the training step must fit, all of them: constants of [`cards`](crate::cards), as `[RTX_3060, T4]`. None if
    /// left out, and nothing is checked unless a Cargo feature or a variable names a card.
    pub cards: &'static [Card],
    /// The time at which parameters are updated: `Fused` or `Separate`. If left out `Fused`, but `Separate` if gradients are clipped by
    /// their norm.
    pub update: Update,
    /// Operations that are recomputed for the backward pass, so that their outputs need not be saved: `Norms` (if left out), `None`,
    /// `Cheap`, `Auto` or `Budget(0.6)`. It changes no number that the network computes.
    pub checkpoint: Checkpoint,
    /// Execution of a 1x1 convolution and the batch normalisation after it: `Fused` (if left out), as one operation if that does not raise
    /// the memory of the step, or `Separate`, one after the other. See [`ConvNorm`].
    pub conv_norm: ConvNorm,
    /// Gradient clipping before an update: `GlobalNorm(1.0)` or `Value(0.5)`, see [`Clip`]. None if left out.
    pub clip: Option<Clip>,
    /// Tensors that are kept in host memory rather than on the card: `OptimizerState`, the optimizer state and the f32 master copies of
    /// mixed precision; `Activations`, activations that the backward pass reads much later; or `All`, both. `None` if left out. See
    /// [`Offload`].
    pub offload: Offload,
    /// The learning-rate schedule, as `Cosine { warmup: 100, total: 5000, min: 1e-5 }`: see [`Schedule`]. `Constant` if left out.
    pub schedule: Schedule,
    /// A number that each step computes in addition to its update: `GradientNorm`. None if left out. See [`Measurement`].
    pub measure: Measurement,
    /// Steps that update nothing: `NonFinite`, those with a gradient that is infinite or NaN. None if left out. See [`Skip`].
    pub skip: Skip,
    /// Moving averages of the parameters, as `0.999` or `Ema { decay: 0.9999, warmup: true }`: see [`Ema`]. None if left out.
    pub ema: Option<Ema>,
    /// Most bytes that one convolution may use as workspace, as `mib(64.0)`. 256 MiB if left out.
    pub conv_workspace: u64,
    /// Bytes of each card that are left to other processes, as `gib(1.0)`. 0 if left out.
    pub headroom: u64,
    /// True if f32 products may run in TensorFloat-32 on a card. `false` if left out.
    pub tf32: bool,
    /// True if only deterministic algorithms may be used on a card. `false` if left out.
    pub deterministic: bool,
    /// The seed of initialisation and dropout. 0 if left out.
    pub seed: u64,
}

impl Train {
    /// The value of every field that is left out.
    pub const DEFAULT: Train = Train {
        batch: 1,
        trains: "*",
        micro_batches: 1,
        ranks: Ranks::ALONE.count as usize,
        shard: Ranks::ALONE.shard,
        bucket: Ranks::ALONE.bucket,
        channels: Ranks::ALONE.channels as usize,
        sync_batch_norm: Ranks::ALONE.sync_batch_norm,
        precision: Precision::F32,
        optimizer: Optimizer::Sgd(Sgd::DEFAULT),
        loss: &[LossTerm::CROSS_ENTROPY],
        cards: &[],
        update: Update::Fused,
        checkpoint: Checkpoint::Norms,
        conv_norm: ConvNorm::Fused,
        clip: None,
        offload: Offload::None,
        schedule: Schedule::PLAIN,
        measure: Measurement::None,
        skip: Skip::None,
        ema: None,
        conv_workspace: 256 << 20,
        headroom: 0,
        tf32: false,
        deterministic: false,
        seed: 0,
    };
}

impl Train {
    /// Returns the ranks that share the step.
    pub const fn over_ranks(&self) -> Ranks {
        let (count, channels) = (self.ranks as u64, self.channels as u64);
        let (shard, bucket, sync_batch_norm) = (self.shard, self.bucket, self.sync_batch_norm);
        Ranks { count, shard, bucket, channels, sync_batch_norm, ..Ranks::ALONE }
    }
}

/// Settings of a network that is used without training: `const INFER: Infer = Infer { batch: 1, cards: [T4] };`. Fields that are left out
/// take the values of [`Infer::DEFAULT`].
#[derive(Clone, Copy, Debug)]
pub struct Infer {
    /// Samples in one forward pass. 1 if left out.
    pub batch: usize,
    /// Number format of weights and activations, as in [`Train::precision`]. `F32` if left out.
    pub precision: Precision,
    /// The cards that the forward pass must fit, all of them: constants of [`cards`](crate::cards), as `[T4]`. None if left out.
    pub cards: &'static [Card],
    /// Bytes of each card that are left to other processes, as `gib(1.0)`. 0 if left out.
    pub headroom: u64,
    /// The most time steps whose keys and values are kept between calls. With it, a network with causal attention takes a sequence a few
    /// tokens at a time and computes none twice: see [`Net::generate`](crate::run::net::Net::generate). 0 if left out: the whole sequence
    /// at once.
    pub cache: usize,
    /// The time steps in one forward pass while a prompt is read, with `cache`. Generated tokens are always taken one by one. 1 if left out.
    pub chunk: usize,
}

impl Infer {
    /// The value of every field that is left out.
    pub const DEFAULT: Infer =
        Infer { batch: 1, precision: Precision::F32, cards: &[], headroom: 0, cache: 0, chunk: 1 };
}

impl Infer {
    /// Returns one rank: each process has a network of its own.
    pub const fn over_ranks(&self) -> Ranks {
        Ranks::ALONE
    }
}

/// Returns this many GiB as bytes, rounded down: `headroom: gib(1.5)`.
///
/// # Panics
/// If it is negative, not a number, or 2^64 bytes or more; in `TRAIN` and `INFER` that is an error of the compiler.
#[track_caller]
pub const fn gib(count: f64) -> u64 {
    mib(count * 1024.0)
}

/// Returns this many MiB as bytes, rounded down: see [`gib`].
///
/// # Panics
/// As [`gib`].
#[track_caller]
pub const fn mib(count: f64) -> u64 {
    let bytes = count * 1_048_576.0;
    assert!(bytes >= 0.0 && bytes < 18_446_744_073_709_551_616.0, "write a size that is not negative, as `gib(1.5)`");
    bytes as u64
}

/// The time at which parameters are updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Update {
    /// Updates each parameter as soon as its gradient is complete. The gradient's memory is then free for the next layer. An update may
    /// come later, together with others, if that raises no peak.
    Fused,
    /// Updates all parameters at the end of the step. Until then every gradient is alive.
    Separate,
}

/// Operations of the forward pass that are recomputed for the backward pass, so that their outputs need not be saved: memory for time.
/// Outputs, losses, gradients and parameters do not depend on it: on the CPU backend they are equal to the bit.
///
/// `#[checkpoint]` on a block and `checkpoint([..])` around layers mark layers by hand. They hold whatever this setting is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Checkpoint {
    /// Recomputes outputs of norms and functions that only gradients of weights read again, directly or through dropout. Only the input of
    /// the norm or function is saved. These are batch norms, maybe with a function after them whose slope follows from its input (`Relu`,
    /// `Relu6`, `Silu`, `Hardswish`, `Gelu`, `Mish` and others without arguments), row norms (`LayerNorm`, `RmsNorm`, `GroupNorm`), and
    /// functions whose gradient reads their input. A step moves slightly more bytes: 2.5 % of a ResNet-50, 13 % of a GPT-2, in 16 bits on a
    /// card. Recomputes nothing if that does not lower the memory of the step, or if layers are marked by hand.
    #[default]
    Norms,
    /// Recomputes only layers that are marked by hand.
    None,
    /// Recomputes operations without matrix products and windows: normalisations, activations, dropout, additions. Takes the choice with
    /// the lowest peak that costs at most an eighth more time, by the model of [`Sizes`](crate::lower::Sizes).
    Cheap,
    /// Recomputes nothing if the step fits every target card. Otherwise takes the cheapest level found with which it fits; `Norms` is one
    /// of the levels.
    Auto,
    /// Takes the cheapest level found that meets two limits: the step fits every target card, and activations need at most this share of
    /// their bytes under `None`.
    Budget(f64),
}

/// Execution of a 1x1 convolution and the batch normalisation after it in training: `conv_norm: Separate` in `TRAIN`.
///
/// Only pairs whose normalised output is read by additions alone may run as one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConvNorm {
    /// One operation, if the step needs no more memory with it. The output of the convolution is never stored. Statistics are derived from
    /// sums of products of the input. A channel for which these lose too many digits is computed a second time, and its statistics are
    /// taken from its elements. Losses and gradients differ from those of `Separate` by rounding alone.
    #[default]
    Fused,
    /// Two operations, one after the other, as in PyTorch. The output of the convolution is stored.
    Separate,
}

impl ConvNorm {
    /// All values, in the order of their numbers.
    pub const ALL: [ConvNorm; 2] = [ConvNorm::Fused, ConvNorm::Separate];

    /// The names of all values, in the order of their numbers.
    pub const NAMES: [&'static str; 2] = ["Fused", "Separate"];
}
wire_enum!(ConvNorm { Fused, Separate });

/// A number that each training step computes in addition to its update: `measure: GradientNorm` in `TRAIN`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Measurement {
    /// None.
    #[default]
    None,
    /// The norm of all gradients together, before they are clipped: [`Net::gradient_norm`](crate::run::net::Net::gradient_norm) returns it.
    /// `clip: GlobalNorm` computes it anyway. All gradients live until it is known, so that updates are `Separate`, and the budget has a
    /// line of gradients.
    ///
    /// PyTorch: `torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])`.
    GradientNorm,
}

impl Measurement {
    /// All values, in the order of their numbers.
    pub const ALL: [Measurement; 2] = [Measurement::None, Measurement::GradientNorm];

    /// The names of all values, in the order of their numbers.
    pub const NAMES: [&'static str; 2] = ["None", "GradientNorm"];
}

/// Training steps that update nothing: `skip: NonFinite` in `TRAIN`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Skip {
    /// No step, unless the loss is scaled: in `F16` and `Mixed(F16)` a step with a gradient that is not finite updates nothing. Running
    /// statistics change even then.
    #[default]
    None,
    /// Steps with a gradient that is infinite or NaN, at every precision. Such a step leaves parameters, optimizer state and running
    /// statistics unchanged and does not count as a step; [`Net::skipped`](crate::run::net::Net::skipped) counts it.
    ///
    /// All gradients are alive before the first update. A second copy of the running statistics is alive during the step.
    ///
    /// PyTorch: `if all(p.grad.isfinite().all() for p in model.parameters()): optimizer.step()`, and the running statistics restored
    /// otherwise.
    NonFinite,
}

impl Skip {
    /// All values, in the order of their numbers.
    pub const ALL: [Skip; 2] = [Skip::None, Skip::NonFinite];

    /// The names of all values, in the order of their numbers.
    pub const NAMES: [&'static str; 2] = ["None", "NonFinite"];
}

/// Tensors of a training step that are kept in host memory: `offload: OptimizerState`, `offload: Activations` or `offload: All` in `TRAIN`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Offload {
    /// No tensors: all of them are in the arena.
    #[default]
    None,
    /// The optimizer state and the f32 master copies of mixed precision. A step copies them into the arena a piece at a time, during the
    /// backward pass, and copies them back. The updated parameters are equal to the bit. It requires an optimizer that treats each element
    /// by itself.
    OptimizerState,
    /// Activations that the backward pass reads long after the forward pass. Each is copied to the host during the forward pass, and back
    /// during the backward pass before it is read. A model of the time of operations and copies chooses them, so that a step need not wait
    /// for the bus. If [`Checkpoint`] asks for a search, it weighs what leaves together with what is recomputed. All numbers are equal to the
    /// bit.
    Activations,
    /// Both: optimizer state and master copies, and activations. The model that chooses activations does not count the copies of states.
    All,
}

impl Offload {
    /// All values, in the order of their numbers.
    pub const ALL: [Offload; 4] = [Offload::None, Offload::OptimizerState, Offload::Activations, Offload::All];

    /// The names of all values, in the order of their numbers.
    pub const NAMES: [&'static str; 4] = ["None", "OptimizerState", "Activations", "All"];

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        Offload::NAMES[self as usize]
    }
}
wire_enum!(Offload { None, OptimizerState, Activations, All });

/// The parts of `TRAIN` that surround an update: clipping, schedule, micro-batches, ranks, offload and averages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Descent {
    /// The gradient clipping. `None` if gradients are not clipped.
    pub clip: Option<Clip>,
    /// The learning-rate schedule.
    pub schedule: Schedule,
    /// Micro-batches whose gradients are added up before an update: at least 1.
    pub micro_batches: u64,
    /// True if gradients of 16 bits are added up in f32, which happens if parameters have f32 master copies. A small gradient is then not
    /// lost in a large sum. It follows from the precision of the step; no field of `TRAIN` sets it.
    pub wide_sums: bool,
    /// Tensors that are kept in host memory.
    pub offload: Offload,
    /// True if each step computes the norm of all gradients even without clipping by it.
    pub measures_norm: bool,
    /// True if a step with a gradient that is not finite changes nothing, at any precision.
    pub skips: bool,
    /// The moving averages of parameters. `None` without them.
    pub ema: Option<Ema>,
    /// The ranks that share the step.
    pub ranks: Ranks,
}

impl Descent {
    /// No clipping, no schedule, one micro-batch, and nothing else.
    pub const PLAIN: Descent = Descent {
        clip: None,
        schedule: Schedule::PLAIN,
        micro_batches: 1,
        wide_sums: false,
        offload: Offload::None,
        measures_norm: false,
        skips: false,
        ema: None,
        ranks: Ranks::ALONE,
    };

    /// Returns the parts of a batch: micro-batches of all ranks.
    pub const fn parts(self) -> u64 {
        self.micro_batches.saturating_mul(self.ranks.count)
    }

    /// True if optimizer state and master copies are in host memory.
    pub const fn offloads(self) -> bool {
        matches!(self.offload, Offload::OptimizerState | Offload::All)
    }

    /// True if activations are in host memory between the forward and the backward pass.
    pub const fn parks(self) -> bool {
        matches!(self.offload, Offload::Activations | Offload::All)
    }

    /// True if gradients of several micro-batches are added up.
    pub const fn accumulates(self) -> bool {
        self.micro_batches > 1
    }

    /// Returns these settings with `wide_sums` set for a precision.
    pub const fn at(self, precision: Precision) -> Descent {
        Descent { wide_sums: self.accumulates() && precision.has_master(), ..self }
    }

    /// True if the norm of all gradients is needed before the first update.
    pub const fn needs_norm(self) -> bool {
        self.clips_by_norm() || self.measures_norm
    }

    /// True if gradients are clipped by the norm of all of them.
    pub const fn clips_by_norm(self) -> bool {
        matches!(self.clip, Some(Clip::GlobalNorm(_)))
    }

    /// True if each gradient is checked before the first update. If the norm of all gradients is computed, it shows as well that one is not
    /// finite.
    pub const fn checks(self) -> bool {
        self.skips && !self.needs_norm()
    }
}

impl Wire for Descent {
    fn put(&self, out: &mut Vec<u8>) {
        self.clip.put(out);
        self.schedule.put(out);
        self.micro_batches.put(out);
        self.wide_sums.put(out);
        self.offload.put(out);
        self.measures_norm.put(out);
        self.skips.put(out);
        self.ema.put(out);
        self.ranks.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Descent> {
        let (clip, schedule) = (Wire::take(from)?, Wire::take(from)?);
        let (micro_batches, wide_sums) = (Wire::take(from)?, Wire::take(from)?);
        let offload = Wire::take(from)?;
        let (measures_norm, skips, ema) = (Wire::take(from)?, Wire::take(from)?, Wire::take(from)?);
        let ranks = Wire::take(from)?;
        let descent = Descent { clip, schedule, micro_batches, wide_sums, offload, measures_norm, skips, ema, ranks };
        Some(descent).filter(|descent| descent.micro_batches > 0 && descent.ranks.count > 0)
    }
}

/// A term of the loss.
#[derive(Clone, Debug, PartialEq)]
pub struct LossTerm {
    /// The loss function.
    pub loss: Loss,
    /// The factor of the term in the sum.
    pub weight: f64,
    /// The tap that it measures; `None` for the network's first output.
    pub from: Option<&'static str>,
    /// The tap with which a loss of two values compares it; `None` for the network's second output.
    pub and: Option<&'static str>,
    /// The third tap of a loss of triples; `None` for the network's third output.
    pub third: Option<&'static str>,
    /// The tap whose exponential a contrastive loss multiplies products with; `None` if a temperature divides them.
    pub scale: Option<&'static str>,
    /// The tap that a contrastive loss adds to products; `None` if a number is added.
    pub bias: Option<&'static str>,
    /// The name of the target that it compares with; terms without one share a target.
    pub target: Option<&'static str>,
    /// The name of the target with the lengths of sequences; `None` if all of their time steps count.
    pub input_lengths: Option<&'static str>,
    /// The name of the target with a weight for each term; `None` if terms have no weights.
    pub weights: Option<&'static str>,
    /// The name of the input with the number of time steps of each sample that count; `None` if all do.
    pub lengths: Option<&'static str>,
    /// The options of the loss.
    pub options: LossOptions,
}

impl LossTerm {
    const CROSS_ENTROPY: LossTerm = LossTerm {
        loss: Loss::CrossEntropy,
        weight: 1.0,
        from: None,
        and: None,
        third: None,
        scale: None,
        bias: None,
        target: None,
        input_lengths: None,
        weights: None,
        lengths: None,
        options: LossOptions::DEFAULT,
    };
}

/// Returns numbers for classes in the form that [`LossOptions`] has, for generated code.
#[doc(hidden)]
pub const fn weights(numbers: &'static [f64]) -> Cow<'static, [f64]> {
    Cow::Borrowed(numbers)
}
