//! Numbers of 8 bits for optimizer states: the dynamic quantisation map, for blocks of elements that share a scale.
//!
//! T. Dettmers, M. Lewis, S. Shleifer and L. Zettlemoyer, "8-bit Optimizers via Block-wise Quantization" (ICLR 2022). An element is the
//! entry of a map times the scale of its block, which is the largest magnitude there. Entries are dense where they are large, and
//! reach over seven decades: the share of a block's largest element that is 10^-k has as many digits as k leaves bits for.

/// Elements of a block: consecutive ones of one tensor, in the order that its shape is written in. The last block may have fewer.
pub const BLOCK: u64 = 256;

/// Elements from which on a tensor is kept as codes. Of a smaller one little can be saved, and biases and scales are sensitive.
pub const LEAST: u64 = 4096;

/// Entries of a map, one for each code.
const ENTRIES: usize = 256;
/// Decades below 1 that a map has, and 10 to the power of each, the lowest first.
const DECADES: [f64; 7] = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0];

/// A map from codes to numbers from -1 or 0 to 1, ascending.
#[derive(Clone, Debug, PartialEq)]
pub struct DynamicMap {
    entries: [f32; ENTRIES],
    /// From where on it is the next entry that an element has: half way between the two.
    bounds: [f32; ENTRIES - 1],
}

impl DynamicMap {
    /// For numbers of both signs: 0, 1, and in the decade below `10^-k` the middles of `2^(6 - k)` equal parts with either sign.
    pub const SIGNED: &DynamicMap = &DynamicMap::new(true);

    /// For numbers that are 0 or more: the same with twice as many parts. What is above 0 never becomes 0: a mean of squares is what another
    /// mean is divided by, and where it were lost that one would be divided by `eps` alone. bitsandbytes and torchao let it become 0.
    pub const UNSIGNED: &DynamicMap = &DynamicMap::new(false);

    /// The smallest number above 0.
    const LEAST_SHARE: f32 = f32::from_bits(1);

    const fn new(is_signed: bool) -> DynamicMap {
        let mut entries = [0.0; ENTRIES];
        // Where 0 is: below it lie the negative ones.
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

    /// The number of each code.
    pub const fn entries(&self) -> &[f32; ENTRIES] {
        &self.entries
    }

    /// The number of a code, of which an element is its block's scale times as much.
    #[inline(always)]
    pub fn decode(&self, code: u8) -> f32 {
        self.entries[usize::from(code)]
    }

    /// The code of the entry that is nearest to an element's share of its block's scale; half way between two the larger one. What is
    /// no number, as a share of a block of zeros is, has code 0: times that scale it is what it was.
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

/// The scale of a block: the largest magnitude in it. If one element is no number, none of them is.
#[inline(always)]
pub fn scale(block: &[f32]) -> f32 {
    // Of numbers without a sign the bits are in order, and NaN is above all.
    f32::from_bits(block.iter().fold(0, |largest, x| largest.max(x.to_bits() & !(1 << 31))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries as `create_dynamic_map` of bitsandbytes 0.45 and torchao 0.18 has them, to the digits of f32: the ends of the map, around 0, and
    /// around the step from one decade to the next.
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

    /// The nearest of all entries, for shares of both signs and all magnitudes.
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
                // Of the map without a sign, the lowest entry in place of 0.
                let is_lifted = map == DynamicMap::UNSIGNED && share > 0.0 && share < 1.7e-7;
                assert!(is_lifted || found <= nearest + 1e-7 * share.abs(), "{share}: {found} is not {nearest}");
            }
        }
    }

    /// How far an element is from what its code says, relative to itself, in the decade below `10^-k` with so many parts. It is most
    /// half way between the first two entries of the decade, or between its first one and the last of the decade below, which has half as
    /// many parts. Below the first entry of the lowest decade is 0, which the map without a sign does not round to: its first entry is
    /// 3.25 times the lowest share that is looked at.
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
        // The share of a block of zeros.
        assert_eq!(DynamicMap::SIGNED.encode(f32::NAN), 0);
    }
}
