//! A network of several resolutions that exchange what they see.

use crate::check;
use gpumem::network;

network! {
    /// timm's `hrnet_w18_small`.
    pub struct HrNetW18Small;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            active(64, 3, 2), active(64, 3, 2), widened(32), tap(stem),
            active(16, 3, 1), branch(16), tap(a2), from(stem), active(32, 3, 2), branch(32), tap(b2),
            Add(from(a2), larger(16, 2)), Relu, branch(16), tap(a3),
            Add([from(a2), mapped(32, 3, 2)], from(b2)), Relu, tap(b), branch(32), tap(b3),
            from(b), active(64, 3, 2), branch(64), tap(c3),
            Add(from(a3), [from(b3), larger(16, 2)], larger(16, 4)), Relu, branch(16), tap(a4),
            Add([from(a3), mapped(32, 3, 2)], from(b3), [from(c3), larger(32, 2)]), Relu, branch(32), tap(b4),
            Add([from(a3), active(16, 3, 2), mapped(64, 3, 2)], [from(b3), mapped(64, 3, 2)], from(c3)), Relu, tap(c),
            branch(64), tap(c4), from(c), active(128, 3, 2), branch(128), tap(d4),
            Add(from(a4), [from(b4), larger(16, 2)], [from(c4), larger(16, 4)], larger(16, 8)), Relu, widened(32),
            beside([
                Add([from(a4), mapped(32, 3, 2)], from(b4), [from(c4), larger(32, 2)], [from(d4), larger(32, 4)]), Relu,
                widened(64),
            ], 256),
            beside([
                Add(
                    [from(a4), active(16, 3, 2), mapped(64, 3, 2)], [from(b4), mapped(64, 3, 2)], from(c4),
                    [from(d4), larger(64, 2)],
                ),
                Relu, widened(128),
            ], 512),
            beside([
                Add(
                    [from(a4), repeat(2, active(16, 3, 2)), mapped(128, 3, 2)],
                    [from(b4), active(32, 3, 2), mapped(128, 3, 2)], [from(c4), mapped(128, 3, 2)], from(d4),
                ),
                Relu, widened(256),
            ], 1024),
            Conv2d(2048, 1), BatchNorm2d, Relu, GlobalAvgPool, Linear(1000, name = "classifier"),
        ]
    }

    // What arrives at half its size, and what is seen at that size.
    fn beside(seen: Block, channels: usize) -> Block {
        [Add(seen, [Conv2d(channels, 3, stride = 2, padding = 1), BatchNorm2d, Relu])]
    }

    fn branch(channels: usize) -> Block {
        repeat(2, [Add([], [active(channels, 3, 1), mapped(channels, 3, 1)]), Relu])
    }

    fn widened(width: usize) -> Block {
        [Add([active(width, 1, 1), active(width, 3, 1), mapped(4 * width, 1, 1)], mapped(4 * width, 1, 1)), Relu]
    }

    fn larger(channels: usize, factor: usize) -> Block {
        [mapped(channels, 1, 1), Upsample(factor)]
    }

    fn active(channels: usize, size: usize, stride: usize) -> Block {
        [mapped(channels, size, stride), Relu]
    }

    fn mapped(channels: usize, size: usize, stride: usize) -> Block {
        [Conv2d(channels, size, stride = stride, padding = size / 2, bias = false), BatchNorm2d]
    }
}

#[test]
fn parameters_and_operations_are_those_of_pytorch() {
    check::<HrNetW18Small>(13_187_464, 3_203_016_704, [1_526_069_952, 1_578_820_924]);
}
