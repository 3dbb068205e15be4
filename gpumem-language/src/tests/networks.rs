//! Published networks: layers, paths and parameters.

use super::{forward, sound};
use crate::resolve::Resolved;

pub(super) const VGG16: &str = "
    pub struct Vgg16;
    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            stage(2, 64), stage(2, 128), stage(3, 256), stage(3, 512), stage(3, 512),
            Flatten,
            Linear(4096), Relu(inplace), Dropout(0.5),
            Linear(4096), Relu(inplace), Dropout(0.5),
            Linear(1000),
        ]
    }
    fn stage(depth: usize, channels: usize) -> Block {
        [repeat(depth, [Conv2d(channels, 3, padding = 1), Relu(inplace)]), MaxPool2d(2)]
    }
";

const RESNET50: &str = "
    pub struct ResNet50;
    fn forward(image: Image<3, 224, 224>) -> Logits<1000> {
        [
            Conv2d(64, 7, stride = 2, padding = 3, bias = false), BatchNorm2d, Relu,
            MaxPool2d(3, stride = 2, padding = 1),
            stage(3, 64, 1), stage(4, 128, 2), stage(6, 256, 2), stage(3, 512, 2),
            GlobalAvgPool,
            Linear(1000, name = \"fc\"),
        ]
    }
    fn stage(depth: usize, width: usize, stride: usize) -> Block {
        [
            bottleneck(width, stride, [Conv2d(4 * width, 1, stride = stride, bias = false), BatchNorm2d]),
            repeat(depth - 1, bottleneck(width, 1, [])),
        ]
    }
    fn bottleneck(width: usize, stride: usize, shortcut: Block) -> Block {
        let squeeze = [Conv2d(width, 1, bias = false), BatchNorm2d, Relu];
        [
            Add(
                [
                    squeeze,
                    Conv2d(width, 3, stride = stride, padding = 1, bias = false), BatchNorm2d, Relu,
                    Conv2d(4 * width, 1, bias = false), BatchNorm2d,
                ],
                shortcut,
            ),
            Relu,
        ]
    }
";

const GPT2: &str = "
    pub struct Gpt2;
    const VOCABULARY: usize = 50257;
    const WIDTH: usize = 12 * 64;
    fn forward(tokens: Tokens<1024>) -> TokenLogits<1024, VOCABULARY> {
        let wte = Embedding(VOCABULARY, WIDTH);
        [Add(wte, PositionEmbedding(1024, WIDTH)), Dropout(0.1), repeat(12, layer(12)), LayerNorm, Tied(wte)]
    }
    fn layer(heads: usize) -> Block {
        [
            Add([], [LayerNorm, CausalSelfAttention(heads, dropout = 0.1), Dropout(0.1)]),
            Add([], [LayerNorm, Linear(4 * WIDTH), Gelu(approximate = \"tanh\"), Linear(WIDTH), Dropout(0.1)]),
        ]
    }
";

const UNET: &str = "
    pub struct UNet;
    fn forward(image: Image<1, 64, 96>) -> Map<2, 64, 96> {
        [level(16, [level(32, [level(64, [double(128)])])]), Conv2d(2, 1)]
    }
    fn level(channels: usize, inner: Block) -> Block {
        [
            double(channels), tap(skip), MaxPool2d(2), inner,
            ConvTranspose2d(channels, 2, stride = 2), Concat(from(skip), []), double(channels),
        ]
    }
    fn double(channels: usize) -> Block {
        [repeat(2, [Conv2d(channels, 3, padding = 1), Relu])]
    }
";

fn parameters(network: &Resolved) -> u64 {
    network.graph.rows.iter().map(|row| row.parameters).sum()
}

fn paths(network: &Resolved) -> Vec<&str> {
    network.graph.rows.iter().map(|row| row.path.as_str()).collect()
}

#[test]
fn vgg16() {
    let network = sound(VGG16);
    assert_eq!(parameters(&network), 138_357_544);
    let paths = paths(&network);
    assert_eq!(paths.len(), 39);
    assert_eq!(
        paths[..6],
        [
            "stage[0].conv2d[0]",
            "stage[0].relu[0]",
            "stage[0].conv2d[1]",
            "stage[0].relu[1]",
            "stage[0].max_pool2d",
            "stage[1].conv2d[0]",
        ]
    );
    assert_eq!(paths[31..34], ["flatten", "linear[0]", "relu[0]"]);
    assert_eq!(network.graph.parameters[0].name, "stage[0].conv2d[0].weight");
    let shape = |row: usize| network.graph.rows[row].output.shape.to_string();
    assert_eq!([shape(4), shape(30), shape(31), shape(38)], ["[64, 112, 112]", "[512, 7, 7]", "[25088]", "[1000]"]);
}

#[test]
fn resnet50() {
    let network = sound(RESNET50);
    assert_eq!(parameters(&network), 25_557_032);
    let paths = paths(&network);
    assert_eq!(paths.first(), Some(&"conv2d"));
    assert_eq!(paths.last(), Some(&"fc"));
    assert!(paths.contains(&"stage[3].bottleneck[2].squeeze.conv2d"), "{paths:?}");
    assert!(paths.contains(&"stage[0].bottleneck[0].add"), "{paths:?}");
    assert_eq!(network.graph.rows.len(), 174);
    let buffers = &network.graph.buffers;
    assert_eq!(buffers.len(), 53 * 2);
    assert_eq!(buffers[0].name, "batch_norm2d.running_mean");
}

#[test]
fn gpt2_ties_its_head() {
    let network = sound(GPT2);
    assert_eq!(parameters(&network), 124_439_808);
    let paths = paths(&network);
    assert_eq!(paths[..4], ["wte", "position_embedding", "add", "dropout"]);
    assert_eq!(paths.last(), Some(&"tied"));
    assert!(network.graph.parameters.iter().any(|it| it.name == "layer[11].causal_self_attention.qkv.weight"));
}

#[test]
fn unet_reads_skips_of_its_own_level() {
    let network = sound(UNET);
    let paths = paths(&network);
    assert_eq!(paths[0], "level.double[0].conv2d[0]");
    let concats: Vec<String> =
        network.graph.rows.iter().filter(|row| row.kind == "Concat").map(|row| row.output.shape.to_string()).collect();
    assert_eq!(concats, ["[128, 16, 24]", "[64, 32, 48]", "[32, 64, 96]"]);
    assert!(paths.contains(&"level.level.level.double[1].conv2d[1]"), "{paths:?}");
}

#[test]
fn later_uses_of_a_let_share_parameters() {
    let text = forward(
        "Features<8>",
        "Features<8>",
        "let twin = [Linear(8), Relu, head(8)]; let one = Linear(8); [Add(twin, twin), twin, one, one]",
        "fn head(n: usize) -> Block { let w = Linear(n); [w, w] }",
    );
    let network = sound(&text);
    assert_eq!(parameters(&network), 3 * 72);
    let owners: Vec<u64> = network.graph.rows.iter().map(|row| row.parameters).collect();
    assert_eq!(owners, [72, 0, 72, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 72, 0]);
    let paths = paths(&network);
    assert_eq!(
        paths[..5],
        ["twin[0].linear", "twin[0].relu", "twin[0].head.w[0]", "twin[0].head.w[1]", "twin[1].linear"]
    );
    assert_eq!(paths[13..], ["one[0]", "one[1]"]);
    let names: Vec<&str> = network.graph.parameters.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "twin[0].linear.weight",
            "twin[0].linear.bias",
            "twin[0].head.w[0].weight",
            "twin[0].head.w[0].bias",
            "one[0].weight",
            "one[0].bias"
        ]
    );
}

#[test]
fn conditions_and_recursion_fold() {
    let text = forward(
        "Features<64>",
        "Features<2>",
        "[pyramid(5, true), if DEPTH > 1 && !false { [Linear(2)] } else if DEPTH == 0 { [] } else { [Relu] }]",
        "const DEPTH: usize = (7 % 4) - 1;
         fn pyramid(n: usize, wide: bool) -> Block {
            if n == 0 { [] } else { [Linear(if wide { 2 * n } else { n }), pyramid(n - 1, !wide)] }
         }",
    );
    let network = sound(&text);
    let shapes: Vec<String> = network.graph.rows.iter().map(|row| row.output.shape.to_string()).collect();
    assert_eq!(shapes, ["[10]", "[4]", "[6]", "[2]", "[2]", "[2]"]);
    assert_eq!(paths(&network)[4..], ["pyramid.pyramid.pyramid.pyramid.pyramid.linear", "linear"]);
}

#[test]
fn blocks_are_arguments() {
    let text = forward(
        "Image<8, 16, 16>",
        "Map<8, 16, 16>",
        "[residual([Conv2d(8, (3, 5), padding = (1, 2)), Relu]), wrap(residual([LeakyRelu(0.5)]), times = 2)]",
        "fn residual(inner: Block) -> Block { [Add([], inner)] }
         fn wrap(inner: Block, times: usize) -> Block { [repeat(times, inner), repeat(times - times, Linear(3))] }",
    );
    let network = sound(&text);
    assert_eq!(
        paths(&network),
        [
            "residual.conv2d",
            "residual.relu",
            "residual.add",
            "wrap.residual[0].leaky_relu",
            "wrap.residual[0].add",
            "wrap.residual[1].leaky_relu",
            "wrap.residual[1].add"
        ]
    );
}

#[test]
fn the_input_can_be_read_again() {
    let network = sound(&forward("Features<8>", "Features<16>", "[Linear(8), Relu, Concat([], from(x))]", ""));
    assert_eq!(network.graph.rows.len(), 3);
}
