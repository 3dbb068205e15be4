//! Layers and composites, as users write them, beside the PyTorch modules of their pages: names of parameters, output, loss, and
//! what a step leaves of everything.
//!
//! `truth.py` made the expected numbers.
#![deny(warnings, missing_docs)]

use gpumem::prelude::*;
use gpumem::{Cpu, Error};
use serde_json::{Map, Value};

/// A network of a few layers, and the test that compares it.
macro_rules! modules {
    ($($name:ident $struct:ident ($input:ty => $output:ty) { $($body:tt)* })*) => {
        $(
            network! {
                /// What is compared.
                pub struct $struct;
                const TRAIN: Train = Train { batch: 2, optimizer: Sgd { lr: 0.5 }, loss: Mse };
                fn forward(x: $input) -> $output { [$($body)*] }
            }

            #[test]
            fn $name() {
                let case = Case::of(stringify!($name));
                let mut net = case.loaded::<$struct>();
                let input = <$struct as Network>::Input::from_vec(case.input()).unwrap();
                let target = <$struct as Network>::Target::from_vec(case.numbers("target")).unwrap();
                case.check("output", net.forward(&input).unwrap().as_slice());
                case.check("loss", &[net.train_step(&input, &target).unwrap()]);
                case.check_trained(&mut net);
            }
        )*
    };
}

modules! {
    squeeze Squeeze (Values<6, 4, 5> => Values<6, 4, 5>) { SqueezeExcite(6, 2) }
    squeeze_hard SqueezeHard (Values<6, 4, 5> => Values<6, 4, 5>) {
        SqueezeExcite(6, 2, activation = Silu, scale_activation = Hardsigmoid)
    }
    encoder Encoder (Sequence<5, 8> => Sequence<5, 8>) { TransformerBlock(8, 2, 12, dropout = 0.0) }
    encoder_first EncoderFirst (Sequence<5, 8> => Sequence<5, 8>) {
        TransformerBlock(8, 2, 12, 0.0, activation = Gelu, norm_first)
    }
    gated Gated (Sequence<4, 6> => Sequence<4, 6>) { SwiGlu(6, 10) }
    residual Residual (Image<4, 5, 5> => Map<4, 5, 5>) { InvertedResidual(4, 4, 1, 3) }
    narrow Narrow (Image<4, 5, 5> => Map<3, 3, 3>) { InvertedResidual(4, 3, 2, 1) }
    separable Separable (Image<4, 5, 7> => Map<6, 3, 4>) { DepthwiseSeparable(4, 6, 2, 5) }
    conv1d Conv (Signal<4, 11> => Signal<6, 6>) { Conv1d(6, 3, stride = 2, padding = 2, dilation = 2, groups = 2) }
    conv_transpose1d ConvTranspose (Signal<4, 6> => Signal<3, 12>) { ConvTranspose1d(3, 4, stride = 2, padding = 1) }
    layer_norm Norm (Values<3, 4, 6> => Values<3, 4, 6>) { LayerNorm((4, 6)) }
    adaptive_max AdaptiveMax (Image<3, 8, 9> => Map<2, 3, 4>) { Conv2d(2, 1), AdaptiveMaxPool2d((3, 4)) }
    max_pool1d MaxPool (Signal<3, 8> => Signal<2, 4>) { Conv1d(2, 1), MaxPool1d(3, stride = 2, padding = 1) }
    upsample_size UpsampleSize (Image<3, 4, 5> => Map<2, 7, 9>) { Conv2d(2, 1), Upsample(size = (7, 9)) }
    upsample_bilinear UpsampleBilinear (Image<3, 4, 5> => Map<2, 8, 10>) {
        Conv2d(2, 1), Upsample(scale_factor = 2, mode = "bilinear")
    }
    group_norm Groups (Image<3, 4, 5> => Map<6, 4, 5>) { Conv2d(6, 1), GroupNorm(3) }
    instance_norm Instances (Image<3, 4, 5> => Map<3, 4, 5>) { Conv2d(3, 1), InstanceNorm2d }
    batch_norm1d Batch (Features<4> => Features<4>) { BatchNorm1d }
    rms_norm Rms (Sequence<3, 6> => Sequence<3, 4>) { Linear(4), RmsNorm(eps = 1e-3, elementwise_affine = false) }
    prelu Rectified (Image<3, 4, 5> => Map<3, 4, 5>) { Prelu(3) }
    embedding Words (Tokens<6> => Sequence<6, 4>) { Embedding(8, 4, padding_idx = 2) }
    causal Causal (Sequence<5, 8> => Sequence<5, 8>) { MultiHeadAttention(8, 2, causal, bias = false) }
    lstm LongMemory (Sequence<6, 4> => Sequence<6, 5>) { Lstm(5, layers = 2) }
    gru Gated2 (Sequence<6, 4> => Sequence<6, 10>) { Gru(5, bidirectional) }
    projected Projected (Sequence<6, 4> => Sequence<6, 6>) { Lstm(5, layers = 2, bidirectional, proj_size = 3) }
    rnn Plain (Sequence<6, 4> => Sequence<6, 5>) { Rnn(5, nonlinearity = "relu") }
    upsample_volume UpsampleVolume (Volume<2, 2, 3, 2> => Volume<3, 4, 6, 4>) { Conv3d(3, 1), Upsample(2) }
    upsample_trilinear UpsampleTrilinear (Volume<2, 3, 4, 5> => Volume<3, 5, 3, 7>) {
        Conv3d(3, 1), Upsample(size = (5, 3, 7), mode = "trilinear")
    }
    upsample_corners UpsampleCorners (Volume<2, 2, 3, 2> => Volume<3, 4, 6, 4>) {
        Conv3d(3, 1), Upsample(2, mode = "trilinear", align_corners)
    }
    upsample_depth_stays UpsampleDepthStays (Volume<2, 2, 3, 2> => Volume<3, 2, 4, 4>) {
        Conv3d(3, 1), Upsample((1, 1.5, 2), mode = "trilinear")
    }
    pad_volume PadVolume (Volume<2, 2, 3, 4> => Volume<3, 4, 5, 4>) {
        Conv3d(3, 1), Pad((1, -1, 0, 2, 2, 0), value = 0.5)
    }
    pad_reflect PadReflect (Volume<2, 3, 3, 4> => Volume<3, 6, 4, 7>) {
        Conv3d(3, 1), Pad((2, 1, 1, 0, 1, 2), mode = "reflect")
    }
    pad_replicate PadReplicate (Volume<2, 2, 3, 2> => Volume<3, 4, 5, 4>) { Conv3d(3, 1), Pad(1, mode = "replicate") }
    alibi Biased (Sequence<5, 12> => Sequence<5, 12>) { Linear(36), Attention([], AlibiBias(6), heads = 6, causal) }
    hardtanh Bounded (Sequence<3, 6> => Sequence<3, 4>) { Linear(4), Hardtanh(-0.5, 0.8) }
    shrunk Shrunk (Sequence<3, 6> => Sequence<3, 4>) { Linear(4), Softshrink(0.3), Hardshrink(lambd = 0.2), Tanhshrink }
    waves Waves (Sequence<3, 6> => Sequence<3, 4>) { Linear(4), Sin, Cos }
    pad_circular PadCircular (Volume<2, 3, 3, 2> => Volume<3, 6, 3, 2>) {
        Conv3d(3, 1), Pad((0, 0, 0, 0, 2, 1), mode = "circular")
    }
}

