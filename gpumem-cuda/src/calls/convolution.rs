//! Convolutions as data, in cuDNN's terms.

use super::launch::Argument;
use super::product::{Element, Scratch};
use std::fmt;

/// The tensor that a convolution computes from the other two. A transposed convolution is a convolution run backwards: `BackwardData` computes its
/// output, and `Forward` the gradient of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// Computes the output from input and weight.
    Forward,
    /// Computes the gradient of the input from the weight and the gradient of the output.
    BackwardData,
    /// Computes the gradient of the weight from the input and the gradient of the output.
    BackwardFilter,
}

/// A 2-D convolution of images, or one of its gradients. As in PyTorch the kernel is not mirrored, which cuDNN calls a cross-correlation.
///
/// Pairs are height and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Convolution {
    /// The pass.
    pub pass: Pass,
    /// Number of images.
    pub batch: u64,
    /// Channels of the input, over all groups.
    pub in_channels: u64,
    /// Channels of the output, over all groups.
    pub out_channels: u64,
    /// Size of an input image.
    pub input: [u64; 2],
    /// Size of an output image.
    pub output: [u64; 2],
    /// Size of the kernel.
    pub kernel: [u64; 2],
    /// Pixels from one window to the next.
    pub stride: [u64; 2],
    /// Rows or columns of zeros on each side of the input.
    pub padding: [u64; 2],
    /// Pixels from one element of the kernel to the next.
    pub dilation: [u64; 2],
    /// Groups that the channels are split into. Output channels of a group depend on the input channels of that group only.
    pub groups: u64,
    /// Input or its gradient: `[batch, in_channels, input]`.
    pub x: Argument,
    /// Weight or its gradient: `[out_channels, in_channels / groups, kernel]`.
    pub w: Argument,
    /// Output or its gradient: `[batch, out_channels, output]`.
    pub y: Argument,
    /// A number added to each channel of the result; `None` without a bias. Forward it is `[out_channels]`. For `BackwardData`, which computes the
    /// output of a transposed convolution, it is `[in_channels]`.
    pub bias: Option<Argument>,
    /// A map added after the bias: `[batch, out_channels, output]`; `None` without one. It is another tensor than the result. It requires a bias,
    /// the forward pass and a 16-bit format.
    pub addend: Option<Argument>,
    /// True if the result is clamped at zero (ReLU) after bias and addend. It requires a bias: the library fuses both or none.
    pub relu: bool,
    /// True if a gradient is added to its tensor (beta is 1) instead of overwriting it.
    pub accumulate: bool,
    /// Number format of all tensors. Sums are f32 in each of them.
    pub element: Element,
    /// True if factors of f32 may be rounded to TensorFloat-32.
    pub tf32: bool,
    /// True if only algorithms on tensor cores are accepted. If there is none, gpumem's own kernels run on tensor cores instead.
    pub tensor_cores: bool,
    /// True if tensors are stored with channels last: the channels of a pixel, and of a tap of the weight, are adjacent. Sizes are given with
    /// channels first in both cases.
    pub channels_last: bool,
    /// Scratch memory; `None` if there is none.
    pub workspace: Option<Scratch>,
    /// True if every run must give the same bits.
    pub deterministic: bool,
}

impl Convolution {
    /// Returns the elements of the largest of its three tensors; `u64::MAX` if they overflow.
    pub fn largest(&self) -> u64 {
        let count = |sizes: [u64; 4]| sizes.into_iter().fold(1, u64::saturating_mul);
        let [input, output, kernel] = [self.input, self.output, self.kernel];
        let x = count([self.batch, self.in_channels, input[0], input[1]]);
        let y = count([self.batch, self.out_channels, output[0], output[1]]);
        let w = count([self.out_channels, self.in_channels, kernel[0], kernel[1]]);
        x.max(y).max(w)
    }

    /// Returns this convolution with `tensor` as its result.
    pub(crate) fn writing(self, tensor: Argument) -> Convolution {
        match self.pass {
            Pass::Forward => Convolution { y: tensor, ..self },
            Pass::BackwardData => Convolution { x: tensor, ..self },
            Pass::BackwardFilter => Convolution { w: tensor, ..self },
        }
    }

    /// Returns this convolution with all tensor numbers set to 0: the key by which an algorithm is chosen.
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

    /// Returns an example with two groups whose sizes all differ.
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
