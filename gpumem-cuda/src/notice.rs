//! What is said on stderr where something goes another way than it should, and works all the same.

use std::io::Write;

/// Whether `GPUMEM_QUIET=1` silences everything.
pub(crate) fn is_quiet() -> bool {
    std::env::var_os("GPUMEM_QUIET").is_some_and(|value| value == "1")
}

/// One line on stderr.
pub(crate) fn notice(text: &str) {
    if !is_quiet() {
        // A line that cannot be written is no reason to stop.
        let _ = writeln!(std::io::stderr(), "gpumem: {text}");
    }
}
