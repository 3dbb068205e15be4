//! Functions of one number: `y = f(x)` for each element.
//!
//! A function is a row of [`for_each_function`](crate::for_each_function), and nothing else has to be written for it but a line in
//! `gpumem-cpu/tests/harness/functions.rs`, its definition in double precision. A new row comes last, since encoded programs name a function by
//! its number. A row has
//!
//! * the function's page, and its name in the language;
//! * its arguments, each with the values that it may have and its default: `alpha: From(0.0) = 1.0`;
//! * the formulas of its `value` and its `slope`;
//! * other fields of [`FunctionRow`], where they differ from `FunctionRow::PLAIN`.
//!
//! # Formulas
//!
//! A formula is written once, as a Rust closure. The CPU backend compiles it, and the CUDA backend gets it as text, in which it replaces little
//! (`1.0` becomes `1.0f`). So a formula consists of
//!
//! * its parameter: `x` is the input. A slope takes `x`, `y`, the output, or `_`, and its gradient then reads the input, the output or neither;
//! * arguments of the row, and numbers without exponents. Everything is an `f32`;
//! * arithmetic, comparisons, `&&` and `||`;
//! * `let`s at its beginning, and `if` with `else` as its result;
//! * calls of functions that both backends define: `kernels/elementwise/scalar.rs` on the CPU, `calls/formulas.rs` and
//!   `kernels/elementwise/formula.cuh` for CUDA. Their names are those of users' formulas, and a few more.

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

