//! Sliding windows: the arithmetic that convolutions and poolings share.

use super::arguments::Mistake;
use super::rule::Value;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Kernel, stride, padding and dilation as `[height, width]`.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Size of the kernel.
    pub kernel_size: [u64; 2],
    /// Steps between windows.
    pub stride: [u64; 2],
    /// Zeros (or, for maxima, minus infinities) added on each side.
    pub padding: [u64; 2],
    /// Steps between the elements of the kernel.
    pub dilation: [u64; 2],
}

impl Window {
    /// Positions of the window over an input of `input` = `[height, width]`:
    /// `floor((input + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1` along each axis.
    ///
    /// With `ceil_mode` the division rounds up, and a last window that would start beyond the input and its left padding
    /// is dropped, as PyTorch does.
    ///
    /// # Errors
    /// A kernel larger than the padded input, or arithmetic beyond `u64`.
    pub fn positions(&self, input: [u64; 2], ceil_mode: bool) -> Result<[u64; 2], Mistake> {
        let axis = |axis: usize| -> Option<Option<u64>> {
            let padded = self.padding[axis].checked_mul(2)?.checked_add(input[axis])?;
            let span = (self.kernel_size[axis] - 1).checked_mul(self.dilation[axis])?.checked_add(1)?;
            let Some(room) = padded.checked_sub(span) else { return Some(None) };
            let stride = self.stride[axis];
            if !ceil_mode {
                return Some(Some(room / stride + 1));
            }
            let count = room.div_ceil(stride) + 1;
            let starts_outside = (count - 1).checked_mul(stride)? >= input[axis].checked_add(self.padding[axis])?;
            Some(Some(if starts_outside { count - 1 } else { count }))
        };
        match (axis(0), axis(1)) {
            (Some(Some(height)), Some(Some(width))) => Ok([height, width]),
            (None, _) | (_, None) => Err(Mistake::new("has a window whose size exceeds 64-bit arithmetic")),
            _ => Err(Mistake::new(self.too_large(input))),
        }
    }

    /// The numbers of the type-level assertion for a window over `input` with `output` positions: kernel, stride, padding,
    /// dilation and what `ceil_mode` lets the last window read beyond the padding, for the height, then for the width.
    pub fn proof(&self, input: [u64; 2], output: [u64; 2]) -> Vec<u64> {
        let axis = |axis: usize| {
            let span = (self.kernel_size[axis] - 1) * self.dilation[axis] + 1;
            let room = input[axis] + 2 * self.padding[axis] - span;
            let beyond = ((output[axis] - 1) * self.stride[axis]).saturating_sub(room);
            [self.kernel_size[axis], self.stride[axis], self.padding[axis], self.dilation[axis], beyond]
        };
        [axis(0), axis(1)].concat()
    }

    fn too_large(&self, input: [u64; 2]) -> String {
        let [kernel_height, kernel_width] = self.kernel_size;
        let [height, width] = input;
        let mut text = format!("has a {kernel_height}x{kernel_width} kernel");
        if self.dilation != [1, 1] {
            text += &format!(" with dilation {}", pair(self.dilation));
        }
        text += &format!(", which is larger than its {height}x{width} input");
        if self.padding != [0, 0] {
            text += &format!(" with padding {}", pair(self.padding));
        }
        text + "; use a smaller kernel, more padding, or fewer strides before it"
    }
}

/// `2`, or `(2, 3)` if height and width differ.
pub fn pair([height, width]: [u64; 2]) -> String {
    if height == width { format!("{height}") } else { format!("({height}, {width})") }
}

/// `[C, H, W]` of the only input of a layer that works on feature maps.
///
/// # Errors
/// An input that is no feature map.
pub fn feature_map(inputs: &[Value]) -> Result<[u64; 3], Mistake> {
    match inputs {
        [value] if !value.index => value.shape.as_map().ok_or_else(|| {
            Mistake::new(format!("works on a feature map [C, H, W], but the previous layer produces {}", value.shape))
        }),
        _ => Err(Mistake::new("works on a feature map [C, H, W], but it is given tokens; put `Embedding` before it")),
    }
}
