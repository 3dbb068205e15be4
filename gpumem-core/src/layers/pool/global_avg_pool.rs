use super::adaptive::means;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::shape::Shape;

/// `GlobalAvgPool`: the mean over height and width.
///
/// * Input `[C, H, W]`, output `[C]`.
/// * Parameters: none.
/// * Backward keeps nothing.
///
/// PyTorch: `x.mean((2, 3))`.
#[derive(Clone, Debug)]
pub struct GlobalAvgPool;

impl Layer for GlobalAvgPool {
    const NAME: &'static str = "GlobalAvgPool";

    fn read(_: &mut Arguments<'_>) -> GlobalAvgPool {
        GlobalAvgPool
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [channels, height, width] = x[0].feature_map()?;
        let mean = means(b, x[0], channels, [height, width], [1, 1])?;
        Ok(b.view(mean, Shape::new(&[channels])))
    }
}
