//! Kernel launches as data: a kernel with its constants, its grid and its tensors.

use gpumem_core::Format;
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::TensorId;
use std::sync::Arc;

/// The kernel sources by file name, including headers.
pub const SOURCES: &[(&str, &str)] = &[
    ("advance.cuh", include_str!("../../kernels/common/advance.cuh")),
    ("attention_fma.cuh", include_str!("../../kernels/attention/attention_fma.cuh")),
    ("attention_mma.cuh", include_str!("../../kernels/attention/attention_mma.cuh")),
    ("attention_mma_backward.cuh", include_str!("../../kernels/attention/attention_mma_backward.cuh")),
    ("base.cuh", include_str!("../../kernels/common/base.cuh")),
    ("batch_norm.cuh", include_str!("../../kernels/norm/batch_norm.cuh")),
    ("binary.cuh", include_str!("../../kernels/elementwise/binary.cuh")),
    ("corrections.cuh", include_str!("../../kernels/common/corrections.cuh")),
    ("descent.cuh", include_str!("../../kernels/common/descent.cuh")),
    ("codes.cuh", include_str!("../../kernels/common/codes.cuh")),
    ("coding.cuh", include_str!("../../kernels/common/coding.cuh")),
    ("correlation.cuh", include_str!("../../kernels/conv/correlation.cuh")),
    ("correlation3d.cuh", include_str!("../../kernels/conv/correlation3d.cuh")),
    ("correlation_sums.cuh", include_str!("../../kernels/conv/correlation_sums.cuh")),
    ("formula.cuh", include_str!("../../kernels/elementwise/formula.cuh")),
    ("layout.cuh", include_str!("../../kernels/common/layout.cuh")),
    ("loss.cuh", include_str!("../../kernels/loss/loss.cuh")),
    ("multi_tensor.cuh", include_str!("../../kernels/common/multi_tensor.cuh")),
    ("adaptive.cuh", include_str!("../../kernels/common/adaptive.cuh")),
    ("random.cuh", include_str!("../../kernels/common/random.cuh")),
    ("mask.cuh", include_str!("../../kernels/elementwise/mask.cuh")),
    ("matrices.cuh", include_str!("../../kernels/common/matrices.cuh")),
    ("mma.cuh", include_str!("../../kernels/matmul/mma.cuh")),
    ("narrow.cuh", include_str!("../../kernels/common/narrow.cuh")),
    ("operation.cuh", include_str!("../../kernels/common/operation.cuh")),
    ("pack.cuh", include_str!("../../kernels/common/pack.cuh")),
    ("part.cuh", include_str!("../../kernels/common/part.cuh")),
    ("partial_sums.cuh", include_str!("../../kernels/common/partial_sums.cuh")),
    ("vector16.cuh", include_str!("../../kernels/common/vector16.cuh")),
    ("planes.cuh", include_str!("../../kernels/common/planes.cuh")),
    ("pointwise.cuh", include_str!("../../kernels/elementwise/pointwise.cuh")),
    ("real.cuh", include_str!("../../kernels/common/real.cuh")),
    ("recurrence.cuh", include_str!("../../kernels/recurrence/recurrence.cuh")),
    ("recurrence_steps.cuh", include_str!("../../kernels/recurrence/recurrence_steps.cuh")),
    ("rectify.cuh", include_str!("../../kernels/elementwise/rectify.cuh")),
    ("rotary.cuh", include_str!("../../kernels/attention/rotary.cuh")),
    ("rows.cuh", include_str!("../../kernels/common/rows.cuh")),
    ("schedule.cuh", include_str!("../../kernels/common/schedule.cuh")),
    ("activation_mask.cuh", include_str!("../../kernels/common/activation_mask.cuh")),
    ("selective_scan.cuh", include_str!("../../kernels/recurrence/selective_scan.cuh")),
    ("tile.cuh", include_str!("../../kernels/matmul/tile.cuh")),
    ("tile_fma.cuh", include_str!("../../kernels/matmul/tile_fma.cuh")),
    ("tile_mma.cuh", include_str!("../../kernels/matmul/tile_mma.cuh")),
    ("grid_barrier.cuh", include_str!("../../kernels/common/grid_barrier.cuh")),
    ("volumes.cuh", include_str!("../../kernels/common/volumes.cuh")),
    ("arg_max.cu", include_str!("../../kernels/movement/arg_max.cu")),
    ("as_strided.cu", include_str!("../../kernels/movement/as_strided.cu")),
    ("attention.cu", include_str!("../../kernels/attention/attention.cu")),
    ("average.cu", include_str!("../../kernels/optimizer/average.cu")),
    ("average_pool.cu", include_str!("../../kernels/conv/average_pool.cu")),
    ("average_pool_adaptive.cu", include_str!("../../kernels/conv/average_pool_adaptive.cu")),
    ("average_pool3d.cu", include_str!("../../kernels/conv/average_pool3d.cu")),
    ("batch_norm.cu", include_str!("../../kernels/norm/batch_norm.cu")),
    ("batch_norm_last.cu", include_str!("../../kernels/norm/batch_norm_last.cu")),
    ("binary.cu", include_str!("../../kernels/elementwise/binary.cu")),
    ("cached_attention.cu", include_str!("../../kernels/attention/cached_attention.cu")),
    ("cached_convolution.cu", include_str!("../../kernels/conv/cached_convolution.cu")),
    ("cached_recurrence.cu", include_str!("../../kernels/recurrence/cached_recurrence.cu")),
    ("cached_scan.cu", include_str!("../../kernels/recurrence/cached_scan.cu")),
    ("chain.cu", include_str!("../../kernels/elementwise/chain.cu")),
    ("check.cu", include_str!("../../kernels/optimizer/check.cu")),
    ("coded_product.cu", include_str!("../../kernels/matmul/coded_product.cu")),
    ("concat.cu", include_str!("../../kernels/movement/concat.cu")),
    ("constant.cu", include_str!("../../kernels/elementwise/constant.cu")),
    ("contrastive.cu", include_str!("../../kernels/loss/contrastive.cu")),
    ("convolution.cu", include_str!("../../kernels/conv/convolution.cu")),
    ("convolution_transposed.cu", include_str!("../../kernels/conv/convolution_transposed.cu")),
    ("convolution3d.cu", include_str!("../../kernels/conv/convolution3d.cu")),
    ("convolution3d_transposed.cu", include_str!("../../kernels/conv/convolution3d_transposed.cu")),
    ("cosine_embedding.cu", include_str!("../../kernels/loss/cosine_embedding.cu")),
    ("ctc.cu", include_str!("../../kernels/loss/ctc.cu")),
    ("expand.cu", include_str!("../../kernels/movement/expand.cu")),
    ("factored.cu", include_str!("../../kernels/optimizer/factored.cu")),
    ("formula.cu", include_str!("../../kernels/elementwise/formula.cu")),
    ("gather.cu", include_str!("../../kernels/movement/gather.cu")),
    ("interpolate.cu", include_str!("../../kernels/movement/interpolate.cu")),
    ("l2_norm.cu", include_str!("../../kernels/norm/l2_norm.cu")),
    ("loss.cu", include_str!("../../kernels/loss/loss.cu")),
    ("mask.cu", include_str!("../../kernels/elementwise/mask.cu")),
    ("mat_mul.cu", include_str!("../../kernels/matmul/mat_mul.cu")),
    ("max_pool.cu", include_str!("../../kernels/conv/max_pool.cu")),
    ("max_pool3d.cu", include_str!("../../kernels/conv/max_pool3d.cu")),
    ("mined.cu", include_str!("../../kernels/loss/mined.cu")),
    ("movement.cu", include_str!("../../kernels/movement/movement.cu")),
    ("muon.cu", include_str!("../../kernels/optimizer/muon.cu")),
    ("norm.cu", include_str!("../../kernels/optimizer/norm.cu")),
    ("normalized_convolution.cu", include_str!("../../kernels/conv/normalized_convolution.cu")),
    ("normalized_direct.cuh", include_str!("../../kernels/conv/normalized_direct.cuh")),
    ("normalized_rows.cuh", include_str!("../../kernels/conv/normalized_rows.cuh")),
    ("conv_norm_grid.cuh", include_str!("../../kernels/conv/conv_norm_grid.cuh")),
    ("normalize.cu", include_str!("../../kernels/norm/normalize.cu")),
    ("optimizer.cu", include_str!("../../kernels/optimizer/optimizer.cu")),
    ("pad.cu", include_str!("../../kernels/movement/pad.cu")),
    ("padded_positions.cu", include_str!("../../kernels/attention/padded_positions.cu")),
    ("permute.cu", include_str!("../../kernels/movement/permute.cu")),
    ("pointwise.cu", include_str!("../../kernels/elementwise/pointwise.cu")),
    ("positions.cu", include_str!("../../kernels/attention/positions.cu")),
    ("product.cu", include_str!("../../kernels/matmul/product.cu")),
    ("rectifier.cu", include_str!("../../kernels/elementwise/rectifier.cu")),
    ("recurrence.cu", include_str!("../../kernels/recurrence/recurrence.cu")),
    ("recurrence_bias.cu", include_str!("../../kernels/recurrence/recurrence_bias.cu")),
    ("recurrence_projection.cu", include_str!("../../kernels/recurrence/recurrence_projection.cu")),
    ("recurrence_weight.cu", include_str!("../../kernels/recurrence/recurrence_weight.cu")),
    ("reduce.cu", include_str!("../../kernels/elementwise/reduce.cu")),
    ("reparametrize.cu", include_str!("../../kernels/norm/reparametrize.cu")),
    ("resize.cu", include_str!("../../kernels/movement/resize.cu")),
    ("relative_bias.cu", include_str!("../../kernels/attention/relative_bias.cu")),
    ("rotary.cu", include_str!("../../kernels/attention/rotary.cu")),
    ("rotary_following.cu", include_str!("../../kernels/attention/rotary_following.cu")),
    ("selective_scan.cu", include_str!("../../kernels/recurrence/selective_scan.cu")),
    ("segment_positions.cu", include_str!("../../kernels/attention/segment_positions.cu")),
    ("sequence_mask.cu", include_str!("../../kernels/attention/sequence_mask.cu")),
    ("slice.cu", include_str!("../../kernels/movement/slice.cu")),
    ("window_mask.cu", include_str!("../../kernels/attention/window_mask.cu")),
    ("sinusoid.cu", include_str!("../../kernels/attention/sinusoid.cu")),
    ("softmax.cu", include_str!("../../kernels/elementwise/softmax.cu")),
    ("spectral_norm.cu", include_str!("../../kernels/norm/spectral_norm.cu")),
    ("standardize.cu", include_str!("../../kernels/norm/standardize.cu")),
    ("statistics.cu", include_str!("../../kernels/norm/statistics.cu")),
    ("state.cu", include_str!("../../kernels/optimizer/state.cu")),
    ("sum.cu", include_str!("../../kernels/elementwise/sum.cu")),
    ("take.cu", include_str!("../../kernels/movement/take.cu")),
    ("take_along.cu", include_str!("../../kernels/movement/take_along.cu")),
    ("top_k.cu", include_str!("../../kernels/movement/top_k.cu")),
    ("triplet.cu", include_str!("../../kernels/loss/triplet.cu")),
    ("vector_norm.cu", include_str!("../../kernels/norm/vector_norm.cu")),
];

