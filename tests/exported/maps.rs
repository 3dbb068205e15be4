//! Networks of maps: classifiers, generators, a detector.

use crate::check;
use gpumem::network;

network! {
    /// timm's `darknet53`.
    pub struct Darknet53;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(image: Image<3, 256, 256>) -> Logits<1000> {
        [
            convolution(32, 3, 1), stage(64, 1), stage(128, 2), stage(256, 8), stage(512, 8), stage(1024, 4),
            GlobalAvgPool, Linear(1000, name = "head"),
        ]
    }

    fn stage(channels: usize, blocks: usize) -> Block {
        [
            convolution(channels, 3, 2),
            repeat(blocks, Add([], [convolution(channels / 2, 1, 1), convolution(channels, 3, 1)])),
        ]
    }

    fn convolution(channels: usize, size: usize, stride: usize) -> Block {
        [
            Conv2d(channels, size, stride = stride, padding = size / 2, bias = false), BatchNorm2d,
            LeakyRelu(0.01, inplace),
        ]
    }
}

network! {
    /// timm's `dm_nfnet_f0`: no normalisation of maps, but standardised weights.
    pub struct NfNetF0;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(image: Image<3, 192, 192>) -> Logits<1000> {
        [
            down(16, 1), activation(), convolution(32, 3, 1), activation(), convolution(64, 3, 1), activation(), down(128, 1),
            activation(), Affine(1.0), Add(residual(256, 1, 1), convolution(256, 1, 1)),
            first(512, 2, 0.9805806756909201), block(512, 2, 0.9805806756909201),
            first(1536, 6, 0.9622504486493761), block(1536, 6, 0.9805806756909201), block(1536, 6, 0.9622504486493761),
            block(1536, 6, 0.9449111825230679), block(1536, 6, 0.9284766908852592), block(1536, 6, 0.9128709291752768),
            first(1536, 6, 0.8980265101338745), block(1536, 6, 0.9805806756909201), block(1536, 6, 0.9622504486493761),
            convolution(3072, 1, 1), activation(), GlobalAvgPool, Linear(1000, name = "fc"),
        ]
    }

    fn first(channels: usize, groups: usize, beta: f64) -> Block {
        [activation(), Affine(beta), Add(residual(channels, 2, groups), [AvgPool2d(2), convolution(channels, 1, 1)])]
    }

    fn block(channels: usize, groups: usize, beta: f64) -> Block {
        [Add([activation(), Affine(beta), residual(channels, 1, groups)], [])]
    }

    /// With a squeeze and excitation that is doubled, and the gain of its skip connection.
    fn residual(channels: usize, stride: usize, groups: usize) -> Block {
        [
            convolution(channels / 2, 1, 1), activation(),
            if stride == 1 { convolution(channels / 2, 3, groups) } else { down(channels / 2, groups) }, activation(),
            convolution(channels / 2, 3, groups), activation(), convolution(channels, 1, 1),
            Mul([], [AdaptiveAvgPool2d(1), Conv2d(channels / 2, 1), Relu(inplace), Conv2d(channels, 1), Sigmoid]),
            Affine(2.0), Scale(init = 0.0, scalar), Affine(0.2),
        ]
    }

    fn activation() -> Block {
        [Gelu, Affine(1.7015043497085571)]
    }

    fn convolution(channels: usize, size: usize, groups: usize) -> Block {
        [Conv2d(channels, size, padding = size / 2, groups = groups, standardized, gamma = 1.0, eps = 1e-5)]
    }

    /// Of an even map, "same" padding as TensorFlow has it is at the end.
    fn down(channels: usize, groups: usize) -> Block {
        [Pad((0, 1, 0, 1)), Conv2d(channels, 3, stride = 2, groups = groups, standardized, gamma = 1.0, eps = 1e-5)]
    }
}

network! {
    /// timm's `repvgg_a0` as it is trained: three branches, which are one convolution when it serves.
    pub struct RepVggA0;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [down(48), stage(48, 1), stage(96, 3), stage(192, 13), down(1280), GlobalAvgPool, Linear(1000, name = "head")]
    }

    fn stage(channels: usize, blocks: usize) -> Block {
        [down(channels), repeat(blocks, [Add(convolution(channels, 3, 1), convolution(channels, 1, 1), BatchNorm2d), Relu])]
    }

    fn down(channels: usize) -> Block {
        [Add(convolution(channels, 3, 2), convolution(channels, 1, 2)), Relu]
    }

    fn convolution(channels: usize, size: usize, stride: usize) -> Block {
        [Conv2d(channels, size, stride = stride, padding = size / 2, bias = false), BatchNorm2d]
    }
}

