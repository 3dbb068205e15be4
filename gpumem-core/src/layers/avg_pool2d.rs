use super::arguments::{Arguments, Mistake, Signature};
use super::max_pool2d::check_padding;
use super::rule::{Backward, Proof, Reads, Rule, Value};
use super::window::{Window, feature_map};
use crate::shape::Shape;
use crate::wire::record;

record! {
    /// Mean over windows: `AvgPool2d(kernel_size)` or `AvgPool2d(kernel_size, stride)`.
    ///
    /// * Options: `stride = kernel_size`, `padding = 0`, each a number or a pair `(height, width)`;
    ///   `ceil_mode = false`, `count_include_pad = true` (whether zeros of the padding count in the mean).
    /// * Input `[C, H, W]`, output `[C, H', W']` with `H' = floor((H + 2 * padding - kernel_size) / stride) + 1`, and
    ///   `W'` likewise; with `ceil_mode` the division rounds up.
    /// * Parameters: none.
    /// * Backward keeps nothing.
    ///
    /// PyTorch: `torch.nn.AvgPool2d(kernel_size, stride, padding, ceil_mode, count_include_pad)`.
    pub struct AvgPool2d {
        /// Channels.
        pub channels: u64,
        /// Height and width of the window.
        pub kernel_size: [u64; 2],
        /// Steps between windows.
        pub stride: [u64; 2],
        /// Zeros added on each side of the input.
        pub padding: [u64; 2],
        /// Whether zeros of the padding count in the mean.
        pub count_include_pad: bool,
        /// Height and width of the input.
        pub input: [u64; 2],
        /// Height and width of the output.
        pub output: [u64; 2],
    }
}

impl AvgPool2d {
    fn window(&self) -> Window {
        let AvgPool2d { kernel_size, stride, padding, .. } = *self;
        Window { kernel_size, stride, padding, dilation: [1, 1] }
    }
}

impl Rule for AvgPool2d {
    const NAME: &'static str = "AvgPool2d";
    const SIGNATURE: Signature = Signature {
        forms: &[&["kernel_size"], &["kernel_size", "stride"]],
        optional: &[],
        options: &["stride", "padding", "ceil_mode", "count_include_pad"],
    };

    fn resolve(arguments: &Arguments, inputs: &[Value]) -> Result<AvgPool2d, Mistake> {
        let given = arguments.matched(&Self::SIGNATURE)?;
        let [channels, height, width] = feature_map(inputs)?;
        let kernel_size = given.positive_pair("kernel_size", [1, 1])?;
        let stride = given.positive_pair("stride", kernel_size)?;
        let padding = given.pair("padding", [0, 0])?;
        check_padding(padding, kernel_size)?;
        let count_include_pad = given.flag("count_include_pad", true)?;
        let input = [height, width];
        let mut pool = AvgPool2d { channels, kernel_size, stride, padding, count_include_pad, input, output: input };
        pool.output = pool.window().positions(input, given.flag("ceil_mode", false)?)?;
        Ok(pool)
    }

    fn output(&self) -> Shape {
        Shape::new(&[self.channels, self.output[0], self.output[1]])
    }

    fn backward(&self) -> Backward {
        Backward::Input { reads: Reads::default(), in_place: false }
    }

    fn proof(&self) -> Option<Proof> {
        Some(Proof { name: "Pool2d", arguments: self.window().proof(self.input, self.output) })
    }
}

/// The type-level shape rule is that of `MaxPool2d`.
pub(super) mod typed {}