/// Returns the name that kernels have for a format: the value of constants such as `REAL`.
pub fn type_name(format: Format) -> &'static str {
    match format {
        Format::F32 => "float",
        Format::Bf16 => "Bf16",
        Format::F16 => "F16",
        Format::U32 => "u32",
        Format::U8 => "unsigned char",
    }
}

/// The constant that marks kernels with a grid barrier, whose blocks must all be resident at once.
pub(crate) const TOGETHER: &str = "TOGETHER";

/// An entry point of a source file, compiled with constants.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kernel {
    /// The file in [`SOURCES`], or the name of a user's file.
    pub file: &'static str,
    /// The entry point.
    pub entry: &'static str,
    /// Macros and their values, in the order of the file's header.
    pub constants: Vec<(&'static str, String)>,
    /// The text of a file that is not in [`SOURCES`]; `None` for one that is.
    pub text: Option<Arc<str>>,
}

impl Kernel {
    /// Returns a kernel without constants.
    pub fn new(file: &'static str, entry: &'static str) -> Kernel {
        Kernel { file, entry, constants: Vec::new(), text: None }
    }

    /// Returns this kernel with one more constant.
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Kernel {
        self.constants.push((name, value.to_string()));
        self
    }

    /// True if the kernel has a grid barrier and therefore needs a cooperative launch.
    pub fn is_cooperative(&self) -> bool {
        self.constants.iter().any(|(name, _)| *name == TOGETHER)
    }

