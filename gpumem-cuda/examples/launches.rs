//! What one training step makes a card do, launch by launch, without a card.
//!
//! ```text
//! cargo run --example launches -- resnet50 --card h200 --precision bf16 --batch 256
//! ```
//!
//! prints a JSON object for each launch, and one with the totals: launches, bytes that are moved, floating-point operations, and
//! `roof_ms`, the least time in which the card's memory and its arithmetic units can do that; and the arena, in bytes.

#[path = "../../tests/networks/mod.rs"]
mod networks;
#[path = "../tests/planned/mod.rs"]
mod planned;
#[path = "../tests/recorded/mod.rs"]
mod recorded;

use gpumem::cards::{self, Card};
use gpumem::report::roofline::Rates;
use gpumem::{Half, Line, Network, Precision};
use gpumem_cuda::traffic::{Counted, launches};
use planned::Digits;
use serde_json::{Value, json};
use std::process::ExitCode;

const HELP: &str = "\
usage: cargo run --example launches -- NETWORK [--card CARD] [--precision f32|bf16|f16|mixed-bf16|mixed-f16] [--batch N]
                                               [--no-libraries]

Prints what a training step launches on a card: a JSON object a launch, and one with the totals. No card is needed.
";

type Failure = Box<dyn std::error::Error>;

/// A network by its name.
type Case = (&'static str, fn(&Asked) -> Result<(), Failure>);

const CASES: [Case; 8] = [
    ("alexnet", run::<networks::AlexNet>),
    ("digits", run::<Digits>),
    ("gpt2", run::<networks::Gpt2>),
    ("mobilenet_v2", run::<networks::MobileNetV2>),
    ("resnet18", run::<networks::ResNet18>),
    ("resnet50", run::<networks::ResNet50>),
    ("unet", run::<networks::UNet>),
    ("vgg16", run::<networks::Vgg16>),
];

/// What the command line asks for.
struct Asked {
    card: &'static Card,
    precision: Option<Precision>,
    batch: Option<u64>,
    libraries: bool,
}

fn main() -> ExitCode {
    match started(std::env::args().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn started(mut arguments: impl Iterator<Item = String>) -> Result<(), Failure> {
    let mut asked = Asked { card: &cards::H200, precision: None, batch: None, libraries: true };
    let mut chosen: Option<Case> = None;
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("`{argument}` needs a value"));
        match argument.as_str() {
            "--help" | "-h" => {
                print!("{HELP}\nNetworks: {}\n", CASES.map(|(name, _)| name).join(", "));
                return Ok(());
            }
            "--card" => {
                let name = value()?;
                let unknown = || format!("no card is called `{name}`; `cargo gpumem cards` lists them");
                asked.card = cards::find(&name).ok_or_else(unknown)?;
            }
            "--precision" => asked.precision = Some(precision(&value()?)?),
            "--batch" => {
                let batch = value()?.parse().ok().filter(|&batch: &u64| batch > 0);
                asked.batch = Some(batch.ok_or("`--batch` needs a number above 0")?);
            }
            "--no-libraries" => asked.libraries = false,
            name => {
                let case = CASES.into_iter().find(|(known, _)| *known == name);
                let known = CASES.map(|(name, _)| name).join(", ");
                chosen = Some(case.ok_or(format!("there is no network `{name}`; there are {known}"))?);
            }
        }
    }
    match chosen {
        Some((_, run)) => run(&asked),
        None => Err(format!("name a network: {}", CASES.map(|(name, _)| name).join(", ")).into()),
    }
}

fn precision(text: &str) -> Result<Precision, Failure> {
    Ok(match text {
        "f32" => Precision::F32,
        "bf16" => Precision::Bf16,
        "f16" => Precision::F16,
        "mixed-bf16" => Precision::Mixed(Half::Bf16),
        "mixed-f16" => Precision::Mixed(Half::F16),
        _ => {
            return Err(
                format!("there is no precision `{text}`; there are f32, bf16, f16, mixed-bf16, mixed-f16").into()
            );
        }
    })
}

fn run<N: Network>(asked: &Asked) -> Result<(), Failure> {
    let Asked { card, precision, batch, libraries } = *asked;
    let (placed, setting, budget) = planned::training::<N>(card, precision, batch, libraries)?;
    let rates = Rates::of(asked.card, setting.precision, setting.tf32)?;
    let all = launches(&placed, setting)?;
    for launch in &all {
        println!("{}", Value::Object(recorded::object(launch)));
    }
    let sum = |value: fn(&Counted) -> u64| all.iter().map(value).fold(0, u64::saturating_add);
    let roof: f64 = all.iter().map(|launch| rates.ms(launch.bytes(), launch.flops)).sum();
    let totals = json!({
        "network": N::NAME,
        "card": asked.card.slug,
        "batch": setting.batch,
        "precision": setting.precision.name(),
        "launches": all.len(),
        "bytes": sum(Counted::bytes),
        "flops": sum(|launch| launch.flops),
        "roof_ms": roof,
        "activations": budget[Line::Activations],
        "lower_bound": budget.lower_bound,
        "arena": budget[Line::Arena],
    });
    println!("{totals}");
    Ok(())
}
