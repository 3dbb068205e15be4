//! The notice on stderr that training is slow because this crate is not optimised.

use std::io::Write;
use std::sync::Once;

/// The optimisation level of this crate. Debug assertions do not tell it, because a profile may set it to 3 in a debug build.
const LEVEL: &str = env!("GPUMEM_OPT_LEVEL");

/// Prints once that this crate is compiled without optimisation, unless `GPUMEM_QUIET=1`.
pub(crate) fn training() {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        if let Some(line) = line(LEVEL, std::env::var_os("GPUMEM_QUIET").is_some_and(|value| value == "1")) {
            // Failing to write this line is no reason to stop.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    });
}

/// Returns the notice. `None` if the crate is optimised, or if notices are off.
fn line(level: &str, is_quiet: bool) -> Option<&'static str> {
    (level == "0" && !is_quiet).then_some(
        "gpumem: the CPU backend is compiled without optimisation, and a step takes tens of times as long; use `cargo run --release`, or \
         write `[profile.dev.package.\"*\"]` and below it `opt-level = 3` in Cargo.toml",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_build_says_so() {
        let text = line("0", false).unwrap();
        assert!(text.contains("cargo run --release") && text.contains("opt-level = 3") && !text.contains('\n'));
        assert_eq!(line("0", true), None);
        for level in ["1", "2", "3", "s", "z"] {
            assert_eq!(line(level, false), None);
        }
    }

    /// Tests that the build script has set the level.
    #[test]
    fn the_level_is_known() {
        assert!(["0", "1", "2", "3", "s", "z"].contains(&LEVEL), "{LEVEL}");
    }
}
