//! A progress line on the terminal while kernels are compiled, which takes seconds the first time.

use crate::warning::is_quiet;
use std::fmt;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The output for compile progress. Nothing is written if every kernel comes from the cache.
pub struct Progress {
    card: String,
    line: Mutex<Option<Line>>,
}

struct Line {
    out: Box<dyn Write + Send>,
    /// True if the line is rewritten in place, as a terminal allows.
    rewritten: bool,
    what: String,
    done: usize,
    begun: Instant,
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress").field("card", &self.card).finish_non_exhaustive()
    }
}

impl Progress {
    /// Returns progress on stderr, for a card of this name. A terminal shows one line that counts; other outputs get a line at the beginning and
    /// one at the end. `GPUMEM_QUIET=1` silences it.
    pub fn stderr(card: &str) -> Progress {
        if is_quiet() {
            return Progress::silent();
        }
        Progress::on(card, Box::new(std::io::stderr()), std::io::stderr().is_terminal())
    }

    /// Returns progress that writes nothing.
    pub fn silent() -> Progress {
        Progress { card: String::new(), line: Mutex::new(None) }
    }

    fn on(card: &str, out: Box<dyn Write + Send>, rewritten: bool) -> Progress {
        let line = Line { out, rewritten, what: String::new(), done: 0, begun: Instant::now() };
        Progress { card: card.into(), line: Mutex::new(Some(line)) }
    }

    /// Announces that `count` kernels are about to be compiled for this architecture.
    pub(crate) fn begin(&self, count: usize, architecture: i32) {
        if let Some(line) = &mut *self.lock() {
            let kernels = if count == 1 { "kernel" } else { "kernels" };
            line.what = format!("{count} {kernels} for {} (sm_{architecture})", self.card);
            line.done = 0;
            line.begun = Instant::now();
            // A failure to write progress must not stop the compiler.
            let _ = if line.rewritten { line.count() } else { writeln!(line.out, "compiling {}", line.what) };
        }
    }

    /// Counts one more compiled kernel.
    pub(crate) fn step(&self) {
        if let Some(line) = &mut *self.lock() {
            line.done += 1;
            let _ = if line.rewritten { line.count() } else { Ok(()) };
        }
    }

    /// Reports that all kernels are compiled, or that one failed.
    pub(crate) fn end(&self, succeeded: bool) {
        if let Some(line) = &mut *self.lock() {
            let back = if line.rewritten { "\r\x1b[K" } else { "" };
            let seconds = line.begun.elapsed().as_secs_f64();
            let _ = if succeeded {
                writeln!(line.out, "{back}compiled {} in {seconds:.1} s", line.what)
            } else {
                writeln!(line.out, "{back}compiling {} failed after {}", line.what, line.done)
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Line>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    fn count(&mut self) -> std::io::Result<()> {
        write!(self.out, "\r\x1b[Kcompiling {}: {}", self.what, self.done)?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Captured {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    #[test]
    fn a_terminal_counts_in_place() {
        let kept = Captured::default();
        let progress = Progress::on("NVIDIA H200", Box::new(kept.clone()), true);
        progress.begin(57, 90);
        progress.step();
        progress.step();
        assert_eq!(kept.text().rsplit('\r').next(), Some("\x1b[Kcompiling 57 kernels for NVIDIA H200 (sm_90): 2"));
        assert!(!kept.text().contains('\n'));
        progress.end(true);
        let text = kept.text();
        let last = text.rsplit('\r').next().unwrap();
        assert!(last.starts_with("\x1b[Kcompiled 57 kernels for NVIDIA H200 (sm_90) in "), "{last}");
        assert!(last.ends_with(" s\n"), "{last}");
    }

    #[test]
    fn a_file_gets_one_line_at_the_beginning_and_one_at_the_end() {
        let kept = Captured::default();
        let progress = Progress::on("NVIDIA H200", Box::new(kept.clone()), false);
        progress.begin(1, 90);
        progress.step();
        assert_eq!(kept.text(), "compiling 1 kernel for NVIDIA H200 (sm_90)\n");
        progress.end(false);
        assert_eq!(kept.text().lines().nth(1), Some("compiling 1 kernel for NVIDIA H200 (sm_90) failed after 1"));
    }

    #[test]
    fn silence_is_silent() {
        let progress = Progress::silent();
        progress.begin(1, 90);
        progress.step();
        progress.end(true);
    }
}
