//! RegNet: stages of like blocks, whose widths and depths follow a line.
//!
//! I. Radosavovic, R. Kosaraju, R. Girshick, K. He and P. Dollár, "Designing Network Design Spaces" (arXiv:2003.13678), as
//! torchvision's `regnet_y_400mf`. A block is ResNeXt's without the narrow middle: all of its convolutions have the stage's width,
//! the middle one in groups of eight channels. The Y networks weigh the channels of each block by what the whole map shows
//! (J. Hu and others, "Squeeze-and-Excitation Networks", arXiv:1709.01507); the layer between has a quarter of the channels
//! that arrive at the block. torchvision's metadata say 4,344,144 parameters and 0.402 thousand million multiplications and
//! additions; so does the network here.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::{regnet::RegNetY400Mf, torch_name};
//!
//! let last = RegNetY400Mf::<32>::LAYERS.iter().rev().find(|layer| layer.kind == "BatchNorm2d").unwrap();
//! assert_eq!(torch_name(last.path), "trunk_output.block4.block4-5.f.c.1");
//! ```

use gpumem::network;

network! {
    /// torchvision's `regnet_y_400mf`.
    pub struct RegNetY400Mf<const BATCH: usize>;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.8, momentum: 0.9, weight_decay: 5e-5 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [stem(), trunk_output(), GlobalAvgPool, Linear(1000, name = "fc")]
    }

    fn stem() -> Block {
        [inline_convolution(32, 3, 2, 1), Relu(inplace)]
    }

    fn trunk_output() -> Block {
        [
            block1([dashed_block1()]),
            block2([dashed_block2(12, 2, true), repeat(2, dashed_block2(26, 1, false))]),
            block3([dashed_block3(26, 2, true), repeat(5, dashed_block3(52, 1, false))]),
            block4([dashed_block4(52, 2, true), repeat(5, dashed_block4(110, 1, false))]),
        ]
    }

    fn dashed_block1() -> Block {
        [inline_block(8, 48, 2, true)]
    }

    fn dashed_block2(between: usize, stride: usize, project: bool) -> Block {
        [inline_block(between, 104, stride, project)]
    }

    fn dashed_block3(between: usize, stride: usize, project: bool) -> Block {
        [inline_block(between, 208, stride, project)]
    }

    fn dashed_block4(between: usize, stride: usize, project: bool) -> Block {
        [inline_block(between, 440, stride, project)]
    }

    fn inline_block(between: usize, channels: usize, stride: usize, project: bool) -> Block {
        [
            Add(f(between, channels, stride), if project { proj([inline_convolution(channels, 1, stride, 1)]) } else { [] }),
            Relu(inplace),
        ]
    }

    fn f(between: usize, channels: usize, stride: usize) -> Block {
        [
            a([inline_convolution(channels, 1, 1, 1), Relu(inplace)]),
            b([inline_convolution(channels, 3, stride, channels / 8), Relu(inplace)]),
            Mul([], se(between, channels)),
            c([inline_convolution(channels, 1, 1, 1)]),
        ]
    }

    fn se(between: usize, channels: usize) -> Block {
        [AdaptiveAvgPool2d(1), Conv2d(between, 1, name = "fc1"), Relu, Conv2d(channels, 1, name = "fc2"), Sigmoid]
    }

    fn inline_convolution(channels: usize, size: usize, stride: usize, groups: usize) -> Block {
        [
            Conv2d(channels, size, stride = stride, padding = size / 2, groups = groups, bias = false, name = "0"),
            BatchNorm2d(name = "1"),
        ]
    }

    fn proj(inside: Block) -> Block {
        [inside]
    }

    fn a(inside: Block) -> Block {
        [inside]
    }

    fn b(inside: Block) -> Block {
        [inside]
    }

    fn c(inside: Block) -> Block {
        [inside]
    }

    fn block1(inside: Block) -> Block {
        [inside]
    }

    fn block2(inside: Block) -> Block {
        [inside]
    }

    fn block3(inside: Block) -> Block {
        [inside]
    }

    fn block4(inside: Block) -> Block {
        [inside]
    }
}
