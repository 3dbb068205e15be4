//! Memory sizes as users write them: `GPUMEM_VRAM=11.5GiB`.

/// An error in a memory size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VramError {
    /// There is no number at the beginning, or nothing after the point.
    NoNumber,
    /// There is no unit after the number.
    NoUnit,
    /// The unit is not known.
    UnknownUnit,
    /// The size is less than one byte.
    Zero,
    /// The size is 2^64 bytes or more, or has more digits than can be read exactly.
    TooLarge,
}

impl VramError {
    /// Returns the mistake and the correction as text.
    pub const fn message(self) -> &'static str {
        match self {
            VramError::NoNumber => "it must begin with a number: write a size such as 11.5GiB or 12288MiB",
            VramError::NoUnit => {
                "the unit is missing: write B, KiB, MiB, GiB, KB, MB or GB after the number, as in 11.5GiB"
            }
            VramError::UnknownUnit => {
                "the unit is unknown: write B, KiB, MiB, GiB (1024s) or KB, MB, GB (1000s), as in 11.5GiB"
            }
            VramError::Zero => "it is less than one byte: write the memory of the card, as in 11.5GiB",
            VramError::TooLarge => "it is too large or has too many digits: write a size such as 11.5GiB",
        }
    }
}

impl core::fmt::Display for VramError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.message())
    }
}

impl core::error::Error for VramError {}

/// Reads a memory size such as `11.5GiB`, `12288 MiB`, `16GB` or `8000000000B`. Returns bytes, rounded down.
///
/// Units are `B`, `KiB`, `MiB`, `GiB` (powers of 1024) and `KB`, `MB`, `GB` (powers of 1000), in any case.
pub const fn parse_vram(text: &str) -> Result<u64, VramError> {
    let bytes = text.trim_ascii().as_bytes();
    // The number is `digits / scale`.
    let mut digits = 0u64;
    let mut scale = 1u64;
    let mut whole = 0;
    let mut fraction = 0;
    let mut point = false;
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        if byte == b'.' && !point {
            point = true;
        } else if byte.is_ascii_digit() {
            digits = match digits.checked_mul(10) {
                Some(tens) => match tens.checked_add((byte - b'0') as u64) {
                    Some(digits) => digits,
                    None => return Err(VramError::TooLarge),
                },
                None => return Err(VramError::TooLarge),
            };
            if point {
                // `digits` has at least as many places, so it overflows first, unless all digits are 0.
                scale = match scale.checked_mul(10) {
                    Some(scale) => scale,
                    None => return Err(VramError::TooLarge),
                };
                fraction += 1;
            } else {
                whole += 1;
            }
        } else {
            break;
        }
        at += 1;
    }
    if whole == 0 || (point && fraction == 0) {
        return Err(VramError::NoNumber);
    }
    let unit = match unit(bytes.split_at(at).1.trim_ascii()) {
        Ok(unit) => unit,
        Err(error) => return Err(error),
    };
    let size = digits as u128 * unit as u128 / scale as u128;
    if size == 0 {
        Err(VramError::Zero)
    } else if size > u64::MAX as u128 {
        Err(VramError::TooLarge)
    } else {
        Ok(size as u64)
    }
}

/// Returns the bytes of a unit.
const fn unit(text: &[u8]) -> Result<u64, VramError> {
    let (prefix, base) = match text {
        [] => return Err(VramError::NoUnit),
        [b'B' | b'b'] => return Ok(1),
        [prefix, b'I' | b'i', b'B' | b'b'] => (prefix, 1024u64),
        [prefix, b'B' | b'b'] => (prefix, 1000),
        _ => return Err(VramError::UnknownUnit),
    };
    match prefix.to_ascii_uppercase() {
        b'K' => Ok(base),
        b'M' => Ok(base.pow(2)),
        b'G' => Ok(base.pow(3)),
        _ => Err(VramError::UnknownUnit),
    }
}

#[cfg(test)]
mod tests {
    use super::{VramError, parse_vram};

    #[test]
    fn sizes_are_exact() {
        for (text, bytes) in [
            ("1B", 1),
            ("11.5GiB", 23 << 29),
            ("12288 MiB", 12 << 30),
            (" 16GB ", 16_000_000_000),
            ("0.1KB", 100),
            ("0.3KiB", 307),
            ("1.000000001gb", 1_000_000_001),
            ("17179869183.999999999GiB", u64::MAX - 1),
            ("18446744073709551615B", u64::MAX),
        ] {
            assert_eq!(parse_vram(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn a_message_is_the_error_as_text() {
        for error in
            [VramError::NoNumber, VramError::NoUnit, VramError::UnknownUnit, VramError::Zero, VramError::TooLarge]
        {
            let boxed: alloc::boxed::Box<dyn core::error::Error> = error.into();
            assert_eq!(alloc::string::ToString::to_string(&boxed), error.message());
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for (text, error) in [
            ("", VramError::NoNumber),
            ("GiB", VramError::NoNumber),
            ("-3GiB", VramError::NoNumber),
            (".5GiB", VramError::NoNumber),
            ("5.GiB", VramError::NoNumber),
            ("12", VramError::NoUnit),
            ("12.0 ", VramError::NoUnit),
            ("12G", VramError::UnknownUnit),
            ("12GiBs", VramError::UnknownUnit),
            ("1.2.3GiB", VramError::UnknownUnit),
            ("12TiB", VramError::UnknownUnit),
            ("12gigs", VramError::UnknownUnit),
            ("12\u{b5}B", VramError::UnknownUnit),
            ("0GiB", VramError::Zero),
            ("0.4B", VramError::Zero),
            ("99999999999GiB", VramError::TooLarge),
            ("99999999999999999999B", VramError::TooLarge),
            ("0.00000000000000000000001GiB", VramError::TooLarge),
        ] {
            assert_eq!(parse_vram(text), Err(error), "{text}");
        }
    }
}
