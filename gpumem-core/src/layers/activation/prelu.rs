use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::number::Role;
use crate::program::Init;
use crate::program::ops::{Binary, BinaryFunction};
use crate::shape::Shape;
use alloc::format;

/// `Prelu(num_parameters = 1, init = 0.25)`: `x` if it is above 0, else `x` times a learned slope: one for all, or one for each channel.
/// All of it may be left out: `Prelu`.
///
/// * Options: `num_parameters = 1`, or the channels of the input; `init = 0.25`, the first value of all slopes.
/// * Input and output of any one shape. Channels are its first axis, as in PyTorch: those of `[C, H, W]`, `[C, L]` or `[D]`.
/// * Parameters: `weight` `[num_parameters]` = `init`.
/// * Backward keeps the input.
///
/// PyTorch: `torch.nn.PReLU(num_parameters, init)`.
#[derive(Clone, Debug)]
pub struct Prelu {
    num_parameters: u64,
    init: f64,
}

impl Layer for Prelu {
    const NAME: &'static str = "Prelu";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> Prelu {
        Prelu { num_parameters: from.trailing("num_parameters").positive(1), init: from.option("init").number(0.25) }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let left = x[0].numbers()?;
        let channels = left.dims().first().copied().unwrap_or(1);
        let slopes = if self.num_parameters == channels || self.num_parameters == 1 {
            self.num_parameters
        } else {
            b.report(Mistake::of(
                "num_parameters",
                format!("is {}, but there is one slope for all or one for each of the {channels} channels; use 1 or {channels}", self.num_parameters),
            ));
            channels
        };
        let weight = b.parameter("weight", &[slopes], Role::Weight, Init::Constant(self.init));
        // Slopes belong to the first axis, and are repeated along all axes after it.
        let mut dims = [1; Shape::MAX_RANK];
        dims[0] = slopes;
        let right = Shape::new(if slopes == 1 { &dims[..1] } else { &dims[..left.rank().max(1)] });
        let weight = b.reshaped(weight, right);
        b.op(Binary { function: BinaryFunction::Rectify, left, right }, &[x[0], weight])
    }
}
