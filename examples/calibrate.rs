//! Measures what a card takes beside an arena, and prints a row for the table of cards: see `docs/cards.md`.
//!
//! ```text
//! cargo run --release --features cuda --example calibrate [-- NUMBER]
//! ```

use std::error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(std::env::args().nth(1)) {
        Ok(row) => {
            println!("{row}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(number: Option<String>) -> Result<gpumem::Calibration, Box<dyn Error>> {
    let number = number.map_or(Ok(0), |text| text.parse())?;
    Ok(gpumem::calibrate(&gpumem::Cuda::new(number)?)?)
}
