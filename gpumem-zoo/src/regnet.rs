//! RegNet: stages of equal blocks, whose widths grow linearly with depth.
//!
//! I. Radosavovic, R. Kosaraju, R. Girshick, K. He and P. Dollár, "Designing Network Design Spaces" (arXiv:2003.13678), as torchvision's
//! `regnet_y_400mf`. A block is ResNeXt's without the narrow middle: all of its convolutions have the stage's width, the middle one in
//! groups of eight channels. The Y networks have squeeze and excitation in each block (J. Hu and others, "Squeeze-and-Excitation Networks",
//! arXiv:1709.01507); its inner layer has a quarter of the channels of the block's input. torchvision's metadata have 4,344,144 parameters
//! and 0.402 thousand million multiply-accumulates; the network has the same numbers.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::regnet::RegNetY400Mf;
//!
//! let last = RegNetY400Mf::<32>::LAYERS.iter().rev().find(|layer| layer.kind == "BatchNorm2d").unwrap();
//! assert_eq!(last.path, "trunk_output.block4.block4-5.f.c.1");
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
        [convolution(32, 3, 2, 1), Relu(inplace)]
    }

    fn trunk_output() -> Block {
        [
            block1([unit(8, 48, 2, true, name = "block1-0")]),
            block2([
                unit(12, 104, 2, true, name = "block2-0"), unit(26, 104, 1, false, name = "block2-1"),
                unit(26, 104, 1, false, name = "block2-2"),
            ]),
            block3([
                unit(26, 208, 2, true, name = "block3-0"), unit(52, 208, 1, false, name = "block3-1"),
                unit(52, 208, 1, false, name = "block3-2"), unit(52, 208, 1, false, name = "block3-3"),
                unit(52, 208, 1, false, name = "block3-4"), unit(52, 208, 1, false, name = "block3-5"),
            ]),
            block4([
                unit(52, 440, 2, true, name = "block4-0"), unit(110, 440, 1, false, name = "block4-1"),
                unit(110, 440, 1, false, name = "block4-2"), unit(110, 440, 1, false, name = "block4-3"),
                unit(110, 440, 1, false, name = "block4-4"), unit(110, 440, 1, false, name = "block4-5"),
            ]),
        ]
    }

    fn unit(between: usize, channels: usize, stride: usize, project: bool) -> Block {
        [
            Add(f(between, channels, stride), if project { proj([convolution(channels, 1, stride, 1)]) } else { [] }),
            Relu(inplace),
        ]
    }

    fn f(between: usize, channels: usize, stride: usize) -> Block {
        [
            a([convolution(channels, 1, 1, 1), Relu(inplace)]),
            b([convolution(channels, 3, stride, channels / 8), Relu(inplace)]),
            Mul([], se(between, channels)),
            c([convolution(channels, 1, 1, 1)]),
        ]
    }

    fn se(between: usize, channels: usize) -> Block {
        [AdaptiveAvgPool2d(1), Conv2d(between, 1, name = "fc1"), Relu, Conv2d(channels, 1, name = "fc2"), Sigmoid]
    }

    #[name = ""]
    fn convolution(channels: usize, size: usize, stride: usize, groups: usize) -> Block {
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