network! {
    /// timm's `seresnet50`.
    pub struct SeResNet50;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            convolution(64, 7, 2), Relu(inplace), MaxPool2d(3, stride = 2, padding = 1),
            stage(3, 64, 1), stage(4, 128, 2), stage(6, 256, 2), stage(3, 512, 2),
            GlobalAvgPool, Linear(1000, name = "fc"),
        ]
    }

    fn stage(blocks: usize, width: usize, stride: usize) -> Block {
        [bottleneck(width, stride, convolution(4 * width, 1, stride)), repeat(blocks - 1, bottleneck(width, 1, []))]
    }

    fn bottleneck(width: usize, stride: usize, shortcut: Block) -> Block {
        [
            Add([
                convolution(width, 1, 1), Relu(inplace), convolution(width, 3, stride), Relu(inplace),
                convolution(4 * width, 1, 1), squeeze_excite(4 * width),
            ], shortcut),
            Relu(inplace),
        ]
    }

    fn squeeze_excite(channels: usize) -> Block {
        Mul([], [AdaptiveAvgPool2d(1), Conv2d(channels / 16, 1), Relu, Conv2d(channels, 1), Sigmoid])
    }

    fn convolution(channels: usize, size: usize, stride: usize) -> Block {
        [Conv2d(channels, size, stride = stride, padding = size / 2, bias = false), BatchNorm2d]
    }
}

network! {
    /// timm's `poolformer_s12`: where transformers have attention, a mean of neighbours.
    pub struct PoolFormerS12;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            Conv2d(64, 7, stride = 4, padding = 2, name = "stem"), repeat(2, block(64)),
            down(128), repeat(2, block(128)), down(320), repeat(6, block(320)), down(512), repeat(2, block(512)),
            GlobalAvgPool, LayerNorm(eps = 1e-6, name = "norm"), Linear(1000, name = "fc"),
        ]
    }

    fn down(channels: usize) -> Block {
        [Conv2d(channels, 3, stride = 2, padding = 1)]
    }

    fn block(channels: usize) -> Block {
        [
            Add([], [GroupNorm(1), Sub(AvgPool2d(3, 1, padding = 1, count_include_pad = false), []), Scale(init = 1e-5)]),
            Add([], [GroupNorm(1), Conv2d(4 * channels, 1), Gelu, Conv2d(channels, 1), Scale(init = 1e-5)]),
        ]
    }
}

network! {
    /// A convolutional autoencoder of images.
    pub struct ConvAutoencoder;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 1.0 }, loss: Mse };

    fn forward(image: Image<3, 64, 64>) -> Map<3, 64, 64> {
        [
            down(32), down(64), down(128), up(64), up(32), ConvTranspose2d(3, 4, stride = 2, padding = 1), Sigmoid,
        ]
    }

    fn down(channels: usize) -> Block {
        [Conv2d(channels, 3, stride = 2, padding = 1), BatchNorm2d, LeakyRelu(0.2)]
    }

    fn up(channels: usize) -> Block {
        [ConvTranspose2d(channels, 4, stride = 2, padding = 1), BatchNorm2d, Relu]
    }
}

network! {
    /// A generator of images from images, with reflected edges and normalised instances.
    pub struct ResNetGenerator;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 1.0 }, loss: L1 };

    fn forward(image: Image<3, 128, 128>) -> Map<3, 128, 128> {
        [
            Pad(3, mode = "reflect"), Conv2d(64, 7), InstanceNorm2d, Relu(inplace), down(128), down(256),
            repeat(9, Add([], [edged(256), Relu(inplace), edged(256)])),
            up(128), up(64), Pad(3, mode = "reflect"), Conv2d(3, 7), Tanh,
        ]
    }

    fn edged(channels: usize) -> Block {
        [Pad(1, mode = "reflect"), Conv2d(channels, 3), InstanceNorm2d]
    }

    fn down(channels: usize) -> Block {
        [Conv2d(channels, 3, stride = 2, padding = 1), InstanceNorm2d, Relu(inplace)]
    }

    fn up(channels: usize) -> Block {
        [
            ConvTranspose2d(channels, 3, stride = 2, padding = 1, output_padding = 1), InstanceNorm2d, Relu(inplace),
        ]
    }
}

