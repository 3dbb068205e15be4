use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::WindowMask;
use alloc::format;

/// `ShiftedWindowMask(size, window, shift)`: a mask for attention within windows of a rolled map. Steps that are neighbours only because of
/// the roll do not see each other.
///
/// * `size`, height and width of the map; `window`, those of a window, which divide them; `shift`, by how much the map was rolled up and
///   to the left, less than a window; 0 along an axis that was not rolled. One number stands for both.
/// * Input rows of windows, one after the other along the map's rows, `[.., windows, T, D]` with the positions of a window in `T`; only the
///   sizes matter. Output `[windows, 1, T, T]`, one for the whole batch: 0, and -100 for pairs that are hidden.
/// * Parameters: none.
/// * Backward keeps nothing.
///
/// PyTorch: `attn_mask` of `torchvision.models.swin_transformer.shifted_window_attention`.
#[derive(Clone, Debug)]
pub struct ShiftedWindowMask {
    size: [u64; 2],
    window: [u64; 2],
    shift: [u64; 2],
}

impl Layer for ShiftedWindowMask {
    const NAME: &'static str = "ShiftedWindowMask";

    fn read(from: &mut Arguments<'_>) -> ShiftedWindowMask {
        ShiftedWindowMask {
            size: from.required("size").positive_pair(),
            window: from.required("window").positive_pair(),
            shift: from.required("shift").pair(),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let ShiftedWindowMask { size, window, shift } = *self;
        let op = WindowMask { size, window, shift };
        let [[height, width], [rows, columns]] = [size, window];
        if !(height.is_multiple_of(rows) && width.is_multiple_of(columns)) || height.max(width) > 1 << 20 {
            let text = format!(
                "cuts a map of {height} x {width} into windows of {rows} x {columns}, which are no whole parts of it; use a multiple of them, up to 2^20"
            );
            return Err(Mistake::of("size", text));
        }
        if shift[0] >= rows || shift[1] >= columns {
            let text = format!("rolls by {} x {}, but a window has {rows} x {columns}; use less", shift[0], shift[1]);
            return Err(Mistake::of("shift", text));
        }
        let [windows, positions] = op.counts();
        let shape = x[0].numbers()?;
        if !matches!(shape.dims(), [.., w, t, _] if [*w, *t] == [windows, positions]) {
            let text =
                format!("works on {windows} windows of {positions} positions, but the previous layer produces {shape}");
            return Err(Mistake::new(text));
        }
        b.op(op, &[])
    }
}
