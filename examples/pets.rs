//! A training on a folder of images: the second program of `docs/guide/first-network.md`.

use gpumem::data::{LoaderOf, Transforms, sets::ImageFolder};
use gpumem::prelude::*;
use gpumem::train::{Every, Trainer, metrics::Accuracy};

network! {
    pub struct Pets;

    const TRAIN: Train = Train {
        batch: 64,
        optimizer: AdamW { lr: 1e-3 },
        loss: CrossEntropy { ignore_index: -100 },
        cards: [RTX_3060],
    };

    fn forward(image: Images<u8, 3, 128, 128>) -> Logits<37> {
        [Normalize, conv(32), conv(64), conv(128), conv(256), GlobalAvgPool, Linear(37)]
    }

    fn conv(channels: usize) -> Block {
        [Conv2d(channels, 3, padding = 1, bias = false), BatchNorm2d, Relu(inplace), MaxPool2d(2)]
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut net = Pets::on(&gpumem::default_device()?)?;
    let augment = Transforms::new().random_resized_crop(128).random_horizontal_flip(0.5);
    let mut loader = LoaderOf::<Pets>::new(ImageFolder::open("pets/train")?.transforms(augment)).shuffle();
    Trainer::new(&mut net)
        .epochs(30)
        .validate(ImageFolder::open("pets/val")?.transforms(Transforms::new().resize(144).center_crop(128)))
        .metrics(Accuracy::new())
        .checkpoint("run", Every::Epoch)
        .keep(3)
        .best_by("val_accuracy")
        .resume_if_any() // started again after Ctrl-C or a crash, it goes on where it was
        .run(&mut loader)?;
    Ok(net.save_weights("pets.safetensors")?)
}