network! {
    /// A detector: partial blocks, pooling of several sizes, paths down and up again, and three heads.
    pub struct CspPan;

    const TRAIN: Train = Train {
        batch: 32,
        optimizer: Sgd { lr: 1.0 },
        loss: Mean(from = small) + Mean(from = middle) + Mean(from = large),
    };

    fn forward(image: Image<3, 320, 320>) -> (Map<144, 40, 40>, Map<144, 20, 20>, Map<144, 10, 10>) {
        [
            convolution(16, 3, 2), convolution(32, 3, 2), partial(16, true),
            convolution(64, 3, 2), deeper(32), tap(p3), convolution(128, 3, 2), deeper(64), tap(p4),
            convolution(256, 3, 2), partial(128, true), pyramid(256), tap(p5),
            Upsample(2), Concat([], from(p4)), partial(64, false), tap(t4),
            Upsample(2), Concat([], from(p3)), partial(32, false), tap(o3),
            convolution(64, 3, 2), Concat([], from(t4)), partial(64, false), tap(o4),
            convolution(128, 3, 2), Concat([], from(p5)), partial(128, false), tap(o5),
            Outputs([from(o3), head(), tap(small)], [from(o4), head(), tap(middle)], [from(o5), head(), tap(large)]),
        ]
    }

    // Half of the channels go through two convolutions, and all are mapped to twice as many as `half`.
    fn partial(half: usize, adds: bool) -> Block {
        [
            convolution(2 * half, 1, 1), tap(first), Slice(half, dim = 1),
            if adds { Add([], two(half)) } else { two(half) },
            tap(second), Concat(from(first), from(second)), convolution(2 * half, 1, 1),
        ]
    }

    // The same twice.
    fn deeper(half: usize) -> Block {
        [
            convolution(2 * half, 1, 1), tap(first), Slice(half, dim = 1), Add([], two(half)), tap(second),
            Add([], two(half)), tap(third),
            Concat(from(first), from(second), from(third)), convolution(2 * half, 1, 1),
        ]
    }

    fn two(channels: usize) -> Block {
        [convolution(channels, 3, 1), convolution(channels, 3, 1)]
    }

    fn pyramid(channels: usize) -> Block {
        [
            convolution(channels / 2, 1, 1), tap(one), pool(), tap(two), pool(), tap(three), pool(), tap(four),
            Concat(from(one), from(two), from(three), from(four)), convolution(channels, 1, 1),
        ]
    }

    fn pool() -> Block {
        MaxPool2d(5, 1, padding = 2)
    }

    fn head() -> Block {
        Concat(
            [convolution(64, 3, 1), convolution(64, 3, 1), Conv2d(64, 1)],
            [convolution(80, 3, 1), convolution(80, 3, 1), Conv2d(80, 1)],
        )
    }

    fn convolution(channels: usize, size: usize, stride: usize) -> Block {
        [
            Conv2d(channels, size, stride = stride, padding = size / 2, bias = false),
            BatchNorm2d(eps = 1e-3, momentum = 0.03), Silu,
        ]
    }
}

network! {
    /// timm's `mobilenetv4_conv_small`: inverted bottlenecks with a depthwise convolution in front, in the middle, or in both places.
    pub struct MobileNetV4Small;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            active(32, 3, 2), active(32, 3, 2), active(32, 1, 1), active(96, 3, 2), active(64, 1, 1),
            depthwise(64, 5, 1), inverted(192, 5, 2, 96), repeat(4, Add([], inverted(192, 3, 1, 96))),
            Add([], [depthwise(96, 3, 1), active(384, 1, 1), convolution(96, 1, 1)]),
            depthwise(96, 3, 1), inverted(576, 3, 2, 128), Add([], [depthwise(128, 5, 1), inverted(512, 5, 1, 128)]),
            Add([], inverted(512, 5, 1, 128)), Add([], inverted(384, 5, 1, 128)),
            repeat(2, Add([], inverted(512, 3, 1, 128))),
            active(960, 1, 1), AdaptiveAvgPool2d(1), active(1280, 1, 1), Flatten, Linear(1000, name = "classifier"),
        ]
    }

    fn inverted(wide: usize, size: usize, stride: usize, channels: usize) -> Block {
        [active(wide, 1, 1), depthwise(wide, size, stride), Relu(inplace), convolution(channels, 1, 1)]
    }

    fn depthwise(channels: usize, size: usize, stride: usize) -> Block {
        [
            Conv2d(channels, size, stride = stride, padding = size / 2, groups = channels, bias = false), BatchNorm2d,
        ]
    }

    fn active(channels: usize, size: usize, stride: usize) -> Block {
        [convolution(channels, size, stride), Relu(inplace)]
    }

    fn convolution(channels: usize, size: usize, stride: usize) -> Block {
        [Conv2d(channels, size, stride = stride, padding = size / 2, bias = false), BatchNorm2d]
    }
}

