use crate::graph::Elements;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops;
use alloc::format;

/// `ArgMax`: where the largest token of a text is, for `Take`: the end of a text, where that is the last word of the vocabulary.
///
/// * Input tokens `[T]`, output one index `[1]`, as tokens are: that of the first of several.
/// * Parameters: none.
/// * Backward keeps nothing beside the index.
///
/// PyTorch: `tokens.argmax(-1, keepdim=True)`.
#[derive(Clone, Debug)]
pub struct ArgMax;

impl Layer for ArgMax {
    const NAME: &'static str = "ArgMax";

    fn read(_: &mut Arguments<'_>) -> ArgMax {
        ArgMax
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        match (x[0].shape.dims(), x[0].elements) {
            (&[count], Elements::Indices) => b.op(ops::ArgMax { count }, x),
            _ => Err(Mistake::new(format!(
                "works on tokens, but the previous layer produces {}; a network ends with its logits, and \
                 `logits.argmax()` is for the tensor that `forward` returns",
                x[0].shape
            ))),
        }
    }
}
