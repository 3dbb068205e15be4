use crate::graph::Elements;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::layers::shape::{left, places};
use crate::program::ops;
use alloc::format;

/// `ArgMax(dim)` of numbers: where the largest element along an axis is, as tokens are, for `Take`, `Gather` and `Embedding`. `ArgMax` of tokens:
/// where the largest token of a text is, as the end of a text where that is the last word of the vocabulary.
///
/// * Options: `dim`, the axis as PyTorch counts them: the batch is 0, and -1 is the last. A vector and a text have one axis, so that it may be
///   left out. `keepdim = false`, whether the axis stays, with length 1.
/// * Input of any shape; output of the axes that are left, `[1]` if none is. Input tokens `[T]`, output `[1]`.
/// * The place is that of the first of several equal elements. -0 equals 0, and a NaN is larger than any number.
/// * Parameters: none.
/// * Backward keeps nothing beside the place. It has no gradient: nothing before it is trained through it.
///
/// PyTorch: `x.argmax(dim, keepdim)`; of tokens `tokens.argmax(-1, keepdim=True)`.
#[derive(Clone, Debug)]
pub struct ArgMax {
    dim: Option<i64>,
    keepdim: bool,
}

impl Layer for ArgMax {
    const NAME: &'static str = "ArgMax";

    fn read(from: &mut Arguments<'_>) -> ArgMax {
        ArgMax { dim: from.trailing("dim").axis(), keepdim: from.option("keepdim").flag(false) }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let shape = x[0].numbers_or_tokens()?;
        if x[0].elements == Elements::Indices && shape.rank() != 1 {
            return Err(Mistake::new(format!(
                "works on tokens [T], but the previous layer produces {shape}; flatten them"
            )));
        }
        let axis = match self.dim {
            Some(dim) => x[0].axis(dim)?,
            None if shape.rank() == 1 => 0,
            None => {
                let text = format!(
                    "needs `dim`, the axis along which it looks, as `ArgMax(-1)`: the previous layer produces {shape}. A network ends with \
                     its logits, and `logits.argmax()` is for the tensor that `forward` returns"
                );
                return Err(Mistake::new(text));
            }
        };
        match (shape.dims(), x[0].elements) {
            (&[count], Elements::Indices) => b.op(ops::ArgMax { count }, x),
            _ => {
                let place = places(b, x[0], axis, 1, false)?;
                let mut gone = alloc::vec![false; shape.rank()];
                gone[axis] = true;
                Ok(b.reshaped(place, left(shape, &gone, self.keepdim)))
            }
        }
    }
}
