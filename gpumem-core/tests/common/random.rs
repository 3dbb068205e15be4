//! Random networks over three kinds of values that have the same number of elements: a map, a sequence and a vector. A
//! vector may thus be a view of either of the others, and a sequence may be one for the whole batch.

mod tables;

use super::{again, chain, join, layer, numbers, op_of, parse, tokens, try_join};
use gpumem_core::graph::{Graph, NodeId, RowId, Source};
use gpumem_core::program::Op;
use gpumem_core::program::functions::Function;
use std::sync::LazyLock;

/// Samples that the networks are run on.
pub const BATCH: u64 = 3;

/// What one choice adds: what to add, and which of the values that are there it reads.
pub type Choice = (usize, usize, usize);

/// Kinds of choices.
pub const KINDS: usize = 124;

const MAPS: [&str; 12] = [
    "Conv2d(2, 3, padding = 1)",
    "Conv2d(2, 1)",
    "ConvTranspose2d(2, 3, padding = 1, bias = false)",
    "BatchNorm2d",
    "BatchNorm2d(affine = false)",
    "Tanh",
    "Sigmoid",
    "Gelu",
    "Dropout(0.3)",
    "Softmax",
    "AvgPool2d(3, 1, padding = 1)",
    "Upsample(2) | AvgPool2d(2)",
];

const SEQUENCES: [&str; 9] = [
    "Linear(8)",
    "LayerNorm",
    "LayerNorm(elementwise_affine = false)",
    "CausalSelfAttention(2)",
    "CausalSelfAttention(2, dropout = 0.2)",
    "PositionEmbedding(4)",
    "Silu",
    "Dropout(0.2)",
    "Softmax",
];

const VECTORS: [&str; 6] = ["Linear(24)", "LayerNorm", "Tanh", "Gelu", "Dropout(0.4)", "Softmax"];

/// Functions with kinks, where differences of losses are no derivatives.
const KINKED: [&str; 9] = [
    "Relu",
    "Relu6",
    "LeakyRelu(0.1)",
    "Prelu",
    "Hardsigmoid",
    "Abs",
    "Hardtanh",
    "Softshrink(0.2)",
    // Elsewhere it jumps, and rounding would decide where.
    "Hardshrink(0.0)",
];

/// Functions that `Drawing::add` names.
const ADDED: [&str; 3] = ["Exp", "Hardswish", "Affine"];

/// Returns one of [`KINKED`] and of the functions that no list here has. Those may have kinks.
fn kinked_function(which: usize) -> &'static str {
    static ALL: LazyLock<Vec<&str>> = LazyLock::new(|| {
        let lists: [&[&str]; 6] = [&MAPS, &SEQUENCES, &VECTORS, &KINKED, &SMOOTH, &ADDED];
        let listed = lists.concat().join(" ");
        let is_new = |name: &&str| !listed.split(|c: char| !c.is_alphanumeric()).any(|word| word == *name);
        let layers = Function::ALL.iter().filter(|function| function.row().is_layer).map(|function| function.name());
        KINKED.into_iter().chain(layers.filter(is_new)).collect()
    });
    ALL[which % ALL.len()]
}

/// Functions without kinks.
const SMOOTH: [&str; 18] = [
    "Elu",
    "Celu(1.5)",
    "Selu",
    "Affine(0.5) | Elu(inplace = true)",
    "Affine(0.5) | Celu(1.5, inplace = true)",
    "Affine(0.5) | Selu(inplace = true)",
    "Softplus",
    "Softplus(2.0)",
    "Softsign",
    "Mish",
    "QuickGelu",
    "LogSigmoid",
    "Tanhshrink",
    "Sin",
    "Cos",
    "Pow",
    "Sigmoid | Sqrt",
    "Sigmoid | Affine(1.0, 0.5) | Log",
];

/// A network under construction: its values by shape, each list in the order of the forward pass.
struct Drawing {
    graph: Graph,
    maps: Vec<NodeId>,
    sequences: Vec<NodeId>,
    vectors: Vec<NodeId>,
}

