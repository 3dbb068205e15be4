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
/// * Options: `init = 1.0`, the first value of factors; `bias = false`: if true, each channel has a learned summand too; `dim`, the axis of
///   the channels, as PyTorch counts them: the batch is axis 0, and -1 is the last.
/// * Options of other factors: `scalar`, one for all elements; `shape`, one for each element of this shape, which is broadcast as numpy
///   does: with `Scale(shape = (8, 1))` each of 8 heads of `[T, 8, D]` has one, as a learned temperature of its scores.
/// * Input and output have any shape. Without `dim`, channels are the first axis of a feature map `[C, H, W]`, else the last axis.
///   `dim` must be written if layers before have moved the channels to another axis, as `Permute(0, 2, 3, 1)` does.
/// * Parameters: `weight` = `init` and, with `bias`, `bias` = 0: `[C, 1, 1]` for feature maps, `[D]` for the last axis; with `scalar` they
///   have no axes, with `shape` that shape.
/// * Backward keeps the input.
///
/// PyTorch: `x * self.weight`, with `self.weight = torch.nn.Parameter(torch.full((D,), init))`.
#[derive(Clone, Debug)]
pub struct Scale {
    init: f64,
    bias: bool,
    scalar: bool,
    shape: Option<Vec<u64>>,
    dim: Option<i64>,
}

impl Scale {
    /// Returns the shape of the factors.
    fn factors(&self, b: &mut Builder<'_>, x: Value) -> Shape {
        let input = x.shape;
        if self.scalar {
            if self.shape.is_some() {
                b.report(Mistake::of("shape", "has `scalar`, one factor for all, and a `shape`; remove one of them"));
            } else if self.dim.is_some() {
                b.report(Mistake::of("dim", "has `scalar`, one factor for all, and a `dim`; remove one of them"));
            }
            return Shape::new(&[]);
        }
        let Some(dims) = &self.shape else { return self.of_channels(b, x) };
        if self.dim.is_some() {
            b.report(Mistake::of(
                "dim",
                "has a `shape`, which says what each factor is for, and a `dim`; remove one of them",
            ));
        }
        let channels = Shape::new(&[input.last()]);
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

impl Scale {
    /// Returns the shape of one factor for each channel.
    fn of_channels(&self, b: &mut Builder<'_>, x: Value) -> Shape {
        let (shape, last) = (x.shape, x.shape.rank().saturating_sub(1));
        let usual = if shape.rank() == 3 { 0 } else { last };
        let axis = match self.dim.map(|dim| x.axis(dim)) {
            Some(Ok(axis)) => axis,
            Some(Err(mistake)) => {
                b.report(mistake);
                usual
            }
            None => {
                if let Some(channels) = b.channel_axis(x).filter(|&axis| axis != usual && shape.dims()[axis] > 1) {
                    b.report(elsewhere(shape, usual, channels));
                }
                usual
            }
        };
        let ones = (axis..last).map(|_| 1);
        let dims: Vec<u64> = shape.dims().get(axis).copied().into_iter().chain(ones).collect();
        Shape::new(&dims)
    }
}

/// Returns the message for channels on another axis than `usual`.
fn elsewhere(shape: Shape, usual: usize, channels: usize) -> Mistake {
    let dim = |axis: usize| if axis + 1 == shape.rank() { -1 } else { axis as i64 + 1 };
    let (factors, others) = (shape.dims()[channels], shape.dims()[usual]);
    Mistake::new(format!(
        "would have a factor for each of the {others} along axis {} of {shape}, but the layers before it have the channels on axis {}; \
         write `dim = {}` for {factors} factors, one for each channel, or `dim = {}` for {others}",
        usual + 1,
        channels + 1,
        dim(channels),
        dim(usual),
    ))
}

impl Layer for Scale {
    const NAME: &'static str = "Scale";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> Scale {
        Scale {
            init: from.option("init").number(1.0),
            bias: from.option("bias").flag(false),
            scalar: from.option("scalar").flag(false),
            shape: from.option("shape").lengths(),
            dim: from.option("dim").axis(),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let left = x[0].numbers()?;
        let right = self.factors(b, x[0]);
        let factor = b.parameter("weight", right.dims(), Role::Weight, Init::Constant(self.init));
        let y = b.op(Binary { function: BinaryFunction::Multiply, left, right }, &[x[0], factor])?;
        if !self.bias {
            return Ok(y);
        }
        let summand = b.parameter("bias", right.dims(), Role::Weight, Init::Constant(0.0));
        b.op(Binary { function: BinaryFunction::Add, left, right }, &[y, summand])
    }
}
