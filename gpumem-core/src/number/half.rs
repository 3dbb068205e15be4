//! Conversion of numbers when they enter or leave the arena.

use crate::number::{Format, Half};
use alloc::vec::Vec;

impl Format {
    /// Writes numbers as elements of this format, in little-endian order, rounded to nearest in 16 bits. It is one pass without branches, so
    /// that compilers vectorise it.
    pub(crate) fn encode(self, numbers: &[f32], out: &mut [u8]) {
        match self {
            Format::F32 | Format::U32 => put_words(numbers, out, f32::to_le_bytes),
            Format::U8 => put_words(numbers, out, |x| [x as u8]),
            Format::Bf16 => put_words(numbers, out, |x| narrow_bf16(x).to_le_bytes()),
            Format::F16 => put_words(numbers, out, |x| narrow_f16(x).to_le_bytes()),
        }
    }

    /// Reads elements of this format as numbers.
    pub fn decode(self, bytes: &[u8]) -> Vec<f32> {
        let halves =
            |half: Half| bytes.as_chunks().0.iter().map(|&word| half.widen(u16::from_le_bytes(word))).collect();
        match self {
            Format::U8 => bytes.iter().copied().map(f32::from).collect(),
            Format::F32 | Format::U32 => bytes.as_chunks().0.iter().map(|&word| f32::from_le_bytes(word)).collect(),
            Format::Bf16 => halves(Half::Bf16),
            Format::F16 => halves(Half::F16),
        }
    }
}

/// Writes the bytes of each element, as far as `out` has room.
pub(crate) fn put_words<T: Copy, const N: usize>(elements: &[T], out: &mut [u8], bytes: impl Fn(T) -> [u8; N]) {
    for (word, &element) in out.as_chunks_mut().0.iter_mut().zip(elements) {
        *word = bytes(element);
    }
}

impl Half {
    /// Returns the bits of the nearest 16-bit float, ties to even. Numbers that are too large become infinite, NaN stays NaN.
    pub fn narrow(self, x: f32) -> u16 {
        match self {
            Half::Bf16 => narrow_bf16(x),
            Half::F16 => narrow_f16(x),
        }
    }

    /// Returns the f32 of the same value.
    pub fn widen(self, bits: u16) -> f32 {
        match self {
            Half::Bf16 => f32::from_bits(u32::from(bits) << 16),
            Half::F16 => widen_f16(bits),
        }
    }
}

// Both functions compute every case and then select one, so that there are no branches.

#[inline(always)]
fn narrow_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    let quiet = bits >> 16 | 0x40;
    (if bits & 0x7fff_ffff > 0x7f80_0000 { quiet } else { rounded }) as u16
}

#[inline(always)]
fn narrow_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let (sign, magnitude) = (bits >> 16 & 0x8000, bits & 0x7fff_ffff);
    let rounded = magnitude.wrapping_add(0xfff + (magnitude >> 13 & 1)).wrapping_sub(0x3800_0000) >> 13;
    // Below 2^-14 numbers are multiples of 2^-24, which is the distance of f32 numbers around 0.5.
    let small = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let finite = if magnitude < 0x3880_0000 { small } else { rounded };
    // 65,520 is half way between the largest number and the next one, if there were one.
    let number = if magnitude < 0x477f_f000 { finite } else { 0x7c00 };
    (sign | if magnitude > 0x7f80_0000 { 0x7e00 } else { number }) as u16
}

fn widen_f16(bits: u16) -> f32 {
    let (sign, exponent, fraction) =
        (u32::from(bits & 0x8000) << 16, u32::from(bits >> 10 & 31), u32::from(bits & 1023));
    let magnitude = match exponent {
        0 => (fraction as f32 * 5.960_464_5e-8).to_bits(),
        31 => 0x7f80_0000 | fraction << 13,
        _ => (exponent + 112) << 23 | fraction << 13,
    };
    f32::from_bits(sign | magnitude)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const BOTH: [Half; 2] = [Half::Bf16, Half::F16];

    #[test]
    fn every_16_bit_number_comes_back() {
        for half in BOTH {
            for bits in 0..=u16::MAX {
                let wide = half.widen(bits);
                if wide.is_nan() {
                    assert!(half.widen(half.narrow(wide)).is_nan(), "{half:?} {bits:#x}");
                } else {
                    assert_eq!(half.narrow(wide), bits, "{half:?} {bits:#x}");
                }
            }
        }
    }

    /// Numbers between two neighbours round to the nearer one, and to the even one in the middle.
    #[test]
    fn numbers_in_between_are_rounded_to_the_nearest() {
        for half in BOTH {
            let infinity = half.narrow(f32::INFINITY);
            for bits in 0..infinity - 1 {
                let (low, high) = (f64::from(half.widen(bits)), f64::from(half.widen(bits + 1)));
                let middle = ((low + high) / 2.0) as f32;
                let even = bits + (bits & 1);
                assert_eq!(half.narrow(middle), even, "{half:?} {bits:#x}");
                assert_eq!(half.narrow(-middle), even | 0x8000, "{half:?} {bits:#x}");
                assert_eq!(half.narrow(f32::from_bits(middle.to_bits() + 1)), bits + 1, "{half:?} {bits:#x}");
                assert_eq!(half.narrow(f32::from_bits(middle.to_bits() - 1)), bits, "{half:?} {bits:#x}");
            }
        }
        assert_eq!(Half::F16.widen(Half::F16.narrow(65_519.9)), 65_504.0);
        assert_eq!(Half::F16.widen(Half::F16.narrow(65_520.0)), f32::INFINITY);
        assert_eq!(Half::F16.widen(1), 2f32.powi(-24));
    }

    #[test]
    fn numbers_come_back_from_bytes() {
        let values = [1.0f32, -2.5, 0.0, 384.0];
        for format in [Format::F32, Format::Bf16, Format::F16] {
            let mut bytes = vec![0; values.len() * format.bytes() as usize];
            format.encode(&values, &mut bytes);
            assert_eq!(format.decode(&bytes), values, "{format:?}");
            // Elements without room are left out.
            let end = bytes.len() - 1;
            format.encode(&[7.0; 4], &mut bytes[..end]);
            assert_eq!(format.decode(&bytes), [7.0, 7.0, 7.0, 384.0], "{format:?}");
        }
        assert!(Format::Bf16.decode(&[]).is_empty());
    }

    #[test]
    fn what_is_no_number_stays_none() {
        for bits in [0x7f80_0001, 0x7fff_ffff, 0xff80_0001, 0xffff_ffff, 0x7fc0_0000] {
            for half in BOTH {
                assert!(half.widen(half.narrow(f32::from_bits(bits))).is_nan(), "{half:?} {bits:#x}");
            }
        }
    }
}
