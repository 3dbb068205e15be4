use crate::layers::Layer;
use crate::layers::arguments::{Arguments, list};
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::number::Role;
use crate::program::Init;
use crate::program::ops::{Binary, BinaryFunction, broadcast};
use crate::shape::Shape;
use alloc::format;
use alloc::vec::Vec;

/// `Scale(init = 1.0, bias = false)`: a learned factor for each channel. All of it may be left out: `Scale`.
///
/// * Options: `init = 1.0`, what factors begin with; `bias = false`, whether there is a learned summand for each channel, too.
/// * Options of other factors: `scalar`, one for all elements; `shape`, one for each element of this shape, which is repeated as numpy
///   does: with `Scale(shape = (8, 1))` each of 8 heads `[T, 8, D]` has one, as a learned temperature of its scores.
/// * Input and output of any shape. Channels are those of a feature map `[C, H, W]`, and the last axis of anything else.
/// * Parameters: `weight` = `init` and, with `bias`, `bias` = 0: `[C, 1, 1]` for feature maps, else `[D]`; with
///   `scalar` they have no axes, with `shape` that one.
/// * Backward keeps the input.
///
/// PyTorch: `x * self.weight`, with `self.weight = torch.nn.Parameter(torch.full((D,), init))`.
#[derive(Clone, Debug)]
pub struct Scale {
    init: f64,
    bias: bool,
    scalar: bool,
    shape: Option<Vec<u64>>,
}

impl Scale {
    /// The shape of the factors.
    fn factors(&self, b: &mut Builder<'_>, input: Shape) -> Shape {
        let channels = match input.as_map() {
            Some([channels, ..]) => Shape::new(&[channels, 1, 1]),
            None => Shape::new(&[input.last()]),
        };
        let Some(dims) = &self.shape else { return if self.scalar { Shape::new(&[]) } else { channels } };
        if self.scalar {
            b.report(Mistake::of("shape", "has `scalar`, one factor for all, and a `shape`; remove one of them"));
            return Shape::new(&[]);
        }
        if dims.len() <= input.rank() {
            let shape = Shape::new(dims);
            if broadcast(input, shape) == Some(input) {
                return shape;
            }
        }
        let dims: Vec<_> = dims.iter().map(|&dim| dim as f64).collect();
        let text = format!(
            "has factors of shape {}, which are not repeated to {input}; counted from the last axis, write its lengths, or 1",
            list(&dims)
        );
        b.report(Mistake::of("shape", text));
        channels
    }
}

impl Layer for Scale {
    const NAME: &'static str = "Scale";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> Scale {
        Scale {
            init: from.trailing("init").number(1.0),
            bias: from.option("bias").flag(false),
            scalar: from.option("scalar").flag(false),
            shape: from.option("shape").lengths(),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let left = x[0].numbers()?;
        let right = self.factors(b, left);
        let factor = b.parameter("weight", right.dims(), Role::Weight, Init::Constant(self.init));
        let y = b.op(Binary { function: BinaryFunction::Multiply, left, right }, &[x[0], factor])?;
        if !self.bias {
            return Ok(y);
        }
        let summand = b.parameter("bias", right.dims(), Role::Weight, Init::Constant(0.0));
        b.op(Binary { function: BinaryFunction::Add, left, right }, &[y, summand])
    }
}
