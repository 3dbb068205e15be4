use super::arguments::{Arguments, Mistake, Signature};
use super::rule::{Backward, Proof, Reads, Rule, Saved, Value};
use super::window::{Window, feature_map};
use crate::role::Role;
use crate::shape::Shape;
use crate::wire::record;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Maximum over windows: `MaxPool2d(kernel_size)` or `MaxPool2d(kernel_size, stride)`.
    ///
    /// * Options: `stride = kernel_size`, `padding = 0`, `dilation = 1`, each a number or a pair `(height, width)`;
    ///   `ceil_mode = false`.
    /// * Input `[C, H, W]`, output `[C, H', W']` with
    ///   `H' = floor((H + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1`, and `W'` likewise; with
    ///   `ceil_mode` the division rounds up.
    /// * Parameters: none.
    /// * Backward keeps the position of each maximum, 4 bytes an output element.
    ///
    /// PyTorch: `torch.nn.MaxPool2d(kernel_size, stride, padding, dilation, ceil_mode=ceil_mode)`.
    pub struct MaxPool2d {
        /// Channels.
        pub channels: u64,
        /// Height and width of the window.
        pub kernel_size: [u64; 2],
        /// Steps between windows.
        pub stride: [u64; 2],
        /// Minus infinities added on each side of the input.
        pub padding: [u64; 2],
        /// Steps between the elements of the window.
        pub dilation: [u64; 2],
        /// Height and width of the input.
        pub input: [u64; 2],
        /// Height and width of the output.
        pub output: [u64; 2],
    }
}

/// A window of nothing but padding would have no maximum and no mean to speak of.
pub(super) fn check_padding(padding: [u64; 2], kernel_size: [u64; 2]) -> Result<(), Mistake> {
    for axis in 0..2 {
        if padding[axis] > kernel_size[axis] / 2 {
            return Err(Mistake::new(format!(
                "has padding {}, more than half its kernel size {}; use at most {}",
                padding[axis],
                kernel_size[axis],
                kernel_size[axis] / 2
            )));
        }
    }
    Ok(())
}

impl MaxPool2d {
    fn window(&self) -> Window {
        let MaxPool2d { kernel_size, stride, padding, dilation, .. } = *self;
        Window { kernel_size, stride, padding, dilation }
    }
}

impl Rule for MaxPool2d {
    const NAME: &'static str = "MaxPool2d";
    const SIGNATURE: Signature = Signature {
        forms: &[&["kernel_size"], &["kernel_size", "stride"]],
        optional: &[],
        options: &["stride", "padding", "dilation", "ceil_mode"],
    };

    fn resolve(arguments: &Arguments, inputs: &[Value]) -> Result<MaxPool2d, Mistake> {
        let given = arguments.matched(&Self::SIGNATURE)?;
        let [channels, height, width] = feature_map(inputs)?;
        let kernel_size = given.positive_pair("kernel_size", [1, 1])?;
        let stride = given.positive_pair("stride", kernel_size)?;
        let padding = given.pair("padding", [0, 0])?;
        let dilation = given.positive_pair("dilation", [1, 1])?;
        check_padding(padding, kernel_size)?;
        let input = [height, width];
        let window = Window { kernel_size, stride, padding, dilation };
        let output = window.positions(input, given.flag("ceil_mode", false)?)?;
        Ok(MaxPool2d { channels, kernel_size, stride, padding, dilation, input, output })
    }

    fn output(&self) -> Shape {
        Shape::new(&[self.channels, self.output[0], self.output[1]])
    }

    fn saved(&self) -> Vec<Saved> {
        vec![Saved { name: "indices", shape: self.output(), batched: true, role: Role::Index }]
    }

    fn backward(&self) -> Backward {
        Backward::Input { reads: Reads { saved: true, ..Reads::default() }, in_place: false }
    }

    fn proof(&self) -> Option<Proof> {
        Some(Proof { name: "Pool2d", arguments: self.window().proof(self.input, self.output) })
    }
}

/// The type-level shape rule.
pub(super) mod typed {
    use crate::typed::{ShapeRule, Window};
    use core::marker::PhantomData;
    use typenum::Unsigned;

    /// Kernel, stride, padding, dilation and overhang of the height, then of the width.
    #[derive(Debug)]
    #[allow(clippy::type_complexity)]
    pub struct Pool2d<KH, SH, PH, DH, EH, KW, SW, PW, DW, EW>(PhantomData<(KH, SH, PH, DH, EH, KW, SW, PW, DW, EW)>);

    impl<KH, SH, PH, DH, EH, KW, SW, PW, DW, EW, C, H, W> ShapeRule<(C, H, W)>
        for Pool2d<KH, SH, PH, DH, EH, KW, SW, PW, DW, EW>
    where
        C: Unsigned,
        H: Window<KH, SH, PH, DH, EH>,
        W: Window<KW, SW, PW, DW, EW>,
    {
        type Out = (C, H::Out, W::Out);
    }
}
