//! Trains two adversaries on handwritten digits, one that draws and one that judges, and writes an image of digits that nobody wrote.
//!
//! Both are parts of one network, in one arena: each has a training step of its own.
//!
//! ```text
//! cargo run --release --example gan
//! ```

mod grids;
mod shared;

use gpumem::prelude::*;
use indicatif::{ProgressBar, ProgressStyle};
use shared::{Digit, Random, shuffle};
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

network! {
    /// A deep convolutional GAN for 8x8 images.
    pub struct Gan;

    // Drawings are kept out of this step's gradients, as with `fake.detach()`. Real images count as real by 90 %.
    const CRITIC: Train = Train {
        batch: 64,
        trains: "critic*",
        optimizer: Adam { lr: 4e-4, betas: (0.5, 0.999) },
        loss: BceWithLogits(from = on_real, target = real) + BceWithLogits(from = on_fake, target = fake),
        seed: 5,
    };
    // The gradient passes through the critic, which stays as it is.
    const GENERATOR: Train = Train {
        batch: 64,
        trains: "generator*",
        optimizer: Adam { lr: 8e-4, betas: (0.5, 0.999) },
        loss: BceWithLogits(from = on_fake, target = real),
    };

    fn forward(noise: Features<16>, image: Image<1, 8, 8>) -> Map<1, 8, 8> {
        let critic = discriminator();
        [
            from(noise), generator(), tap(drawing), critic, tap(on_fake),
            from(image), critic, tap(on_real),
            from(drawing),
        ]
    }

    fn generator() -> Block {
        [
            Linear(256, bias = false), Reshape(64, 2, 2), BatchNorm2d, Relu,
            ConvTranspose2d(32, 4, stride = 2, padding = 1, bias = false), BatchNorm2d, Relu,
            ConvTranspose2d(1, 4, stride = 2, padding = 1), Tanh,
        ]
    }

    fn discriminator() -> Block {
        [
            Conv2d(32, 3, stride = 2, padding = 1), LeakyRelu(0.2), Dropout(0.2),
            Conv2d(64, 3, stride = 2, padding = 1), LeakyRelu(0.2), Dropout(0.2),
            Flatten, Linear(1),
        ]
    }
}

const BATCH: usize = Gan::CRITIC.batch;
const EPOCHS: usize = 100;

fn main() -> ExitCode {
    shared::on_the_best_device(run)
}

fn run(device: &gpumem::AnyDevice) -> Result<(), Box<dyn Error>> {
    println!("{}", gpumem::report::table::<Gan>());
    let mut digits = shared::digits()?;
    let mut net = Gan::on(device)?;
    let mut random = Random::new(6);
    let (real, fake) = (Tensor::from_fn(|_| 0.9), Tensor::zeros());

    let steps = EPOCHS * (digits.len() / BATCH);
    let bar = ProgressBar::new(steps as u64).with_style(ProgressStyle::with_template("{bar:40} {msg}  {elapsed}")?);
    for epoch in 0..EPOCHS {
        shuffle(&mut digits, 2 + epoch as u64);
        for batch in digits.chunks_exact(BATCH) {
            let (noise, images) = (Tensor::from_fn(|_| random.normal()), images(batch));
            let judged = Gan::critic(&mut net).train_step((&noise, &images), (&real, &fake))?;
            let drawn = Gan::generator(&mut net).train_step(&noise, &real)?;
            bar.inc(1);
            bar.set_message(format!("epoch {} of {EPOCHS}, critic {judged:.3}, generator {drawn:.3}", epoch + 1));
        }
    }
    bar.finish();

    let drawn = net.forward(&Tensor::from_fn(|_| random.normal()))?;
    let pixels: Vec<f32> = drawn.as_slice().iter().map(|pixel| 0.5 + 0.5 * pixel).collect();
    let path = Path::new("target/gan.png");
    grids::write(path, &pixels, [8, 8], 8)?;
    println!("{}: 64 drawings", path.display());
    Ok(())
}

/// Pixels from -1 to 1, as `Tanh` draws them.
fn images(digits: &[Digit]) -> Tensor<f32, (D<BATCH>, D<1>, D<8>, D<8>)> {
    Tensor::from_fn(|index| 2.0 * digits[index / 64].0[index % 64] - 1.0)
}