/// The properties of a function.
#[derive(Clone, Copy, Debug)]
pub struct FunctionRow {
    /// The formula of its value, as the text of a closure: `|x| x / (1.0 + abs(x))`.
    pub value: &'static str,
    /// The formula of its slope, from the element of the tensor that its gradient reads.
    pub slope: &'static str,
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

impl FunctionRow {
    /// A layer without arguments and flags. Its formulas are missing.
    const PLAIN: FunctionRow = FunctionRow {
        value: "",
        slope: "",
        kept: Kept::Nothing,
        other_side: None,
        arguments: &[],
        inplace: false,
        in_place: None,
        is_layer: true,
    };
}

/// Calls a macro with the rows of all functions: `for_each_function! { callback }` is `callback! { Relu() { .. } Relu6() { .. } .. }`.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_function {
    ($callback:ident) => {
        $callback! {
            /// `Relu` or `Relu(inplace)`: `max(x, 0)`.
            ///
            /// * Backward keeps the output if another layer's gradient reads it, as a convolution's does, and else one bit of each element. It keeps
            ///   nothing if it alone reads a `BatchNorm2d`'s output and its own is not kept. In place it costs nothing. Without `inplace` the
            ///   output still overwrites the input if nothing else needs the input. With it, overwriting is guaranteed, or compilation fails.
            ///
            /// PyTorch: `torch.nn.ReLU(inplace)`.
            Relu() {
                value: |x| if x < 0.0 { 0.0 } else { x },
                slope: |y| if y > 0.0 { 1.0 } else { nan_or(y, 0.0) },
                other_side: Some(1.0),
                inplace: true,
            }
            /// `Relu6` or `Relu6(inplace)`: `min(max(x, 0), 6)`.
            ///
            /// * Backward keeps what [`Relu`](Function::Relu) keeps. In place it costs nothing.
            ///
            /// PyTorch: `torch.nn.ReLU6(inplace)`.
            Relu6() {
                value: |x| clamp(x, 0.0, 6.0),
                slope: |y| if y > 0.0 && y < 6.0 { 1.0 } else { nan_or(y, 0.0) },
                other_side: Some(1.0),
                inplace: true,
            }
            /// `LeakyRelu(negative_slope = 0.01, inplace)`: `x` if it is positive, else `negative_slope * x`.
            ///
            /// * Options: `negative_slope = 0.01`, at least 0; `inplace`.
            /// * Backward keeps what [`Relu`](Function::Relu) keeps. In place it costs nothing.
            ///
            /// PyTorch: `torch.nn.LeakyReLU(negative_slope, inplace)`.
            // With a negative slope, the sign of the output would not tell the sign of the input.
            LeakyRelu(negative_slope: From(0.0) = 0.01) {
                value: |x| if x > 0.0 { x } else { negative_slope * x },
                slope: |y| if y > 0.0 { 1.0 } else { nan_or(y, negative_slope) },
                other_side: Some(1.0),
                inplace: true,
            }
            /// `x * Phi(x)` with the normal distribution function `Phi`: see [`Gelu`](crate::layers::activation::Gelu).
            Gelu() {
                value: |x| gelu(x),
                slope: |x| gelu_slope(x),
                is_layer: false,
            }
            /// `0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))`: see [`Gelu`](crate::layers::activation::Gelu).
            // `(1 + tanh(u)) / 2` is computed as `sigmoid(2 * u)`, which does not cancel for negative `u`. `2 * sqrt(2 / pi)` is 1.5957692.
            GeluTanh() {
                value: |x| x * sigmoid(1.5957692 * (x + 0.044715 * x * x * x)),
                slope: |x| {
                    let gate = sigmoid(1.5957692 * (x + 0.044715 * x * x * x));
                    let slope = gate * (1.0 - gate);
                    // For large `x` the slope is 0 and the square is infinite.
                    if slope == 0.0 { gate } else { gate + x * slope * 1.5957692 * (1.0 + 3.0 * 0.044715 * x * x) }
                },
                is_layer: false,
            }
            /// `Silu`: sigmoid linear unit, `x / (1 + exp(-x))`.
            ///
            /// * Backward keeps the input, and nothing if it alone reads a `BatchNorm2d`'s output.
            ///
            /// PyTorch: `torch.nn.SiLU()`.
            Silu() {
                value: |x| x * sigmoid(x),
                slope: |x| {
                    let gate = sigmoid(x);
                    gate * (1.0 + x * (1.0 - gate))
                },
            }
            /// `Sigmoid`: `1 / (1 + exp(-x))`.
            ///
            /// * Backward keeps the output.
            ///
            /// PyTorch: `torch.nn.Sigmoid()`.
            Sigmoid() {
                value: |x| sigmoid(x),
                slope: |y| y * (1.0 - y),
            }
            /// `Exp`: `exp(x)`.
            ///
            /// * Backward keeps the output.
            ///
            /// PyTorch: `torch.exp(x)`.
            Exp() {
                value: |x| exp(x),
                slope: |y| y,
            }
            /// `Affine(factor = 1.0, shift = 0.0)`: `factor * x + shift`, with numbers; [`Scale`](crate::layers::Scale) learns them.
            ///
            /// * Options: `factor = 1.0`, `shift = 0.0`.
            /// * Backward keeps nothing.
            ///
            /// PyTorch: `factor * x + shift`.
            Affine(factor: Any = 1.0, shift: Any = 0.0) {
                value: |x| factor * x + shift,
                slope: |_| factor,
            }
            /// `Tanh`: hyperbolic tangent.
            ///
            /// * Backward keeps the output.
            ///
            /// PyTorch: `torch.nn.Tanh()`.
            Tanh() {
                value: |x| tanh(x),
                slope: |y| 1.0 - y * y,
            }
            /// `Hardswish`: `x * min(max(x + 3, 0), 6) / 6`.
            ///
            /// * Backward keeps the input, and nothing if it alone reads a `BatchNorm2d`'s output.
            ///
            /// PyTorch: `torch.nn.Hardswish()`.
            Hardswish() {
                value: |x| x * (clamp(x + 3.0, 0.0, 6.0) / 6.0),
                slope: |x| if x <= -3.0 { 0.0 } else if x >= 3.0 { 1.0 } else { x / 3.0 + 0.5 },
            }
            /// `Hardsigmoid` or `Hardsigmoid(inplace)`: `min(max(x + 3, 0), 6) / 6`.
            ///
            /// * Backward keeps what [`Relu`](Function::Relu) keeps. In place it costs nothing.
            ///
            /// PyTorch: `torch.nn.Hardsigmoid(inplace)`.
            Hardsigmoid() {
                value: |x| clamp(x + 3.0, 0.0, 6.0) / 6.0,
                slope: |y| if y > 0.0 && y < 1.0 { 1.0 / 6.0 } else { nan_or(y, 0.0) },
                other_side: Some(0.5),
                inplace: true,
            }
            /// `Elu(alpha = 1.0, inplace)`: `x` if it is positive, else `alpha * (exp(x) - 1)`.
            ///
            /// * Options: `alpha = 1.0`, at least 0; `inplace`.
            /// * Backward keeps the input; with `inplace` the output. An output near `-alpha` tells little of the slope: in f32, the slope of
            ///   an input below -9 is then off by more than 0.1 %.
            ///
            /// PyTorch: `torch.nn.ELU(alpha, inplace)`.
            Elu(alpha: From(0.0) = 1.0) {
                value: |x| if x > 0.0 { x } else { alpha * expm1(x) },
                slope: |x| if x > 0.0 { 1.0 } else { alpha * fast_exp(x) },
                inplace: true,
                in_place: Some(Function::EluInPlace),
            }
            /// `Celu(alpha = 1.0, inplace)`: `x` if it is positive, else `alpha * (exp(x / alpha) - 1)`.
            ///
            /// * Options: `alpha = 1.0`, above 0; `inplace`.
            /// * Backward keeps what [`Elu`](Function::Elu) keeps.
            ///
            /// PyTorch: `torch.nn.CELU(alpha, inplace)`.
            Celu(alpha: Above(0.0) = 1.0) {
                value: |x| if x > 0.0 { x } else { alpha * expm1(1.0 / alpha * x) },
                slope: |x| if x > 0.0 { 1.0 } else { fast_exp(1.0 / alpha * x) },
                inplace: true,
                in_place: Some(Function::CeluInPlace),
            }
            /// `Selu` or `Selu(inplace)`: `scale * x` if `x` is positive, else `scale * alpha * (exp(x) - 1)`, with
            /// `scale = 1.0507009873554805` and `alpha = 1.6732632423543772`.
            ///
            /// * Backward keeps the input, and nothing if it alone reads a `BatchNorm2d`'s output. With `inplace` it keeps the output, as
            ///   [`Elu`](Function::Elu) does.
            ///
            /// PyTorch: `torch.nn.SELU(inplace)`.
            Selu() {
                value: |x| if x > 0.0 { 1.050701 * x } else { 1.7580993 * expm1(x) },
                slope: |x| if x > 0.0 { 1.050701 } else { 1.7580993 * fast_exp(x) },
                inplace: true,
                in_place: Some(Function::SeluInPlace),
            }
            /// `Softplus(beta = 1.0, threshold = 20.0)`: `log(1 + exp(beta * x)) / beta`, and `x` if `beta * x` is above `threshold`.
            ///
            /// * Options: `beta = 1.0`, above 0; `threshold = 20.0`.
            /// * Backward keeps the input.
            ///
            /// PyTorch: `torch.nn.Softplus(beta, threshold)`.
            Softplus(beta: Above(0.0) = 1.0, threshold: Any = 20.0) {
                value: |x| if beta * x > threshold { x } else { softplus(beta * x) / beta },
                slope: |x| if beta * x > threshold { 1.0 } else { sigmoid(beta * x) },
            }
            /// `Softsign`: `x / (1 + |x|)`.
            ///
            /// * Backward keeps the input, and nothing if it alone reads a `BatchNorm2d`'s output.
            ///
            /// PyTorch: `torch.nn.Softsign()`.
            Softsign() {
                value: |x| x / (1.0 + abs(x)),
                slope: |x| {
                    // The square of a large number is infinite, so the quotient is squared.
                    let share = 1.0 / (1.0 + abs(x));
                    share * share
                },
            }
            /// `Mish`: `x * tanh(log(1 + exp(x)))`.
            ///
            /// * Backward keeps the input, and nothing if it alone reads a `BatchNorm2d`'s output.
            ///
            /// PyTorch: `torch.nn.Mish()`.
            Mish() {
                value: |x| x * tanh(softplus(x)),
                slope: |x| {
                    let gate = tanh(softplus(x));
                    gate + x * (1.0 - gate * gate) * sigmoid(x)
                },
            }
            /// `QuickGelu`: `x / (1 + exp(-1.702 * x))`.
            ///
            /// * Backward keeps the input, and nothing if it alone reads a `BatchNorm2d`'s output.
            ///
            /// PyTorch: `x * torch.sigmoid(1.702 * x)`.
            QuickGelu() {
                value: |x| x * sigmoid(1.702 * x),
                slope: |x| {
                    let gate = sigmoid(1.702 * x);
                    gate * (1.0 + 1.702 * x * (1.0 - gate))
                },
            }
            /// `LogSigmoid`: `-log(1 + exp(-x))`.
            ///
            /// * Backward keeps the input, and nothing if it alone reads a `BatchNorm2d`'s output.
            ///
            /// PyTorch: `torch.nn.LogSigmoid()`.
            LogSigmoid() {
                value: |x| -softplus(-x),
                slope: |x| sigmoid(-x),
            }
            /// `Abs`: `|x|`.
            ///
            /// * Backward keeps the input, and nothing if it alone reads a `BatchNorm2d`'s output.
            ///
            /// PyTorch: `torch.abs(x)`.
            Abs() {
                value: |x| abs(x),
                slope: |x| if x > 0.0 { 1.0 } else if x < 0.0 { -1.0 } else { 0.0 * x },
            }
            /// `Sqrt`: square root; NaN of negative numbers. Its slope at 0 is infinite, so for the root of a sum of squares, which may
            /// be 0, use [`Norm`](crate::layers::Norm).
            ///
            /// * Backward keeps the output.
            ///
            /// PyTorch: `torch.sqrt(x)`.
            Sqrt() {
                value: |x| sqrt(x),
                slope: |y| 0.5 / y,
            }
            /// `Log`: natural logarithm; NaN of negative numbers.
            ///
            /// * Backward keeps the input, and nothing if it alone reads a `BatchNorm2d`'s output.
            ///
            /// PyTorch: `torch.log(x)`.
            Log() {
                value: |x| log(x),
                slope: |x| 1.0 / x,
            }
            /// `Pow(exponent = 2.0)`: `x` to the power of a number. NaN if `x` is negative and the number has a fraction.
            ///
            /// * Backward keeps the input.
            ///
            /// PyTorch: `torch.pow(x, exponent)`.
            Pow(exponent: Any = 2.0) {
                value: |x| pow(x, exponent),
                slope: |x| {
                    // The power is a constant, also at `x = 0`.
                    if exponent == 0.0 { 0.0 } else { exponent * pow(x, exponent - 1.0) }
                },
            }
            /// `log(1 + exp(x))`, whose slope is `1 - exp(-y)`: see [`StepSizes`](crate::layers::state_space::StepSizes). The slope of
            /// `Softplus` depends on its threshold, too.
            StepSize() {
                value: |x| softplus(x),
                slope: |y| -expm1(-y),
                is_layer: false,
            }
            /// `Hardtanh(min_val = -1.0, max_val = 1.0, inplace)`: `min(max(x, min_val), max_val)`.
            ///
            /// * Options: `min_val = -1.0`; `max_val = 1.0`, above `min_val`; `inplace`.
            /// * Backward keeps the output. In place it costs nothing.
            ///
            /// PyTorch: `torch.nn.Hardtanh(min_val, max_val, inplace)`, and `x.clamp(min_val, max_val)` but for the gradient of elements on a bound.
            // The saved output was rounded to the format of activations, so its bounds are rounded before they are compared.
            Hardtanh(min_val: Any = -1.0, max_val: Any = 1.0) {
                value: |x| if x < min_val { min_val } else if x > max_val { max_val } else { x },
                slope: |y| if y > stored(min_val) && y < stored(max_val) { 1.0 } else { nan_or(y, 0.0) },
                inplace: true,
            }
            /// `Hardshrink(lambd = 0.5)`: `x` if `|x|` is above `lambd`, else 0.
            ///
            /// * Options: `lambd = 0.5`, at least 0.
            /// * Backward keeps the output.
            ///
            /// PyTorch: `torch.nn.Hardshrink(lambd)`.
            Hardshrink(lambd: From(0.0) = 0.5) {
                value: |x| if abs(x) <= lambd { 0.0 } else { x },
                slope: |y| if y == 0.0 { 0.0 } else { nan_or(y, 1.0) },
            }
            /// `Softshrink(lambd = 0.5)`: `x` moved towards 0 by `lambd`, and 0 if `|x|` is at most `lambd`.
            ///
            /// * Options: `lambd = 0.5`, at least 0.
            /// * Backward keeps the output.
            ///
            /// PyTorch: `torch.nn.Softshrink(lambd)`.
            Softshrink(lambd: From(0.0) = 0.5) {
                value: |x| if abs(x) <= lambd { 0.0 } else if x > 0.0 { x - lambd } else { x + lambd },
                slope: |y| if y == 0.0 { 0.0 } else { nan_or(y, 1.0) },
            }
            /// `Tanhshrink`: `x - tanh(x)`.
            ///
            /// * Backward keeps the input, and nothing if it alone reads a `BatchNorm2d`'s output.
            ///
            /// PyTorch: `torch.nn.Tanhshrink()`.
            Tanhshrink() {
                value: |x| {
                    // The difference would lose all digits of a small number, so its series is used.
                    let square = x * x;
                    if abs(x) < 0.1 {
                        x * square * (1.0 / 3.0 - square * (2.0 / 15.0 - square * (17.0 / 315.0)))
                    } else {
                        x - tanh(x)
                    }
                },
                slope: |x| tanh(x) * tanh(x),
            }
            /// `Sin`: sine.
            ///
            /// * Backward keeps the input, and nothing if it alone reads a `BatchNorm2d`'s output.
            ///
            /// PyTorch: `torch.sin(x)`.
            Sin() {
                value: |x| sin(x),
                slope: |x| cos(x),
            }
            /// `Cos`: cosine.
            ///
            /// * Backward keeps the input, and nothing if it alone reads a `BatchNorm2d`'s output.
            ///
            /// PyTorch: `torch.cos(x)`.
            Cos() {
                value: |x| cos(x),
                slope: |x| -sin(x),
            }
            /// [`Elu`](Function::Elu) in place: its gradient reads the output.
            EluInPlace(alpha: From(0.0) = 1.0) {
                value: |x| if x > 0.0 { x } else { alpha * expm1(x) },
                slope: |y| if y > 0.0 { 1.0 } else { y + alpha },
                is_layer: false,
            }
            /// [`Celu`](Function::Celu) in place: its gradient reads the output.
            CeluInPlace(alpha: Above(0.0) = 1.0) {
                value: |x| if x > 0.0 { x } else { alpha * expm1(1.0 / alpha * x) },
                slope: |y| if y > 0.0 { 1.0 } else { 1.0 / alpha * (y + alpha) },
                is_layer: false,
            }
            /// [`Selu`](Function::Selu) in place: its gradient reads the output.
            SeluInPlace() {
                value: |x| if x > 0.0 { 1.050701 * x } else { 1.7580993 * expm1(x) },
                slope: |y| if y > 0.0 { 1.050701 } else { y + 1.7580993 },
                is_layer: false,
            }
        }
    };
}

