use super::permute::permuted;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::shape::Shape;
use alloc::format;
use alloc::vec;

/// `PixelUnshuffle(downscale_factor)`: the inverse of [`PixelShuffle`](super::PixelShuffle): moves pixels to channels.
///
/// * Input `[C, H * r, W * r]`, output `[C * r * r, H, W]` with `r = downscale_factor`.
/// * Parameters: none.
/// * Backward keeps nothing.
///
/// PyTorch: `torch.nn.PixelUnshuffle(downscale_factor)`.
#[derive(Clone, Debug)]
pub struct PixelUnshuffle {
    factor: u64,
}

impl Layer for PixelUnshuffle {
    const NAME: &'static str = "PixelUnshuffle";

    fn read(from: &mut Arguments<'_>) -> PixelUnshuffle {
        PixelUnshuffle { factor: from.required("downscale_factor").positive() }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [channels, height, width] = x[0].feature_map()?;
        let r = self.factor;
        if !height.is_multiple_of(r) || !width.is_multiple_of(r) {
            return Err(Mistake::of(
                "downscale_factor",
                format!("takes {height} x {width} apart by {r}, which does not divide both; pad or cut it first"),
            ));
        }
        let (rows, columns) = (height / r, width / r);
        let parts = b.reshaped(x[0], Shape::new(&[channels, rows, r, columns, r]));
        let moved = permuted(b, parts, vec![0, 2, 4, 1, 3])?;
        Ok(b.reshaped(moved, Shape::new(&[channels.saturating_mul(r).saturating_mul(r), rows, columns])))
    }
}
