use super::Stack;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::Cell;

/// `Rnn(hidden, layers = 1, nonlinearity = "tanh", bias = true, dropout = 0.0, bidirectional = false, cudnn = false)`: the plain recurrent
/// layer, over all time steps.
///
/// * Options: `nonlinearity = "tanh"`, or `"relu"`; the others as for [`Lstm`](super::Lstm).
/// * Input `[T, D]`, output `[T, hidden]`, or `[T, 2 * hidden]` with both directions: `h = tanh(W_ih x + b_ih + W_hh h + b_hh)`, where
///   h is 0 before the first step.
/// * Parameters, of each layer `k` and, with the suffix `_reverse`, of its reverse direction: `weight_ih_lk` `[hidden, D]`, `weight_hh_lk`
///   `[hidden, hidden]` and, with `bias`, `bias_ih_lk` and `bias_hh_lk` `[hidden]`, all uniform within `1 / sqrt(hidden)`. D is `hidden`,
///   or twice that, from the second layer on.
/// * With `cache` in `INFER` the state of the last time step is kept between calls, and the next steps continue from it; not with
///   `bidirectional`.
/// * Inside `lengths` each direction reads the first `n` steps of a sample, the reverse one beginning at step `n - 1`. The output after
///   these steps is 0: `pad_packed_sequence` of a sequence packed with `enforce_sorted=False`. It costs a copy of the input and, with
///   `bidirectional`, one of each layer's input and of its output.
/// * Backward keeps for each layer its input and its output, and with `cudnn = true` one more number a unit and step.
///
/// PyTorch: `torch.nn.RNN(D, hidden, layers, nonlinearity, bias, batch_first=True, dropout=dropout, bidirectional=bidirectional)(x)[0]`.
#[derive(Clone, Debug)]
pub struct Rnn {
    stack: Stack,
    cell: Cell,
}

/// The functions by name, with their cells.
const FUNCTIONS: [(&str, Cell); 2] = [("tanh", Cell::Tanh), ("relu", Cell::Relu)];

impl Layer for Rnn {
    const NAME: &'static str = "Rnn";

    fn read(from: &mut Arguments<'_>) -> Rnn {
        let stack = Stack::read(from);
        let function = from.option("nonlinearity").choice(&FUNCTIONS.map(|(name, _)| name));
        Rnn { stack, cell: FUNCTIONS[function].1 }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        self.stack.build(b, x[0], self.cell)
    }
}
