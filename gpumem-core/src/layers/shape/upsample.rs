use crate::layers::Layer;
use crate::layers::arguments::{Argument, Arguments, PAIR, list, numbers};
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::{Interpolate, Interpolation, Resize};
use alloc::format;
use alloc::vec::Vec;

/// `Upsample(scale_factor)` or `Upsample(size = (height, width))`: a map or a signal of another size, larger or smaller. Both are one
/// number or a pair; factors may have fractions.
///
/// * Options: `size`, in place of a factor; `mode = "nearest"`, or `"bilinear"` and `"bicubic"` for maps and `"linear"` for signals;
///   `align_corners = false`.
/// * Input `[C, H, W]`, output `[C, H', W']` with `(H', W') = size`, or `H' = floor(H * scale_factor)` and `W'` likewise. Input
///   `[C, L]`, output `[C, L']`.
/// * Nearest elements by a whole factor are repeated rows and columns. Otherwise row `o` of the output is at `(o + 0.5) * step - 0.5`
///   in the input, where `step` is 1 over the factor, or `H / H'` for a size; nearest elements are at `floor(o * step)`. With
///   `align_corners` the outermost elements of both lie on each other, and `step` is `(H - 1) / (H' - 1)`, as in PyTorch.
/// * Parameters: none.
/// * Backward keeps nothing.
///
/// PyTorch: `torch.nn.Upsample(size, scale_factor, mode=mode, align_corners=align_corners)`.
#[derive(Clone, Debug)]
pub struct Upsample {
    /// One for each axis, or one for all.
    size: Option<Vec<u64>>,
    /// The same.
    scale_factor: Option<Vec<f64>>,
    mode: usize,
    align_corners: bool,
}

/// The modes, and how they find what lies between elements.
const MODES: [(&str, Interpolation); 4] = [
    ("nearest", Interpolation::Nearest),
    ("bilinear", Interpolation::Linear),
    ("bicubic", Interpolation::Cubic),
    ("linear", Interpolation::Linear),
];

/// What factors are called in messages.
const FACTORS: &str = "a number or a pair (height, width)";

/// One number or two.
fn few(value: &Argument) -> Option<Vec<f64>> {
    numbers(value).filter(|numbers| numbers.len() <= 2)
}

/// The same of whole ones.
fn lengths(value: &Argument) -> Option<Vec<u64>> {
    match value {
        Argument::Integer(length) => Some([*length].to_vec()),
        Argument::Pair(pair) => Some(pair.to_vec()),
        _ => None,
    }
}

impl Layer for Upsample {
    const NAME: &'static str = "Upsample";

    fn read(from: &mut Arguments<'_>) -> Upsample {
        let above_0 = |numbers: &Vec<f64>| numbers.iter().all(|number| number.is_finite() && *number > 0.0);
        let factors = [1.0, 6.0].map(|factor| [factor].to_vec());
        let at_least_1 = |lengths: &Vec<u64>| !lengths.contains(&0);
        let sizes = [1, 6].map(|size| [size].to_vec());
        Upsample {
            scale_factor: from.trailing("scale_factor").take_if_any(FACTORS, few, ("above 0", above_0), factors),
            size: from.option("size").take_if_any(PAIR, lengths, ("at least 1", at_least_1), sizes),
            mode: from.option("mode").choice(&MODES.map(|(name, _)| name)),
            align_corners: from.option("align_corners").flag(false),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        if x[0].shape.rank() == 2 {
            return b.on_row(x[0], |b, row, map| self.on(b, row, map, true));
        }
        let map = x[0].feature_map()?;
        self.on(b, x[0], map, false)
    }
}

impl Upsample {
    /// A map of this size as one of another size, or a signal's one row.
    fn on(&self, b: &mut Builder<'_>, x: Value, map: [u64; 3], is_row: bool) -> Result<Value, Mistake> {
        let [channels, height, width] = map;
        let input = [height, width];
        let interpolation = self.interpolation(b, is_row);
        let is_nearest = interpolation == Interpolation::Nearest;
        let (output, factors) = self.output(b, input, is_row)?;
        if let Some(scale_factor) = repetitions(input, output, factors).filter(|_| is_nearest) {
            return b.op(Resize { channels, scale_factor, input }, &[x]);
        }
        let places = [0, 1].map(|axis| {
            let factor = factors.map(|factors| factors[axis]);
            places(interpolation, self.align_corners && !is_nearest, [input[axis], output[axis]], factor)
        });
        let [start, step] = [0, 1].map(|which| places.map(|place| place[which]));
        b.op(Interpolate { channels, interpolation, input, output, start, step }, &[x])
    }

