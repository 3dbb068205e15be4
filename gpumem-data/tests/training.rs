//! From a folder of images to a network that is trained: the loader's batches are what a network takes.
#![cfg(feature = "image")]

use gpumem::prelude::*;
use gpumem::{Cpu, Net};
use gpumem_data::sets::ImageFolder;
use gpumem_data::{IGNORED, LoaderOf, Position, Transforms};
use image::{Rgb, RgbImage};
use std::path::Path;

network! {
    /// Bytes of images, which a layer makes numbers of.
    pub struct Small<const BATCH: usize>;

    const TRAIN: Train = Train {
        batch: BATCH, optimizer: Sgd { lr: 0.2 }, loss: CrossEntropy { ignore_index: -100 }, seed: 3,
    };

    fn forward(image: Images<u8, 3, 8, 8>) -> Logits<2> {
        [
            Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            Conv2d(4, 3, padding = 1), Relu, MaxPool2d(2), Flatten, Linear(2),
        ]
    }
}

type Whole = Small<4>;
type Rest = Small<2>;

/// The parameters of a network, by name.
macro_rules! parameters {
    ($net:expr) => {{
        let names: Vec<String> = $net.names().map(String::from).collect();
        names.into_iter().map(|name| (name.clone(), $net.get(&name).unwrap())).collect::<Vec<_>>()
    }};
}

/// Ten images of 10 x 9 pixels: red ones and blue ones.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..10_u8 {
        let color = |x: u32, y: u32| match number % 2 {
            0 => [200 + x as u8, 10 * y as u8, 20 * number],
            _ => [20 * number, 10 * x as u8, 200 + y as u8],
        };
        let class = folder.path().join(["blue", "red"][usize::from(number % 2 == 0)]);
        std::fs::create_dir_all(&class).unwrap();
        RgbImage::from_fn(10, 9, |x, y| Rgb(color(x, y))).save(class.join(format!("{number}.png"))).unwrap();
    }
    folder
}

fn set(folder: &Path) -> ImageFolder {
    let transforms = Transforms::new().random_crop(8, 1).random_horizontal_flip(0.5);
    ImageFolder::open(folder).unwrap().transforms(transforms)
}

fn whole() -> Net<Whole, Cpu> {
    Whole::on(&Cpu::new()).unwrap()
}

/// A network of another batch with the parameters of `net`.
fn rest(net: &mut Net<Whole, Cpu>) -> Net<Rest, Cpu> {
    let mut rest = Rest::on(&Cpu::new()).unwrap();
    for (name, values) in parameters!(net) {
        rest.set(&name, &values).unwrap();
    }
    rest
}

#[test]
fn a_network_learns_from_a_folder_without_incomplete_batches() {
    let folder = folder();
    let mut net = whole();
    let mut loader = LoaderOf::<Whole>::new(set(folder.path())).shuffle().seed(1).workers(2).drop_last();
    let mut losses = Vec::new();
    for _ in 0..2 {
        for batch in loader.epoch().unwrap() {
            let batch = batch.unwrap();
            assert_eq!(batch.len, 4);
            losses.push(net.train_step(&batch.input, &batch.target).unwrap());
        }
    }
    assert_eq!((losses.len(), loader.position()), (4, Position { epoch: 2, sample: 0 }));
    assert!(losses.iter().all(|loss| loss.is_finite()) && losses[3] < 0.75 * losses[0], "{losses:?}");
}

#[test]
fn padding_has_neither_loss_nor_gradient() {
    let folder = folder();
    let mut net = whole();
    let mut loader = LoaderOf::<Whole>::new(set(folder.path())).shuffle().seed(1).workers(2);
    let mut batches = 0;
    for _ in 0..2 {
        for batch in loader.epoch().unwrap() {
            let batch = batch.unwrap();
            batches += 1;
            if batch.len == 4 {
                net.train_step(&batch.input, &batch.target).unwrap();
                continue;
            }
            // Two samples and two of padding, and the two samples alone.
            assert_eq!((batch.len, &batch.target.as_slice()[2..]), (2, &[IGNORED; 2][..]));
            assert!(batch.input.as_slice()[2 * 192..].iter().all(|&byte| byte == 0));
            let mut alone = rest(&mut net);
            let input: <Rest as Network>::Input = Tensor::from_vec(batch.input.as_slice()[..2 * 192].to_vec()).unwrap();
            let target: <Rest as Network>::Target = Tensor::from_vec(batch.target.as_slice()[..2].to_vec()).unwrap();
            let (padded, expected) =
                (net.eval_loss(&batch.input, &batch.target).unwrap(), alone.eval_loss(&input, &target).unwrap());
            assert!(expected > 1e-4 && (padded - expected).abs() <= 1e-6 * expected, "{padded} {expected}");

            let padded = net.train_step(&batch.input, &batch.target).unwrap();
            let expected = alone.train_step(&input, &target).unwrap();
            assert!((padded - expected).abs() <= 1e-6 * expected, "{padded} {expected}");
            let pairs = parameters!(net).into_iter().zip(parameters!(alone));
            for ((name, padded), (other, expected)) in pairs {
                assert_eq!(name, other);
                let is_near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-6;
                assert!(padded.iter().zip(&expected).all(is_near), "{name}: {padded:?} {expected:?}");
            }
        }
    }
    assert_eq!((batches, loader.position()), (6, Position { epoch: 2, sample: 0 }));
}
