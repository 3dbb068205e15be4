//! The program: a flat list of operations over a table of tensors.
//!
//! Lowering makes a program, the memory plan places its tensors, and the backends run it. An operation names its tensors by [`Slot`], so
//! a backend asks for `Slot::Input(0)` or `Slot::Gradient` and never counts positions. [`ops`] holds the operations, one a file;
//! [`op`] makes one enum of them, and defines the rule that each of them states.

mod action;
pub mod adapters;
pub mod cache_entry;
pub(crate) mod cost;
pub mod criterion;
pub(crate) mod display;
pub mod encoding;
mod evaluation;
mod folding;
pub mod formula;
pub mod functions;
pub mod fusion;
pub mod indices;
mod init;
mod layers;
mod layout;
pub mod loss;
pub mod losses;
pub mod op;
pub mod ops;
mod origin;
mod rule;
mod sequence;
mod slot;
mod user_indices;

use crate::number::Role;
use crate::number::random::Stream;
use crate::shape::Shape;
use crate::train::Descent;
use crate::train::ranks::Sharding;
pub use action::{Action, Collective, Exchange, Leg, Pass, Piece};
use alloc::string::String;
use alloc::vec::Vec;
pub use criterion::Criterion;
use encoding::{Reader, Wire, record, wire_enum};
pub use evaluation::Evaluation;
pub use init::Init;
pub use layout::{ChannelOrder, Layout, Strides};
pub use losses::Measure;
pub use op::{Op, TrainingOnly};
pub use origin::{NO_ROW, Part, Phase};
pub use slot::Slot;

/// The number of a tensor in [`Program::tensors`].
pub type TensorId = u32;

/// The kind of a tensor, which decides its lifetime and who fills it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// A weight, bias, scale or shift: lives as long as the network.
    Parameter,
    /// A parameter's gradient that lives until the end of the step.
    Gradient,
    /// Optimizer state of a parameter, such as the moments of Adam.
    Moment,
    /// Running statistics, as batch norm has.
    Buffer,
    /// Numbers that change from step to step without changing the program: see [`StateWord`].
    State,
    /// A cache entry, such as the keys that attention has seen. It has a part for each sample and lives as long as the network.
    Cache,
    /// An input of the network.
    Input,
    /// A target that the loss compares the output with.
    Target,
    /// A tensor that lives inside a step only, and shares its memory with others.
    Transient,
    /// The copy in host memory of a transient's contents between two live ranges of it: see [`Action::Park`].
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

/// The 32-bit words of the tensor of [`Class::State`], by their index. The tensor lives in the arena, so that a step that was captured
/// once can be replayed with another seed or learning rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum StateWord {
    /// Training steps made so far, low word first. With a cache: time steps of the sequence in the cache.
    Step = 0,
    /// The seed, low word first.
    Seed = 2,
    /// The learning rate, as the bits of an f32. With a schedule, the rate at which the schedule begins.
    LearningRate = 4,
    /// The loss scale, by which the loss is multiplied before the backward pass, as the bits of an f32.
    LossScale = 5,
    /// 1 if a gradient of this step overflowed its 16-bit format, else 0. If 1, nothing is updated, and the end of the step halves the
    /// loss scale.
    Overflow = 6,
    /// Steps in a row without an overflow. After 2000 the loss scale is doubled and the count starts anew.
    GoodSteps = 7,
    /// Two numbers of the optimizer's rule, as the bits of two f32. They differ in each step, which computes them before its updates. For
    /// Adam they are `1 - beta^t`, by which it divides its first and second moment, so nobody else has to know them. A backend need not
    /// use this word. See [`Corrections`](crate::train::optim::Corrections).
    Corrections = 8,
    /// Blocks of the last update that have read the state; 0 between steps. A backend need not use this word.
    Readers = 10,
    /// Blocks that have reached a grid barrier. All bits but the highest are 0 between launches. A backend need not use this word.
    Blocks = 11,
    /// Losses sent to the host. The device counts them, and keeps this word when the host writes the others. A backend need not use it.
    Losses = 12,
    /// The learning rate of this step if there is a schedule, as the bits of an f32. Before its updates a step computes it from
    /// [`StateWord::LearningRate`] and its number. A backend need not use this word. See [`Schedule`](crate::train::Schedule).
    Rate = 13,
    /// The factor that clips all gradients by their norm, as the bits of an f32. [`Action::Norm`] computes it.
    Clip = 14,
    /// The norm of all gradients of the last step before clipping, as the bits of an f32. [`Action::Norm`] computes it.
    Norm = 15,
    /// The four numbers of the schedule in the order of its row, each as the bits of an f64, low word first. Numbers that a schedule does
    /// not have are 0. The host may change them between two steps. See [`Schedule::words`](crate::train::Schedule::words).
    Schedule = 16,
    /// Steps that updated nothing because a gradient was not finite.
    Skipped = 24,
    /// The number of times that parameters were averaged: see [`Ema`](crate::train::Ema).
    Averaged = 25,
}