    /// Height and width of the output, and the factors if they are what is given.
    fn output(
        &self,
        b: &mut Builder<'_>,
        input: [u64; 2],
        is_row: bool,
    ) -> Result<([u64; 2], Option<[f64; 2]>), Mistake> {
        let factors = match (self.size.as_deref(), self.scale_factor.as_deref()) {
            (None, None) => {
                let text = "needs a factor or a size: `Upsample(2)` or `Upsample(size = (32, 48))`";
                return Err(Mistake::new(text));
            }
            (Some(size), Some(factors)) => {
                b.report(Mistake::of("size", "is given a size and a factor; leave one of them out"));
                let size = of_axes(b, "size", size, is_row, 1);
                match b.either(Some(factors), None) {
                    Some(factors) => factors,
                    None => return Ok((size, None)),
                }
            }
            (Some(size), None) => return Ok((of_axes(b, "size", size, is_row, 1), None)),
            (None, Some(factors)) => factors,
        };
        let of_axes = of_axes(b, "scale_factor", factors, is_row, 1.0);
        let output = [0, 1].map(|axis| (input[axis] as f64 * of_axes[axis]) as u64);
        if output.contains(&0) {
            let [height, width] = input;
            let all = if is_row { format!("{width} elements") } else { format!("{height}x{width} input") };
            let given = if let [factor] = factors { format!("{factor}") } else { list(factors) };
            let text = format!("leaves nothing of its {all} with `scale_factor = {given}`; use a larger factor");
            return Err(Mistake::of("scale_factor", text));
        }
        Ok((output, Some(of_axes)))
    }

    /// How what lies between elements is found. Modes say for what they are, as in PyTorch.
    fn interpolation(&self, b: &mut Builder<'_>, is_row: bool) -> Interpolation {
        let (name, interpolation) = MODES[self.mode];
        match (name, is_row) {
            ("linear", false) => {
                b.report(Mistake::of(
                    "mode",
                    "has `mode = \"linear\"`, which is for signals; for maps it is \"bilinear\"",
                ));
            }
            ("bilinear" | "bicubic", true) => {
                let text = format!("has `mode = {name:?}`, which is for maps; for signals there is \"linear\"");
                b.report(Mistake::of("mode", text));
            }
            ("nearest", _) if self.align_corners => {
                let text = "has `align_corners` with the nearest elements, which have none to align; leave it out, or \
                            write `mode = \"bilinear\"`";
                b.report(Mistake::of("align_corners", text));
            }
            _ => {}
        }
        interpolation
    }
}

/// What is written for the height and the width. A signal is a row, whose height stays.
fn of_axes<T: Copy>(b: &mut Builder<'_>, name: &'static str, written: &[T], is_row: bool, stays: T) -> [T; 2] {
    let [first, last] = [written.first(), written.last()].map(|number| number.copied().unwrap_or(stays));
    if !is_row {
        return [first, last];
    }
    if written.len() > 1 {
        b.report(Mistake::of(
            name,
            format!("works on a signal [C, L], which has one length; write one number for `{name}`"),
        ));
    }
    [stays, last]
}

/// How often rows and columns are repeated where they are: by whole factors, or to sizes that PyTorch too divides without rounding.
fn repetitions(input: [u64; 2], output: [u64; 2], factors: Option<[f64; 2]>) -> Option<[u64; 2]> {
    let axis = |axis: usize| match factors {
        Some(factors) => (factors[axis] == (factors[axis] as u64) as f64).then_some(factors[axis] as u64),
        None => {
            let times = output[axis] / input[axis].max(1);
            (times.is_power_of_two() && times.checked_mul(input[axis]) == Some(output[axis])).then_some(times)
        }
    };
    Some([axis(0)?, axis(1)?])
}

/// Where in the input the first element of the output is along an axis, and how far apart its elements are there: PyTorch's
/// arithmetic, which copies where the sizes are the same, whatever the factor, unless it goes through four elements.
fn places(
    interpolation: Interpolation,
    align_corners: bool,
    [input, output]: [u64; 2],
    factor: Option<f64>,
) -> [f64; 2] {
    let sizes = [input, output].map(|size| size as f64);
    if align_corners {
        return [0.0, if output > 1 { (sizes[0] - 1.0) / (sizes[1] - 1.0) } else { 0.0 }];
    }
    let is_nearest = interpolation == Interpolation::Nearest;
    let step = match factor {
        Some(_) if input == output && interpolation != Interpolation::Cubic => 1.0,
        Some(_) if is_nearest && input.checked_mul(2) == Some(output) => 0.5,
        Some(factor) => 1.0 / factor,
        None => sizes[0] / sizes[1],
    };
    [if is_nearest { 0.0 } else { step / 2.0 - 0.5 }, step]
}
