//! Operations: the closed set that programs are made of, and the rule that each of them states.
//!
//! Lowering, the plan and both backends read an operation's rule here and nowhere else. An operation has one gradient rule and
//! one memory rule, so two layers that save different tensors are two operations. Its inputs are activations as well as
//! parameters.

use super::cache_entry::CacheEntry;
use super::encoding::{Reader, Wire};
use super::indices::Indices;
use super::ops::{
    ArgMax, AsStrided, Attention, AveragePool, AveragePool3d, BatchNorm, Binary, CachedAttention, CachedConvolution,
    CachedRecurrence, CachedScan, CodedProduct, Concat, Constant, Convolution, Convolution3d, Declared, Expand,
    Formula, Gather, InplaceNorm, Interpolate, L2Norm, Mask, MatMul, MaxPool, MaxPool3d, Normalize,
    NormalizedConvolution, Pad, PaddedPositions, Permute, Pointwise, Positions, Product, Rectifier, Recurrence, Reduce,
    RelativeBias, Reparametrize, Resize, Rotary, ScatterAdd, SegmentPositions, SelectiveScan, SequenceMask, Sinusoid,
    Slice, Softmax, SpectralNorm, Standardize, Sum, Take, TakeAlong, TopK, VectorNorm, WholeRecurrence, WindowMask,
};
pub use super::rule::{Edge, Gradient, Inference, Inputs, Layouts, Reads, Rule, Saved, Work, Workspace};
pub use super::sequence::Sequence;
use crate::shape::Shape;
use alloc::string::String;
use alloc::vec::Vec;

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
            /// Names of all operations.
            pub const NAMES: &'static [&'static str] = &[$(<$name as Rule>::NAME,)*];

            /// Returns the name in texts.
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

            /// See [`Rule::works_in_gradient`].
            pub fn works_in_gradient(&self, input: u8) -> bool {
                match self { $(Op::$name(op) => op.works_in_gradient(input),)* }
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
            pub fn caches(&self) -> Vec<CacheEntry> {
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
    /// Linear layer: an affine map of the last axis by a weight.
    Product,
    /// Product of two matrices that are both activations.
    MatMul,
    /// Sliding windows times a weight, or its transpose.
    Convolution,
    /// A function of one number, for each element.
    Pointwise,
    /// Sum of several values.
    Sum,
    /// A function of two numbers, for each pair of elements, with broadcasting.
    Binary,
    /// Row norms: rows or groups brought to mean 0 and variance 1, or to mean square 1.
    Normalize,
    /// Channels brought to mean 0 and variance 1 by the batch's statistics, or the running ones.
    BatchNorm,
    /// Maximum over windows.
    MaxPool,
    /// Mean over windows.
    AveragePool,
    /// Nearest-neighbour resizing of a map.
    Resize,
    /// Softmax or log-softmax along an axis.
    Softmax,
    /// Scaled dot-product attention.
    Attention,
    /// Rows of a table by index: an embedding.
    Gather,
    /// Concatenation along one axis.
    Concat,
    /// A part of a value along one axis.
    Slice,
    /// Dropout: random zeros.
    Mask,
    /// A formula of one number, for each element.
    Formula,
    /// An operation that the user declared, with functions of their own.
    Declared,
    /// Channels less a constant mean, divided by a constant deviation.
    Standardize,
    /// Permutation of the axes.
    Permute,
    /// Reduction of the elements along an axis to one.
    Reduce,
    /// Expansion over the batch of a value that all samples share.
    Expand,
    /// Interpolation between the elements of a map.
    Interpolate,
    /// Padding of a map, or cropping.
    Pad,
    /// Rotary position embedding: heads rotated by an angle that grows with the time step.
    Rotary,
    /// A recurrent layer, one time step after another.
    Recurrence,
    /// A learned bias of attention for each head and each distance between two positions.
    RelativeBias,
    /// Sinusoidal embedding: sines and cosines of numbers.
    Sinusoid,
    /// A mask that hides pairs of positions in shifted windows.
    WindowMask,
    /// Attention of some time steps over these and all earlier ones.
    CachedAttention,
    /// Rows of a table for some time steps of a sequence: a learned position embedding.
    Positions,
    /// Sliding windows of a volume times a weight, or its transpose.
    Convolution3d,
    /// Maximum over windows of a volume.
    MaxPool3d,
    /// Mean over windows of a volume.
    AveragePool3d,
    /// Numbers that are written in the network.
    Constant,
    /// Elements along an axis divided by their norm.
    L2Norm,
    /// Positions of tokens, counted without padding.
    PaddedPositions,
    /// Position of the largest index.
    ArgMax,
    /// Some rows of each sample, by index.
    Take,
    /// Scan of a selective state space model, one time step after another.
    SelectiveScan,
    /// A weight as a function of its parameters.
    Reparametrize,
    /// Scan of a selective state space model that goes on from the state of earlier calls.
    CachedScan,
    /// Convolution over some time steps of a signal and those of earlier calls.
    CachedConvolution,
    /// A recurrent layer that goes on from the state of earlier calls.
    CachedRecurrence,
    /// Batch norm and an invertible activation in one operation.
    InplaceNorm,
    /// Linear layer whose weight is quantized to codes of a few bits.
    CodedProduct,
    /// A recurrent layer together with the linear map of its input.
    WholeRecurrence,
    /// An activation with two slopes that saves one bit of each element.
    Rectifier,
    /// A 1x1 convolution and its batch norm as one operation.
    NormalizedConvolution,
    /// Norm of the elements along an axis.
    VectorNorm,
    /// Spectral norm: a weight divided by its largest singular value.
    SpectralNorm,
    /// The first time steps of each sequence, and zeros after them.
    SequenceMask,
    /// Positions of time steps in their segments.
    SegmentPositions,
    /// Indices at strides: a part of them, their axes in another order, or some of them several times.
    AsStrided,
    /// Places of the largest or smallest elements along an axis.
    TopK,
    /// Elements along an axis by indices.
    TakeAlong,
    /// A value with others added to it along an axis, by indices.
    ScatterAdd,
}
