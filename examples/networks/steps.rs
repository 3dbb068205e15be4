//! Makes steps of a network when it is asked to, so that programs that are compared can take turns.

use super::networks::Synthetic;
use gpumem::{Cpu, Error, Net, Network, Serve, Serving, Trains};
use serde_json::json;
use std::io::{BufRead, Write};
use std::time::Instant;

pub type Failure = Box<dyn std::error::Error>;

/// A network, by its name on the command line.
#[derive(Clone, Copy)]
pub struct Case {
    name: &'static str,
    /// Indices that are inputs or targets are below it.
    limit: u32,
    train: fn(&Cpu, u32) -> Result<(), Failure>,
    infer: fn(&Cpu, u32) -> Result<(), Failure>,
}

/// Returns the case of a network.
pub const fn case<N: Trains + Serve>(name: &'static str, limit: u32) -> Case
where
    N::Input: Synthetic,
    N::Target: Synthetic,
    N::ServedInput: Synthetic,
    N::ServedOutput: First,
{
    Case { name, limit, train: train::<N>, infer: infer::<N> }
}

/// Runs the case that the command line names, in training, or in inference if the name ends in `-inference`.
pub fn run(cases: &[Case]) -> Result<(), Failure> {
    let usage = || {
        let names: Vec<&str> = cases.iter().map(|case| case.name).collect();
        format!("give one of {}, with `-inference` or without, and maybe `--threads` with a number", names.join(", "))
    };
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (name, threads) = match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [name] => (*name, 1),
        [name, "--threads", threads] => (*name, threads.parse()?),
        _ => return Err(usage().into()),
    };
    let model = name.strip_suffix("-inference");
    let case = cases.iter().find(|case| case.name == model.unwrap_or(name)).ok_or_else(usage)?;
    let run = if model.is_some() { case.infer } else { case.train };
    run(&Cpu::with_threads(threads)?, case.limit)
}

/// Makes training steps. For each the batch is handed over, and the loss is waited for.
fn train<N: Trains>(cpu: &Cpu, limit: u32) -> Result<(), Failure>
where
    N::Input: Synthetic,
    N::Target: Synthetic,
{
    let mut net = Net::<N, Cpu>::load(cpu)?;
    let (input, target) = (N::Input::synthetic(limit, 0), N::Target::synthetic(limit, 1));
    answer::<N>(|| net.train_step(&input, &target))
}

/// Makes forward passes of a network that was loaded for inference.
fn infer<N: Serve>(cpu: &Cpu, limit: u32) -> Result<(), Failure>
where
    N::ServedInput: Synthetic,
    N::ServedOutput: First,
{
    let mut net = Net::<Serving<N>, Cpu>::load(cpu)?;
    let input = N::ServedInput::synthetic(limit, 0);
    answer::<N>(|| net.forward(&input).map(|outputs| outputs.first()))
}

/// Outputs of which one number stands for all.
pub trait First {
    fn first(&self) -> f32;
}

impl<S: gpumem::HostShape> First for gpumem::Tensor<f32, S> {
    fn first(&self) -> f32 {
        self.as_slice()[0]
    }
}

/// Makes three steps, and says `ready` and the number of parameters. Then it reads a number of steps from each line of the standard input, makes them, and answers with
/// a line of JSON: `seconds` of all of them by the wall's clock, and the last `value`, a loss or an output.
fn answer<N: Network>(mut step: impl FnMut() -> Result<f32, Error>) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    for _ in 0..3 {
        step()?;
    }
    writeln!(out, "ready {}", N::LAYERS.iter().map(|layer| layer.parameters).sum::<u64>())?;
    out.flush()?;
    for line in std::io::stdin().lock().lines() {
        let steps: u64 = line?.trim().parse()?;
        let (start, mut value) = (Instant::now(), f32::NAN);
        for _ in 0..steps {
            value = step()?;
        }
        writeln!(out, "{}", json!({ "seconds": start.elapsed().as_secs_f64(), "value": value }))?;
        out.flush()?;
    }
    Ok(())
}
