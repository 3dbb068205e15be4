//! Places that lie in wait: where a tensor ends, one that comes soon after begins. A launch that takes operations in another order than the
//! program, or writes before all is read, has no such room to err as plans mostly leave.

use gpumem_core::memory::Compiled;
use gpumem_core::memory::budget::Line;
use gpumem_core::memory::place::place;
use std::cmp::Reverse;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The most recent of the places that fit, of which one is taken.
const CHOICE: usize = 3;

/// The same plan for every second program, and for the others one whose tensors take the places of those that were there last.
pub fn in_every_second(compiled: Compiled<'static>) -> Compiled<'static> {
    let mut hasher = DefaultHasher::new();
    compiled.program.hash(&mut hasher);
    let seed = hasher.finish();
    if seed.is_multiple_of(2) { compiled } else { reused(compiled, seed >> 1) }
}

/// What a transient tensor takes, and the first and the last operation that touch it.
struct Life {
    bytes: u64,
    first: u32,
    last: u32,
}

fn reused(mut compiled: Compiled<'static>, mut seed: u64) -> Compiled<'static> {
    let usual = place(&compiled).unwrap();
    let lives: Vec<Life> = (usual.program.transients())
        .map(|id| (usual.bytes[id as usize].next_multiple_of(256), usual.program.tensor(id)))
        .map(|(bytes, tensor)| Life { bytes, first: tensor.first, last: tensor.last })
        .collect();
    let mut order: Vec<usize> = (0..lives.len()).collect();
    order.sort_by_key(|&it| lives[it].first);
    let mut offsets = vec![0; lives.len()];
    for (count, &it) in order.iter().enumerate() {
        let own = &lives[it];
        let (beside, mut gone): (Vec<usize>, Vec<usize>) =
            order[..count].iter().partition(|&&other| lives[other].last >= own.first);
        gone.sort_by_key(|&other| Reverse(lives[other].last));
        let end = |other: usize| offsets[other] + lives[other].bytes;
        let is_free = |&at: &u64| beside.iter().all(|&other| at + own.bytes <= offsets[other] || end(other) <= at);
        // From its beginning on, up to its end, and from its middle on.
        let places = gone.iter().flat_map(|&other| {
            [offsets[other], end(other).saturating_sub(own.bytes), offsets[other] + lives[other].bytes / 512 * 256]
        });
        let free: Vec<u64> = places.filter(is_free).take(CHOICE).collect();
        offsets[it] = match free.len() as u64 {
            0 => beside.iter().map(|&other| end(other)).max().unwrap_or(0),
            some => free[(seed % some) as usize],
        };
        seed = seed.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    let size = (0..lives.len()).map(|it| offsets[it] + lives[it].bytes).max().unwrap_or(0);
    let lines = &mut compiled.budget.lines;
    lines[Line::Arena as usize] += size;
    lines[Line::Arena as usize] -= lines[Line::Activations as usize];
    lines[Line::Activations as usize] = size;
    Compiled { offsets: offsets.leak(), ..compiled }
}
