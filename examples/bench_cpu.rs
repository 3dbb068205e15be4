//! Steps on the CPU, as many at a time as asked for. `scripts/compare_cpu.py` runs it in turn with other libraries.
//!
//! ```text
//! cargo build --release --example bench_cpu
//! echo 20 | target/release/examples/bench_cpu resnet18 --threads 1
//! ```
//!
//! It says `ready` once it has made a few steps; then it reads a number of steps from each line of the standard input, makes
//! them, and answers with a line of JSON: `seconds` of all of them together, by the wall's clock, and the last `value`, a loss
//! or a logit.

#[path = "digits.rs"]
#[allow(dead_code, reason = "the example's network is used, not its program")]
mod digits;
#[macro_use]
mod networks;

use digits::Digits;
use gpumem::{Cpu, Error, Net, Network, Trains};
use networks::Synthetic;
use serde_json::json;
use std::io::{BufRead, Write};
use std::time::Instant;

gpumem::network! {
    /// A perceptron of two hidden layers.
    pub struct Perceptron;

    const TRAIN: Train = Train { batch: 64, optimizer: Sgd { lr: 0.01, momentum: 0.9 }, loss: CrossEntropy };

    fn forward(features: Features<784>) -> Logits<10> {
        [Linear(512), Relu, Linear(512), Relu, Linear(10)]
    }
}

gpumem::network! {
    /// torchvision's `resnet18`, on images of 64 x 64 with ten classes.
    pub struct ResNet18<const BATCH: usize>;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.01, momentum: 0.9, weight_decay: 1e-4 },
        loss: CrossEntropy,
    };

    fn forward(image: Image<3, 64, 64>) -> Logits<10> {
        [
            Conv2d(64, 7, stride = 2, padding = 3, bias = false), BatchNorm2d, Relu(inplace),
            MaxPool2d(3, stride = 2, padding = 1),
            basic(64, 1, false), basic(64, 1, false), basic(128, 2, true), basic(128, 1, false),
            basic(256, 2, true), basic(256, 1, false), basic(512, 2, true), basic(512, 1, false),
            AdaptiveAvgPool2d(1), Flatten, Linear(10),
        ]
    }

    fn basic(width: usize, stride: usize, project: bool) -> Block {
        [
            Add(
                [
                    Conv2d(width, 3, stride = stride, padding = 1, bias = false), BatchNorm2d, Relu(inplace),
                    Conv2d(width, 3, padding = 1, bias = false), BatchNorm2d,
                ],
                if project { [Conv2d(width, 1, stride = stride, bias = false), BatchNorm2d] } else { [] },
            ),
            Relu(inplace),
        ]
    }
}

gpumem::network! {
    /// A GPT of four blocks.
    pub struct Gpt;

    const TRAIN: Train = Train {
        batch: 4,
        optimizer: AdamW { lr: 6e-4, betas: (0.9, 0.95), weight_decay: 0.1 },
        loss: CrossEntropy,
    };

    fn forward(tokens: Tokens<128>) -> TokenLogits<128, 512> {
        [
            Add(Embedding(512, 256), PositionEmbedding(128, 256)),
            repeat(4, block(256, 8)), LayerNorm, Linear(512, bias = false),
        ]
    }

    fn block(width: usize, heads: usize) -> Block {
        [
            Add([], [LayerNorm, CausalSelfAttention(heads)]),
            Add([], [LayerNorm, Linear(4 * width), Gelu(approximate = "tanh"), Linear(width)]),
        ]
    }
}

type Failure = Box<dyn std::error::Error>;

/// What is measured, by its name on the command line.
type Case = (&'static str, fn(&Cpu) -> Result<(), Failure>);

const CASES: [Case; 5] = [
    ("digits", |cpu| train::<Digits>(cpu, 10)),
    ("mlp", |cpu| train::<Perceptron>(cpu, 10)),
    ("resnet18", |cpu| train::<ResNet18<8>>(cpu, 10)),
    ("resnet18-inference", infer),
    ("gpt", |cpu| train::<Gpt>(cpu, 512)),
];

fn main() -> Result<(), Failure> {
    let usage = || {
        let names = CASES.map(|(name, _)| name).join(", ");
        format!("give one of {names}, and maybe `--threads` with a number")
    };
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (name, threads) = match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [name] => (*name, 1),
        [name, "--threads", threads] => (*name, threads.parse()?),
        _ => return Err(usage().into()),
    };
    let (_, run) = CASES.iter().find(|(known, _)| *known == name).ok_or_else(usage)?;
    run(&Cpu::with_threads(threads)?)
}

/// Training steps, each with its batch handed over and its loss waited for.
fn train<N: Trains>(cpu: &Cpu, limit: u32) -> Result<(), Failure>
where
    N::Input: Synthetic,
    N::Target: Synthetic,
{
    let mut net = Net::<N, Cpu>::load(cpu)?;
    let (input, target) = (N::Input::synthetic(limit, 0), N::Target::synthetic(limit, 1));
    answer(|| net.train_step(&input, &target))
}

/// Forward passes of one image.
fn infer(cpu: &Cpu) -> Result<(), Failure> {
    let mut net = ResNet18::<1>::on(cpu)?;
    let input = <ResNet18<1> as Network>::Input::synthetic(0, 0);
    answer(|| net.forward(&input).map(|logits| logits.as_slice()[0]))
}

/// Makes a few steps, and then as many as each line of the standard input says.
fn answer(mut step: impl FnMut() -> Result<f32, Error>) -> Result<(), Failure> {
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
        writeln!(out, "{}", json!({ "seconds": start.elapsed().as_secs_f64(), "value": value }))?;
        out.flush()?;
    }
    Ok(())
}
