//! What every contestant of `scripts/compare_cpu.py` does, as `examples/bench_cpu.rs` does it for ours.
//!
//! ```text
//! echo 20 | RAYON_NUM_THREADS=1 target/release/contestant-burn mlp 669706 64
//! ```

use std::io::{BufRead, Write};
use std::time::Instant;

/// Whatever keeps a contestant from going on.
pub type Failure = Box<dyn std::error::Error>;

/// What is measured: the script says it, so that only one place has the figures.
pub struct Case {
    /// The network, as `CASES` in the script calls it.
    pub name: String,
    /// Samples of a step.
    pub batch: usize,
    parameters: usize,
}

impl Case {
    /// The case of the command line: a name, its parameters, and its batch.
    pub fn from_arguments() -> Result<Self, Failure> {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let [name, parameters, batch] = &arguments[..] else {
            return Err("give a network, the number of its parameters, and its batch".into());
        };
        Ok(Self { name: name.clone(), batch: batch.parse()?, parameters: parameters.parse()? })
    }

    /// Refuses a network of another size than the others'.
    pub fn check(&self, found: usize) -> Result<(), Failure> {
        if found != self.parameters {
            let Self { name, parameters, .. } = self;
            return Err(format!("{name} has {found} parameters instead of {parameters}").into());
        }
        Ok(())
    }

    /// The answer to a network that a contestant does not have.
    pub fn unknown(&self) -> Failure {
        format!("there is no {} here", self.name).into()
    }
}

/// Makes a few steps, and then as many as each line of the standard input says.
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
