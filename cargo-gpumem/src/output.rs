//! Writes to standard output and standard error. A full disk or a closed pipe never panics.

use crate::Failure;
use std::io::{ErrorKind, Write as _};

/// Writes an answer to standard output. If the reader has gone, as in `cargo gpumem cards | head`, the rest is dropped without an error.
pub fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// Writes an answer that need not be text: see [`print`].
pub fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut output = std::io::stdout().lock();
    written(output.write_all(bytes).and_then(|()| output.flush()))
}

/// Turns a failure to write to standard output into an error message. A closed pipe is no failure.
pub fn written(result: std::io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {error}").into())
        }
        _ => Ok(()),
    }
}

/// Writes a line to standard error. Ignores failures, which could not be reported anywhere.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Writes a warning to standard error.
pub fn warn(text: &str) {
    say(&format!("warning: {text}"));
}
