//! Weights of 8 or 4 bits: codes of blocks of elements that share a scale.
//!
//! A block are consecutive elements of one weight, in the order that its shape is written in; the last one may have fewer. Its scale is the
//! largest magnitude in it, and an element is the entry of a map, a number from -1 to 1, times that scale. So the largest element of a block
//! is kept as it is, and what codes and scales say has the same codes and scales again: see [`Coding::quantize`].
//!
//! Scales may be kept in codes themselves: see [`double`].

use super::{Role, double, dynamic};
use crate::program::encoding::wire_enum;
use crate::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

/// How a weight that is not trained is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// A byte an element: whole numbers from -127 to 127, each the 127th part of the scale, in blocks of 256. An element is off by at most
    /// 1/254 of its block's largest magnitude.
    Int8,
    /// Half a byte an element: NormalFloat of 4 bits in blocks of 64, as T. Dettmers, A. Pagnoni, A. Holtzman and L. Zettlemoyer have it,
    /// "QLoRA: Efficient Finetuning of Quantized LLMs" (arXiv:2305.14314), without quantising the scales. Its 16 entries are quantiles of
    /// the normal distribution, 0 among them; an element is off by at most 0.152 of its block's largest magnitude.
    Nf4,
    /// The same with the paper's double quantisation: scales are bytes, as [`double`] has them.
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

/// The two entries of each byte, so that it is looked up once.
static NF4_PAIRS: [[f32; 2]; 256] = {
    let mut pairs = [[0.0; 2]; 256];
    let mut byte = 0;
    while byte < pairs.len() {
        pairs[byte] = [NF4[byte >> 4], NF4[byte & 15]];
        byte += 1;
    }
    pairs
};

/// Where 0 is among them.
const ZERO: u8 = 7;

/// The largest code of [`Coding::Int8`].
pub const MOST: f32 = 127.0;

impl Coding {
    /// All of them, the one with most bits first.
    pub const ALL: [Coding; 3] = [Coding::Int8, Coding::Nf4, Coding::Nf4Double];

    /// The name, as written in a network.
    pub const fn name(self) -> &'static str {
        match self {
            Coding::Int8 => "Int8",
            Coding::Nf4 => "Nf4",
            Coding::Nf4Double => "Nf4Double",
        }
    }

    /// What a tensor of its codes is for.
    pub const fn role(self) -> Role {
        match self {
            Coding::Int8 => Role::Int8,
            Coding::Nf4 => Role::Nf4,
            Coding::Nf4Double => Role::Nf4Double,
        }
    }

    /// Bits of a code.
    pub const fn bits(self) -> u64 {
        8 / self.packed()
    }

    /// Elements whose codes are in one byte.
    pub const fn packed(self) -> u64 {
        match self {
            Coding::Int8 => 1,
            Coding::Nf4 | Coding::Nf4Double => 2,
        }
    }

    /// Elements of a block.
    pub const fn block(self) -> u64 {
        match self {
            Coding::Int8 => dynamic::BLOCK,
            Coding::Nf4 | Coding::Nf4Double => 64,
        }
    }

    /// Whether scales are in codes themselves.
    pub const fn is_double(self) -> bool {
        matches!(self, Coding::Nf4Double)
    }

    /// The dimension of the scales of so many elements: of each block one in f32, or as many words as [codes of them](double::words) are in.
    pub const fn scales(self, elements: u64) -> u64 {
        let blocks = elements.div_ceil(self.block());
        if self.is_double() { double::words(blocks) } else { blocks }
    }

    /// The scale of a block, of those of a whole weight.
    #[inline(always)]
    fn scale_of(self, scales: &[f32], block: usize) -> Option<f32> {
        if self.is_double() { double::scale_of(scales, block) } else { scales.get(block).copied() }
    }

    /// Bytes that a weight takes, with its scales: `None` if they exceed `u64`.
    pub fn bytes(self, shape: Shape) -> Option<u64> {
        let elements = shape.elements()?;
        elements.div_ceil(self.packed()).checked_add(self.scales(elements).checked_mul(4)?)
    }

    /// What a code is, in parts of its block's scale.
    #[inline(always)]
    pub fn decode(self, code: u8) -> f32 {
        match self {
            Coding::Int8 => f32::from(code as i8) / MOST,
            Coding::Nf4 | Coding::Nf4Double => NF4[usize::from(code & 15)],
        }
    }

    /// The code that is nearest to an element, as a part of its block's scale. Half way between two it is that of the larger magnitude
    /// for [`Coding::Int8`] and the lower one for the others, as in bitsandbytes.
    pub fn encode(self, share: f32) -> u8 {
        match self {
            // A conversion cuts off, and ends at the ends.
            Coding::Int8 => ((share * MOST + f32::copysign(0.5, share)) as i8).max(-127) as u8,
            Coding::Nf4 | Coding::Nf4Double => {
                let is_above = |pair: &&[f32; 2]| share > (pair[0] + pair[1]) * 0.5;
                NF4.array_windows::<2>().take_while(is_above).count() as u8
            }
        }
    }

    /// The codes of a weight, in bytes as the arena has them, and its scales. Of two codes in a byte, the first one is in the upper half.
    ///
    /// What [`Coding::dequantize`] makes of them has these codes and scales again. For the element with a block's largest magnitude has the
    /// code of 1 or -1, so that it is the scale itself, and the quotient of another one and the scale is its entry but for two roundings,
    /// which are small beside the distance of entries. (Where a scale is so small that its products are not normal numbers, codes may be
    /// others that say the same numbers.) Of [`Coding::Nf4Double`] codes of elements are the same again but not those of scales, whose mean is
    /// another one once they were rounded: each may move by the distance of two codes.
    ///
    /// Of a block with a number that is not finite, none is one afterwards, nor in the blocks whose scales [share one](double::BLOCK) with its own.
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

    /// The code of an element of a block with this scale.
    fn code(self, value: f32, scale: f32) -> u8 {
        match (self, scale > 0.0) {
            (_, true) => self.encode(value / scale),
            (Coding::Int8, false) => 0,
            (Coding::Nf4 | Coding::Nf4Double, false) => ZERO,
        }
    }

    /// The elements that codes and scales of a whole weight say, from element `first` on, which may be inside a block and inside a byte: as
    /// many as there is room for, and the weight has.
    #[inline(always)]
    pub fn dequantize_from(self, codes: &[u8], scales: &[f32], first: usize, out: &mut [f32]) {
        let (block, packed) = (self.block() as usize, self.packed() as usize);
        let ahead = (first.next_multiple_of(block) - first).min(out.len());
        let (begun, whole) = out.split_at_mut(ahead);
        for (at, out) in (first..).zip(begun) {
            if let (Some(&byte), Some(scale)) = (codes.get(at / packed), self.scale_of(scales, at / block)) {
                // Of two codes in a byte, the first one is in the upper half.
                let code = if packed == 2 && at.is_multiple_of(2) { byte >> 4 } else { byte };
                *out = self.decode(code) * scale;
            }
        }
        let at = first + ahead;
        if let Some(codes) = codes.get(at / packed..) {
            self.dequantize_blocks(codes, scales, at / block, whole);
        }
    }

    /// The elements that codes and scales say, from the first one on: as many as there is room for.
    #[inline(always)]
    pub fn dequantize(self, codes: &[u8], scales: &[f32], out: &mut [f32]) {
        self.dequantize_blocks(codes, scales, 0, out);
    }

    /// The elements that the codes of whole blocks say, of which the first has this number.
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

