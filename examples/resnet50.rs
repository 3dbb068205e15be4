//! Trains ResNet-50 on synthetic images: images per second, the budget, and what the card says beside it.
//!
//! ```text
//! cargo run --release --example resnet50 -- --steps 3
//! cargo run --release --features cuda --example resnet50 -- --device cuda --steps 50
//! ```
//!
//! Options: `--device cpu|cuda` (cpu), `--precision f32|bf16` (f32; on the CPU bf16 is a rehearsal in f32) and `--steps N` (10).
//! The batch is a constant, because it is part of what the compiler checks.

#[macro_use]
mod networks;

use gpumem::Device;
use gpumem::Line;
use gpumem::prelude::*;
use networks::Synthetic;
use std::error::Error;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Instant;

resnet50! { ResNet50, F32 }
resnet50! { ResNet50Bf16, Bf16 }

/// Images in a step on a card: a card of 8 GB has room for them.
const CARD_BATCH: usize = 64;
/// Images in a step on the CPU: a step takes seconds.
const CPU_BATCH: usize = 4;

fits!(ResNet50<CARD_BATCH>);

/// Images in a step of torchvision's recipe, for which its learning rate is.
const RECIPE_BATCH: f64 = 256.0;

/// The first steps are not timed: caches and clocks settle in them.
const WARM_UP: usize = 3;

fn main() -> ExitCode {
    match run(std::env::args().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let Some(Options { device, precision, steps }) = Options::read(arguments)? else {
        println!("options: --device cpu|cuda, --precision f32|bf16, --steps N");
        return Ok(());
    };
    match (device.as_str(), precision.as_str()) {
        ("cpu", "f32") => train::<ResNet50<CPU_BATCH>, _>(&gpumem::Cpu::new(), steps, || None),
        // What the card would run, in f32.
        ("cpu", "bf16") => train::<ResNet50Bf16<CPU_BATCH>, _>(&gpumem::Cpu::new().emulate(), steps, || None),
        #[cfg(feature = "cuda")]
        ("cuda", precision) => {
            let card = gpumem::Cuda::new(0)?;
            println!("on {}", card.name()?);
            let free = || card.memory().ok().map(|(free, _)| free);
            match precision {
                "f32" => train::<ResNet50<CARD_BATCH>, _>(&card, steps, free),
                "bf16" => train::<ResNet50Bf16<CARD_BATCH>, _>(&card, steps, free),
                other => Err(format!("no precision is called `{other}`; there are f32 and bf16").into()),
            }
        }
        #[cfg(not(feature = "cuda"))]
        ("cuda", _) => Err("this was built without CUDA: add `--features cuda`".into()),
        ("cpu", other) => Err(format!("no precision is called `{other}`; there are f32 and bf16").into()),
        (other, _) => Err(format!("no device is called `{other}`; there are cpu and cuda").into()),
    }
}

/// What the command line says.
struct Options {
    device: String,
    precision: String,
    steps: usize,
}

impl Options {
    /// `None` for `--help`.
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Option<Options>, Box<dyn Error>> {
        let mut options = Options { device: "cpu".into(), precision: "f32".into(), steps: 10 };
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("`{name}` needs a value"));
            match name.as_str() {
                "--help" | "-h" => return Ok(None),
                "--device" => options.device = value()?,
                "--precision" => options.precision = value()?,
                "--steps" => {
                    options.steps = usize::from_str(&value()?)
                        .ok()
                        .filter(|&steps| steps > 0)
                        .ok_or("`--steps` needs a number above 0")?
                }
                _ => return Err(format!("`{name}` is no option; there are --device, --precision and --steps").into()),
            }
        }
        Ok(Some(options))
    }
}

/// Trains for `steps` steps on one batch. `free` says how many bytes of the card are free, if there is a card.
fn train<N, D>(device: &D, steps: usize, free: impl Fn() -> Option<u64>) -> Result<(), Box<dyn Error>>
where
    N: Trains,
    N::Input: Synthetic,
    N::Target: Synthetic,
    D: Device,
{
    print_budget::<N>();
    let before = free();
    let mut net = Net::<N, D>::load(device)?;
    // A smaller batch makes smaller steps.
    if let Some(train) = N::TRAIN {
        net.set_lr(train.optimizer.lr() * N::PROGRAM.batch as f64 / RECIPE_BATCH)?;
    }
    let loaded = free();
    let (images, labels) = (N::Input::synthetic(0, 0), N::Target::synthetic(1000, 1));

    let batch = N::PROGRAM.batch;
    let warm_up = WARM_UP.min(steps - 1);
    let (mut losses, mut start) = (Vec::new(), Instant::now());
    for step in 0..steps {
        if step == warm_up {
            start = Instant::now();
        }
        losses.push(net.train_step(&images, &labels)?);
    }
    let seconds = start.elapsed().as_secs_f64() / (steps - warm_up) as f64;
    println!("\nloss {:.4} before the first step, {:.4} before the last of {steps}", losses[0], losses[steps - 1]);
    println!("{:.1} images per second, {:.1} ms a step of {batch}", batch as f64 / seconds, seconds * 1e3);

    if let (Some(before), Some(loaded), Some(after)) = (before, loaded, free()) {
        let taken = mib(before) - mib(loaded);
        println!("\nthe card's free memory, MiB (other programs on the card move it too)");
        println!("  with a context     {:>10.1}", mib(before));
        println!(
            "  after loading      {:>10.1}   {taken:.1} less; the arena is {:.1}",
            mib(loaded),
            mib(N::BUDGET[Line::Arena])
        );
        println!(
            "  after {steps:>5} steps  {:>10.1}   {:.1} less: graphs and code",
            mib(after),
            mib(loaded) - mib(after)
        );
    }
    Ok(())
}

/// Every line of the budget.
fn print_budget<N: Network>() {
    let budget = N::BUDGET;
    println!("{}, batch {}, {}: MiB on a card", N::NAME, N::PROGRAM.batch, N::PROGRAM.precision.name());
    for line in Line::ALL {
        println!("  {:<12} {:>10.1}", line.name(), mib(budget[line]));
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
