use super::adaptive::means;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;

/// `AdaptiveAvgPool3d(output_size)`, a number or three `(depth, height, width)`: the mean over as many windows as the output has
/// elements.
///
/// * Input `[C, D, H, W]`, output `[C, D', H', W']`. Plane `i` of the output is the mean of planes `floor(i * D / D')` up to,
///   not including, `ceil((i + 1) * D / D')`; rows and columns likewise.
/// * Parameters: none.
/// * Backward keeps nothing.
///
/// PyTorch: `torch.nn.AdaptiveAvgPool3d(output_size)`.
#[derive(Clone, Debug)]
pub struct AdaptiveAvgPool3d([u64; 3]);

impl Layer for AdaptiveAvgPool3d {
    const NAME: &'static str = "AdaptiveAvgPool3d";

    fn read(from: &mut Arguments<'_>) -> AdaptiveAvgPool3d {
        AdaptiveAvgPool3d(from.required("output_size").positive_sizes())
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [channels, depth, height, width] = x[0].volume()?;
        means(b, x[0], channels, [depth, height, width], self.0)
    }
}