network! {
    /// timm's `ghostnet_100`: half of the channels of each convolution follow from the other half.
    pub struct GhostNet;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            Conv2d(16, 3, stride = 2, padding = 1, bias = false), BatchNorm2d, Relu(inplace),
            Add([], inside(16, 16, [])), down(48, 24, 3, 16, []), Add([], inside(72, 24, [])),
            down(72, 40, 5, 24, excited(20, 72)), Add([], inside(120, 40, excited(32, 120))), down(240, 80, 3, 40, []),
            Add([], inside(200, 80, [])), repeat(2, Add([], inside(184, 80, []))),
            Add(inside(480, 112, excited(120, 480)), [depthwise(80, 3, 1), mapped(112)]),
            Add([], inside(672, 112, excited(168, 672))), down(672, 160, 5, 112, excited(168, 672)),
            repeat(2, [Add([], inside(960, 160, [])), Add([], inside(960, 160, excited(240, 960)))]),
            mapped(960), Relu(inplace), AdaptiveAvgPool2d(1), Conv2d(1280, 1), Relu, Flatten,
            Linear(1000, name = "classifier"),
        ]
    }

    fn inside(wide: usize, channels: usize, excite: Block) -> Block {
        [ghost(wide / 2, Relu), excite, ghost(channels / 2, [])]
    }

    fn down(wide: usize, channels: usize, size: usize, arriving: usize, excite: Block) -> Block {
        Add(
            [ghost(wide / 2, Relu), depthwise(wide, size, 2), excite, ghost(channels / 2, [])],
            [depthwise(arriving, size, 2), mapped(channels)],
        )
    }

    fn ghost(half: usize, activation: Block) -> Block {
        [mapped(half), activation, Concat([], [depthwise(half, 3, 1), activation])]
    }

    fn excited(between: usize, channels: usize) -> Block {
        Mul([], [AdaptiveAvgPool2d(1), Conv2d(between, 1), Relu, Conv2d(channels, 1), Hardsigmoid])
    }

    fn depthwise(channels: usize, size: usize, stride: usize) -> Block {
        [
            Conv2d(channels, size, stride = stride, padding = size / 2, groups = channels, bias = false), BatchNorm2d,
        ]
    }

    fn mapped(channels: usize) -> Block {
        [Conv2d(channels, 1, bias = false), BatchNorm2d]
    }
}

#[test]
fn parameters_and_operations_are_those_of_pytorch() {
    check::<Darknet53>(41_609_928, 18_570_231_808, [4_252_776_584, 4_419_216_928]);
    check::<RepVggA0>(9_108_968, 3_025_162_240, [802_453_712, 838_890_256]);
    check::<NfNetF0>(71_489_284, 13_954_007_040, [3_840_738_888, 4_126_696_956]);
    check::<SeResNet50>(28_088_024, 8_183_398_400, [3_720_016_656, 3_832_369_652]);
    check::<PoolFormerS12>(11_915_176, 3_624_534_016, [2_026_863_080, 2_074_524_312]);
    check::<ConvAutoencoder>(259_363, 57_344_000, [48_223_572, 49_261_112]);
    check::<ResNetGenerator>(11_378_179, 24_775_753_728, [3_410_966_828, 3_456_479_736]);
    check::<CspPan>(3_157_184, 2_185_728_000, [1_701_425_872, 1_714_055_340]);
    check::<MobileNetV4Small>(3_774_024, 372_011_136, [574_433_368, 589_530_024]);
    check::<GhostNet>(5_182_508, 282_301_024, [1_352_102_152, 1_372_833_272]);
}
