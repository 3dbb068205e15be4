//! The program: a flat list of operations over a table of tensors.
//!
//! Lowering makes it, the plan places its tensors, the backends walk it. An operation names its tensors by [`Slot`], so
//! that a backend asks for `Slot::Input(0)` or `Slot::Gradient` and never counts positions.

use crate::layers::Layer;
use crate::role::Role;
use crate::shape::Shape;
use crate::step::{Part, Phase};
use crate::train::Loss;
use crate::wire::{Reader, Wire, record, wire_enum};
use alloc::string::String;
use alloc::vec::Vec;

/// The number of a tensor in [`Program::tensors`].
pub type TensorId = u32;

/// How long a tensor lives and who fills it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// A weight, bias, scale or shift: lives as long as the network.
    Parameter,
    /// A parameter's gradient that is held until the end of the step.
    Gradient,
    /// Optimizer state of a parameter.
    Moment,
    /// Running statistics.
    Buffer,
    /// What changes from step to step without changing the program: see [`StateWord`].
    State,
    /// An input of the network.
    Input,
    /// What the loss compares the output with.
    Target,
    /// Lives inside a step only, and shares its memory with others.
    Transient,
}
wire_enum!(Class { Parameter, Gradient, Moment, Buffer, State, Input, Target, Transient });
wire_enum!(Part { Output, OutputGradient, ParameterGradient, Saved, Workspace });
wire_enum!(Phase { Forward, Backward, Update, Loss });
wire_enum!(Role { Activation, Weight, Norm, Moment, Statistic, Index, State, ProductWorkspace, ConvolutionWorkspace });

/// The 32-bit words of the tensor of [`Class::State`]. It lives in the arena so that a step that was captured once can be
/// replayed with another seed or learning rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum StateWord {
    /// Steps that have been made, low word first.
    Step = 0,
    /// The seed, low word first.
    Seed = 2,
    /// The learning rate, as the bits of an f32.
    LearningRate = 4,
    /// What the loss is multiplied with before the backward pass, as the bits of an f32.
    LossScale = 5,
    /// Whether a gradient of this step was too large for its 16 bits: 1 or 0. Such an element is not updated, and the end of
    /// the step halves the loss scale.
    Overflow = 6,
    /// Steps in a row without such a gradient. After 2000 the loss scale is doubled and they are counted anew.
    GoodSteps = 7,
}

impl StateWord {
    /// Words of the tensor.
    pub const COUNT: usize = 8;
}

/// How a tensor is filled before the first step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Every element the same.
    Constant(f64),
    /// Uniform on `[-bound, bound)`.
    Uniform(f64),
    /// Normal with mean 0 and this standard deviation.
    Normal(f64),
}

impl Wire for Init {
    fn put(&self, out: &mut Vec<u8>) {
        let (kind, value) = match *self {
            Init::Constant(value) => (0u64, value),
            Init::Uniform(bound) => (1, bound),
            Init::Normal(deviation) => (2, deviation),
        };
        kind.put(out);
        value.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Init> {
        let kind = u64::take(from)?;
        let value = f64::take(from)?;
        match kind {
            0 => Some(Init::Constant(value)),
            1 => Some(Init::Uniform(value)),
            2 => Some(Init::Normal(value)),
            _ => None,
        }
    }
}

record! {
    /// A tensor of a program.
    pub struct Tensor {
        /// How long it lives.
        pub class: Class,
        /// What its elements are for.
        pub role: Role,
        /// What it is to its layer.
        pub part: Part,
        /// Its name: a parameter's path such as `stage[0].conv2d[1].weight`; empty where the layer and part say it all.
        pub name: String,
        /// Row of the layer it belongs to, or [`NO_ROW`](crate::step::NO_ROW).
        pub row: u32,
        /// Dimensions without the batch.
        pub shape: Shape,
        /// Whether there is one such shape for each sample of the batch, or one for all.
        pub batched: bool,
        /// How it is filled before the first step (parameters, buffers and state).
        pub init: Init,
        /// First operation that touches it (transients).
        pub first: u32,
        /// Last operation that touches it (transients).
        pub last: u32,
    }
}

impl Tensor {
    /// Elements at this batch size, or `None` if they exceed `u64`.
    pub fn elements(&self, batch: u64) -> Option<u64> {
        let each = self.shape.elements()?;
        if self.batched { each.checked_mul(batch) } else { Some(each) }
    }
}

/// What a tensor is to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The layer's input; joins have several.
    Input(u8),
    /// The layer's output.
    Output,
    /// A parameter, in the order in which the layer declares them.
    Parameter(u8),
    /// A running statistic, in the order in which the layer declares them: read and written in training.
    Buffer(u8),
    /// What the forward pass saves for the backward pass, in the order in which the layer declares it.
    Saved(u8),
    /// The gradient of the layer's output.
    Gradient,
    /// The gradient of an input: written, or added to if the operation accumulates.
    InputGradient(u8),
    /// The gradient of a parameter: written, or added to if the operation accumulates.
    ParameterGradient(u8),
    /// Optimizer state.
    Moment(u8),
    /// Step counter and seed.
    State,
    /// What the loss compares with.
    Target,
    /// The scalar loss.
    Loss,
    /// Scratch memory of this operation alone. A backend that needs none leaves it.
    Workspace,
}

