//! Optimizer state in 8 bits: the dynamic quantisation map, for blocks of elements that share a scale.
//!
//! Source: T. Dettmers, M. Lewis, S. Shleifer and L. Zettlemoyer, "8-bit Optimizers via Block-wise Quantization" (ICLR 2022). An element is
//! the entry of a map times the scale of its block, which is the largest magnitude there. Entries are dense near 1 and span seven
//! decades: a fraction near 10^-k of a block's largest element has the precision that the bits not used for k allow.

/// Elements of a block: consecutive elements of one tensor, in the order of its shape. The last block may have fewer.
pub const BLOCK: u64 = 256;

/// Least elements of a tensor that is quantized. A smaller one saves little, and biases and scales are sensitive.
pub const LEAST: u64 = 4096;

/// Entries of a map, one for each code.
const ENTRIES: usize = 256;
/// The decades below 1 in a map, as powers of 10, the lowest first.
const DECADES: [f64; 7] = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0];

/// A map from codes to numbers from -1 or 0 to 1, in ascending order.
#[derive(Clone, Debug, PartialEq)]
pub struct DynamicMap {
    entries: [f32; ENTRIES],
    /// The midpoints of neighbouring entries. From each of them on an element gets the next entry.
    bounds: [f32; ENTRIES - 1],
}

impl DynamicMap {
    /// The map for numbers of both signs. It has 0, 1, and in the decade below `10^-k` the middles of `2^(6 - k)` equal parts with either sign.
    pub const SIGNED: &DynamicMap = &DynamicMap::new(true);

    /// The map for numbers that are 0 or more, with twice as many parts as [`DynamicMap::SIGNED`]. A number above 0 never becomes 0. Adam divides
    /// its first moment by the root of the second. If the second became 0, the divisor would be `eps` alone. In bitsandbytes and torchao it may.
    pub const UNSIGNED: &DynamicMap = &DynamicMap::new(false);

    /// The smallest number above 0.
    const LEAST_SHARE: f32 = f32::from_bits(1);

    const fn new(is_signed: bool) -> DynamicMap {
        let mut entries = [0.0; ENTRIES];
        // Index of the entry 0. Negative entries are below it.
        let zero = if is_signed { ENTRIES / 2 - 1 } else { 0 };
        let (mut at, mut decade) = (zero + 1, 0);
        while decade < DECADES.len() {
            let parts = 1 << (decade + if is_signed { 0 } else { 1 });
            let mut part = 0;
            while part < parts {
                let middle = 0.1 + 0.9 * (2 * part + 1) as f64 / (2 * parts) as f64;
                entries[at] = (DECADES[decade] * middle) as f32;
                if is_signed {
                    entries[2 * zero - at] = -entries[at];
                }
                at += 1;
                part += 1;
            }
            decade += 1;
        }
        entries[at] = 1.0;
        let mut bounds = [0.0; ENTRIES - 1];
        let mut i = 0;
        while i < bounds.len() {
            bounds[i] = (entries[i] + entries[i + 1]) * 0.5;
            i += 1;
        }
        if !is_signed {
            bounds[0] = DynamicMap::LEAST_SHARE;
        }
        DynamicMap { entries, bounds }
    }

    /// Returns the number of each code.
    pub const fn entries(&self) -> &[f32; ENTRIES] {
        &self.entries
    }

    /// Returns the number of a code. An element is this number times its block's scale.
    #[inline(always)]
    pub fn decode(&self, code: u8) -> f32 {
        self.entries[usize::from(code)]
    }

    /// Returns the code of the entry nearest to an element, which is given as a fraction of its block's scale. Half way between two entries, it
    /// is the larger one. NaN, as in a block of zeros, gets code 0: times the scale it is again what it was.
    #[inline(always)]
    pub fn encode(&self, share: f32) -> u8 {
        let (mut code, mut step) = (0, ENTRIES / 2);
        while step > 0 {
            code += step * usize::from(share >= self.bounds[code + step - 1]);
            step /= 2;
        }
        code as u8
    }
}

