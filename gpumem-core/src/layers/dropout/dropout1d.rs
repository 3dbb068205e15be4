use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::Mask;

/// `Dropout1d(p = 0.5, inplace)`: sets whole channels to 0 with probability `p` in training and scales the others by `1 / (1 - p)`.
///
/// * Options: `p = 0.5`; `inplace`.
/// * Input and output `[C, L]`. In inference, and inside `eval(..)`, it does nothing and costs nothing.
/// * Parameters: none.
/// * Backward keeps nothing: the dropped channels are drawn again from the seed, the step and the layer.
///
/// PyTorch: `torch.nn.Dropout1d(p, inplace)`.
#[derive(Clone, Debug)]
pub struct Dropout1d {
    p: f64,
    inplace: bool,
}

impl Layer for Dropout1d {
    const NAME: &'static str = "Dropout1d";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> Dropout1d {
        Dropout1d { p: from.trailing("p").probability(0.5), inplace: from.option("inplace").flag(false) }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [.., length] = x[0].signal()?;
        b.in_place(self.inplace);
        b.op(Mask { shape: x[0].shape, p: self.p, shared: length, site: 0 }, x)
    }
}
