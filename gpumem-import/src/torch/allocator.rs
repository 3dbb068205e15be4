//! The arithmetic of CUDA's caching allocator: how much memory it holds while a trace runs.

use super::trace::{Event, Trace};
use std::collections::{BTreeSet, HashMap};

/// Sizes are multiples of this.
const BLOCK: u64 = 512;
/// The largest request that the small pool serves.
const SMALL: u64 = 1 << 20;
/// The size of a segment of the small pool.
const SMALL_SEGMENT: u64 = 2 << 20;
/// The size of a segment for requests below [`LARGE`].
const LARGE_SEGMENT: u64 = 20 << 20;
/// Requests from here on have a segment of their own.
const LARGE: u64 = 10 << 20;
/// Segments of their own are multiples of this.
const LARGE_GRAIN: u64 = 2 << 20;

/// The result of a replay.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Reserved {
    /// The most bytes that were held from the driver.
    pub reserved: u64,
    /// The most bytes of blocks in use. A remainder that is not split off counts.
    pub allocated: u64,
    /// The times that free segments went back to the driver, since there was no room.
    pub flushes: u64,
    /// The size of the first request that found no room.
    pub out_of_memory: Option<u64>,
}

/// Replays a trace. `capacity` is the memory that the driver has for the allocator; without it there is no limit.
///
/// `expandable` is `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.
pub fn replay(trace: &Trace, expandable: bool, capacity: Option<u64>) -> Reserved {
    let changes = trace.events.iter().filter_map(|event| match *event {
        Event::Made(storage) => Some((storage, Some(trace.bytes(storage)))),
        Event::Freed(storage) => Some((storage, None)),
        _ => None,
    });
    replay_changes(changes, expandable, capacity)
}

/// Replays requests of so many bytes, and releases, which are `None`.
fn replay_changes(
    changes: impl Iterator<Item = (u32, Option<u64>)>,
    expandable: bool,
    capacity: Option<u64>,
) -> Reserved {
    let mut allocator = Allocator { expandable, capacity, ..Allocator::default() };
    let mut out_of_memory = None;
    for (storage, bytes) in changes {
        match bytes {
            Some(bytes) => {
                if allocator.malloc(storage, bytes).is_none() {
                    out_of_memory = Some(bytes);
                    break;
                }
            }
            None => allocator.free(storage),
        }
    }
    let Allocator { peak: reserved, peak_allocated: allocated, flushes, .. } = allocator;
    Reserved { reserved, allocated, flushes, out_of_memory }
}

/// Returns the bytes that the allocator holds after each event of a trace, on a card with more than enough memory.
pub(super) fn reserved_after_each(trace: &Trace, expandable: bool) -> Vec<u64> {
    let mut allocator = Allocator { expandable, ..Allocator::default() };
    let after = |event: &Event| {
        match *event {
            // Without a limit there is always room.
            Event::Made(storage) => _ = allocator.malloc(storage, trace.bytes(storage)),
            Event::Freed(storage) => allocator.free(storage),
            Event::Marked(..) | Event::Began(_) => {}
        }
        allocator.reserved
    };
    trace.events.iter().map(after).collect()
}

/// Returns the smallest capacity, in units of 2 MiB, with which a trace runs to its end.
pub fn smallest_capacity(trace: &Trace, expandable: bool) -> u64 {
    let free = replay(trace, expandable, None);
    let (mut least, mut most) = (free.allocated.min(free.reserved) / LARGE_GRAIN, free.reserved.div_ceil(LARGE_GRAIN));
    while least < most {
        let middle = least + (most - least) / 2;
        match replay(trace, expandable, Some(middle * LARGE_GRAIN)).out_of_memory {
            None => most = middle,
            Some(_) => least = middle + 1,
        }
    }
    most * LARGE_GRAIN
}

/// A range of memory of one segment.
#[derive(Clone, Copy, Default)]
struct Block {
    size: u64,
    address: u64,
    previous: Option<usize>,
    next: Option<usize>,
    is_free: bool,
}

/// The free blocks of a pool, by size and address.
#[derive(Default)]
struct Pool {
    free: BTreeSet<(u64, u64, usize)>,
    /// The end of the one expandable segment: an empty block after the last one.
    tail: Option<usize>,
}

#[derive(Default)]
struct Allocator {
    expandable: bool,
    capacity: Option<u64>,
    /// The small pool, and the large one.
    pools: [Pool; 2],
    blocks: Vec<Block>,
    used: HashMap<u32, (usize, usize)>,
    segments: u64,
    reserved: u64,
    peak: u64,
    allocated: u64,
    peak_allocated: u64,
    flushes: u64,
}

const SMALL_POOL: usize = 0;
const LARGE_POOL: usize = 1;

impl Allocator {
    fn insert(&mut self, pool: usize, index: usize) {
        self.blocks[index].is_free = true;
        let block = self.blocks[index];
        self.pools[pool].free.insert((block.size, block.address, index));
    }

