//! What a layer says about itself, once: the macro, the budget, the plan, the reports and both backends read it here.

use super::Layer;
use super::arguments::{Arguments, Mistake, Signature};
use crate::program::Init;
use crate::role::Role;
use crate::shape::Shape;
use alloc::vec::Vec;

/// What arrives at a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Dimensions of one sample.
    pub shape: Shape,
    /// Whether the elements are indices (tokens) rather than numbers.
    pub index: bool,
    /// Whether there is one for each sample, or one for the whole batch.
    pub batched: bool,
}

impl Value {
    /// Numbers of this shape for each sample.
    pub fn numbers(shape: Shape) -> Value {
        Value { shape, index: false, batched: true }
    }
}

/// A parameter of a layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its name within the layer: `weight`, `bias`.
    pub name: &'static str,
    /// Its dimensions, as PyTorch lays them out.
    pub shape: Shape,
    /// [`Role::Weight`] or [`Role::Norm`].
    pub role: Role,
    /// How it is filled before the first step.
    pub init: Init,
}

/// A running statistic of a layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// Its name within the layer: `running_mean`.
    pub name: &'static str,
    /// Its dimensions.
    pub shape: Shape,
    /// The value of every element before the first step.
    pub value: f64,
}

/// A tensor that the forward pass leaves for the backward pass beside the layer's input and output.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved {
    /// Its name within the layer: `indices`.
    pub name: &'static str,
    /// Its dimensions.
    pub shape: Shape,
    /// Whether there is one for each sample, or one for the whole batch.
    pub batched: bool,
    /// What its elements are for.
    pub role: Role,
}

/// What a part of the backward pass reads beside the gradient of the layer's output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// The layer's input (all of them, for a join).
    pub input: bool,
    /// The layer's output.
    pub output: bool,
    /// The layer's parameters.
    pub parameters: bool,
    /// What the forward pass saved.
    pub saved: bool,
    /// The random state.
    pub state: bool,
}

/// What the backward pass reads and how it is cut into operations. Nothing else is kept alive for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backward {
    /// The gradient of the input only: the layer has no parameters.
    Input {
        /// What it reads.
        reads: Reads,
        /// Whether the gradient of the input may overwrite the gradient of the output.
        in_place: bool,
    },
    /// The gradient of the parameters only: nothing flows on to the input.
    Parameters {
        /// What it reads.
        reads: Reads,
    },
    /// Two independent operations.
    Split {
        /// What the gradient of the input reads.
        input: Reads,
        /// What the gradient of the parameters reads.
        parameters: Reads,
    },
    /// One operation for both.
    Joint {
        /// What it reads.
        reads: Reads,
        /// Whether the gradient of the input may overwrite the gradient of the output.
        in_place: bool,
    },
}

/// What an operation of a layer computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The output, in training.
    Forward,
    /// The output, without training.
    Inference,
    /// The gradient of the input.
    BackwardInput,
    /// The gradients of the parameters.
    BackwardParameters,
    /// Both gradients at once ([`Backward::Joint`]).
    Backward,
}

/// Scratch memory that one operation can use.
#[derive(Clone, Debug, PartialEq)]
pub struct Workspace {
    /// [`Role::ProductWorkspace`] and [`Role::ConvolutionWorkspace`] are capped by the network's cards and settings; a
    /// [`Role::Statistic`] is what the operation needs in any case.
    pub role: Role,
    /// Its dimensions.
    pub shape: Shape,
    /// Whether there is as much for each sample, or for the whole batch.
    pub batched: bool,
}

/// What becomes of a layer when there is no training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inference {
    /// It computes.
    Computes,
    /// It passes its input on.
    PassesOn,
}

/// A type-level assertion: `name<arguments>` maps the input shape to the output shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Proof {
    /// The type in [`typed`](crate::typed).
    pub name: &'static str,
    /// Its numbers, in order.
    pub arguments: Vec<u64>,
}

impl Proof {
    /// An assertion without numbers.
    pub fn plain(name: &'static str) -> Proof {
        Proof { name, arguments: Vec::new() }
    }
}

/// What a layer says about itself.
///
/// The values are resolved: every dimension of the input is known, so that a backend reads all it needs from them.
pub trait Rule: Sized {
    /// The name in the language.
    const NAME: &'static str;

    /// The arguments it takes.
    const SIGNATURE: Signature;

    /// How many inputs it joins: `None` for one input, the least number of branches for a join.
    const BRANCHES: Option<usize> = None;

    /// Whether the output has the input's shape whatever the arguments, so that a mistake in them does not stop the checks of
    /// the layers that follow.
    const KEEPS_SHAPE: bool = false;

    /// The shape rule: checks the arguments against what arrives and fixes every dimension.
    ///
    /// # Errors
    /// The first reason why the layer cannot stand here.
    fn resolve(arguments: &Arguments, inputs: &[Value]) -> Result<Self, Mistake>;

    /// Dimensions of the output of one sample.
    fn output(&self) -> Shape;

    /// The parameters, in the order of [`Slot::Parameter`](crate::program::Slot).
    fn parameters(&self) -> Vec<Parameter> {
        Vec::new()
    }

    /// The running statistics, in the order of [`Slot::Buffer`](crate::program::Slot).
    fn buffers(&self) -> Vec<Buffer> {
        Vec::new()
    }

    /// What the forward pass saves, in the order of [`Slot::Saved`](crate::program::Slot).
    fn saved(&self) -> Vec<Saved> {
        Vec::new()
    }

    /// What the backward pass reads.
    fn backward(&self) -> Backward;

    /// The scratch memory that an operation can use; `None` if it uses none.
    fn workspace(&self, pass: Pass) -> Option<Workspace> {
        let _ = pass;
        None
    }

    /// Whether the output may overwrite the input, where nothing else needs the input.
    fn in_place(&self) -> bool {
        false
    }

    /// Whether the user asked for the output to overwrite the input.
    fn asks_in_place(&self) -> bool {
        false
    }

    /// Whether the output is the input under another shape, so that no operation is needed.
    fn is_view(&self) -> bool {
        false
    }

    /// Whether the training forward pass reads the random state.
    fn draws(&self) -> bool {
        false
    }

    /// Whether the output depends on nothing but the shape of the input: it is then the same for every sample, so that
    /// there is one for the whole batch, and the input is not read.
    fn ignores_input(&self) -> bool {
        false
    }

    /// What becomes of it when there is no training.
    fn inference(&self) -> Inference {
        Inference::Computes
    }

    /// Multiply-accumulates of one sample's forward pass, counted as PyTorch's `FlopCounterMode` counts: convolutions,
    /// products and attention only.
    fn macs(&self) -> u64 {
        0
    }

    /// The layers it stands for, each with the name that its parameters get, if it is not one operation itself.
    fn expand(&self) -> Option<Vec<(&'static str, Layer)>> {
        None
    }

    /// The type-level assertion of its shape rule; `None` if the shape rule of its parts says it all.
    fn proof(&self) -> Option<Proof>;
}
