use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::{AveragePool, Windows};

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
pub struct AdaptiveAvgPool2d {
    pub(super) output_size: [u64; 2],
}

impl AdaptiveAvgPool2d {
    /// Maps of this height and width.
    pub(super) fn to(output_size: [u64; 2]) -> AdaptiveAvgPool2d {
        AdaptiveAvgPool2d { output_size }
    }
}

impl Layer for AdaptiveAvgPool2d {
    const NAME: &'static str = "AdaptiveAvgPool2d";

    fn read(from: &mut Arguments<'_>) -> AdaptiveAvgPool2d {
        AdaptiveAvgPool2d { output_size: from.required("output_size").positive_pair() }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let map = x[0].feature_map()?;
        self.on(b, x[0], map)
    }
}

impl AdaptiveAvgPool2d {
    /// The pooling of a map of this size, which may be the one row of a signal.
    pub(super) fn on(&self, b: &mut Builder<'_>, x: Value, map: [u64; 3]) -> Result<Value, Mistake> {
        let [channels, height, width] = map;
        let (input, output) = ([height, width], self.output_size);
        b.op(AveragePool { channels, windows: Windows::Adaptive, input, output }, &[x])
    }
}
