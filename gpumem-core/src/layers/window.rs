//! Sliding windows: the arguments and the arithmetic that convolutions and poolings share.

use super::arguments::{Argument, Asking, sizes, sizes_text, sizes_wanted};
use super::mistake::Mistake;
use crate::program::ops::Window;
use alloc::format;
use alloc::string::{String, ToString};

/// The padding of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding<const N: usize = 2> {
    /// Elements of padding at each end of each axis.
    Each([u64; N]),
    /// The padding with which the output has the input's size. If it is odd, the end has one element more.
    Same,
}

impl Asking<'_, '_> {
    /// Reads padding: a number, one for each axis, `"valid"` (none) or `"same"`.
    pub fn padding<const N: usize>(self) -> Padding<N> {
        let padding = |value: &Argument| match value {
            Argument::Text(text) if text == "same" => Some(Padding::Same),
            Argument::Text(text) if text == "valid" => Some(Padding::Each([0; N])),
            other => sizes(other).map(Padding::Each),
        };
        let wanted = format!("{}, \"same\" or \"valid\"", sizes_wanted::<N>());
        self.take(&wanted, Some("0".into()), padding, [Padding::Each([0; N]), Padding::Same])
    }

    /// Reads padding along one axis: a number, `"valid"` or `"same"`.
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

/// Returns how often a window moves by its stride along one axis. `None` if not even one window fits the padded input. All numbers of the
/// window are below 2^31.
///
/// With `ceil_mode` a window may reach over the end by less than its stride, even if it is the only one.
fn strides<const N: usize>(window: &Window<N>, input: u64, axis: usize, ceil_mode: bool) -> Option<u64> {
    let (padding, stride) = (2 * window.padding[axis], window.stride[axis]);
    let beyond = if ceil_mode { stride - 1 } else { 0 };
    let covered = (window.kernel_size[axis] - 1) * window.dilation[axis] + 1;
    Some(input.saturating_add(padding + beyond).checked_sub(covered)? / stride)
}

impl<const N: usize> Window<N> {
    /// Returns the positions of the window along each axis of an input, with equal padding at both ends:
    /// `floor((input + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1` along each axis.
    ///
    /// With `ceil_mode` the division rounds up, and a last window that would start beyond the input and its left padding
    /// is dropped, as PyTorch does.
    ///
    /// # Errors
    /// A kernel larger than the padded input, with `ceil_mode` by its stride or more, or numbers from 2^31 on.
    pub fn positions(&self, input: [u64; N], ceil_mode: bool) -> Result<[u64; N], Mistake> {
        if let Some(mistake) = self.too_far() {
            return Err(mistake);
        }
        let axis = |axis: usize| -> Option<u64> {
            let strides = strides(self, input[axis], axis, ceil_mode)?;
            let end = input[axis].saturating_add(self.padding[axis]);
            let starts_outside = ceil_mode && strides.saturating_mul(self.stride[axis]) >= end;
            Some(if starts_outside { strides } else { strides + 1 })
        };
        let mut positions = [0; N];
        let mut is_too_large = false;
        for (index, positions) in positions.iter_mut().enumerate() {
            match axis(index) {
                Some(count) => *positions = count,
                None => is_too_large = true,
            }
        }
        if is_too_large { Err(Mistake::new(self.too_large(input))) } else { Ok(positions) }
    }

    /// Returns a mistake if `padding = "same"` comes with a stride other than 1, which PyTorch refuses too.
    pub(super) fn strides_over_same(&self) -> Option<Mistake> {
        let text = format!(
            "has `padding = \"same\"` with stride {}; PyTorch has that for stride 1 only, so write the padding as a number",
            sizes_text(self.stride)
        );
        (self.stride != [1; N]).then(|| Mistake::of("padding", text))
    }

    /// Returns this window with the padding for which it has as many positions as the input has elements. If the padding is odd, the
    /// smaller half comes first, as in PyTorch.
    #[must_use]
    pub fn padded_to_same(self) -> Window<N> {
        let axis = |axis: usize| (self.kernel_size[axis] - 1).saturating_mul(self.dilation[axis]) / 2;
        Window { padding: core::array::from_fn(axis), ..self }
    }

    /// Returns a mistake if a window could cover padding alone. It would have neither a maximum nor a useful mean. A dilated window covers
    /// its gaps too, as in PyTorch.
    pub(super) fn too_much_padding(&self) -> Option<Mistake> {
        let covered = |axis: usize| (self.kernel_size[axis] - 1).saturating_mul(self.dilation[axis]).saturating_add(1);
        let axis = (0..N).find(|&axis| self.padding[axis] > covered(axis) / 2)?;
        let (padding, most) = (self.padding[axis], covered(axis) / 2);
        let what = match self.dilation[axis] {
            1 => format!("its kernel size {}", self.kernel_size[axis]),
            dilation => format!("what a kernel of {} with dilation {dilation} covers", self.kernel_size[axis]),
        };
        Some(Mistake::new(format!("has padding {padding}, more than half {what}; use at most {most}")))
    }

    /// Returns a mistake if a dilated window reads no element of the input, so that it has no maximum.
    pub(super) fn lies_in_padding(&self, input: [u64; N], positions: [u64; N]) -> Option<Mistake> {
        // For a window that begins before the input: true if its first element after the padding is within the input.
        let sees = |axis: usize, position: u64| {
            let missing = self.padding[axis] - position * self.stride[axis];
            let first = missing.div_ceil(self.dilation[axis]);
            first < self.kernel_size[axis] && first * self.dilation[axis] - missing < input[axis]
        };
        let in_front = |axis: usize| self.padding[axis].div_ceil(self.stride[axis]).min(positions[axis]);
        let is_blind =
            |&axis: &usize| self.dilation[axis] > 1 && !(0..in_front(axis)).all(|position| sees(axis, position));
        let axis = (0..N).find(is_blind)?;
        Some(Mistake::new(format!(
            "has a window that lies in the padding alone: a kernel of {} with dilation {} steps over an input of {}; use less dilation or padding",
            self.kernel_size[axis], self.dilation[axis], input[axis]
        )))
    }

    /// Returns a mistake if a number of the window is 2^31 or more, which no device supports.
    pub(super) fn too_far(&self) -> Option<Mistake> {
        const LIMIT: u64 = 1 << 31;
        let all = [self.kernel_size, self.stride, self.padding, self.dilation];
        let number = all.as_flattened().iter().find(|&&number| number >= LIMIT)?;
        Some(Mistake::new(format!("has a window with the number {number}; use numbers below 2^31")))
    }

    fn too_large(&self, input: [u64; N]) -> String {
        // A signal is a map of one row. Only its length can be too small.
        let is_row = N == 2 && [self.kernel_size[0], self.dilation[0], input[0]] == [1; 3] && self.padding[0] == 0;
        let of = |sizes: [u64; N]| if is_row { sizes[N - 1].to_string() } else { sizes_text(sizes) };
        let named = |what: &str, sizes: [u64; N]| match is_row {
            true => format!("{what} of {}", sizes[N - 1]),
            false => format!("{} {what}", sizes.map(|size| size.to_string()).join("x")),
        };
        let mut text = format!("has a {}", named("kernel", self.kernel_size));
        if self.dilation != [1; N] {
            text += &format!(" with dilation {}", of(self.dilation));
        }
        text += &format!(", which is larger than its {}", named("input", input));
        if self.padding != [0; N] {
            text += &format!(" with padding {}", of(self.padding));
        }
        text + "; use a smaller kernel, more padding, or fewer strides before it"
    }
}
