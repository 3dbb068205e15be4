//! Pools, global pools and changes of resolution.

use super::{Call, Fault, Result, Translator, refuse};
use crate::model::{Argument, ValueId};

/// A window and its steps along the axes of an image.
pub(super) struct Window {
    pub(super) kernel: Vec<u64>,
    pub(super) stride: Vec<i64>,
    pub(super) dilation: Vec<i64>,
    /// Padding before and after, for each axis.
    pub(super) sides: Vec<(i64, i64)>,
    pub(super) rounds_up: bool,
}

impl Window {
    /// Reads the attributes of an operation with this kernel on axes of these sizes.
    pub(super) fn read(call: &Call<'_, '_>, kernel: &[u64], sizes: &[u64]) -> Result<Window> {
        let axes = kernel.len();
        let list = |name: &str| match call.ints(name) {
            Some(list) if list.len() == axes && list.iter().all(|&number| (1..1 << 31).contains(&number)) => Ok(list),
            Some(list) if !list.is_empty() => refuse(format!("its {name} are {list:?}")),
            _ => Ok(vec![1; axes]),
        };
        let (stride, dilation) = (list("strides")?, list("dilations")?);
        if kernel.iter().any(|&size| size == 0 || size >= 1 << 31) || sizes.len() != axes {
            return refuse("its kernel has other axes than the value, or is empty");
        }
        let mut sides = Vec::new();
        match call.text("auto_pad").unwrap_or("NOTSET") {
            "VALID" => sides = vec![(0, 0); axes],
            mode @ ("SAME_UPPER" | "SAME_LOWER") => {
                for axis in 0..axes {
                    let (size, step) = (sizes[axis] as i64, stride[axis]);
                    let span = (kernel[axis] as i64 - 1) * dilation[axis] + 1;
                    if size > 1 << 40 {
                        return refuse("its image is too large");
                    }
                    let total = (((size + step - 1) / step - 1) * step + span - size).max(0);
                    let (less, more) = (total / 2, total - total / 2);
                    sides.push(if mode == "SAME_UPPER" { (less, more) } else { (more, less) });
                }
            }
            _ => {
                let pads = call.ints("pads").filter(|pads| !pads.is_empty()).unwrap_or_else(|| vec![0; 2 * axes]);
                if pads.len() != 2 * axes || pads.iter().any(|pad| !(0..1 << 31).contains(pad)) {
                    return refuse(format!("its pads are {pads:?}"));
                }
                sides.extend((0..axes).map(|axis| (pads[axis], pads[axes + axis])));
            }
        }
        Ok(Window { kernel: kernel.to_vec(), stride, dilation, sides, rounds_up: call.int("ceil_mode", 0) != 0 })
    }

    /// Returns the sizes that a window leaves of an image.
    pub(super) fn outputs(&self, sizes: &[u64]) -> Result<Vec<u64>> {
        let axes = sizes.iter().enumerate().map(|(axis, &size)| {
            let (before, after) = self.sides[axis];
            let (size, stride) = (i128::from(size), i128::from(self.stride[axis]));
            let span = (i128::from(self.kernel[axis]) - 1) * i128::from(self.dilation[axis]) + 1;
            let whole = size + i128::from(before) + i128::from(after);
            let room = whole - span;
            if room < 0 {
                return refuse("its kernel is larger than the image");
            }
            let mut count = if self.rounds_up { (room + stride - 1) / stride } else { room / stride } + 1;
            // The last window begins inside of the image.
            if self.rounds_up && (count - 1) * stride >= size + i128::from(before) {
                count -= 1;
            }
            u64::try_from(count).map_err(|_| Fault("its image is empty".into()))
        });
        axes.collect()
    }

    /// Returns the padding that is equal at both ends. `None` if one end has more.
    pub(super) fn even(&self) -> Option<Vec<i64>> {
        self.sides.iter().map(|&(before, after)| (before == after).then_some(before)).collect()
    }
}

/// Returns integers as an argument.
pub(super) fn ints(numbers: impl IntoIterator<Item = i64>) -> Argument {
    Argument::Ints(numbers.into_iter().collect())
}

/// Returns sizes as an argument.
pub(super) fn sizes(numbers: &[u64]) -> Argument {
    ints(numbers.iter().map(|&number| number as i64))
}

