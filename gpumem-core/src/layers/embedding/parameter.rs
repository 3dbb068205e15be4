use crate::layers::Layer;
use crate::layers::arguments::{Argument, Arguments, lengths};
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::number::Role;
use crate::program::Init;
use crate::shape::Shape;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

/// The name of the argument in messages.
const SHAPE: &str = "a shape as `(100, 256)` or a whole number, all above 0,";

/// `Parameter((100, 256), init = Normal(0.02))`: learned numbers of this shape, one value that all samples share.
///
/// * Input of any kind, which is not read. Output of the shape, without a batch. Joins take it together with values of samples: `Add` and
///   `Mul` repeat it, `Concat` joins it to each sample, `MatMul` multiplies each sample with it. An `Attention` may have it as queries,
///   keys or values. Layers after it run once for the whole batch.
/// * Parameter: `weight` of the shape, initialised by `init`: normal with mean 0 and deviation 1 if left out. See the
///   [initialisers](crate::layers::initializer). `parameter = "queries"` names it as an attribute of its module.
/// * Backward keeps it if the operation that reads it needs it. Its gradient is the sum over all samples.
///
/// PyTorch: `self.queries = nn.Parameter(torch.randn(100, 256) * 0.02)`, used as `self.queries`, without `.expand(..)`.
#[derive(Clone, Debug)]
pub struct Parameter {
    shape: Vec<u64>,
}

impl Layer for Parameter {
    const NAME: &'static str = "Parameter";

    fn read(from: &mut Arguments<'_>) -> Parameter {
        let at_least_1 = |value: &Argument| lengths(value).filter(|dims| !dims.contains(&0));
        Parameter { shape: from.required("shape").take(SHAPE, at_least_1, [vec![1], vec![6]]) }
    }

    fn build(&self, b: &mut Builder<'_>, _: &[Value]) -> Result<Value, Mistake> {
        let dims = &self.shape;
        if dims.len() > Shape::MAX_RANK {
            let text = format!("has {} axes; a tensor has no more than {}", dims.len(), Shape::MAX_RANK);
            return Err(Mistake::of("shape", text));
        }
        Ok(b.parameter("weight", dims, Role::Weight, Init::Normal(1.0)))
    }
}
