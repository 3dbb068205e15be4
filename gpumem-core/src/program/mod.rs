//! The program: a flat list of operations over a table of tensors.
//!
//! Lowering makes it, the plan places its tensors, the backends walk it. An operation names its tensors by [`Slot`], so
//! that a backend asks for `Slot::Input(0)` or `Slot::Gradient` and never counts positions. [`ops`] are the operations, one a
//! file; [`op`] says what each of them states.

mod action;
pub mod adapters;
pub mod criterion;
mod display;
pub mod encoding;
mod evaluation;
pub mod formula;
pub mod function;
pub mod indices;
mod init;
pub mod kept;
mod layers;
mod layout;
pub mod loss;
pub mod op;
pub mod ops;
mod sequence;
mod tag;

use crate::number::Role;
use crate::number::random::Stream;
use crate::shape::Shape;
use crate::train::Descent;
pub use action::{Action, Leg, Pass, Piece};
use alloc::string::String;
use alloc::vec::Vec;
pub use criterion::Criterion;
use encoding::{Reader, Wire, record, wire_enum};
pub use evaluation::{Evaluation, TrainingOnly};
pub use init::Init;
pub use layout::{Layout, Order, Strides};
pub use loss::Measure;
pub use op::Op;
pub use tag::{NO_ROW, Part, Phase};

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
    /// What is kept of the steps of a sequence, as the keys that attention has seen: lives as long as the network, for each sample.
    Cache,
    /// An input of the network.
    Input,
    /// What the loss compares the output with.
    Target,
    /// Lives inside a step only, and shares its memory with others.
    Transient,
    /// Where the contents of a transient lie in host memory between two of its lives: see [`Action::Park`].
    Host,
    /// The moving average of a parameter.
    Average,
}
wire_enum!(Class { Parameter, Gradient, Moment, Buffer, State, Cache, Input, Target, Transient, Host, Average });
wire_enum!(Part { Output, OutputGradient, ParameterGradient, Saved, Workspace, Staging });
wire_enum!(Phase { Forward, Backward, Update, Loss, Again });
wire_enum!(Role {
    Activation,
    Weight,
    Norm,
    Moment,
    Statistic,
    Index,
    State,
    ProductWorkspace,
    ConvolutionWorkspace,
    Byte,
    Code,
    WideMoment,
    Int8,
    Nf4,
    Scale,
    Master,
    Bit,
    Nf4Double
});

/// The 32-bit words of the tensor of [`Class::State`]. It lives in the arena so that a step that was captured once can be
/// replayed with another seed or learning rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum StateWord {
    /// Steps that have been made, low word first: of training, or where there is a cache, of the sequence that are in it.
    Step = 0,
    /// The seed, low word first.
    Seed = 2,
    /// The learning rate, as the bits of an f32: where there is a schedule, that which it begins with.
    LearningRate = 4,
    /// What the loss is multiplied with before the backward pass, as the bits of an f32.
    LossScale = 5,
    /// Whether a gradient of this step was too large for its 16 bits: 1 or 0. Nothing is updated then, and the end of the step
    /// halves the loss scale.
    Overflow = 6,
    /// Steps in a row without such a gradient. After 2000 the loss scale is doubled and they are counted anew.
    GoodSteps = 7,
    /// What the optimizer's rule needs that is another number in each step, as the bits of two f32: for Adam, which divides its first and
    /// its second moment by them, `1 - beta^t`. A step computes them before its updates, so nobody else has to know them; a backend may
    /// do without. See [`Corrections`](crate::train::optim::Corrections).
    Corrections = 8,
    /// Blocks of the last update that have read the state, 0 between steps. A backend may do without.
    Readers = 10,
    /// Blocks of a launch whose blocks wait for each other: all but its highest bit are 0 between launches. A backend may do without.
    Blocks = 11,
    /// Losses that the device has sent to the host, counted by it: it keeps this word when the host writes the others. A backend may
    /// do without.
    Losses = 12,
    /// The learning rate of this step where there is a schedule, as the bits of an f32: a step computes it from
    /// [`StateWord::LearningRate`] and its number before its updates. A backend may do without. See
    /// [`Schedule`](crate::train::Schedule).
    Rate = 13,
    /// What gradients are multiplied with where they are clipped by their norm, as the bits of an f32: [`Action::Norm`] computes it.
    Clip = 14,
    /// The norm of all gradients of the last step, before they were clipped, as the bits of an f32: [`Action::Norm`] computes it.
    Norm = 15,
    /// The four numbers of the schedule in the order of its row, each as the bits of an f64, low word first; those that it has not are 0. The
    /// host may change them between two steps. See [`Schedule::words`](crate::train::Schedule::words).
    Schedule = 16,
    /// Steps that updated nothing, because a gradient was not finite.
    Skipped = 24,
    /// The number of times that parameters were averaged: see [`Ema`](crate::train::Ema).
    Averaged = 25,
}

