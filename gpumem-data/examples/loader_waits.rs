//! Measures how long a training on the CPU waits for data: a small network of digits, and ResNet-18 on images of 64 x 64 pixels.
//!
//! ```text
//! cargo run --release -p gpumem-data --example loader_speed -- make FOLDER
//! cargo run --release -p gpumem-data --example loader_waits -- FOLDER [WORKERS]
//! ```
//!
//! Digits come from an IDX file in a temporary folder, images from FOLDER with `random_resized_crop(64)` and a flip. The first steps, while
//! the workers begin, do not count.

use gpumem::prelude::*;
use gpumem_data::sets::{Array, Arrays, ImageFolder};
use gpumem_data::{Dataset, LoaderOf, Transforms};
use std::error::Error;
use std::time::{Duration, Instant};

network! {
    pub struct Digits;

    const TRAIN: Train = Train { batch: 64, optimizer: AdamW { lr: 1e-3 }, loss: CrossEntropy };

    fn forward(image: Images<u8, 1, 28, 28>) -> Logits<10> {
        [
            Normalize((0.13), (0.31)),
            Conv2d(16, 3, padding = 1), Relu, MaxPool2d(2),
            Conv2d(32, 3, padding = 1), Relu, MaxPool2d(2),
            Flatten, Linear(128), Relu, Linear(10),
        ]
    }
}

network! {
    pub struct ResNet18;

    const TRAIN: Train = Train { batch: 16, optimizer: Sgd { lr: 0.01, momentum: 0.9 }, loss: CrossEntropy };

    fn forward(image: Images<u8, 3, 64, 64>) -> Logits<10> {
        [
            Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            Conv2d(64, 7, stride = 2, padding = 3, bias = false), BatchNorm2d, Relu(inplace), MaxPool2d(3, stride = 2, padding = 1),
            repeat(2, basic(64, 1)),
            basic(128, 2), basic(128, 1),
            basic(256, 2), basic(256, 1),
            basic(512, 2), basic(512, 1),
            GlobalAvgPool, Linear(10),
        ]
    }

    fn basic(channels: usize, stride: usize) -> Block {
        [
            Add(
                [
                    Conv2d(channels, 3, stride = stride, padding = 1, bias = false), BatchNorm2d, Relu(inplace),
                    Conv2d(channels, 3, padding = 1, bias = false), BatchNorm2d,
                ],
                if stride != 1 { [Conv2d(channels, 1, stride = stride, bias = false), BatchNorm2d] } else { [] },
            ),
            Relu(inplace),
        ]
    }
}

/// Trains for about `seconds`, and prints the share of the time for which the training waited.
macro_rules! train {
    ($net:ty, $set:expr, $workers:expr, $seconds:expr) => {{
        let mut net = <$net>::on(&gpumem::default_device()?)?;
        let mut loader = LoaderOf::<$net>::new($set).shuffle().drop_last().workers($workers);
        let (mut start, mut before, mut steps) = (Instant::now(), Duration::ZERO, 0);
        // The steps of the first epoch do not count.
        for _ in loader.epoch()?.take(4) {}
        'all: for number in 0.. {
            for batch in loader.epoch()? {
                let batch = batch?;
                net.train_step(&batch.input, &batch.target)?;
                steps += 1;
                if number > 0 && start.elapsed() > Duration::from_secs($seconds) {
                    break 'all;
                }
            }
            if number == 0 {
                (start, before, steps) = (Instant::now(), loader.waited(), 0);
            }
        }
        let (whole, waited) = (start.elapsed().as_secs_f64(), (loader.waited() - before).as_secs_f64());
        println!(
            "{}: {steps} steps in {whole:.1} s, waited {waited:.3} s for data: {:.2} % of the time, {:.0} us a step",
            stringify!($net),
            100.0 * waited / whole,
            1e6 * waited / steps as f64
        );
    }};
}

/// Returns images of 28 x 28 pixels with their labels, read from a file.
fn digits(folder: &std::path::Path) -> Result<impl Dataset, Box<dyn Error>> {
    const COUNT: usize = 12_800;
    let header = |dims: &[usize]| {
        let sizes = dims.iter().flat_map(|&dim| (dim as u32).to_be_bytes());
        [0, 0, 8, dims.len() as u8].into_iter().chain(sizes).collect::<Vec<u8>>()
    };
    let pixels = (0..COUNT * 784).map(|index| (index * 7 % 251) as u8);
    let (images, labels) = (folder.join("images"), folder.join("labels"));
    std::fs::write(&images, header(&[COUNT, 28, 28]).into_iter().chain(pixels).collect::<Vec<u8>>())?;
    let classes = (0..COUNT).map(|index| (index % 10) as u8);
    std::fs::write(&labels, header(&[COUNT]).into_iter().chain(classes).collect::<Vec<u8>>())?;
    Ok(Arrays::new([Array::idx(images)?], [Array::idx(labels)?])?.classes(10))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let folder = words.next().ok_or("give a folder of images")?;
    let workers = words.next().map_or(Ok(1), |word| word.parse())?;
    let temporary = tempfile::tempdir()?;
    train!(Digits, digits(temporary.path())?, workers, 20);
    let transforms = Transforms::new().random_resized_crop(64).random_horizontal_flip(0.5);
    train!(ResNet18, ImageFolder::open(&folder)?.transforms(transforms), workers, 30);
    Ok(())
}