/// The scale of a block; NaN if not all of it is finite.
fn scale(block: &[f32]) -> f32 {
    let scale = dynamic::scale(block);
    if scale.is_finite() { scale } else { f32::NAN }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::random::Stream;

    /// Numbers of a normal distribution, some blocks of them with an outlier, and one of zeros.
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

    /// The share of a normal distribution that is below a number: the integral of its density, by Simpson's rule.
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

    /// Where so much of a normal distribution is below.
    fn quantile(share: f64) -> f64 {
        let (mut low, mut high) = (-8.0, 8.0);
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if below(middle) < share { low = middle } else { high = middle }
        }
        low
    }

    /// The paper's formula, as `create_normal_map` of bitsandbytes has it: 8 quantiles above 0 and 7 below, at equal steps from 0.9677083 to
    /// a half, over the largest. The table was computed in f32.
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

    /// The thresholds that stand in `dQuantizeNF4` of bitsandbytes: what is above them has the next code.
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

    /// Bytes as bitsandbytes has them: the first element in the upper half.
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

    /// From any element on, and any number of them: what the whole weight is there.
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

    /// No element is further from what it was than half the largest distance of two entries, times the scale, and what the scale is off by; and
    /// some are nearly.
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
                let scale = dynamic::scale(values);
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

    /// Beside f32, what a product with normally distributed weights is off by: scales in codes add next to nothing.
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

    /// Every code with every kind of scale: what is saved as numbers is read back as the same codes and scales.
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
            // Scales move by no more than two codes are apart, of the largest distance from the mean.
            for (index, block) in once.chunks(64).enumerate().filter(|(_, block)| dynamic::scale(block) > 0.0) {
                let [one, other] = [&scales, &of_again].map(|scales| coding.scale_of(scales, index).unwrap());
                let most = scales[1 + index / 256 * 65];
                assert!((one - other).abs() <= 0.9 / 64.0 * most, "{one}, {other} in {}", block.len());
            }
        }
    }

    /// The smallest scales, whose products are not normal numbers: the same numbers at any rate.
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
