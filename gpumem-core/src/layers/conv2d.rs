use super::arguments::{Arguments, Mistake, Signature};
use super::rule::{Backward, Parameter, Pass, Proof, Reads, Rule, Value, Workspace};
use crate::role::Role;
use super::window::{Window, feature_map};
use crate::shape::{Shape, product};
use crate::wire::record;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// 2-D convolution: `Conv2d(out_channels, kernel_size)` or `Conv2d(in_channels, out_channels, kernel_size)`.
    ///
    /// * Options: `stride = 1`, `padding = 0`, `dilation = 1`, each a number or a pair `(height, width)`; `groups = 1`,
    ///   `bias = true`.
    /// * Input `[in_channels, H, W]`, output `[out_channels, H', W']` with
    ///   `H' = floor((H + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1`, and `W'` likewise.
    /// * Parameters: `weight` `[out_channels, in_channels / groups, kernel_height, kernel_width]` and, with `bias`,
    ///   `bias` `[out_channels]`, both uniform within `1 / sqrt(fan_in)`,
    ///   `fan_in = in_channels / groups * kernel_height * kernel_width`.
    /// * Backward keeps the input.
    ///
    /// PyTorch: `torch.nn.Conv2d(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)`.
    pub struct Conv2d {
        /// Channels of the input.
        pub in_channels: u64,
        /// Channels of the output.
        pub out_channels: u64,
        /// Height and width of the kernel.
        pub kernel_size: [u64; 2],
        /// Steps between windows.
        pub stride: [u64; 2],
        /// Zeros added on each side of the input.
        pub padding: [u64; 2],
        /// Steps between the elements of the kernel.
        pub dilation: [u64; 2],
        /// Parts that the channels are split into; each output part sees its own input part only.
        pub groups: u64,
        /// Whether a number is added to each output channel.
        pub bias: bool,
        /// Height and width of the input.
        pub input: [u64; 2],
        /// Height and width of the output.
        pub output: [u64; 2],
    }
}

/// `in_channels` if given, checked against what arrives.
pub(super) fn check_in_channels(given: Option<u64>, channels: u64, shape: Shape) -> Result<(), Mistake> {
    match given {
        Some(given) if given != channels => Err(Mistake::new(format!(
            "expects {given} input channels, but the previous layer produces {shape}, which has {channels}"
        ))),
        _ => Ok(()),
    }
}

/// `groups`, checked to divide both channel counts.
pub(super) fn check_groups(groups: u64, in_channels: u64, out_channels: u64) -> Result<(), Mistake> {
    for (what, channels) in [("input", in_channels), ("output", out_channels)] {
        if !channels.is_multiple_of(groups) {
            return Err(Mistake::new(format!(
                "has groups = {groups}, which does not divide its {channels} {what} channels; \
                 use a number of groups that divides both {in_channels} and {out_channels}"
            )));
        }
    }
    Ok(())
}

/// What a convolution can use. Forward and for the gradient of the input: a transformed copy of the weight, with up to twice
/// its elements. For the gradient of the weight: partial sums, and input and gradient in another layout.
pub(super) fn convolution_workspace(pass: Pass, weight: Shape, images: u64, output: Shape) -> Option<Workspace> {
    let &[_, _, height, width] = weight.dims() else { return None };
    let (elements, batched) = match pass {
        // With a kernel of one pixel there is nothing to transform.
        Pass::Forward | Pass::Inference | Pass::BackwardInput if [height, width] == [1, 1] => return None,
        Pass::Forward | Pass::Inference | Pass::BackwardInput => (weight.elements()?.checked_mul(2)?, false),
        Pass::BackwardParameters | Pass::Backward => (images.checked_add(output.elements()?)?, true),
    };
    Some(Workspace { role: Role::ConvolutionWorkspace, shape: Shape::new(&[elements]), batched })
}

