//! Trains a small convolutional network on a folder of images by class, with validation, progress, checkpoints and logs. Stop it with Ctrl-C,
//! and start it again with the same folder: it goes on where it was.
//!
//! ```text
//! cargo run --release --example image_folder --features train
//! cargo run --release --example image_folder --features train -- FOLDER
//! ```
//!
//! `FOLDER` takes the images, which are drawn if they are not there yet, the checkpoints and the log. Without it, it is a temporary one.

use gpumem::data::sets::ImageFolder;
use gpumem::data::{LoaderOf, Transforms};
use gpumem::prelude::*;
use gpumem::train::log::JsonLines;
use gpumem::train::metrics::{Accuracy, ConfusionMatrix};
use gpumem::train::{Every, Trainer};
use std::error::Error;
use std::path::{Path, PathBuf};

network! {
    /// Three convolutions on pictures of 32 x 32 pixels.
    pub struct Shapes;

    const TRAIN: Train = Train { batch: 32, optimizer: AdamW { lr: 2e-3 }, loss: CrossEntropy { ignore_index: -100 } };

    fn forward(image: Images<u8, 3, 32, 32>) -> Logits<3> {
        [Normalize, conv(16), MaxPool2d(2), conv(32), MaxPool2d(2), conv(32), MaxPool2d(2), Flatten, Linear(3)]
    }

    fn conv(channels: usize) -> Block {
        [Conv2d(channels, 3, padding = 1, bias = false), BatchNorm2d, Relu]
    }
}

fn train(folder: &Path) -> Result<(), Box<dyn Error>> {
    let device = gpumem::default_device()?;
    let mut net = Shapes::on(&device)?;
    let flips = Transforms::new().random_horizontal_flip(0.5);
    let set = ImageFolder::open(folder.join("train"))?.transforms(flips);
    let mut loader = LoaderOf::<Shapes>::new(set).shuffle().seed(1);
    Trainer::new(&mut net)
        .epochs(8)
        .validate(ImageFolder::open(folder.join("val"))?)
        .metrics(Accuracy::new())
        .metrics(ConfusionMatrix::new())
        .log(JsonLines::new(folder.join("log.jsonl")))
        .checkpoint(folder.join("states"), Every::Epoch)
        .keep(2)
        .best_by("val_accuracy")
        .resume_if_any()
        .run(&mut loader)?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let temporary = tempfile::tempdir()?;
    let folder = std::env::args_os().nth(1).map_or(temporary.path().to_path_buf(), PathBuf::from);
    if !folder.join("train").exists() {
        draw(&folder.join("val"), 60, 1)?;
        draw(&folder.join("train"), 300, 2)?;
    }
    train(&folder)
}

/// True if a point is inside a shape, whose middle is 0 and whose radius is 1.
type Inside = fn(f64, f64) -> bool;

/// Draws `count` pictures of each class: a disc, a square or a triangle of any size, place and colour, with noise.
fn draw(folder: &Path, count: usize, seed: u64) -> Result<(), Box<dyn Error>> {
    let inside: [(&str, Inside); 3] = [
        ("disc", |x, y| x * x + y * y < 1.0),
        ("square", |x, y| x.abs().max(y.abs()) < 0.9),
        ("triangle", |x, y| y < 0.8 && y > 2.0 * x.abs() - 1.0),
    ];
    for (class, (name, inside)) in inside.into_iter().enumerate() {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder)?;
        for number in 0..count {
            let mut draw = gpumem::data::Draw::new(seed, class as u64, number);
            let [radius, x, y] =
                [(5.0, 9.0), (11.0, 21.0), (11.0, 21.0)].map(|(from, to)| from + (to - from) * draw.uniform());
            // Red, green and blue of a bright shape, and of a dark ground.
            let colors: [f64; 6] =
                std::array::from_fn(|color| 70.0 * draw.uniform() + if color < 3 { 130.0 } else { 0.0 });
            let mut pixels = Vec::with_capacity(32 * 32 * 3);
            for place in 0..32 * 32 {
                let (column, row) = (f64::from(place % 32), f64::from(place / 32));
                let is_inside = inside((column - x) / radius, (row - y) / radius);
                let color = if is_inside { &colors[..3] } else { &colors[3..] };
                pixels.extend(color.iter().map(|&color| (color + 55.0 * draw.uniform()) as u8));
            }
            let file = std::fs::File::create(folder.join(format!("{number}.png")))?;
            let mut encoder = png::Encoder::new(file, 32, 32);
            encoder.set_color(png::ColorType::Rgb);
            encoder.write_header()?.write_image_data(&pixels)?;
        }
    }
    Ok(())
}
