//! Trains a small vision transformer on 1,797 handwritten digits.
//!
//! ```text
//! cargo run --release --example vit
//! ```

mod shared;

use gpumem::prelude::*;
use indicatif::{ProgressBar, ProgressStyle};
use shared::{Digit, shuffle, warm_and_cosine};
use std::error::Error;
use std::process::ExitCode;

network! {
    /// Four blocks over sixteen patches of 2 x 2 pixels, and a token that collects what is said of the class.
    pub struct Vit;

    const TRAIN: Train = Train {
        batch: 32,
        optimizer: AdamW { lr: 2e-3, weight_decay: 0.05, groups: [Group { paths: "*.bias, *norm*", weight_decay: 0.0 }] },
        loss: CrossEntropy { label_smoothing: 0.1 },
        seed: 7,
    };

    fn forward(image: Image<1, 8, 8>) -> Logits<10> {
        [
            Conv2d(64, 2, stride = 2), Reshape(64, 16), Transpose(1, 2), ClassToken, Add([], PositionEmbedding(17)),
            repeat(4, block(64)),
            LayerNorm, Select(0), Linear(10),
        ]
    }

    fn block(width: usize) -> Block {
        [
            Add([], [LayerNorm, MultiHeadAttention(4), DropPath(0.1)]),
            Add([], [LayerNorm, Linear(2 * width), Gelu, Linear(width), DropPath(0.1)]),
        ]
    }
}

const BATCH: usize = Vit::TRAIN.batch;
const EPOCHS: usize = 20;

fn main() -> ExitCode {
    shared::on_the_best_device(run)
}

fn run(device: &gpumem::AnyDevice) -> Result<(), Box<dyn Error>> {
    let digits = shared::digits()?;
    let (test, train) = digits.split_at(digits.len() / 5);
    let mut train = train.to_vec();
    let mut net = Vit::on(device)?;

    let steps = EPOCHS * (train.len() / BATCH);
    let bar = ProgressBar::new(steps as u64).with_style(ProgressStyle::with_template("{bar:40} {msg}  {elapsed}")?);
    for epoch in 0..EPOCHS {
        shuffle(&mut train, 2 + epoch as u64);
        for batch in train.chunks_exact(BATCH) {
            net.set_lr(2e-3 * warm_and_cosine(bar.position() as usize, steps))?;
            let (images, _) = images(batch)?;
            let loss = net.train_step(&images, &Tensor::from_fn(|index| batch[index].1))?;
            bar.inc(1);
            bar.set_message(format!("epoch {} of {EPOCHS}, loss {loss:.3}", epoch + 1));
        }
    }
    bar.finish();

    let mut right = 0;
    for batch in test.chunks(BATCH) {
        let (images, count) = images(batch)?;
        let classes = net.forward(&images)?.argmax();
        right += batch.iter().zip(&classes[..count]).filter(|((_, label), class)| *label as usize == **class).count();
    }
    println!("{right} of {} held-back digits right: {:.1} %", test.len(), 100.0 * right as f64 / test.len() as f64);
    Ok(())
}

/// The images of a batch, and how many there are; a batch that is too short is filled with blank ones.
fn images(batch: &[Digit]) -> Result<(<Vit as Network>::Input, usize), gpumem::Error> {
    Tensor::from_samples(batch.iter().map(|(pixels, _)| pixels))
}
