use super::permute::permuted;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::shape::Shape;
use alloc::format;
use alloc::vec;

/// `PixelShuffle(upscale_factor)`: moves channels to rows and columns, as at the end of networks for super-resolution.
///
/// * Input `[C * r * r, H, W]`, output `[C, H * r, W * r]` with `r = upscale_factor`: element `(c, h * r + i, w * r + j)` is
///   `(c * r * r + i * r + j, h, w)` of the input.
/// * Parameters: none.
/// * Backward keeps nothing.
///
/// PyTorch: `torch.nn.PixelShuffle(upscale_factor)`.
#[derive(Clone, Debug)]
pub struct PixelShuffle {
    factor: u64,
}

impl Layer for PixelShuffle {
    const NAME: &'static str = "PixelShuffle";

    fn read(from: &mut Arguments<'_>) -> PixelShuffle {
        PixelShuffle { factor: from.required("upscale_factor").positive() }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [channels, height, width] = x[0].feature_map()?;
        let r = self.factor;
        let square = r.checked_mul(r).filter(|square| channels.is_multiple_of(*square));
        let Some(square) = square else {
            return Err(Mistake::of(
                "upscale_factor",
                format!(
                    "makes {r} x {r} pixels of {r} * {r} channels, but {channels} channels are no multiple of that; put \
                     `Conv2d(channels * {r} * {r}, 1)` before it"
                ),
            ));
        };
        let parts = b.reshaped(x[0], Shape::new(&[channels / square, r, r, height, width]));
        let moved = permuted(b, parts, vec![0, 3, 1, 4, 2])?;
        Ok(b.reshaped(moved, Shape::new(&[channels / square, height.saturating_mul(r), width.saturating_mul(r)])))
    }
}