impl StateWord {
    /// Words of the tensor.
    pub const COUNT: usize = 26;

    /// Where there is a cache: how many of the steps at hand are of the sequence; what lies behind them fills the pass up. In the place of the
    /// seed, for without training nothing is drawn.
    pub const AT_HAND: usize = StateWord::Seed as usize;

    /// Where a batch is split: which part is at hand, counted from 0. In the place of the factor of clipped gradients, which is not there
    /// before the last part is over.
    pub const PART: usize = StateWord::Clip as usize;
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
        /// Row of the layer it belongs to, or [`NO_ROW`].
        pub row: u32,
        /// Dimensions without the batch.
        pub shape: Shape,
        /// Whether there is one such shape for each sample of the batch, or one for all.
        pub batched: bool,
        /// Elements that are there once beside those: of scratch memory.
        pub once: u64,
        /// How the elements of a sample lie in memory.
        pub layout: Layout,
        /// Elements from row to row in formats of 16 bits: `layout` has it once the format is known, see
        /// [`Program::lay_out`]. 0 where rows follow each other without gaps in every format.
        pub pitch: u64,
        /// Whether training changes it (parameters). One that it does not has no gradient, no optimizer state, no master copy.
        pub trained: bool,
        /// How it is filled before the first step (parameters, buffers and state).
        pub init: Init,
        /// First operation that touches it (transients).
        pub first: u32,
        /// Last operation that touches it (transients).
        pub last: u32,
    }
}

impl Tensor {
    /// A dense tensor without a name that lives inside a step, one for the whole batch: what others are made of.
    #[cfg(feature = "lower")]
    pub(crate) fn transient(part: Part, role: Role, row: u32, shape: Shape) -> Tensor {
        Tensor {
            class: Class::Transient,
            role,
            part,
            name: String::new(),
            row,
            shape,
            batched: false,
            once: 0,
            layout: Layout::DENSE,
            pitch: 0,
            trained: false,
            init: Init::Constant(0.0),
            first: 0,
            last: 0,
        }
    }

    /// Elements at this batch size, or `None` if they exceed `u64`.
    pub fn elements(&self, batch: u64) -> Option<u64> {
        let each = self.shape.elements()?;
        let all = if self.batched { each.checked_mul(batch)? } else { each };
        all.checked_add(self.once)
    }

    /// Elements of the gaps that a sample has in formats of 16 bits, and nowhere else.
    pub fn gaps(&self) -> u64 {
        let with = Layout { pitch: self.pitch, ..Layout::DENSE }.elements(self.shape).unwrap_or(0);
        with.saturating_sub(self.shape.elements().unwrap_or(u64::MAX))
    }

    /// Whether it is a weight `[O, C, R, S]`, or belongs to one, and lies as `[O, R, S, C]`.
    pub fn is_turned(&self) -> bool {
        !self.batched && self.layout.is_of_weight(self.shape)
    }

    /// Elements that a sample takes in memory, gaps of its layout included, or `None` if they exceed `u64`: bytes where codes or bits share them.
    pub fn stored_of_each(&self) -> Option<u64> {
        Some(self.layout.elements(self.shape)?.div_ceil(self.role.packed()))
    }

    /// The same of the whole batch.
    pub fn stored(&self, batch: u64) -> Option<u64> {
        let each = self.stored_of_each()?;
        let all = if self.batched { each.checked_mul(batch)? } else { each };
        all.checked_add(self.once)
    }
}

