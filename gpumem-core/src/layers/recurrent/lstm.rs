use super::Stack;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::Cell;
use alloc::format;

/// `Lstm(hidden, layers = 1, bias = true, dropout = 0.0, bidirectional = false, cudnn = false, proj_size = 0)`: long short-term memory, all steps of it.
///
/// * Options: `layers = 1`, how many follow each other; `bias = true`; `dropout = 0.0`, the probability that an element between two
///   of them is set to 0 in training, which does nothing where there is one; `bidirectional = false`, whether another one goes from
///   the last step to the first, beside it; `cudnn = false`, whether a training step has the memory that cuDNN takes for the layer, so that
///   cuDNN computes it where it is installed, see below; `proj_size = 0`, to how many numbers, fewer than `hidden`, the output of each step is mapped
///   before the next step and the next layer read it. With 0 it stays as it is.
/// * Input `[T, D]`, output `[T, hidden]`, or `[T, 2 * hidden]` with both directions. States are 0 before the first step. With
///   `i`, `f`, `g` and `o` made of `W_ih x + b_ih + W_hh h + b_hh` by sigmoids, `g` by tanh: `c = f * c + i * g`, `h = o * tanh(c)`.
///   With `proj_size`, `h = W_hr (o * tanh(c))`, and the output has `proj_size` in place of `hidden`.
/// * Parameters, those of each layer `k` and, with `_reverse` behind their names, of its other direction: `weight_ih_lk`
///   `[4 * hidden, D]`, `weight_hh_lk` `[4 * hidden, hidden]` and, with `bias`, `bias_ih_lk` and `bias_hh_lk` `[4 * hidden]`, all
///   uniform within `1 / sqrt(hidden)`; gates in the order i, f, g, o. D is `hidden`, or twice that, from the second layer on. With
///   `proj_size`, that takes the place of `hidden` in D and of the second one in `weight_hh_lk`, and `weight_hr_lk`
///   `[proj_size, hidden]`, drawn like the others, comes behind them.
/// * With `cache` in `INFER` the state of the last step is kept, and the next steps go on from it; not with `bidirectional`.
/// * Inside of `lengths` each direction has the first `n` steps of a sample, the other one beginning at step `n - 1`, and the output after them
///   is 0: `pad_packed_sequence` of a sequence packed with `enforce_sorted=False`. It costs a copy of the input and, with `bidirectional`, one
///   of each layer's input and of its output.
/// * Backward keeps for each layer its input, the four gates and its output: `5 * hidden` numbers a step beside the input, or
///   `4 * hidden + proj_size`. The cell's state is computed again, into as much room as the units of all steps have, for one layer at a
///   time; with `proj_size` the gradients of the steps' outputs lie beside it.
///
/// With `cudnn = true` backward keeps 5 numbers a unit and step in place of the gates, or with `proj_size` 6 and the projected ones, and both
/// passes have a workspace of 6 and more numbers of a unit and step and some MiB, by the rule of
/// [`WholeRecurrence`](crate::program::ops::WholeRecurrence). Where cuDNN is not installed, and on the CPU, the same kernels as without it
/// run in that memory.
///
/// PyTorch: `torch.nn.LSTM(D, hidden, layers, bias, batch_first=True, dropout=dropout, bidirectional=bidirectional,
/// proj_size=proj_size)(x)[0]`.
#[derive(Clone, Debug)]
pub struct Lstm {
    stack: Stack,
}

impl Layer for Lstm {
    const NAME: &'static str = "Lstm";

    fn read(from: &mut Arguments<'_>) -> Lstm {
        let mut stack = Stack::read(from);
        stack.projected = Some(from.option("proj_size").whole(0)).filter(|&size| size > 0);
        Lstm { stack }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let mut stack = self.stack;
        if let Some(size) = stack.projected.filter(|&size| size >= stack.hidden) {
            b.report(Self::no_projection(size, stack.hidden));
            // None may have been meant, or any that is smaller.
            stack.projected = b.any([None, Some(1).filter(|&one| one < stack.hidden)]);
        }
        stack.build(b, x[0], Cell::Lstm)
    }
}

impl Lstm {
    /// That a projection is as wide as the units or wider.
    fn no_projection(size: u64, hidden: u64) -> Mistake {
        let instead = match hidden {
            1 => "leave it out".into(),
            _ => format!("use `proj_size` from 1 to {}, or leave it out", hidden.saturating_sub(1)),
        };
        let text = format!("has proj_size = {size}, which is not below its `hidden` of {hidden}; {instead}");
        Mistake::of("proj_size", text)
    }
}