/// Returns the scale of a block: the largest magnitude in it, or NaN if one element is NaN.
#[inline(always)]
pub fn scale(block: &[f32]) -> f32 {
    // Without their sign, the bits of floats are ordered like the floats, and NaN is above all.
    f32::from_bits(block.iter().fold(0, |largest, x| largest.max(x.to_bits() & !(1 << 31))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries of `create_dynamic_map` in bitsandbytes 0.45 and torchao 0.18, to the digits of f32. They are at the ends of the map,
    /// around 0, and between two decades.
    #[test]
    fn maps_are_those_of_others() {
        for (map, at, expected) in [
            (DynamicMap::SIGNED, 0, [-0.99296874, -0.9789063, -0.96484375]),
            (DynamicMap::SIGNED, 126, [-5.5e-7, 0.0, 5.5e-7]),
            (DynamicMap::SIGNED, 129, [3.25e-6, 7.75e-6, 2.125e-5]),
            (DynamicMap::SIGNED, 253, [0.9789063, 0.99296874, 1.0]),
            (DynamicMap::UNSIGNED, 0, [0.0, 3.25e-7, 7.75e-7]),
            (DynamicMap::UNSIGNED, 125, [0.09789062, 0.09929688, 0.10351562]),
            (DynamicMap::UNSIGNED, 253, [0.98945314, 0.9964844, 1.0]),
        ] {
            for (found, expected) in map.entries()[at..].iter().zip(expected) {
                assert!((found - expected).abs() <= 1.5e-7 * f32::abs(expected), "{at}: {found} is not {expected}");
            }
        }
    }

    #[test]
    fn entries_ascend_and_are_their_own_codes() {
        for map in [DynamicMap::SIGNED, DynamicMap::UNSIGNED] {
            assert!(map.entries().windows(2).all(|pair| pair[0] < pair[1]));
            assert!((0..=u8::MAX).all(|code| map.encode(map.decode(code)) == code));
        }
        let least = [DynamicMap::SIGNED, DynamicMap::UNSIGNED].map(|map| map.encode(f32::from_bits(1)));
        assert_eq!(least, [127, 1]);
        let of_zero = [DynamicMap::SIGNED, DynamicMap::UNSIGNED].map(|map| map.decode(map.encode(0.0)));
        assert_eq!(of_zero, [0.0; 2]);
    }

    /// Codes are those of the nearest entry, for fractions of both signs and all magnitudes.
    #[test]
    fn codes_are_of_the_nearest_entry() {
        let shares = (0..4000).flat_map(|i| {
            let share = f32::powi(0.99, i / 2) * (1.0 - (i % 7) as f32 * 1e-3);
            [share, -share]
        });
        for share in shares.chain([1.0, -1.0, 0.0, -0.0]) {
            for map in [DynamicMap::SIGNED, DynamicMap::UNSIGNED] {
                let nearest = map.entries().iter().map(|entry| (entry - share).abs()).fold(f32::MAX, f32::min);
                let found = (map.decode(map.encode(share)) - share).abs();
                // In the map without a sign, the lowest entry replaces 0.
                let is_lifted = map == DynamicMap::UNSIGNED && share > 0.0 && share < 1.7e-7;
                assert!(is_lifted || found <= nearest + 1e-7 * share.abs(), "{share}: {found} is not {nearest}");
            }
        }
    }

    /// The relative error of a coded element in the decade below `10^-k`. It is largest half way between the first two entries of the decade, or
    /// between its first entry and the last of the decade below, which has half as many parts. Below the first entry of the lowest decade is 0,
    /// to which the map without a sign does not round. Its first entry is 3.25 times the lowest fraction that is tested.
    #[test]
    fn relative_errors_by_magnitude() {
        for (map, doubled) in [(DynamicMap::SIGNED, 1.0), (DynamicMap::UNSIGNED, 2.0)] {
            for decade in 0..7 {
                let parts = doubled * f64::from(1 << (6 - decade));
                let most = match (decade, map == DynamicMap::SIGNED) {
                    (6, true) => 1.0,
                    (6, false) => 2.25,
                    _ => f64::max(4.5 / (parts + 9.0), 2.7 / (parts + 1.8)),
                };
                let mut worst: f64 = 0.0;
                for i in 0..10_000 {
                    let share = (f64::powi(0.1, decade) * (1.0 - 0.9 * f64::from(i) / 10_000.0)) as f32;
                    let found = map.decode(map.encode(share));
                    worst = worst.max(f64::from((found - share).abs() / share));
                }
                assert!((0.95..1.01).contains(&(worst / most)), "decade {decade}: {worst} of {most}");
            }
        }
        // The map with both signs has 1, but not -1.
        assert_eq!(DynamicMap::SIGNED.decode(DynamicMap::SIGNED.encode(-1.0)), -(1.0 - 0.45 / 64.0));
    }

    #[test]
    fn scales_are_the_largest_magnitude() {
        assert_eq!(scale(&[0.5, -2.0, 1.0]), 2.0);
        assert_eq!(scale(&[0.0, -0.0]).to_bits(), 0);
        assert!(scale(&[1.0, f32::NAN, f32::INFINITY]).is_nan());
        assert_eq!(scale(&[1.0, f32::NEG_INFINITY]), f32::INFINITY);
        // The fraction in a block of zeros.
        assert_eq!(DynamicMap::SIGNED.encode(f32::NAN), 0);
    }
}
