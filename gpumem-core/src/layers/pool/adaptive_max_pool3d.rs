use super::adaptive::maxima;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;

/// `AdaptiveMaxPool3d(output_size)`, a number or three `(depth, height, width)`: the maximum over as many windows as the output has
/// elements.
///
/// * Input `[C, D, H, W]`, output `[C, D', H', W']`. Plane `i` of the output is the maximum of planes `floor(i * D / D')` up to,
///   not including, `ceil((i + 1) * D / D')`; rows and columns likewise.
/// * Parameters: none.
/// * Backward keeps the position of each maximum in its window, 1 byte an output element, or 4 if windows have more than 255 elements.
///
/// PyTorch: `torch.nn.AdaptiveMaxPool3d(output_size)`.
#[derive(Clone, Debug)]
pub struct AdaptiveMaxPool3d([u64; 3]);

impl Layer for AdaptiveMaxPool3d {
    const NAME: &'static str = "AdaptiveMaxPool3d";

    fn read(from: &mut Arguments<'_>) -> AdaptiveMaxPool3d {
        AdaptiveMaxPool3d(from.required("output_size").positive_sizes())
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [channels, depth, height, width] = x[0].volume()?;
        maxima(b, x[0], channels, [depth, height, width], self.0)
    }
}