/// What a tensor is to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// An input, activation or parameter, by its number.
    Input(u8),
    /// The output.
    Output,
    /// A running statistic: read and written in training.
    Buffer(u8),
    /// What the forward pass saves for the backward pass.
    Saved(u8),
    /// The gradient of the output.
    Gradient,
    /// The gradient of an input: written, or added to if the operation accumulates.
    InputGradient(u8),
    /// A parameter that is updated.
    Parameter,
    /// Its gradient.
    ParameterGradient,
    /// Its optimizer state.
    Moment(u8),
    /// Step counter and seed.
    State,
    /// What the loss compares with.
    Target,
    /// The scalar loss.
    Loss,
    /// Scratch memory of this operation alone. A backend that needs none leaves it.
    Workspace,
    /// What the operation before reads, and this one must leave alone, so that both may run as one.
    Held(u8),
    /// What is kept of earlier steps, to which the steps at hand are added.
    Cache(u8),
    /// A piece of the parameter's master copy, where that lies in host memory.
    Master,
    /// What the operation makes for itself and nobody else reads, by its number.
    Scratch(u8),
    /// The moving average of a parameter.
    Average,
}

impl Slot {
    /// Whether it is memory of the operation alone, which holds nothing before and after.
    pub fn is_scratch(self) -> bool {
        matches!(self, Slot::Workspace | Slot::Scratch(_))
    }
}

