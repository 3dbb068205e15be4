//! Operations: the closed set that programs are made of, and what each says about itself.
//!
//! Lowering, the plan and both backends read an operation's rule here and nowhere else. An operation is one gradient rule and
//! one memory rule: two layers that keep different tensors are two operations. Its inputs are activations and parameters
//! alike.

use super::Slot;
use super::encoding::{Reader, Wire};
use super::indices::Indices;
use super::kept::Kept;
use super::ops::{
    ArgMax, Attention, AveragePool, AveragePool3d, BatchNorm, Binary, CachedAttention, CachedConvolution,
    CachedRecurrence, CachedScan, CodedProduct, Concat, Constant, Convolution, Convolution3d, Declared, Expand,
    Formula, Gather, InplaceNorm, Interpolate, L2Norm, Mask, MatMul, MaxPool, MaxPool3d, Normalize,
    NormalizedConvolution, Pad, PaddedPositions, Permute, Pointwise, Positions, Product, Rectifier, Recurrence, Reduce,
    RelativeBias, Reparametrize, Resize, Rotary, SegmentPositions, SelectiveScan, SequenceMask, Sinusoid, Slice,
    Softmax, SpectralNorm, Standardize, Sum, Take, VectorNorm, WholeRecurrence, WindowMask,
};
pub use super::sequence::Sequence;
use crate::number::Role;
use crate::shape::Shape;
use alloc::string::String;
use alloc::vec::Vec;

/// What an operation says about itself.
///
/// The values are resolved: every dimension is known, so that a backend reads all it needs from them.
pub trait Rule: Sized {
    /// The name in texts.
    const NAME: &'static str;

    /// Dimensions of the output of one sample.
    fn output(&self) -> Shape;

    /// Whether its output are indices, as tokens are, and no numbers.
    fn makes_indices(&self) -> bool {
        false
    }

    /// How the gradients of the inputs come about, in the order in which they are made. An input that is not among them has
    /// none.
    fn gradients(&self) -> Vec<Gradient>;

    /// What the forward pass leaves for the backward pass beside inputs and output, in the order of
    /// [`Slot::Saved`](super::Slot).
    fn saved(&self) -> Vec<Saved> {
        Vec::new()
    }

    /// Whether the forward pass of training needs room for what it saves even where no gradient reads that.
    fn always_saves(&self) -> bool {
        self.works_in_saved()
    }

    /// Whether it works in what it saves, and so needs the room for that where the forward pass of a training step runs without training.
    fn works_in_saved(&self) -> bool {
        false
    }

    /// The most scratch memory that a piece of work can use; `None` if it uses none.
    fn workspace(&self, work: Work) -> Option<Workspace> {
        let _ = work;
        None
    }

    /// Elements of that workspace which are there once, beside those of each sample.
    fn workspace_once(&self, work: Work) -> u64 {
        let _ = work;
        0
    }

    /// What the operation makes for itself while it does a piece of work, beside scratch memory that it could do without.
    fn scratch(&self, work: Work) -> Vec<Saved> {
        let _ = work;
        Vec::new()
    }

    /// Whether the output may overwrite an input of its size, where nothing else needs that.
    fn in_place(&self) -> bool {
        false
    }

    /// The layouts in which its tensors may lie.
    fn layouts(&self) -> Layouts {
        Layouts::Dense
    }

    /// What of its inputs it looks something up by.
    fn indices(&self) -> Vec<Indices> {
        Vec::new()
    }

    /// Whether the training forward pass reads the random state.
    fn draws(&self) -> bool {
        false
    }

    /// Whether it reads what it saved, and leaves its buffers alone, where its output is computed a second time for the backward
    /// pass.
    fn runs_again_from_saved(&self) -> bool {
        false
    }

    /// What it keeps from one run to the next, for each sample: its [`Slot::Cache`](super::Slot)s, in order.
    fn caches(&self) -> Vec<Kept> {
        Vec::new()
    }

    /// Whether it needs to know, from the state, how many steps of the sequence went before.
    fn is_positioned(&self) -> bool {
        false
    }

    /// The same for some steps of a sequence at a time, and the axis of its output along which they follow each other.
    ///
    /// # Errors
    /// Why that cannot be, to be read after the layer's name.
    fn stepped(&self, sequence: &Sequence<'_>) -> Result<(Op, usize), String> {
        let _ = sequence;
        Err(Sequence::refusal())
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

    /// The type-level assertions of its shape rule, given the dimensions of its inputs.
    fn edges(&self, inputs: &[Shape]) -> Vec<Edge>;
}

/// Some of an operation's first 64 inputs, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inputs(u64);

impl Inputs {
    /// No input.
    pub const NONE: Inputs = Inputs(0);