impl StateWord {
    /// Number of words in the tensor.
    pub const COUNT: usize = 26;

    /// The word with the number of time steps in this call, of a network with a cache. Time steps after them are padding. It shares the word of
    /// the seed, since inference draws no random numbers.
    pub const AT_HAND: usize = StateWord::Seed as usize;

    /// The word with the index of the current micro-batch, counted from 0. It shares the word of the clipping factor, which is computed after
    /// the last micro-batch.
    pub const PART: usize = StateWord::Clip as usize;
}

record! {
    /// A tensor of a program.
    pub struct Tensor {
        /// Its kind, which decides how long it lives.
        pub class: Class,
        /// The role of its elements, which decides their number format.
        pub role: Role,
        /// Its part in its layer.
        pub part: Part,
        /// Its name: a parameter's path such as `stage[0].conv2d[1].weight`. Empty if layer and part identify the tensor.
        pub name: String,
        /// Row of the layer it belongs to, or [`NO_ROW`].
        pub row: u32,
        /// Dimensions, without the batch.
        pub shape: Shape,
        /// True if each sample of the batch has one such shape; false if there is one for all.
        pub batched: bool,
        /// Elements that are added once, whatever the batch size. Only scratch memory has any.
        pub once: u64,
        /// The layout of a sample's elements in memory.
        pub layout: Layout,
        /// Elements from one row to the next in 16-bit formats, or 0 if rows have no gaps in any format. `layout` takes it over once the
        /// format is known: see [`Program::lay_out`].
        pub pitch: u64,
        /// The elements that each rank has.
        pub sharding: Sharding,
        /// True if training changes it (parameters). A frozen one has no gradient, no optimizer state and no master copy.
        pub trained: bool,
        /// The rule that fills it before the first step (parameters, buffers and state).
        pub init: Init,
        /// Index of the first operation that touches it (transients).
        pub first: u32,
        /// Index of the last operation that touches it (transients).
        pub last: u32,
    }
}

impl Tensor {
    /// Returns a dense, nameless tensor that lives inside a step, one for the whole batch. Callers change the fields that differ.
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
            sharding: Sharding::Replicated,
            trained: false,
            init: Init::Constant(0.0),
            first: 0,
            last: 0,
        }
    }

    /// Returns the number of elements at this batch size, or `None` if it exceeds `u64`.
    pub fn elements(&self, batch: u64) -> Option<u64> {
        let each = self.shape.elements()?;
        let all = if self.batched { each.checked_mul(batch)? } else { each };
        all.checked_add(self.once)
    }

    /// Returns the elements of padding that a sample has in 16-bit formats. Wider formats have none.
    pub fn gaps(&self) -> u64 {
        let with = Layout { pitch: self.pitch, ..Layout::DENSE }.elements(self.shape).unwrap_or(0);
        with.saturating_sub(self.shape.elements().unwrap_or(u64::MAX))
    }

    /// True if the layout stores a weight `[O, C, R, S]`, or a tensor of its shape, as `[O, R, S, C]`.
    pub fn is_turned(&self) -> bool {
        !self.batched && self.layout.is_of_weight(self.shape)
    }

    /// Returns the elements that a sample takes in memory, padding included, or `None` if they exceed `u64`. Codes or bits that share a byte
    /// are counted in bytes. A [sharded](Sharding) tensor has those of a shard.
    pub fn stored_of_each(&self) -> Option<u64> {
        self.sharding.stored(self.unsharded()?)
    }

    /// Returns the elements that [`Tensor::stored_of_each`] would return if one rank had the whole tensor.
    pub fn unsharded(&self) -> Option<u64> {
        Some(self.layout.elements(self.shape)?.div_ceil(self.role.packed()))
    }

    /// Returns the elements of the shard that a rank updates: all of them if the tensor is replicated.
    pub fn own_shard(&self) -> Option<u64> {
        self.sharding.own(self.unsharded()?)
    }

    /// Returns the elements that a batch takes in memory. Like [`Tensor::stored_of_each`], but for all samples, and with `once`.
    pub fn stored(&self, batch: u64) -> Option<u64> {
        let each = self.stored_of_each()?;
        let all = if self.batched { each.checked_mul(batch)? } else { each };
        all.checked_add(self.once)
    }
}

/// A tensor in its role for one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Its role for the operation.
    pub slot: Slot,
    /// Its number in [`Program::tensors`].
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
        /// The computation.
        pub action: Action,
        /// Row of the layer it belongs to, or [`NO_ROW`].
        pub row: u32,
        /// True if an `InputGradient` that is also read is added to, not overwritten.
        pub accumulate: bool,
        /// The tensors it reads.
        pub reads: Vec<Operand>,
        /// The tensors it writes. A tensor in both lists is updated in place.
        pub writes: Vec<Operand>,
    }
}

