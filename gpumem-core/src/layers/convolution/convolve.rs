//! Convolutions whose weight is a value of the network.

use super::Plain;
use crate::graph::Elements;
use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::linear::Reparametrization;
use crate::layers::mistake::Mistake;
use crate::layers::window::Padding;
use crate::program::Op;
use crate::program::ops::Convolution;
use crate::shape::Shape;
use alloc::format;

/// The options of such a convolution. Its sizes are those of the weight.
#[derive(Clone, Debug)]
struct Written<const N: usize> {
    stride: [u64; N],
    padding: Padding<N>,
    dilation: [u64; N],
    groups: u64,
}

impl<const N: usize> Written<N> {
    fn read(from: &mut Arguments<'_>) -> Written<N> {
        Written {
            stride: from.option("stride").positive_sizes([1; N]),
            padding: from.option("padding").padding(),
            dilation: from.option("dilation").positive_sizes([1; N]),
            groups: from.option("groups").positive(1),
        }
    }

    /// Adds the convolution of `x` with weight `w`, whose kernel has these sizes.
    fn on(
        &self,
        b: &mut Builder<'_>,
        [x, w]: [Value; 2],
        (in_channels, input): (u64, [u64; N]),
        kernel_size: [u64; N],
    ) -> Result<Value, Mistake>
    where
        Op: From<Convolution<N>>,
    {
        let Written { stride, padding, dilation, groups } = self.clone();
        let (out_channels, each) = (w.shape.dims()[0], w.shape.dims()[1]);
        let made = Reparametrization::default();
        let plain = Plain {
            in_channels: None,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias: false,
            made,
        };
        let op = plain.operation(b, in_channels, input)?;
        if each.saturating_mul(op.groups) != in_channels {
            let needed = in_channels / op.groups;
            let text = format!(
                "has {in_channels} input channels in groups = {}, which need a weight of {needed} channels, but branch 1 produces {}",
                op.groups, w.shape
            );
            return Err(Mistake::of_input(1, text));
        }
        b.op(op, &[x, w])
    }
}

/// Returns the branch with the weight, of rank `rank`. All samples must share it.
fn weight(x: &[Value], rank: usize) -> Result<Value, Mistake> {
    let w = x[1];
    if w.elements != Elements::Numbers || w.shape.rank() != rank {
        let axes = ["", "kernel length", "kernel height, kernel width", "kernel depth, kernel height, kernel width"];
        let text = format!(
            "needs a weight [out_channels, in_channels / groups, {}], but branch 1 produces {}",
            axes[rank - 2],
            w.shape
        );
        return Err(Mistake::of_input(1, text));
    }
    if w.batched {
        let text = "has one weight for all samples, but branch 1 differs between samples; let it begin at a `Parameter`, not at an input";
        return Err(Mistake::of_input(1, text));
    }
    Ok(w)
}

/// `Convolve2d(x, w, stride = 1, padding = 0, dilation = 1, groups = 1)`: a 2-D convolution whose weight is a value of the network.
///
/// * Options: those of [`Conv2d`](super::Conv2d). A bias is a sum: `Add([Convolve2d(..)], Parameter((out_channels, 1, 1)))`.
/// * Both branches get the layer's input. x `[in_channels, H, W]`; w `[out_channels, in_channels / groups, kernel height, kernel width]`,
///   which all samples share, as a [`Parameter`](crate::layers::Parameter) or a value that is computed from parameters. Output
///   `[out_channels, H', W']` as of `Conv2d`.
/// * Parameters: none.
/// * Backward keeps both branches' outputs.
///
/// PyTorch: `torch.nn.functional.conv2d(x, w, None, stride, padding, dilation, groups)`.
#[derive(Clone, Debug)]
pub struct Convolve2d(Written<2>);

impl Layer for Convolve2d {
    const NAME: &'static str = "Convolve2d";
    const INPUTS: (usize, usize) = (2, 2);

    fn read(from: &mut Arguments<'_>) -> Convolve2d {
        Convolve2d(Written::read(from))
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [channels, height, width] = x[0].feature_map()?;
        let w = weight(x, 4)?;
        let [_, _, rows, columns] = w.shape.dims() else { return Err(Mistake::new("has no kernel")) };
        self.0.on(b, [x[0], w], (channels, [height, width]), [*rows, *columns])
    }
}

/// `Convolve3d(x, w, stride = 1, padding = 0, dilation = 1, groups = 1)`: a 3-D convolution whose weight is a value of the network.
///
/// * Options: those of [`Conv3d`](super::Conv3d).
/// * Both branches get the layer's input. x `[in_channels, D, H, W]`; w `[out_channels, in_channels / groups, kernel depth, kernel height, kernel
///   width]`, which all samples share. Output as of `Conv3d`.
/// * Parameters: none.
/// * Backward keeps both branches' outputs.
///
/// PyTorch: `torch.nn.functional.conv3d(x, w, None, stride, padding, dilation, groups)`.
#[derive(Clone, Debug)]
pub struct Convolve3d(Written<3>);

impl Layer for Convolve3d {
    const NAME: &'static str = "Convolve3d";
    const INPUTS: (usize, usize) = (2, 2);

    fn read(from: &mut Arguments<'_>) -> Convolve3d {
        Convolve3d(Written::read(from))
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let [channels, depth, height, width] = x[0].volume()?;
        let w = weight(x, 5)?;
        let [_, _, planes, rows, columns] = w.shape.dims() else { return Err(Mistake::new("has no kernel")) };
        self.0.on(b, [x[0], w], (channels, [depth, height, width]), [*planes, *rows, *columns])
    }
}

/// `Convolve1d(x, w, stride = 1, padding = 0, dilation = 1, groups = 1)`: a 1-D convolution whose weight is a value of the network.
///
/// * Options: those of [`Conv1d`](super::Conv1d).
/// * Both branches get the layer's input. x `[in_channels, L]`; w `[out_channels, in_channels / groups, kernel length]`, which all samples
///   share. Output as of `Conv1d`.
/// * Parameters: none.
/// * Backward keeps both branches' outputs.
///
/// PyTorch: `torch.nn.functional.conv1d(x, w, None, stride, padding, dilation, groups)`.
#[derive(Clone, Debug)]
pub struct Convolve1d(Written<2>);

impl Layer for Convolve1d {
    const NAME: &'static str = "Convolve1d";
    const INPUTS: (usize, usize) = (2, 2);

    fn read(from: &mut Arguments<'_>) -> Convolve1d {
        Convolve1d(Written {
            stride: [1, from.option("stride").positive(1)],
            padding: from.option("padding").padding_of_row(),
            dilation: [1, from.option("dilation").positive(1)],
            groups: from.option("groups").positive(1),
        })
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let w = weight(x, 3)?;
        let [outputs, inputs, length] = w.shape.dims() else { return Err(Mistake::new("has no kernel")) };
        let (length, filters) = (*length, Shape::new(&[*outputs, *inputs, 1, *length]));
        let w = b.view(w, filters);
        b.on_row(x[0], |b, row, [channels, height, width]| {
            self.0.on(b, [row, w], (channels, [height, width]), [1, length])
        })
    }
}
