//! Operations, one a file: their numbers, the reads of their gradients, saved tensors, scratch memory and cost.

mod activation_mask;
mod arg_max;
mod as_strided;
mod attention;
mod average_pool;
mod batch_norm;
mod binary;
mod concat;
mod constant;
mod convolution;
mod declared;
mod dropout;
mod expand;
mod formula;
mod gather;
mod inplace_norm;
mod input_norm;
mod interpolate;
mod l2_norm;
mod linear;
mod mat_mul;
mod max_pool;
mod normalized_convolution;
mod pad;
mod padded_positions;
mod permute;
mod pointwise;
mod positions;
mod quantized_linear;
mod recurrence;
mod reduce;
mod relative_bias;
mod reparametrize;
mod resize;
mod rotary;
mod row_norm;
mod scatter_add;
mod segment_positions;
mod selective_scan;
mod sequence_mask;
mod sinusoid;
mod slice;
mod softmax;
mod spectral_norm;
mod sum;
mod take;
mod take_along;
mod top_k;
mod vector_norm;
mod window;
mod window_mask;

pub use activation_mask::Rectifier;
pub use arg_max::ArgMax;
pub use as_strided::AsStrided;
pub use attention::{Attention, CachedAttention, Seen, usual_scale};
pub use average_pool::{AveragePool, AveragePool3d, Windows};
pub use batch_norm::BatchNorm;
pub use binary::{Axis, Binary, BinaryFunction, broadcast};
pub use concat::Concat;
pub use constant::{Constant, MOST_NUMBERS};
pub use convolution::{CachedConvolution, Convolution, Convolution3d};
pub use declared::{Declaration, Declared};
pub use dropout::Mask;
pub use expand::Expand;
pub use formula::Formula;
pub use gather::Gather;
pub use inplace_norm::InplaceNorm;
pub use input_norm::Standardize;
pub use interpolate::{Interpolate, Interpolation};
pub use l2_norm::L2Norm;
pub use linear::Product;
pub use mat_mul::MatMul;
pub use max_pool::{MaxPool, MaxPool3d};
pub use normalized_convolution::NormalizedConvolution;
pub use pad::{Beyond, Pad};
pub use padded_positions::PaddedPositions;
pub use permute::{Moved, Permute};
pub use pointwise::Pointwise;
pub use positions::Positions;
pub use quantized_linear::CodedProduct;
pub use recurrence::{CachedRecurrence, Cell, Recurrence, WholeRecurrence};
pub use reduce::{Reduce, Reduction};
pub use relative_bias::{Distances, RelativeBias};
pub use reparametrize::Reparametrize;
pub use resize::Resize;
pub use rotary::Rotary;
pub use row_norm::Normalize;
pub use scatter_add::ScatterAdd;
pub use segment_positions::SegmentPositions;
pub use selective_scan::{CachedScan, SelectiveScan};
pub use sequence_mask::SequenceMask;
pub use sinusoid::{Angles, Sinusoid};
pub use slice::Slice;
pub use softmax::Softmax;
pub use spectral_norm::SpectralNorm;
pub use sum::Sum;
pub use take::Take;
pub use take_along::TakeAlong;
pub use top_k::TopK;
pub use vector_norm::VectorNorm;
pub use window::{Window, of_volume};
pub use window_mask::{HIDDEN, WindowMask};

