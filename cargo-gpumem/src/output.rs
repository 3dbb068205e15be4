//! Standard output and standard error: a full disk or a closed pipe is no panic.

use crate::Failure;
use std::io::{ErrorKind, Write as _};

/// Writes an answer to standard output. One whose reader has gone, as in `cargo gpumem cards | head`, is written as far as it was read.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut output = std::io::stdout().lock();
    written(output.write_all(text.as_bytes()).and_then(|()| output.flush()))
}

/// Returns what is said where standard output could not be written.
pub fn written(result: std::io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {error}").into())
        }
        _ => Ok(()),
    }
}

/// Writes a line to standard error. Nobody can be told where that fails.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Writes a warning to standard error.
pub fn warn(text: &str) {
    say(&format!("warning: {text}"));
}
