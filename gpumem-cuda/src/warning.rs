//! Notices on stderr about fallbacks: something works, but not in the expected way.

use gpumem_core::error::Error;
use std::io::Write;

/// True if `GPUMEM_QUIET=1` silences all notices.
pub(crate) fn is_quiet() -> bool {
    std::env::var_os("GPUMEM_QUIET").is_some_and(|value| value == "1")
}

/// Returns a notice that says why another device is used instead of a card.
pub fn instead_of_a_card(device: &str, error: &Error) -> String {
    format!("{device} is used, for no card can be: {}", error.to_string().replace('\n', "; "))
}

/// Writes one line to stderr.
pub fn notice(text: &str) {
    if !is_quiet() {
        // A failure to write a notice must not stop the program.
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
