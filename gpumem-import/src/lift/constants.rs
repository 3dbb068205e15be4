//! Constants: numbers in the source, sines of positions, and tables that are kept with the weights.

use super::shapes::{elements, sizes};
use super::{Layer, Lift, Literal, Result, refuse};
use crate::model::ValueId;

/// The most numbers that `Constant` takes.
const MOST_NUMBERS: usize = 4096;
/// The most numbers that are written as they are, even if some of them repeat.
const FEW_NUMBERS: usize = 16;
/// Changes of shape after which a value may be read together with a constant.
const RESHAPES: [&str; 6] = ["reshape", "view", "flatten", "permute", "transpose", "contiguous"];
/// The most changes of shape that are walked back.
const FEW_STEPS: usize = 6;
/// The most values that are looked at to find a map which has the size of a constant.
const FARTHEST: usize = 64;

/// A table of numbers that is too long to be written in source. It is a frozen parameter, whose numbers are written with the weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Its key: that of a buffer of the model, or one of its own.
    pub key: String,
    /// Its dimensions.
    pub shape: Vec<u64>,
    /// Its numbers in row order.
    pub numbers: Vec<f64>,
}

impl Lift<'_> {
    /// Returns the layer that makes a constant, with `shape` as the shape of a sample.
    pub(crate) fn constant(
        &mut self,
        index: usize,
        value: ValueId,
        shape: Vec<u64>,
        numbers: Vec<f64>,
    ) -> Result<Layer> {
        if let Ok(layer) = written(&(shape.clone(), numbers.clone()))
            && (numbers.len() <= FEW_NUMBERS
                || layer.arguments.iter().all(|argument| !matches!(argument, Literal::Word(_))))
        {
            return Ok(Layer { output: value, ..layer });
        }
        // Axes along which all numbers are equal are written once.
        let (narrow, fewer) = without_repetition(&shape, &numbers);
        if fewer.len() < numbers.len() && fewer.len() <= MOST_NUMBERS {
            let source = self.between(&narrow);
            let layer = written(&(narrow, fewer))?;
            self.add(index, Layer { output: source, ..layer });
            return Ok(Layer::new("Expand", source, value).with(sizes(&shape)));
        }
        if let Some(positions) = self.positions(value, &shape, &numbers) {
            return Ok(positions);
        }
        match written(&(shape.clone(), numbers.clone())) {
            Ok(layer) => Ok(Layer { output: value, ..layer }),
            Err(_) => Ok(self.table(value, shape, numbers)),
        }
    }

    /// Returns a frozen parameter for a table.
    fn table(&mut self, value: ValueId, shape: Vec<u64>, numbers: Vec<f64>) -> Layer {
        let key = match self.state(value) {
            Some(state) => state.key.clone(),
            None => {
                let maker = self.makers[value].map(|maker| &self.model.nodes[maker]);
                let path = maker.map_or("", |maker| maker.path());
                let name = &self.model.values[value].name;
                if path.is_empty() { name.clone() } else { format!("{path}.{name}") }
            }
        };
        let sizes: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
        let layer = Layer::source("Parameter", value).with(Literal::dims(&sizes)).flag("freeze", true);
        let layer = layer.key("", Some(&key));
        if self.tables.iter().all(|table| table.key != key) {
            self.tables.push(Table { key, shape, numbers });
        }
        layer
    }

    /// Returns `SinusoidalPositions` if the numbers are these, and a value of their length or size is found.
    fn positions(&mut self, value: ValueId, shape: &[u64], numbers: &[f64]) -> Option<Layer> {
        let dims: Vec<u64> = shape.iter().copied().filter(|&size| size != 1).collect();
        let (form, whole) = match dims[..] {
            [steps, width] => {
                (Form::find(Grid::Steps(steps), width, |at, feature| numbers[at * width as usize + feature])?, 2)
            }
            [width, height, across] => {
                let pixels = (height * across) as usize;
                let found =
                    Form::find(Grid::Map([height, across]), width, |at, feature| numbers[feature * pixels + at]);
                (found?, 3)
            }
            _ => return None,
        };
        if shape != dims {
            return None;
        }
        let partner = self.partner(value, &dims, whole)?;
        let sample = self.sample(partner);
        let width = if whole == 2 { sample.last() } else { sample.first() };
        Some(form.layer(partner, value, width != Some(&form.width)))
    }

    /// Returns the value with so many steps, or of this size, among those from which changes of shape make `value`.
    fn before_reshapes(&self, mut value: ValueId, dims: &[u64], whole: usize) -> Option<ValueId> {
        for _ in 0..FEW_STEPS {
            let fits = match (whole, &self.sample(value)[..]) {
                (2, [steps, _]) => *steps == dims[0],
                (3, [_, size @ ..]) => size == &dims[1..],
                _ => false,
            };
            if fits {
                return Some(self.resolve(value));
            }
            let node = &self.model.nodes[self.makers[value]?];
            value = node.tensors().next().filter(|_| RESHAPES.contains(&&node.op[..]))?;
        }
        None
    }

    /// Returns a value of samples that has so many steps, or a map of this size, near the readers of a constant.
    fn partner(&mut self, value: ValueId, dims: &[u64], whole: usize) -> Option<ValueId> {
        let mut near = vec![value];
        let mut at = 0;
        while let Some(&one) = near.get(at).filter(|_| at < FARTHEST) {
            for &reader in &self.readers[one] {
                let node = &self.model.nodes[reader];
                let others = node.tensors().filter(|&other| self.is_sample(other));
                if let Some(found) = others.filter_map(|other| self.before_reshapes(other, dims, whole)).next() {
                    return Some(found);
                }
                near.extend(node.outputs.iter().copied().filter(|&output| !self.is_sample(output)));
            }
            at += 1;
        }
        None
    }
}

