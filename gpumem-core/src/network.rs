//! What `network!` implements for the struct it generates.

use crate::budget::Budget;
use crate::role::{Precision, Role};
use crate::step::Step;
use crate::train::Train;

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
    /// Multiply-accumulates of one sample's forward pass.
    pub macs: u64,
    /// Elements of what its backward pass keeps and no earlier layer keeps already: activations that are there once,
    /// activations for each sample, 4-byte elements that are there once, 4-byte elements for each sample.
    pub kept: [u64; 4],
}

impl LayerInfo {
    /// Bytes of what its backward pass keeps and no earlier layer keeps already.
    pub const fn kept_bytes(&self, batch: u64, precision: Precision) -> u64 {
        let [once, each, wide_once, wide_each] = self.kept;
        (once + each * batch) * Role::Activation.bytes(precision)
            + (wide_once + wide_each * batch) * Role::Statistic.bytes(precision)
    }
}

/// A program with its plan and its budget, ready to be run.
#[derive(Clone, Copy, Debug)]
pub struct Compiled {
    /// The program, as [`Program::encode`](crate::program::Program::encode) wrote it.
    pub program: &'static [u8],
    /// The tables that the plan was made from.
    pub step: &'static Step,
    /// Byte offset of each transient tensor within the activations' part of the arena.
    pub offsets: &'static [u64],
    /// Every line of the budget, in bytes.
    pub budget: Budget,
}

/// A network that `network!` declared.
pub trait Network: Sized {
    /// The struct's name.
    const NAME: &'static str;
    /// The layer table.
    const LAYERS: &'static [LayerInfo];
    /// The training step, if the network has `const TRAIN`.
    const TRAINING: Option<&'static Compiled>;
    /// The forward pass: as `const INFER` says, or with the batch and the precision of `const TRAIN`.
    const INFERENCE: &'static Compiled;
    /// The forward pass beside the training step: with the batch and the precision of `const TRAIN`. The same as
    /// [`Network::INFERENCE`] for a network without `const TRAIN` or without `const INFER`.
    const EVALUATION: &'static Compiled;
    /// How the network is trained, if it is.
    const TRAIN: Option<Train>;
    /// Bytes of each card that [`Network::PROGRAM`] leaves to others.
    const HEADROOM: u64;
    /// What [`Network::TRAINING`] needs of memory, or [`Network::INFERENCE`] for a network without training.
    const BUDGET: Budget = Self::PROGRAM.budget;
    /// The training step, or the forward pass for a network without training.
    const PROGRAM: &'static Compiled = match Self::TRAINING {
        Some(training) => training,
        None => Self::INFERENCE,
    };
    /// Byte offset of each tensor that lives inside [`Network::PROGRAM`]'s step.
    const PLAN: &'static [u64] = Self::PROGRAM.offsets;

    /// Evaluating it fails to compile if the network does not fit the cards it is aimed at.
    const CHECKED: ();

    /// A batch of inputs.
    type Input;
    /// What the loss compares a batch of outputs with; `()` for a network without training.
    type Target;
    /// A batch of outputs.
    type Output;
}
