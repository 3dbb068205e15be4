//! Numbers on their way into the arena and out of it.

use crate::number::{Format, Half};
use alloc::vec::Vec;

impl Format {
    /// Turns 32-bit words, little end first, into elements: f32 values into those of a narrower format.
    pub(crate) fn encode(self, bytes: &mut Vec<u8>) {
        match self {
            Format::F32 | Format::U32 => {}
            Format::Bf16 => Half::Bf16.narrow_bytes(bytes),
            Format::F16 => Half::F16.narrow_bytes(bytes),
        }
    }

    /// Turns elements into 32-bit words, little end first.
    pub(crate) fn decode(self, bytes: &mut Vec<u8>) {
        match self {
            Format::F32 | Format::U32 => {}
            Format::Bf16 => Half::Bf16.widen_bytes(bytes),
            Format::F16 => Half::F16.widen_bytes(bytes),
        }
    }
}

impl Half {
    /// The nearest 16-bit float, ties to even, as its bits. What is too large becomes infinite, NaN stays NaN.
    pub fn narrow(self, x: f32) -> u16 {
        let bits = x.to_bits();
        match self {
            Half::Bf16 if x.is_nan() => (bits >> 16) as u16 | 0x40,
            Half::Bf16 => ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16,
            Half::F16 => narrow_f16(x),
        }
    }

    /// The f32 of the same value.
    pub fn widen(self, bits: u16) -> f32 {
        match self {
            Half::Bf16 => f32::from_bits(u32::from(bits) << 16),
            Half::F16 => widen_f16(bits),
        }
    }

    /// Turns f32 values, little end first, into 16-bit ones.
    fn narrow_bytes(self, bytes: &mut Vec<u8>) {
        let count = bytes.len() / 4;
        for index in 0..count {
            let word = [0, 1, 2, 3].map(|byte| bytes[4 * index + byte]);
            let half = self.narrow(f32::from_le_bytes(word)).to_le_bytes();
            bytes[2 * index..2 * index + 2].copy_from_slice(&half);
        }
        bytes.truncate(2 * count);
    }

    /// Turns 16-bit values, little end first, into f32 ones.
    fn widen_bytes(self, bytes: &mut Vec<u8>) {
        let count = bytes.len() / 2;
        bytes.resize(4 * count, 0);
        for index in (0..count).rev() {
            let half = u16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]);
            bytes[4 * index..4 * index + 4].copy_from_slice(&self.widen(half).to_le_bytes());
        }
    }
}

fn narrow_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let (sign, magnitude) = ((bits >> 16 & 0x8000) as u16, bits & 0x7fff_ffff);
    // 65,520 lies between the largest number and what would be the next.
    if magnitude > 0x7f80_0000 {
        return sign | 0x7e00;
    }
    if magnitude >= 0x477f_f000 {
        return sign | 0x7c00;
    }
    if magnitude >= 0x3880_0000 {
        let rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
        return sign | ((rounded - 0x3800_0000) >> 13) as u16;
    }
    // Below 2^-14 numbers are multiples of 2^-24, which is the distance of f32 numbers around 0.5.
    let shifted = f32::from_bits(magnitude) + 0.5;
    sign | (shifted.to_bits() - 0.5f32.to_bits()) as u16
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

    /// Between two neighbours: the nearer one, and the even one in the middle.
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
    fn bytes_are_turned_in_place() {
        let values = [1.0f32, -2.5, 0.0, 384.0];
        let mut bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let whole = bytes.clone();
        for half in BOTH {
            half.narrow_bytes(&mut bytes);
            assert_eq!(bytes.len(), 8);
            half.widen_bytes(&mut bytes);
            assert_eq!(bytes, whole);
        }
        let mut nothing = vec![];
        Half::Bf16.widen_bytes(&mut nothing);
        assert!(nothing.is_empty());
    }
}