impl Wire for Slot {
    fn put(&self, out: &mut Vec<u8>) {
        let (kind, index) = match *self {
            Slot::Input(index) => (0u64, index),
            Slot::Output => (1, 0),
            Slot::Buffer(index) => (2, index),
            Slot::Saved(index) => (3, index),
            Slot::Gradient => (4, 0),
            Slot::InputGradient(index) => (5, index),
            Slot::Parameter => (6, 0),
            Slot::ParameterGradient => (7, 0),
            Slot::Moment(index) => (8, index),
            Slot::State => (9, 0),
            Slot::Target => (10, 0),
            Slot::Loss => (11, 0),
            Slot::Workspace => (12, 0),
            Slot::Held(index) => (13, index),
            Slot::Cache(index) => (14, index),
            Slot::Master => (15, 0),
            Slot::Scratch(index) => (16, index),
            Slot::Average => (17, 0),
        };
        (u64::from(index) << 5 | kind).put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Slot> {
        let word = u64::take(from)?;
        let index = u8::try_from(word >> 5).ok()?;
        Some(match word & 31 {
            0 => Slot::Input(index),
            1 => Slot::Output,
            2 => Slot::Buffer(index),
            3 => Slot::Saved(index),
            4 => Slot::Gradient,
            5 => Slot::InputGradient(index),
            6 => Slot::Parameter,
            7 => Slot::ParameterGradient,
            8 => Slot::Moment(index),
            9 => Slot::State,
            10 => Slot::Target,
            11 => Slot::Loss,
            12 => Slot::Workspace,
            13 => Slot::Held(index),
            14 => Slot::Cache(index),
            15 => Slot::Master,
            16 => Slot::Scratch(index),
            17 => Slot::Average,
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
        /// Row of the layer it belongs to, or [`NO_ROW`].
        pub row: u32,
        /// Whether an `InputGradient` that is read as well is added to rather than overwritten.
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

    /// The operation that runs forward, for the first time or again, of all or of a chunk, if that is what it does.
    pub fn forward(&self) -> Option<&Op> {
        match &self.action {
            Action::Run { op, pass: Pass::Forward | Pass::Again | Pass::Chunk } => Some(op),
            _ => None,
        }
    }

    /// The operation that runs backward, if that is what it does.
    pub fn backward(&self) -> Option<&Op> {
        match &self.action {
            Action::Run { op, pass: Pass::Backward } => Some(op),
            _ => None,
        }
    }

    /// Which part of a step the operation belongs to.
    pub fn phase(&self) -> Phase {
        match self.action {
            Action::Run { pass: Pass::Forward, .. } => Phase::Forward,
            Action::Run { pass: Pass::Again, .. } => Phase::Again,
            Action::Run { pass: Pass::Chunk, .. } | Action::Loss(_) => Phase::Loss,
            Action::Check | Action::Squares(_) | Action::Norm | Action::Update | Action::Advance => Phase::Update,
            Action::Fetch(_) | Action::UpdatePiece(_) | Action::Store(_) | Action::Settle => Phase::Update,
            Action::SaveStatistics(_) => Phase::Forward,
            Action::RestoreStatistics(_) | Action::Average | Action::AveragePiece(_) => Phase::Update,
            Action::Park(Leg::Leave | Leg::Left) => Phase::Forward,
            Action::Park(Leg::Return | Leg::Returned) => Phase::Backward,
            Action::Run { pass: Pass::Backward, .. }
            | Action::Accumulate
            | Action::Collect
            | Action::Copy
            | Action::SumBatch => Phase::Backward,
        }
    }
}

record! {
    /// A training step or a forward pass as a list of operations.
    pub struct Program {
        /// Whether this is a training step. Dropout drops and BatchNorm uses the batch's statistics only then.
        pub training: bool,
        /// Optimizer state tensors for each parameter: see [`with_state`](crate::train::optim::with_state).
        pub moments: u64,
        /// Whether gradients are held until the end of the step.
        pub holds_gradients: bool,
        /// What happens to gradients and to the learning rate before an update.
        pub descent: Descent,
        /// Every tensor: persistent ones first, in the order of their classes, then transients.
        pub tensors: Vec<Tensor>,
        /// The operations in execution order.
        pub operations: Vec<Operation>,
        /// Paths of the layer rows.
        pub paths: Vec<String>,
        /// The tensors that hold the network's outputs after the forward pass (inference), or the one with the loss (training).
        pub results: Vec<TensorId>,
    }
}

/// Of an operation that makes the output of a normalisation again in front of its gradient, whose pass has the input at hand: whether it is
/// the one whose output is read, which is all that such a pass writes for it. `None` of any other operation.
pub(crate) fn made_beside(operations: &[Operation], at: usize) -> Option<bool> {
    let again = |at: usize| match &operations.get(at)?.action {
        Action::Run { op, pass: Pass::Again } => Some((op, &operations[at])),
        _ => None,
    };
    let norm = |at: usize| again(at).filter(|(op, _)| matches!(op, Op::BatchNorm(_)));
    let behind = |at: usize, output: Option<TensorId>| {
        again(at).filter(|(op, it)| matches!(op, Op::Pointwise(_)) && it.read(Slot::Input(0)) == output)
    };
    let first = if norm(at).is_some() { at } else { at.checked_sub(1)? };
    let (_, normalised) = norm(first)?;
    let last = if behind(first + 1, normalised.written(Slot::Output)).is_some() { first + 1 } else { first };
    let gradient = operations.get(last + 1)?;
    let is_its_own = matches!(gradient.backward(), Some(Op::BatchNorm(_)))
        && gradient.read(Slot::Input(0)).is_some()
        && gradient.read(Slot::Saved(0)) == normalised.read(Slot::Saved(0));
    (is_its_own && at <= last).then_some(at == last)
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
        let sound = sound && !program.results.is_empty() && program.results.iter().all(|&id| (id as usize) < count);
        (reader.is_empty() && sound).then_some(program)
    }

    /// A tensor by its number.
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        &self.tensors[id as usize]
    }

    /// The numbers that a tensor begins with, under a seed: one for each element of its shape.
    pub fn initial(&self, id: TensorId, seed: u64) -> Vec<f32> {
        let tensor = self.tensor(id);
        if tensor.init == Init::Lengths
            && let Some(lengths) = self.lengths_before(id, seed)
        {
            return lengths;
        }
        if let Init::Singular { sizes, right } = tensor.init
            && let Some(weight) = self.of_class(Class::Parameter).find(|&weight| self.tensor(weight).row == tensor.row)
        {
            // Both vectors are those of one iteration.
            let weights = self.initial(weight, seed);
            let drawn = init::singular_vector(&mut Stream::new(!seed, weight), &weights, sizes, right);
            if let Some(drawn) = drawn.filter(|drawn| Some(drawn.len() as u64) == tensor.elements(1)) {
                return drawn;
            }
        }
        let mut stream = Stream::new(seed, id);
        tensor.init.fill(&mut stream, tensor.elements(1).unwrap_or(0))
    }

    /// The lengths of the parts of the tensor before `id`, along the only axis on which `id` has more than one element; `None` if the
    /// two do not fit each other.
    fn lengths_before(&self, id: TensorId, seed: u64) -> Option<Vec<f32>> {
        let before = id.checked_sub(1)?;
        let (own, whole) = (self.tensor(id), self.tensor(before));
        let dims = own.shape.dims();
        // Where it has one element, all of the other is one part, which it is along an axis of length 1 as well.
        let axis = dims.iter().position(|&length| length > 1);
        let axis = axis.or_else(|| whole.shape.dims().iter().position(|&length| length == 1))?;
        let parts = ops::Reparametrize::along(axis, whole.shape);
        let is_directions = whole.class == Class::Parameter && whole.init != Init::Lengths && parts.is_sound();
        if !is_directions || own.shape.elements() != Some(parts.parts()) || dims.get(axis) != Some(&parts.parts()) {
            return None;
        }
        let [_, count, inner] = parts.sizes.map(|size| size as usize);
        let mut squares = alloc::vec![0.0f64; count];
        for (index, number) in self.initial(before, seed).into_iter().enumerate() {
            squares[index / inner % count] += f64::from(number) * f64::from(number);
        }
        Some(squares.into_iter().map(|square| crate::number::random::sqrt(square) as f32).collect())
    }

    /// Numbers of the tensors of one class, in order.
    pub fn of_class(&self, class: Class) -> impl Iterator<Item = TensorId> + '_ {
        self.tensors.iter().enumerate().filter(move |(_, tensor)| tensor.class == class).map(|(id, _)| id as TensorId)
    }

    /// The state that its operations read and write. A network with several steps has one for each, and all are in each program.
    pub fn state(&self) -> Option<TensorId> {
        let operands = self.operations.iter().flat_map(|operation| operation.reads.iter().chain(&operation.writes));
        let own = operands.into_iter().find(|operand| operand.slot == Slot::State).map(|operand| operand.tensor);
        own.or_else(|| self.of_class(Class::State).next())
    }

    /// The name of the step's constant, of a network with named steps; else empty.
    pub fn step_name(&self) -> &str {
        let state = self.state().filter(|_| self.training).map_or("", |id| &self.tensor(id).name);
        state.strip_suffix(".state").unwrap_or("")
    }

    /// True if this is one of several training steps of a network: it has the states of all.
    pub fn has_several_steps(&self) -> bool {
        self.training && self.of_class(Class::State).nth(1).is_some()
    }

    /// The parameters that its updates change.
    pub fn updated(&self) -> impl Iterator<Item = TensorId> + '_ {
        let updates = self.operations.iter().filter(|operation| operation.phase() == Phase::Update);
        updates.filter_map(|operation| operation.written(Slot::Parameter))
    }

