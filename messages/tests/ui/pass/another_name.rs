//! The library under the name that a crate gave it, and through the modules of another.
#![deny(warnings, missing_docs)]
#![forbid(unsafe_code)]

/// Re-exports, as those of a company's own crate.
pub mod company {
    pub use ::gpumem;
}

use company::gpumem::{Network, blocks, blocks_mod, fits, network, network_mod};

network! {
    crate = company::gpumem;

    /// Through the macro.
    pub struct Written<const BATCH: usize>;

    use blocks layers;

    const TRAIN: Train = Train { batch: BATCH, optimizer: Adam { lr: 1e-3 }, loss: CrossEntropy, cards: [RTX_3060] };
    const INFER: Infer = Infer { batch: 1, precision: F16 };

    fn forward(features: Features<8>) -> Logits<4> {
        [layers::wide(16), Linear(4)]
    }
}

fits!(crate = company::gpumem; Written<64>);
fits!(crate = company::gpumem; Written<8> + module::Written, RTX_3060);

/// Through the attribute.
#[network_mod(crate = super::company::gpumem)]
pub mod module {
    /// The same network.
    pub struct Written;

    #[blocks]
    use super::{layers, outer};

    fn forward(features: Features<8>) -> Features<4> {
        [outer::wider(8), layers::wide(16), Linear(4)]
    }
}

blocks! {
    crate = super::company::gpumem;

    /// Blocks that use blocks.
    pub mod outer {
        use blocks super::layers;

        fn wider(features: usize) -> Block { [layers::wide(2 * features)] }
    }
}

/// Blocks.
#[blocks_mod(crate = super::company::gpumem)]
pub mod layers {
    fn wide(features: usize) -> Block {
        [Linear(features), Relu]
    }
}

/// Runs.
pub fn main() {
    assert_eq!(Written::<8>::LAYERS.len(), 3);
    assert_eq!(module::Written::LAYERS.len(), 5);
    assert_eq!(Written::<8>::INFER.batch, 1);
}
