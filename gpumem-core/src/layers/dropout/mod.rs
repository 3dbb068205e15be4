//! Layers that set random elements to 0 in training, as `Dropout(0.5)` and `DropPath(0.1)`.

mod drop_path;
mod dropout1d;
mod dropout2d;
mod dropout3d;

pub use drop_path::DropPath;
pub use dropout1d::Dropout1d;
pub use dropout2d::Dropout2d;
pub use dropout3d::Dropout3d;

use super::Entry;
use super::Layer;
use super::arguments::Arguments;
use super::builder::{Builder, Value};
use super::mistake::Mistake;
use crate::program::ops::Mask;

/// The layers of this family.
pub(super) const LAYERS: &[Entry] = &[
    Entry::of::<Dropout>(),
    Entry::of::<Dropout2d>(),
    Entry::of::<Dropout1d>(),
    Entry::of::<DropPath>(),
    Entry::of::<Dropout3d>(),
];

/// `Dropout(p = 0.5, inplace)`: sets elements to 0 with probability `p` in training and scales the others by `1 / (1 - p)`.
///
/// * Options: `p = 0.5`; `inplace`.
/// * Input and output of any one shape. In inference, and inside `eval(..)`, it does nothing and costs nothing.
/// * Parameters: none.
/// * Backward keeps nothing: the dropped elements are drawn again from the seed, the step and the layer.
///
/// PyTorch: `torch.nn.Dropout(p, inplace)`.
#[derive(Clone, Debug)]
pub struct Dropout {
    p: f64,
    inplace: bool,
}

impl Layer for Dropout {
    const NAME: &'static str = "Dropout";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> Dropout {
        Dropout { p: from.trailing("p").probability(0.5), inplace: from.option("inplace").flag(false) }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let shape = x[0].numbers()?;
        b.in_place(self.inplace);
        b.op(Mask { shape, p: self.p, shared: 1, site: 0 }, x)
    }
}
