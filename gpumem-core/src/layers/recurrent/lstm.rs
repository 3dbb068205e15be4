use super::Stack;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::Cell;

/// `Lstm(hidden, layers = 1, bias = true, dropout = 0.0, bidirectional = false)`: long short-term memory, all steps of it.
///
/// * Options: `layers = 1`, how many follow each other; `bias = true`; `dropout = 0.0`, the probability that an element between two
///   of them is set to 0 in training, which does nothing where there is one; `bidirectional = false`, whether another one goes from
///   the last step to the first, beside it.
/// * Input `[T, D]`, output `[T, hidden]`, or `[T, 2 * hidden]` with both directions. States are 0 before the first step. With
///   `i`, `f`, `g` and `o` made of `W_ih x + b_ih + W_hh h + b_hh` by sigmoids, `g` by tanh: `c = f * c + i * g`, `h = o * tanh(c)`.
/// * Parameters, those of each layer `k` and, with `_reverse` behind their names, of its other direction: `weight_ih_lk`
///   `[4 * hidden, D]`, `weight_hh_lk` `[4 * hidden, hidden]` and, with `bias`, `bias_ih_lk` and `bias_hh_lk` `[4 * hidden]`, all
///   uniform within `1 / sqrt(hidden)`; gates in the order i, f, g, o. D is `hidden`, or twice that, from the second layer on.
/// * With `cache` in `INFER` the state of the last step is kept, and the next steps go on from it; not with `bidirectional`.
/// * Backward keeps for each layer its input, the four gates and its output: `5 * hidden` numbers a step beside the input. The
///   cell's state is computed again, into as much room as the output has, for one layer at a time.
///
/// PyTorch: `torch.nn.LSTM(D, hidden, layers, bias, batch_first=True, dropout=dropout, bidirectional=bidirectional)(x)[0]`.
#[derive(Clone, Debug)]
pub struct Lstm {
    stack: Stack,
}

impl Layer for Lstm {
    const NAME: &'static str = "Lstm";

    fn read(from: &mut Arguments<'_>) -> Lstm {
        Lstm { stack: Stack::read(from) }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        self.stack.build(b, x[0], Cell::Lstm)
    }
}