/// Returns the tensor that a slope with this parameter reads.
macro_rules! kept {
    (x) => {
        Kept::Input
    };
    (y) => {
        Kept::Output
    };
    (_) => {
        Kept::Nothing
    };
}

/// Defines [`Function`] from its rows. `Softsign() { value: |x| .., slope: |x| .., }` is its variant `Softsign`, whose [`row`](Function::row) is
/// `FunctionRow { value: "|x| ..", slope: "|x| ..", kept: Kept::Input, arguments: &[], ..FunctionRow::PLAIN }`.
macro_rules! functions {
    ($($(#[$page:meta])*
    $name:ident($($argument:ident: $bound:ident $(($limit:literal))? = $default:literal),*) {
        value: |$x:ident| $value:expr,
        slope: |$kept:tt| $slope:expr,
        $($field:ident: $other:expr,)*
    })*) => {
        /// A function of one number. Those that are layers take any one shape and give that shape.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Function {
            $($(#[$page])* $name,)*
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
                match self {
                    $(Function::$name => FunctionRow {
                        value: stringify!(|$x| $value),
                        slope: stringify!(|$kept| $slope),
                        kept: kept!($kept),
                        arguments: &[$(FunctionArgument {
                            name: stringify!($argument),
                            default: $default,
                            bound: Bound::$bound $(($limit))?,
                        }),*],
                        $($field: $other,)*
                        ..FunctionRow::PLAIN
                    },)*
                }
            }
        }
    };
}
for_each_function! { functions }

impl Function {
    /// True if its slope can be computed from its input alone, without arguments. `Relu` and `Relu6`, whose gradients read the output, are
    /// included: their input tells as much as their output.
    pub const fn has_slope_of_input(self) -> bool {
        let row = self.row();
        matches!(self, Function::Relu | Function::Relu6)
            || (matches!(row.kept, Kept::Input) && row.arguments.is_empty())
    }
}
