//! Networks whose attention is not a plain one: with a window, a bias, another sequence's keys, within groups, between channels.

use crate::check;
use gpumem::network;

network! {
    /// A Mistral of transformers: `hidden_size` 512, 8 heads of queries and 2 of keys, a window of 64.
    pub struct MistralSmall;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(text: Tokens<128>) -> TokenLogits<128, 32000> {
        [
            Embedding(32000, 512, name = "embed_tokens"), repeat(8, decoder(512, 1792)),
            RmsNorm(eps = 1e-6, name = "norm"), Linear(32000, bias = false, name = "lm_head"),
        ]
    }

    fn decoder(width: usize, between: usize) -> Block {
        [
            Add([], [
                RmsNorm(eps = 1e-6),
                CausalSelfAttention(8, kv_heads = 2, bias = false, rotary = 10000.0, window = 64),
            ]),
            Add([], [
                RmsNorm(eps = 1e-6),
                Mul([Linear(between, bias = false, name = "gate_proj"), Silu], Linear(between, bias = false, name = "up_proj")),
                Linear(width, bias = false, name = "down_proj"),
            ]),
        ]
    }
}

network! {
    /// transformers' `BartForConditionalGeneration`: what is written sees what was read. The first two rows of positions are for padding.
    pub struct BartBase;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(text: Tokens<128>, answer: Tokens<64>) -> TokenLogits<64, 50265> {
        let words = Embedding(50265, 768, padding_idx = 1);
        [
            from(text), Add(words, positions()), LayerNorm, Dropout(0.1), repeat(6, encoder(768)), tap(read),
            from(answer), Add(words, positions()), LayerNorm, Dropout(0.1), repeat(6, decoder(768, from(read))),
            Tied(words),
        ]
    }

    fn positions() -> Block {
        [PositionEmbedding(1026, 768)]
    }

    fn encoder(width: usize) -> Block {
        [Add([], [MultiHeadAttention(12), Dropout(0.1)]), LayerNorm, wide(width)]
    }

    fn decoder(width: usize, read: Block) -> Block {
        [
            Add([], [MultiHeadAttention(12, causal = true), Dropout(0.1)]), LayerNorm,
            Add([], [
                Attention(
                    Linear(width, name = "q_proj"), [read, Linear(width, name = "k_proj")],
                    [read, Linear(width, name = "v_proj")], heads = 12,
                ),
                Linear(width, name = "out_proj"), Dropout(0.1),
            ]),
            LayerNorm, wide(width),
        ]
    }

    fn wide(width: usize) -> Block {
        [Add([], [Linear(4 * width), Gelu, Linear(width), Dropout(0.1)]), LayerNorm]
    }
}

network! {
    /// diffusers' `DiTTransformer2DModel` in the sizes of DiT-S/2: each layer embeds the time step and the class for itself.
    pub struct DiTS2;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 1.0 }, loss: Mse };

    fn forward(image: Image<4, 32, 32>, time: Tokens<1>, class: Tokens<1>) -> Map<8, 32, 32> {
        let first = Linear(384);
        let second = Linear(384);
        let table = Embedding(1001, 384);
        [
            from(image), Conv2d(384, 2, stride = 2, name = "proj"), Reshape(384, 256), Transpose(1, 2),
            Add([], SinusoidalPositions(size = (16, 16))),
            layer(384, condition(from(time), from(class), first, second, table)),
            repeat(11, layer(384, condition(
                from(time), from(class), Linear(384, name = "linear_1"), Linear(384, name = "linear_2"), Embedding(1001, 384),
            ))),
            tap(deep), condition(from(time), from(class), first, second, table), Silu, Linear(768, name = "proj_out_1"), tap(two),
            from(deep), turned([from(two), Slice(384, 768, dim = -1)], [from(two), Slice(0, 384, dim = -1)]),
            Linear(32, name = "proj_out_2"),
            Reshape(16, 16, 2, 2, 8), Permute(0, 5, 1, 3, 2, 4), Reshape(8, 32, 32),
        ]
    }

    fn condition(time: Block, class: Block, first: Block, second: Block, table: Block) -> Block {
        [
            Add([time, SinusoidalEmbedding(256, cosines_first = true, shift = 1.0), first, Silu, second], [class, table]),
        ]
    }

    fn layer(width: usize, condition: Block) -> Block {
        [
            tap(arriving), condition, Silu, Linear(6 * width), tap(six),
            Add(from(arriving), Mul(
                [
                    from(arriving),
                    turned([from(six), Slice(width, 2 * width, dim = -1)], [from(six), Slice(0, width, dim = -1)]),
                    MultiHeadAttention(6),
                ],
                [from(six), Slice(2 * width, 3 * width, dim = -1)],
            )),
            Add([], Mul(
                [
                    turned(
                        [from(six), Slice(4 * width, 5 * width, dim = -1)], [from(six), Slice(3 * width, 4 * width, dim = -1)],
                    ),
                    Linear(4 * width), Gelu(approximate = "tanh"), Linear(width),
                ],
                [from(six), Slice(5 * width, 6 * width, dim = -1)],
            )),
        ]
    }

    /// What was normalised, times one more than the scale, and a shift.
    fn turned(scale: Block, shift: Block) -> Block {
        [Add(Mul(LayerNorm(eps = 1e-6, elementwise_affine = false), [scale, Affine(1.0, 1.0)]), shift)]
    }
}

