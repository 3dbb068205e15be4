//! Blocks of modules are the same as blocks that are written in the network, wherever the module stands.
#![deny(warnings, missing_docs)]

use gpumem::prelude::*;

/// The network of this file, with these items in it.
macro_rules! classifier {
    ($name:ident, { $($items:tt)* }, $residual:expr, $head:expr) => {
        network! {
            /// Two residual blocks and a head.
            pub struct $name;

            $($items)*

            const TRAIN: Train = Train { batch: 4, optimizer: Sgd { lr: 0.1, momentum: 0.9 }, loss: CrossEntropy };

            fn forward(image: Image<8, 8, 8>) -> Logits<10> {
                [Conv2d(16, 1), repeat(2, $residual), tap(features), Dropout(0.1), $head]
            }
        }
    };
}

classifier! { Before, { use blocks residual; use blocks attribute::heads; }, residual(4, [Relu(inplace)]), heads::head(10) }

network! {
    /// Everything in one place.
    pub struct Written;

    const EXPANSION: usize = 4;
    const TRAIN: Train = Train { batch: 4, optimizer: Sgd { lr: 0.1, momentum: 0.9 }, loss: CrossEntropy };

    fn forward(image: Image<8, 8, 8>) -> Logits<10> {
        [Conv2d(16, 1), repeat(2, residual(4, [Relu(inplace)])), tap(features), Dropout(0.1), head(10)]
    }

    #[freeze]
    fn normal(channels: usize, size: usize) -> Block {
        [eval([Conv2d(channels, size, padding = size / 2, bias = false), BatchNorm2d])]
    }

    fn residual(width: usize, activation: Block) -> Block {
        let narrow = Conv2d(width, 1);
        [tap(start), narrow, normal(width, 3), activation, Conv2d(EXPANSION * width, 1), Add([], from(start))]
    }

    fn head(classes: usize) -> Block {
        [Add([], from(features)), GlobalAvgPool, if classes > 2 { Linear(classes) } else { Linear(1) }]
    }
}

blocks! {
    /// Residual blocks.
    pub mod residual {
        const EXPANSION: usize = 4;

        #[freeze]
        fn normal(channels: usize, size: usize) -> Block {
            [eval([Conv2d(channels, size, padding = size / 2, bias = false), BatchNorm2d])]
        }

        /// Reduces, convolves and expands.
        fn residual(width: usize, activation: Block) -> Block {
            let narrow = Conv2d(width, 1);
            [tap(start), narrow, normal(width, 3), activation, Conv2d(EXPANSION * width, 1), Add([], from(start))]
        }
    }

    /// Never called; the name of its block is that of another.
    mod other {
        pub const WIDTH: usize = 3;
        fn head() -> Block { [Linear(WIDTH)] }
    }
}

classifier! { After, { use blocks {crate::residual as r, attribute::heads}; }, r::residual(4, [Relu(inplace)]), head(10) }
classifier! { Unused, { use blocks self::{residual, other, attribute::heads}; }, residual(4, [Relu(inplace)]), heads::head(10) }

mod attribute {
    use gpumem::prelude::*;

    /// Heads.
    #[blocks_mod]
    pub mod heads {
        /// Reads what was tapped as `features`.
        fn head(classes: usize) -> Block {
            [Add([], from(features)), GlobalAvgPool, if classes > 2 { Linear(classes) } else { Linear(1) }]
        }
    }

    /// Through the attributes.
    #[network_mod]
    pub mod net {
        /// The same network.
        pub struct Attribute;

        #[blocks]
        use super::super::{all, residual as r};

        const TRAIN: Train = Train { batch: 4, optimizer: Sgd { lr: 0.1, momentum: 0.9 }, loss: CrossEntropy };

        fn forward(image: Image<8, 8, 8>) -> Logits<10> {
            [Conv2d(16, 1), repeat(2, r::residual(4, [Relu(inplace)])), tap(features), Dropout(0.1), all::head(10)]
        }
    }

    blocks! {
        mod private {
            use blocks super::heads;

            fn head(classes: usize) -> Block { [heads::head(classes)] }
        }
    }

    pub mod deeper {
        classifier! {
            Deeper, { use blocks super::private as p; use blocks crate::{residual}; }, residual(4, [Relu(inplace)]), p::head(10)
        }
        use gpumem::prelude::*;
    }
}

/// Blocks that use blocks.
#[blocks_mod]
pub mod all {
    #[blocks]
    use super::attribute::heads;

    const PLENTY: usize = 2 * 5;

    /// A head of its own name.
    fn head(classes: usize) -> Block {
        [if classes == PLENTY { ten() } else { [] }]
    }

    fn ten() -> Block {
        heads::head(PLENTY)
    }
}

/// All that is known of each layer.
fn described(layers: &[gpumem::LayerInfo]) -> Vec<String> {
    layers.iter().map(|layer| format!("{layer:?}")).collect()
}

#[track_caller]
fn assert_equal<N: Network>() {
    assert_eq!(described(N::LAYERS), described(Written::LAYERS));
    assert_eq!(N::INFERENCE.program, Written::INFERENCE.program);
    assert_eq!(N::TRAINING.map(|compiled| compiled.program), Written::TRAINING.map(|compiled| compiled.program));
}

#[test]
fn imported_blocks_are_those_of_the_network() {
    assert_equal::<Before>();
    assert_equal::<After>();
    assert_equal::<Unused>();
    assert_eq!(other::WIDTH, 3);
}

#[test]
fn modules_of_blocks_use_others() {
    let last = Written::LAYERS.len() - 1;
    for (layers, head) in [
        (attribute::net::Attribute::LAYERS, "head.ten.head.linear"),
        (attribute::deeper::Deeper::LAYERS, "head.head.linear"),
    ] {
        assert_eq!(described(&layers[..last - 2]), described(&Written::LAYERS[..last - 2]));
        assert_eq!((layers[last].path, layers[last].parameters), (head, Written::LAYERS[last].parameters));
    }
}

/// Tokens that a macro brought keep together on their way.
#[test]
fn an_expression_of_a_macro() {
    macro_rules! doubled {
        ($width:expr) => {
            network! {
                struct Doubled;
                use blocks doubling;
                fn forward(x: Features<3>) -> Features<10> { [doubling::normalised(2 * $width)] }
            }
        };
    }
    blocks! {
        mod doubling {
            fn normalised(width: usize) -> Block { [Linear(width), LayerNorm] }
        }
    }
    doubled! { 2 + 3 }
    assert_eq!(Doubled::LAYERS[0].path, "normalised.linear");
}

#[test]
fn blocks_of_a_functions_body() {
    blocks! {
        mod local {
            fn residual(width: usize, activation: Block) -> Block { [activation, Linear(width)] }
        }
    }
    network! {
        struct Local;
        use blocks local;
        fn forward(x: Features<3>) -> Features<4> { [residual(4, Tanh)] }
    }
    assert_eq!(Local::LAYERS[1].path, "residual.linear");
}
