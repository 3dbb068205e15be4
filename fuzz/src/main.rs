//! All targets in one program: `cargo run --release --bin gpumem-fuzz -- TARGET --seconds 60 --seed 1`.

fn main() -> std::process::ExitCode {
    gpumem_fuzz::any()
}
