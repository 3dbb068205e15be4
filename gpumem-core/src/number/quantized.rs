//! Quantized weights of 8 or 4 bits: a code for each element, and a scale for each block.
//!
//! A block is a run of consecutive elements of one weight, in the order of its shape. The last block may have fewer. Its scale is the
//! largest magnitude in it. An element is the entry of a table, a number from -1 to 1, times that scale. So the largest element of a block
//! is exact, and quantizing a dequantized weight gives the same codes and scales: see [`Coding::quantize`].
//!
//! Scales may be quantized themselves: see [`double`].

use super::{double, dynamic_8bit};
use crate::program::encoding::wire_enum;
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

/// The quantisation of a weight that is not trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// A byte an element: integers from -127 to 127 in units of scale / 127, in blocks of 256. An element is off by at most
    /// 1/254 of its block's largest magnitude.
    Int8,
    /// Half a byte an element: NormalFloat of 4 bits in blocks of 64, of T. Dettmers, A. Pagnoni, A. Holtzman and L. Zettlemoyer,
    /// "QLoRA: Efficient Finetuning of Quantized LLMs" (arXiv:2305.14314), without quantising the scales. Its 16 entries are quantiles of
    /// the normal distribution, and one of them is 0. An element is off by at most 0.152 of its block's largest magnitude.
    Nf4,
    /// [`Coding::Nf4`] with the paper's double quantisation: scales are bytes, see [`double`].
    Nf4Double,
}
wire_enum!(Coding { Int8, Nf4, Nf4Double });

/// The entries of [`Coding::Nf4`]: those of appendix E of the paper, and of `bitsandbytes.functional.get_4bit_type("nf4")`.
pub const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// The two entries of each byte, so that a byte needs one lookup.
static NF4_PAIRS: [[f32; 2]; 256] = {
    let mut pairs = [[0.0; 2]; 256];
    let mut byte = 0;
    while byte < pairs.len() {
        pairs[byte] = [NF4[byte >> 4], NF4[byte & 15]];
        byte += 1;
    }
    pairs
};

/// Index of the entry 0.
const ZERO: u8 = 7;

/// The largest code of [`Coding::Int8`].
pub const MOST: f32 = 127.0;

impl Coding {
    /// All codings, the one with most bits first.
    pub const ALL: [Coding; 3] = [Coding::Int8, Coding::Nf4, Coding::Nf4Double];

