use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::number::Role;
use crate::program::Init;
use crate::program::ops::{Concat, Expand};
use crate::shape::Shape;
use alloc::vec;

/// `ClassToken` or `ClassToken(tokens = 1)`: learned steps before a sequence.
///
/// * Input `[T, D]`, output `[tokens + T, D]`.
/// * Parameters: `weight` `[tokens, D]` = 0.
/// * Backward keeps nothing.
///
/// PyTorch: `torch.cat((self.weight.expand(x.shape[0], -1, -1), x), 1)`.
#[derive(Clone, Debug)]
pub struct ClassToken {
    tokens: u64,
}

impl Layer for ClassToken {
    const NAME: &'static str = "ClassToken";

    fn read(from: &mut Arguments<'_>) -> ClassToken {
        ClassToken { tokens: from.trailing("tokens").positive(1) }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [steps, width] = x[0].sequence()?;
        let shape = Shape::new(&[self.tokens, width]);
        let mut tokens = b.parameter("weight", shape.dims(), Role::Weight, Init::Constant(0.0));
        if !x[0].batched {
            return Err(Mistake::new("works on a sequence that differs between samples; add positions after it"));
        }
        tokens = b.op(Expand { shape }, &[tokens, x[0]])?;
        let lengths = vec![self.tokens, steps];
        let shape = Shape::new(&[self.tokens.saturating_add(steps), width]);
        b.op(Concat { axis: 0, lengths, shape }, &[tokens, x[0]])
    }
}
