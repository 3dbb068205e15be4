//! Sine and cosine of any number.
//!
//! A number is `m * 2^e` with an integer `m` of 24 bits. A table has `2^e * 2 / pi` without its multiples of 4 in two parts, so that the product with
//! `m` is a count of quarter turns whose fraction is right to 2^-55, however large the number is. That is enough, because no `f32` beyond the
//! first quarter is nearer to a quarter turn than 2^-30.

use super::{polynomial, select};
use std::f64::consts::FRAC_PI_2;

/// The biased exponent of the first entry of [`TURNS`].
const FIRST: u32 = 126;

/// The first bits of `2 / pi`, after its point.
const TWO_OVER_PI: [u64; 4] =
    [0xA2F9_836E_4E44_1529, 0xFC27_57D1_F534_DDC0, 0xDB62_9599_3C43_9041, 0xFE51_63AB_DEBB_C561];

/// `2^e * 2 / pi` without its multiples of 4, for every exponent from that of 1/2 on. The first part has 29 bits.
static TURNS: [[f64; 2]; 129] = turns();

/// Returns 64 bits of `2 / pi`, from this bit after its point on. Bits before the point are 0.
const fn window(first: i32) -> u64 {
    let mut bits = 0;
    let mut at = 0;
    while at < 64 {
        let place = first + at;
        let bit = if place < 0 || place >= 256 { 0 } else { TWO_OVER_PI[place as usize / 64] >> (63 - place % 64) & 1 };
        bits = bits << 1 | bit;
        at += 1;
    }
    bits
}

const fn turns() -> [[f64; 2]; 129] {
    // 2^-27, 2^-53 and their product.
    const LAST: f64 = 1.0 / 134_217_728.0;
    const LOW: f64 = LAST / 9_007_199_254_740_992.0;
    let mut all = [[0.0; 2]; 129];
    let mut index = 0;
    while index < 129 {
        // An integer of 24 bits and this entry's power of two are the number. Two bits before the point count turns of a quarter.
        let exponent = FIRST as i32 + index as i32 - 150;
        let first = exponent - 2;
        all[index] = [(window(first) >> 35) as f64 * LAST, (window(first + 29) >> 11) as f64 * LOW];
        index += 1;
    }
    all
}

/// Returns the quarter turns in `x`, modulo 4 in its lowest two bits, and the rest as an angle from about -pi/4 to pi/4.
#[inline(always)]
fn reduce(x: f32) -> (u32, f32) {
    /// The number whose addition moves the integer part into the lowest bits.
    const SHIFT: f64 = 6_755_399_441_055_744.0;
    let bits = x.to_bits() & 0x7FFF_FFFF;
    // Infinity and NaN take the entry after the last exponent's, for a result that nobody uses.
    let index = (bits >> 23).clamp(FIRST, FIRST + 128) - FIRST;
    let [high, low] = TURNS[(index & 255) as usize % 129];
    let integer = (bits & 0x007F_FFFF | 0x0080_0000) as i32;
    let integer = f64::from(if x < 0.0 { -integer } else { integer });
    let (high, low) = (integer * high, integer * low);
    let shifted = high + low + SHIFT;
    let rest = (high - (shifted - SHIFT)) + low;
    let is_small = x.abs() < std::f32::consts::FRAC_PI_4;
    let quarters = if is_small { 0 } else { shifted.to_bits() as u32 };
    (quarters, select(is_small, x, (rest * FRAC_PI_2) as f32))
}

/// Returns the sine of an angle and some quarter turns.
#[inline(always)]
fn turned(quarters: u32, angle: f32) -> f32 {
    // Of Moshier's Cephes library.
    const SINE: [f32; 3] = [-1.951_529_6e-4, 0.008_332_161, -0.166_666_55];
    const COSINE: [f32; 3] = [2.443_315_7e-5, -0.001_388_731_6, 0.041_666_646];
    let square = angle * angle;
    let sine = angle + angle * square * polynomial(square, SINE);
    let cosine = 1.0 - (0.5 * square - square * square * polynomial(square, COSINE));
    let result = select(quarters & 1 == 0, sine, cosine);
    f32::from_bits(result.to_bits() ^ (quarters & 2) << 30)
}

/// Returns the sine. That of an infinite number is NaN.
#[inline(always)]
pub(crate) fn sin(x: f32) -> f32 {
    let (quarters, angle) = reduce(x);
    let result = select(x.abs() < f32::INFINITY, turned(quarters, angle), f32::NAN);
    select(x == 0.0, x, result)
}

/// Returns the cosine. That of an infinite number is NaN.
#[inline(always)]
pub(crate) fn cos(x: f32) -> f32 {
    let (quarters, angle) = reduce(x);
    select(x.abs() < f32::INFINITY, turned(quarters.wrapping_add(1), angle), f32::NAN)
}