    fn remove(&mut self, pool: usize, index: usize) {
        let block = self.blocks[index];
        self.pools[pool].free.remove(&(block.size, block.address, index));
        self.blocks[index].is_free = false;
    }

    fn unlink(&mut self, index: usize) {
        let Block { previous, next, .. } = self.blocks[index];
        if let Some(previous) = previous {
            self.blocks[previous].next = next;
        }
        if let Some(next) = next {
            self.blocks[next].previous = previous;
        }
    }

    fn push(&mut self, block: Block) -> usize {
        self.blocks.push(block);
        self.blocks.len() - 1
    }

    /// Returns an address of a new segment. Segments lie far apart.
    fn address(&mut self) -> u64 {
        self.segments += 1;
        self.segments << 40
    }

    /// Takes memory from the driver. `None` if it has not enough, even after free segments have gone back.
    fn grow(&mut self, bytes: u64) -> Option<()> {
        let has_room = |reserved: u64, capacity: Option<u64>| {
            capacity.is_none_or(|capacity| reserved.checked_add(bytes).is_some_and(|reserved| reserved <= capacity))
        };
        if !has_room(self.reserved, self.capacity) {
            self.flush();
            if !has_room(self.reserved, self.capacity) {
                return None;
            }
        }
        self.reserved = self.reserved.checked_add(bytes)?;
        self.peak = self.peak.max(self.reserved);
        Some(())
    }

    /// Gives wholly free segments back. Of an expandable one only the end goes.
    fn flush(&mut self) {
        self.flushes += 1;
        for pool in [SMALL_POOL, LARGE_POOL] {
            let free: Vec<usize> = self.pools[pool].free.iter().map(|&(.., index)| index).collect();
            for index in free {
                let Block { size, previous, next, .. } = self.blocks[index];
                if let Some(tail) = self.pools[pool].tail {
                    let unit = if pool == SMALL_POOL { SMALL_SEGMENT } else { LARGE_SEGMENT };
                    let whole = size / unit * unit;
                    if whole > 0 && next == Some(tail) {
                        self.remove(pool, index);
                        self.blocks[index].size -= whole;
                        self.blocks[tail].address -= whole;
                        self.reserved -= whole;
                        if whole == size { self.unlink(index) } else { self.insert(pool, index) }
                    }
                } else if previous.is_none() && next.is_none() {
                    self.remove(pool, index);
                    self.reserved -= size;
                }
            }
        }
    }

    /// Returns the best free block: the smallest that is large enough, then the lowest. Of an expandable segment the last block comes last.
    fn fit(&self, pool: usize, size: u64) -> Option<usize> {
        let tail = self.pools[pool].tail;
        let is_last = |index: usize| tail.is_some() && self.blocks[index].next == tail;
        let mut fitting = self.pools[pool].free.range((size, 0, 0)..).map(|&(.., index)| index);
        let first = fitting.next()?;
        Some(if is_last(first) { fitting.next().unwrap_or(first) } else { first })
    }

    /// Maps more of the expandable segment of a pool.
    fn extend(&mut self, pool: usize, size: u64) -> Option<usize> {
        let unit = if pool == SMALL_POOL { SMALL_SEGMENT } else { LARGE_SEGMENT };
        // The free block at the end of what is mapped.
        let last_free = |allocator: &Allocator| {
            let last = allocator.blocks[allocator.pools[pool].tail?].previous?;
            allocator.blocks[last].is_free.then_some(last)
        };
        let free = last_free(self).map_or(0, |last| self.blocks[last].size);
        let mut more = (size - free.min(size)).div_ceil(unit).saturating_mul(unit);
        let before = self.flushes;
        self.grow(more)?;
        // The free end may have gone back to make room.
        if self.flushes != before {
            let free = last_free(self).map_or(0, |last| self.blocks[last].size);
            let needed = (size - free.min(size)).div_ceil(unit).saturating_mul(unit);
            if needed > more {
                self.grow(needed - more)?;
                more = needed;
            }
        }
        let tail = match self.pools[pool].tail {
            Some(tail) => tail,
            None => {
                let address = self.address();
                let tail = self.push(Block { address, ..Block::default() });
                self.pools[pool].tail = Some(tail);
                tail
            }
        };
        let index = match last_free(self) {
            Some(last) => {
                self.remove(pool, last);
                self.blocks[last].size += more;
                last
            }
            None => {
                let Block { address, previous, .. } = self.blocks[tail];
                let index = self.push(Block { size: more, address, previous, next: Some(tail), is_free: false });
                if let Some(previous) = previous {
                    self.blocks[previous].next = Some(index);
                }
                self.blocks[tail].previous = Some(index);
                index
            }
        };
        self.blocks[tail].address = self.blocks[tail].address.saturating_add(more);
        Some(index)
    }

