//! Step time and memory on a card, a line of JSON a network. `scripts/compare_pytorch.py` runs it beside PyTorch.
//!
//! ```text
//! cargo run --release --features cuda --example bench
//! cargo run --release --features cuda --example bench -- --warm-up 5 --steps 50 --seconds 20 digits gpt2
//! ```
//!
//! | key | what it is |
//! | --- | --- |
//! | `step_ms` | median time of a training step on a batch that is on the card already |
//! | `enqueued_step_ms` | the same with `enqueue_step`: each step's batch is copied while the step before it runs |
//! | `fed_step_ms` | the same with `train_step`: the batch's way to the card, and waiting for each loss |
//! | `peak_bytes` | what the process takes on the card after the last step, context included, as the driver counts it |
//! | `budget_total`, `arena` | what the compiler computed |
//!
//! `--profile FOLDER` measures each launch in place of the steps: a file `FOLDER/NETWORK.json` with the programs' launches, which library
//! or kernel computes each and how, the nodes of graphs, the time of each launch of a training step beside the card's roof, and what
//! the card says of itself. With `--own` the project's own kernels compute everything, and the file is `NETWORK-own.json`; with `--wgmma` as well,
//! with attention on Hopper's warpgroup instructions, and the file is `NETWORK-wgmma.json`.
//! With `--autotune` algorithms of the libraries are chosen by their time, and the file is `NETWORK-autotune.json`. With `--apart` no blocks of a
//! kernel wait for each other, and the file is `NETWORK-apart.json`.
//!
//! `NETWORK-kept` recomputes nothing, and `resnet50-separate` has its 1x1 convolutions apart from their batch norms.
//!
//! A network that the device refuses has `refused` instead, one that fails `failed`; the others run all the same.

#[path = "digits.rs"]
#[allow(dead_code, reason = "the example's network is used, not its program")]
mod digits;
#[macro_use]
mod networks;
#[path = "../gpumem-cuda/tests/recorded/mod.rs"]
mod recorded;
#[path = "../gpumem-cuda/tests/card/smi.rs"]
mod smi;

use digits::Digits;
use gpumem::Line;
use gpumem::report::roofline::Rates;
use gpumem::{Cuda, Error, Net, Network, Trains};
use networks::Synthetic;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

resnet50! { ResNet50, Bf16 }
resnet50! { ResNet50Kept, Bf16, checkpoint: None }
resnet50! { ResNet50Separate, Bf16, conv_norm: Separate }
resnet50! { ResNet50Mixed, Mixed(Bf16) }
vgg16! { Vgg16, F32 }
vgg16! { Vgg16Bf16, Bf16 }
gpt2! { Gpt2, Bf16 }
gpt2! { Gpt2Kept, Bf16, checkpoint: None }
gpt2! { Gpt2Mixed, Mixed(Bf16) }

