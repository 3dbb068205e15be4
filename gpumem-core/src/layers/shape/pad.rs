use crate::layers::Layer;
use crate::layers::arguments::{Argument, Arguments, numbers};
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::{Beyond, Pad as Operation};
use crate::shape::Shape;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// `Pad(padding)`: adds elements around a map or a volume, or at both ends of the last axis of a smaller value.
///
/// * `padding` is in the order of PyTorch's `F.pad`, which begins with the last axis: `(left, right, top, bottom)`, `(left, right)` for the
///   last axis alone, and of a volume `(left, right, top, bottom, front, back)`. One number stands for every side of a map or a volume, or
///   for both ends of the last axis. Numbers below 0 cut elements off.
/// * Options: `mode = "constant"`, or `"reflect"`, `"replicate"` and `"circular"`; `value = 0.0`, the value of a constant padding.
/// * Input `[C, H, W]`, output `[C, H + top + bottom, W + left + right]`; `[C, D, H, W]` likewise: first each plane, then the depth. A
///   signal `[C, L]`, a sequence `[T, D]` and a vector `[N]` grow along the last axis; with four numbers `C` or `T` grows too.
/// * `reflect` must add fewer elements than there are, `circular` no more. Only `constant` may cut off.
/// * Parameters: none.
/// * Backward keeps nothing.
///
/// PyTorch: `torch.nn.functional.pad(x, padding, mode, value)`.
#[derive(Clone, Debug)]
pub struct Pad {
    /// One number, two, four or six.
    padding: Vec<i64>,
    beyond: Beyond,
    value: f64,
}

/// The modes by name, with the values beyond the edges.
const MODES: [(&str, Beyond); 4] = [
    ("constant", Beyond::Constant),
    ("reflect", Beyond::Reflect),
    ("replicate", Beyond::Replicate),
    ("circular", Beyond::Circular),
];

/// The words for padding in messages.
const PADDING: &str =
    "a whole number, (left, right), (left, right, top, bottom) or six numbers that end in front and back";

/// The largest padding of a side, so that sums stay within an `i64`.
const MOST: f64 = (1u64 << 52) as f64;

/// Returns one whole number, two, four or six. `None` if the argument is no such value.
fn sides(value: &Argument) -> Option<Vec<i64>> {
    let whole = |number: f64| (number == number as i64 as f64 && number.abs() <= MOST).then_some(number as i64);
    let sides: Option<Vec<i64>> = numbers(value)?.into_iter().map(whole).collect();
    sides.filter(|sides| [1, 2, 4, 6].contains(&sides.len()))
}

impl Layer for Pad {
    const NAME: &'static str = "Pad";

    fn read(from: &mut Arguments<'_>) -> Pad {
        Pad {
            padding: from.required("padding").take(PADDING, sides, [0, 5].map(|side| [side].to_vec())),
            beyond: MODES[from.option("mode").choice(&MODES.map(|(name, _)| name))].1,
            value: from.option("value").finite(0.0),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        if self.value != 0.0 && self.beyond != Beyond::Constant {
            let text = format!(
                "has a value, which only `mode = \"constant\"` puts there; leave `value` or {} out",
                self.mode()
            );
            b.report(Mistake::of("value", text));
        }
        let shape = x[0].numbers()?;
        let padding = self.of_axes(shape)?;
        let sizes = shape.dims().iter().rev().copied();
        for (size, sides) in sizes.zip(padding.into_iter().rev()) {
            self.check(size, sides)?;
        }
        let [_, rows, columns] = padding;
        // A smaller value is a map of one channel.
        match *shape.dims() {
            [width] => {
                let (y, sides) = self.around(b, x[0], [1, 1, width], [rows, columns])?;
                Ok(b.view(y, Shape::new(&sides[1..])))
            }
            [height, width] => {
                let (y, sides) = self.around(b, x[0], [1, height, width], [rows, columns])?;
                Ok(b.view(y, Shape::new(&sides)))
            }
            [channels, height, width] => Ok(self.around(b, x[0], [channels, height, width], [rows, columns])?.0),
            [channels, depth, height, width] => self.on_volume(b, x[0], [channels, depth, height, width], padding),
            _ => {
                let text = format!(
                    "pads maps, volumes, signals, sequences and vectors, but the previous layer produces {shape}"
                );
                Err(Mistake::new(text))
            }
        }
    }
}

impl Pad {
    /// Pads a volume: first each plane, as a map of its own, then the depth.
    fn on_volume(
        &self,
        b: &mut Builder<'_>,
        x: Value,
        [channels, depth, height, width]: [u64; 4],
        [ends, rows, columns]: [[i64; 2]; 3],
    ) -> Result<Value, Mistake> {
        let (mut y, mut sides, mut planes) = (x, [height, width], depth);
        if [rows, columns] != [[0; 2]; 2] || ends == [0; 2] {
            let maps = channels.saturating_mul(depth);
            (y, sides) = self.around(b, y, [maps, height, width], [rows, columns])?;
        }
        let [height, width] = sides;
        if ends != [0; 2] {
            let each = height.saturating_mul(width);
            (y, [planes, _]) = self.around(b, y, [channels, depth, each], [ends, [0; 2]])?;
        }
        Ok(b.reshaped(y, Shape::new(&[channels, planes, height, width])))
    }