/// A network of these choices and its output, logits of 4 classes.
///
/// With `kinked` it may have functions that are not differentiable everywhere.
pub fn network(choices: &[Choice], kinked: bool) -> (Graph, NodeId) {
    let mut graph = Graph::default();
    let image = graph.input(numbers(&[2, 4, 3])).unwrap();
    let text = graph.input(tokens(3)).unwrap();
    let map = layer(&mut graph, image, "Conv2d(2, 3, padding = 1)");
    let positions = layer(&mut graph, text, "PositionEmbedding(3, 8)");
    let words = layer(&mut graph, text, "Embedding(5, 8)");
    let vector = layer(&mut graph, map, "Flatten");
    let mut drawing =
        Drawing { graph, maps: vec![image, map], sequences: vec![positions, words], vectors: vec![vector] };
    for &choice in choices {
        drawing.add(choice, kinked);
    }
    let Drawing { mut graph, maps, sequences, vectors } = drawing;
    let g = &mut graph;
    let mut ends = vec![chain(g, maps[maps.len() - 1], "Flatten | Linear(4)")];
    ends.push(chain(g, sequences[sequences.len() - 1], "Flatten | Linear(4)"));
    ends.push(layer(g, vectors[vectors.len() - 1], "Linear(4)"));
    let sum = join(g, &ends, "Add");
    // An output that the backward pass reads, one that only the loss reads, and one that is a view.
    let output = match choices[0].1 % 3 {
        0 => layer(g, sum, "Tanh"),
        1 => sum,
        _ => chain(g, sum, "Sigmoid | Flatten"),
    };
    (graph, output)
}

