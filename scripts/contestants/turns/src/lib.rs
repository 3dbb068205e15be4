//! The measurement loop of every contestant of `scripts/compare_cpu.py`. `examples/networks/steps.rs` has the loop for gpumem.
//!
//! ```text
//! echo 20 | RAYON_NUM_THREADS=1 target/release/contestant-burn mlp 669706 64
//! ```

use std::io::{BufRead, Write};
use std::time::Instant;

/// Any error that ends a contestant.
pub type Failure = Box<dyn std::error::Error>;

/// The case to measure. The script passes it, so that the figures are in one place only.
pub struct Case {
    /// The name of the network in the script's `CASES`.
    pub name: String,
    /// The samples of a step.
    pub batch: usize,
    parameters: usize,
}

impl Case {
    /// Returns the case of the command line: a name, the number of parameters, and the batch.
    pub fn from_arguments() -> Result<Self, Failure> {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let [name, parameters, batch] = &arguments[..] else {
            return Err("give a network, the number of its parameters, and its batch".into());
        };
        Ok(Self { name: name.clone(), batch: batch.parse()?, parameters: parameters.parse()? })
    }

    /// Returns an error if the network does not have the case's number of parameters.
    pub fn check(&self, found: usize) -> Result<(), Failure> {
        if found != self.parameters {
            let Self { name, parameters, .. } = self;
            return Err(format!("{name} has {found} parameters instead of {parameters}").into());
        }
        Ok(())
    }

    /// Returns the error for a network that a contestant does not have.
    pub fn unknown(&self) -> Failure {
        format!("there is no {} here", self.name).into()
    }
}

/// Runs three steps to warm up. For each line of the standard input, it then runs that number of steps and prints their time.
pub fn answer(mut step: impl FnMut() -> Result<f32, Failure>) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    for _ in 0..3 {
        step()?;
    }
    writeln!(out, "ready")?;
    out.flush()?;
    for line in std::io::stdin().lock().lines() {
        let steps: u64 = line?.trim().parse()?;
        let (start, mut value) = (Instant::now(), f32::NAN);
        for _ in 0..steps {
            value = step()?;
        }
        let seconds = start.elapsed().as_secs_f64();
        writeln!(out, r#"{{"seconds": {seconds}, "value": {value}}}"#)?;
        out.flush()?;
    }
    Ok(())
}