network! {
    /// timm's `efficientformer_l1`: pooling in three stages, and in the last layer attention with a bias for each distance.
    pub struct EfficientFormerL1;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            down(24), Relu, down(48), Relu, repeat(3, pooled(48)), down(96), repeat(2, pooled(96)),
            down(224), repeat(6, pooled(224)), down(448), repeat(3, pooled(448)),
            Reshape(448, 49), Transpose(1, 2), attended(448, 8), LayerNorm(name = "norm"), Mean(1),
            Add(Linear(1000, name = "head"), Linear(1000, name = "head_dist")), Affine(0.5),
        ]
    }

    fn down(channels: usize) -> Block {
        [Conv2d(channels, 3, stride = 2, padding = 1), BatchNorm2d]
    }

    fn pooled(channels: usize) -> Block {
        [
            Add([], [Sub(AvgPool2d(3, 1, padding = 1, count_include_pad = false), []), Scale(init = 1e-5)]),
            Add([], [
                Conv2d(4 * channels, 1), BatchNorm2d, Gelu, Conv2d(channels, 1), BatchNorm2d, Scale(init = 1e-5),
            ]),
        ]
    }

    /// Heads have 32 numbers of queries and keys, and 128 of values.
    fn attended(width: usize, heads: usize) -> Block {
        [
            Add([], [
                LayerNorm,
                Attention(
                    Linear(32 * heads), Linear(32 * heads), Linear(128 * heads),
                    RelativePositionBias(heads, size = (7, 7), absolute = true), heads = heads,
                ),
                Linear(width), Scale(init = 1e-5),
            ]),
            Add([], [LayerNorm, Linear(4 * width), Gelu, Linear(width), Scale(init = 1e-5)]),
        ]
    }
}

network! {
    /// timm's `mobilevit_s`: attention among the positions of a map that are at one place of their squares of two by two.
    pub struct MobileVitS;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(image: Image<3, 256, 256>) -> Logits<1000> {
        [
            convolved(16, 3, 2), bottleneck(16, 32, 1),
            bottleneck(32, 64, 2), repeat(2, Add([], bottleneck(64, 64, 1))),
            bottleneck(64, 96, 2), block(96, 144, 2, 32), bottleneck(96, 128, 2), block(128, 192, 4, 16),
            bottleneck(128, 160, 2), block(160, 240, 3, 8),
            convolved(640, 1, 1), GlobalAvgPool, Linear(1000, name = "fc"),
        ]
    }

    fn convolved(channels: usize, size: usize, stride: usize) -> Block {
        [Conv2d(channels, size, stride = stride, padding = size / 2, bias = false), BatchNorm2d, Silu]
    }

    fn bottleneck(arriving: usize, channels: usize, stride: usize) -> Block {
        [
            convolved(4 * arriving, 1, 1),
            Conv2d(4 * arriving, 3, stride = stride, padding = 1, groups = 4 * arriving, bias = false), BatchNorm2d, Silu,
            Conv2d(channels, 1, bias = false), BatchNorm2d,
        ]
    }

    fn block(channels: usize, width: usize, depth: usize, side: usize) -> Block {
        [
            Concat(
                [],
                [
                    convolved(channels, 3, 1), Conv2d(width, 1, bias = false),
                    Reshape(width, side / 2, 2, side / 2, 2), Permute(0, 3, 5, 2, 4, 1), Reshape(4, side * side / 4, width),
                    repeat(depth, layer(width)), LayerNorm(width),
                    Reshape(2, 2, side / 2, side / 2, width), Permute(0, 5, 3, 1, 4, 2), Reshape(width, side, side),
                    convolved(channels, 1, 1),
                ],
                dim = 1,
            ),
            convolved(channels, 3, 1),
        ]
    }

    fn layer(width: usize) -> Block {
        [
            Add([], [LayerNorm(width), Attention(Linear(width, 3 * width), heads = 4), Linear(width, width)]),
            Add([], [LayerNorm(width), Linear(width, 2 * width), Silu, Linear(2 * width, width)]),
        ]
    }
}

