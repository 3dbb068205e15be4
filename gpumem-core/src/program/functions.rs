//! Functions of one number. A new one is a row here, a line in the CPU backend's match and a struct in the CUDA backend's
//! `pointwise.cuh`. A row marked `is_layer` makes a layer of its name.

use super::encoding::wire_enum;

/// The tensor that the gradient of a function reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Its input.
    Input,
    /// Its output.
    Output,
    /// Neither: the slope is a constant.
    Nothing,
}

/// An argument of a function besides its input.
#[derive(Clone, Copy, Debug)]
pub struct FunctionArgument {
    /// The name in the language, and in PyTorch.
    pub name: &'static str,
    /// The value if it is left out.
    pub default: f64,
    /// The values allowed.
    pub bound: Bound,
}

/// The values that an argument may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Anything.
    Any,
    /// Not below this.
    From(f64),
    /// More than this.
    Above(f64),
}

/// The properties of a function, other than its value and its slope.
#[derive(Clone, Copy, Debug)]
pub struct FunctionRow {
    /// The tensor that its gradient reads.
    pub kept: Kept,
    /// An output whose slope differs from that of 0, for a function with two slopes; `None` for others. One bit of each element is then all that
    /// its gradient needs of the output. A NaN counts as having that other slope, so a gradient passes it, as in PyTorch.
    pub other_side: Option<f32>,
    /// Its arguments, in order. A layer takes them with or without their names.
    pub arguments: &'static [FunctionArgument],
    /// True if the layer has PyTorch's flag `inplace`.
    pub inplace: bool,
    /// The function of equal values whose gradient reads the output, used with `inplace`. `None` if this one's gradient does.
    pub in_place: Option<Function>,
    /// True if the function is a layer of its name.
    pub is_layer: bool,
}

/// The argument of `Elu` and of its form in place.
const ELU: &[FunctionArgument] = &[FunctionArgument { name: "alpha", default: 1.0, bound: Bound::From(0.0) }];
/// The argument of `Celu` and of its form in place.
const CELU: &[FunctionArgument] = &[FunctionArgument { name: "alpha", default: 1.0, bound: Bound::Above(0.0) }];

impl FunctionRow {
    /// The row of a layer without arguments whose gradient reads the input.
    const KEEPS_INPUT: FunctionRow = FunctionRow {
        kept: Kept::Input,
        other_side: None,
        arguments: &[],
        inplace: false,
        in_place: None,
        is_layer: true,
    };
    /// The row of a layer without arguments whose gradient reads the output.
    const KEEPS_OUTPUT: FunctionRow = FunctionRow { kept: Kept::Output, ..FunctionRow::KEEPS_INPUT };
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident = $row:expr;)*) => {
        /// A function of one number. Those that are layers take any one shape and give that shape.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Function {
            $($(#[$doc])* $name,)*
        }
        wire_enum!(Function { $($name),* });

        impl Function {
            /// Every function.
            pub const ALL: &'static [Function] = &[$(Function::$name,)*];

            /// Returns the name in the language and in the backends.
            pub const fn name(self) -> &'static str {
                match self { $(Function::$name => stringify!($name),)* }
            }

            /// Returns the properties of the function.
            pub const fn row(self) -> FunctionRow {
                match self { $(Function::$name => $row,)* }
            }

            /// True if its slope can be computed from its input alone, without arguments. `Relu` and `Relu6`, whose gradients read the output, are
            /// included: their input tells as much as their output.
            pub const fn has_slope_of_input(self) -> bool {
                let row = self.row();
                matches!(self, Function::Relu | Function::Relu6) || (matches!(row.kept, Kept::Input) && row.arguments.is_empty())
            }
        }
    };
}