impl Drawing {
    fn add(&mut self, (kind, first, second): Choice, kinked: bool) {
        let pick = |values: &[NodeId], which: usize| values[which % values.len()];
        let map = [first, second].map(|which| pick(&self.maps, which));
        let sequence = [first, second].map(|which| pick(&self.sequences, which));
        let vector = [first, second].map(|which| pick(&self.vectors, which));
        let g = &mut self.graph;
        match kind {
            0..12 => self.maps.push(chain(g, map[0], MAPS[kind])),
            12..21 => self.sequences.push(chain(g, sequence[0], SEQUENCES[kind - 12])),
            21..27 => self.vectors.push(layer(g, vector[0], VECTORS[kind - 21])),
            27..30 => self.maps.push(join(g, &map, "Add")),
            30 => self.maps.push(join(g, &[map[0], map[1], map[0]], "Add")),
            31 => self.maps.push(join(g, &map, "Mul")),
            32 => {
                let both = join(g, &[map[0], map[1], map[0]], "Concat");
                self.maps.push(layer(g, both, "Conv2d(2, 1)"));
            }
            33..37 => self.sequences.push(join(g, &sequence, "Add")),
            37 => self.sequences.push(join(g, &[sequence[0], sequence[1], sequence[0]], "Add")),
            // Values that are the same for every sample are summed instead.
            38 | 39 => {
                let product = if differ(g, &sequence) { "Mul" } else { "Add" };
                self.sequences.push(join(g, &sequence, product));
            }
            40 => match try_join(g, &sequence, "Concat") {
                Ok(both) => self.sequences.push(layer(g, both, "Linear(8)")),
                Err(_) => self.sequences.push(join(g, &sequence, "Add")),
            },
            41 | 42 => self.vectors.push(layer(g, map[0], "Flatten")),
            43 | 44 => self.vectors.push(layer(g, sequence[0], "Flatten")),
            45..48 => self.vectors.push(join(g, &vector, "Add")),
            48 => self.vectors.push(join(g, &[vector[1], vector[0], vector[0], vector[1]], "Add")),
            49 => {
                let product = if differ(g, &vector) { "Mul" } else { "Add" };
                self.vectors.push(join(g, &vector, product));
            }
            50..52 => self.maps.push(share(g, map[0], MAPS[0], second)),
            52..54 => self.maps.push(share(g, map[0], MAPS[3], second)),
            54..57 => self.sequences.push(share(g, sequence[0], SEQUENCES[0], second)),
            57 => self.sequences.push(tie(g, sequence[0], second)),
            58 | 59 if kinked => match second % 4 {
                0 => self.maps.push(layer(g, map[0], "MaxPool2d(3, 1, padding = 1)")),
                1 => self.maps.push(layer(g, map[0], kinked_function(first + second))),
                2 => self.sequences.push(layer(g, sequence[0], kinked_function(first + second))),
                _ => self.vectors.push(layer(g, vector[0], kinked_function(first + second))),
            },
            // Values that are repeated, within samples and over them.
            60 => {
                let gate = layer(g, map[1], "AvgPool2d([4; 3])");
                self.maps.push(join(g, &[map[0], gate], "Mul"));
            }
            61 => match (second % 4, kinked) {
                (1, true) => self.maps.push(join(g, &map, "Maximum")),
                (2, true) => {
                    let row = chain(g, map[1], "AdaptiveAvgPool2d([1; 3])");
                    self.maps.push(join(g, &[row, map[0]], "Minimum"));
                }
                (3, _) => self.maps.push(chain(g, map[0], "AdaptiveAvgPool2d([4; 1]) | Expand(-1, 4, 3)")),
                _ => self.maps.push(join(g, &map, "Sub")),
            },
            62 => {
                let bias = chain(g, map[1], "AdaptiveAvgPool2d([1; 3])");
                self.maps.push(join(g, &[bias, map[0]], "Add"));
            }
            63 => self.sequences.push(join(g, &sequence, "Mul")),
            64 => {
                let weight = chain(g, sequence[1], "Linear(1) | Sigmoid");
                self.sequences.push(join(g, &[weight, sequence[0]], "Mul"));
            }
            65 => {
                let scores = try_join(g, &sequence, "MatMul(transpose_b = true)");
                let mixed = scores.and_then(|scores| try_join(g, &[scores, sequence[1]], "MatMul"));
                self.sequences.push(mixed.unwrap_or_else(|_| join(g, &sequence, "Sub")));
            }
            66 => self.vectors.push(chain(g, vector[0], "Affine(0.25, -0.5) | Exp | Affine(0.1)")),
            67 => {
                let positive = chain(g, vector[1], "Sigmoid | Affine(1.0, 1.0)");
                self.vectors.push(join(g, &[vector[0], positive], "Div"));
            }
            68 => self.maps.push(layer(g, map[0], if second % 2 == 0 { "GroupNorm(1)" } else { "GroupNorm(2)" })),
            69 => self.sequences.push(layer(g, sequence[0], "RmsNorm")),
            70 => self.vectors.push(layer(g, vector[0], "RmsNorm(elementwise_affine = false)")),
            71 => self.sequences.push(layer(g, sequence[0], if second % 2 == 0 { "CausalSelfAttention(4, kv_heads = 2)" } else { "CausalSelfAttention(2, window = 2)" })),
            72 => self.vectors.push(chain(g, map[0], "GlobalAvgPool | Linear(24)")),
            73 => self.sequences.push(chain(g, sequence[0], "Linear(24) | CausalAttention(2)")),
            74 => self.vectors.push(layer(g, vector[0], "Gelu(approximate = \"tanh\")")),
            75 if kinked => self.vectors.push(layer(g, vector[0], "Hardswish")),
            // Logarithms and roots are of positive numbers.
            76 => self.maps.push(chain(g, map[0], if second % 2 == 0 { "Tanh | Everything" } else { "Squash" })),
            77 => self.vectors.push(layer(g, vector[0], "Swish")),
            78 => self.sequences.push(match second % 3 {
                0 => share(g, sequence[0], "Fold", first),
                _ => layer(g, sequence[0], "Fold"),
            }),
            80 | 81 => {
                let function = SMOOTH[(2 * first + second + kind) % SMOOTH.len()];
                self.sequences.push(chain(g, sequence[0], function));
            }
            82 => self.sequences.push(layer(g, sequence[0], "Conv1d(3, 3, padding = 1)")),
            83 => self.sequences.push(layer(g, sequence[0], "ConvTranspose1d(3, 3, padding = 1)")),
            84 => self.sequences.push(layer(g, sequence[0], "AvgPool1d(3, 1, padding = 1)")),
            85 => self.sequences.push(chain(g, sequence[0], "AdaptiveAvgPool1d(4) | Linear(8)")),
            86 => self.sequences.push(layer(g, sequence[0], "InstanceNorm1d(affine = true)")),
            87 => self.maps.push(match second % 3 {
                // Without a slope there is no kink.
                0 if kinked => share(g, map[0], "InplaceAbn(activation_param = 0.25)", first),
                1 => layer(g, map[0], "InplaceAbn(activation_param = 1, affine = false)"),
                _ => layer(g, map[0], "InstanceNorm2d"),
            }),
            88 => self.vectors.push(layer(g, vector[0], "BatchNorm1d")),
            89 => match second % 3 {
                0 if kinked => self.sequences.push(layer(g, sequence[0], "MaxPool1d(3, 1, padding = 1)")),
                1 => self.sequences.push(layer(g, sequence[0], "LayerNorm([3; 8])")),
                _ => self.sequences.push(layer(g, sequence[0], "RmsNorm([3; 8])")),
            },
            90 => match second % 3 {
                0 => self.maps.push(chain(
                    g,
                    map[0],
                    "Permute([0; 2; 3; 1]) | Reshape([4; 3; 2]) | Permute([0; 3; 1; 2])",
                )),
                1 => self.maps.push(chain(g, map[0], "Transpose(2, 3) | Reshape([2; 4; -1])")),
                _ => self.maps.push(chain(g, map[0], "Permute([0; 2; 1; 3]) | Reshape([2; 4; 3])")),
            },
            91 => self.sequences.push(chain(g, sequence[0], "Transpose(1, -1) | Reshape([3; 8])")),
            92 => self.vectors.push(layer(g, sequence[0], "Reshape(24)")),
            93 => {
                let end = layer(g, sequence[0], "Slice(-5, dim = 2)");
                let start = layer(g, sequence[0], "Slice(0, 3, dim = 2)");
                self.sequences.push(match try_join(g, &[end, start], "Concat") {
                    Ok(both) => both,
                    Err(_) => layer(g, sequence[0], "Silu"),
                });
            }
            94 => {
                let one = layer(g, sequence[0], "Select(1)");
                self.sequences.push(join(g, &[sequence[0], one], "Mul"));
            }
            95 => {
                let text =
                    ["Mean(2, keepdim = true)", "Sum(1, keepdim = true)", "Mean([1; 2], keepdim = true)"][second % 3];
                let sum = layer(g, sequence[0], text);
                self.sequences.push(join(g, &[sequence[0], sum], "Sub"));
            }
            96 => {
                let text = ["Mean([2; 3], keepdim = true)", "Sum([1; 3], keepdim = true)"][second % 2];
                let sum = chain(g, map[0], text);
                self.maps.push(join(g, &[map[0], sum], "Mul"));
            }
            97 => match (second % 2, kinked) {
                (0, true) => {
                    let text = ["Max(1)", "Norm(2, 1)", "Norm(\"inf\", 1)"][first % 3];
                    let largest = layer(g, sequence[0], text);
                    self.sequences.push(join(g, &[sequence[0], largest], "Sub"));
                }
                (0, false) => self.sequences.push(layer(g, sequence[0], "Scale(init = 0.5, bias = true, dim = -1)")),
                _ => {
                    let texts = ["Scale(dim = 1)", "Scale(init = 0.75, scalar = true)", "Scale(shape = [4; 1])"];
                    self.maps.push(layer(g, map[0], texts[first % 3]));
                }
            },
            98 => self.sequences.push(chain(g, sequence[0], "Linear(16) | Glu")),
            99 => match try_join(g, &[sequence[0]], "ClassToken") {
                Ok(longer) => self.sequences.push(layer(g, longer, "Slice(0, 3)")),
                Err(_) => self.sequences.push(layer(g, sequence[0], "Silu")),
            },
            100 => {
                let text =
                    ["MultiHeadAttention(2)", "MultiHeadAttention(4, bias = false, dropout = 0.1, kv_heads = 2)"]
                        [second % 2];
                self.sequences.push(layer(g, sequence[0], text));
            }
            101 => {
                let texts = [
                    "Upsample(size = [5; 7], mode = \"bicubic\") | Upsample(size = [4; 3])",
                    "Upsample([1.5; 2.5], mode = \"bilinear\") | Upsample(size = [4; 3], mode = \"bilinear\", align_corners = true)",
                    "Upsample(size = [2; 5]) | Upsample(size = [4; 3], mode = \"bicubic\", align_corners = true)",
                ];
                self.maps.push(chain(g, map[0], texts[second % 3]));
            }
            102 => match second % 4 {
                0 => self.maps.push(chain(g, map[0], "Pad(1, mode = \"reflect\") | Conv2d(2, 3)")),
                1 => self.maps.push(chain(g, map[0], "Pad([3; 0; 1; 2], mode = \"circular\") | Pad([-1; -2; -3; 0])")),
                2 => self.maps.push(chain(g, map[0], "Pad([0; 2; -1; 1], value = 0.5) | AvgPool2d([1; 3], 1)")),
                _ => self.sequences.push(chain(g, sequence[0], "Pad([2; 3], mode = \"replicate\") | Linear(8)")),
            },
            103 => match second % 3 {
                0 => self.maps.push(layer(g, map[0], "Dropout2d(0.3)")),
                1 => self.maps.push(layer(g, map[0], "DropPath(0.3)")),
                _ => self.sequences.push(layer(g, sequence[0], "Dropout1d(0.3)")),
            },
            104 => match (second % 3, kinked) {
                (0, true) => self.maps.push(chain(g, map[0], "AdaptiveMaxPool2d([3; 2]) | Upsample(size = [4; 3])")),
                (1, true) => self.sequences.push(chain(g, sequence[0], "AdaptiveMaxPool1d(5) | Linear(8)")),
                _ => self.sequences.push(layer(g, sequence[0], "LogSoftmax")),
            },
            105 => match second % 5 {
                0 => self.maps.push(chain(g, map[0], "ChannelShuffle(2) | Roll([1; -1], [2; 3])")),
                1 => self.maps.push(chain(g, map[0], "Conv2d(4, 1) | PixelShuffle(2) | PixelUnshuffle(2) | Conv2d(2, 1)")),
                2 => self.maps.push(chain(
                    g,
                    map[0],
                    "Unsqueeze(1) | Reshape([1; 2; 2; 2; 3; 1]) | Permute([0; 6; 3; 1; 4; 2; 5]) | Squeeze(3) | Reshape([2; 4; 3])",
                )),
                3 => self.maps.push(chain(g, map[0], "Reshape([2; 2; 1; 2; 3]) | Slice(1, dim = 4) | Reshape([2; 2; 3]) | Pad([0; 0; 2; 0])")),
                _ => self.sequences.push(chain(g, sequence[0], "Roll(2, 1)")),
            },
            106 => {
                let texts = [
                    "Rotary(2, base = 4.0)",
                    "Rotary(2, base = 3.0, dims = 2, interleaved = true)",
                    "CausalSelfAttention(2, rotary = 10.0, rotary_dims = 2, kv_heads = 1)",
                    "MultiHeadAttention(2, rotary = 8.0, interleaved = true)",
                ];
                self.sequences.push(layer(g, sequence[0], texts[second % 4]));
            }
            107 => {
                let texts = [
                    "Lstm(8)",
                    "Lstm(4, layers = 2, bidirectional = true, dropout = 0.2)",
                    "Lstm(8, bias = false, cudnn = true)",
                    "Lstm(9, proj_size = 8)",
                    "Lstm(6, proj_size = 4, layers = 2, bidirectional = true, bias = false)",
                    "Lstm(6, proj_size = 4, bidirectional = true, cudnn = true)",
                ];
                self.sequences.push(layer(g, sequence[0], texts[second % 6]));
            }
            108 => {
                let texts = [
                    "Gru(8)",
                    "Gru(4, bidirectional = true)",
                    "Gru(8, layers = 2, cudnn = true)",
                    "Gru(4, layers = 2, bidirectional = true, bias = false, cudnn = true)",
                ];
                self.sequences.push(layer(g, sequence[0], texts[second % 4]));
            }
            109 => match (second % 4, kinked) {
                (0, true) => self.sequences.push(layer(g, sequence[0], "Rnn(8, nonlinearity = \"relu\")")),
                (0 | 1, _) => self.sequences.push(share(g, sequence[0], "Lstm(8)", first)),
                (2, _) => self.sequences.push(layer(g, sequence[0], "Rnn(4, bidirectional = true)")),
                _ => self.sequences.push(layer(g, sequence[0], "Rnn(8, layers = 2)")),
            },
            110 => {
                let keys = chain(g, sequence[1], if second % 2 == 0 { "Slice(0, 2)" } else { "Slice(1)" });
                let values = chain(g, keys, "Linear(8)");
                let causal = second % 3 == 0;
                let text = format!("Attention(heads = 2, causal = {causal}, scale = 0.4)");
                self.sequences.push(match try_join(g, &[sequence[0], keys, values], &text) {
                    Ok(attended) => attended,
                    Err(_) => layer(g, sequence[0], "Silu"),
                });
            }
            111 => {
                // The numbers that are added to the scores differ between samples, or are equal in all, or are one row for all queries.
                let bias = match second % 3 {
                    0 => try_join(g, &[sequence[0], sequence[0]], "MatMul(transpose_b = true)"),
                    1 => Ok(layer(g, sequence[0], "Mean(-1)")),
                    _ => match first % 6 {
                        0 => Ok(chain(g, sequence[0], "PositionEmbedding(6, 3) | Affine(0.5)")),
                        which => Ok(layer(g, sequence[0], BIASES[which - 1])),
                    },
                };
                let [q, k, v] = [sequence[0], sequence[0], sequence[1]];
                let attended = bias.and_then(|bias| try_join(g, &[q, k, v, bias], "Attention(heads = 4)"));
                self.sequences.push(attended.unwrap_or_else(|_| layer(g, sequence[0], "Silu")));
            }
            112 => {
                let embedded = match second % 4 {
                    0 => chain(g, sequence[0], "Linear(1) | SinusoidalEmbedding(8, base = 5.0, cosines_first = true)"),
                    1 => chain(g, sequence[0], "SinusoidalPositions(interleaved = true)"),
                    2 if first % 2 == 0 => {
                        let windows = chain(g, sequence[0], "Reshape([6; 4; 1])");
                        chain(g, windows, "ShiftedWindowMask([4; 6], 2, 1) | Reshape([12; 8]) | Slice(2, 5)")
                    }
                    2 => chain(g, sequence[0], "SinusoidalPositions(size = [3; 1])"),
                    _ => chain(g, sequence[0], "Linear(1) | Tanh | SinusoidalEmbedding(8, base = 2.0, shift = 1.0)"),
                };
                self.sequences.push(join(g, &[sequence[0], embedded], "Add"));
            }
            113 => {
                let texts = [
                    "Conv3d(2, 3, padding = 1)",
                    "Conv3d(4, [1; 2; 3], padding = [0; 1; 1], groups = 2) | BatchNorm3d | Conv3d(2, [1; 2; 1])",
                    "ConvTranspose3d(2, 3, padding = 1) | InstanceNorm3d(affine = true)",
                    "Conv3d(2, 3, stride = [1; 2; 2], padding = 1) | ConvTranspose3d(2, [1; 2; 2], stride = [1; 2; 2]) | AdaptiveAvgPool3d([2; 2; 3])",
                    "Dropout3d(0.3) | BatchNorm3d(affine = false)",
                ];
                self.maps.push(of_volume(g, map[0], texts[second % 5]));
            }
            114 => match (second % 4, kinked) {
                (0, true) => self.maps.push(of_volume(g, map[0], "MaxPool3d(3, 1, padding = 1)")),
                (1, true) => self.maps.push(of_volume(g, map[0], "AdaptiveMaxPool3d([3; 2; 2]) | AdaptiveAvgPool3d([2; 2; 3])")),
                (2, _) => self.maps.push(of_volume(g, map[0], "AvgPool3d(3, 1, padding = 1)")),
                _ => self.maps.push(of_volume(g, map[0], "AvgPool3d([2; 1; 2], [1; 1; 2]) | AdaptiveAvgPool3d([2; 2; 3])")),
            },
            115 if first.is_multiple_of(2) => self.add_table(map[0], sequence[0], first / 2 * 6 + second),
            115 => self.add_indices(sequence[0], first / 2 * 6 + second, kinked),
            116 => {
                let sizes = chain(g, sequence[0], if second % 2 == 0 { "StepSizes(8)" } else { "Linear(8) | Sigmoid" });
                let (b, c) = (layer(g, sequence[1], "Linear(3)"), layer(g, sequence[0], "Linear(3)"));
                self.sequences.push(match try_join(g, &[sequence[0], sizes, b, c], "SelectiveScan") {
                    Ok(scanned) => scanned,
                    Err(_) => layer(g, sequence[0], "Silu"),
                });
            }
            117 => {
                let texts = [
                    "Conv2d(2, 3, padding = 1, standardized = true)",
                    "Conv2d(2, 3, padding = 1, standardized = true, gamma = 1.5, eps = 1e-3)",
                    "Conv2d(2, [3; 1], padding = [1; 0], weight_norm = 2)",
                ];
                self.maps.push(layer(g, map[0], texts[second % 3]));
            }
            118 => match second % 5 {
                0 => self.sequences.push(layer(g, sequence[0], "Linear(8, weight_norm = true)")),
                1 => self.sequences.push(layer(g, sequence[0], "Linear(8, weight_norm = 1, bias = false)")),
                2 => self.sequences.push(share(g, sequence[0], "Linear(8, weight_norm = true)", first)),
                // Its gradient takes the singular vectors as constants, which a slope of the loss does not.
                3 if kinked => self.sequences.push(layer(g, sequence[0], "Linear(8, spectral_norm = true)")),
                _ => self.sequences.push(layer(g, sequence[0], "Conv1d(3, 3, padding = 1, weight_norm = 2)")),
            },
            119 => match second % 2 {
                0 => self.maps.push(layer(g, map[0], "ConvTranspose2d(2, 3, padding = 1, weight_norm = true)")),
                _ => self.sequences.push(layer(g, sequence[0], "ConvTranspose1d(3, 3, padding = 1, weight_norm = 0)")),
            },
            120 => {
                let texts = [
                    "CausalSelfAttention(2, qk_norm = \"RmsNorm\", rotary = 6.0)",
                    "MultiHeadAttention(4, kv_heads = 2, qk_norm = \"LayerNorm\", qk_norm_eps = 0.01)",
                ];
                self.sequences.push(layer(g, sequence[0], texts[second % 2]));
            }
            121..124 => self.add_shared(kind, [map[0], sequence[0]], (first, second)),
            79 => self.maps.push(layer(g, map[0], "Normalize([0.25; -0.5], [1.5; 0.8])")),
            _ => {}
        }
    }
}

