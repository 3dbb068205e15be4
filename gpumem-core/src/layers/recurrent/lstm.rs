use super::Stack;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::Cell;
use alloc::format;

/// `Lstm(hidden, layers = 1, bias = true, dropout = 0.0, bidirectional = false, cudnn = false, proj_size = 0)`: long short-term memory,
/// over all time steps.
///
/// * Options: `layers = 1`, the number of stacked layers; `bias = true`; `dropout = 0.0`, the probability that an element between two
///   layers is set to 0 in training, without effect on a single layer; `bidirectional = false`: if true, a second direction runs from the
///   last step to the first; `cudnn = false`: if true, a training step has the memory that cuDNN needs for the layer, so that cuDNN
///   computes it if it is installed, see below; `proj_size = 0`, the number of elements, fewer than `hidden`, that the output of each step
///   is projected to before the next step and the next layer read it. 0 is no projection.
/// * Input `[T, D]`, output `[T, hidden]`, or `[T, 2 * hidden]` with both directions. States are 0 before the first step. With `i`, `f` and
///   `o` the sigmoids of `W_ih x + b_ih + W_hh h + b_hh`, and `g` its tanh: `c = f * c + i * g`, `h = o * tanh(c)`. With `proj_size`,
///   `h = W_hr (o * tanh(c))`, and the output has `proj_size` in place of `hidden`.
/// * Parameters, of each layer `k` and, with the suffix `_reverse`, of its reverse direction: `weight_ih_lk` `[4 * hidden, D]`,
///   `weight_hh_lk` `[4 * hidden, hidden]` and, with `bias`, `bias_ih_lk` and `bias_hh_lk` `[4 * hidden]`, all uniform within
///   `1 / sqrt(hidden)`; gates in the order i, f, g, o. D is `hidden`, or twice that, from the second layer on. With `proj_size`, it
///   replaces `hidden` in D and in the second dimension of `weight_hh_lk`, and `weight_hr_lk` `[proj_size, hidden]`, drawn like the others,
///   follows them.
/// * With `cache` in `INFER` the state of the last time step is kept between calls, and the next steps continue from it; not with
///   `bidirectional`.
/// * Inside `lengths` each direction reads the first `n` steps of a sample, the reverse one beginning at step `n - 1`. The output after
///   these steps is 0: `pad_packed_sequence` of a sequence packed with `enforce_sorted=False`. It costs a copy of the input and, with
///   `bidirectional`, one of each layer's input and of its output.
/// * Backward keeps for each layer its input, the four gates and its output: `5 * hidden` numbers a step in addition to the input, or
///   `4 * hidden + proj_size`. The cell's state is recomputed, for one layer at a time; it takes `hidden` numbers a step. With `proj_size`,
///   the gradients of the steps' outputs take memory as well.
///
/// With `cudnn = true` backward keeps 5 numbers a unit and step in place of the gates, or with `proj_size` 6 and the projected ones. Both
/// passes need scratch memory of 6 and more numbers a unit and step and some MiB, by the rule of
/// [`WholeRecurrence`](crate::program::ops::WholeRecurrence). If cuDNN is not installed, and on the CPU, the kernels of `cudnn = false` run
/// in that memory.
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
            // Either no projection was meant, or a smaller one.
            stack.projected = b.any([None, Some(1).filter(|&one| one < stack.hidden)]);
        }
        stack.build(b, x[0], Cell::Lstm)
    }
}

impl Lstm {
    /// Returns the mistake of a projection that is not smaller than the hidden units.
    fn no_projection(size: u64, hidden: u64) -> Mistake {
        let instead = match hidden {
            1 => "leave it out".into(),
            _ => format!("use `proj_size` from 1 to {}, or leave it out", hidden.saturating_sub(1)),
        };
        let text = format!("has proj_size = {size}, which is not below its `hidden` of {hidden}; {instead}");
        Mistake::of("proj_size", text)
    }
}
