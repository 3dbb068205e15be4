use crate::graph::Elements;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::Standardize;
use crate::shape::Shape;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

/// `Normalize(mean, std)`: subtracts from each channel its `mean`, and divides it by its `std`:
/// `Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))`. One number stands for all channels.
///
/// * Options: `mean = 0`, `std = 1`: `Normalize` alone turns bytes into numbers from 0 to 1.
/// * Input a feature map or, from `Images<u8, C, H, W>`, bytes `[C, H, W]`, whose range 0 to 255 becomes 0 to 1; output numbers
///   `[C, H, W]`.
/// * No parameters.
/// * Backward keeps nothing. Bytes have no gradient.
///
/// PyTorch: `torchvision.transforms.Normalize(mean, std)`, of bytes after `torchvision.transforms.ToTensor()`.
#[derive(Clone, Debug)]
pub struct Normalize {
    mean: Vec<f64>,
    std: Vec<f64>,
}

/// Returns `numbers` if there is one for each channel, or one for all. Otherwise reports a mistake, and returns `default`.
fn of_channels(b: &mut Builder<'_>, name: &'static str, numbers: &[f64], shape: Shape, default: f64) -> Vec<f64> {
    let channels = shape.dims().first().copied().unwrap_or(1);
    let count = numbers.len();
    if count == 1 || count as u64 == channels {
        return numbers.to_vec();
    }
    let text = format!(
        "has {count} numbers in `{name}`, but {shape} has {channels} channels; write as many, or one for all of them"
    );
    b.report(Mistake::of(name, text));
    vec![default]
}

impl Layer for Normalize {
    const NAME: &'static str = "Normalize";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> Normalize {
        Normalize { mean: from.trailing("mean").numbers(0.0), std: from.trailing("std").numbers_above_0(1.0) }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        x[0].any_map()?;
        let shape = x[0].shape;
        let mean = of_channels(b, "mean", &self.mean, shape, 0.0);
        let std = of_channels(b, "std", &self.std, shape, 1.0);
        b.op(Standardize { bytes: x[0].elements == Elements::Bytes, shape, mean, std }, x)
    }
}