/// Calls the macro `$callback` with one row for each operation: the only list of them.
///
/// ```text
/// /// Elements along an axis divided by their norm.
/// L2Norm: norm::l2_norm, ["l2_norm.cu"];
/// ```
///
/// A row has the operation, its module below `gpumem-cpu/src/kernels` and below `gpumem-cuda/src/operations`, and its files in the folder of its
/// family below `gpumem-cuda/kernels`. A file that several operations share is in one row only. The order of the rows is that of the
/// operations' numbers in encoded programs, so a new operation comes last.
#[macro_export]
#[doc(hidden)]
macro_rules! for_each_operation {
    ($callback:ident) => {
        $callback! {
            /// Linear layer: an affine map of the last axis by a weight.
            Product: matmul::linear, ["product.cu", "mma.cuh", "tile.cuh", "tile_fma.cuh", "tile_mma.cuh"];
            /// Product of two matrices that are both activations.
            MatMul: matmul::mat_mul, ["mat_mul.cu"];
            /// Sliding windows times a weight, or its transpose.
            Convolution: conv::convolution, ["convolution.cu", "convolution_transposed.cu", "correlation.cuh", "correlation_sums.cuh"];
            /// A function of one number, for each element.
            Pointwise: elementwise::pointwise, ["pointwise.cu", "pointwise.cuh"];
            /// Sum of several values.
            Sum: elementwise::sum, ["sum.cu"];
            /// A function of two numbers, for each pair of elements, with broadcasting.
            Binary: elementwise::binary, ["binary.cu", "binary.cuh"];
            /// Row norms: rows or groups brought to mean 0 and variance 1, or to mean square 1.
            Normalize: norm::row_norm, ["normalize.cu"];
            /// Channels brought to mean 0 and variance 1 by the batch's statistics, or the running ones.
            BatchNorm: norm::batch_norm, ["batch_norm.cu", "batch_norm_last.cu", "batch_norm_last_ranks.cuh", "batch_norm.cuh"];
            /// Maximum over windows.
            MaxPool: conv::max_pool, ["max_pool.cu"];
            /// Mean over windows.
            AveragePool: conv::average_pool, ["average_pool.cu", "average_pool_adaptive.cu"];
            /// Nearest-neighbour resizing of a map.
            Resize: movement::resize, ["resize.cu"];
            /// Softmax or log-softmax along an axis.
            Softmax: elementwise::softmax, ["softmax.cu"];
            /// Scaled dot-product attention.
            Attention: attention, ["attention.cu", "attention_fma.cuh", "attention_mma.cuh", "attention_mma_backward.cuh", "attention_rows.cuh",
                "attention_wgmma.cuh", "wgmma.cuh"];
            /// Rows of a table by index: an embedding.
            Gather: movement::gather, ["gather.cu"];
            /// Concatenation along one axis.
            Concat: movement::concat, ["concat.cu"];
            /// A part of a value along one axis.
            Slice: movement::slice, ["slice.cu"];
            /// Dropout: random zeros.
            Mask: elementwise::dropout, ["mask.cu", "mask.cuh"];
            /// A formula of one number, for each element.
            Formula: elementwise::formula, ["formula.cu", "formula.cuh"];
            /// An operation that the user declared, with functions of their own.
            Declared: elementwise::declared, [];
            /// Channels less a constant mean, divided by a constant deviation.
            Standardize: norm::input_norm, ["standardize.cu"];
            /// Permutation of the axes.
            Permute: movement::permute, ["permute.cu"];
            /// Reduction of the elements along an axis to one.
            Reduce: elementwise::reduce, ["reduce.cu"];
            /// Expansion over the batch of a value that all samples share.
            Expand: movement::expand, ["expand.cu"];
            /// Interpolation between the elements of a map.
            Interpolate: movement::interpolate, ["interpolate.cu"];
            /// Padding of a map, or cropping.
            Pad: movement::pad, ["pad.cu"];
            /// Rotary position embedding: heads rotated by an angle that grows with the time step.
            Rotary: attention::rotary, ["rotary.cu", "rotary_following.cu", "rotary.cuh"];
            /// A recurrent layer, one time step after another.
            Recurrence: recurrence, ["recurrence.cu", "recurrence_bias.cu", "recurrence_projection.cu", "recurrence_weight.cu", "recurrence.cuh", "recurrence_steps.cuh"];
            /// A learned bias of attention for each head and each distance between two positions.
            RelativeBias: attention::relative_bias, ["relative_bias.cu"];
            /// Sinusoidal embedding: sines and cosines of numbers.
            Sinusoid: attention::sinusoid, ["sinusoid.cu"];
            /// A mask that hides pairs of positions in shifted windows.
            WindowMask: attention::window_mask, ["window_mask.cu"];
            /// Attention of some time steps over these and all earlier ones.
            CachedAttention: attention::cached, ["cached_attention.cu"];
            /// Rows of a table for some time steps of a sequence: a learned position embedding.
            Positions: attention::positions, ["positions.cu"];
            /// Sliding windows of a volume times a weight, or its transpose.
            Convolution3d: conv::convolution3d, ["convolution3d.cu", "convolution3d_transposed.cu", "correlation3d.cuh"];
            /// Maximum over windows of a volume.
            MaxPool3d: conv::max_pool3d, ["max_pool3d.cu"];
            /// Mean over windows of a volume.
            AveragePool3d: conv::average_pool3d, ["average_pool3d.cu"];
            /// Numbers that are written in the network.
            Constant: elementwise::constant, ["constant.cu"];
            /// Elements along an axis divided by their norm.
            L2Norm: norm::l2_norm, ["l2_norm.cu"];
            /// Positions of tokens, counted without padding.
            PaddedPositions: attention::padded_positions, ["padded_positions.cu"];
            /// Position of the largest index.
            ArgMax: movement::arg_max, ["arg_max.cu"];
            /// Some rows of each sample, by index.
            Take: movement::take, ["take.cu"];
            /// Scan of a selective state space model, one time step after another.
            SelectiveScan: recurrence::selective_scan, ["selective_scan.cu", "selective_scan.cuh"];
            /// A weight as a function of its parameters.
            Reparametrize: norm::reparametrize, ["reparametrize.cu"];
            /// Scan of a selective state space model that goes on from the state of earlier calls.
            CachedScan: recurrence::selective_scan::cached, ["cached_scan.cu"];
            /// Convolution over some time steps of a signal and those of earlier calls.
            CachedConvolution: conv::convolution::cached, ["cached_convolution.cu"];
            /// A recurrent layer that goes on from the state of earlier calls.
            CachedRecurrence: recurrence::cached, ["cached_recurrence.cu"];
            /// Batch norm and an invertible activation in one operation.
            InplaceNorm: norm::inplace_norm, [];
            /// Linear layer whose weight is quantized to codes of a few bits.
            CodedProduct: matmul::quantized_linear, ["coded_product.cu"];
            /// A recurrent layer together with the linear map of its input.
            WholeRecurrence: recurrence::whole, [];
            /// An activation with two slopes that saves one bit of each element.
            Rectifier: elementwise::activation_mask, ["rectifier.cu", "rectify.cuh"];
            /// A 1x1 convolution and its batch norm as one operation.
            NormalizedConvolution: conv::normalized_convolution, ["normalized_convolution.cu", "normalized_direct.cuh", "normalized_rows.cuh", "conv_norm_grid.cuh"];
            /// Norm of the elements along an axis.
            VectorNorm: norm::vector_norm, ["vector_norm.cu"];
            /// Spectral norm: a weight divided by its largest singular value.
            SpectralNorm: norm::spectral_norm, ["spectral_norm.cu"];
            /// The first time steps of each sequence, and zeros after them.
            SequenceMask: attention::sequence_mask, ["sequence_mask.cu"];
            /// Positions of time steps in their segments.
            SegmentPositions: attention::segment_positions, ["segment_positions.cu"];
            /// Indices at strides: a part of them, their axes in another order, or some of them several times.
            AsStrided: movement::as_strided, ["as_strided.cu"];
            /// Places of the largest or smallest elements along an axis.
            TopK: movement::top_k, ["top_k.cu"];
            /// Elements along an axis by indices.
            TakeAlong: movement::take_along, ["take_along.cu"];
            /// A value with others added to it along an axis, by indices.
            ScatterAdd: movement::scatter_add, [];
        }
    };
}
