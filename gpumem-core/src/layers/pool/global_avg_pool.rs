use super::adaptive::means;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::shape::Shape;
use alloc::format;

/// `GlobalAvgPool`: the mean over height and width, and of a volume over depth as well.
///
/// * Input `[C, H, W]` or `[C, D, H, W]`, output `[C]`.
/// * Parameters: none.
/// * Backward keeps nothing.
///
/// PyTorch: `x.mean((2, 3))`, of a volume `x.mean((2, 3, 4))`.
#[derive(Clone, Debug)]
pub struct GlobalAvgPool;

impl Layer for GlobalAvgPool {
    const NAME: &'static str = "GlobalAvgPool";

    fn read(_: &mut Arguments<'_>) -> GlobalAvgPool {
        GlobalAvgPool
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let shape = x[0].numbers()?;
        let (mean, channels) = match *shape.dims() {
            [channels, depth, height, width] => (means(b, x[0], channels, [depth, height, width], [1; 3])?, channels),
            [_, _] => return Err(two_axes(shape)),
            _ => {
                let [channels, height, width] = x[0].feature_map()?;
                (means(b, x[0], channels, [height, width], [1; 2])?, channels)
            }
        };
        Ok(b.view(mean, Shape::new(&[channels])))
    }
}

/// Returns the mistake of a value with two axes: it is unknown which of them is meant.
fn two_axes(shape: Shape) -> Mistake {
    Mistake::new(format!(
        "works on maps and volumes, but the previous layer produces {shape}; use `Mean(2)` for each channel of a signal [C, L], or \
         `Mean(1)` for the steps of a sequence [T, D]"
    ))
}
