//! VGG-16 at a batch that an RTX 3090 trains and an RTX 3060 does not:
//!
//! ```text
//! cargo run --release --example vgg16
//! cargo check --example vgg16 --features rtx3060      # refused, with what would fit
//! ```

use gpumem::prelude::*;

network! {
    /// VGG-16 for 224x224 RGB images.
    pub struct Vgg16;

    const TRAIN: Train = Train {
        batch: 288, loss: CrossEntropy, cards: [RTX_3090],
        optimizer: Sgd { lr: 0.01, momentum: 0.9, weight_decay: 5e-4 },
    };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            stage(2, 64), stage(2, 128), stage(3, 256), stage(3, 512), stage(3, 512), Flatten,
            Linear(4096), Relu(inplace), Dropout(0.5), Linear(4096), Relu(inplace), Dropout(0.5), Linear(1000),
        ]
    }

    fn stage(depth: usize, channels: usize) -> Block {
        [repeat(depth, [Conv2d(channels, 3, padding = 1), Relu(inplace)]), MaxPool2d(2)]
    }
}

fn main() {
    print!("{}", gpumem::report::table::<Vgg16>());
}
