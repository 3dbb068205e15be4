use super::Stack;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::Cell;

/// `Gru(hidden, layers = 1, bias = true, dropout = 0.0, bidirectional = false, cudnn = false)`: gated recurrent units, over all time steps.
///
/// * Options: as for [`Lstm`](super::Lstm).
/// * Input `[T, D]`, output `[T, hidden]`, or `[T, 2 * hidden]` with both directions. The state is 0 before the first step. With
///   `r` and `z` the sigmoids of `W_ih x + b_ih + W_hh h + b_hh`, and `n = tanh(W_in x + b_in + r * (W_hn h + b_hn))`:
///   `h = (1 - z) * n + z * h`.
/// * Parameters, of each layer `k` and, with the suffix `_reverse`, of its reverse direction: `weight_ih_lk` `[3 * hidden, D]`,
///   `weight_hh_lk` `[3 * hidden, hidden]` and, with `bias`, `bias_ih_lk` and `bias_hh_lk` `[3 * hidden]`, all uniform within
///   `1 / sqrt(hidden)`; gates in the order r, z, n. D is `hidden`, or twice that, from the second layer on.
/// * With `cache` in `INFER` the state of the last time step is kept between calls, and the next steps continue from it; not with
///   `bidirectional`.
/// * Inside `lengths` each direction reads the first `n` steps of a sample, the reverse one beginning at step `n - 1`. The output after
///   these steps is 0: `pad_packed_sequence` of a sequence packed with `enforce_sorted=False`. It costs a copy of the input and, with
///   `bidirectional`, one of each layer's input and of its output.
/// * Backward keeps for each layer its input, the three gates and its output: `4 * hidden` numbers a step in addition to the input.
///   `W_hn h + b_hn` is recomputed. With `cudnn = true` it keeps 6 numbers a unit and step in place of the gates.
///
/// PyTorch: `torch.nn.GRU(D, hidden, layers, bias, batch_first=True, dropout=dropout, bidirectional=bidirectional)(x)[0]`.
#[derive(Clone, Debug)]
pub struct Gru {
    stack: Stack,
}

impl Layer for Gru {
    const NAME: &'static str = "Gru";

    fn read(from: &mut Arguments<'_>) -> Gru {
        Gru { stack: Stack::read(from) }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        self.stack.build(b, x[0], Cell::Gru)
    }
}