    /// Returns this kernel with `text` as its source.
    pub fn of(self, text: String) -> Kernel {
        Kernel { text: Some(text.into()), ..self }
    }

    /// Returns the source that contains the entry point.
    ///
    /// # Errors
    /// [`Error::Damaged`] if there is no such file.
    pub fn source(&self) -> Result<&str, Error> {
        let known = || SOURCES.iter().find(|(file, _)| *file == self.file).map(|(_, text)| *text);
        self.text.as_deref().or_else(known).ok_or(Error::Damaged("a kernel has no source"))
    }

    /// Returns this kernel with a floating-point constant that is exact to the last bit.
    pub fn with_float(self, name: &'static str, value: f64) -> Kernel {
        // With an exponent it is a floating-point literal in C++ too.
        self.with(name, format!("{value:e}"))
    }
}

/// A tensor whose address a call receives, by its number in the program. With `count` tensors in the program, `count + n` is the f32 master copy of
/// tensor `n`, and `2 * count + n` is its [second half](second_half).
pub type Argument = TensorId;

/// Alignment of the second half of a tensor within the tensor, in bytes.
const HALVES: u64 = 256;

/// Returns the argument for the second half of a tensor. The half begins at the first multiple of 256 bytes at or after the middle.
pub fn second_half(placed: &Placed, id: TensorId) -> Argument {
    let count = placed.program.tensors.len() as TensorId;
    count.saturating_mul(2).saturating_add(id)
}

