//! The program `cargo-gpumem`, which cargo runs for `cargo gpumem`.

use std::process::ExitCode;

fn main() -> ExitCode {
    cargo_gpumem::main()
}