/// Returns `Constant` with its numbers in the source. Refuses more numbers than it takes.
pub(crate) fn written((shape, numbers): &(Vec<u64>, Vec<f64>)) -> Result<Layer> {
    let layer = Layer::source("Constant", 0);
    match &numbers[..] {
        [first, rest @ ..] if rest.iter().all(|number| number == first) => {
            let layer = layer.with(*first);
            Ok(if numbers.len() == 1 { layer } else { layer.set("shape", sizes(shape)) })
        }
        numbers if numbers.len() <= MOST_NUMBERS => {
            let list: Vec<String> = numbers.iter().map(|number| format!("{number:?}")).collect();
            Ok(layer.with(Literal::Word(format!("[{}]", list.join(", ")))).set("shape", sizes(shape)))
        }
        numbers => refuse(format!(
            "it reads a constant of {} numbers, and `Constant` takes at most {MOST_NUMBERS}",
            numbers.len()
        )),
    }
}

/// Returns a tensor with one element along each axis on which its numbers do not depend.
fn without_repetition(shape: &[u64], numbers: &[f64]) -> (Vec<u64>, Vec<f64>) {
    let (mut shape, mut numbers) = (shape.to_vec(), numbers.to_vec());
    for dim in 0..shape.len() {
        let inner = elements(&shape[dim + 1..]) as usize;
        let size = shape[dim] as usize;
        if size < 2 || inner == 0 || inner > numbers.len() {
            continue;
        }
        let is_equal = numbers.chunks(inner * size).all(|rows| rows.chunks(inner).all(|row| row == &rows[..inner]));
        if is_equal {
            numbers = numbers.chunks(inner * size).flat_map(|rows| rows[..inner].to_vec()).collect();
            shape[dim] = 1;
        }
    }
    (shape, numbers)
}

/// The places whose positions a table has.
#[derive(Clone, Copy)]
enum Grid {
    Steps(u64),
    Map([u64; 2]),
}

/// The form of a table of sines and cosines.
struct Form {
    width: u64,
    rows_first: bool,
    interleaved: bool,
    parts: bool,
    shift: f64,
    base: f64,
}