    /// Returns the name, as written in a network.
    pub const fn name(self) -> &'static str {
        match self {
            Coding::Int8 => "Int8",
            Coding::Nf4 => "Nf4",
            Coding::Nf4Double => "Nf4Double",
        }
    }

    /// Returns the bits of a code.
    pub const fn bits(self) -> u64 {
        8 / self.packed()
    }

    /// Returns the number of elements whose codes share a byte.
    pub const fn packed(self) -> u64 {
        match self {
            Coding::Int8 => 1,
            Coding::Nf4 | Coding::Nf4Double => 2,
        }
    }

    /// Returns the elements of a block.
    pub const fn block(self) -> u64 {
        match self {
            Coding::Int8 => dynamic_8bit::BLOCK,
            Coding::Nf4 | Coding::Nf4Double => 64,
        }
    }

    /// True if scales are quantized themselves.
    pub const fn is_double(self) -> bool {
        matches!(self, Coding::Nf4Double)
    }

    /// Returns the length of the scales' tensor for so many elements: one f32 a block, or the words of [quantized scales](double::words).
    pub const fn scales(self, elements: u64) -> u64 {
        let blocks = elements.div_ceil(self.block());
        if self.is_double() { double::words(blocks) } else { blocks }
    }

    /// Returns the scale of a block, from the scales of the whole weight. `None` if there is no such block.
    #[inline(always)]
    fn scale_of(self, scales: &[f32], block: usize) -> Option<f32> {
        if self.is_double() { double::scale_of(scales, block) } else { scales.get(block).copied() }
    }

    /// Returns the bytes of a weight, scales included, or `None` if they exceed `u64`.
    pub fn bytes(self, shape: Shape) -> Option<u64> {
        let elements = shape.elements()?;
        elements.div_ceil(self.packed()).checked_add(self.scales(elements).checked_mul(4)?)
    }

    /// Returns the entry of a code, as a fraction of its block's scale.
    #[inline(always)]
    pub fn decode(self, code: u8) -> f32 {
        match self {
            Coding::Int8 => f32::from(code as i8) / MOST,
            Coding::Nf4 | Coding::Nf4Double => NF4[usize::from(code & 15)],
        }
    }

    /// Returns the code nearest to an element, which is given as a fraction of its block's scale. Half way between two codes, [`Coding::Int8`]
    /// takes the larger magnitude and the others the lower entry, as bitsandbytes does.
    pub fn encode(self, share: f32) -> u8 {
        match self {
            // The conversion truncates and saturates.
            Coding::Int8 => ((share * MOST + f32::copysign(0.5, share)) as i8).max(-127) as u8,
            Coding::Nf4 | Coding::Nf4Double => {
                let is_above = |pair: &&[f32; 2]| share > (pair[0] + pair[1]) * 0.5;
                NF4.array_windows::<2>().take_while(is_above).count() as u8
            }
        }
    }

    /// Returns the codes of a weight, in bytes as in the arena, and its scales. If two codes share a byte, the first is in the upper half.
    ///
    /// Quantizing the result of [`Coding::dequantize`] gives the same codes and scales. The element with a block's largest magnitude has the
    /// code of 1 or -1, so it equals the scale. The quotient of another element and the scale is its entry but for two roundings, which are
    /// small compared with the distance of entries. (If a scale is so small that its products are subnormal, codes may differ but stand for
    /// the same numbers.) With [`Coding::Nf4Double`] the codes of elements are the same again. Those of scales are not, since the mean of
    /// rounded scales differs: each scale may move by the distance of two codes.
    ///
    /// If a number is not finite, no element of its block is finite afterwards, nor of blocks whose scales [share a scale](double::BLOCK) with it.
    pub fn quantize(self, values: &[f32]) -> (Vec<u8>, Vec<f32>) {
        let mut codes = vec![0u8; (values.len() as u64).div_ceil(self.packed()) as usize];
        let mut scales = Vec::with_capacity(values.len().div_ceil(self.block() as usize));
        let packed = self.packed() as usize;
        for (index, block) in values.chunks(self.block() as usize).enumerate() {
            let scale = scale(block);
            scales.push(scale);
            let first = index * self.block() as usize / packed;
            for (byte, values) in codes[first..].iter_mut().zip(block.chunks(packed)) {
                let code = |value: Option<&f32>| value.map_or(0, |value| self.code(*value, scale));
                *byte = match self {
                    Coding::Int8 => code(values.first()),
                    Coding::Nf4 | Coding::Nf4Double => code(values.first()) << 4 | code(values.get(1)),
                };
            }
        }
        (codes, if self.is_double() { double::quantize(&scales) } else { scales })
    }

    /// Returns the code of an element in a block with this scale.
    fn code(self, value: f32, scale: f32) -> u8 {
        match (self, scale > 0.0) {
            (_, true) => self.encode(value / scale),
            (Coding::Int8, false) => 0,
            (Coding::Nf4 | Coding::Nf4Double, false) => ZERO,
        }
    }

    /// Dequantizes a weight from element `first` on, which may be inside a block and inside a byte. Writes as many elements as `out` has room
    /// for and the weight has. `codes` and `scales` are those of the whole weight.
    #[inline(always)]
    pub fn dequantize_from(self, codes: &[u8], scales: &[f32], first: usize, out: &mut [f32]) {
        let (block, packed) = (self.block() as usize, self.packed() as usize);
        let ahead = (first.next_multiple_of(block) - first).min(out.len());
        let (begun, whole) = out.split_at_mut(ahead);
        for (at, out) in (first..).zip(begun) {
            if let (Some(&byte), Some(scale)) = (codes.get(at / packed), self.scale_of(scales, at / block)) {
                // If two codes share a byte, the first is in the upper half.
                let code = if packed == 2 && at.is_multiple_of(2) { byte >> 4 } else { byte };
                *out = self.decode(code) * scale;
            }
        }
        let at = first + ahead;
        if let Some(codes) = codes.get(at / packed..) {
            self.dequantize_blocks(codes, scales, at / block, whole);
        }
    }

    /// Dequantizes a weight from its first element on. Writes as many elements as `out` has room for.
    #[inline(always)]
    pub fn dequantize(self, codes: &[u8], scales: &[f32], out: &mut [f32]) {
        self.dequantize_blocks(codes, scales, 0, out);
    }

    /// Dequantizes whole blocks, of which the first has index `first`.
    #[inline(always)]
    fn dequantize_blocks(self, codes: &[u8], scales: &[f32], first: usize, out: &mut [f32]) {
        let block = self.block() as usize;
        let bytes = block / self.packed() as usize;
        for (index, (out, codes)) in (first..).zip(out.chunks_mut(block).zip(codes.chunks(bytes))) {
            let Some(scale) = self.scale_of(scales, index) else { return };
            match self {
                Coding::Int8 => out.iter_mut().zip(codes).for_each(|(out, &code)| *out = self.decode(code) * scale),
                Coding::Nf4 | Coding::Nf4Double => {
                    let (pairs, last) = out.as_chunks_mut::<2>();
                    let rest = codes.get(pairs.len()).zip(last.first_mut());
                    for (out, &byte) in pairs.iter_mut().zip(codes) {
                        *out = NF4_PAIRS[usize::from(byte)].map(|entry| entry * scale);
                    }
                    rest.into_iter().for_each(|(&byte, out)| *out = self.decode(byte >> 4) * scale);
                }
            }
        }
    }
}

