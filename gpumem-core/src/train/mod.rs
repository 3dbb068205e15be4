//! What users write in `const TRAIN` and `const INFER`.

mod clip;
mod ema;
pub mod optim;
mod schedule;
mod single;
mod split;

use alloc::borrow::Cow;
use alloc::vec::Vec;

use crate::cards::Card;
use crate::number::Precision;
use crate::program::encoding::{Reader, Wire, wire_enum};
pub use crate::program::loss::{Loss, LossOptions, Mining, Reduction, Weighting};
use crate::train::optim::{Optimizer, Sgd};
pub use clip::Clip;
pub use ema::Ema;
#[doc(hidden)]
pub use schedule::assert_falls;
pub use schedule::{Field, Schedule};
#[doc(hidden)]
pub use single::{assert_compares, assert_varies, nothing_to_compare, single_value};
pub use split::{assert_splits, not_split};

/// How a network is trained: `const TRAIN: Train = Train { batch: 64, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy };`. Fields
/// left out take the values of [`Train::DEFAULT`], but for the batch.
#[derive(Clone, Copy, Debug)]
pub struct Train {
    /// Samples in one training step, or `Largest`: as many as fit every one of the cards. `network!` asks for it: nobody else can choose it.
    pub batch: usize,
    /// The parameters that the step trains, by their names, as `"critic*, head.weight"`: `*` stands for any text. What other steps of the network
    /// train has no gradient meanwhile. All if left out.
    ///
    /// PyTorch: `loss.backward(inputs=[p for n, p in model.named_parameters() if n.startswith("critic")])`.
    pub trains: &'static str,
    /// Parts that a batch is split into, which run one after the other: their gradients are added up, and all of them make one
    /// update. It divides the batch. 1 if left out.
    ///
    /// Loss, gradients and dropout are those of the whole batch, but BatchNorm looks at each part by itself. Gradients are held from the
    /// first part on, so that updates are `Separate`; under `Mixed(..)` they are added up in f32.
    pub micro_batches: usize,
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
    /// When parameters are updated: `Fused` or `Separate`. If left out `Fused`, but `Separate` where gradients are clipped by their norm.
    pub update: Update,
    /// What is computed a second time for the backward pass rather than kept for it: `Norms` (if left out), `None`, `Cheap`, `Auto` or
    /// `Budget(0.6)`. No number changes with it.
    pub checkpoint: Checkpoint,
    /// Execution of a 1x1 convolution and the batch normalisation after it: as one operation where the step needs no more memory with
    /// that, `Fused` (if left out), or one after the other, `Separate`. See [`ConvNorm`].
    pub conv_norm: ConvNorm,
    /// How gradients are clipped before an update: `GlobalNorm(1.0)` or `Value(0.5)`, see [`Clip`]. Not at all if left out.
    pub clip: Option<Clip>,
    /// What lies in host memory rather than on the card: `OptimizerState`, what the optimizer keeps and the f32 master copies of mixed
    /// precision, `Activations`, what the backward pass reads late, or `All`, both. Nothing, `None`, if left out. See [`Offload`].
    pub offload: Offload,
    /// How the learning rate changes from step to step, as `Cosine { warmup: 100, total: 5000, min: 1e-5 }`: see [`Schedule`].
    /// `Constant` if left out.
    pub schedule: Schedule,
    /// Number that each step computes beside its update: `GradientNorm`. None if left out. See [`Measurement`].
    pub measure: Measurement,
    /// Steps that update nothing: `NonFinite`, those with a gradient that is infinite or no number. None if left out. See [`Skip`].
    pub skip: Skip,
    /// Moving averages of the parameters, as `0.999` or `Ema { decay: 0.9999, warmup: true }`: see [`Ema`]. None if left out.
    pub ema: Option<Ema>,
    /// Most bytes that one convolution may use as workspace, as `mib(64.0)`. 256 MiB if left out.
    pub conv_workspace: u64,
    /// Bytes of each card that are left to others, as `gib(1.0)`. 0 if left out.
    pub headroom: u64,
    /// Whether f32 products may run in TensorFloat-32 on a card. `false` if left out.
    pub tf32: bool,
    /// Whether only deterministic algorithms may be used on a card. `false` if left out.
    pub deterministic: bool,
    /// Seed of initialisation and dropout. 0 if left out.
    pub seed: u64,
}