    /// Pads maps of this size by so many rows and columns, and returns the new size too.
    fn around(
        &self,
        b: &mut Builder<'_>,
        x: Value,
        [channels, height, width]: [u64; 3],
        padding: [[i64; 2]; 2],
    ) -> Result<(Value, [u64; 2]), Mistake> {
        let [added, removed] = [1, -1].map(|sign| padding.map(|axis| axis.map(|side| (side * sign).max(0) as u64)));
        let op = Operation { channels, beyond: self.beyond, value: self.value, input: [height, width], added, removed };
        let sides = op.sides();
        let x = b.reshaped(x, Shape::new(&[channels, height, width]));
        Ok((b.op(op, &[x])?, sides))
    }

    /// Returns the padding before and after each axis: depth, height, width. Negative numbers cut elements off.
    fn of_axes(&self, shape: Shape) -> Result<[[i64; 2]; 3], Mistake> {
        let rank = shape.rank();
        let [left, right, top, bottom, front, back] = match self.padding[..] {
            [left, right, top, bottom, front, back] => [left, right, top, bottom, front, back],
            [left, right, top, bottom] => [left, right, top, bottom, 0, 0],
            [left, right] => [left, right, 0, 0, 0, 0],
            [side] if rank > 3 => [side; 6],
            [side] if rank > 2 => [side, side, side, side, 0, 0],
            [side] => [side, side, 0, 0, 0, 0],
            _ => [0; 6],
        };
        if rank == 1 && [top, bottom] != [0, 0] {
            let text = format!("has {} for a vector, which has one axis; write `(left, right)`", self.text());
            return Err(Mistake::of("padding", text));
        }
        if rank < 4 && [front, back] != [0, 0] {
            let text = format!("has {} for {shape}, which is no volume; write up to four numbers", self.text());
            return Err(Mistake::of("padding", text));
        }
        Ok([[front, back], [top, bottom], [left, right]])
    }

    /// Checks that an axis of this size can be padded so, by PyTorch's rules.
    fn check(&self, size: u64, sides: [i64; 2]) -> Result<(), Mistake> {
        let (least, most) = (sides[0].min(sides[1]), sides[0].max(sides[1]));
        let left = size as i128 + i128::from(sides[0]) + i128::from(sides[1]);
        let text = match self.beyond {
            Beyond::Constant if left < 1 => {
                format!("cuts all of an axis of {size} off with {}; cut less off", self.text())
            }
            Beyond::Constant => return Ok(()),
            _ if least < 0 => {
                format!("has {} with {}; only `mode = \"constant\"` cuts off", self.text(), self.mode())
            }
            Beyond::Reflect if most as u64 >= size => format!(
                "reflects {most} elements of an axis that has {size}, whose outermost one is not repeated; use at most {}, or \
                 `mode = \"replicate\"`",
                size.saturating_sub(1)
            ),
            Beyond::Circular if most as u64 > size => {
                format!("goes on with {most} elements of an axis that has {size}; use at most {size}")
            }
            _ => return Ok(()),
        };
        Err(Mistake::of("padding", text))
    }

    /// Returns the padding as it is written.
    fn text(&self) -> String {
        match self.padding[..] {
            [side] => format!("padding {side}"),
            _ => {
                let sides: Vec<String> = self.padding.iter().map(|side| format!("{side}")).collect();
                format!("padding ({})", sides.join(", "))
            }
        }
    }

    /// Returns the mode as it is written.
    fn mode(&self) -> String {
        let name = MODES.iter().find(|(_, beyond)| *beyond == self.beyond).map_or("", |(name, _)| name);
        format!("`mode = {name:?}`")
    }
}
