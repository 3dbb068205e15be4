//! Sliding windows: the arguments and the arithmetic that convolutions and poolings share.

use super::arguments::{Argument, Asking, PAIR, pair};
use super::mistake::Mistake;
use crate::program::ops::Window;
use alloc::format;
use alloc::string::String;

/// How much padding there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// As much at the end as at the beginning, as `[height, width]`.
    Each([u64; 2]),
    /// As much as it takes for the output to have the input's size, with one more at the end where that is odd.
    Same,
}

impl Asking<'_, '_> {
    /// Padding: a number, a pair, `"valid"` (none) or `"same"`.
    pub fn padding(self) -> Padding {
        let padding = |value: &Argument| match value {
            Argument::Text(text) if text == "same" => Some(Padding::Same),
            Argument::Text(text) if text == "valid" => Some(Padding::Each([0, 0])),
            other => pair(other).map(Padding::Each),
        };
        let wanted = format!("{PAIR}, \"same\" or \"valid\"");
        self.take(&wanted, Some("0".into()), padding, [Padding::Each([0, 0]), Padding::Same])
    }

    /// Padding along one axis: a number, `"valid"` or `"same"`.
    pub fn padding_of_row(self) -> Padding {
        let padding = |value: &Argument| match value {
            Argument::Text(text) if text == "same" => Some(Padding::Same),
            Argument::Text(text) if text == "valid" => Some(Padding::Each([0, 0])),
            Argument::Integer(padding) => Some(Padding::Each([0, *padding])),
            _ => None,
        };
        let wanted = "a whole number, \"same\" or \"valid\"";
        self.take(wanted, Some("0".into()), padding, [Padding::Each([0, 0]), Padding::Same])
    }
}

/// Room that a window has along one axis: the padded input less what the window covers. `None` beyond `u64`, and inside it
/// where the window covers more.
fn room(window: &Window, input: u64, axis: usize) -> Option<Option<u64>> {
    let padded = window.padding[axis].checked_mul(2)?.checked_add(input)?;
    let span = (window.kernel_size[axis] - 1).checked_mul(window.dilation[axis])?.checked_add(1)?;
    Some(padded.checked_sub(span))
}

impl Window {
    /// Positions over an input of `input` = `[height, width]`, with as much padding at the end as at the beginning:
    /// `floor((input + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1` along each axis.
    ///
    /// With `ceil_mode` the division rounds up, and a last window that would start beyond the input and its left padding
    /// is dropped, as PyTorch does.
    ///
    /// # Errors
    /// A kernel larger than the padded input, or arithmetic beyond `u64`.
    pub fn positions(&self, input: [u64; 2], ceil_mode: bool) -> Result<[u64; 2], Mistake> {
        let axis = |axis: usize| -> Option<Option<u64>> {
            let Some(room) = room(self, input[axis], axis)? else { return Some(None) };
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

    /// A mistake if `padding = "same"` meets a stride other than 1, which PyTorch does not take either.
    pub(super) fn strides_over_same(&self) -> Option<Mistake> {
        let text = format!(
            "has `padding = \"same\"` with stride {}; PyTorch has that for stride 1 only, so write the padding as a number",
            text_of(self.stride)
        );
        (self.stride != [1, 1]).then(|| Mistake::of("padding", text))
    }

    /// The same window with the padding for which it has as many positions as the input has elements: where that is odd, the
    /// smaller half stands in front, as in PyTorch.
    #[must_use]
    pub fn padded_to_same(self) -> Window {
        let axis = |axis: usize| (self.kernel_size[axis] - 1).saturating_mul(self.dilation[axis]) / 2;
        Window { padding: [axis(0), axis(1)], ..self }
    }

    /// A mistake if there is so much padding that a window could lie in nothing else: it would have no maximum, and no mean to
    /// speak of.
    pub(super) fn too_much_padding(&self) -> Option<Mistake> {
        let axis = (0..2).find(|&axis| self.padding[axis] > self.kernel_size[axis] / 2)?;
        Some(Mistake::new(format!(
            "has padding {}, more than half its kernel size {}; use at most {}",
            self.padding[axis],
            self.kernel_size[axis],
            self.kernel_size[axis] / 2
        )))
    }

    fn too_large(&self, input: [u64; 2]) -> String {
        let [kernel_height, kernel_width] = self.kernel_size;
        let [height, width] = input;
        let mut text = format!("has a {kernel_height}x{kernel_width} kernel");
        if self.dilation != [1, 1] {
            text += &format!(" with dilation {}", text_of(self.dilation));
        }
        text += &format!(", which is larger than its {height}x{width} input");
        if self.padding != [0, 0] {
            text += &format!(" with padding {}", text_of(self.padding));
        }
        text + "; use a smaller kernel, more padding, or fewer strides before it"
    }
}

/// `2`, or `(2, 3)` if height and width differ.
fn text_of([height, width]: [u64; 2]) -> String {
    if height == width { format!("{height}") } else { format!("({height}, {width})") }
}