/// Returns the scale of a block, or NaN if not all of it is finite.
fn scale(block: &[f32]) -> f32 {
    let scale = dynamic_8bit::scale(block);
    if scale.is_finite() { scale } else { f32::NAN }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::random::Stream;

    /// Returns normally distributed numbers, some blocks of them with an outlier, and one block of zeros.
    fn weights(count: usize) -> Vec<f32> {
        let mut stream = Stream::new(3, 1);
        let mut weights: Vec<f32> = (0..count).map(|_| stream.normal() as f32 * 0.02).collect();
        weights.iter_mut().step_by(777).for_each(|weight| *weight *= 40.0);
        weights.iter_mut().skip(256).take(256).for_each(|weight| *weight = 0.0);
        weights
    }

    fn round_trip(coding: Coding, values: &[f32]) -> Vec<f32> {
        let (codes, scales) = coding.quantize(values);
        let mut out = vec![0.0; values.len()];
        coding.dequantize(&codes, &scales, &mut out);
        out
    }

    /// Returns the share of a normal distribution below `x`: the integral of its density, by Simpson's rule.
    fn below(x: f64) -> f64 {
        let density = |x: f64| f64::exp(-0.5 * x * x) / (2.0 * core::f64::consts::PI).sqrt();
        const PARTS: i32 = 2000;
        let step = x / f64::from(PARTS);
        let weighed = (0..=PARTS).map(|i| {
            let weight = if i == 0 || i == PARTS { 1.0 } else { f64::from(2 + 2 * (i % 2)) };
            weight * density(f64::from(i) * step)
        });
        0.5 + weighed.sum::<f64>() * step / 3.0
    }

    /// Returns the number below which this share of a normal distribution is.
    fn quantile(share: f64) -> f64 {
        let (mut low, mut high) = (-8.0, 8.0);
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if below(middle) < share { low = middle } else { high = middle }
        }
        low
    }

    /// The paper's formula, as in `create_normal_map` of bitsandbytes. It takes 8 quantiles above 0 and 7 below, at equal steps from
    /// 0.9677083 to a half, divided by the largest. The table was computed in f32.
    #[test]
    fn entries_are_quantiles_of_the_normal_distribution() {
        const OFFSET: f64 = 0.967_708_3;
        let step = |index: usize, count: usize| OFFSET + (0.5 - OFFSET) * index as f64 / count as f64;
        let largest = quantile(OFFSET);
        for (index, entry) in NF4[8..].iter().rev().enumerate() {
            let expected = quantile(step(index, 8)) / largest;
            assert!((f64::from(*entry) - expected).abs() < 2e-7, "{entry} is not {expected}");
        }
        for (index, entry) in NF4[..7].iter().enumerate() {
            let expected = -quantile(step(index, 7)) / largest;
            assert!((f64::from(*entry) - expected).abs() < 2e-7, "{entry} is not {expected}");
        }
        assert_eq!(NF4[usize::from(ZERO)].to_bits(), 0);
    }

    /// The thresholds in `dQuantizeNF4` of bitsandbytes. A number above a threshold has the next code.
    #[test]
    fn codes_change_where_those_of_others_do() {
        for (threshold, below) in [
            (0.861_478_418_111_801_1, 14),
            (0.642_786_920_070_648_2, 13),
            (0.389_312_535_524_368_3, 11),
            (0.039_790_149_778_127_67, 7),
            (-0.045_525_018_125_772_476, 6),
            (-0.339_679_434_895_515_44, 3),
            (-0.848_096_400_499_343_9, 0),
        ] {
            let threshold = threshold as f32;
            assert_eq!(Coding::Nf4.encode(threshold), below, "{threshold}");
            assert_eq!(Coding::Nf4.encode(threshold.next_up()), below + 1, "{threshold}");
        }
        let codes = |shares: &[f32]| shares.iter().map(|&share| Coding::Int8.encode(share) as i8).collect::<Vec<_>>();
        assert_eq!(codes(&[1.0, -1.0, 0.0, 0.5, -0.5, 0.0039, 0.004]), [127, -127, 0, 64, -64, 0, 1]);
    }

    /// The bytes of bitsandbytes, with the first element in the upper half.
    #[test]
    fn two_codes_are_in_a_byte() {
        let (codes, scales) = Coding::Nf4.quantize(&[4.0, -4.0, 0.0, 1.8, -0.36]);
        assert_eq!((&codes[..], &scales[..]), (&[0xf0, 0x7c, 0x60][..], &[4.0][..]));
        let mut out = [0.0; 5];
        Coding::Nf4.dequantize(&codes, &scales, &mut out);
        assert_eq!(out, [4.0, -4.0, 0.0, 4.0 * NF4[12], 4.0 * NF4[6]]);
        let (codes, scales) = Coding::Int8.quantize(&[4.0, -2.0, 0.0]);
        assert_eq!((&codes[..], &scales[..]), (&[127, -64i8 as u8, 0][..], &[4.0][..]));
    }

    /// Any number of elements, from any element on, equals that part of the whole weight.
    #[test]
    fn a_part_is_as_in_the_whole() {
        let values = weights(700);
        for coding in Coding::ALL {
            let (codes, scales) = coding.quantize(&values);
            let whole = round_trip(coding, &values);
            for first in [0, 1, 2, 63, 64, 65, 130, 255, 256, 257, 511, 699] {
                for count in [0, 1, 2, 3, 64, 127, 256, 300, 700].into_iter().filter(|count| first + count <= 700) {
                    let mut part = vec![f32::NAN; count];
                    coding.dequantize_from(&codes, &scales, first, &mut part);
                    assert_eq!(part, whole[first..first + count], "{coding:?}, {count} from {first} on");
                }
            }
        }
    }

    /// Errors are at most half the largest distance of two entries, times the scale, plus the error of the scale. Some errors come close
    /// to that bound.
    #[test]
    fn errors_are_within_their_bounds() {
        let values = weights(100_003);
        let nf4 = 0.5 * (1.0 - 0.696_192_8);
        for (coding, bound) in [(Coding::Int8, 0.5 / 127.0), (Coding::Nf4, nf4), (Coding::Nf4Double, nf4)] {
            let block = coding.block() as usize;
            let (codes, scales) = coding.quantize(&values);
            let mut found = vec![0.0; values.len()];
            coding.dequantize(&codes, &scales, &mut found);
            let mut worst: f32 = 0.0;
            for (index, (values, found)) in values.chunks(block).zip(found.chunks(block)).enumerate() {
                let scale = dynamic_8bit::scale(values);
                let off = (coding.scale_of(&scales, index).unwrap() - scale).abs();
                assert!(coding.is_double() || off == 0.0);
                let errors = values.iter().zip(found).map(|(value, found)| (value - found).abs());
                let error = errors.fold(0.0, f32::max);
                assert!(error <= (bound * scale + off) * (1.0 + 1e-5), "{coding:?}: {error} of {scale}");
                worst = worst.max(if scale > 0.0 { (error - off) / scale } else { 0.0 });
            }
            assert!(worst > 0.9 * bound, "{coding:?}: {worst} of {bound}");
        }
    }

    /// The error of a product with normally distributed weights: quantized scales add almost nothing to it.
    #[test]
    fn scales_in_codes_add_little_to_the_error() {
        let mut stream = Stream::new(11, 1);
        let values: Vec<f32> = (0..1 << 18).map(|_| stream.normal() as f32 * 0.02).collect();
        let square = |values: &mut dyn Iterator<Item = f32>| values.map(|x| f64::from(x) * f64::from(x)).sum::<f64>();
        let whole = square(&mut values.iter().copied());
        let [plain, double] = [Coding::Nf4, Coding::Nf4Double].map(|coding| {
            let found = round_trip(coding, &values);
            (square(&mut values.iter().zip(&found).map(|(value, found)| value - found)) / whole).sqrt()
        });
        assert!((0.08..0.1).contains(&plain) && (1.0..1.005).contains(&(double / plain)), "{plain}, {double}");
    }

    /// Every code with every kind of scale: dequantized numbers have the same codes and scales.
    #[test]
    fn what_codes_say_has_the_same_codes() {
        let mut stream = Stream::new(5, 2);
        let drawn = (0..2000).map(|_| f32::from_bits((stream.uniform() * f64::from(0x7f00_0000)) as u32 + 0x0080_0000));
        let scales = drawn.chain([f32::MAX, 1.0, f32::MIN_POSITIVE * 1e6, 0.1, 3.0]).filter(|scale| *scale > 1e-30);
        for scale in scales {
            for coding in Coding::ALL.into_iter().filter(|coding| !coding.is_double()) {
                let all = if coding == Coding::Nf4 { 0..=15 } else { 0..=254 };
                let codes = all.map(|code: u8| if coding == Coding::Nf4 { code } else { (code as i8).max(-127) as u8 });
                let values: Vec<f32> = codes.map(|code| coding.decode(code) * scale).collect();
                let (codes, scales) = coding.quantize(&values);
                let mut found = vec![0.0; values.len()];
                coding.dequantize(&codes, &scales, &mut found);
                assert_eq!((scales, codes.clone()), (vec![scale], coding.quantize(&found).0));
                let is_same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits();
                assert!(values.iter().zip(&found).all(is_same), "{coding:?}, {scale}");
            }
        }
        let values = weights(10_001);
        for coding in Coding::ALL {
            let once = round_trip(coding, &values);
            let ((codes, scales), (again, of_again)) = (coding.quantize(&values), coding.quantize(&once));
            assert_eq!(codes, again);
            if !coding.is_double() {
                assert_eq!(scales, of_again);
                assert_eq!(round_trip(coding, &once), once);
                continue;
            }
            // Scales move by at most the distance of two codes, as a fraction of the largest distance from the mean.
            for (index, block) in once.chunks(64).enumerate().filter(|(_, block)| dynamic_8bit::scale(block) > 0.0) {
                let [one, other] = [&scales, &of_again].map(|scales| coding.scale_of(scales, index).unwrap());
                let most = scales[1 + index / 256 * 65];
                assert!((one - other).abs() <= 0.9 / 64.0 * most, "{one}, {other} in {}", block.len());
            }
        }
    }

    /// The smallest scales, whose products are subnormal: codes may differ, numbers may not.
    #[test]
    fn the_smallest_numbers_stay_what_they_are() {
        for scale in (1..5000).map(f32::from_bits) {
            for coding in Coding::ALL {
                let values: Vec<f32> = (0..=255).map(|code| coding.decode(code) * scale).collect();
                let values: Vec<f32> = values.into_iter().filter(|value| value.abs() <= scale).collect();
                for values in values.chunks(coding.block() as usize - 1) {
                    let with: Vec<f32> = values.iter().copied().chain([scale]).collect();
                    let once = round_trip(coding, &with);
                    assert_eq!(round_trip(coding, &once), once, "{coding:?}, {scale:e}");
                }
            }
        }
    }

    #[test]
    fn blocks_without_a_scale() {
        for coding in Coding::ALL {
            let found = round_trip(coding, &[0.0, -0.0, 0.0]);
            assert!(found.iter().all(|value| value.to_bits() == 0), "{coding:?}");
            for what in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut values = vec![1.0; 2 * coding.block() as usize];
                values[3] = what;
                let found = round_trip(coding, &values);
                let (first, second) = found.split_at(coding.block() as usize);
                let is_left = |value: &f32| if coding.is_double() { value.is_nan() } else { *value == 1.0 };
                assert!(first.iter().all(|value| value.is_nan()) && second.iter().all(is_left));
            }
        }
    }

    #[test]
    fn bytes() {
        let shape = Shape::new(&[4096, 4096]);
        assert_eq!(Coding::Nf4.bytes(shape), Some(4096 * 4096 / 2 + 4 * 4096 * 4096 / 64));
        assert_eq!(Coding::Int8.bytes(shape), Some(4096 * 4096 + 4 * 4096 * 4096 / 256));
        assert_eq!(Coding::Nf4.bytes(Shape::new(&[3, 43])), Some(65 + 4 * 3));
        assert_eq!(Coding::Nf4Double.bytes(shape), Some(4096 * 4096 / 2 + 4 * (1 + 1024 + 65_536)));
        assert_eq!(Coding::Nf4Double.bytes(Shape::new(&[3, 43])), Some(65 + 4 * 3));
        assert_eq!(Coding::ALL.map(Coding::bits), [8, 4, 4]);
    }
}
