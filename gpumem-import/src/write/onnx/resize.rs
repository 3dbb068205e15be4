//! Changes of resolution, padding and cropping.

use super::layers::Made;
use super::{Writer, float, int, list, table, text};
use gpumem_core::graph::NodeId;
use gpumem_core::program::ops::{Beyond, Interpolate, Interpolation, Pad, Resize};

impl Writer<'_> {
    /// Repeats rows and columns.
    pub(super) fn resize(&mut self, op: &Resize, inputs: &[NodeId]) -> Option<Made> {
        let &input = inputs.first()?;
        let [h, w] = op.scale_factor;
        let x = self.as_maps(input, &[op.channels, op.input[0], op.input[1]]);
        let scales = self.numbers(&[h as f32, w as f32], &[2]);
        let attributes = vec![
            list("axes", [2, 3]),
            text("mode", "nearest"),
            text("coordinate_transformation_mode", "asymmetric"),
            text("nearest_mode", "floor"),
        ];
        let made = self.add("Resize", &[&x, "", &scales], attributes);
        Some((made, self.of_maps(input, vec![op.channels, op.input[0] * h, op.input[1] * w])))
    }

    pub(super) fn pad(&mut self, op: &Pad, inputs: &[NodeId]) -> Option<Made> {
        let &input = inputs.first()?;
        let x = self.as_maps(input, &[op.channels, op.input[0], op.input[1]]);
        let mode = match op.beyond {
            Beyond::Constant => "constant",
            Beyond::Reflect => "reflect",
            Beyond::Replicate => "edge",
            Beyond::Circular => "wrap",
        };
        let side = |axis: usize, end: usize| op.added[axis][end] as i64 - op.removed[axis][end] as i64;
        let pads = [0, 0, side(0, 0), side(1, 0), 0, 0, side(0, 1), side(1, 1)];
        if op.removed != [[0; 2]; 2] && op.beyond != Beyond::Constant {
            return None;
        }
        let (listed, value) = (self.integers(&pads), self.number(op.value));
        let made = self.add("Pad", &[&x, &listed, &value], vec![text("mode", mode)]);
        let [height, width] = op.sides();
        Some((made, self.of_maps(input, vec![op.channels, height, width])))
    }

    pub(super) fn interpolate(&mut self, op: &Interpolate, inputs: &[NodeId]) -> Option<Made> {
        let &input = inputs.first()?;
        let x = self.as_maps(input, &[op.channels, op.input[0], op.input[1]]);
        let shape = self.of_maps(input, vec![op.channels, op.output[0], op.output[1]]);
        let mode = match transformation(op) {
            Some(mode) => mode,
            None if op.interpolation == Interpolation::Nearest => return Some((self.picked(x, op), shape)),
            None => {
                (0..2).try_for_each(|axis| table(&[op.input[axis], op.output[axis]]).map(|_| ()))?;
                return Some((self.weighted(x, op), shape));
            }
        };
        let kind = match op.interpolation {
            Interpolation::Nearest => "nearest",
            Interpolation::Linear => "linear",
            Interpolation::Cubic => "cubic",
        };
        let mut attributes =
            vec![list("axes", [2, 3]), text("mode", kind), text("coordinate_transformation_mode", mode)];
        match (op.interpolation, mode) {
            (Interpolation::Nearest, "asymmetric") => attributes.push(text("nearest_mode", "floor")),
            (Interpolation::Nearest, _) => attributes.push(text("nearest_mode", "round_prefer_ceil")),
            (Interpolation::Cubic, _) => attributes.push(float("cubic_coeff_a", -0.75)),
            _ => {}
        }
        let sizes = self.integers(&super::ints(op.output));
        Some((self.add("Resize", &[&x, "", "", &sizes], attributes), shape))
    }

    /// Picks the nearest rows and columns at steps that do not follow from the sizes.
    fn picked(&mut self, mut x: String, op: &Interpolate) -> String {
        for axis in 0..2 {
            let (input, output, start, step) = (op.input[axis], op.output[axis], op.start[axis], op.step[axis]);
            if input == output && step == 1.0 {
                continue;
            }
            let middle = if start > 0.0 { 0.5 } else { 0.0 };
            let place = |at: u64| (((at as f32 + middle) * step as f32).floor() as i64).clamp(0, input as i64 - 1);
            let name = format!("/nearest({input},{output},{middle},{step})");
            let places = self.indices(name, &[output], || (0..output).map(place).collect());
            x = self.add("Gather", &[&x, &places], vec![int("axis", axis as i64 + 2)]);
        }
        x
    }

    /// Writes an interpolation at steps that do not follow from the sizes: products with matrices of its weights.
    fn weighted(&mut self, mut x: String, op: &Interpolate) -> String {
        for axis in 0..2 {
            let (input, output) = (op.input[axis], op.output[axis]);
            let own = (op.interpolation, op.start[axis], op.step[axis]);
            if input == output && own.1 == 0.0 && own.2 == 1.0 {
                continue;
            }
            let rows = || (0..output).flat_map(|at| weights(op, axis, at)).collect();
            let matrix =
                self.constant(format!("/weights({input},{output},{own:?})").replace(' ', ""), &[output, input], rows);
            x = self.along(x, axis, 2, &matrix);
        }
        x
    }
}

