use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::number::Role;
use crate::program::Init;
use crate::program::ops::{Binary, BinaryFunction};
use crate::shape::Shape;

/// `Scale(init = 1.0, bias = false)`: a learned factor for each channel. All of it may be left out: `Scale`.
///
/// * Options: `init = 1.0`, what factors begin with; `bias = false`, whether there is a learned summand for each channel, too.
/// * Input and output of any shape. Channels are those of a feature map `[C, H, W]`, and the last axis of anything else.
/// * Parameters: `weight` = `init` and, with `bias`, `bias` = 0: `[C, 1, 1]` for feature maps, else `[D]`.
/// * Backward keeps the input.
///
/// PyTorch: `x * self.weight`, with `self.weight = torch.nn.Parameter(torch.full((D,), init))`.
#[derive(Clone, Debug)]
pub struct Scale {
    init: f64,
    bias: bool,
}

impl Layer for Scale {
    const NAME: &'static str = "Scale";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> Scale {
        Scale { init: from.trailing("init").number(1.0), bias: from.option("bias").flag(false) }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let left = x[0].numbers()?;
        let right = match left.as_map() {
            Some([channels, ..]) => Shape::new(&[channels, 1, 1]),
            None => Shape::new(&[left.last()]),
        };
        let factor = b.parameter("weight", right.dims(), Role::Norm, Init::Constant(self.init));
        let y = b.op(Binary { function: BinaryFunction::Multiply, left, right }, &[x[0], factor])?;
        if !self.bias {
            return Ok(y);
        }
        let summand = b.shift(right.dims());
        b.op(Binary { function: BinaryFunction::Add, left, right }, &[y, summand])
    }
}
