use super::adaptive::maxima;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::layers::shape::reduced;
use crate::program::ops::Reduction;

/// `AdaptiveMaxPool1d(output_size)`: the maximum over as many windows as the output has elements.
///
/// * Input `[C, L]`, output `[C, L']` with `L' = output_size`. Element `i` of the output is the maximum of elements
///   `floor(i * L / L')` up to, not including, `ceil((i + 1) * L / L')`.
/// * Inside `lengths`, with one window over all steps, only the first `n` steps of each sample count; if `n` is 0 the result is 0.
/// * Parameters: none.
/// * Backward keeps the position of each maximum in its window, 1 byte an output element, or 4 if windows have more than 255 elements.
///
/// PyTorch: `torch.nn.AdaptiveMaxPool1d(output_size)`.
#[derive(Clone, Debug)]
pub struct AdaptiveMaxPool1d(u64);

impl Layer for AdaptiveMaxPool1d {
    const NAME: &'static str = "AdaptiveMaxPool1d";

    fn read(from: &mut Arguments<'_>) -> AdaptiveMaxPool1d {
        AdaptiveMaxPool1d(from.required("output_size").positive())
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        // A single window covers only the steps that count.
        if self.0 == 1 && b.lengths_of(&x[0]).is_some() {
            x[0].signal()?;
            return reduced(b, x[0], Reduction::Max, &[-1], true);
        }
        b.on_row(x[0], |b, row, [channels, height, width]| maxima(b, row, channels, [height, width], [1, self.0]))
    }
}
