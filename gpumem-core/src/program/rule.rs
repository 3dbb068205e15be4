//! The rule that each operation states: its output, its gradients, and the memory that it needs.

use super::Slot;
use super::cache_entry::CacheEntry;
use super::indices::Indices;
use super::op::Op;
use super::sequence::Sequence;
use crate::number::Role;
use crate::shape::Shape;
use alloc::string::String;
use alloc::vec::Vec;

/// The rule of an operation: its output, its gradients, its saved tensors and its scratch memory.
///
/// Every dimension is known by then, so a backend needs nothing but these values.
pub trait Rule {
    /// Returns the dimensions of one sample's output.
    fn output(&self) -> Shape;

    /// True if the output holds indices, as tokens are, and not numbers to compute with.
    fn makes_indices(&self) -> bool {
        false
    }

    /// Returns the rules for the gradients of the inputs, in the order in which the gradients are computed. An input that none of them
    /// names has no gradient.
    fn gradients(&self) -> Vec<Gradient>;

    /// Returns the tensors that the forward pass saves for the backward pass, besides inputs and output. They are in the order of
    /// [`Slot::Saved`](super::Slot).
    fn saved(&self) -> Vec<Saved> {
        Vec::new()
    }

    /// True if a training forward pass needs memory for its saved tensors even if no gradient reads them.
    fn always_saves(&self) -> bool {
        self.works_in_saved()
    }

    /// True if the forward pass uses its saved tensors as scratch. An evaluation then needs their memory too, though it saves nothing.
    fn works_in_saved(&self) -> bool {
        false
    }

    /// True if the backward pass works in the gradient of `input`, and so computes it even if nothing reads it.
    fn works_in_gradient(&self, input: u8) -> bool {
        let _ = input;
        false
    }

    /// Returns the largest scratch memory that `work` can use, or `None` if it uses none.
    fn workspace(&self, work: Work) -> Option<Workspace> {
        let _ = work;
        None
    }

    /// Returns the elements of [`Rule::workspace`] that are added once, whatever the batch size.
    fn workspace_once(&self, work: Work) -> u64 {
        let _ = work;
        0
    }

    /// Returns the scratch tensors that `work` requires. Unlike [`Rule::workspace`], a backend cannot do without them.
    fn scratch(&self, work: Work) -> Vec<Saved> {
        let _ = work;
        Vec::new()
    }

    /// True if the output may overwrite an input of its size that nothing else reads later.
    fn in_place(&self) -> bool {
        false
    }

    /// Returns the layouts that its tensors may have.
    fn layouts(&self) -> Layouts {
        Layouts::Dense
    }

    /// Returns those inputs that hold indices into a table, with their limits.
    fn indices(&self) -> Vec<Indices> {
        Vec::new()
    }

    /// True if the forward pass of training reads the random state.
    fn draws(&self) -> bool {
        false
    }

    /// Returns the effect that it has in training alone. `None` if it has none.
    fn training_only(&self) -> Option<TrainingOnly> {
        self.draws().then_some(TrainingOnly::Drops)
    }

    /// Returns the operation in `eval` mode or out of it. `None` if it has no such mode.
    fn with_eval(&self, eval: bool) -> Option<Op> {
        let _ = eval;
        None
    }

    /// True if training changes its buffers, if it has any.
    fn moves_statistics(&self) -> bool {
        true
    }

    /// True if a recomputation reads what the first run saved and leaves the buffers alone.
    fn runs_again_from_saved(&self) -> bool {
        false
    }

    /// Returns the cache entries that it keeps of each sample between calls, in the order of its [`Slot::Cache`](super::Slot)s.
    fn caches(&self) -> Vec<CacheEntry> {
        Vec::new()
    }

    /// True if it reads from the state how many time steps of the sequence earlier calls have seen.
    fn is_positioned(&self) -> bool {
        false
    }

    /// Returns the operation that decodes some time steps of a sequence per call, and the output's axis of time steps.
    ///
    /// # Errors
    /// The reason why the operation cannot do that, to be read after the layer's name.
    fn stepped(&self, sequence: &Sequence<'_>) -> Result<(Op, usize), String> {
        let _ = sequence;
        Err(Sequence::refusal())
    }

    /// Returns how inference treats the operation.
    fn inference(&self) -> Inference {
        Inference::Computes
    }

    /// Returns the multiply-accumulate operations of one sample's forward pass. Like PyTorch's `FlopCounterMode`, it counts
    /// convolutions, matrix products and attention only.
    fn macs(&self) -> u64 {
        0
    }

    /// Returns the type-level assertions of its shape rule for inputs with these dimensions.
    fn edges(&self, inputs: &[Shape]) -> Vec<Edge>;
}

/// A set of some of an operation's first 64 inputs, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inputs(u64);

impl Inputs {
    /// The empty set.
    pub const NONE: Inputs = Inputs(0);

    /// Returns the set of `inputs`. Numbers from 64 on are left out: no operation that joins so many values reads them again.
    pub const fn of(inputs: &[u8]) -> Inputs {
        let (mut bits, mut index) = (0, 0);
        while index < inputs.len() {
            if inputs[index] < 64 {
                bits |= 1 << inputs[index];
            }
            index += 1;
        }
        Inputs(bits)
    }

    /// Returns the set with `input` added. A number from 64 on is left out.
    pub const fn with(self, input: u8) -> Inputs {
        if input < 64 { Inputs(self.0 | 1 << input) } else { self }
    }

    /// True if `input` is in the set.
    pub const fn contains(self, input: usize) -> bool {
        input < 64 && self.0 >> input & 1 == 1
    }
}