impl Rule for Conv2d {
    const NAME: &'static str = "Conv2d";
    const SIGNATURE: Signature = Signature {
        forms: &[&["out_channels", "kernel_size"], &["in_channels", "out_channels", "kernel_size"]],
        optional: &[],
        options: &["stride", "padding", "dilation", "groups", "bias"],
    };

    fn resolve(arguments: &Arguments, inputs: &[Value]) -> Result<Conv2d, Mistake> {
        let given = arguments.matched(&Self::SIGNATURE)?;
        let [in_channels, height, width] = feature_map(inputs)?;
        check_in_channels(given.integer("in_channels")?, in_channels, inputs[0].shape)?;
        let out_channels = given.positive("out_channels")?;
        let window = Window {
            kernel_size: given.positive_pair("kernel_size", [1, 1])?,
            stride: given.positive_pair("stride", [1, 1])?,
            padding: given.pair("padding", [0, 0])?,
            dilation: given.positive_pair("dilation", [1, 1])?,
        };
        let groups = if given.has("groups") { given.positive("groups")? } else { 1 };
        check_groups(groups, in_channels, out_channels)?;
        let Window { kernel_size, stride, padding, dilation } = window;
        let bias = given.flag("bias", true)?;
        let input = [height, width];
        let output = window.positions(input, false)?;
        Ok(Conv2d { in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, input, output })
    }

    fn output(&self) -> Shape {
        Shape::new(&[self.out_channels, self.output[0], self.output[1]])
    }

    fn parameters(&self) -> Vec<Parameter> {
        let [kernel_height, kernel_width] = self.kernel_size;
        let shape = Shape::new(&[self.out_channels, self.in_channels / self.groups, kernel_height, kernel_width]);
        let fan_in = product(&[self.in_channels / self.groups, kernel_height, kernel_width]);
        super::linear::weight_and_bias(shape, fan_in, self.bias.then_some(self.out_channels))
    }

    fn backward(&self) -> Backward {
        Backward::Split {
            input: Reads { parameters: true, ..Reads::default() },
            parameters: Reads { input: true, ..Reads::default() },
        }
    }

    fn workspace(&self, pass: Pass) -> Option<Workspace> {
        let weight = self.parameters()[0].shape;
        let images = product(&[self.in_channels, self.input[0], self.input[1]]);
        convolution_workspace(pass, weight, images, self.output())
    }

    fn macs(&self) -> u64 {
        let [kernel_height, kernel_width] = self.kernel_size;
        let each = product(&[self.in_channels / self.groups, kernel_height, kernel_width]);
        product(&[self.out_channels, self.output[0], self.output[1], each])
    }

    fn proof(&self) -> Option<Proof> {
        let mut arguments = vec![self.out_channels];
        for axis in 0..2 {
            arguments.extend([self.kernel_size[axis], self.stride[axis], self.padding[axis], self.dilation[axis]]);
        }
        Some(Proof { name: "Conv2d", arguments })
    }
}

/// The type-level shape rule.
pub(super) mod typed {
    use crate::typed::{ShapeRule, Window};
    use core::marker::PhantomData;
    use typenum::{U0, Unsigned};

    /// Output channels, then kernel, stride, padding and dilation of the height, then of the width.
    #[derive(Debug)]
    #[allow(clippy::type_complexity)]
    pub struct Conv2d<O, KH, SH, PH, DH, KW, SW, PW, DW>(PhantomData<(O, KH, SH, PH, DH, KW, SW, PW, DW)>);

    impl<O, KH, SH, PH, DH, KW, SW, PW, DW, C, H, W> ShapeRule<(C, H, W)> for Conv2d<O, KH, SH, PH, DH, KW, SW, PW, DW>
    where
        O: Unsigned,
        C: Unsigned,
        H: Window<KH, SH, PH, DH, U0>,
        W: Window<KW, SW, PW, DW, U0>,
    {
        type Out = (O, H::Out, W::Out);
    }
}
