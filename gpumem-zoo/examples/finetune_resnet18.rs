//! Fine-tunes torchvision's ResNet-18 to tell stripes that lie from stripes that stand: its weights come from a file, its backbone rests, and
//! a new head learns.
//!
//! ```text
//! cargo run --release -p gpumem-zoo --example finetune_resnet18 -- resnet18.safetensors
//! ```
//!
//! The file is what PyTorch writes with
//!
//! ```python
//! from safetensors.torch import save_file
//! from torchvision.models import resnet18
//! save_file(resnet18(weights="DEFAULT").state_dict(), "resnet18.safetensors")
//! ```
//!
//! Without a file, a network of random weights stands for it, whose features say less.

use gpumem::prelude::*;
use gpumem::weights::Weights;
use gpumem_data::{Draw, FromFn, LoaderOf, Result as Read, Sample, from_fn};
use gpumem_train::Trainer;
use gpumem_train::metrics::Accuracy;
use gpumem_zoo::resnet::ResNet18;
use std::error::Error;
use std::path::PathBuf;

/// Height and width of an image in pixels.
const SIZE: usize = 64;

network! {
    /// ResNet-18 with a head of two classes, which is all that is trained.
    pub struct Tuned;

    use blocks gpumem_zoo::resnet::resnet_basic_layers;

    const TRAIN: Train = Train {
        batch: 16,
        optimizer: AdamW { lr: 3e-3 },
        loss: CrossEntropy,
        seed: 1,
        cards: [RTX_3060],
    };

    fn forward(image: Images<u8, 3, 64, 64>) -> Logits<2> {
        [
            Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            // No gradients, no optimizer state, nothing saved for a backward pass; and batch norms by their running statistics.
            freeze(eval(backbone())),
            Linear(2, name = "fc"),
        ]
    }

    #[name = ""]
    fn backbone() -> Block {
        [
            Conv2d(64, 7, stride = 2, padding = 3, bias = false, name = "conv1"), BatchNorm2d(name = "bn1"), Relu(inplace),
            MaxPool2d(3, stride = 2, padding = 1),
            layer1(2), layer2(2), layer3(2), layer4(2),
            AdaptiveAvgPool2d(1), Flatten,
        ]
    }
}

/// Draws stripes that lie (class 0) or stand (class 1), of random colours and widths.
fn stripes(count: usize, seed: u64) -> FromFn<impl Fn(usize, &mut Draw, &mut Sample<'_>) -> Read<()>> {
    from_fn(count, move |index, _, sample| {
        let mut draw = Draw::new(seed, 0, index);
        let mut between = |from: f64, to: f64| from + (to - from) * draw.uniform();
        let (width, first) = (between(3.0, 8.0), between(0.0, 16.0));
        let colours: [[f64; 2]; 3] = std::array::from_fn(|_| [between(0.0, 110.0), between(145.0, 255.0)]);
        let stands = index % 2 == 1;
        let pixel = |at: usize| {
            let across = if stands { at % SIZE } else { at / SIZE % SIZE } as f64;
            let stripe = ((first + across) / width) as usize % 2;
            colours[at / (SIZE * SIZE)][stripe] as u8
        };
        let pixels: Vec<u8> = (0..3 * SIZE * SIZE).map(pixel).collect();
        sample.input(0)?.put_bytes(&pixels)?;
        sample.target(0)?.put_label(u32::from(stands))
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let device = gpumem::default_device()?;
    let folder = tempfile::tempdir()?;
    let file = match std::env::args_os().nth(1) {
        Some(file) => PathBuf::from(file),
        None => {
            let file = folder.path().join("resnet18.safetensors");
            ResNet18::<1>::infer_on(&device)?.save_weights(&file)?;
            file
        }
    };

    let mut net = Tuned::on(&device)?;
    // The file's head has 1000 classes: the network keeps its own.
    let report = Weights::open(&file)?.skip("fc.*").load_into(&mut net)?;
    println!("{report}");

    let mut loader = LoaderOf::<Tuned>::new(stripes(256, 1)).shuffle().seed(1);
    Trainer::new(&mut net).epochs(5).validate(stripes(64, 2)).metrics(Accuracy::new()).run(&mut loader)?;
    net.save_weights(folder.path().join("tuned.safetensors"))?;
    Ok(())
}