impl Train {
    /// The value of every field that is left out.
    pub const DEFAULT: Train = Train {
        batch: 1,
        trains: "*",
        micro_batches: 1,
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

/// How a network is used without training: `const INFER: Infer = Infer { batch: 1, cards: [T4] };`. Fields left out take the values of [`Infer::DEFAULT`].
#[derive(Clone, Copy, Debug)]
pub struct Infer {
    /// Samples in one forward pass. 1 if left out.
    pub batch: usize,
    /// Number format of weights and activations, as in [`Train::precision`]. `F32` if left out.
    pub precision: Precision,
    /// The cards that the forward pass must fit, all of them: constants of [`cards`](crate::cards), as `[T4]`. None if left out.
    pub cards: &'static [Card],
    /// Bytes of each card that are left to others, as `gib(1.0)`. 0 if left out.
    pub headroom: u64,
    /// Most steps of a sequence whose keys and values are kept, so that a network with causal attention takes its tokens some at a
    /// time and never computes one twice: see [`Net::generate`](crate::run::net::Net::generate). 0, the whole sequence at once, if
    /// left out.
    pub cache: usize,
    /// With `cache`, steps in one pass while a sequence is read; what it is continued with always goes one by one. 1 if left out.
    pub chunk: usize,
}

impl Infer {
    /// The value of every field that is left out.
    pub const DEFAULT: Infer =
        Infer { batch: 1, precision: Precision::F32, cards: &[], headroom: 0, cache: 0, chunk: 1 };
}

/// Bytes of this many GiB, a fraction of a byte cut off: `headroom: gib(1.5)`.
///
/// # Panics
/// If it is negative, not a number, or 2^64 bytes or more; in `TRAIN` and `INFER` that is an error of the compiler.
#[track_caller]
pub const fn gib(count: f64) -> u64 {
    mib(count * 1024.0)
}

/// Bytes of this many MiB: see [`gib`].
///
/// # Panics
/// As [`gib`].
#[track_caller]
pub const fn mib(count: f64) -> u64 {
    let bytes = count * 1_048_576.0;
    assert!(bytes >= 0.0 && bytes < 18_446_744_073_709_551_616.0, "write a size that is not negative, as `gib(1.5)`");
    bytes as u64
}

/// When parameters are updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Update {
    /// Each parameter when its gradient is complete, so that the gradient's memory is free for the next layer; later, with others,
    /// where that raises no peak.
    Fused,
    /// All parameters at the end of the step, with every gradient alive.
    Separate,
}

/// What of the forward pass is computed a second time for the backward pass, rather than kept from the first: memory for time. Outputs,
/// losses, gradients and parameters are the same, whatever it says: to the bit on the CPU backend.
///
/// `#[checkpoint]` on a block and `checkpoint([..])` around layers say it by hand, whatever this says.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Checkpoint {
    /// Outputs of norms and functions that only gradients of weights read again, directly or through dropout: of the two values around them only
    /// the input is saved, and the output is made again. These are batch norms, maybe with a function after them whose slope follows from its
    /// input (`Relu`, `Relu6`, `Silu`, `Hardswish`, `Gelu`, `Mish` and others without arguments), row norms (`LayerNorm`, `RmsNorm`, `GroupNorm`),
    /// and functions whose gradient reads their input. A step moves some hundredths more bytes: 2.5 % of a ResNet-50, 13 % of a GPT-2, in 16
    /// bits on a card. Nothing if the step needs no less with it, or if something is written by hand.
    #[default]
    Norms,
    /// Nothing beside what is written by hand.
    None,
    /// What multiplies no matrices and slides no windows: normalisations, activations, dropout, additions. Of these whatever lowers the
    /// peak most with at most an eighth more time, by the model of [`Setting`](crate::lower::Setting).
    Cheap,
    /// Nothing where the step fits every card that it is aimed at; otherwise the cheapest that was found with which it does, `Norms` among
    /// others.
    Auto,
    /// The cheapest that was found with which activations take at most this share of what they take with `None`, and the step fits every card
    /// it is aimed at.
    Budget(f64),
}

