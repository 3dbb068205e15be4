//! Trains a variational autoencoder on handwritten digits, and writes an image of digits that nobody wrote.
//!
//! ```text
//! cargo run --release --example vae
//! ```

mod grids;
mod shared;

use gpumem::prelude::*;
use indicatif::{ProgressBar, ProgressStyle};
use shared::{Digit, Random, shuffle, warm_and_cosine};
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

blocks! {
    /// What the network that learns and the one that draws have in common.
    pub mod drawing {
        fn decoder() -> Block {
            [Linear(128, name = "decode1"), Relu, Linear(128, name = "decode2"), Relu, Linear(64, name = "pixels")]
        }
    }
}

network! {
    /// Describes an image by the means and variances of eight numbers, draws them, and makes an image of them.
    pub struct Vae;

    use blocks drawing;

    // The evidence lower bound of an image over its 64 pixels: their cross entropy, and the divergence of its 8 numbers.
    const TRAIN: Train = Train {
        batch: 64,
        optimizer: Adam { lr: 3e-3 },
        loss: BceWithLogits + 0.125 * Mean(from = divergence),
        seed: 5,
    };

    fn forward(image: Features<64>, noise: Features<8>) -> Features<64> {
        [
            from(image), Linear(128), Relu, Linear(128), Relu, tap(seen),
            Linear(8, name = "mean"), tap(mean),
            from(seen), Linear(8, name = "log_variance"), tap(log_variance),
            // From the standard normal distribution: (mean^2 + variance - 1 - log(variance)) / 2
            Add([from(mean), Pow(2.0)], [Sub(Exp, []), Affine(1.0, -1.0)]), Affine(0.5), tap(divergence),
            Add(from(mean), Mul([from(log_variance), Affine(0.5), Exp], from(noise))),
            decoder(),
        ]
    }
}

network! {
    /// The half of it that makes images.
    pub struct Decoder;

    use blocks drawing;

    const INFER: Infer = Infer { batch: 64 };

    fn forward(numbers: Features<8>) -> Features<64> { [decoder(), Sigmoid] }
}

const BATCH: usize = Vae::TRAIN.batch;
const EPOCHS: usize = 200;

fn main() -> ExitCode {
    shared::on_the_best_device(run)
}

fn run(device: &gpumem::AnyDevice) -> Result<(), Box<dyn Error>> {
    let mut digits = shared::digits()?;
    let test = digits.split_off(digits.len() / 5 * 4);
    let mut net = Vae::on(device)?;
    let mut random = Random::new(6);

    let steps = EPOCHS * (digits.len() / BATCH);
    let bar = ProgressBar::new(steps as u64).with_style(ProgressStyle::with_template("{bar:40} {msg}  {elapsed}")?);
    for epoch in 0..EPOCHS {
        shuffle(&mut digits, 2 + epoch as u64);
        for batch in digits.chunks_exact(BATCH) {
            net.set_lr(3e-3 * warm_and_cosine(bar.position() as usize, steps))?;
            let images = images(batch)?;
            let noise = Tensor::from_fn(|_| random.normal());
            let loss = net.train_step((&images, &noise), &images)?;
            bar.inc(1);
            bar.set_message(format!("epoch {} of {EPOCHS}, loss {loss:.4}", epoch + 1));
        }
    }
    bar.finish();

    let (mut sum, mut batches) = (0.0, 0);
    for batch in test.chunks_exact(BATCH) {
        let images = images(batch)?;
        sum += net.eval_loss((&images, &Tensor::from_fn(|_| random.normal())), &images)?;
        batches += 1;
    }
    println!("held-back images: {:.4} nats a pixel", sum / batches as f32);

    let mut decoder = Decoder::on(device)?;
    decoder.copy_from(&mut net)?;
    let drawn = decoder.infer(&Tensor::from_fn(|_| random.normal()))?;
    let path = Path::new("target/vae.png");
    grids::write(path, drawn.as_slice(), [8, 8], 8)?;
    println!("{}: 64 images of numbers from the normal distribution", path.display());
    Ok(())
}

fn images(digits: &[Digit]) -> Result<<Vae as Network>::Target, gpumem::Error> {
    Ok(Tensor::from_samples(digits.iter().map(|(pixels, _)| pixels))?.0)
}