/// Returns ONNX's name of the positions of an interpolation between its sizes. `None` if it has other positions.
fn transformation(op: &Interpolate) -> Option<&'static str> {
    let all = |test: &dyn Fn(usize) -> bool| (0..2).all(test);
    let is_near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs().max(1.0);
    let share = |axis: usize| op.input[axis] as f64 / op.output[axis] as f64;
    let is_share = |axis: usize| is_near(op.step[axis], share(axis));
    let corners = |axis: usize| {
        let step = (op.input[axis] as f64 - 1.0) / (op.output[axis] as f64 - 1.0).max(1.0);
        is_near(op.start[axis], 0.0) && (is_near(op.step[axis], step) || op.output[axis] == 1)
    };
    let centred = |axis: usize| is_share(axis) && is_near(op.start[axis], 0.5 * op.step[axis] - 0.5);
    match op.interpolation {
        // A position on the edge of an element is rounded by one last bit, for which ONNX has no rule.
        Interpolation::Nearest if all(&|axis| is_whole(share(axis)) && is_share(axis) && op.start[axis] == 0.0) => {
            Some("asymmetric")
        }
        Interpolation::Nearest => None,
        _ if all(&centred) => Some("half_pixel"),
        _ if all(&corners) => Some("align_corners"),
        _ => None,
    }
}

/// True if a share or its inverse is a whole number.
fn is_whole(share: f64) -> bool {
    share.fract() == 0.0 || share.recip().fract() == 0.0
}

/// Returns the weight of each element of the input for one of the output.
fn weights(op: &Interpolate, axis: usize, at: u64) -> Vec<f32> {
    let input = usize::try_from(op.input[axis]).unwrap_or(0);
    let (start, step) = (op.start[axis], op.step[axis]);
    let mut row = vec![0.0f32; input];
    let mut add = |place: f64, weight: f64| {
        if let Some(cell) = row.get_mut(place.clamp(0.0, input as f64 - 1.0) as usize) {
            *cell += weight as f32;
        }
    };
    let place = start + at as f64 * step;
    match op.interpolation {
        Interpolation::Nearest => add(place.floor(), 1.0),
        Interpolation::Linear => {
            let place = place.max(0.0);
            let rest = place - place.floor();
            add(place.floor(), 1.0 - rest);
            add(place.floor() + 1.0, rest);
        }
        Interpolation::Cubic => {
            const A: f64 = -0.75;
            let near = |distance: f64| ((A + 2.0) * distance - (A + 3.0)) * distance * distance + 1.0;
            let far = |distance: f64| ((A * distance - 5.0 * A) * distance + 8.0 * A) * distance - 4.0 * A;
            let rest = place - place.floor();
            let weights = [far(1.0 + rest), near(rest), near(1.0 - rest), far(2.0 - rest)];
            for (weight, after) in weights.into_iter().zip([-1.0, 0.0, 1.0, 2.0]) {
                add(place.floor() + after, weight);
            }
        }
    }
    row
}
