use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::{MaxPool, Window};

/// `AdaptiveMaxPool2d(output_size)`, a number or a pair `(height, width)`: the maximum over as many windows as the output has
/// elements.
///
/// * Input `[C, H, W]`, output `[C, H', W']`. Row `i` of the output is the maximum of rows `floor(i * H / H')` up to,
///   not including, `ceil((i + 1) * H / H')`; columns likewise.
/// * Parameters: none.
/// * Backward keeps the position of each maximum in its window, 1 byte an output element, or 4 where windows have more than 255
///   elements.
///
/// PyTorch: `torch.nn.AdaptiveMaxPool2d(output_size)`.
#[derive(Clone, Debug)]
pub struct AdaptiveMaxPool2d {
    output_size: [u64; 2],
}

impl AdaptiveMaxPool2d {
    /// Maps of this height and width.
    pub(super) fn to(output_size: [u64; 2]) -> AdaptiveMaxPool2d {
        AdaptiveMaxPool2d { output_size }
    }
}

impl Layer for AdaptiveMaxPool2d {
    const NAME: &'static str = "AdaptiveMaxPool2d";

    fn read(from: &mut Arguments<'_>) -> AdaptiveMaxPool2d {
        AdaptiveMaxPool2d { output_size: from.required("output_size").positive_pair() }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let map = x[0].feature_map()?;
        self.on(b, x[0], map)
    }
}

impl AdaptiveMaxPool2d {
    /// The pooling of a map of this size, which may be the one row of a signal.
    pub(super) fn on(&self, b: &mut Builder<'_>, x: Value, map: [u64; 3]) -> Result<Value, Mistake> {
        let [channels, height, width] = map;
        let (input, output) = ([height, width], self.output_size);
        let divides = [0, 1].map(|axis| input[axis].is_multiple_of(output[axis]));
        let largest = [0, 1].map(|axis: usize| {
            let length = input[axis].div_ceil(output[axis]);
            // Where it does not divide, a window may have a part of one element at either end.
            if divides[axis] { length } else { (length + 1).min(input[axis]) }
        });
        let window = Window { kernel_size: largest, stride: largest, padding: [0, 0], dilation: [1, 1] };
        b.op(MaxPool { channels, window, adaptive: divides != [true; 2], input, output }, &[x])
    }
}
