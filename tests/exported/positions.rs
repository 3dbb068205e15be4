//! Networks that know where something is by sines: rotary positions of a map, and what is added to one.

use crate::check;
use gpumem::network;

network! {
    /// timm's `eva02_tiny_patch14_224`: queries and keys turn by the row and the column of a patch, and the class token does not.
    pub struct Eva02Tiny;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 1.0 }, loss: Mse };

    fn forward(image: Image<3, 224, 224>) -> Features<192> {
        [
            Conv2d(192, 14, stride = 14, name = "patch_embed"), Reshape((192, 256)), Transpose(1, 2),
            ClassToken(name = "cls_token"), Add([], PositionEmbedding(257, name = "pos_embed")),
            repeat(12, block()), Slice(1), Mean(1), LayerNorm(eps = 1e-6, name = "fc_norm"),
        ]
    }

    // The keys have no bias.
    fn block() -> Block {
        [
            Add([], [
                LayerNorm(eps = 1e-6, name = "norm1"),
                Attention([Linear(192, name = "q"), turned()], [Linear(192, bias = false, name = "k"), turned()], Linear(192, name = "v"), heads = 3),
                Linear(192, name = "proj"),
            ]),
            Add([], [
                LayerNorm(eps = 1e-6, name = "norm2"), Linear(1024, name = "fc1"),
                Mul([Slice(0, 512, dim = -1), Silu], Slice(512, dim = -1)), Linear(192, name = "fc2"),
            ]),
        ]
    }

    fn turned() -> Block {
        [Rotary(3, size = (16, 16), before = 1, interleaved)]
    }
}

network! {
    /// timm's `edgenext_xx_small`: attention between channels, whose queries and keys have length 1.
    pub struct EdgeNeXtXxSmall;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(image: Image<3, 256, 256>) -> Logits<1000> {
        [
            Conv2d(24, 4, stride = 4), norm(24), repeat(2, local(24, 3)),
            norm(24), Conv2d(48, 2, stride = 2), local(48, 5),
            between_channels(48, 32, [Concat([Slice(0, 24), depthwise(24)], Slice(24)), positions(48)]),
            norm(48), Conv2d(88, 2, stride = 2), repeat(5, local(88, 7)), between_channels(88, 16, three_parts()),
            norm(88), Conv2d(168, 2, stride = 2), local(168, 9), between_channels(168, 8, four_parts()),
            AdaptiveAvgPool2d(1), norm(168), Flatten, Linear(1000, name = "head"),
        ]
    }

    /// Normalises the channels of each pixel.
    fn norm(channels: usize) -> Block {
        [Permute((0, 2, 3, 1)), LayerNorm(channels, eps = 1e-6), Permute((0, 3, 1, 2))]
    }

    fn depthwise(channels: usize) -> Block {
        [Conv2d(channels, 3, padding = 1, groups = channels)]
    }

    fn local(channels: usize, size: usize) -> Block {
        Add([], [
            Conv2d(channels, size, padding = size / 2, groups = channels),
            Permute((0, 2, 3, 1)), LayerNorm(channels, eps = 1e-6),
            Linear(channels, 4 * channels), Gelu, Linear(4 * channels, channels),
            Permute((0, 3, 1, 2)), Scale(init = 1e-6),
        ])
    }

    fn positions(channels: usize) -> Block {
        Add([], [SinusoidalPositions(64, rows_first, interleaved, parts), Conv2d(channels, 1, name = "token_projection")])
    }

    /// The first parts of the channels go through a convolution each, which sees what those before it made.
    fn three_parts() -> Block {
        [
            tap(all), Slice(0, 30), depthwise(30), tap(first),
            Add([], [from(all), Slice(30, 60)]), depthwise(30), tap(second),
            Concat(from(first), from(second), [from(all), Slice(60)]),
        ]
    }

    fn four_parts() -> Block {
        [
            tap(all), Slice(0, 42), depthwise(42), tap(first),
            Add([], [from(all), Slice(42, 84)]), depthwise(42), tap(second),
            Add([], [from(all), Slice(84, 126)]), depthwise(42), tap(third),
            Concat(from(first), from(second), from(third), [from(all), Slice(126)]),
        ]
    }

    fn between_channels(channels: usize, side: usize, parts: Block) -> Block {
        Add([], [
            parts, Reshape((channels, side * side)), Transpose(1, 2),
            Add([], [LayerNorm(eps = 1e-6), xca(channels, side * side), Scale(init = 1e-6)]),
            LayerNorm(eps = 1e-6), Linear(4 * channels), Gelu, Linear(channels), Scale(init = 1e-6),
            Transpose(1, 2), Reshape((channels, side, side)),
        ])
    }

    fn xca(channels: usize, steps: usize) -> Block {
        [
            Linear(3 * channels, name = "qkv"), Transpose(1, 2), Reshape((3, 4, channels / 4, steps)), tap(qkv),
            MatMul([Select(0), L2Norm(-1)], [Select(1), L2Norm(-1)], transpose_b),
            Scale(name = "temperature"), Softmax(-1), MatMul([], [from(qkv), Select(2)]),
            Reshape((channels, steps)), Transpose(1, 2), Linear(channels, name = "proj"),
        ]
    }
}

#[test]
fn parameters_and_operations_are_those_of_pytorch() {
    check::<Eva02Tiny>(5_502_144, 3_395_036_160, [1_748_778_568, 1_770_787_792]);
    check::<EdgeNeXtXxSmall>(1_327_216, 515_810_176, [917_649_320, 922_958_824]);
}
