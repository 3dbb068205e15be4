//! Attention's forward pass on Hopper's warpgroup instructions, in place of the launch that every card runs: `attention_wgmma.cuh`.

use super::{Heads, grid, own_forward};
use crate::calls::{Call, Launch, OperationCalls};
use crate::operations::{Context, LaunchContext};
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::ops::{Attention, Seen};
use gpumem_core::program::{Action, Op, Pass};

/// The only compute capability that has these instructions. Blackwell has others in their place.
const CAPABILITY: (i32, i32) = (9, 0);

/// Elements of a head that the kernel has products for.
const WIDTHS: [u64; 2] = [64, 128];

/// Queries of a block, and keys of a tile: `SPAN` of the kernel.
const SPAN: u64 = 128;

/// Threads of a block: two warpgroups that compute and one that copies.
const THREADS: u32 = 384;

/// Tiles in shared memory: one of queries, and two each of keys and values.
const TILES: u64 = 5;

/// Bytes of shared memory for barriers, and for an object that begins at a multiple of 1024 bytes.
const BESIDE_TILES: u64 = 2048;

/// The most bytes of shared memory that a block can have on this card.
const MOST_SHARED: u64 = 227 << 10;
const _: () = assert!(shared_bytes(WIDTHS[0]) <= MOST_SHARED && shared_bytes(WIDTHS[1]) <= MOST_SHARED);

/// Returns the bytes of shared memory of a block, for heads of so many elements of 16 bits.
const fn shared_bytes(width: u64) -> u64 {
    TILES * SPAN * width * 2 + BESIDE_TILES
}

/// Returns the launches of a group that have a counterpart on warpgroup instructions: the index of the call, and the counterpart. It has the
/// arguments of the launch, writes the same tensors, and differs in roundings.
///
/// # Errors
/// As for [`calls`](super::super::calls).
pub fn warpgroup_launches(
    placed: &Placed,
    setting: LaunchContext,
    group: &OperationCalls,
) -> Result<Vec<(usize, Launch)>, Error> {
    let mut found = Vec::new();
    if setting.capability != CAPABILITY {
        return Ok(found);
    }
    for index in group.operations() {
        let operation = &placed.program.operations[index];
        let Action::Run { op: Op::Attention(op), pass: Pass::Forward | Pass::Again | Pass::Chunk } = &operation.action
        else {
            continue;
        };
        let context = Context { placed, operation, setting };
        if !is_supported(&context, op) {
            continue;
        }
        // A library may compute it.
        for launch in own_forward(&context, op)? {
            let is_it = |call: &Call| matches!(call, Call::Kernel(other) if *other == launch);
            if let Some(at) = group.calls.iter().position(is_it) {
                found.push((at, counterpart(&context, op, launch)?));
            }
        }
    }
    Ok(found)
}

/// True if the kernel computes such attention: in 16 bits, with keys that nothing but the causal mask hides, and without dropout.
fn is_supported(context: &Context<'_>, op: &Attention) -> bool {
    let drops = context.placed.program.training && op.dropout > 0.0;
    let hides = op.bias[0] > 0 || op.hides_from() > 0 || op.seen != Seen::All;
    let fits = WIDTHS.contains(&op.width) && op.width == op.values;
    fits && !hides && !drops && context.tensor_core_terms() == 16
}

fn counterpart(context: &Context<'_>, op: &Attention, launch: Launch) -> Result<Launch, Error> {
    let heads = Heads::new(context, op)?;
    let blocks = [heads.samples, op.sequences(), op.heads, op.steps().div_ceil(SPAN)];
    let mut kernel = launch.kernel.on_warpgroups(shared_bytes(op.width));
    kernel.entry = "attention_forward_wgmma";
    Ok(Launch { kernel, grid: [grid(&blocks)?, 1, 1], block: [THREADS, 1, 1], ..launch })
}
