//! Counter-based random numbers: the same draw from the same coordinates, on every backend, in any order.
//!
//! Philox 4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). With it dropout
//! saves nothing: the backward pass draws the numbers of the forward pass again.

/// Returns four random words for a counter under a key.
#[inline(always)]
pub fn philox(mut counter: [u32; 4], seed: u64) -> [u32; 4] {
    let mut key = [seed as u32, (seed >> 32) as u32];
    for _ in 0..10 {
        let low = u64::from(counter[0]) * 0xD251_1F53;
        let high = u64::from(counter[2]) * 0xCD9E_8D57;
        counter = [
            (high >> 32) as u32 ^ counter[1] ^ key[0],
            high as u32,
            (low >> 32) as u32 ^ counter[3] ^ key[1],
            low as u32,
        ];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

/// Returns the random words for elements `4 * block` to `4 * block + 3` of a layer that draws. `row` is the layer's row
/// and `step` the number of the training step. An element is dropped if its word is below [`threshold`].
#[inline(always)]
pub fn drop_words(seed: u64, step: u64, row: u32, block: u64) -> [u32; 4] {
    // The step's high bits share a word with the row: networks have fewer than 2^24 rows, and trainings fewer than 2^40
    // steps.
    let stream = row ^ (((step >> 32) as u32) << 24);
    philox([block as u32, (block >> 32) as u32, stream, step as u32], seed)
}

/// Returns the random words for elements `first` to `first + 3`, for any `first`: see [`drop_words`].
#[inline(always)]
pub fn drop_words_from(seed: u64, step: u64, row: u32, first: u64) -> [u32; 4] {
    let (block, shift) = (first / 4, (first % 4) as usize);
    let own = drop_words(seed, step, row, block);
    if shift == 0 {
        return own;
    }
    let next = drop_words(seed, step, row, block + 1);
    core::array::from_fn(|e| if e + shift < 4 { own[e + shift] } else { next[e + shift - 4] })
}

/// Returns the random word for element `index`: see [`drop_words`].
#[inline]
pub fn drop_word(seed: u64, step: u64, row: u32, index: u64) -> u32 {
    drop_words(seed, step, row, index / 4)[(index % 4) as usize]
}

/// Returns the number below which a share `p` of all words is.
pub fn threshold(p: f64) -> u32 {
    (p * 4_294_967_296.0) as u32
}

/// A stream of random numbers that initialises one tensor.
#[derive(Clone, Debug)]
pub struct Stream {
    seed: u64,
    tensor: u32,
    next: u64,
}

impl Stream {
    /// Returns the stream of tensor number `tensor`.
    pub fn new(seed: u64, tensor: u32) -> Stream {
        Stream { seed, tensor, next: 0 }
    }

    fn words(&mut self) -> [u32; 4] {
        let block = self.next;
        self.next += 1;
        philox([block as u32, (block >> 32) as u32, self.tensor, u32::MAX], self.seed)
    }

    /// Draws a number uniform on `[0, 1)`, with 53 bits.
    pub fn uniform(&mut self) -> f64 {
        let [low, high, ..] = self.words();
        ((u64::from(high) << 32 | u64::from(low)) >> 11) as f64 / 9_007_199_254_740_992.0
    }

    /// Draws a normal number of mean 0 and deviation 1, by Marsaglia's polar method.
    pub fn normal(&mut self) -> f64 {
        loop {
            let (x, y) = (2.0 * self.uniform() - 1.0, 2.0 * self.uniform() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                return x * sqrt(-2.0 * ln(square) / square);
            }
        }
    }
}

/// Returns the natural logarithm of a positive normal number: the exponent's share plus `2 * atanh` of the fraction's.
pub(crate) fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i64 - 1023;
    let fraction = f64::from_bits(bits & 0x000f_ffff_ffff_ffff | 0x3ff0_0000_0000_0000);
    let z = (fraction - 1.0) / (fraction + 1.0);
    let square = z * z;
    let mut term = z;
    let mut sum = 0.0;
    for odd in (1..40).step_by(2) {
        sum += term / odd as f64;
        term *= square;
    }
    exponent as f64 * core::f64::consts::LN_2 + 2.0 * sum
}

/// Returns `e^x` for `x` from -700 to 700: a power of two, times Taylor's series of the rest.
pub(crate) fn exp(x: f64) -> f64 {
    let x = x.clamp(-700.0, 700.0);
    let scaled = x * core::f64::consts::LOG2_E;
    let power = (if scaled < 0.0 { scaled - 0.5 } else { scaled + 0.5 }) as i64;
    let rest = x - power as f64 * core::f64::consts::LN_2;
    let (mut term, mut sum) = (1.0, 1.0);
    for n in 1..20 {
        term *= rest / f64::from(n);
        sum += term;
    }
    sum * f64::from_bits(((power + 1023) as u64) << 52)
}

/// Returns the cosine of `pi * x` for `x` from 0 to 1, by Taylor's series of at most a quarter of a turn.
pub(crate) fn cos_of_pi(x: f64) -> f64 {
    let (x, sign) = if x > 0.5 { (1.0 - x, -1.0) } else { (x, 1.0) };
    let square = -(core::f64::consts::PI * x) * (core::f64::consts::PI * x);
    let (mut term, mut sum) = (1.0, 1.0);
    for n in 1..14 {
        term *= square / f64::from((2 * n - 1) * (2 * n));
        sum += term;
    }
    sign * sum
}

/// Returns the square root, by Newton's iteration.
pub(crate) fn sqrt(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    // Halving the exponent gives a start within a factor of two.
    let mut root = f64::from_bits((x.to_bits() >> 1) + (0x3ff0_0000_0000_0000 >> 1));
    for _ in 0..6 {
        root = 0.5 * (root + x / root);
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers published with the reference implementation (Random123, `kat_vectors`).
    #[test]
    fn philox_gives_the_published_words() {
        assert_eq!(philox([0; 4], 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u32::MAX; 4], u64::MAX), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let digits = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        assert_eq!(philox(digits, 0x299f_31d0_a409_3822), [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }

    #[test]
    fn draws_have_the_moments_they_should() {
        let mut stream = Stream::new(7, 3);
        let count = 100_000;
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..count {
            let x = stream.normal();
            sum += x;
            squares += x * x;
        }
        let mean = sum / f64::from(count);
        assert!(mean.abs() < 0.01, "mean {mean}");
        assert!((squares / f64::from(count) - 1.0).abs() < 0.02);
        let dropped = (0..100_000).filter(|&i| drop_word(1, 5, 2, i) < threshold(0.3)).count();
        assert!((29_400..30_600).contains(&dropped), "{dropped}");
    }

    #[test]
    fn elementary_functions_agree_with_known_values() {
        assert!((ln(core::f64::consts::E) - 1.0).abs() < 1e-14);
        assert!((ln(1e-9) + 20.723265836946414).abs() < 1e-12);
        for (x, expected) in
            [(0.0, 1.0), (1.0, core::f64::consts::E), (-6.9, 1.0077854290485105e-3), (300.0, 1.9424263952412558e130)]
        {
            assert!((exp(x) / expected - 1.0).abs() < 1e-13, "{x}");
        }
        let root = sqrt(0.5);
        for (x, expected) in [(0.0, 1.0), (0.25, root), (1.0 / 3.0, 0.5), (0.5, 0.0), (0.75, -root), (1.0, -1.0)] {
            assert!((cos_of_pi(x) - expected).abs() < 1e-15, "{x}");
        }
        for x in [1e-300, 1e-6, 0.5, 2.0, 12345.678, 1e300] {
            let root = sqrt(x);
            assert!((root * root / x - 1.0).abs() < 1e-14, "{x}");
        }
    }
}
