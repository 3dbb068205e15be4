use super::adaptive::means;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;

/// `AdaptiveAvgPool2d(output_size)`, a number or a pair `(height, width)`: the mean over as many windows as the output has
/// elements.
///
/// * Input `[C, H, W]`, output `[C, H', W']`. Row `i` of the output is the mean of rows `floor(i * H / H')` up to,
///   not including, `ceil((i + 1) * H / H')`; columns likewise.
/// * Parameters: none.
/// * Backward keeps nothing.
///
/// PyTorch: `torch.nn.AdaptiveAvgPool2d(output_size)`.
#[derive(Clone, Debug)]
pub struct AdaptiveAvgPool2d([u64; 2]);

impl Layer for AdaptiveAvgPool2d {
    const NAME: &'static str = "AdaptiveAvgPool2d";

    fn read(from: &mut Arguments<'_>) -> AdaptiveAvgPool2d {
        AdaptiveAvgPool2d(from.required("output_size").positive_pair())
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [channels, height, width] = x[0].feature_map()?;
        means(b, x[0], channels, [height, width], self.0)
    }
}
