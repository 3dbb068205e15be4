use super::adaptive::means;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;

/// `AdaptiveAvgPool1d(output_size)`: the mean over as many windows as the output has elements.
///
/// * Input `[C, L]`, output `[C, L']` with `L' = output_size`. Element `i` of the output is the mean of elements
///   `floor(i * L / L')` up to, not including, `ceil((i + 1) * L / L')`.
/// * Parameters: none.
/// * Backward keeps nothing.
///
/// PyTorch: `torch.nn.AdaptiveAvgPool1d(output_size)`.
#[derive(Clone, Debug)]
pub struct AdaptiveAvgPool1d(u64);

impl Layer for AdaptiveAvgPool1d {
    const NAME: &'static str = "AdaptiveAvgPool1d";

    fn read(from: &mut Arguments<'_>) -> AdaptiveAvgPool1d {
        AdaptiveAvgPool1d(from.required("output_size").positive())
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        b.on_row(x[0], |b, row, [channels, height, width]| means(b, row, channels, [height, width], [1, self.0]))
    }
}
