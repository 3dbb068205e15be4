//! Random numbers that depend on seed, epoch and sample alone.

use gpumem_core::number::random::philox;

/// A stream of random numbers for one sample of one epoch.
///
/// The stream is a function of (seed, epoch, index): it depends neither on the worker that draws nor on earlier draws, so that neither the
/// number of workers nor a resumed training changes a sample. The generator is Philox 4x32-10.
#[derive(Clone, Debug)]
pub struct Draw {
    seed: u64,
    epoch: u64,
    index: u64,
    block: u32,
    words: [u32; 4],
    used: usize,
}

/// The index of the stream that shuffles an epoch. No data set has so many samples.
const SHUFFLE: u64 = u64::MAX;

impl Draw {
    /// Returns the stream of a sample.
    pub fn new(seed: u64, epoch: u64, index: usize) -> Draw {
        Draw::stream(seed, epoch, index as u64)
    }

    /// Returns the stream of an epoch's order.
    pub(crate) fn shuffle(seed: u64, epoch: u64) -> Draw {
        Draw::stream(seed, epoch, SHUFFLE)
    }

    fn stream(seed: u64, epoch: u64, index: u64) -> Draw {
        // An epoch above 2^32 changes the key, since the counter has no word for it.
        let seed = seed ^ (epoch >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Draw { seed, epoch, index, block: 0, words: [0; 4], used: 4 }
    }

    /// Returns 32 random bits.
    pub fn word(&mut self) -> u32 {
        if self.used == self.words.len() {
            let counter = [self.block, self.epoch as u32, self.index as u32, (self.index >> 32) as u32];
            self.words = philox(counter, self.seed);
            self.block = self.block.wrapping_add(1);
            self.used = 0;
        }
        self.used += 1;
        self.words[self.used - 1]
    }

    /// Returns a number on `[0, 1)`, with 53 random bits.
    pub fn uniform(&mut self) -> f64 {
        let bits = u64::from(self.word()) << 32 | u64::from(self.word());
        (bits >> 11) as f64 / 9_007_199_254_740_992.0
    }

    /// Returns a number on `[low, high)`.
    pub fn range(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// Returns a whole number below `limit`, all with equal probability; 0 if `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        let limit = limit as u64;
        // Words beyond the largest multiple of the limit would favour small numbers.
        let excess = if limit == 0 { 0 } else { (u64::MAX % limit + 1) % limit };
        loop {
            let bits = u64::from(self.word()) << 32 | u64::from(self.word());
            if bits <= u64::MAX - excess {
                return bits.checked_rem(limit).unwrap_or(0) as usize;
            }
        }
    }

    /// Returns true with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        self.uniform() < p
    }
}

#[cfg(test)]
mod tests {
    use super::Draw;

    #[test]
    fn streams_differ_by_seed_epoch_and_index_and_by_nothing_else() {
        let words = |mut draw: Draw| [draw.word(), draw.word(), draw.word(), draw.word(), draw.word()];
        let base = words(Draw::new(1, 2, 3));
        assert_eq!(base, words(Draw::new(1, 2, 3)));
        for other in [Draw::new(2, 2, 3), Draw::new(1, 3, 3), Draw::new(1, 2, 4), Draw::new(1, 2 + (1 << 32), 3)] {
            assert_ne!(base, words(other));
        }
    }

    #[test]
    fn numbers_are_spread_evenly() {
        let mut draw = Draw::new(7, 0, 0);
        let mut counts = [0; 5];
        (0..5000).for_each(|_| counts[draw.below(5)] += 1);
        assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
        let mean = (0..1000).map(|_| draw.uniform()).sum::<f64>() / 1000.0;
        assert!((0.46..0.54).contains(&mean), "{mean}");
        assert_eq!((draw.below(0), draw.below(1)), (0, 0));
    }
}
