//! Initialisers by name: `init = TruncatedNormal(0.02)` on a layer, `init(Normal(0.02), [..])` around several.
//!
//! Each initialiser is a function of `torch.nn.init`, and reads its arguments as a layer does.
//!
//! | written | PyTorch |
//! | --- | --- |
//! | `Zeros`, `Ones`, `Constant(0.1)` | `zeros_`, `ones_`, `constant_(val=0.1)` |
//! | `Normal(0.02)`, `Normal(0.02, mean = 1.0)` | `normal_(mean, std)` |
//! | `TruncatedNormal(0.02)`, with `a = -2.0`, `b = 2.0` | `trunc_normal_(std=0.02, a=-2.0, b=2.0)`: the bounds are values, not deviations |
//! | `Uniform(0.1)`, `Uniform(-0.1, 0.3)` | `uniform_(-0.1, 0.1)`, `uniform_(-0.1, 0.3)` |
//! | `XavierUniform`, `XavierNormal`, with `gain = 1.0` | `xavier_uniform_(gain=1.0)`, `xavier_normal_(gain=1.0)` |
//! | `KaimingUniform`, `KaimingNormal`, with `a = 0.0`, `mode = "fan_in"`, `nonlinearity = "leaky_relu"` | `kaiming_uniform_(..)`, `kaiming_normal_(..)` |
//! | `Orthogonal`, with `gain = 1.0` | `orthogonal_(gain=1.0)` |
//!
//! `init` is for weights, and for the scale of a norm; `bias_init` is for biases. Without them a layer has PyTorch's initialisation, which
//! its page describes.

use super::arguments::{Argument, Arguments, Reading, Written};
use super::mistake::Mistake;
use super::recovery::Guess;
use crate::number::random::sqrt;
use crate::program::Init;
use crate::shape::{Shape, product};
use alloc::format;
use alloc::vec::Vec;

/// A rule for the first values of a parameter: a function of `torch.nn.init`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Initializer {
    /// Every element has this value.
    Constant(f64),
    /// Uniform on `[low, high)`.
    Uniform {
        /// The lower bound.
        low: f64,
        /// The upper bound.
        high: f64,
    },
    /// Normal.
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        std: f64,
    },
    /// Normal with mean 0, drawn again until the value is within `[a, b]`.
    TruncatedNormal {
        /// The standard deviation before truncation.
        std: f64,
        /// The least value.
        a: f64,
        /// The largest value.
        b: f64,
    },
    /// A variance of `gain^2 * 2 / (fan_in + fan_out)`: Glorot and Bengio, 2010.
    Xavier {
        /// True for a normal distribution, false for a uniform one.
        normal: bool,
        /// The factor of the deviation.
        gain: f64,
    },
    /// A variance of `gain^2 / fan`: He et al., 2015.
    Kaiming {
        /// True for a normal distribution, false for a uniform one.
        normal: bool,
        /// True if `fan` is the number of outputs that read an input.
        fan_out: bool,
        /// The factor of the deviation, which depends on the function after the layer.
        gain: f64,
    },
    /// A matrix with orthonormal rows or columns, whichever are fewer: Saxe et al., 2013.
    Orthogonal {
        /// The length of each of them.
        gain: f64,
    },
}