/// Returns the offset and the length of an argument in the arena, in bytes.
///
/// # Errors
/// [`Error::Damaged`] if the number belongs to no tensor, if the tensor has no master copy, or if it is too small for a second half.
pub fn place(placed: &Placed, argument: Argument) -> Result<(u64, u64), Error> {
    let (id, count) = (argument as usize, placed.program.tensors.len());
    if id < count && id < placed.offsets.len() && id < placed.bytes.len() {
        return Ok((placed.offsets[id], placed.bytes[id]));
    }
    if let Some(whole) = id.checked_sub(count.saturating_mul(2)) {
        let of = (placed.offsets.get(whole).filter(|_| whole < count), placed.bytes.get(whole));
        let (Some(&offset), Some(&bytes)) = of else { return Err(Error::Damaged("an argument is no tensor")) };
        let start = bytes.div_ceil(2).next_multiple_of(HALVES);
        let rest = bytes.checked_sub(start).ok_or(Error::Damaged("a tensor is too small for a second half"))?;
        return Ok((offset.saturating_add(start), rest));
    }
    let own = id.wrapping_sub(count);
    let master = placed.masters.get(own).copied().flatten().ok_or(Error::Damaged("an argument is no tensor"))?;
    // A master copy has the tensor's number of elements, with four bytes each.
    let bytes = placed.program.tensors[own].elements(1).and_then(|elements| elements.checked_mul(4));
    Ok((master, bytes.unwrap_or(u64::MAX)))
}

/// One launch of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The kernel.
    pub kernel: Kernel,
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z; their product is a multiple of a warp.
    pub block: [u32; 3],
    /// Pointers to tensors, in the order of the entry point's parameters. `None` is a null pointer.
    pub arguments: Vec<Option<Argument>>,
    /// Plain numbers, passed after the pointers as the entry point's last parameter if that is not a pointer. Launches that differ only in them
    /// share one kernel, which is compiled once.
    pub numbers: Vec<u32>,
}

impl Launch {
    /// Returns a launch with one thread for each of `count` elements, in blocks of 256.
    pub fn elementwise(kernel: Kernel, count: u64, arguments: Vec<Option<Argument>>) -> Launch {
        let blocks = count.div_ceil(256).max(1);
        let grid = [u32::try_from(blocks).unwrap_or(u32::MAX), 1, 1];
        Launch { kernel, grid, block: [256, 1, 1], arguments, numbers: Vec::new() }
    }

    /// Returns this launch with these plain numbers.
    pub fn with_numbers(self, numbers: Vec<u32>) -> Launch {
        Launch { numbers, ..self }
    }
}