network! {
    /// With dropout, so that only evaluation can be compared.
    pub struct EncoderDefaults;
    const INFER: Infer = Infer { batch: 2 };
    fn forward(x: Sequence<5, 8>) -> Sequence<5, 8> { TransformerBlock(8, 2, 12) }
}

#[test]
fn encoder_defaults() {
    let case = Case::of("encoder_defaults");
    let mut net = case.loaded::<EncoderDefaults>();
    let input = <EncoderDefaults as Network>::Input::from_vec(case.input()).unwrap();
    case.check("output", net.forward(&input).unwrap().as_slice());
}

/// What is expected of one network.
struct Case {
    name: &'static str,
    numbers: Map<String, Value>,
}

impl Case {
    fn of(name: &'static str) -> Case {
        let Ok(Value::Object(numbers)) = serde_json::from_str(include_str!("truth.json")) else { panic!("no object") };
        Case { name, numbers }
    }

    fn numbers(&self, what: &str) -> Vec<f32> {
        let values = &self.numbers[&format!("{} {what}", self.name)];
        values.as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect()
    }

    /// Numbers, or tokens.
    fn input<T: Element>(&self) -> Vec<T> {
        self.numbers("input").into_iter().map(T::of).collect()
    }

    /// What the file says of tensors `before` or `after` training.
    fn tensors(&self, when: &str) -> Vec<String> {
        let prefix = format!("{} {when} ", self.name);
        self.numbers.keys().filter_map(|key| key.strip_prefix(&prefix)).map(String::from).collect()
    }

    /// The network with every tensor of the file: it has all of them and no other.
    fn loaded<N: Network>(&self) -> Net<N, Cpu> {
        let mut net = Net::<N, Cpu>::load(&Cpu::new()).unwrap();
        let mut left: Vec<String> = net.names().map(String::from).collect();
        for name in self.tensors("before") {
            let set: Result<(), Error> = net.set(&name, &self.numbers(&format!("before {name}")));
            set.unwrap_or_else(|error| panic!("{name}: {error}"));
            left.retain(|known| *known != name);
        }
        assert_eq!(left, [""; 0], "{}", self.name);
        net
    }

    fn check(&self, what: &str, found: &[f32]) {
        let expected = self.numbers(what);
        assert_eq!(found.len(), expected.len(), "{} {what}", self.name);
        let largest = expected.iter().fold(0.0_f32, |largest, y| largest.max(y.abs()));
        for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let near = (found - expected).abs() <= 1e-5 * largest;
            assert!(near, "{} {what}: {found} at {index}, expected {expected}", self.name);
        }
    }

    fn check_trained<N: Network>(&self, net: &mut Net<N, Cpu>) {
        for name in self.tensors("after") {
            let found = net.get(&name).unwrap();
            self.check(&format!("after {name}"), &found);
        }
    }
}

/// What an input consists of.
trait Element {
    fn of(number: f32) -> Self;
}

impl Element for f32 {
    fn of(number: f32) -> f32 {
        number
    }
}

impl Element for u32 {
    fn of(number: f32) -> u32 {
        number as u32
    }
}
