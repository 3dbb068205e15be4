//! Random numbers that depend only on a seed.

/// A generator of numbers: Steele, Lea and Flood's SplitMix64.
pub struct Numbers(u64);

impl Numbers {
    /// Returns the generator for the input with this number.
    pub fn of(seed: u64, number: u64) -> Numbers {
        let mut numbers = Numbers(seed);
        Numbers(numbers.next() ^ number.wrapping_mul(0xD605_BBB5_8C8A_BC43))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, or 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// Returns one of these.
    pub fn one<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}
