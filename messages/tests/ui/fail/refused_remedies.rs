//! What makes a step fit beside recomputation and parts of a batch, alone and together.
use gpumem::prelude::*;

network! {
    pub struct Leaky;

    const TRAIN: Train = Train { batch: 48, optimizer: Sgd { lr: 0.1, momentum: 0.9 }, cards: [GTX_1650] };

    fn forward(image: Image<3, 224, 224>) -> Logits<10> {
        [repeat(8, [Conv2d(32, 3, padding = 1, bias = false), BatchNorm2d, LeakyRelu(0.2)]), GlobalAvgPool, Linear(10)]
    }
}

network! {
    pub struct Tuned;

    const TRAIN: Train = Train { batch: 4, precision: Mixed(Bf16), optimizer: AdamW { lr: 1e-4 }, cards: [RTX_3060] };

    fn forward(x: Features<32768>) -> Logits<10> { [lora(8, 16.0, repeat(6, Linear(32768))), Linear(10)] }
}

network! {
    pub struct Deep;

    const TRAIN: Train = Train { batch: 1, cards: [GTX_1650], headroom: mib(2000.0) };

    fn forward(image: Image<3, 512, 512>) -> Logits<10> {
        [repeat(25, [Conv2d(32, 3, padding = 1), BatchNorm2d, Tanh]), GlobalAvgPool, Linear(10)]
    }
}

network! {
    pub struct Wide;

    const TRAIN: Train = Train { batch: 24576, optimizer: AdamW { lr: 1e-4 }, cards: [RTX_3060] };

    fn forward(x: Features<20000>) -> Logits<10> { [Linear(25000), Gelu, Linear(25000), Gelu, Linear(10)] }
}

network! {
    pub struct Wordy;

    const TRAIN: Train = Train { batch: 8, loss: CrossEntropy, cards: [GTX_1650] };

    fn forward(tokens: Tokens<1024>) -> TokenLogits<1024, 128256> { [Embedding(128256, 64), Linear(128256)] }
}

fn main() {}
