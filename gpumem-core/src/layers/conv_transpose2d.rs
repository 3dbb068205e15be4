use super::arguments::{Arguments, Mistake, Signature};
use super::conv2d::{check_groups, check_in_channels, convolution_workspace};
use super::rule::{Backward, Parameter, Pass, Proof, Reads, Rule, Value, Workspace};
use super::window::feature_map;
use crate::shape::{Shape, product};
use crate::wire::record;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// Transposed 2-D convolution: `ConvTranspose2d(out_channels, kernel_size)` or
    /// `ConvTranspose2d(in_channels, out_channels, kernel_size)`.
    ///
    /// * Options: `stride = 1`, `padding = 0`, `output_padding = 0`, `dilation = 1`, each a number or a pair
    ///   `(height, width)`; `groups = 1`, `bias = true`.
    /// * Input `[in_channels, H, W]`, output `[out_channels, H', W']` with
    ///   `H' = (H - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + output_padding + 1`, and `W'` likewise.
    /// * Parameters: `weight` `[in_channels, out_channels / groups, kernel_height, kernel_width]` and, with `bias`,
    ///   `bias` `[out_channels]`, both uniform within `1 / sqrt(out_channels / groups * kernel_height * kernel_width)`.
    /// * Backward keeps the input.
    ///
    /// PyTorch: `torch.nn.ConvTranspose2d(in_channels, out_channels, kernel_size, stride, padding, output_padding,
    /// groups, bias, dilation)`.
    pub struct ConvTranspose2d {
        /// Channels of the input.
        pub in_channels: u64,
        /// Channels of the output.
        pub out_channels: u64,
        /// Height and width of the kernel.
        pub kernel_size: [u64; 2],
        /// Steps between windows in the output.
        pub stride: [u64; 2],
        /// Rows and columns cut from each side of the output.
        pub padding: [u64; 2],
        /// Steps between the elements of the kernel.
        pub dilation: [u64; 2],
        /// Parts that the channels are split into.
        pub groups: u64,
        /// Whether a number is added to each output channel.
        pub bias: bool,
        /// Height and width of the input.
        pub input: [u64; 2],
        /// Height and width of the output.
        pub output: [u64; 2],
    }
}

/// `(input - 1) * stride + dilation * (kernel_size - 1) + output_padding + 1 - 2 * padding`; `None` beyond `u64`, 0 if
/// the padding cuts everything away.
fn output_length(input: u64, kernel: u64, stride: u64, padding: u64, dilation: u64, extra: u64) -> Option<u64> {
    let spread = (input - 1).checked_mul(stride)?;
    let span = dilation.checked_mul(kernel - 1)?.checked_add(extra)?.checked_add(1)?;
    Some(spread.checked_add(span)?.saturating_sub(padding.checked_mul(2)?))
}

impl Rule for ConvTranspose2d {
    const NAME: &'static str = "ConvTranspose2d";
    const SIGNATURE: Signature = Signature {
        forms: &[&["out_channels", "kernel_size"], &["in_channels", "out_channels", "kernel_size"]],
        optional: &[],
        options: &["stride", "padding", "output_padding", "dilation", "groups", "bias"],
    };

    fn resolve(arguments: &Arguments, inputs: &[Value]) -> Result<ConvTranspose2d, Mistake> {
        let given = arguments.matched(&Self::SIGNATURE)?;
        let [in_channels, height, width] = feature_map(inputs)?;
        check_in_channels(given.integer("in_channels")?, in_channels, inputs[0].shape)?;
        let out_channels = given.positive("out_channels")?;
        let kernel_size = given.positive_pair("kernel_size", [1, 1])?;
        let stride = given.positive_pair("stride", [1, 1])?;
        let padding = given.pair("padding", [0, 0])?;
        let extra = given.pair("output_padding", [0, 0])?;
        let dilation = given.positive_pair("dilation", [1, 1])?;
        let groups = if given.has("groups") { given.positive("groups")? } else { 1 };
        check_groups(groups, in_channels, out_channels)?;
        let bias = given.flag("bias", true)?;
        let input = [height, width];
        let mut output = [0; 2];
        for axis in 0..2 {
            if extra[axis] >= stride[axis].max(dilation[axis]) {
                let message = "needs `output_padding` to be below its stride or its dilation";
                return Err(Mistake::at(given.place("output_padding"), message));
            }
            let length = output_length(
                input[axis],
                kernel_size[axis],
                stride[axis],
                padding[axis],
                dilation[axis],
                extra[axis],
            );
            output[axis] = match length {
                None => return Err(Mistake::new("has an output whose size exceeds 64-bit arithmetic")),
                Some(0) => {
                    let message = format!("has padding {} that leaves no output; use less padding", padding[axis]);
                    return Err(Mistake::at(given.place("padding"), message));
                }
                Some(length) => length,
            };
        }
        Ok(ConvTranspose2d {
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            input,
            output,
        })
    }

