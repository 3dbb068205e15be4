use crate::graph::Elements;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops;
use alloc::format;

/// `Take(x, index)`: the steps of a sequence that each sample's own indices name: `Take([], [from(text), ArgMax])`.
///
/// * `Gather(x, index)` takes single elements, each by an index of its own.
/// * Both branches get the layer's input. x is a sequence `[T, D]`, the indices are tokens `[C]`; output `[C, D]`. An index of the
///   user's from T on is an error before anything runs, as a token beyond an embedding's table is.
/// * Parameters: none.
/// * Backward keeps the indices.
///
/// PyTorch: `x.take_along_dim(index.unsqueeze(-1), 1)`; of one index, `x[torch.arange(x.shape[0]), index]`.
#[derive(Clone, Debug)]
pub struct Take;

impl Layer for Take {
    const NAME: &'static str = "Take";
    const INPUTS: (usize, usize) = (2, 2);

    fn read(_: &mut Arguments<'_>) -> Take {
        Take
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [rows, width] = x[0].sequence()?;
        let (&[count], Elements::Indices) = (x[1].shape.dims(), x[1].elements) else {
            let text = format!(
                "takes the steps that tokens name, but its second branch produces {}; put `from(tokens)` or `ArgMax` in that branch",
                x[1].shape
            );
            return Err(Mistake::of_input(1, text));
        };
        if !(x[0].batched && x[1].batched) {
            return Err(Mistake::new("takes steps that differ between samples; what is the same for all is a `Slice`"));
        }
        b.check_branch_of_indices(1, &x[1], rows)?;
        b.op(ops::Take { rows, width, count }, x)
    }
}
