//! Names of the user's module do not reach into the expansion.
#![deny(warnings, missing_docs, missing_debug_implementations)]
#![forbid(unsafe_code)]

/// A module of names.
#[allow(
    non_camel_case_types,
    non_upper_case_globals,
    dead_code,
    unused_macros,
    missing_docs,
    missing_debug_implementations
)]
pub mod names {
    use gpumem::{fits, max_batch, network};

    pub struct Train;
    pub struct Infer;
    pub struct Relu;
    pub struct Sgd;
    pub struct Tensor;
    pub struct Network;
    pub struct D;
    pub struct Option;
    pub struct Some;
    pub struct Result;
    pub type f32 = ();
    pub type u32 = ();
    pub type u64 = ();
    pub type u8 = ();
    pub type usize = ();
    pub type str = ();
    pub mod core {}
    pub mod gpumem_core {}
    pub struct kind;
    pub struct output_shape;
    pub static card: ::core::primitive::u8 = 0;
    pub static train: ::core::primitive::u8 = 0;
    pub static batch: ::core::primitive::u8 = 0;
    pub static device: ::core::primitive::u8 = 0;
    pub static path: ::core::primitive::u8 = 0;
    pub static numbers: ::core::primitive::u8 = 0;
    pub static parameters: ::core::primitive::u8 = 0;
    pub static macs: ::core::primitive::u8 = 0;
    pub static kept: ::core::primitive::u8 = 0;
    pub const BATCH: &::core::primitive::str = "";
    pub const TRAIN: () = ();
    pub const NAME: () = ();
    pub fn forward() {}

    macro_rules! panic {
        () => {};
    }
    macro_rules! assert {
        () => {};
    }

    network! {
        pub struct Mlp;
        const TRAIN: Train = Train { batch: 2 + 2, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy, cards: [RTX_3060] };
        const INFER: Infer = Infer { batch: 2 };
        fn forward(x: Features<4>) -> Logits<3> { [stage(2), Linear(3)] }
        fn stage(BATCH: usize) -> Block { repeat(BATCH, [Linear(4), Relu]) }
    }

    network! {
        pub struct Generic<const BATCH: usize>;
        const TRAIN: Train = Train { batch: BATCH };
        fn forward(x: Tokens<4>) -> TokenLogits<4, 3> { [Embedding(9, 8), Linear(3)] }
    }

    network! {
        pub struct Largest;
        const TRAIN: Train = Train { batch: Largest, cards: [T4], checkpoint: Auto };
        const INFER: Infer = Infer { batch: 1 };
        fn forward(x: Features<4>) -> Logits<3> { Linear(3) }
    }

    fits!(Generic<4>);
    fits!(Mlp + Generic<4>, T4);
    pub const MOST: ::core::primitive::usize = max_batch!(Mlp, T4);
}

/// Constants that are called as those of a macro might be.
#[allow(missing_docs)]
pub mod batches {
    use gpumem::{max_batch, network};

    pub const BATCH: usize = 4;
    pub const AIM: usize = BATCH;
    pub const TRANSIENTS: usize = BATCH;
    pub const LARGEST: usize = max_batch!(Generic<BATCH>, RTX_3060);
    pub const SAME: [usize; 2] = [max_batch!(Generic<AIM>, RTX_3060), max_batch!(Generic<{ TRANSIENTS }>, RTX_3060)];

    network! {
        #[derive(Debug)]
        pub struct Generic<const BATCH: usize>;
        const INFER: Infer = Infer { batch: BATCH };
        fn forward(x: Features<4>) -> Logits<3> { Linear(3) }
    }
}

/// Networks that are made by a macro.
#[allow(missing_debug_implementations)]
pub mod made {
    use gpumem::network;

    macro_rules! made {
        ($(#[$attributes:meta])* $name:ident, $batch:expr, $width:literal, $layers:expr, $optimizer:expr, $cards:expr) => {
            network! {
                $(#[$attributes])*
                pub struct $name;
                const TRAIN: Train = Train { batch: $batch, optimizer: $optimizer, cards: $cards };
                fn forward(x: Features<$width>) -> Logits<$width> { [repeat($batch, $layers), Linear($width)] }
            }
        };
    }

    made! {
        /// Made.
        Made, 1 + 2, 6, [Linear(6), Relu(inplace)], AdamW { lr: 0.1 }, [RTX_3060, T4]
    }
}

pub(crate) fn main() {
    assert_eq!(<names::Mlp as gpumem::Network>::LAYERS.len(), 5);
    assert_eq!(batches::SAME, [batches::LARGEST; 2]);
    assert_eq!(<made::Made as gpumem::Network>::LAYERS.len(), 7);
}
