//! A language model of state spaces.

use crate::check;
use gpumem::{Cpu, Tensor, network};

network! {
    /// A Mamba of transformers: `hidden_size` 256, 4 layers.
    pub struct MambaNarrow;

    const TRAIN: Train = Train { batch: 32, optimizer: Sgd { lr: 1.0 }, loss: CrossEntropy };
    const INFER: Infer = Infer { batch: 2 };

    fn forward(text: Tokens<16>) -> TokenLogits<16, 32000> {
        let words = Embedding(32000, 256, name = "embeddings");
        [words, repeat(4, layers(256, 512, 16, 16)), RmsNorm(eps = 1e-5, name = "norm_f"), Tied(words)]
    }

    fn layers(width: usize, inner: usize, states: usize, rank: usize) -> Block {
        Add([], [RmsNorm(eps = 1e-5, name = "norm"), mixer(width, inner, states, rank)])
    }

    fn mixer(width: usize, inner: usize, states: usize, rank: usize) -> Block {
        [
            Linear(2 * inner, bias = false, name = "in_proj"),
            Mul(
                [
                    Slice(0, inner, dim = -1), Transpose(1, 2),
                    Conv1d(inner, 4, padding = 3, groups = inner, name = "conv1d"), Slice(0, -3, dim = -1), Silu, Transpose(1, 2),
                    SelectiveScan(
                        [],
                        [
                            Linear(rank + 2 * states, bias = false, name = "x_proj"), tap(selected),
                            Slice(0, rank, dim = -1), StepSizes(inner, name = "dt_proj"),
                        ],
                        [from(selected), Slice(rank, rank + states, dim = -1)],
                        [from(selected), Slice(rank + states, dim = -1)],
                        name = "",
                    ),
                ],
                [Slice(inner, dim = -1), Silu],
            ),
            Linear(width, bias = false, name = "out_proj"),
        ]
    }
}

/// PyTorch's peak is that of the loop over steps, whose states are all kept.
#[test]
fn parameters_and_operations_are_those_of_pytorch() {
    check::<MambaNarrow>(9_944_320, 318_029_824, [598_487_048, 638_264_496]);
}

/// Element `index` of a stream of 64 bits that a name begins: the numbers of the exported networks.
fn bits(name: &str, index: usize) -> u64 {
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let start = name.bytes().fold(0xcbf2_9ce4_8422_2325, hash);
    let z = start.wrapping_add((index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// A parameter of transformers' network, by its name there.
fn parameter(name: &str, shape: &[u64]) -> Vec<f32> {
    let elements: u64 = shape.iter().product();
    let row = (elements / shape[0]) as f64;
    (0..elements as usize)
        .map(|index| {
            let unit = (bits(name, index) >> 40) as f64 / f64::from(1 << 23) - 1.0;
            (match shape.len() {
                1 if name.ends_with("weight") => 1.0 + 0.1 * unit,
                1 => 0.1 * unit,
                2 => unit * (3.0 / row).sqrt(),
                _ => unit * (6.0 / row).sqrt(),
            }) as f32
        })
        .collect()
}

/// Every 16000th of what `MambaForCausalLM` of transformers 5.23.0 made of these parameters and tokens, by PyTorch in f32.
const LOGITS: [f32; 64] = [
    0.064_852_074,
    1.277_557_5,
    -0.391_201_5,
    -2.358_672_9,
    0.828_383_3,
    -0.885_780_6,
    -0.069_110_63,
    -0.089_384_46,
    1.190_868_3,
    0.495_669_57,
    0.878_289_64,
    1.417_104_4,
    0.463_679_55,
    -0.943_630_7,
    -0.091_183_55,
    1.198_964_6,
    -0.857_487_5,
    0.885_691_2,
    1.530_146_2,
    -0.282_285_84,
    0.552_235_9,
    -1.915_073_5,
    -1.315_84,
    -1.376_719_2,
    1.475_506_4,
    0.799_617_6,
    -2.687_698_4,
    0.548_070_13,
    -1.103_942,
    -0.332_704_2,
    -1.670_576_3,
    -0.335_006_4,
    -0.416_753_8,
    0.990_687_5,
    -0.979_071_44,
    0.277_399_2,
    1.081_571_2,
    0.784_861_86,
    0.522_128_1,
    -0.484_097_66,
    0.084_627_84,
    -0.358_671_13,
    -0.939_312_16,
    1.285_791_9,
    0.381_084_86,
    -2.020_002_4,
    0.816_213_55,
    1.041_632_5,
    0.738_143_4,
    -0.871_367_63,
    -2.169_398_5,
    -2.216_833_6,
    1.318_944,
    -0.134_051_81,
    1.908_839_1,
    0.130_244_84,
    -1.406_029_3,
    -1.043_274_2,
    0.357_822_18,
    0.553_249_7,
    0.658_285_1,
    -0.306_979_1,
    -0.202_613_01,
    0.693_855_2,
];

#[test]
fn a_pass_is_that_of_transformers() {
    let mut net = MambaNarrow::infer_on(&Cpu::with_threads(2).unwrap()).unwrap();
    let tensors: Vec<(String, Vec<u64>)> =
        net.tensors().map(|tensor| (tensor.name.to_string(), tensor.shape.to_vec())).collect();
    for (name, shape) in tensors {
        let theirs = name.replace('[', ".").replace(']', "");
        net.set(&name, &parameter(&format!("backbone.{theirs}"), &shape)).unwrap();
    }
    let logits = net.forward(&Tensor::from_fn(|index| (bits("input:input_ids", index) % 32000) as u32)).unwrap();
    for (expected, found) in LOGITS.iter().zip(logits.as_slice().iter().step_by(16000)) {
        assert!((expected - found).abs() < 2e-5, "{found} instead of {expected}");
    }
}