network! {
    /// timm's `coat_lite_tiny`: attention in which keys are weighed over all steps first, so that its products are between channels.
    pub struct CoatLiteTiny;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };

    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            stage(64, 4, 56, 8, 0.35355339059327373), image(64, 56), stage(128, 2, 28, 8, 0.25), image(128, 28),
            stage(256, 2, 14, 4, 0.17677669529663687), image(256, 14), stage(320, 2, 7, 4, 0.15811388300841897),
            LayerNorm(eps = 1e-6, name = "norm4"), Select(0), Linear(1000, name = "head"),
        ]
    }

    /// The steps behind the class's as a map.
    fn image(channels: usize, side: usize) -> Block {
        [Slice(1), Transpose(1, 2), Reshape(channels, side, side)]
    }

    /// Both layers share their positions. `factor` is 1 / sqrt(channels / 8).
    fn stage(channels: usize, patch: usize, side: usize, wider: usize, factor: f64) -> Block {
        let near = Conv2d(channels, 3, padding = 1, groups = channels);
        let small = Conv2d(channels / 4, 3, padding = 1, groups = channels / 4);
        let middle = Conv2d(channels * 3 / 8, 5, padding = 2, groups = channels * 3 / 8);
        let large = Conv2d(channels * 3 / 8, 7, padding = 3, groups = channels * 3 / 8);
        [
            Conv2d(channels, patch, stride = patch), Reshape(channels, side * side), Transpose(1, 2), LayerNorm, ClassToken,
            layer(channels, side, wider, near, attended(channels, side, factor, small, middle, large)),
            layer(channels, side, wider, near, attended(channels, side, factor, small, middle, large)),
        ]
    }

    fn layer(channels: usize, side: usize, wider: usize, near: Block, attention: Block) -> Block {
        [
            Concat(
                Slice(0, 1),
                [image(channels, side), Add([], near), Reshape(channels, side * side), Transpose(1, 2)],
                dim = 1,
            ),
            Add([], [LayerNorm(eps = 1e-6), attention, Linear(channels)]),
            Add([], [LayerNorm(eps = 1e-6), Linear(wider * channels), Gelu, Linear(channels)]),
        ]
    }

    fn attended(channels: usize, side: usize, factor: f64, small: Block, middle: Block, large: Block) -> Block {
        [
            Linear(3 * channels), tap(all),
            Slice(0, channels, dim = -1), tap(queries), from(all), Slice(2 * channels, 3 * channels, dim = -1), tap(values),
            Add(
                [
                    MatMul(
                        [from(queries), Reshape(-1, 8, channels / 8), Permute(0, 2, 1, 3)],
                        MatMul(
                            [
                                from(all), Slice(channels, 2 * channels, dim = -1), Reshape(-1, 8, channels / 8),
                                Permute(0, 2, 3, 1), Softmax(-1),
                            ],
                            [from(values), Reshape(-1, 8, channels / 8), Permute(0, 2, 1, 3)],
                        ),
                    ),
                    Permute(0, 2, 1, 3), Reshape(-1, channels), Affine(factor),
                ],
                [
                    Mul(
                        [from(queries), image(channels, side)],
                        [
                            from(values), image(channels, side),
                            Concat(
                                [Slice(0, channels / 4), small], [Slice(channels / 4, channels * 5 / 8), middle],
                                [Slice(channels * 5 / 8), large], dim = 1,
                            ),
                        ],
                    ),
                    Reshape(channels, side * side), Pad((1, 0)), Transpose(1, 2),
                ],
            ),
        ]
    }
}

#[test]
fn parameters_and_operations_are_those_of_pytorch() {
    check::<MistralSmall>(60_039_680, 11_442_061_312, [4_231_483_656, 4_471_642_676]);
    check::<BartBase>(139_420_416, 24_495_095_808, [4_991_445_868, 5_549_128_568]);
    check::<DiTS2>(39_805_088, 12_117_245_952, [3_420_792_712, 3_580_014_000]);
    check::<EfficientFormerL1>(12_289_928, 2_582_569_472, [2_372_359_192, 2_421_519_628]);
    check::<MobileVitS>(5_578_632, 4_001_662_976, [5_808_050_408, 5_830_365_796]);
    check::<CoatLiteTiny>(5_721_960, 3_178_075_904, [2_812_868_416, 2_835_756_864]);
}