    /// These inputs. Numbers from 64 on are left out: nothing that joins so many values reads them again.
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

    /// These and one more. A number from 64 on is left out.
    pub const fn with(self, input: u8) -> Inputs {
        if input < 64 { Inputs(self.0 | 1 << input) } else { self }
    }

    /// Whether an input is among them.
    pub const fn contains(self, input: usize) -> bool {
        input < 64 && self.0 >> input & 1 == 1
    }
}

/// What a gradient reads beside the gradient of the output. Nothing else is kept alive for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// The operation's inputs.
    pub inputs: Inputs,
    /// Its output.
    pub output: bool,
    /// What the forward pass saved.
    pub saved: bool,
    /// The random state.
    pub state: bool,
}

impl Reads {
    /// Nothing.
    pub const NOTHING: Reads = Reads { inputs: Inputs::NONE, output: false, saved: false, state: false };
    /// The output.
    pub const OUTPUT: Reads = Reads { output: true, ..Reads::NOTHING };
    /// What was saved.
    pub const SAVED: Reads = Reads { saved: true, ..Reads::NOTHING };
    /// The random state.
    pub const STATE: Reads = Reads { state: true, ..Reads::NOTHING };

    /// Some inputs.
    pub const fn inputs(inputs: &[u8]) -> Reads {
        Reads { inputs: Inputs::of(inputs), ..Reads::NOTHING }
    }
}

/// How the gradients of some inputs come about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gradient {
    /// The gradient of the output is that of this input as it is, summed over all along which the input is repeated.
    Passes(u8),
    /// One operation for one or several inputs.
    Computed {
        /// The inputs, in the order in which room is made for their gradients, and what each gradient reads.
        of: Vec<(u8, Reads)>,
        /// Whether the gradient of an input may overwrite that of the output, where nobody reads that any more.
        in_place: bool,
    },
}

impl Gradient {
    /// The inputs whose gradients it makes.
    pub fn inputs(&self) -> impl Iterator<Item = usize> + '_ {
        let (passes, of) = match self {
            Gradient::Passes(input) => (Some(*input), &[][..]),
            Gradient::Computed { of, .. } => (None, &of[..]),
        };
        passes.into_iter().chain(of.iter().map(|(input, _)| *input)).map(usize::from)
    }

    /// An operation for these inputs alone.
    pub fn computed(of: &[(u8, Reads)]) -> Gradient {
        Gradient::Computed { of: of.to_vec(), in_place: false }
    }

    /// An operation for these inputs; the gradient of an input may overwrite that of the output.
    pub fn in_place(of: &[(u8, Reads)]) -> Gradient {
        Gradient::Computed { of: of.to_vec(), in_place: true }
    }
}

/// A tensor that the forward pass leaves for the backward pass beside inputs and output.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Saved {
    /// Its dimensions.
    pub shape: Shape,
    /// Whether there is one for each sample, or one for the whole batch.
    pub batched: bool,
    /// What its elements are for.
    pub role: Role,
    /// The input that it may overwrite where nothing else needs that. The gradient of that input then overwrites what was saved.
    pub over: Option<u8>,
}

impl Saved {
    /// A tensor of its own for each sample.
    pub fn each(shape: Shape, role: Role) -> Saved {
        Saved { shape, batched: true, role, over: None }
    }

    /// A tensor of its own for the whole batch.
    pub fn whole(shape: Shape, role: Role) -> Saved {
        Saved { shape, batched: false, role, over: None }
    }
}

/// A piece of an operation's work that may need scratch memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The output, in training.
    Training,
    /// The output, without training.
    Inference,
    /// One of [`Rule::gradients`], by its number.
    Gradient(usize),
}

/// Scratch memory that a piece of work can use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workspace {
    /// [`Role::ProductWorkspace`] and [`Role::ConvolutionWorkspace`] are capped by the network's cards and settings; a
    /// [`Role::Statistic`] is what the operation needs in any case.
    pub role: Role,
    /// Its dimensions.
    pub shape: Shape,
    /// Whether there is as much for each sample, or for the whole batch.
    pub batched: bool,
}

/// The layouts in which an operation's tensors may lie: what it says holds for both backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layouts {
    /// As shapes are written, without gaps.
    Dense,
    /// Maps of these shapes in any layout, and weights of these shapes in either order, whatever those of the others are; all else
    /// is dense.
    Maps(Vec<Shape>),
    /// A weight of this shape, and what has its shape, all in one order without gaps; all else is dense.
    Filters(Shape),
    /// Rows of these tensors with any pitch; all else is dense.
    Rows(&'static [Slot]),
    /// Any, as long as all tensors have the same shape and layout: no element depends on where another one is.
    Alike,
}

