//! Measures how many samples a second the loader reads from a folder of images, and makes such a folder.
//!
//! ```text
//! cargo run --release -p gpumem-data --example loader_speed -- make FOLDER [IMAGES]
//! cargo run --release -p gpumem-data --example loader_speed -- FOLDER [WORKERS] [EPOCHS]
//! ```
//!
//! The second command reads the images in batches of 32 with `random_resized_crop(224)` and `random_horizontal_flip(0.5)`, and prints the
//! samples a second of each epoch, without those of a first one. `scripts/loader_speed.py` compares them with PyTorch's `DataLoader`.

use gpumem::{D, Tensor};
use gpumem_data::sets::ImageFolder;
use gpumem_data::{Dataset, Loader, Transforms};
use std::error::Error;
use std::path::Path;
use std::time::Instant;

type Images = Tensor<u8, (D<32>, D<3>, D<224>, D<224>)>;
type Labels = Tensor<u32, (D<32>,)>;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, usual: usize| words.get(index).map_or(Ok(usual), |word| word.parse());
    match words.first().map(String::as_str) {
        Some("make") if words.len() > 1 => make(Path::new(&words[1]), number(2, 600)?),
        Some(folder) if folder != "make" => measure(Path::new(folder), number(1, 2)?, number(2, 3)?),
        _ => Err("give a folder, or `make` and a folder".into()),
    }
}

/// Writes PNGs of 256 x 256 pixels in 10 classes: waves with some noise, which are packed to about half of their pixels.
fn make(folder: &Path, images: usize) -> Result<(), Box<dyn Error>> {
    for number in 0..images {
        let mut state = number as u32 * 747_796_405 + 1;
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 29) as f32
        };
        let phase = number as f32;
        let image = image::RgbImage::from_fn(256, 256, |x, y| {
            let wave =
                |slope: f32| 110.0 + 100.0 * ((x as f32 * slope + phase).sin() * (y as f32 / 37.0 + phase).cos());
            image::Rgb([1.0 / 40.0, 1.0 / 31.0, 1.0 / 23.0].map(|slope| (wave(slope) + noise()) as u8))
        });
        let class = folder.join(format!("class{}", number % 10));
        std::fs::create_dir_all(&class)?;
        image.save(class.join(format!("{number:05}.png")))?;
    }
    Ok(())
}

fn measure(folder: &Path, workers: usize, epochs: usize) -> Result<(), Box<dyn Error>> {
    let transforms = Transforms::new().random_resized_crop(224).random_horizontal_flip(0.5);
    let set = ImageFolder::open(folder)?.transforms(transforms);
    let samples = set.len();
    let mut loader = Loader::<Images, Labels>::new(set).shuffle().workers(workers);
    for epoch in 0..=epochs {
        let start = Instant::now();
        let mut sum = 0;
        for batch in loader.epoch()? {
            sum += batch?.len;
        }
        assert_eq!(sum, samples);
        if epoch > 0 {
            println!("{:.1}", samples as f64 / start.elapsed().as_secs_f64());
        }
    }
    Ok(())
}