impl Wire for Slot {
    fn put(&self, out: &mut Vec<u8>) {
        let (kind, index) = match *self {
            Slot::Input(index) => (0u64, index),
            Slot::Output => (1, 0),
            Slot::Parameter(index) => (2, index),
            Slot::Buffer(index) => (3, index),
            Slot::Saved(index) => (4, index),
            Slot::Gradient => (5, 0),
            Slot::InputGradient(index) => (6, index),
            Slot::ParameterGradient(index) => (7, index),
            Slot::Moment(index) => (8, index),
            Slot::State => (9, 0),
            Slot::Target => (10, 0),
            Slot::Loss => (11, 0),
            Slot::Workspace => (12, 0),
        };
        (u64::from(index) << 4 | kind).put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Slot> {
        let word = u64::take(from)?;
        let index = u8::try_from(word >> 4).ok()?;
        Some(match word & 15 {
            0 => Slot::Input(index),
            1 => Slot::Output,
            2 => Slot::Parameter(index),
            3 => Slot::Buffer(index),
            4 => Slot::Saved(index),
            5 => Slot::Gradient,
            6 => Slot::InputGradient(index),
            7 => Slot::ParameterGradient(index),
            8 => Slot::Moment(index),
            9 => Slot::State,
            10 => Slot::Target,
            11 => Slot::Loss,
            12 => Slot::Workspace,
            _ => return None,
        })
    }
}

/// What an operation computes.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// `Output` from `Input`s and `Parameter`s; in training also `Saved` and the updated `Buffer`s.
    Forward(Layer),
    /// `InputGradient`s from `Gradient` and what the layer declares.
    BackwardInput(Layer),
    /// `ParameterGradient`s from `Gradient` and what the layer declares.
    BackwardParameters(Layer),
    /// `InputGradient`s and `ParameterGradient`s in one pass; either may be absent.
    Backward(Layer),
    /// `Loss` from `Input(0)` and `Target`, and the gradient of the output into `InputGradient(0)`, which may be the
    /// same tensor as `Input(0)`. The mean over the batch is part of the gradient. `Workspace` has an f32 for each position
    /// whose loss is summed: see [`Criterion::terms`].
    Loss(Criterion),
    /// `Parameter(0)` and its `Moment`s from `ParameterGradient(0)`; the optimizer is the network's.
    Update,
    /// Adds `Input(0)` to `Output`, element by element.
    Accumulate,
    /// Copies `Input(0)` to `Output`.
    Copy,
    /// Sums `Gradient` over the batch into `InputGradient(0)`, which has no batch.
    SumBatch,
    /// Increments the step counter in `State`: the last operation of a training step.
    Advance,
}

/// A loss with the shape of what it compares: `outer` x `classes` x `inner` elements a sample. Logits of a vector have
/// `outer` = `inner` = 1, of a sequence `outer` = T, of a map `inner` = H * W.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Criterion {
    /// Which loss.
    pub kind: Measure,
    /// Positions before the class axis.
    pub outer: u64,
    /// Classes, or 1 where there is no class axis.
    pub classes: u64,
    /// Positions after the class axis.
    pub inner: u64,
}

/// Partial sums that a loss over elements rather than positions is added up from.
const PARTIAL_SUMS: u64 = 256;

impl Criterion {
    /// Terms that the loss is the sum of, and whether there are as many for each sample or as many in all. Kept apart, they
    /// are added in the same order in every run.
    pub fn terms(&self) -> (Shape, bool) {
        match self.kind {
            Measure::CrossEntropy => (Shape::new(&[self.outer, self.inner]), true),
            Measure::Mse | Measure::Dot => (Shape::new(&[PARTIAL_SUMS]), false),
        }
    }
}

/// How a loss measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Measure {
    /// Mean over positions of `log(sum(exp(x))) - x[target]`; targets are class indices.
    CrossEntropy,
    /// Mean over elements of `(x - target)^2`.
    Mse,
    /// Sum over elements of `x * target`: its gradient is the target, which makes any gradient reachable in tests.
    Dot,
}
wire_enum!(Measure { CrossEntropy, Mse, Dot });

impl From<Loss> for Measure {
    fn from(loss: Loss) -> Measure {
        match loss {
            Loss::CrossEntropy => Measure::CrossEntropy,
            Loss::Mse => Measure::Mse,
        }
    }
}