/// What becomes of an operation when there is no training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inference {
    /// It computes.
    Computes,
    /// It passes its input on.
    PassesOn,
}

/// A type-level assertion: `rule<arguments>` maps the input shapes to the output shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Edge {
    /// The type in [`typed`](crate::typed).
    pub rule: &'static str,
    /// Its numbers, in order.
    pub arguments: Vec<u64>,
    /// What goes in.
    pub inputs: Vec<Shape>,
    /// What comes out.
    pub output: Shape,
}

impl Edge {
    /// An assertion for one input.
    pub fn new(rule: &'static str, arguments: &[u64], input: Shape, output: Shape) -> Edge {
        Edge { rule, arguments: arguments.to_vec(), inputs: [input].to_vec(), output }
    }

    /// An operation whose output has the dimensions of its input.
    pub fn same(inputs: &[Shape]) -> Vec<Edge> {
        [Edge::new("Same", &[], inputs[0], inputs[0])].to_vec()
    }
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// An operation with every dimension fixed.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Op {
            $($(#[$doc])* $name($name),)*
        }

        $(impl From<$name> for Op {
            fn from(op: $name) -> Op {
                Op::$name(op)
            }
        })*

        impl Op {
            /// The names of all operations.
            pub const NAMES: &'static [&'static str] = &[$(<$name as Rule>::NAME,)*];

            /// The name in texts.
            pub fn name(&self) -> &'static str {
                match self { $(Op::$name(_) => <$name as Rule>::NAME,)* }
            }

            /// See [`Rule::output`].
            pub fn output(&self) -> Shape {
                match self { $(Op::$name(op) => op.output(),)* }
            }

            /// See [`Rule::makes_indices`].
            pub fn makes_indices(&self) -> bool {
                match self { $(Op::$name(op) => op.makes_indices(),)* }
            }

            /// See [`Rule::gradients`].
            pub fn gradients(&self) -> Vec<Gradient> {
                match self { $(Op::$name(op) => op.gradients(),)* }
            }

            /// See [`Rule::saved`].
            pub fn saved(&self) -> Vec<Saved> {
                match self { $(Op::$name(op) => op.saved(),)* }
            }

            /// See [`Rule::always_saves`].
            pub fn always_saves(&self) -> bool {
                match self { $(Op::$name(op) => op.always_saves(),)* }
            }

            /// See [`Rule::works_in_saved`].
            pub fn works_in_saved(&self) -> bool {
                match self { $(Op::$name(op) => op.works_in_saved(),)* }
            }

            /// See [`Rule::workspace`].
            pub fn workspace(&self, work: Work) -> Option<Workspace> {
                match self { $(Op::$name(op) => op.workspace(work),)* }
            }

            /// See [`Rule::workspace_once`].
            pub fn workspace_once(&self, work: Work) -> u64 {
                match self { $(Op::$name(op) => op.workspace_once(work),)* }
            }

            /// See [`Rule::scratch`].
            pub fn scratch(&self, work: Work) -> Vec<Saved> {
                match self { $(Op::$name(op) => op.scratch(work),)* }
            }

            /// See [`Rule::in_place`].
            pub fn in_place(&self) -> bool {
                match self { $(Op::$name(op) => op.in_place(),)* }
            }

            /// See [`Rule::layouts`].
            pub fn layouts(&self) -> Layouts {
                match self { $(Op::$name(op) => op.layouts(),)* }
            }

            /// See [`Rule::indices`].
            pub fn indices(&self) -> Vec<Indices> {
                match self { $(Op::$name(op) => op.indices(),)* }
            }

            /// See [`Rule::draws`].
            pub fn draws(&self) -> bool {
                match self { $(Op::$name(op) => op.draws(),)* }
            }

            /// See [`Rule::runs_again_from_saved`].
            pub fn runs_again_from_saved(&self) -> bool {
                match self { $(Op::$name(op) => op.runs_again_from_saved(),)* }
            }

            /// See [`Rule::caches`].
            pub fn caches(&self) -> Vec<Kept> {
                match self { $(Op::$name(op) => op.caches(),)* }
            }

            /// See [`Rule::is_positioned`].
            pub fn is_positioned(&self) -> bool {
                match self { $(Op::$name(op) => op.is_positioned(),)* }
            }

            /// See [`Rule::stepped`].
            ///
            /// # Errors
            /// See there.
            pub fn stepped(&self, sequence: &Sequence<'_>) -> Result<(Op, usize), String> {
                match self { $(Op::$name(op) => op.stepped(sequence),)* }
            }