    /// Serves a request. `None` if there is no room.
    fn malloc(&mut self, storage: u32, bytes: u64) -> Option<()> {
        let size = bytes.max(1).div_ceil(BLOCK).saturating_mul(BLOCK);
        let pool = if size <= SMALL { SMALL_POOL } else { LARGE_POOL };
        let index = match self.fit(pool, size) {
            Some(index) => {
                self.remove(pool, index);
                index
            }
            None if self.expandable => self.extend(pool, size)?,
            None => {
                let segment = match pool {
                    SMALL_POOL => SMALL_SEGMENT,
                    _ if size < LARGE => LARGE_SEGMENT,
                    _ => size.div_ceil(LARGE_GRAIN).saturating_mul(LARGE_GRAIN),
                };
                self.grow(segment)?;
                let address = self.address();
                self.push(Block { size: segment, address, ..Block::default() })
            }
        };
        let rest = self.blocks[index].size - size;
        let is_split = if pool == SMALL_POOL || self.expandable { rest >= BLOCK } else { rest > SMALL };
        if is_split {
            let Block { address, next, .. } = self.blocks[index];
            let address = address.saturating_add(size);
            let remainder = self.push(Block { size: rest, address, previous: Some(index), next, is_free: false });
            if let Some(next) = next {
                self.blocks[next].previous = Some(remainder);
            }
            self.blocks[index].next = Some(remainder);
            self.blocks[index].size = size;
            self.insert(pool, remainder);
        }
        self.used.insert(storage, (index, pool));
        self.allocated = self.allocated.saturating_add(self.blocks[index].size);
        self.peak_allocated = self.peak_allocated.max(self.allocated);
        Some(())
    }

    /// Takes a block back, and joins it with its free neighbours.
    fn free(&mut self, storage: u32) {
        let Some((index, pool)) = self.used.remove(&storage) else { return };
        self.allocated -= self.blocks[index].size;
        let Block { previous, next, .. } = self.blocks[index];
        for neighbour in
            [previous, next].into_iter().flatten().filter(|&other| self.blocks[other].is_free).collect::<Vec<_>>()
        {
            self.remove(pool, neighbour);
            let other = self.blocks[neighbour];
            self.blocks[index].address = self.blocks[index].address.min(other.address);
            self.blocks[index].size = self.blocks[index].size.saturating_add(other.size);
            self.unlink(neighbour);
        }
        self.insert(pool, index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: u64 = 1 << 20;

    fn held(sizes: &[u64], expandable: bool) -> u64 {
        replay_changes((0..).zip(sizes.iter().copied().map(Some)), expandable, None).reserved
    }

    fn all(changes: &[(u32, Option<u64>)], expandable: bool, capacity: Option<u64>) -> Reserved {
        replay_changes(changes.iter().copied(), expandable, capacity)
    }

    #[test]
    fn segments_have_the_published_sizes() {
        let one = all(&[(0, Some(4))], false, None);
        assert_eq!(one, Reserved { reserved: 2 * M, allocated: 512, flushes: 0, out_of_memory: None });
        assert_eq!([held(&[512; 4096], false), held(&[512; 4097], false)], [2 * M, 4 * M]);
        assert_eq!([held(&[M], false), held(&[M, M], false), held(&[M, M, 1], false)], [2 * M, 2 * M, 4 * M]);
        assert_eq!([held(&[M + 512], false), held(&[10 * M - 512; 2], false)], [20 * M, 20 * M]);
        assert_eq!([held(&[10 * M], false), held(&[11 * M], false)], [10 * M, 12 * M]);
        assert_eq!([held(&[10 * M - 512; 3], true), held(&[30 * M], true)], [40 * M, 40 * M]);
    }

    #[test]
    fn free_blocks_serve_what_fits_into_them() {
        // A freed block of 40 MiB serves 30 and 10.
        let parts = [(0, Some(40 * M)), (0, None), (1, Some(30 * M)), (2, Some(10 * M))];
        assert_eq!(all(&parts, false, None).reserved, 40 * M);
        // A remainder of 1 MiB or less is not split off, and counts as allocated.
        let unsplit = [(0, Some(12 * M)), (0, None), (1, Some(11 * M + 512))];
        assert_eq!(all(&unsplit, false, None).allocated, 12 * M);
    }

    #[test]
    fn segments_that_are_apart_do_not_join() {
        let apart = [(0, Some(20 * M)), (1, Some(20 * M)), (0, None), (1, None), (2, Some(30 * M))];
        assert_eq!(all(&apart, false, None).reserved, 70 * M);
        assert_eq!(all(&apart, true, None).reserved, 40 * M);
        let flushed = Reserved { reserved: 40 * M, allocated: 40 * M, flushes: 1, out_of_memory: None };
        assert_eq!(all(&apart, false, Some(45 * M)), flushed);
        assert_eq!(all(&apart, false, Some(29 * M)).out_of_memory, Some(20 * M));
    }
}
