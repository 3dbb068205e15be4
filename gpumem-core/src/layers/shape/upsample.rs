use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::Resize;

/// `Upsample(scale_factor, mode = "nearest")`, a number or a pair `(height, width)`: repeats rows and columns.
///
/// * Options: `mode = "nearest"`.
/// * Input `[C, H, W]`, output `[C, H * scale_factor, W * scale_factor]`.
/// * Parameters: none.
/// * Backward keeps nothing.
///
/// PyTorch: `torch.nn.Upsample(scale_factor=scale_factor, mode="nearest")`.
#[derive(Clone, Debug)]
pub struct Upsample {
    scale_factor: [u64; 2],
}

impl Layer for Upsample {
    const NAME: &'static str = "Upsample";

    fn read(from: &mut Arguments<'_>) -> Upsample {
        let scale_factor = from.required("scale_factor").positive_pair();
        from.option("mode").choice(&["nearest"]);
        Upsample { scale_factor }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [channels, height, width] = x[0].feature_map()?;
        b.op(Resize { channels, scale_factor: self.scale_factor, input: [height, width] }, x)
    }
}