/// The tensors that a gradient reads besides the gradient of the output. Nothing else is kept alive for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// The operation's inputs that it reads.
    pub inputs: Inputs,
    /// True if it reads the operation's output.
    pub output: bool,
    /// True if it reads the saved tensors.
    pub saved: bool,
    /// True if it reads the random state.
    pub state: bool,
}

impl Reads {
    /// Reads nothing.
    pub const NOTHING: Reads = Reads { inputs: Inputs::NONE, output: false, saved: false, state: false };
    /// Reads the output.
    pub const OUTPUT: Reads = Reads { output: true, ..Reads::NOTHING };
    /// Reads the saved tensors.
    pub const SAVED: Reads = Reads { saved: true, ..Reads::NOTHING };
    /// Reads the random state.
    pub const STATE: Reads = Reads { state: true, ..Reads::NOTHING };

    /// Returns the reads of these inputs alone.
    pub const fn inputs(inputs: &[u8]) -> Reads {
        Reads { inputs: Inputs::of(inputs), ..Reads::NOTHING }
    }
}

/// The rule for the gradients of one or several inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gradient {
    /// The gradient of this input is that of the output, summed over the axes along which the input is broadcast.
    Passes(u8),
    /// One operation computes the gradients of one or several inputs.
    Computed {
        /// The inputs, in the order in which their gradients get memory, each with the tensors that its gradient reads.
        of: Vec<(u8, Reads)>,
        /// True if the gradient of an input may overwrite the output's gradient once nothing else reads that.
        in_place: bool,
    },
}

impl Gradient {
    /// Iterates over the inputs whose gradients it gives.
    pub fn inputs(&self) -> impl Iterator<Item = usize> + '_ {
        let (passes, of) = match self {
            Gradient::Passes(input) => (Some(*input), &[][..]),
            Gradient::Computed { of, .. } => (None, &of[..]),
        };
        passes.into_iter().chain(of.iter().map(|(input, _)| *input)).map(usize::from)
    }

    /// Returns the rule of one operation for these inputs, which overwrites nothing.
    pub fn computed(of: &[(u8, Reads)]) -> Gradient {
        Gradient::Computed { of: of.to_vec(), in_place: false }
    }

    /// Returns the rule of one operation for these inputs, in which an input's gradient may overwrite the output's.
    pub fn in_place(of: &[(u8, Reads)]) -> Gradient {
        Gradient::Computed { of: of.to_vec(), in_place: true }
    }
}

/// A tensor that the forward pass saves for the backward pass, besides inputs and output.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Saved {
    /// Its dimensions.
    pub shape: Shape,
    /// True if there is one for each sample, false if there is one for the whole batch.
    pub batched: bool,
    /// The role of its elements, which decides their number format.
    pub role: Role,
    /// The input that it may overwrite if nothing else needs that input. The gradient of the input then overwrites the saved tensor.
    /// `None` if it has memory of its own.
    pub over: Option<u8>,
}

impl Saved {
    /// Returns a saved tensor for each sample, with memory of its own.
    pub fn each(shape: Shape, role: Role) -> Saved {
        Saved { shape, batched: true, role, over: None }
    }

    /// Returns a saved tensor for the whole batch, with memory of its own.
    pub fn whole(shape: Shape, role: Role) -> Saved {
        Saved { shape, batched: false, role, over: None }
    }
}

/// A part of an operation's work that may need scratch memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Computing the output, in training.
    Training,
    /// Computing the output, in inference.
    Inference,
    /// Computing one of [`Rule::gradients`], by its number.
    Gradient(usize),
}

/// Scratch memory that a part of an operation's work can use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workspace {
    /// Its role, which says who limits it. Cards and settings limit [`Role::ProductWorkspace`] and [`Role::ConvolutionWorkspace`]. A
    /// [`Role::Statistic`] is required in full.
    pub role: Role,
    /// Its dimensions.
    pub shape: Shape,
    /// True if each sample needs as much, false if that is for the whole batch.
    pub batched: bool,
}

/// The layouts that an operation's tensors may have, in both backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layouts {
    /// All tensors dense, in the order of their axes.
    Dense,
    /// Maps of these shapes in any layout, and weights of these shapes in either order, independently of each other. All other tensors
    /// are dense.
    Maps(Vec<Shape>),
    /// A weight of this shape, and every tensor of its shape, all in one order without padding. All other tensors are dense.
    Filters(Shape),
    /// Rows of these tensors with any pitch. All other tensors are dense.
    Rows(&'static [Slot]),
    /// Any layout, if all tensors have one shape and one layout: each element is computed on its own.
    Alike,
}

/// The treatment of an operation in inference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inference {
    /// It computes.
    Computes,
    /// It passes its input on.
    PassesOn,
}

/// An effect that an operation has in training alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainingOnly {
    /// It normalises by the batch and updates running statistics.
    Statistics,
    /// It normalises by the batch, and its backward pass needs those statistics to compute the input from the output.
    Undone,
    /// It sets values to 0 at random.
    Drops,
}

/// A type-level assertion: `rule<arguments>` maps the input shapes to the output shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Edge {
    /// The type in [`typed`](crate::typed).
    pub rule: &'static str,
    /// The numbers that the type takes, in order.
    pub arguments: Vec<u64>,
    /// Shapes of the inputs.
    pub inputs: Vec<Shape>,
    /// Shape of the output.
    pub output: Shape,
}

impl Edge {
    /// Returns an assertion for one input.
    pub fn new(rule: &'static str, arguments: &[u64], input: Shape, output: Shape) -> Edge {
        Edge { rule, arguments: arguments.to_vec(), inputs: [input].to_vec(), output }
    }

    /// Returns the assertion of an operation whose output has the dimensions of its first input.
    pub fn same(inputs: &[Shape]) -> Vec<Edge> {
        [Edge::new("Same", &[], inputs[0], inputs[0])].to_vec()
    }
}
