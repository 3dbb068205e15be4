//! Block scales in 8 bits: the double quantisation of T. Dettmers, A. Pagnoni, A. Holtzman and L. Zettlemoyer, "QLoRA: Efficient Finetuning
//! of Quantized LLMs" (arXiv:2305.14314), as in bitsandbytes.
//!
//! The mean of all scales is subtracted from each. The rest is encoded by the [map of both signs](DynamicMap::SIGNED), in blocks of
//! [`BLOCK`] scales that share a scale of their own. A scale is the entry of its code times that, plus the mean.
//!
//! All is stored in words of f32: the mean, then for each block its scale and its codes. A word has four codes, the first one in the
//! lowest byte. The last block may have fewer.

use super::dynamic_8bit;
use super::dynamic_8bit::DynamicMap;
use alloc::vec::Vec;

/// Scales that share a scale.
pub const BLOCK: u64 = dynamic_8bit::BLOCK;

/// Codes in a word.
const OF_WORD: u64 = 4;

/// Words in a block.
pub const WORDS: u64 = 1 + BLOCK / OF_WORD;

/// Returns the number of words for this many scales.
pub const fn words(scales: u64) -> u64 {
    match scales {
        0 => 0,
        _ => 1 + scales.div_ceil(BLOCK) + scales.div_ceil(OF_WORD),
    }
}

/// Quantizes scales to words. If one scale of a block is not finite, none of the block is. The mean is that of the finite ones.
pub fn quantize(scales: &[f32]) -> Vec<f32> {
    let finite = || scales.iter().filter(|scale| scale.is_finite());
    let sum: f64 = finite().map(|&scale| f64::from(scale)).sum();
    let mean = (sum / finite().count().max(1) as f64) as f32;
    let mut words = Vec::with_capacity(self::words(scales.len() as u64) as usize);
    words.extend((!scales.is_empty()).then_some(mean));
    for block in scales.chunks(BLOCK as usize) {
        let rest: Vec<f32> = block.iter().map(|scale| scale - mean).collect();
        let most = dynamic_8bit::scale(&rest);
        let most = if most.is_finite() { most } else { f32::NAN };
        words.push(most);
        for four in rest.chunks(OF_WORD as usize) {
            let mut bytes = [0; OF_WORD as usize];
            bytes.iter_mut().zip(four).for_each(|(byte, rest)| *byte = DynamicMap::SIGNED.encode(rest / most));
            words.push(f32::from_bits(u32::from_le_bytes(bytes)));
        }
    }
    words
}

/// Returns the scale with this index, rounded to f32 once. `None` if there is no such scale.
#[inline(always)]
pub fn scale_of(words: &[f32], number: usize) -> Option<f32> {
    let (block, inside) = (number / BLOCK as usize, number % BLOCK as usize);
    let at = 1 + block * WORDS as usize;
    let codes = words.get(at + 1 + inside / OF_WORD as usize)?.to_bits().to_le_bytes();
    let entry = DynamicMap::SIGNED.decode(codes[inside % OF_WORD as usize]);
    // The product of two numbers of f32 is exact in f64.
    Some((f64::from(entry) * f64::from(*words.get(at)?) + f64::from(*words.first()?)) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::Coding;
    use crate::number::random::Stream;

    /// Returns scales of blocks with normally distributed weights, and some scales far from those.
    fn scales(count: usize) -> Vec<f32> {
        let mut stream = Stream::new(7, 1);
        let mut block = || (0..64).map(|_| stream.normal().abs()).fold(0.0, f64::max) as f32 * 0.02;
        let mut scales: Vec<f32> = (0..count).map(|_| block()).collect();
        scales.iter_mut().step_by(301).for_each(|scale| *scale *= 3.0);
        scales
    }

    /// The algorithm of the paper and bitsandbytes, in f64 and trying every code. It is `absmax -= absmax.mean()`, then
    /// `quantize_blockwise(absmax, blocksize=256)` with the map of both signs, and back.
    #[test]
    fn scales_are_those_of_the_formula() {
        for count in [1, 2, 255, 256, 257, 1000, 4099] {
            let scales = scales(count);
            let words = quantize(&scales);
            assert_eq!(words.len() as u64, super::words(count as u64));
            let mean = scales.iter().map(|&scale| f64::from(scale)).sum::<f64>() / count as f64;
            for (block, all) in scales.chunks(256).enumerate() {
                let rest: Vec<f64> = all.iter().map(|&scale| f64::from(scale) - mean).collect();
                let most = rest.iter().fold(0.0, |most: f64, rest| most.max(rest.abs()));
                for (index, rest) in rest.iter().enumerate() {
                    let entries = DynamicMap::SIGNED.entries().iter().map(|&entry| f64::from(entry) * most);
                    let nearest = entries.min_by(|a, b| (a - rest).abs().total_cmp(&(b - rest).abs())).unwrap();
                    let found = f64::from(scale_of(&words, 256 * block + index).unwrap());
                    // As near as the nearest of all, but for rounding to f32.
                    let (error, least) = ((found - mean - rest).abs(), (nearest - rest).abs());
                    assert!(error <= least + 2e-7 * (mean.abs() + most), "{count}: {error} is not {least}");
                }
            }
            assert_eq!(scale_of(&words, 4 * count.div_ceil(4)), None);
        }
    }

    /// Errors are at most half the largest distance of two entries, times the largest distance from the mean in the block. Some come close.
    #[test]
    fn errors_are_within_their_bound() {
        let scales = scales(10_000);
        let words = quantize(&scales);
        let mut worst: f32 = 0.0;
        for (block, all) in scales.chunks(BLOCK as usize).enumerate() {
            let most = words[1 + block * WORDS as usize];
            for (index, scale) in all.iter().enumerate() {
                let found = scale_of(&words, block * BLOCK as usize + index).unwrap();
                worst = worst.max((found - scale).abs() / most);
            }
        }
        let bound = 0.45 / 64.0;
        assert!(worst <= bound * 1.001 && worst > 0.9 * bound, "{worst} of {bound}");
    }

    #[test]
    fn scales_that_are_alike_or_none() {
        let words = quantize(&[0.25; 300]);
        assert!((0..300).all(|number| scale_of(&words, number) == Some(0.25)));
        assert!((0..5).all(|number| scale_of(&quantize(&[0.0; 5]), number) == Some(0.0)));
        assert_eq!((quantize(&[]), super::words(0), scale_of(&[], 0)), (Vec::new(), 0, None));
        // Words that are 0, as in a weight before it is set.
        assert_eq!(scale_of(&[0.0; 67], 255), Some(0.0));
    }

    /// A scale that is not finite affects its block of scales only.
    #[test]
    fn scales_that_are_not_finite() {
        for what in [f32::NAN, f32::INFINITY] {
            let mut scales = scales(600);
            scales[300] = what;
            let words = quantize(&scales);
            let is_nan = |number: usize| scale_of(&words, number).unwrap().is_nan();
            assert!((0..600).all(|number| is_nan(number) == (256..512).contains(&number)));
        }
    }

    /// 4.127 bits an element, as in the paper.
    #[test]
    fn bits_of_an_element() {
        let elements = 4096 * 4096;
        let shape = crate::shape::Shape::new(&[4096, 4096]);
        let bits = 8.0 * Coding::Nf4Double.bytes(shape).unwrap() as f64 / f64::from(elements);
        assert!((bits - (4.0 + 8.0 / 64.0 + 32.0 / (64.0 * 256.0))).abs() < 1e-5, "{bits}");
    }
}