/// What is added to the scores of four heads.
const BIASES: [&str; 5] = [
    "RelativePositionBias(4)",
    "RelativePositionBias(4, absolute = true)",
    "RelativePositionBias(4, buckets = 4, max_distance = 2)",
    "RelativePositionBias(4, buckets = 4, max_distance = 9, bidirectional = false)",
    "AlibiBias(4)",
];

/// Whether all of these values differ between samples.
fn differ(graph: &Graph, values: &[NodeId]) -> bool {
    values.iter().all(|&id| graph.value(id).batched)
}

/// The row of an earlier layer of this kind whose operation is `wanted`, with parameters of the same shapes as `like`.
fn owner(graph: &Graph, which: usize, kind: &str, like: Option<RowId>, wanted: impl Fn(&Op) -> bool) -> Option<RowId> {
    let shapes = |row: RowId| {
        let read = graph.nodes.iter().filter(move |node| node.row == row);
        read.filter(|node| matches!(node.source, Source::Parameter(_))).map(|node| node.value.shape)
    };
    let is_wanted = |row: &RowId| {
        if like.is_some_and(|like| !shapes(like).eq(shapes(*row))) {
            return false;
        }
        let ops = graph.nodes.iter().filter(|node| node.row == *row);
        let mut ops = ops.filter_map(|node| if let Source::Op { op, .. } = &node.source { Some(op) } else { None });
        graph.rows[*row].kind == kind && ops.any(&wanted)
    };
    let owners: Vec<RowId> = (0..graph.rows.len()).filter(is_wanted).collect();
    owners.get(which % owners.len().max(1)).copied()
}

