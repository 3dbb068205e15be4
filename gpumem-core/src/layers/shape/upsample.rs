use crate::layers::Layer;
use crate::layers::arguments::{Argument, Arguments, list, numbers};
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::{Interpolate, Interpolation, Resize};
use crate::shape::Shape;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// `Upsample(scale_factor)` or `Upsample(size = (height, width))`: resizes a map, a signal or a volume, up or down. Factor and size are one
/// number, a pair or, for volumes, three `(depth, height, width)`; factors may have fractions.
///
/// * Options: `size`, in place of a factor; `mode = "nearest"`, `"nearest-exact"`, or `"bilinear"` and `"bicubic"` for maps, `"linear"` for signals and
///   `"trilinear"` for volumes; `align_corners = false`.
/// * Input `[C, H, W]`, output `[C, H', W']` with `(H', W') = size`, or `H' = floor(H * scale_factor)` and `W'` likewise. Input `[C, L]`,
///   output `[C, L']`. Input `[C, D, H, W]`, output `[C, D', H', W']`: first the depth changes, then height and width.
/// * Nearest elements by a whole factor are repeated rows and columns. Otherwise row `o` of the output is at `(o + 0.5) * step - 0.5` in
///   the input, where `step` is 1 over the factor, or `H / H'` for a size; nearest elements are at `floor(o * step)`, and with
///   `"nearest-exact"` at `floor((o + 0.5) * step)`. With `align_corners` the outermost elements of input and output coincide, and `step`
///   is `(H - 1) / (H' - 1)`, as in PyTorch.
/// * Parameters: none.
/// * Backward keeps nothing.
///
/// PyTorch: `torch.nn.Upsample(size, scale_factor, mode=mode, align_corners=align_corners)`.
#[derive(Clone, Debug)]
pub struct Upsample {
    /// The sizes of the output, one for each axis or one for all. `None` if a factor is given.
    size: Option<Vec<u64>>,
    /// The factors, one for each axis or one for all. `None` if sizes are given.
    scale_factor: Option<Vec<f64>>,
    mode: usize,
    align_corners: bool,
}

/// The mode that takes the input element nearest to the centre of each output element.
const EXACT: &str = "nearest-exact";

/// The modes by name, with their interpolation.
const MODES: [(&str, Interpolation); 6] = [
    ("nearest", Interpolation::Nearest),
    (EXACT, Interpolation::Nearest),
    ("bilinear", Interpolation::Linear),
    ("bicubic", Interpolation::Cubic),
    ("linear", Interpolation::Linear),
    ("trilinear", Interpolation::Linear),
];

/// The words for factors in messages.
const FACTORS: &str = "a number, a pair (height, width) or (depth, height, width)";

/// The words for sizes in messages.
const SIZES: &str = "a whole number, a pair (height, width) or (depth, height, width)";

/// Returns up to three numbers. `None` if the argument is no such value.
fn few(value: &Argument) -> Option<Vec<f64>> {
    numbers(value).filter(|numbers| numbers.len() <= 3)
}

/// Returns up to three whole numbers. `None` if the argument is no such value.
fn lengths(value: &Argument) -> Option<Vec<u64>> {
    let whole = |number: f64| (number >= 0.0 && number == number as u64 as f64).then_some(number as u64);
    match value {
        Argument::Integer(length) => Some([*length].to_vec()),
        Argument::Pair(pair) => Some(pair.to_vec()),
        Argument::Numbers(numbers) if numbers.len() == 3 => numbers.iter().copied().map(whole).collect(),
        _ => None,
    }
}

/// An axis with another length.
#[derive(Clone, Copy, Debug)]
struct Axis {
    input: u64,
    output: u64,
    /// The factor. `None` if a size is given.
    factor: Option<f64>,
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
            size: from.option("size").take_if_any(SIZES, lengths, ("at least 1", at_least_1), sizes),
            mode: from.option("mode").choice(&MODES.map(|(name, _)| name)),
            align_corners: from.option("align_corners").flag(false),
        }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        match x[0].shape.rank() {
            2 => b.on_row(x[0], |b, row, [channels, _, length]| {
                let interpolation = self.interpolation(b, 1);
                let [axis] = self.axes(b, [length])?;
                self.on(b, row, channels, [Axis::left(1), axis], interpolation)
            }),
            4 => self.on_volume(b, x[0]),
            _ => {
                let [channels, height, width] = x[0].feature_map()?;
                let interpolation = self.interpolation(b, 2);
                let axes = self.axes(b, [height, width])?;
                self.on(b, x[0], channels, axes, interpolation)
            }
        }
    }
}

impl Upsample {
    /// Resizes a volume: first the depth, then each plane.
    fn on_volume(&self, b: &mut Builder<'_>, x: Value) -> Result<Value, Mistake> {
        let [channels, depth, height, width] = x.volume()?;
        let interpolation = self.interpolation(b, 3);
        let [planes, rows, columns] = self.axes(b, [depth, height, width])?;
        let mut y = x;
        if planes.output != depth {
            let each = height.saturating_mul(width);
            y = b.view(y, Shape::new(&[channels, depth, each]));
            y = self.on(b, y, channels, [planes, Axis::left(each)], interpolation)?;
        }
        let maps = channels.saturating_mul(planes.output);
        y = b.view(y, Shape::new(&[maps, height, width]));
        y = self.on(b, y, maps, [rows, columns], interpolation)?;
        Ok(b.view(y, Shape::new(&[channels, planes.output, rows.output, columns.output])))
    }