functions! {
    /// `Relu` or `Relu(inplace)`: `max(x, 0)`.
    ///
    /// * Backward keeps the output if another layer's gradient reads it, as a convolution's does, and else one bit of each element. It keeps
    ///   nothing if it alone reads a `BatchNorm2d`'s output and its own is not kept. In place it costs nothing. Without `inplace` the
    ///   output still overwrites the input if nothing else needs the input. With it, overwriting is guaranteed, or compilation fails.
    ///
    /// PyTorch: `torch.nn.ReLU(inplace)`.
    Relu = FunctionRow { other_side: Some(1.0), inplace: true, ..FunctionRow::KEEPS_OUTPUT };
    /// `Relu6` or `Relu6(inplace)`: `min(max(x, 0), 6)`.
    ///
    /// * Backward keeps what [`Relu`](Function::Relu) keeps. In place it costs nothing.
    ///
    /// PyTorch: `torch.nn.ReLU6(inplace)`.
    Relu6 = FunctionRow { other_side: Some(1.0), inplace: true, ..FunctionRow::KEEPS_OUTPUT };
    /// `LeakyRelu(negative_slope = 0.01, inplace)`: `x` if it is positive, else `negative_slope * x`.
    ///
    /// * Options: `negative_slope = 0.01`, at least 0; `inplace`.
    /// * Backward keeps what [`Relu`](Function::Relu) keeps. In place it costs nothing.
    ///
    /// PyTorch: `torch.nn.LeakyReLU(negative_slope, inplace)`.
    LeakyRelu = FunctionRow {
        other_side: Some(1.0),
        // With a negative slope, the sign of the output would not tell the sign of the input.
        arguments: &[FunctionArgument { name: "negative_slope", default: 0.01, bound: Bound::From(0.0) }],
        inplace: true,
        ..FunctionRow::KEEPS_OUTPUT
    };
    /// `x * Phi(x)` with the normal distribution function `Phi`: see [`Gelu`](crate::layers::activation::Gelu).
    Gelu = FunctionRow { is_layer: false, ..FunctionRow::KEEPS_INPUT };
    /// `0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))`: see [`Gelu`](crate::layers::activation::Gelu).
    GeluTanh = FunctionRow { is_layer: false, ..FunctionRow::KEEPS_INPUT };
    /// `Silu`: sigmoid linear unit, `x / (1 + exp(-x))`.
    ///
    /// * Backward keeps the input, and nothing if it alone reads a `BatchNorm2d`'s output.
    ///
    /// PyTorch: `torch.nn.SiLU()`.
    Silu = FunctionRow::KEEPS_INPUT;
    /// `Sigmoid`: `1 / (1 + exp(-x))`.
    ///
    /// * Backward keeps the output.
    ///
    /// PyTorch: `torch.nn.Sigmoid()`.
    Sigmoid = FunctionRow::KEEPS_OUTPUT;
    /// `Exp`: `exp(x)`.
    ///
    /// * Backward keeps the output.
    ///
    /// PyTorch: `torch.exp(x)`.
    Exp = FunctionRow::KEEPS_OUTPUT;
    /// `Affine(factor = 1.0, shift = 0.0)`: `factor * x + shift`, with numbers; [`Scale`](crate::layers::Scale) learns them.
    ///
    /// * Options: `factor = 1.0`, `shift = 0.0`.
    /// * Backward keeps nothing.
    ///
    /// PyTorch: `factor * x + shift`.
    Affine = FunctionRow {
        kept: Kept::Nothing,
        arguments: &[
            FunctionArgument { name: "factor", default: 1.0, bound: Bound::Any },
            FunctionArgument { name: "shift", default: 0.0, bound: Bound::Any },
        ],
        ..FunctionRow::KEEPS_OUTPUT
    };
    /// `Tanh`: hyperbolic tangent.
    ///
    /// * Backward keeps the output.
    ///
    /// PyTorch: `torch.nn.Tanh()`.
    Tanh = FunctionRow::KEEPS_OUTPUT;
    /// `Hardswish`: `x * min(max(x + 3, 0), 6) / 6`.
    ///
    /// * Backward keeps the input, and nothing if it alone reads a `BatchNorm2d`'s output.
    ///
    /// PyTorch: `torch.nn.Hardswish()`.
    Hardswish = FunctionRow::KEEPS_INPUT;
    /// `Hardsigmoid` or `Hardsigmoid(inplace)`: `min(max(x + 3, 0), 6) / 6`.
    ///
    /// * Backward keeps what [`Relu`](Function::Relu) keeps. In place it costs nothing.
    ///
    /// PyTorch: `torch.nn.Hardsigmoid(inplace)`.
    Hardsigmoid = FunctionRow { other_side: Some(0.5), inplace: true, ..FunctionRow::KEEPS_OUTPUT };
    /// `Elu(alpha = 1.0, inplace)`: `x` if it is positive, else `alpha * (exp(x) - 1)`.
    ///
    /// * Options: `alpha = 1.0`, at least 0; `inplace`.
    /// * Backward keeps the input; with `inplace` the output. An output near `-alpha` tells little of the slope: in f32, the slope of
    ///   an input below -9 is then off by more than 0.1 %.
    ///
    /// PyTorch: `torch.nn.ELU(alpha, inplace)`.
    Elu = FunctionRow { arguments: ELU, inplace: true, in_place: Some(Function::EluInPlace), ..FunctionRow::KEEPS_INPUT };
    /// `Celu(alpha = 1.0, inplace)`: `x` if it is positive, else `alpha * (exp(x / alpha) - 1)`.
    ///
    /// * Options: `alpha = 1.0`, above 0; `inplace`.
    /// * Backward keeps what [`Elu`](Function::Elu) keeps.
    ///
    /// PyTorch: `torch.nn.CELU(alpha, inplace)`.
    Celu = FunctionRow { arguments: CELU, inplace: true, in_place: Some(Function::CeluInPlace), ..FunctionRow::KEEPS_INPUT };
    /// `Selu` or `Selu(inplace)`: `scale * x` if `x` is positive, else `scale * alpha * (exp(x) - 1)`, with
    /// `scale = 1.0507009873554805` and `alpha = 1.6732632423543772`.
    ///
    /// * Backward keeps the input, and nothing if it alone reads a `BatchNorm2d`'s output. With `inplace` it keeps the output, as
    ///   [`Elu`](Function::Elu) does.
    ///
    /// PyTorch: `torch.nn.SELU(inplace)`.
    Selu = FunctionRow { inplace: true, in_place: Some(Function::SeluInPlace), ..FunctionRow::KEEPS_INPUT };
    /// `Softplus(beta = 1.0, threshold = 20.0)`: `log(1 + exp(beta * x)) / beta`, and `x` if `beta * x` is above `threshold`.
    ///
    /// * Options: `beta = 1.0`, above 0; `threshold = 20.0`.
    /// * Backward keeps the input.
    ///
    /// PyTorch: `torch.nn.Softplus(beta, threshold)`.
    Softplus = FunctionRow {
        arguments: &[
            FunctionArgument { name: "beta", default: 1.0, bound: Bound::Above(0.0) },
            FunctionArgument { name: "threshold", default: 20.0, bound: Bound::Any },
        ],
        ..FunctionRow::KEEPS_INPUT
    };
    /// `Softsign`: `x / (1 + |x|)`.
    ///
    /// * Backward keeps the input, and nothing if it alone reads a `BatchNorm2d`'s output.
    ///
    /// PyTorch: `torch.nn.Softsign()`.
    Softsign = FunctionRow::KEEPS_INPUT;
    /// `Mish`: `x * tanh(log(1 + exp(x)))`.
    ///
    /// * Backward keeps the input, and nothing if it alone reads a `BatchNorm2d`'s output.
    ///
    /// PyTorch: `torch.nn.Mish()`.
    Mish = FunctionRow::KEEPS_INPUT;
    /// `QuickGelu`: `x / (1 + exp(-1.702 * x))`.
    ///
    /// * Backward keeps the input, and nothing if it alone reads a `BatchNorm2d`'s output.
    ///
    /// PyTorch: `x * torch.sigmoid(1.702 * x)`.
    QuickGelu = FunctionRow::KEEPS_INPUT;
    /// `LogSigmoid`: `-log(1 + exp(-x))`.
    ///
    /// * Backward keeps the input, and nothing if it alone reads a `BatchNorm2d`'s output.
    ///
    /// PyTorch: `torch.nn.LogSigmoid()`.
    LogSigmoid = FunctionRow::KEEPS_INPUT;
    /// `Abs`: `|x|`.
    ///
    /// * Backward keeps the input, and nothing if it alone reads a `BatchNorm2d`'s output.
    ///
    /// PyTorch: `torch.abs(x)`.
    Abs = FunctionRow::KEEPS_INPUT;
    /// `Sqrt`: square root; NaN of negative numbers. Its slope at 0 is infinite, so for the root of a sum of squares, which may
    /// be 0, use [`Norm`](crate::layers::Norm).
    ///
    /// * Backward keeps the output.
    ///
    /// PyTorch: `torch.sqrt(x)`.
    Sqrt = FunctionRow::KEEPS_OUTPUT;
    /// `Log`: natural logarithm; NaN of negative numbers.
    ///
    /// * Backward keeps the input, and nothing if it alone reads a `BatchNorm2d`'s output.
    ///
    /// PyTorch: `torch.log(x)`.
    Log = FunctionRow::KEEPS_INPUT;
    /// `Pow(exponent = 2.0)`: `x` to the power of a number. NaN if `x` is negative and the number has a fraction.
    ///
    /// * Backward keeps the input.
    ///
    /// PyTorch: `torch.pow(x, exponent)`.
    Pow = FunctionRow {
        arguments: &[FunctionArgument { name: "exponent", default: 2.0, bound: Bound::Any }],
        ..FunctionRow::KEEPS_INPUT
    };
    /// `log(1 + exp(x))`, whose slope is `1 - exp(-y)`: see [`StepSizes`](crate::layers::state_space::StepSizes). The slope of
    /// `Softplus` depends on its threshold, too.
    StepSize = FunctionRow { is_layer: false, ..FunctionRow::KEEPS_OUTPUT };
    /// `Hardtanh(min_val = -1.0, max_val = 1.0, inplace)`: `min(max(x, min_val), max_val)`.
    ///
    /// * Options: `min_val = -1.0`; `max_val = 1.0`, above `min_val`; `inplace`.
    /// * Backward keeps the output. In place it costs nothing.
    ///
    /// PyTorch: `torch.nn.Hardtanh(min_val, max_val, inplace)`, and `x.clamp(min_val, max_val)` but for the gradient of elements on a bound.
    Hardtanh = FunctionRow {
        arguments: &[
            FunctionArgument { name: "min_val", default: -1.0, bound: Bound::Any },
            FunctionArgument { name: "max_val", default: 1.0, bound: Bound::Any },
        ],
        inplace: true,
        ..FunctionRow::KEEPS_OUTPUT
    };
    /// `Hardshrink(lambd = 0.5)`: `x` if `|x|` is above `lambd`, else 0.
    ///
    /// * Options: `lambd = 0.5`, at least 0.
    /// * Backward keeps the output.
    ///
    /// PyTorch: `torch.nn.Hardshrink(lambd)`.
    Hardshrink = FunctionRow {
        arguments: &[FunctionArgument { name: "lambd", default: 0.5, bound: Bound::From(0.0) }],
        ..FunctionRow::KEEPS_OUTPUT
    };
    /// `Softshrink(lambd = 0.5)`: `x` moved towards 0 by `lambd`, and 0 if `|x|` is at most `lambd`.
    ///
    /// * Options: `lambd = 0.5`, at least 0.
    /// * Backward keeps the output.
    ///
    /// PyTorch: `torch.nn.Softshrink(lambd)`.
    Softshrink = FunctionRow {
        arguments: &[FunctionArgument { name: "lambd", default: 0.5, bound: Bound::From(0.0) }],
        ..FunctionRow::KEEPS_OUTPUT
    };
    /// `Tanhshrink`: `x - tanh(x)`.
    ///
    /// * Backward keeps the input, and nothing if it alone reads a `BatchNorm2d`'s output.
    ///
    /// PyTorch: `torch.nn.Tanhshrink()`.
    Tanhshrink = FunctionRow::KEEPS_INPUT;
    /// `Sin`: sine.
    ///
    /// * Backward keeps the input, and nothing if it alone reads a `BatchNorm2d`'s output.
    ///
    /// PyTorch: `torch.sin(x)`.
    Sin = FunctionRow::KEEPS_INPUT;
    /// `Cos`: cosine.
    ///
    /// * Backward keeps the input, and nothing if it alone reads a `BatchNorm2d`'s output.
    ///
    /// PyTorch: `torch.cos(x)`.
    Cos = FunctionRow::KEEPS_INPUT;
    /// [`Elu`](Function::Elu) in place: its gradient reads the output.
    EluInPlace = FunctionRow { arguments: ELU, is_layer: false, ..FunctionRow::KEEPS_OUTPUT };
    /// [`Celu`](Function::Celu) in place: its gradient reads the output.
    CeluInPlace = FunctionRow { arguments: CELU, is_layer: false, ..FunctionRow::KEEPS_OUTPUT };
    /// [`Selu`](Function::Selu) in place: its gradient reads the output.
    SeluInPlace = FunctionRow { is_layer: false, ..FunctionRow::KEEPS_OUTPUT };
}
