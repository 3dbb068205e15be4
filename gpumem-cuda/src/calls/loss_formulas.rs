//! The formulas of losses of elements as CUDA C: the header `losses.cuh`, which `kernels/loss/loss.cu` includes.

/// Defines `TEXT`, which has a line for each loss that has formulas, with literals as Rust writes them. That of `Mse` is
///
/// ```text
/// LOSS_OF_ELEMENTS(Mse, d * d, 2.0 * d)
/// ```
macro_rules! define_text {
    (
        [$($word:ident),*]
        $($(#[$doc:meta])* $name:ident = $wire:literal: $row:expr $(=> { value: $value:expr, slope: $slope:expr, })?;)*
    ) => {
        const TEXT: &str = concat!($($(
            "LOSS_OF_ELEMENTS(", stringify!($name), ", ", stringify!($value), ", ", stringify!($slope), ")\n",
        )?)*);
    };
}
gpumem_core::for_each_loss!(define_text);

/// The formulas in single precision, each as the arguments of the macro `LOSS_OF_ELEMENTS`.
pub(super) const LOSSES: &str = {
    const SINGLE: ([u8; 2 * TEXT.len()], usize) = in_single(TEXT);
    let (text, _) = SINGLE.0.split_at(SINGLE.1);
    match str::from_utf8(text) {
        Ok(text) => text,
        Err(_) => panic!("formulas are ASCII"),
    }
};

/// Returns `text` with an `f` after each literal, without which C would compute in double precision. Also returns the length of the result.
const fn in_single<const N: usize>(text: &str) -> ([u8; N], usize) {
    let text = text.as_bytes();
    let (mut out, mut length, mut at) = ([0; N], 0, 0);
    // The first letter of the name or literal that is being read; a space between them.
    let mut first = b' ';
    while at < text.len() {
        let letter = text[at];
        let is_exponent = letter == b'-' && first.is_ascii_digit() && text[at - 1] == b'e';
        if letter.is_ascii_alphanumeric() || letter == b'_' || letter == b'.' || is_exponent {
            first = if first == b' ' { letter } else { first };
        } else {
            if first.is_ascii_digit() {
                out[length] = b'f';
                length += 1;
            }
            first = b' ';
        }
        out[length] = letter;
        length += 1;
        at += 1;
    }
    (out, length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpumem_core::Loss;
    use gpumem_core::program::loss::Over;

    #[test]
    fn literals_are_those_of_single_precision() {
        let (text, length) = in_single::<99>("f(L1, log1p(0.5*x) + 1e-6, 2.0)\n");
        assert_eq!(str::from_utf8(&text[..length]), Ok("f(L1, log1p(0.5f*x) + 1e-6f, 2.0f)\n"));
    }

    #[test]
    fn each_loss_of_elements_has_a_line() {
        assert!(LOSSES.contains("LOSS_OF_ELEMENTS(Mse, d * d, 2.0f * d)\n"), "{LOSSES}");
        for loss in Loss::ALL {
            let has_line = LOSSES.contains(&format!("LOSS_OF_ELEMENTS({},", loss.name()));
            assert_eq!(has_line, loss.row().over == Over::Elements, "{loss:?}");
        }
    }
}
