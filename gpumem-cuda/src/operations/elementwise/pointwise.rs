//! Launches of elementwise functions of one number: `kernels/elementwise/pointwise.cu`.

use crate::calls::{Kernel, Launch};
use crate::operations::context::Context;
use crate::operations::grid::pieces;
use gpumem_core::error::Error;
use gpumem_core::program::Slot;
use gpumem_core::program::functions::{Function, Kept};
use gpumem_core::program::ops::Pointwise;
use std::fmt;

/// An elementwise function that is fused with the operation before it: `RECTIFIER` of `rectify.cuh`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rectifier {
    function: Option<Function>,
    /// The factor of negative elements, if the backward pass inverts the function; else `None`.
    slope: Option<f64>,
}

impl Rectifier {
    /// No function.
    pub(crate) const NONE: Rectifier = Rectifier { function: None, slope: None };

    /// Returns the function if it is a rectifier that can be fused; else `None`.
    pub(crate) fn of(function: Function) -> Option<Rectifier> {
        let follows = matches!(function, Function::Relu | Function::Relu6);
        follows.then_some(Rectifier { function: Some(function), slope: None })
    }

    /// Returns the function if it can be fused with a normalisation before it, because its slope can be computed from its input; else `None`.
    pub(crate) fn after_norm(function: Function) -> Option<Rectifier> {
        function.has_slope_of_input().then_some(Rectifier { function: Some(function), slope: None })
    }

    /// Returns a leaky rectifier that the backward pass inverts.
    pub(in crate::operations) fn undone(slope: f64) -> Rectifier {
        Rectifier { function: Some(Function::LeakyRelu), slope: Some(slope) }
    }

    /// Returns its slope; `None` unless the backward pass inverts it.
    pub(in crate::operations) fn slope(self) -> Option<f64> {
        self.slope
    }
}

impl fmt::Display for Rectifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.function.map_or("Identity", Function::name))
    }
}

fn kernel(context: &Context<'_>, op: &Pointwise, entry: &'static str, count: u64, add: u8) -> Kernel {
    let kernel = context.kernel("pointwise.cu", entry).with("COUNT", format!("{count}ull"));
    kernel.with("FUNCTION", op.function.name()).with("ARGUMENTS", arguments(op)).with("ADD", add)
}

/// Returns the parameters of a function, in braces.
pub(in crate::operations) fn arguments(op: &Pointwise) -> String {
    let arguments: Vec<String> = op.arguments.iter().map(|argument| format!("{argument:e}")).collect();
    format!("{{{}}}", arguments.join(","))
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &Pointwise) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let count = context.elements(y);
    let kernel = kernel(context, op, "pointwise", count, 0);
    Ok(vec![Launch::elementwise(kernel, pieces(context, count), vec![Some(x), Some(y)])])
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &Pointwise) -> Result<Vec<Launch>, Error> {
    let (dy, dx) = (context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?);
    let kept = match op.function.row().kept {
        Kept::Input => Some(context.read(Slot::Input(0))?),
        Kept::Output => Some(context.read(Slot::Output)?),
        Kept::Nothing => None,
    };
    let count = context.elements(dx);
    let kernel = kernel(context, op, "pointwise_backward", count, context.adds(Slot::InputGradient(0)));
    Ok(vec![Launch::elementwise(kernel, pieces(context, count), vec![Some(dy), kept, Some(dx)])])
}
