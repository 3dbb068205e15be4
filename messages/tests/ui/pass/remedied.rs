//! What a refusal says fits: the networks of `fail/refused_remedies.rs` with each of these written, for the same cards.
#![deny(warnings, missing_docs)]

use gpumem::prelude::*;

network! {
    /// `InplaceAbn(activation_param = slope) for BatchNorm2d and LeakyRelu(slope)`
    pub struct Leaky;
    const TRAIN: Train = Train { batch: 48, optimizer: Sgd { lr: 0.1, momentum: 0.9 }, cards: [GTX_1650] };
    fn forward(image: Image<3, 224, 224>) -> Logits<10> {
        [
            repeat(8, [Conv2d(32, 3, padding = 1, bias = false), InplaceAbn(activation_param = 0.2)]),
            GlobalAvgPool, Linear(10),
        ]
    }
}

network! {
    /// `base = Int8 in lora(..)`
    pub struct Tuned;
    const TRAIN: Train = Train { batch: 4, precision: Mixed(Bf16), optimizer: AdamW { lr: 1e-4 }, cards: [RTX_3060] };
    fn forward(x: Features<32768>) -> Logits<10> { [lora(8, 16.0, base = Int8, repeat(6, Linear(32768))), Linear(10)] }
}

network! {
    /// `offload: Activations`
    pub struct Deep;
    const TRAIN: Train = Train { batch: 1, offload: Activations, cards: [GTX_1650], headroom: mib(2000.0) };
    fn forward(image: Image<3, 512, 512>) -> Logits<10> {
        [repeat(25, [Conv2d(32, 3, padding = 1), BatchNorm2d, Tanh]), GlobalAvgPool, Linear(10)]
    }
}

network! {
    /// `micro_batches: 6 and offload: OptimizerState`
    pub struct Wide;
    const TRAIN: Train = Train {
        batch: 24576, micro_batches: 6, offload: OptimizerState, optimizer: AdamW { lr: 1e-4 }, cards: [RTX_3060],
    };
    fn forward(x: Features<20000>) -> Logits<10> { [Linear(25000), Gelu, Linear(25000), Gelu, Linear(10)] }
}

/// That these compile is what is tested. What goes over the bus is what was said.
pub fn main() {
    let gib = |network: f64| (network * 100.0).round() / 100.0;
    let moved = |fetched: u64| gib(2.0 * fetched as f64 / (1u64 << 30) as f64);
    assert_eq!([moved(Deep::BUDGET.fetched), moved(Wide::BUDGET.fetched)], [0.25, 16.77]);
    assert_eq!([Leaky::BUDGET.fetched, Tuned::BUDGET.fetched], [0, 0]);
}
