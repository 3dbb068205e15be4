//! Trains a small U-Net to tell discs and squares from their background, pixel by pixel, and writes what it finds as images.
//!
//! ```text
//! cargo run --release --example unet
//! ```

mod grids;
mod shared;

use gpumem::prelude::*;
use indicatif::{ProgressBar, ProgressStyle};
use shared::{Random, warm_and_cosine};
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

network! {
    /// Two steps down and two up again, with what was seen on the way down beside what comes up.
    pub struct UNet;

    const TRAIN: Train = Train { batch: 8, optimizer: AdamW { lr: 4e-3 }, loss: CrossEntropy, seed: 9 };

    fn forward(image: Image<1, 32, 32>) -> Map<3, 32, 32> {
        [
            double(12), tap(whole), MaxPool2d(2),
            double(24), tap(half), MaxPool2d(2),
            double(48), ConvTranspose2d(24, 2, stride = 2),
            Concat([], from(half)), double(24), ConvTranspose2d(12, 2, stride = 2),
            Concat([], from(whole)), double(12), Conv2d(3, 1),
        ]
    }

    fn double(channels: usize) -> Block {
        repeat(2, [Conv2d(channels, 3, padding = 1, bias = false), BatchNorm2d, Relu(inplace)])
    }
}

const SIDE: usize = 32;
const STEPS: usize = 1000;

fn main() -> ExitCode {
    shared::on_the_best_device(run)
}

fn run(device: &gpumem::AnyDevice) -> Result<(), Box<dyn Error>> {
    let mut net = UNet::on(device)?;
    let mut random = Random::new(1);
    let bar = ProgressBar::new(STEPS as u64).with_style(ProgressStyle::with_template("{bar:40} {msg}  {elapsed}")?);
    for step in 0..STEPS {
        net.set_lr(4e-3 * warm_and_cosine(step, STEPS))?;
        let (images, classes) = batch(&mut random);
        let loss = net.train_step(&images, &classes)?;
        bar.inc(1);
        bar.set_message(format!("step {} of {STEPS}, loss {loss:.4}", step + 1));
    }
    bar.finish();

    // Of each class: pixels that are of it and were taken for it, and pixels that are either.
    let (mut both, mut either) = ([0u32; 3], [0u32; 3]);
    let mut shown = Vec::new();
    for _ in 0..8 {
        let (images, classes) = batch(&mut random);
        let scores = net.forward(&images)?;
        for ((image, classes), scores) in images.samples().zip(classes.samples()).zip(scores.samples()) {
            let found: Vec<u32> = (0..SIDE * SIDE).map(|pixel| best(scores, pixel)).collect();
            for class in 0..3 {
                let count = |is: &dyn Fn(bool, bool) -> bool| {
                    let pairs = classes.iter().zip(&found);
                    pairs.filter(|(wanted, found)| is(**wanted == class, **found == class)).count() as u32
                };
                both[class as usize] += count(&|wanted, found| wanted && found);
                either[class as usize] += count(&|wanted, found| wanted || found);
            }
            let grey = |classes: &[u32]| classes.iter().map(|class| *class as f32 / 2.0).collect::<Vec<f32>>();
            shown.extend([image.to_vec(), grey(classes), grey(&found)].concat());
        }
    }
    for (class, name) in ["background", "discs", "squares"].iter().enumerate() {
        println!("{name}: intersection over union {:.3}", f64::from(both[class]) / f64::from(either[class].max(1)));
    }
    let path = Path::new("target/unet.png");
    grids::write(path, &shown[..3 * 8 * SIDE * SIDE], [SIDE; 2], 3)?;
    println!("{}: images, what is in them, what was found", path.display());
    Ok(())
}

/// The class of the largest of a pixel's three scores.
fn best(scores: &[f32], pixel: usize) -> u32 {
    let score = |class: &u32| scores[*class as usize * SIDE * SIDE + pixel];
    (0..3).max_by(|a, b| score(a).total_cmp(&score(b))).unwrap_or(0)
}

/// Images with noise of discs and squares that are lighter or darker than their background, and the class of each pixel.
fn batch(random: &mut Random) -> (<UNet as Network>::Input, <UNet as Network>::Target) {
    let (mut pixels, mut classes) = (Tensor::zeros(), Tensor::zeros());
    for (image, kinds) in
        pixels.as_mut_slice().chunks_exact_mut(SIDE * SIDE).zip(classes.as_mut_slice().chunks_exact_mut(SIDE * SIDE))
    {
        let background = random.uniform();
        image.fill(background);
        for _ in 0..2 + random.below(3) {
            let (class, size) = (1 + random.below(2) as u32, 3 + random.below(5) as i32);
            let (row, column) = (random.below(SIDE) as i32, random.below(SIDE) as i32);
            // At least a fifth lighter or darker: beyond white it is black again.
            let shade = (background + 0.2 + 0.6 * random.uniform()).fract();
            for at in 0..SIDE * SIDE {
                let (down, right) = ((at / SIDE) as i32 - row, (at % SIDE) as i32 - column);
                let is_inside = match class {
                    1 => down * down + right * right <= size * size,
                    _ => down.abs() < size && right.abs() < size,
                };
                if is_inside {
                    (image[at], kinds[at]) = (shade, class);
                }
            }
        }
        image.iter_mut().for_each(|pixel| *pixel += 0.05 * random.normal());
    }
    (pixels, classes)
}
