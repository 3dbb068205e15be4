//! Floating-point numbers of files as f32.

use crate::model::Dtype;

/// Returns elements of a floating-point type as f32, the low byte first. `None` for other types.
pub fn to_f32(dtype: Dtype, raw: &[u8]) -> Option<Vec<u8>> {
    Some(match dtype {
        Dtype::F32 => raw.to_vec(),
        Dtype::F64 => widened(raw, |bytes: [u8; 8]| f64::from_le_bytes(bytes) as f32),
        Dtype::Bf16 => widened(raw, |bytes: [u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)),
        Dtype::F16 => widened(raw, |bytes: [u8; 2]| half(u16::from_le_bytes(bytes))),
        _ => return None,
    })
}

fn widened<const N: usize>(raw: &[u8], number: impl Fn([u8; N]) -> f32) -> Vec<u8> {
    raw.as_chunks::<N>().0.iter().flat_map(|bytes| number(*bytes).to_le_bytes()).collect()
}

/// Converts a half to f32: exact for every half.
fn half(bits: u16) -> f32 {
    let (sign, exponent, fraction) = (bits >> 15, (bits >> 10) & 31, f32::from(bits & 1023) / 1024.0);
    let size = match exponent {
        0 => fraction * 2f32.powi(-14),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        exponent => (1.0 + fraction) * 2f32.powi(i32::from(exponent) - 15),
    };
    if sign == 1 { -size } else { size }
}