impl Operation {
    /// Returns the tensor that is read as `slot`, or `None`.
    pub fn read(&self, slot: Slot) -> Option<TensorId> {
        self.reads.iter().find(|operand| operand.slot == slot).map(|operand| operand.tensor)
    }

    /// Returns the tensor that is written as `slot`, or `None`.
    pub fn written(&self, slot: Slot) -> Option<TensorId> {
        self.writes.iter().find(|operand| operand.slot == slot).map(|operand| operand.tensor)
    }

    /// Iterates over every tensor that the operation touches. A tensor that is updated in place comes twice.
    pub fn tensors(&self) -> impl Iterator<Item = TensorId> + '_ {
        self.reads.iter().chain(&self.writes).map(|operand| operand.tensor)
    }

    /// Iterates over what an exchange between ranks sends, each with the tensor in which it receives numbers.
    pub fn exchanged(&self) -> impl Iterator<Item = (TensorId, TensorId)> + '_ {
        let received = |number: u8| self.written(Slot::Received(number)).or_else(|| self.read(Slot::Received(number)));
        self.reads.iter().filter_map(move |operand| match operand.slot {
            Slot::Sent(number) => Some((operand.tensor, received(number)?)),
            _ => None,
        })
    }

    /// Returns the `Op` that runs forward, be it first, recomputed or of a chunk; `None` for other actions.
    pub fn forward(&self) -> Option<&Op> {
        match &self.action {
            Action::Run { op, pass: Pass::Forward | Pass::Again | Pass::Chunk } => Some(op),
            _ => None,
        }
    }

    /// Returns the `Op` that runs backward; `None` for other actions.
    pub fn backward(&self) -> Option<&Op> {
        match &self.action {
            Action::Run { op, pass: Pass::Backward } => Some(op),
            _ => None,
        }
    }

    /// Returns the phase of a step to which the operation belongs.
    pub fn phase(&self) -> Phase {
        match self.action {
            Action::Run { pass: Pass::Forward, .. } => Phase::Forward,
            Action::Run { pass: Pass::Again, .. } | Action::Loss(Criterion { again: true, .. }) => Phase::Again,
            Action::Run { pass: Pass::Chunk, .. } | Action::Loss(_) => Phase::Loss,
            Action::Check | Action::Squares(_) | Action::Norm | Action::Update | Action::Advance => Phase::Update,
            Action::Fetch(_) | Action::UpdatePiece(_) | Action::Store(_) | Action::Settle => Phase::Update,
            Action::SaveStatistics(_) => Phase::Forward,
            Action::RestoreStatistics(_) | Action::Average | Action::AveragePiece(_) => Phase::Update,
            Action::Park(Leg::Leave | Leg::Left) => Phase::Forward,
            Action::Park(Leg::Return | Leg::Returned) => Phase::Backward,
            Action::Exchange(exchange) | Action::EndExchange(exchange) => exchange.phase,
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
        /// True for a training step. Only then does dropout drop, and BatchNorm use the batch's statistics.
        pub training: bool,
        /// Number of optimizer state tensors of each parameter: see [`with_state`](crate::train::optim::with_state).
        pub moments: u64,
        /// True if gradients live until the end of the step.
        pub holds_gradients: bool,
        /// Gradient clipping and the learning-rate schedule.
        pub descent: Descent,
        /// Every tensor: persistent ones first, in the order of their classes, then transients.
        pub tensors: Vec<Tensor>,
        /// The operations in execution order.
        pub operations: Vec<Operation>,
        /// Paths of the layer rows.
        pub paths: Vec<String>,
        /// The tensors with the network's outputs after the forward pass (inference), or the tensor with the loss (training).
        pub results: Vec<TensorId>,
    }
}

