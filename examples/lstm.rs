//! Trains an LSTM on the adding problem: of forty numbers two are marked, and their sum is asked for at the end.
//!
//! S. Hochreiter and J. Schmidhuber, "Long Short-Term Memory", 1997, section 5.4. Who always says 1 is off by 1/6 in the mean
//! of squares; to do better, a network has to keep a number over many steps.
//!
//! ```text
//! cargo run --release --example lstm
//! ```

mod shared;

use gpumem::prelude::*;
use indicatif::{ProgressBar, ProgressStyle};
use shared::{Random, warm_and_cosine};
use std::error::Error;
use std::process::ExitCode;

network! {
    /// Reads a number and its mark in each step, and says the sum after the last.
    pub struct Adder;

    const TRAIN: Train = Train { batch: 64, optimizer: Adam { lr: 5e-3 }, loss: Mse, seed: 3 };

    fn forward(numbers: Sequence<40, 2>) -> Features<1> { [Lstm(48), Select(-1), Linear(1)] }
}

const STEPS: usize = 3000;
/// Numbers of a sequence, as in the network.
const LENGTH: usize = 40;

fn main() -> ExitCode {
    shared::on_the_best_device(run)
}

fn run(device: &gpumem::AnyDevice) -> Result<(), Box<dyn Error>> {
    let mut net = Adder::on(device)?;
    let mut random = Random::new(4);
    let bar = ProgressBar::new(STEPS as u64).with_style(ProgressStyle::with_template("{bar:40} {msg}  {elapsed}")?);
    for step in 0..STEPS {
        net.set_lr(5e-3 * warm_and_cosine(step, STEPS))?;
        let (numbers, sums) = batch(&mut random);
        let loss = net.train_step(&numbers, &sums)?;
        bar.inc(1);
        bar.set_message(format!("step {} of {STEPS}, loss {loss:.4}", step + 1));
    }
    bar.finish();

    let (mut squares, batches) = (0.0, 16);
    for _ in 0..batches {
        let (numbers, sums) = batch(&mut random);
        squares += net.eval_loss(&numbers, &sums)?;
    }
    println!("mean of squared errors: {:.5}, and {:.5} of who always says 1", squares / batches as f32, 1.0 / 6.0);
    let (numbers, sums) = batch(&mut random);
    let found = net.forward(&numbers)?;
    for ((numbers, sum), found) in numbers.samples().zip(sums.samples()).zip(found.samples()).take(5) {
        let marked: Vec<f32> = numbers.chunks_exact(2).filter(|pair| pair[1] > 0.0).map(|pair| pair[0]).collect();
        println!("{:.3} + {:.3} = {:.3}, found {:.3}", marked[0], marked[1], sum[0], found[0]);
    }
    Ok(())
}

/// Numbers from 0 to 1, of which one in the first half and one in the second half are marked, and the sums of those.
fn batch(random: &mut Random) -> (<Adder as Network>::Input, <Adder as Network>::Target) {
    let (mut numbers, mut sums) = (Tensor::zeros(), Tensor::zeros());
    for (pairs, sum) in numbers.as_mut_slice().chunks_exact_mut(2 * LENGTH).zip(sums.as_mut_slice()) {
        pairs.chunks_exact_mut(2).for_each(|pair| pair[0] = random.uniform());
        for at in [random.below(LENGTH / 2), LENGTH / 2 + random.below(LENGTH / 2)] {
            pairs[2 * at + 1] = 1.0;
            *sum += pairs[2 * at];
        }
    }
    (numbers, sums)
}