            /// See [`Rule::inference`].
            pub fn inference(&self) -> Inference {
                match self { $(Op::$name(op) => op.inference(),)* }
            }

            /// See [`Rule::macs`].
            pub fn macs(&self) -> u64 {
                match self { $(Op::$name(op) => op.macs(),)* }
            }

            /// See [`Rule::edges`].
            pub fn edges(&self, inputs: &[Shape]) -> Vec<Edge> {
                match self { $(Op::$name(op) => op.edges(inputs),)* }
            }
        }

        impl Wire for Op {
            fn put(&self, out: &mut Vec<u8>) {
                let mut number = 0u64;
                $(if let Op::$name(op) = self {
                    number.put(out);
                    return op.put(out);
                }
                number += 1;)*
                let _ = number;
            }

            fn take(from: &mut Reader<'_>) -> Option<Op> {
                let mut number = u64::take(from)?;
                $(if number == 0 {
                    return $name::take(from).map(Op::$name);
                }
                number -= 1;)*
                let _ = number;
                None
            }
        }
    };
}

operations! {
    /// Affine map of the last axis by a weight.
    Product,
    /// Products of matrices that are both values.
    MatMul,
    /// Sliding windows times a weight, or its transpose.
    Convolution,
    /// A function of one number, for each element.
    Pointwise,
    /// Sum of several values.
    Sum,
    /// A function of two numbers, for each pair of elements, with broadcasting.
    Binary,
    /// Rows or groups brought to mean 0 or length 1, each by its own statistics.
    Normalize,
    /// Channels brought to mean 0 and variance 1 by the batch's statistics, or the running ones.
    BatchNorm,
    /// Maximum over windows.
    MaxPool,
    /// Mean over windows.
    AveragePool,
    /// A map of another size.
    Resize,
    /// Exponentials divided by their sum along an axis, or the logarithms of that.
    Softmax,
    /// Scaled dot-product attention.
    Attention,
    /// Rows of a table by index.
    Gather,
    /// Values side by side.
    Concat,
    /// A part of a value along one axis.
    Slice,
    /// Random zeros.
    Mask,
    /// A formula of one number, for each element.
    Formula,
    /// What the user's own functions do.
    Declared,
    /// Channels less a number, over another one.
    Standardize,
    /// Axes in another order.
    Permute,
    /// The elements along an axis as one.
    Reduce,
    /// What is the same for all samples, for each of them.
    Expand,
    /// A map of another size, of what lies between its elements.
    Interpolate,
    /// A map with more rows and columns around it, or fewer.
    Pad,
    /// Heads turned by an angle that grows with their step.
    Rotary,
    /// Step after step of a sequence.
    Recurrence,
    /// A learned number for each head and each distance between two positions.
    RelativeBias,
    /// Sines and cosines of numbers.
    Sinusoid,
    /// What hides pairs of positions in windows.
    WindowMask,
    /// Attention of some steps of a sequence over all that went before.
    CachedAttention,
    /// Rows of a table for some steps of a sequence.
    Positions,
    /// Windows that slide over a volume, times a weight, or its transpose.
    Convolution3d,
    /// Maximum over windows of a volume.
    MaxPool3d,
    /// Mean over windows of a volume.
    AveragePool3d,
    /// Numbers that are written in the network.
    Constant,
    /// Elements along an axis over their norm.
    L2Norm,
    /// Positions of tokens among those that are no padding.
    PaddedPositions,
    /// Where the largest index is.
    ArgMax,
    /// Some rows of each sample, by index.
    Take,
    /// Step after step of a state space model.
    SelectiveScan,
    /// A weight as a function of its parameters.
    Reparametrize,
    /// Step after step of a state space model, behind those before.
    CachedScan,
    /// Windows over some steps of a signal and those before.
    CachedConvolution,
    /// Step after step of a sequence, behind those before.
    CachedRecurrence,
    /// Channels normalised by the batch's statistics, and an activation that can be undone.
    InplaceNorm,
    /// Affine map of the last axis by a weight that is kept in codes of a few bits.
    CodedProduct,
    /// Step after step of a sequence, with the map of what arrives.
    WholeRecurrence,
    /// A function of one number with two slopes, of which a bit for each element is kept.
    Rectifier,
    /// A convolution of one pixel and the normalisation of its channels by the batch's statistics as one map of each pixel.
    NormalizedConvolution,
    /// The norm of elements along an axis.
    VectorNorm,
    /// A weight over its largest singular value.
    SpectralNorm,
    /// The first steps of each sequence, and zeros after them.
    SequenceMask,
    /// Positions of steps in their segments.
    SegmentPositions,
}