/// Execution of a 1x1 convolution and the batch normalisation after it in training: `conv_norm: Separate` in `TRAIN`.
///
/// Only pairs whose normalised output is read by nothing but sums may run as one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConvNorm {
    /// One operation, if the step needs no more memory with it. The output of the convolution is never stored. Statistics come from sums of
    /// products of the input; a channel for which these lose digits is computed again, and has its statistics from that. Losses and
    /// gradients differ from those of `Separate` by rounding alone.
    #[default]
    Fused,
    /// Two operations, one after the other, as in PyTorch. The output of the convolution is stored.
    Separate,
}

impl ConvNorm {
    /// All of them, in the order of their numbers.
    pub const ALL: [ConvNorm; 2] = [ConvNorm::Fused, ConvNorm::Separate];

    /// Their names.
    pub const NAMES: [&'static str; 2] = ["Fused", "Separate"];
}
wire_enum!(ConvNorm { Fused, Separate });

/// Number that each training step computes beside its update: `measure: GradientNorm` in `TRAIN`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Measurement {
    /// None.
    #[default]
    None,
    /// The norm of all gradients together, before they are clipped: [`Net::gradient_norm`](crate::run::net::Net::gradient_norm) returns it.
    /// `clip: GlobalNorm` computes it anyway. All gradients are held until it is known, so that updates are `Separate`, and the budget has
    /// a line of gradients.
    ///
    /// PyTorch: `torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])`.
    GradientNorm,
}

impl Measurement {
    /// All of them, in the order of their numbers.
    pub const ALL: [Measurement; 2] = [Measurement::None, Measurement::GradientNorm];

    /// Their names.
    pub const NAMES: [&'static str; 2] = ["None", "GradientNorm"];
}

/// Training steps that update nothing: `skip: NonFinite` in `TRAIN`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Skip {
    /// None, but where the loss is scaled, in `F16` and `Mixed(F16)`, those with a gradient that is not finite. Running statistics move in
    /// these too.
    #[default]
    None,
    /// Those with a gradient that is infinite or no number, at every precision. Parameters, optimizer state and running statistics are then
    /// as before the step, which does not count; [`Net::skipped`](crate::run::net::Net::skipped) counts it.
    ///
    /// All gradients are alive before the first update, and a second copy of the running statistics during the step.
    ///
    /// PyTorch: `if all(p.grad.isfinite().all() for p in model.parameters()): optimizer.step()`, with the running statistics of before the
    /// step otherwise.
    NonFinite,
}

impl Skip {
    /// All of them, in the order of their numbers.
    pub const ALL: [Skip; 2] = [Skip::None, Skip::NonFinite];

    /// Their names.
    pub const NAMES: [&'static str; 2] = ["None", "NonFinite"];
}

/// Where what belongs to a training step lies: `offload: OptimizerState`, `offload: Activations` or `offload: All` in `TRAIN`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Offload {
    /// All of it in the arena.
    #[default]
    None,
    /// What the optimizer keeps of each parameter, and the f32 master copies of mixed precision, in host memory: a step brings them into the
    /// arena a piece at a time, beside the backward pass, and takes them back. The parameters after it are the same to the bit. For optimizers
    /// that treat each element by itself.
    OptimizerState,
    /// Activations that the backward pass reads long after the forward pass has left them, in host memory in between: each leaves beside the
    /// forward pass and is back beside the backward pass before it is read. Which they are follows from how long operations and copies take
    /// by a model, so that a step need not wait for the bus. The numbers are the same to the bit.
    Activations,
    /// Both: optimizer state and master copies, and activations. The model that chooses activations does not count the copies of states.
    All,
}

impl Offload {
    /// All of them, in the order of their numbers.
    pub const ALL: [Offload; 4] = [Offload::None, Offload::OptimizerState, Offload::Activations, Offload::All];

    /// Their names.
    pub const NAMES: [&'static str; 4] = ["None", "OptimizerState", "Activations", "All"];

    /// Its name.
    pub const fn name(self) -> &'static str {
        Offload::NAMES[self as usize]
    }
}
wire_enum!(Offload { None, OptimizerState, Activations, All });

