//! Offsets for tensors by live range: packers, and an independent check of what they find.
//!
//! | part | runs | purpose |
//! | --- | --- | --- |
//! | [`pack_slice`] | natively | packs what is compiled, in the macro and in the command, which must agree |
//! | [`pack_slice_thoroughly`] | natively | packs for seconds, where no compiler has to find the same offsets |
//! | [`AddressOrders`] | natively | turns packings into orders of addresses, which generated code has |
//! | [`replay`] | in const evaluation | places tensors in such an order |
//! | [`pack`](pack()) | in const evaluation | packs at sizes that the macro could not know |
//! | [`verify`](verify()) | in const evaluation | checks a packing, whoever found it |
//!
//! Const evaluation takes about a microsecond for each instruction, and has no vectors. So what runs there are `const fn`s over slices, with scratch
//! memory from their callers. `stack` is one of them, and both packers use it.

mod address_order;
mod backtracking;
mod bound;
mod bucket_sort;
mod canonical;
mod carry;
pub(in crate::memory) mod choose;
mod native_stack;
mod pack;
mod repair;
mod search;
mod sink;
mod stack;
mod thorough;
mod turns;
mod verify;

use alloc::vec;
use alloc::vec::Vec;

pub use address_order::{below, order, replay};
pub(crate) use bucket_sort::sorted;
pub use carry::{AddressOrders, OwnedOrder};
pub use pack::pack;
pub use search::{pack_slice, pack_slice_within};
pub(in crate::memory) use search::{pack_slice_to_fit, size_bounds};
pub use thorough::{THOROUGH, pack_slice_thoroughly};

/// The alignment of every offset and every size in an arena, in bytes.
pub const ALIGNMENT: u64 = 256;

/// A tensor that needs memory for some operations of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveRange {
    /// Bytes, a multiple of [`ALIGNMENT`]. A tensor of 0 bytes gets offset 0 and overlaps nothing.
    pub bytes: u64,
    /// The first operation that needs it.
    pub first: u32,
    /// The last operation that needs it, included. Before `first` it counts as `first`.
    pub last: u32,
}

/// The error of tensors whose bytes add up to 2^64 - 1 or more. No packing was tried: with a smaller sum no offset can overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow;

/// Offsets for `N` tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing<const N: usize> {
    /// Bytes from the beginning of the packed region to each tensor.
    pub offsets: [u64; N],
    /// Bytes of the packed region.
    pub size: u64,
    /// The largest sum of live bytes over all operations: no packing is smaller.
    pub lower_bound: u64,
    /// The first operation at which that many bytes are live.
    pub peak: u32,
}

/// Offsets for tensors whose number is known at run time only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedSlice {
    /// Bytes from the beginning of the packed region to each tensor.
    pub offsets: Vec<u64>,
    /// Bytes of the packed region.
    pub size: u64,
    /// The largest sum of live bytes over all operations: no packing is smaller.
    pub lower_bound: u64,
    /// The first operation at which that many bytes are live.
    pub peak: u32,
}

impl PackedSlice {
    /// Returns the smaller of two packings, and the first of two that are equally large.
    fn min_by_size(self, other: PackedSlice) -> PackedSlice {
        if other.size < self.size { other } else { self }
    }
}

/// Tensors and their packing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedRanges {
    /// The tensors.
    pub ranges: Vec<LiveRange>,
    /// The packing of these ranges.
    pub packed: PackedSlice,
}

/// A live range on the compressed time axis.
#[derive(Clone, Copy, Debug)]
struct Span {
    bytes: u64,
    first: u32,
    last: u32,
}

const NO_SPAN: Span = Span { bytes: 0, first: 0, last: 0 };

/// True if `packing` keeps tensors that live at the same time apart, inside its size. Every offset must be a multiple of `alignment` (usually
/// [`ALIGNMENT`]).
pub const fn verify<const N: usize>(ranges: &[LiveRange; N], packing: &Packing<N>, alignment: u64) -> bool {
    verify_carried(ranges, packing, alignment, &[])
}

/// True if `packing` is valid, as for [`verify`]. `below` says what is directly below each tensor when it begins, as [`below`] has it, or is
/// empty. It says where to look first, and is not trusted.
pub const fn verify_carried<const N: usize>(
    ranges: &[LiveRange; N],
    packing: &Packing<N>,
    alignment: u64,
    below: &[u32],
) -> bool {
    let scratch =
        verify::Scratch { seen: &mut [verify::AHEAD; N], words: &mut [[0; verify::WORDS]; N], keys: &mut [0; N] };
    verify::verify(ranges, &packing.offsets, packing.size, alignment, below, scratch)
}

/// True if a packing is valid: [`verify_carried`] for tensors whose number is known at run time only.
pub fn verify_slice(ranges: &[LiveRange], offsets: &[u64], size: u64, alignment: u64, below: &[u32]) -> bool {
    let count = ranges.len();
    let scratch = verify::Scratch {
        seen: &mut vec![verify::AHEAD; count],
        words: &mut vec![[0; verify::WORDS]; count],
        keys: &mut vec![0; count],
    };
    verify::verify(ranges, offsets, size, alignment, below, scratch)
}
