use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::Mask;
use crate::shape::product;

/// `Dropout3d(p = 0.5, inplace)`: sets whole channels to 0 with probability `p` in training and scales the others by `1 / (1 - p)`.
///
/// * Options: `p = 0.5`; `inplace`.
/// * Input and output `[C, D, H, W]`. In inference, and inside `eval(..)`, it does nothing and costs nothing.
/// * Parameters: none.
/// * Backward keeps nothing: the dropped channels are drawn again from the seed, the step and the layer.
///
/// PyTorch: `torch.nn.Dropout3d(p, inplace)`.
#[derive(Clone, Debug)]
pub struct Dropout3d {
    p: f64,
    inplace: bool,
}

impl Layer for Dropout3d {
    const NAME: &'static str = "Dropout3d";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> Dropout3d {
        Dropout3d { p: from.trailing("p").probability(0.5), inplace: from.option("inplace").flag(false) }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [_, depth, height, width] = x[0].volume()?;
        b.in_place(self.inplace);
        b.op(Mask { shape: x[0].shape, p: self.p, shared: product(&[depth, height, width]), site: 0 }, x)
    }
}