    /// Whether another program has the same tensors, none of them larger and each alive at the same operations, so that it can run
    /// where this one's tensors lie.
    pub fn covers(&self, other: &Program) -> bool {
        let is_covered = |(own, other): (&Tensor, &Tensor)| {
            let kind = |tensor: &Tensor| (tensor.class, tensor.role, tensor.batched, tensor.first, tensor.last);
            kind(own) == kind(other) && own.shape.elements() >= other.shape.elements() && own.name == other.name
        };
        self.tensors.len() == other.tensors.len()
            && self.operations.len() == other.operations.len()
            && self.results == other.results
            && self.tensors.iter().zip(&other.tensors).all(is_covered)
    }

    /// Number of operations that run for each part of a batch: those before the first that comes once, behind the last part.
    pub fn repeated(&self) -> usize {
        self.operations.iter().take_while(|operation| operation.phase() != Phase::Update).count()
    }

    /// The tensors that are 0 before the first part of a batch, where it has several: gradients, and the loss.
    pub fn accumulators(&self) -> impl Iterator<Item = TensorId> + '_ {
        let results = self.results.iter().copied();
        self.of_class(Class::Gradient).chain(results).filter(|_| self.training && self.descent.accumulates())
    }

    /// Tensors that live from one part of a batch to the next, where it has several: [accumulators](Program::accumulators), and the running
    /// statistics of before the step.
    pub fn outlives_parts(&self) -> impl Iterator<Item = TensorId> + '_ {
        let saves = |operation: &&Operation| matches!(operation.action, Action::SaveStatistics(_));
        let saved = self.operations.iter().find(saves).and_then(|operation| operation.written(Slot::Saved(0)));
        self.accumulators().chain(saved.filter(|_| self.descent.accumulates()))
    }

    /// The tensors that share the activations' part of the arena, in the order of the plan's offsets.
    pub fn transients(&self) -> impl Iterator<Item = TensorId> + '_ {
        self.of_class(Class::Transient)
    }
}