impl Form {
    /// Finds the form of a table whose number of a place and a feature is `number`. `None` if it is another one.
    fn find(grid: Grid, width: u64, number: impl Fn(usize, usize) -> f64) -> Option<Form> {
        let is_map = matches!(grid, Grid::Map(_));
        if width == 0 || !width.is_multiple_of(if is_map { 4 } else { 2 }) {
            return None;
        }
        let flags = [false, true];
        for (rows_first, interleaved) in flags.into_iter().flat_map(|rows| flags.map(|pairs| (rows, pairs))) {
            for (parts, shift) in flags.into_iter().flat_map(|parts| [(parts, 0.0), (parts, 1.0)]) {
                if !is_map && (rows_first || parts) {
                    continue;
                }
                let mut form = Form { width, rows_first, interleaved, parts, shift, base: 10000.0 };
                if form.fits(grid, &number) {
                    return Some(form);
                }
                if let Some(base) = form.base_of(grid, &number) {
                    form.base = base;
                    if form.fits(grid, &number) {
                        return Some(form);
                    }
                }
            }
        }
        None
    }

    /// Returns the base for which the second place of a sequence has its lowest frequency.
    fn base_of(&self, grid: Grid, number: &impl Fn(usize, usize) -> f64) -> Option<f64> {
        let (Grid::Steps(2..), count) = (grid, self.width / 2) else { return None };
        let last = count.checked_sub(1).filter(|&last| last > 0)? as usize;
        let (sine, cosine) = if self.interleaved { (2 * last, 2 * last + 1) } else { (last, count as usize + last) };
        let frequency = number(1, sine).atan2(number(1, cosine));
        let base = frequency.powf(-(count as f64 - self.shift) / last as f64);
        // Frequencies in single precision tell three digits of it.
        let digits = 10f64.powf(base.log10().floor() - 2.0);
        (base.is_finite() && base >= 1.0).then(|| (base / digits).round() * digits)
    }

    fn fits(&self, grid: Grid, number: &impl Fn(usize, usize) -> f64) -> bool {
        let (height, across, axes) = match grid {
            Grid::Steps(steps) => (1, steps, 1),
            Grid::Map([height, across]) => (height, across, 2),
        };
        let each = self.width / axes;
        let count = each / 2;
        let position = |at: u64, of: u64| match self.parts {
            true => (at + 1) as f64 / (of as f64 + 1e-6) * std::f64::consts::TAU,
            false => at as f64,
        };
        let frequencies: Vec<f64> =
            (0..count).map(|index| self.base.powf(-(index as f64) / (count as f64 - self.shift))).collect();
        if self.shift >= count as f64 {
            return false;
        }
        (0..height * across).all(|at| {
            let (row, column) = (position(at / across, height), position(at % across, across));
            (0..self.width).all(|feature| {
                let (part, place) = (feature / each, feature % each);
                let here = if axes == 2 && (part == 0) == self.rows_first { row } else { column };
                let (index, is_cosine) = match self.interleaved {
                    true => (place / 2, place % 2 == 1),
                    false => (place % count, place >= count),
                };
                let angle = here * frequencies[index as usize];
                let expected = if is_cosine { angle.cos() } else { angle.sin() };
                // Frameworks compute frequencies and angles in single precision.
                (number(at as usize, feature as usize) - expected).abs() <= 1e-5 + 2e-6 * here.abs()
            })
        })
    }

    fn layer(&self, partner: ValueId, value: ValueId, is_other_width: bool) -> Layer {
        let layer = Layer::new("SinusoidalPositions", partner, value);
        let layer = if is_other_width { layer.with(self.width) } else { layer };
        layer
            .option("base", self.base, 10000.0)
            .option("shift", self.shift, 0.0)
            .flag("rows_first", self.rows_first)
            .flag("interleaved", self.interleaved)
            .flag("parts", self.parts)
    }
}
