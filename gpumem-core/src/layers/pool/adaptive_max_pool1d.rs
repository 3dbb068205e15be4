use super::adaptive::maxima;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;

/// `AdaptiveMaxPool1d(output_size)`: the maximum over as many windows as the output has elements.
///
/// * Input `[C, L]`, output `[C, L']` with `L' = output_size`. Element `i` of the output is the maximum of elements
///   `floor(i * L / L')` up to, not including, `ceil((i + 1) * L / L')`.
/// * Parameters: none.
/// * Backward keeps the position of each maximum in its window, 1 byte an output element, or 4 where windows have more than 255
///   elements.
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
        b.on_row(x[0], |b, row, [channels, height, width]| maxima(b, row, channels, [height, width], [1, self.0]))
    }
}
