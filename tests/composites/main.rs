//! The language's composites compute what PyTorch's modules of their pages compute, with the same names of parameters.
//!
//! `truth.py` made the expected numbers.

use gpumem::prelude::*;
use serde_json::Value;

/// A network of one composite, and the test that loads and compares it.
macro_rules! composites {
    ($($name:ident $struct:ident ($input:ty => $output:ty) $at:literal { $($body:tt)* })*) => {
        $(
            network! {
                /// One composite.
                pub struct $struct;
                const INFER: Infer = Infer { batch: 2 };
                fn forward(x: $input) -> $output { [$($body)*] }
            }

            #[test]
            fn $name() {
                check::<$struct>(stringify!($name), $at, |net, x| {
                    net.forward(&Tensor::from_vec(x.to_vec()).unwrap()).unwrap().as_slice().to_vec()
                });
            }
        )*
    };
}

composites! {
    squeeze Squeeze (Values<12, 5, 7> => Values<12, 5, 7>) "squeeze_excite" { SqueezeExcite(12, 3) }
    squeeze_hard SqueezeHard (Values<12, 5, 7> => Values<12, 5, 7>) "squeeze_excite" {
        SqueezeExcite(12, 3, activation = Silu, scale_activation = Hardsigmoid)
    }
    encoder Encoder (Sequence<6, 16> => Sequence<6, 16>) "transformer_block" { TransformerBlock(16, 4, 24) }
    encoder_first EncoderFirst (Sequence<6, 16> => Sequence<6, 16>) "transformer_block" {
        TransformerBlock(16, 4, 24, dropout = 0.0, activation = Gelu, norm_first)
    }
    gated Gated (Sequence<5, 12> => Sequence<5, 12>) "swi_glu" { SwiGlu(12, 20) }
    residual Residual (Values<8, 6, 6> => Values<8, 6, 6>) "inverted_residual" { InvertedResidual(8, 8, 1, 6) }
    narrow Narrow (Values<8, 7, 7> => Values<6, 4, 4>) "inverted_residual" { InvertedResidual(8, 6, 2, 1) }
    separable Separable (Values<8, 7, 9> => Values<10, 4, 5>) "depthwise_separable" {
        DepthwiseSeparable(8, 10, 2, 5)
    }
}

/// Sets every tensor of the file, and compares the output: the composite has all of them and no other.
fn check<N: Network>(case: &str, at: &str, run: impl Fn(&mut Net<N, gpumem::Cpu>, &[f32]) -> Vec<f32>)
where
    gpumem::Cpu: gpumem::Device,
{
    let truth: Value = serde_json::from_str(include_str!("truth.json")).unwrap();
    let numbers = |value: &Value| -> Vec<f32> {
        value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect()
    };
    let device = gpumem::Cpu::new();
    let mut net = Net::<N, _>::load(&device).unwrap();
    let mut left: Vec<String> = net.names().map(String::from).collect();
    for (name, values) in truth.as_object().unwrap() {
        let Some(name) = name.strip_prefix(case).and_then(|name| name.strip_prefix('.')) else { continue };
        let name = format!("{at}.{name}");
        net.set(&name, &numbers(values)).unwrap_or_else(|error| panic!("{name}: {error}"));
        left.retain(|known| *known != name);
    }
    assert_eq!(left, [""; 0]);
    let found = run(&mut net, &numbers(&truth[format!("{case} input")]));
    let expected = numbers(&truth[format!("{case} output")]);
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(0.0_f32, |largest, y| largest.max(y.abs()));
    for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert!((found - expected).abs() <= 1e-5 * largest, "{case}: {found} at {index}, expected {expected}");
    }
}
