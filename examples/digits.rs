//! Trains a small convolutional network on 1,797 handwritten digits, and shows what it needs of a card.
//!
//! ```text
//! cargo run --release --example digits --features rtx3060
//! cargo run --release --example digits --features cuda -- --device cuda
//! ```
//!
//! On two ranks, which share each step, in processes of their own or in one:
//!
//! ```text
//! GPUMEM_RANKS=2 cargo build --release --example digits --features mpi
//! mpirun -np 2 target/release/examples/digits
//! target/release/examples/digits --in-process
//! ```

mod shared;
#[path = "shared/threads.rs"]
mod threads;

use gpumem::prelude::*;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use shared::{Digit, shuffle};
use std::error::Error;
use std::process::ExitCode;

network! {
    /// Three convolutions and a linear layer on 8x8 images.
    pub struct Digits;

    const TRAIN: Train = Train {
        batch: 32,
        ranks: 1,
        optimizer: AdamW { lr: 2e-3, weight_decay: 0.01 },
        loss: CrossEntropy,
        seed: 7,
    };

    fn forward(image: Image<1, 8, 8>) -> Logits<10> {
        [conv(32), conv(32), MaxPool2d(2), conv(64), Flatten, Dropout(0.3), Linear(10)]
    }

    fn conv(channels: usize) -> Block {
        [Conv2d(channels, 3, padding = 1, bias = false), BatchNorm2d, Relu(inplace)]
    }
}

/// Samples of a step, on all ranks together and on each.
const BATCH: usize = Digits::TRAIN.batch;
const OWN_BATCH: usize = BATCH / Digits::TRAIN.ranks;
const EPOCHS: usize = 12;

fn main() -> ExitCode {
    shared::shown(run())
}

fn run() -> Result<(), Box<dyn Error>> {
    let ranks = Ranks::from_environment()?;
    if ranks.is_first() {
        println!("{}", gpumem::report::table::<Digits>());
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] | ["--device", "cpu"] => learn(&ranks, &gpumem::Cpu::on(&ranks)?),
        ["--in-process"] => threads::in_process(Digits::TRAIN.ranks, learn),
        #[cfg(feature = "cuda")]
        ["--device", "cuda"] => learn(&ranks, &gpumem::Cuda::new(0)?),
        #[cfg(not(feature = "cuda"))]
        ["--device", "cuda"] => Err("this was built without CUDA: add `--features cuda`".into()),
        _ => Err("expected nothing, `--device cpu`, `--device cuda` or `--in-process`".into()),
    }
}

fn learn<D: gpumem::Device>(ranks: &Ranks, device: &D) -> Result<(), Box<dyn Error>> {
    let samples = shared::digits()?;
    let held_back = samples.len() / 5;
    let (test, train) = samples.split_at(held_back);
    let mut train = train.to_vec();

    let mut net = Digits::on(device)?;

    let style = ProgressStyle::with_template("{bar:40} epoch {msg}  {elapsed}")?;
    let bar = ProgressBar::new((EPOCHS * (train.len() / BATCH)) as u64).with_style(style);
    if !ranks.is_first() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let mut loss = 0.0;
    for epoch in 0..EPOCHS {
        shuffle(&mut train, 2 + epoch as u64);
        // Half a cosine from the first learning rate to 0.
        let share = epoch as f64 / EPOCHS as f64;
        net.set_lr(2e-3 * 0.5 * (1.0 + (std::f64::consts::PI * share).cos()))?;
        let mut sum = 0.0;
        for batch in train.chunks_exact(BATCH) {
            let own = ranks.part(batch);
            sum += net.train_step(&images(own), &labels(own))?;
            bar.inc(1);
        }
        loss = sum / (train.len() / BATCH) as f32;
        bar.set_message(format!("{:>2} of {EPOCHS}, loss {loss:.4}", epoch + 1));
    }
    bar.finish();
    // All ranks have the same parameters, and passes without a step exchange nothing.
    if !ranks.is_first() {
        return Ok(());
    }
    if !ranks.is_alone() {
        println!("{} ranks, loss of the last epoch {loss}", ranks.count());
    }

    let mut confusion = [[0u32; 10]; 10];
    for batch in test.chunks(OWN_BATCH) {
        let logits = net.forward(&images(batch))?;
        for ((_, label), logits) in batch.iter().zip(logits.samples()) {
            let predicted = (0..10).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap_or(0);
            confusion[*label as usize][predicted] += 1;
        }
    }
    report(&confusion, test.len());
    Ok(())
}

/// The images of a batch; a batch that is too short is filled with blank ones.
fn images(batch: &[Digit]) -> <Digits as Network>::Input {
    Tensor::from_fn(|index| batch.get(index / 64).map_or(0.0, |(pixels, _)| pixels[index % 64]))
}

fn labels(batch: &[Digit]) -> <Digits as Network>::Target {
    Tensor::from_fn(|index| batch.get(index).map_or(0, |(_, label)| *label))
}

fn report(confusion: &[[u32; 10]; 10], count: usize) {
    println!("\nrows: digit, columns: prediction");
    println!("      {}", (0..10).map(|digit| format!("{digit:>4}")).collect::<String>());
    for (digit, row) in confusion.iter().enumerate() {
        println!("{digit:>4}  {}", row.iter().map(|count| format!("{count:>4}")).collect::<String>());
    }
    let right: u32 = (0..10).map(|digit| confusion[digit][digit]).sum();
    println!("\n{right} of {count} held-back digits right: {:.1} %", 100.0 * f64::from(right) / count as f64);
}
