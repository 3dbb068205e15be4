//! What is said on stderr where something goes another way than it should, and works all the same.

use gpumem_core::error::Error;
use std::io::Write;

/// Whether `GPUMEM_QUIET=1` silences everything.
pub(crate) fn is_quiet() -> bool {
    std::env::var_os("GPUMEM_QUIET").is_some_and(|value| value == "1")
}

/// Why another device is used where a card was looked for.
pub fn instead_of_a_card(device: &str, error: &Error) -> String {
    format!("{device} is used, for no card can be: {}", error.to_string().replace('\n', "; "))
}

/// One line on stderr.
pub fn notice(text: &str) {
    if !is_quiet() {
        // A line that cannot be written is no reason to stop.
        let _ = writeln!(std::io::stderr(), "gpumem: {text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_in_one_line() {
        let driver = Error::failed("CUDA", "there is no driver");
        let text =
            instead_of_a_card("the CPU", &Error::Several(vec![driver.clone(), Error::failed("CUDA", "no NVRTC")]));
        assert_eq!(text, "the CPU is used, for no card can be: CUDA: there is no driver; CUDA: no NVRTC");
        assert_eq!(
            instead_of_a_card("the CPU", &driver),
            "the CPU is used, for no card can be: CUDA: there is no driver"
        );
    }
}