/// A network by its name on the command line.
type Case = (&'static str, fn(&Bench) -> Value);

const CASES: [Case; 10] = [
    ("digits", |bench| bench.run::<Digits>("digits", 10)),
    ("resnet50", |bench| bench.run::<ResNet50<256>>("resnet50", 1000)),
    ("resnet50-kept", |bench| bench.run::<ResNet50Kept<256>>("resnet50-kept", 1000)),
    ("resnet50-separate", |bench| bench.run::<ResNet50Separate<256>>("resnet50-separate", 1000)),
    ("resnet50-mixed", |bench| bench.run::<ResNet50Mixed<256>>("resnet50-mixed", 1000)),
    ("vgg16", |bench| bench.run::<Vgg16<64>>("vgg16", 1000)),
    ("vgg16-bf16", |bench| bench.run::<Vgg16Bf16<64>>("vgg16-bf16", 1000)),
    ("gpt2", |bench| bench.run::<Gpt2<16>>("gpt2", 50257)),
    ("gpt2-kept", |bench| bench.run::<Gpt2Kept<16>>("gpt2-kept", 50257)),
    ("gpt2-mixed", |bench| bench.run::<Gpt2Mixed<16>>("gpt2-mixed", 50257)),
];

/// Times that each launch of a profile is timed.
const REPETITIONS: usize = 10;

fn main() -> ExitCode {
    match run(std::env::args().skip(1)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether no network failed.
fn run(mut arguments: impl Iterator<Item = String>) -> Result<bool, Box<dyn std::error::Error>> {
    let (mut warm_up, mut steps, mut seconds, mut chosen) = (5, 50, 30, Vec::new());
    let (mut folder, mut own, mut wgmma, mut autotune, mut apart) = (None, false, false, false, false);
    while let Some(argument) = arguments.next() {
        if argument == "--profile" {
            let given = arguments.next().filter(|given| !given.starts_with('-'));
            folder = Some(PathBuf::from(given.ok_or("`--profile` needs a folder")?));
            continue;
        }
        let mut number = || {
            let given = arguments.next().and_then(|value| value.parse().ok()).filter(|&value: &u64| value > 0);
            given.ok_or(format!("`{argument}` needs a number above 0"))
        };
        match argument.as_str() {
            "--warm-up" => warm_up = number()?,
            "--steps" => steps = number()?,
            "--seconds" => seconds = number()?,
            "--own" => own = true,
            "--wgmma" => (own, wgmma) = (true, true),
            "--autotune" => autotune = true,
            "--apart" => apart = true,
            name => match CASES.iter().find(|(known, _)| *known == name) {
                Some(case) => chosen.push(*case),
                None => {
                    let known = CASES.map(|(name, _)| name).join(", ");
                    return Err(format!("there is no network `{name}`; there are {known}").into());
                }
            },
        }
    }
    let before = smi::usage().map_or(0, |usage| usage.card);
    let card = Cuda::new(0)?;
    let card = card.with_library(!own).with_cudnn(!own).with_autotuning(autotune).with_grid_barriers(!apart);
    // Else it is a candidate of autotuning, as for users.
    let card = if wgmma { card.with_wgmma(true) } else { card };
    let (free, total) = card.memory()?;
    println!("{}", json!({ "card": card.name()?, "free": free, "total": total }));
    // As many as PyTorch is given at least: caches and clocks settle in them.
    let (warm_up, patience) = (warm_up.max(3), Duration::from_secs(seconds) / 3);
    let suffix = if wgmma {
        "-wgmma"
    } else if own {
        "-own"
    } else if autotune {
        "-autotune"
    } else if apart {
        "-apart"
    } else {
        ""
    };
    let bench = Bench { card, suffix, folder, before, warm_up, steps, patience };
    let chosen = if chosen.is_empty() { CASES.to_vec() } else { chosen };
    let mut well = true;
    for (_, case) in chosen {
        let line = case(&bench);
        well &= line.get("failed").is_none();
        println!("{line}");
    }
    Ok(well)
}

/// What all networks are measured with.
struct Bench {
    card: Cuda,
    /// Of the files of profiles: what they were measured with.
    suffix: &'static str,
    /// Where profiles are written, in place of timing steps.
    folder: Option<PathBuf>,
    /// Bytes that others held before this process had a context.
    before: u64,
    warm_up: u64,
    steps: u64,
    /// Each of the three timings ends when all steps are made or this time is over.
    patience: Duration,
}

impl Bench {
    fn run<N>(&self, name: &str, limit: u32) -> Value
    where
        N: Trains,
        N::Input: Synthetic,
        N::Target: Synthetic,
    {
        let budget = N::BUDGET;
        let mut line = json!({
            "network": name,
            "precision": N::PROGRAM.precision.name(),
            "batch": N::PROGRAM.batch,
            "parameters": N::LAYERS.iter().map(|layer| layer.parameters).sum::<u64>(),
            "arena": budget[Line::Arena],
            "budget_total": budget[Line::Total],
        });
        let measured = match &self.folder {
            None => self.measure::<N>(limit),
            Some(_) => self.profile::<N>(limit),
        };
        let found = match measured {
            Ok(figures) => figures,
            Err(error @ (Error::Unsupported { .. } | Error::Memory { .. })) => json!({ "refused": error.to_string() }),
            Err(error) => json!({ "failed": error.to_string() }),
        };
        if let (Value::Object(line), Value::Object(found)) = (&mut line, found) {
            line.extend(found);
        }
        match &self.folder {
            None => line,
            Some(folder) => self.write(folder, name, line),
        }
    }

    /// Writes a network's profile to its file; what is left to print.
    fn write(&self, folder: &Path, name: &str, mut profile: Value) -> Value {
        let file = folder.join(format!("{name}{}.json", self.suffix));
        let text = profile.to_string() + "\n";
        let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&file, text));
        let Value::Object(line) = &mut profile else { return profile };
        for long in ["card", "programs", "step_us_each"] {
            line.remove(long);
        }
        match written {
            Ok(()) => line.insert("file".into(), json!(file)),
            Err(error) => line.insert("failed".into(), json!(format!("{}: {error}", file.display()))),
        };
        profile
    }

    /// The launches of a network's programs, each by itself.
    fn profile<N>(&self, limit: u32) -> Result<Value, Error>
    where
        N: Trains,
        N::Input: Synthetic,
        N::Target: Synthetic,
    {
        let mut net = Net::<N, Cuda>::load(&self.card)?;
        let (input, target) = (N::Input::synthetic(limit, 0), N::Target::synthetic(limit, 1));
        for _ in 0..self.warm_up {
            net.train_step(&input, &target)?;
        }
        let profile = net.runner_mut().profile(REPETITIONS)?;
        let loss = net.loss()?;
        // The libraries' handles may have no room beside it.
        drop(net);
        let facts = self.card.clone().with_library(true).with_cudnn(true).facts();
        let tf32 = N::TRAIN.is_some_and(|train| train.tf32);
        let row = self.card.row()?;
        let rates = row.and_then(|row| Rates::of(row, N::PROGRAM.precision, tf32).ok());
        let mut found: Map<String, Value> = recorded::profile(&profile, rates);
        found.insert("last_loss".into(), json!(loss));
        let card = facts.map_or_else(|error| json!({ "failed": error.to_string() }), |facts| recorded::card(&facts));
        found.insert("card".into(), card);
        Ok(found.into())
    }

    fn measure<N>(&self, limit: u32) -> Result<Value, Error>
    where
        N: Trains,
        N::Input: Synthetic,
        N::Target: Synthetic,
    {
        let loading = Instant::now();
        let mut net = Net::<N, Cuda>::load(&self.card)?;
        let load_seconds = loading.elapsed().as_secs_f64();
        let (input, target) = (N::Input::synthetic(limit, 0), N::Target::synthetic(limit, 1));
        let first_loss = net.train_step(&input, &target)?;
        for _ in 1..self.warm_up {
            net.train_step(&input, &target)?;
        }
        let (resident, timed) = self.time(&mut net, Net::train_again)?;
        let (enqueued, _) = self.time(&mut net, |net| net.enqueue_step(&input, &target))?;
        let (fed, _) = self.time(&mut net, |net| net.train_step(&input, &target).map(|_| ()))?;
        let last_loss = net.loss()?;
        let usage = smi::usage();
        let peak = usage.map(|usage| usage.process.unwrap_or(usage.card.saturating_sub(self.before)));
        let step = median(&resident);
        Ok(json!({
            "step_ms": 1e3 * step,
            "slowest_ms": 1e3 * resident.iter().copied().fold(0.0, f64::max),
            "fastest_ms": 1e3 * resident.iter().copied().fold(f64::INFINITY, f64::min),
            "enqueued_step_ms": 1e3 * median(&enqueued),
            "fed_step_ms": 1e3 * median(&fed),
            "samples_per_second": N::PROGRAM.batch as f64 / step,
            "timed_steps": timed,
            "peak_bytes": peak,
            "peak_is_of_process": usage.is_some_and(|usage| usage.process.is_some()),
            "load_seconds": load_seconds,
            "first_loss": first_loss,
            "last_loss": last_loss,
        }))
    }

    /// Seconds a step of each block of steps, which are started one after the other and waited for together; and how many
    /// steps were timed.
    fn time<N: Network>(
        &self,
        net: &mut Net<N, Cuda>,
        mut step: impl FnMut(&mut Net<N, Cuda>) -> Result<(), Error>,
    ) -> Result<(Vec<f64>, u64), Error> {
        let mut block = |steps: u64| {
            let start = Instant::now();
            for _ in 0..steps {
                step(net)?;
            }
            net.loss()?;
            Ok(start.elapsed().as_secs_f64() / steps as f64)
        };
        // Long enough that waiting at its end does not count, short enough that there are several.
        let one: f64 = block(1)?;
        let size = ((0.05 / one) as u64).clamp(4, 200).min(self.steps.div_ceil(5));
        let (start, mut blocks, mut timed) = (Instant::now(), Vec::new(), 0);
        while timed < self.steps && (blocks.len() < 3 || start.elapsed() < self.patience) {
            blocks.push(block(size)?);
            timed += size;
        }
        Ok((blocks, timed))
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}