/// Reads the arguments of one initialiser.
type Read = fn(&mut Arguments<'_>) -> Initializer;

/// All initialisers by name.
const INITIALIZERS: &[(&str, Read)] = &[
    ("Zeros", |_| Initializer::Constant(0.0)),
    ("Ones", |_| Initializer::Constant(1.0)),
    ("Constant", |from| Initializer::Constant(from.required("value").take("a number", finite, [0.0, 1.0]))),
    ("Normal", |from| {
        let std = from.trailing("std").number_from(1.0, 0.0);
        Initializer::Normal { std, mean: from.option("mean").finite(0.0) }
    }),
    ("TruncatedNormal", |from| {
        let std = from.trailing("std").number_above(1.0, 0.0);
        let (a, b) = (from.option("a").finite(-2.0), from.option("b").finite(2.0));
        Initializer::TruncatedNormal { std, a, b }
    }),
    ("Uniform", |from| {
        let first = from.required("bound").take("a number", finite, [0.0, 1.0]);
        match from.trailing("high").number_if_any() {
            Some(high) => Initializer::Uniform { low: first, high },
            None => Initializer::Uniform { low: -first, high: first },
        }
    }),
    ("XavierUniform", |from| Initializer::Xavier { normal: false, gain: gain(from) }),
    ("XavierNormal", |from| Initializer::Xavier { normal: true, gain: gain(from) }),
    ("KaimingUniform", |from| kaiming(from, false)),
    ("KaimingNormal", |from| kaiming(from, true)),
    ("Orthogonal", |from| Initializer::Orthogonal { gain: gain(from) }),
];

fn finite(value: &Argument) -> Option<f64> {
    super::values::number(value).filter(|number| number.is_finite())
}

fn gain(from: &mut Arguments<'_>) -> f64 {
    from.option("gain").number_above(1.0, 0.0)
}

/// The functions that have a gain: `torch.nn.init.calculate_gain`.
const NONLINEARITIES: [&str; 6] = ["leaky_relu", "relu", "linear", "sigmoid", "tanh", "selu"];

fn kaiming(from: &mut Arguments<'_>, normal: bool) -> Initializer {
    let slope = from.option("a").finite(0.0);
    let fan_out = from.option("mode").choice(&["fan_in", "fan_out"]) == 1;
    let gain = match from.option("nonlinearity").choice(&NONLINEARITIES) {
        0 => sqrt(2.0 / (1.0 + slope * slope)),
        1 => core::f64::consts::SQRT_2,
        4 => 5.0 / 3.0,
        5 => 0.75,
        _ => 1.0,
    };
    Initializer::Kaiming { normal, fan_out, gain }
}

/// Returns the inputs that an output reads and the outputs that read an input: PyTorch's `_calculate_fan_in_and_fan_out`. `None` for a
/// weight with fewer than two axes.
fn fans(shape: Shape) -> Option<[f64; 2]> {
    let [outputs, inputs, kernel @ ..] = shape.dims() else { return None };
    let field = product(kernel);
    Some([inputs, outputs].map(|count| count.saturating_mul(field) as f64))
}

impl Initializer {
    /// Returns the names of all initialisers.
    pub fn names() -> Vec<&'static str> {
        INITIALIZERS.iter().map(|(name, _)| *name).collect()
    }

    /// Reads the arguments of initialiser `name`. `None` if there is none of that name.
    pub fn read(name: &str, written: &[Written], guess: Guess) -> Option<Reading<Initializer>> {
        let (_, read) = INITIALIZERS.iter().find(|(known, _)| *known == name)?;
        Some(Arguments::read(written, guess, read))
    }

    /// Returns the initialisation of a parameter of this shape, which would be `usual` otherwise.
    ///
    /// # Errors
    /// Bounds without a number between them; an initialiser by fans or rows on a vector; an initialiser that would fill a row that must be
    /// 0.
    pub fn of(self, shape: Shape, usual: Init) -> Result<Init, Mistake> {
        let init = self.alone(shape).map_err(|text| Mistake::of("init", text))?;
        match (usual, init) {
            // The row of padding, which is 0 and has no gradient.
            (Init::NormalWithZeros { zeros, .. }, Init::Normal(deviation)) => {
                Ok(Init::NormalWithZeros { deviation, zeros })
            }
            (Init::NormalWithZeros { .. }, Init::Constant(0.0)) => Ok(init),
            (Init::NormalWithZeros { .. }, _) => {
                let text = "has a row of padding, which begins as 0; write `init = Normal(..)`, which leaves that row as it is";
                Err(Mistake::of("init", text))
            }
            _ => Ok(init),
        }
    }

    fn alone(self, shape: Shape) -> Result<Init, alloc::string::String> {
        let fans = || {
            fans(shape).ok_or_else(|| {
                format!("begins with a deviation that depends on inputs and outputs, but a parameter of {shape} has neither; use `Normal(..)` or `Uniform(..)`")
            })
        };
        let spread = |normal, std: f64| match normal {
            true => Init::Normal(std),
            false => Init::Uniform(sqrt(3.0) * std),
        };
        Ok(match self {
            Initializer::Constant(value) => Init::Constant(value),
            Initializer::Normal { mean: 0.0, std } => Init::Normal(std),
            Initializer::Normal { mean, std } => Init::NormalAround { mean, deviation: std },
            Initializer::Uniform { low, high } if low > high => {
                return Err(format!("begins uniform from {low} to {high}; the first of two bounds is the lower one"));
            }
            Initializer::Uniform { low, high } if low == -high => Init::Uniform(high),
            Initializer::Uniform { low, high } => Init::Between { low, high },
            Initializer::TruncatedNormal { a, b, .. } if a >= b => {
                return Err(format!("begins normal between a = {a} and b = {b}; `a` is below `b`"));
            }
            Initializer::TruncatedNormal { std, a, b } => Init::TruncatedNormal { deviation: std, low: a, high: b },
            Initializer::Xavier { normal, gain } => {
                let [inputs, outputs] = fans()?;
                spread(normal, gain * sqrt(2.0 / (inputs + outputs)))
            }
            Initializer::Kaiming { normal, fan_out, gain } => {
                let fan = fans()?[usize::from(fan_out)];
                spread(normal, gain / sqrt(fan))
            }
            Initializer::Orthogonal { gain } => match shape.dims() {
                [rows, _, ..] => Init::Orthogonal { gain, rows: *rows },
                _ => {
                    return Err(format!(
                        "begins with orthogonal rows, but a parameter of {shape} is no matrix; use `Normal(..)` or `Uniform(..)`"
                    ));
                }
            },
        })
    }
}

/// The initialisers that `init` and `bias_init` name.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Initial {
    /// The initialiser of weights. `None` for that of the layer.
    pub weights: Option<Initializer>,
    /// The initialiser of biases. `None` for that of the layer.
    pub biases: Option<Initializer>,
}

impl Initial {
    /// Returns these initialisers; those that are missing are taken from `around`.
    #[must_use]
    pub fn within(self, around: Initial) -> Initial {
        Initial { weights: self.weights.or(around.weights), biases: self.biases.or(around.biases) }
    }
}

/// True if a parameter of this name is a bias.
pub(super) fn is_bias(name: &str) -> bool {
    name == "bias" || name.starts_with("bias_") || name.ends_with("_bias")
}