impl Translator<'_> {
    /// Splits the shape of an image into the leading two sizes and those of its axes. Refuses values without axes.
    pub(super) fn image(&self, value: ValueId) -> Result<([u64; 2], Vec<u64>)> {
        match &self.dims(value)[..] {
            [batch, channels, axes @ ..] if (1..=3).contains(&axes.len()) => Ok(([*batch, *channels], axes.to_vec())),
            shape => refuse(format!("it reads images of 1, 2 or 3 axes, and this is {shape:?}")),
        }
    }

    /// Translates a pool or a change of resolution. `None` if it is another operation.
    pub(super) fn pool(&mut self, call: &Call<'_, '_>) -> Result<Option<ValueId>> {
        Ok(Some(match call.kind {
            "MaxPool" | "AveragePool" => {
                if call.has_output(1) {
                    return refuse("it returns where the maxima are");
                }
                self.windowed(call)?
            }
            "GlobalAveragePool" | "GlobalMaxPool" => {
                let value = call.tensor(0)?;
                let (outer, axes) = self.image(value)?;
                let kind = if call.kind == "GlobalMaxPool" { "max" } else { "avg" };
                let ones = vec![1; axes.len()];
                let arguments = [("self", Argument::Tensor(value)), ("output_size", sizes(&ones))];
                let shape = [&outer[..], &ones].concat();
                self.emit(&format!("adaptive_{kind}_pool{}d", axes.len()), &arguments, self.dtype(value), shape)?
            }
            "Resize" | "Upsample" => self.resize(call)?,
            _ => return Ok(None),
        }))
    }

    fn windowed(&mut self, call: &Call<'_, '_>) -> Result<ValueId> {
        let mut value = call.tensor(0)?;
        let (outer, axes) = self.image(value)?;
        let kernel = self.sizes_of(&call.ints("kernel_shape").unwrap_or_default())?;
        let mut window = Window::read(call, &kernel, &axes)?;
        let is_max = call.kind == "MaxPool";
        let counts = call.int("count_include_pad", 0) != 0;
        let outputs = window.outputs(&axes)?;
        if window.even().is_none() {
            if !is_max && !counts {
                return refuse("it averages with more padding at one end, which it does not count");
            }
            let sides: Vec<(i64, i64)> = [(0, 0); 2].into_iter().chain(window.sides.iter().copied()).collect();
            value = self.padded(value, &sides, "constant", if is_max { f64::NEG_INFINITY } else { 0.0 })?;
            window.sides = vec![(0, 0); axes.len()];
        }
        let padding = window.even().unwrap_or_default();
        let mut arguments = vec![
            ("self", Argument::Tensor(value)),
            ("kernel_size", sizes(&window.kernel)),
            ("stride", ints(window.stride)),
            ("padding", ints(padding)),
        ];
        if is_max {
            arguments.push(("dilation", ints(window.dilation)));
        } else if window.dilation.iter().any(|&dilation| dilation != 1) {
            return refuse("it averages with gaps");
        }
        arguments.push(("ceil_mode", Argument::Bool(window.rounds_up)));
        if !is_max {
            arguments.push(("count_include_pad", Argument::Bool(counts)));
        }
        let op = format!("{}_pool{}d", if is_max { "max" } else { "avg" }, axes.len());
        let dtype = self.dtype(value);
        self.emit(&op, &arguments, dtype, [&outer[..], &outputs].concat())
    }

    fn resize(&mut self, call: &Call<'_, '_>) -> Result<ValueId> {
        let value = call.tensor(0)?;
        let (outer, axes) = self.image(value)?;
        let rank = axes.len() + 2;
        let is_old = call.kind == "Upsample" || self.opset < 11;
        let listed =
            call.ints("axes").map(|axes| axes.into_iter().map(|dim| self.dim(dim, rank)).collect::<Result<Vec<_>>>());
        let listed = listed.unwrap_or_else(|| Ok((0..rank).collect()))?;
        let scales = match call.optional(if is_old { 1 } else { 2 }) {
            Some(scales) => self.numbers(scales).filter(|scales| !scales.is_empty()),
            None => call.floats("scales"),
        };
        let target = match call.optional(3) {
            Some(target) => Some(self.integers(target)?),
            None => None,
        };
        let at = |axis: usize| listed.iter().position(|&dim| dim == axis + 2);
        let mut outputs = Vec::new();
        for (axis, &size) in axes.iter().enumerate() {
            outputs.push(match (&scales, &target, at(axis)) {
                (_, _, None) => size,
                (_, Some(target), Some(place)) => self.sizes_of(target.get(place..place + 1).unwrap_or(&[-1]))?[0],
                (Some(scales), None, Some(place)) => {
                    let scale = scales.get(place).copied().unwrap_or(f64::NAN);
                    let size = (size as f64 * scale).floor();
                    if !(0.0..9e15).contains(&size) {
                        return refuse("its scale is none");
                    }
                    size as u64
                }
                (None, None, _) => {
                    return refuse("its size depends on data, and memory for it is not known before a run");
                }
            });
        }
        let place = call.text("coordinate_transformation_mode").unwrap_or("half_pixel");
        let op = match (call.text("mode").unwrap_or("nearest"), axes.len()) {
            ("nearest", axes) => {
                let is_exact = place == "half_pixel"
                    && call.text("nearest_mode").unwrap_or("round_prefer_floor").starts_with("round");
                format!("{}{axes}d", if is_exact { "_upsample_nearest_exact" } else { "upsample_nearest" })
            }
            ("linear", 1) => "upsample_linear1d".into(),
            ("linear", 2) => "upsample_bilinear2d".into(),
            ("linear", _) => "upsample_trilinear3d".into(),
            ("cubic", 2) => "upsample_bicubic2d".into(),
            (mode, axes) => return refuse(format!("it resizes {axes} axes by `{mode}`")),
        };
        let factors: Option<Vec<f64>> = scales.filter(|_| target.is_none()).map(|scales| {
            (0..axes.len()).map(|axis| at(axis).and_then(|place| scales.get(place).copied()).unwrap_or(1.0)).collect()
        });
        let mut arguments = vec![("input", Argument::Tensor(value))];
        match factors {
            Some(factors) => {
                arguments.extend([("output_size", Argument::None), ("scale_factors", Argument::Floats(factors))])
            }
            None => arguments.extend([("output_size", sizes(&outputs)), ("scale_factors", Argument::None)]),
        }
        if !op.contains("nearest") {
            arguments.insert(2, ("align_corners", Argument::Bool(place == "align_corners")));
        }
        let dtype = self.dtype(value);
        self.emit(&op, &arguments, dtype, [&outer[..], &outputs].concat())
    }
}