impl Program {
    /// Encodes the program as bytes. Repeated blocks are written once.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(&mut out);
        folding::fold(&out)
    }

    /// Decodes what [`Program::encode`] wrote. Returns `None` if `bytes` are damaged.
    pub fn decode(bytes: &[u8]) -> Option<Program> {
        let bytes = folding::unfold(bytes)?;
        let mut reader = Reader::new(&bytes);
        let program = Program::take(&mut reader)?;
        let count = program.tensors.len();
        let sound = program.operations.iter().flat_map(Operation::tensors).all(|tensor| (tensor as usize) < count);
        let sound = sound && !program.results.is_empty() && program.results.iter().all(|&id| (id as usize) < count);
        (reader.is_empty() && sound).then_some(program)
    }

    /// Returns a tensor by its number.
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        &self.tensors[id as usize]
    }

    /// Returns the initial numbers of a tensor for a seed, one for each element of its shape.
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
            // The two singular vectors come from the same power iteration, hence from the same stream.
            let weights = self.initial(weight, seed);
            let drawn = init::singular_vector(&mut Stream::new(!seed, weight), &weights, sizes, right);
            if let Some(drawn) = drawn.filter(|drawn| Some(drawn.len() as u64) == tensor.elements(1)) {
                return drawn;
            }
        }
        let mut stream = Stream::new(seed, id);
        tensor.init.fill(&mut stream, tensor.elements(1).unwrap_or(0))
    }

    /// Returns the norms of the slices of tensor `id - 1` along the only axis on which `id` has more than one element. Returns `None` if the
    /// shapes do not fit.
    fn lengths_before(&self, id: TensorId, seed: u64) -> Option<Vec<f32>> {
        let before = id.checked_sub(1)?;
        let (own, whole) = (self.tensor(id), self.tensor(before));
        let dims = own.shape.dims();
        // If `id` has one element, all of the weight is one slice. Along an axis of length 1 it is one as well.
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

    /// Iterates over the numbers of the tensors of one class, in order.
    pub fn of_class(&self, class: Class) -> impl Iterator<Item = TensorId> + '_ {
        self.tensors.iter().enumerate().filter(move |(_, tensor)| tensor.class == class).map(|(id, _)| id as TensorId)
    }

    /// Returns the state that its operations use. A network with several training steps has one state for each, and all are in each program.
    pub fn state(&self) -> Option<TensorId> {
        let operands = self.operations.iter().flat_map(|operation| operation.reads.iter().chain(&operation.writes));
        let own = operands.into_iter().find(|operand| operand.slot == Slot::State).map(|operand| operand.tensor);
        own.or_else(|| self.of_class(Class::State).next())
    }

    /// Returns the name of the training step's constant if the network has named steps, else an empty string.
    pub fn step_name(&self) -> &str {
        let state = self.state().filter(|_| self.training).map_or("", |id| &self.tensor(id).name);
        state.strip_suffix(".state").unwrap_or("")
    }

    /// True if this is one of several training steps of a network. Such a program has the states of all of them.
    pub fn has_several_steps(&self) -> bool {
        self.training && self.of_class(Class::State).nth(1).is_some()
    }

    /// Iterates over the parameters that its updates change.
    pub fn updated(&self) -> impl Iterator<Item = TensorId> + '_ {
        let updates = self.operations.iter().filter(|operation| operation.phase() == Phase::Update);
        updates.filter_map(|operation| operation.written(Slot::Parameter))
    }

    /// True if `other` can run in the arena of this program. It needs the same tensors, none of them larger, each with the same live range.
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

    /// Returns the number of operations that run for each micro-batch: those before the first of the update phase.
    pub fn repeated(&self) -> usize {
        self.operations.iter().take_while(|operation| operation.phase() != Phase::Update).count()
    }

    /// Iterates over the tensors that are 0 before the first micro-batch: gradients and the loss. Empty without micro-batches.
    pub fn accumulators(&self) -> impl Iterator<Item = TensorId> + '_ {
        let results = self.results.iter().copied();
        self.of_class(Class::Gradient).chain(results).filter(|_| self.training && self.descent.accumulates())
    }

    /// Iterates over tensors that live from one micro-batch to the next: [accumulators](Program::accumulators), and the running statistics
    /// from before the step. Empty without micro-batches.
    pub fn outlives_parts(&self) -> impl Iterator<Item = TensorId> + '_ {
        let saves = |operation: &&Operation| matches!(operation.action, Action::SaveStatistics(_));
        let saved = self.operations.iter().find(saves).and_then(|operation| operation.written(Slot::Saved(0)));
        self.accumulators().chain(saved.filter(|_| self.descent.accumulates()))
    }

    /// Returns the number of chunks in which logits are computed: the largest of all terms of the loss. 1 if all logits are in memory at once.
    pub fn logit_chunks(&self) -> u64 {
        let (mut most, mut count) = (1, 0);
        for operation in &self.operations {
            if let Action::Loss(Criterion { outer, whole, first, .. }) = &operation.action {
                count = if *first == 0 { 0 } else { count };
                count += u64::from(outer < whole);
                most = most.max(count);
            }
        }
        most
    }

    /// True if chunks of the logits are computed again, for the gradient of a weight that the head shares.
    pub fn computes_logits_twice(&self) -> bool {
        self.operations.iter().any(|operation| matches!(&operation.action, Action::Loss(loss) if loss.again))
    }

    /// Iterates over the tensors that share the activations' part of the arena, in the order of the plan's offsets.
    pub fn transients(&self) -> impl Iterator<Item = TensorId> + '_ {
        self.of_class(Class::Transient)
    }
}
