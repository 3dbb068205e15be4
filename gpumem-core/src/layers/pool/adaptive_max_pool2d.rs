use super::adaptive::maxima;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;

/// `AdaptiveMaxPool2d(output_size)`, a number or a pair `(height, width)`: the maximum over as many windows as the output has
/// elements.
///
/// * Input `[C, H, W]`, output `[C, H', W']`. Row `i` of the output is the maximum of rows `floor(i * H / H')` up to,
///   not including, `ceil((i + 1) * H / H')`; columns likewise.
/// * Parameters: none.
/// * Backward keeps the position of each maximum in its window, 1 byte an output element, or 4 if windows have more than 255 elements.
///
/// PyTorch: `torch.nn.AdaptiveMaxPool2d(output_size)`.
#[derive(Clone, Debug)]
pub struct AdaptiveMaxPool2d([u64; 2]);

impl Layer for AdaptiveMaxPool2d {
    const NAME: &'static str = "AdaptiveMaxPool2d";

    fn read(from: &mut Arguments<'_>) -> AdaptiveMaxPool2d {
        AdaptiveMaxPool2d(from.required("output_size").positive_pair())
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [channels, height, width] = x[0].feature_map()?;
        maxima(b, x[0], channels, [height, width], self.0)
    }
}
