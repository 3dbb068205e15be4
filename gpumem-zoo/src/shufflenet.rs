//! ShuffleNet V2: half of the channels bypass each block, and a shuffle mixes the halves.
//!
//! N. Ma, X. Zhang, H.-T. Zheng and J. Sun, "ShuffleNet V2: Practical Guidelines for Efficient CNN Architecture Design" (arXiv:1807.11164),
//! as torchvision's `shufflenet_v2_x1_0`. A block that keeps the size convolves one half; one that halves the size convolves all channels
//! twice, which doubles them. torchvision's metadata have 2,278,604 parameters and 0.145 thousand million multiply-accumulates; the network
//! has the same numbers.
//!
//! ```
//! use gpumem::Network;
//! use gpumem_zoo::shufflenet::ShuffleNetV2;
//!
//! let last = ShuffleNetV2::<32>::LAYERS.iter().rev().find(|layer| layer.kind == "BatchNorm2d").unwrap();
//! assert_eq!(last.path, "conv5.1");
//! ```

use gpumem::network;

network! {
    /// torchvision's `shufflenet_v2_x1_0`.
    pub struct ShuffleNetV2<const BATCH: usize>;

    const TRAIN: Train = Train {
        batch: BATCH,
        optimizer: Sgd { lr: 0.5, momentum: 0.9, weight_decay: 4e-5 },
        loss: CrossEntropy,
    };

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            conv1(), MaxPool2d(3, stride = 2, padding = 1),
            stage2([item(down(24, 58)), repeat(3, item(same(58)))]),
            stage3([item(down(116, 116)), repeat(7, item(same(116)))]),
            stage4([item(down(232, 232)), repeat(3, item(same(232)))]),
            conv5(), GlobalAvgPool, Linear(1000, name = "fc"),
        ]
    }

    fn conv1() -> Block {
        [Conv2d(24, 3, stride = 2, padding = 1, bias = false, name = "0"), BatchNorm2d(name = "1"), Relu(inplace)]
    }

    fn conv5() -> Block {
        [Conv2d(1024, 1, bias = false, name = "0"), BatchNorm2d(name = "1"), Relu(inplace)]
    }

    #[name = ""]
    fn same(half: usize) -> Block {
        [Concat(Slice(0, half), [Slice(half), branch2(half, 1)]), ChannelShuffle(2)]
    }

    #[name = ""]
    fn down(arriving: usize, half: usize) -> Block {
        [Concat(branch1(arriving, half), branch2(half, 2)), ChannelShuffle(2)]
    }

    #[name = "[]"]
    fn item(inside: Block) -> Block {
        [inside]
    }

    fn branch1(arriving: usize, half: usize) -> Block {
        [
            Conv2d(arriving, 3, stride = 2, padding = 1, groups = arriving, bias = false, name = "0"), BatchNorm2d(name = "1"),
            Conv2d(half, 1, bias = false, name = "2"), BatchNorm2d(name = "3"), Relu(inplace),
        ]
    }

    fn branch2(half: usize, stride: usize) -> Block {
        [
            Conv2d(half, 1, bias = false, name = "0"), BatchNorm2d(name = "1"), Relu(inplace),
            Conv2d(half, 3, stride = stride, padding = 1, groups = half, bias = false, name = "3"), BatchNorm2d(name = "4"),
            Conv2d(half, 1, bias = false, name = "5"), BatchNorm2d(name = "6"), Relu(inplace),
        ]
    }

    fn stage2(inside: Block) -> Block {
        [inside]
    }

    fn stage3(inside: Block) -> Block {
        [inside]
    }

    fn stage4(inside: Block) -> Block {
        [inside]
    }
}