impl Wire for Criterion {
    fn put(&self, out: &mut Vec<u8>) {
        self.kind.put(out);
        [self.outer, self.classes, self.inner].put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Criterion> {
        let kind = Measure::take(from)?;
        let [outer, classes, inner] = Wire::take(from)?;
        Some(Criterion { kind, outer, classes, inner })
    }
}

impl Wire for Action {
    fn put(&self, out: &mut Vec<u8>) {
        let number: u64 = match self {
            Action::Forward(_) => 0,
            Action::BackwardInput(_) => 1,
            Action::BackwardParameters(_) => 2,
            Action::Backward(_) => 3,
            Action::Loss(_) => 4,
            Action::Update => 5,
            Action::Accumulate => 6,
            Action::Copy => 7,
            Action::SumBatch => 8,
            Action::Advance => 9,
        };
        number.put(out);
        match self {
            Action::Forward(layer)
            | Action::BackwardInput(layer)
            | Action::BackwardParameters(layer)
            | Action::Backward(layer) => layer.put(out),
            Action::Loss(criterion) => criterion.put(out),
            Action::Update | Action::Accumulate | Action::Copy | Action::SumBatch | Action::Advance => {}
        }
    }

    fn take(from: &mut Reader<'_>) -> Option<Action> {
        Some(match u64::take(from)? {
            0 => Action::Forward(Layer::take(from)?),
            1 => Action::BackwardInput(Layer::take(from)?),
            2 => Action::BackwardParameters(Layer::take(from)?),
            3 => Action::Backward(Layer::take(from)?),
            4 => Action::Loss(Criterion::take(from)?),
            5 => Action::Update,
            6 => Action::Accumulate,
            7 => Action::Copy,
            8 => Action::SumBatch,
            9 => Action::Advance,
            _ => return None,
        })
    }
}

/// A tensor in its role for one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// What the tensor is to the operation.
    pub slot: Slot,
    /// Which tensor.
    pub tensor: TensorId,
}

impl Wire for Operand {
    fn put(&self, out: &mut Vec<u8>) {
        self.slot.put(out);
        self.tensor.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Operand> {
        Some(Operand { slot: Wire::take(from)?, tensor: Wire::take(from)? })
    }
}

record! {
    /// One operation.
    pub struct Operation {
        /// What it computes.
        pub action: Action,
        /// Row of the layer it belongs to, or [`NO_ROW`](crate::step::NO_ROW).
        pub row: u32,
        /// Whether `InputGradient` and `ParameterGradient` are added to rather than overwritten.
        pub accumulate: bool,
        /// The tensors it reads.
        pub reads: Vec<Operand>,
        /// The tensors it writes. A tensor in both lists is updated in place.
        pub writes: Vec<Operand>,
    }
}

impl Operation {
    /// The tensor read as `slot`.
    pub fn read(&self, slot: Slot) -> Option<TensorId> {
        self.reads.iter().find(|operand| operand.slot == slot).map(|operand| operand.tensor)
    }

    /// The tensor written as `slot`.
    pub fn written(&self, slot: Slot) -> Option<TensorId> {
        self.writes.iter().find(|operand| operand.slot == slot).map(|operand| operand.tensor)
    }

    /// Every tensor that the operation touches; one that is updated in place comes twice.
    pub fn tensors(&self) -> impl Iterator<Item = TensorId> + '_ {
        self.reads.iter().chain(&self.writes).map(|operand| operand.tensor)
    }

    /// Which part of a step the operation belongs to.
    pub fn phase(&self) -> Phase {
        match self.action {
            Action::Forward(_) => Phase::Forward,
            Action::Loss(_) => Phase::Loss,
            Action::Update | Action::Advance => Phase::Update,
            _ => Phase::Backward,
        }
    }
}

record! {
    /// A training step or a forward pass as a list of operations.
    pub struct Program {
        /// Whether this is a training step. Dropout drops and BatchNorm uses the batch's statistics only then.
        pub training: bool,
        /// Optimizer state tensors for each parameter.
        pub moments: u64,
        /// Whether gradients are held until the end of the step.
        pub holds_gradients: bool,
        /// Every tensor: persistent ones first, in the order of their classes, then transients.
        pub tensors: Vec<Tensor>,
        /// The operations in execution order.
        pub operations: Vec<Operation>,
        /// Paths of the layer rows.
        pub paths: Vec<String>,
        /// The tensor that holds the network's output after the forward pass (inference), or the loss (training).
        pub result: TensorId,
    }
}

impl Program {
    /// The program as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(&mut out);
        out
    }

    /// The program that [`Program::encode`] wrote, or `None` if `bytes` are damaged.
    pub fn decode(bytes: &[u8]) -> Option<Program> {
        let mut reader = Reader::new(bytes);
        let program = Program::take(&mut reader)?;
        let count = program.tensors.len();
        let sound = program.operations.iter().flat_map(Operation::tensors).all(|tensor| (tensor as usize) < count);
        (reader.is_empty() && sound && (program.result as usize) < count).then_some(program)
    }

    /// A tensor by its number.
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        &self.tensors[id as usize]
    }

    /// Numbers of the tensors of one class, in order.
    pub fn of_class(&self, class: Class) -> impl Iterator<Item = TensorId> + '_ {
        self.tensors.iter().enumerate().filter(move |(_, tensor)| tensor.class == class).map(|(id, _)| id as TensorId)
    }

    /// The tensors that share the activations' part of the arena, in the order of the plan's offsets.
    pub fn transients(&self) -> impl Iterator<Item = TensorId> + '_ {
        self.of_class(Class::Transient)
    }
}