/// A layer with the parameters and running statistics of one like it, which may be any of the network's, used or not.
fn share(graph: &mut Graph, input: NodeId, text: &str, which: usize) -> NodeId {
    let unused = layer(graph, input, text);
    let (model, kind) = (op_of(graph, unused).clone(), parse(text).0);
    let row = owner(graph, which, kind, Some(graph.nodes[unused].row), |other| *other == model)
        .expect("there is one at least");
    again(graph, input, text, row)
}

/// The transposed use of an earlier `Linear(8)` on rows of 8.
fn tie(graph: &mut Graph, input: NodeId, which: usize) -> NodeId {
    let square = |op: &Op| matches!(op, Op::Product(product) if product.in_features == product.out_features && product.shape.dims() == [3, 8]);
    match owner(graph, which, "Linear", None, square) {
        Some(owner) => again(graph, input, if which.is_multiple_of(2) { "Tied" } else { "Tied(bias = true)" }, owner),
        None => layer(graph, input, "Silu"),
    }
}

/// Layers of volumes on a map, whose rows are taken for planes of two rows each.
fn of_volume(g: &mut Graph, map: NodeId, text: &str) -> NodeId {
    chain(g, map, &format!("Reshape([2; 2; 2; 3]) | {text} | Reshape([2; 4; 3])"))
}