/// What happens around an update: to gradients and to the learning rate before it, and where it finds what the optimizer keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Descent {
    /// How gradients are clipped, if they are.
    pub clip: Option<Clip>,
    /// How the learning rate changes from step to step.
    pub schedule: Schedule,
    /// Parts of a batch whose gradients are added up before an update: at least 1.
    pub micro_batches: u64,
    /// Whether these are added up in f32 where they have 16 bits themselves, as they are beside f32 master copies: a small gradient is
    /// then not lost in a large sum. What a step is written with does not say it, but its precision does.
    pub wide_sums: bool,
    /// What lies in host memory.
    pub offload: Offload,
    /// True if the norm of all gradients is computed, clipped by it or not.
    pub measures_norm: bool,
    /// True if a step with a gradient that is not finite changes nothing, at any precision.
    pub skips: bool,
    /// The moving averages of parameters, if there are some.
    pub ema: Option<Ema>,
}

impl Descent {
    /// Nothing.
    pub const PLAIN: Descent = Descent {
        clip: None,
        schedule: Schedule::PLAIN,
        micro_batches: 1,
        wide_sums: false,
        offload: Offload::None,
        measures_norm: false,
        skips: false,
        ema: None,
    };

    /// Whether optimizer state and master copies lie in host memory.
    pub const fn offloads(self) -> bool {
        matches!(self.offload, Offload::OptimizerState | Offload::All)
    }

    /// Whether activations lie in host memory for a while.
    pub const fn parks(self) -> bool {
        matches!(self.offload, Offload::Activations | Offload::All)
    }

    /// Whether gradients of several parts of a batch are added up.
    pub const fn accumulates(self) -> bool {
        self.micro_batches > 1
    }

    /// The same at a precision.
    pub const fn at(self, precision: Precision) -> Descent {
        Descent { wide_sums: self.accumulates() && precision.has_master(), ..self }
    }

    /// Whether the norm of all gradients is needed before the first update.
    pub const fn needs_norm(self) -> bool {
        self.clips_by_norm() || self.measures_norm
    }

    /// True if gradients are clipped by the norm of all of them.
    pub const fn clips_by_norm(self) -> bool {
        matches!(self.clip, Some(Clip::GlobalNorm(_)))
    }

    /// True if each gradient is looked at before the first update: the norm of all of them would say as well if one is not finite.
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
    }

    fn take(from: &mut Reader<'_>) -> Option<Descent> {
        let (clip, schedule) = (Wire::take(from)?, Wire::take(from)?);
        let (micro_batches, wide_sums) = (Wire::take(from)?, Wire::take(from)?);
        let offload = Wire::take(from)?;
        let (measures_norm, skips, ema) = (Wire::take(from)?, Wire::take(from)?, Wire::take(from)?);
        let descent = Descent { clip, schedule, micro_batches, wide_sums, offload, measures_norm, skips, ema };
        Some(descent).filter(|descent| descent.micro_batches > 0)
    }
}

/// A term of the loss.
#[derive(Clone, Debug, PartialEq)]
pub struct LossTerm {
    /// How it measures.
    pub loss: Loss,
    /// What it is multiplied with.
    pub weight: f64,
    /// The tap that it measures; `None` for the network's first output.
    pub from: Option<&'static str>,
    /// The tap with which a loss of two values compares it; `None` for the network's second output.
    pub and: Option<&'static str>,
    /// The third tap of a loss of triples; `None` for the network's third output.
    pub third: Option<&'static str>,
    /// The tap whose exponential a loss of a batch multiplies products with; `None` where a temperature divides them.
    pub scale: Option<&'static str>,
    /// The tap that a loss of a batch adds to products; `None` for a number.
    pub bias: Option<&'static str>,
    /// The name of the target that it compares with; terms without one share a target.
    pub target: Option<&'static str>,
    /// The name of the target with the lengths of sequences; `None` where all of their steps count.
    pub input_lengths: Option<&'static str>,
    /// The name of the target that its terms are multiplied with; `None` if they are not.
    pub weights: Option<&'static str>,
    /// The name of the input that says how many steps of each sample count; `None` where all do.
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

/// Numbers for classes as [`LossOptions`] has them, for generated code.
#[doc(hidden)]
pub const fn weights(numbers: &'static [f64]) -> Cow<'static, [f64]> {
    Cow::Borrowed(numbers)
}
