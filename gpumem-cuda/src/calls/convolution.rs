//! Convolutions as data: what cuDNN is asked for, in its own terms.

use super::launch::Argument;
use super::product::{Element, Scratch};
use std::fmt;

/// What a convolution computes of its three tensors. A transposed convolution is another one backwards: its output is what
/// `BackwardData` makes, and the gradient of its input what `Forward` makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// The output, from input and weight.
    Forward,
    /// The gradient of the input, from weight and gradient of the output.
    BackwardData,
    /// The gradient of the weight, from input and gradient of the output.
    BackwardFilter,
}

/// A 2-D convolution of images, or one of its gradients. As everywhere in neural
/// networks the kernel is not mirrored, which cuDNN calls a cross-correlation.
///
/// Pairs are height and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Convolution {
    /// What is computed.
    pub pass: Pass,
    /// Images.
    pub batch: u64,
    /// Channels of the input, all groups together.
    pub in_channels: u64,
    /// Channels of the output, all groups together.
    pub out_channels: u64,
    /// Size of an input image.
    pub input: [u64; 2],
    /// Size of an output image.
    pub output: [u64; 2],
    /// Size of the kernel.
    pub kernel: [u64; 2],
    /// Pixels between windows.
    pub stride: [u64; 2],
    /// Zeros on each side of the input.
    pub padding: [u64; 2],
    /// Pixels between elements of the kernel.
    pub dilation: [u64; 2],
    /// Parts that the channels are split into; each output part sees its own input part only.
    pub groups: u64,
    /// Input or its gradient: `[batch, in_channels, input]`.
    pub x: Argument,
    /// Weight or its gradient: `[out_channels, in_channels / groups, kernel]`.
    pub w: Argument,
    /// Output or its gradient: `[batch, out_channels, output]`.
    pub y: Argument,
    /// What is added to each channel of what is written: `[out_channels]` forward, and `[in_channels]` where the gradient of the input is the
    /// output of the transpose.
    pub bias: Option<Argument>,
    /// A map that is added after the bias, `[batch, out_channels, output]`: another one than is written. There is a bias then, and the pass is
    /// forward, in 16 bits.
    pub addend: Option<Argument>,
    /// Whether the larger of that and zero is taken in the end. There is a bias then: the library fuses both or none.
    pub relu: bool,
    /// Whether a gradient is added to what is there (beta is 1).
    pub accumulate: bool,
    /// Number format of all tensors. Sums are f32 in each of them.
    pub element: Element,
    /// Whether factors of f32 may be rounded to TensorFloat-32.
    pub tf32: bool,
    /// Whether only algorithms on tensor cores will do: without one, the project's own kernels compute it on theirs.
    pub tensor_cores: bool,
    /// Whether the channels of a pixel, and those of a tap of the weight, lie side by side. Sizes are written with channels
    /// first all the same.
    pub channels_last: bool,
    /// Scratch memory, if there is any.
    pub workspace: Option<Scratch>,
    /// Whether every run must give the same bits.
    pub deterministic: bool,
}

impl Convolution {
    /// The largest of its three tensors, in elements; `u64::MAX` if that cannot be counted.
    pub fn largest(&self) -> u64 {
        let count = |sizes: [u64; 4]| sizes.into_iter().fold(1, u64::saturating_mul);
        let [input, output, kernel] = [self.input, self.output, self.kernel];
        let x = count([self.batch, self.in_channels, input[0], input[1]]);
        let y = count([self.batch, self.out_channels, output[0], output[1]]);
        let w = count([self.out_channels, self.in_channels, kernel[0], kernel[1]]);
        x.max(y).max(w)
    }

    /// The same convolution with another tensor for what it writes.
    pub(crate) fn writing(self, tensor: Argument) -> Convolution {
        match self.pass {
            Pass::Forward => Convolution { y: tensor, ..self },
            Pass::BackwardData => Convolution { x: tensor, ..self },
            Pass::BackwardFilter => Convolution { w: tensor, ..self },
        }
    }