    /// Resizes the rows and columns of maps.
    fn on(
        &self,
        b: &mut Builder<'_>,
        x: Value,
        channels: u64,
        axes: [Axis; 2],
        interpolation: Interpolation,
    ) -> Result<Value, Mistake> {
        let is_nearest = interpolation == Interpolation::Nearest;
        let [input, output] = [axes.map(|axis| axis.input), axes.map(|axis| axis.output)];
        if let ([Some(rows), Some(columns)], true) = (axes.map(Axis::repetitions), is_nearest) {
            return b.op(Resize { channels, scale_factor: [rows, columns], input }, &[x]);
        }
        let is_exact = MODES[self.mode].0 == EXACT;
        let places = axes.map(|axis| match is_exact {
            true => axis.middles(),
            false => axis.places(interpolation, self.align_corners && !is_nearest),
        });
        let [start, step] = [0, 1].map(|which| places.map(|place| place[which]));
        b.op(Interpolate { channels, interpolation, input, output, start, step }, &[x])
    }

    /// Returns the new lengths of these axes.
    fn axes<const N: usize>(&self, b: &mut Builder<'_>, input: [u64; N]) -> Result<[Axis; N], Mistake> {
        let sized = |output: [u64; N]| {
            core::array::from_fn(|axis| Axis { input: input[axis], output: output[axis], factor: None })
        };
        let factors = match (self.size.as_deref(), self.scale_factor.as_deref()) {
            (None, None) => {
                let text = "needs a factor or a size: `Upsample(2)` or `Upsample(size = (32, 48))`";
                return Err(Mistake::new(text));
            }
            (Some(size), Some(factors)) => {
                b.report(Mistake::of("size", "is given a size and a factor; leave one of them out"));
                let size = of_axes(b, "size", size, 1);
                match b.either(Some(factors), None) {
                    Some(factors) => factors,
                    None => return Ok(sized(size)),
                }
            }
            (Some(size), None) => return Ok(sized(of_axes(b, "size", size, 1))),
            (None, Some(factors)) => factors,
        };
        let of_axes: [f64; N] = of_axes(b, "scale_factor", factors, 1.0);
        let axes: [Axis; N] = core::array::from_fn(|axis| {
            let (input, factor) = (input[axis], of_axes[axis]);
            Axis { input, output: (input as f64 * factor) as u64, factor: Some(factor) }
        });
        if axes.iter().any(|axis| axis.output == 0) {
            let sizes: Vec<String> = input.iter().map(|size| format!("{size}")).collect();
            let all = if N == 1 { format!("{} elements", sizes[0]) } else { format!("{} input", sizes.join("x")) };
            let given = if let [factor] = factors { format!("{factor}") } else { list(factors) };
            let text = format!("leaves nothing of its {all} with `scale_factor = {given}`; use a larger factor");
            return Err(Mistake::of("scale_factor", text));
        }
        Ok(axes)
    }

    /// Returns the interpolation of the mode. Reports a mistake if the mode is for another number of axes, as in PyTorch.
    fn interpolation(&self, b: &mut Builder<'_>, axes: usize) -> Interpolation {
        let (name, interpolation) = MODES[self.mode];
        let of = match name {
            "linear" => Some(1),
            "bilinear" | "bicubic" => Some(2),
            "trilinear" => Some(3),
            _ => None,
        };
        if let Some(of) = of.filter(|&of| of != axes) {
            let [meant, given] = [of, axes].map(|axes| ["signals", "maps", "volumes"][axes - 1]);
            let instead = ["\"linear\"", "\"bilinear\"", "\"trilinear\""][axes - 1];
            let text = format!("has `mode = {name:?}`, which is for {meant}; for {given} it is {instead}");
            b.report(Mistake::of("mode", text));
        } else if of.is_none() && self.align_corners {
            let text = "has `align_corners` with the nearest elements, which have none to align; leave it out, or \
                        write `mode = \"bilinear\"`";
            b.report(Mistake::of("align_corners", text));
        }
        interpolation
    }
}

/// Returns a written value for each axis: one stands for all axes.
fn of_axes<T: Copy, const N: usize>(b: &mut Builder<'_>, name: &'static str, written: &[T], default: T) -> [T; N] {
    if let Ok(all) = <[T; N]>::try_from(written) {
        return all;
    }
    if written.len() > 1 {
        let text = match N {
            1 => format!("works on a signal [C, L], which has one length; write one number for `{name}`"),
            2 => format!("works on a map [C, H, W]; write one number for `{name}`, or (height, width)"),
            _ => format!("works on a volume [C, D, H, W]; write one number for `{name}`, or (depth, height, width)"),
        };
        b.report(Mistake::of(name, text));
    }
    [written.last().copied().unwrap_or(default); N]
}

impl Axis {
    /// Returns an axis that keeps its length.
    fn left(length: u64) -> Axis {
        Axis { input: length, output: length, factor: Some(1.0) }
    }

    /// Returns how often each element is repeated: the factor if it is whole, or the quotient of sizes if PyTorch too divides them without
    /// rounding. `None` otherwise.
    fn repetitions(self) -> Option<u64> {
        match self.factor {
            Some(factor) => (factor == (factor as u64) as f64).then_some(factor as u64),
            None => {
                let times = self.output / self.input.max(1);
                (times.is_power_of_two() && times.checked_mul(self.input) == Some(self.output)).then_some(times)
            }
        }
    }

    /// Returns the first place and the step of nearest elements of centres, by PyTorch's arithmetic.
    fn middles(self) -> [f64; 2] {
        let step = self.factor.map_or(self.input as f64 / self.output as f64, |factor| 1.0 / factor);
        [step / 2.0, step]
    }

    /// Returns the position of the output's first element in the input, and the distance between output elements there. It is PyTorch's
    /// arithmetic, which copies if both sizes are equal, whatever the factor, unless the interpolation is cubic.
    fn places(self, interpolation: Interpolation, align_corners: bool) -> [f64; 2] {
        let Axis { input, output, factor } = self;
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
}