    fn output(&self) -> Shape {
        Shape::new(&[self.out_channels, self.output[0], self.output[1]])
    }

    fn parameters(&self) -> Vec<Parameter> {
        let [kernel_height, kernel_width] = self.kernel_size;
        let out = self.out_channels / self.groups;
        let shape = Shape::new(&[self.in_channels, out, kernel_height, kernel_width]);
        let fan_in = product(&[out, kernel_height, kernel_width]);
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
        let each = product(&[self.out_channels / self.groups, kernel_height, kernel_width]);
        product(&[self.in_channels, self.input[0], self.input[1], each])
    }

    fn proof(&self) -> Option<Proof> {
        let mut arguments = vec![self.out_channels];
        for axis in 0..2 {
            let span = self.dilation[axis] * (self.kernel_size[axis] - 1);
            let spread = (self.input[axis] - 1) * self.stride[axis] + span + 1;
            let extra = self.output[axis] + 2 * self.padding[axis] - spread;
            let [kernel, stride] = [self.kernel_size[axis], self.stride[axis]];
            arguments.extend([kernel, stride, self.padding[axis], self.dilation[axis], extra]);
        }
        Some(Proof { name: "ConvTranspose2d", arguments })
    }
}

/// The type-level shape rule.
pub(super) mod typed {
    use crate::typed::ShapeRule;
    use core::marker::PhantomData;
    use core::ops::{Add, Mul, Sub};
    use typenum::{Diff, Prod, Sum, U1, Unsigned};

    /// The length of one axis: `(self - 1) * S + D * (K - 1) + E + 1 - 2 * P`.
    pub trait Spread<K, S, P, D, E> {
        /// The length of the output.
        type Out: Unsigned;
    }

    type Grown<H, K, S, D> = Sum<Prod<Diff<H, U1>, S>, Prod<D, Diff<K, U1>>>;
    type Whole<H, K, S, D, E> = Sum<Sum<Grown<H, K, S, D>, E>, U1>;

    impl<H, K, S, P, D, E> Spread<K, S, P, D, E> for H
    where
        H: Sub<U1>,
        K: Sub<U1>,
        Diff<H, U1>: Mul<S>,
        D: Mul<Diff<K, U1>>,
        Prod<Diff<H, U1>, S>: Add<Prod<D, Diff<K, U1>>>,
        Grown<H, K, S, D>: Add<E>,
        Sum<Grown<H, K, S, D>, E>: Add<U1>,
        Whole<H, K, S, D, E>: Sub<P>,
        Diff<Whole<H, K, S, D, E>, P>: Sub<P>,
        Diff<Diff<Whole<H, K, S, D, E>, P>, P>: Unsigned,
    {
        type Out = Diff<Diff<Whole<H, K, S, D, E>, P>, P>;
    }

    /// Output channels, then kernel, stride, padding, dilation and output padding of the height, then of the width.
    #[derive(Debug)]
    #[allow(clippy::type_complexity)]
    pub struct ConvTranspose2d<O, KH, SH, PH, DH, EH, KW, SW, PW, DW, EW>(
        PhantomData<(O, KH, SH, PH, DH, EH, KW, SW, PW, DW, EW)>,
    );

    impl<O, KH, SH, PH, DH, EH, KW, SW, PW, DW, EW, C, H, W> ShapeRule<(C, H, W)>
        for ConvTranspose2d<O, KH, SH, PH, DH, EH, KW, SW, PW, DW, EW>
    where
        O: Unsigned,
        C: Unsigned,
        H: Spread<KH, SH, PH, DH, EH>,
        W: Spread<KW, SW, PW, DW, EW>,
    {
        type Out = (O, H::Out, W::Out);
    }
}