    /// The same convolution of any tensors: what the choice of an algorithm depends on.
    pub(crate) fn of_any(self) -> Convolution {
        let workspace = self.workspace.map(|workspace| Scratch { tensor: 0, ..workspace });
        Convolution { x: 0, w: 0, y: 0, bias: self.bias.map(|_| 0), addend: self.addend.map(|_| 0), workspace, ..self }
    }
}

impl fmt::Display for Convolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Convolution { batch, in_channels, out_channels, groups, .. } = *self;
        let pair = |[height, width]: [u64; 2]| format!("{height}x{width}");
        let pass = match self.pass {
            Pass::Forward => "convolution",
            Pass::BackwardData => "data gradient of the convolution",
            Pass::BackwardFilter => "filter gradient of the convolution",
        };
        let element = match self.element {
            Element::F32 if self.tf32 => "TF32",
            Element::F32 => "F32",
            Element::Bf16 => "Bf16",
            Element::F16 => "F16",
        };
        write!(f, "{pass} {batch}x{in_channels}x{} to {out_channels}x{}", pair(self.input), pair(self.output))?;
        write!(f, ", kernel {}, stride {}", pair(self.kernel), pair(self.stride))?;
        write!(f, ", padding {}, dilation {}, groups {groups}", pair(self.padding), pair(self.dilation))?;
        write!(f, " in {element}")?;
        let marks = [
            (self.bias.is_some(), ", bias"),
            (self.addend.is_some(), ", addend"),
            (self.relu, ", Relu"),
            (self.accumulate, ", added"),
            (self.channels_last, ", channels last"),
            (self.deterministic, ", deterministic"),
        ];
        marks.into_iter().filter(|(is, _)| *is).try_for_each(|(_, text)| f.write_str(text))?;
        write!(f, ", workspace of {} bytes", self.workspace.map_or(0, |workspace| workspace.bytes))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Two groups, and sizes that are all different.
    pub(crate) fn example(pass: Pass) -> Convolution {
        Convolution {
            pass,
            batch: 5,
            in_channels: 6,
            out_channels: 8,
            input: [11, 13],
            output: [6, 13],
            kernel: [3, 4],
            stride: [2, 1],
            padding: [1, 3],
            dilation: [1, 2],
            groups: 2,
            x: 1,
            w: 2,
            y: 3,
            bias: None,
            addend: None,
            relu: false,
            accumulate: false,
            element: Element::F32,
            tf32: false,
            tensor_cores: false,
            channels_last: false,
            workspace: Some(Scratch { tensor: 4, bytes: 4096 }),
            deterministic: false,
        }
    }

    #[test]
    fn a_convolution_says_what_it_is() {
        let plain = Convolution { workspace: None, ..example(Pass::BackwardFilter) };
        assert_eq!(
            plain.to_string(),
            "filter gradient of the convolution 5x6x11x13 to 8x6x13, kernel 3x4, stride 2x1, padding 1x3, dilation 1x2, \
             groups 2 in F32, workspace of 0 bytes"
        );
        let full = Convolution {
            bias: Some(5),
            relu: true,
            accumulate: true,
            deterministic: true,
            element: Element::Bf16,
            ..example(Pass::Forward)
        };
        let end = "groups 2 in Bf16, bias, Relu, added, deterministic, workspace of 4096 bytes";
        assert!(full.to_string().ends_with(end), "{full}");
        let beside = Convolution { addend: Some(6), relu: false, accumulate: false, ..full };
        assert!(beside.to_string().contains("in Bf16, bias, addend, deterministic"), "{beside}");
    }

    #[test]
    fn the_largest_tensor_counts() {
        let convolution = example(Pass::Forward);
        assert_eq!(convolution.largest(), 5 * 6 * 11 * 13);
        assert_eq!(Convolution { output: [11, 13], ..convolution }.largest(), 5 * 8 * 11 * 13);
        assert_eq!(Convolution { kernel: [1 << 40, 1 << 40], ..convolution }.largest(), u64::MAX);
    }
}
