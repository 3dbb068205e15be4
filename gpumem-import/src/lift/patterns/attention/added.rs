//! Summands of the scores of an attention: masks that are numbers of the model, tables of relative positions, masks of the user's.

use super::scores::{Added, hides};
use super::{Sizes, bias};
use crate::fold::Origin;
use crate::lift::patterns::condition::{self, Looked};
use crate::lift::patterns::matching::number;
use crate::lift::view::{Plan, op};
use crate::lift::{HIDDEN, Layer, Lift, Literal};
use crate::model::{Dtype, ValueId};
use std::rc::Rc;

/// Summands of scores, as the language has them.
#[derive(Clone, Debug, Default)]
pub(super) struct Read {
    /// True if a step sees only steps up to its own index.
    pub(super) causal: bool,
    /// A step sees only keys that are less than so many steps away.
    pub(super) window: Option<u64>,
    branches: Vec<Branch>,
}

#[derive(Clone, Debug)]
enum Branch {
    /// A table of relative positions.
    Relative(bias::Relative),
    Known(Known),
    /// A row over keys, by a number for each token.
    Row(Rc<Looked>, Vec<f64>),
    /// Any other value.
    Value(ValueId),
}

/// A constant mask or bias.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Known {
    /// It changes nothing.
    Nothing,
    /// True for a lower triangle, and the width of a band.
    Band(bool, Option<u64>),
    /// Biases of heads that grow with the index of a key.
    Alibi,
    /// Windows of a map that was rolled: sizes of map, window and shift.
    Windows([[u64; 2]; 3]),
    /// Numbers of this shape.
    Numbers(Vec<u64>, Vec<f64>),
}

/// The most numbers that are written as a constant.
const MOST_NUMBERS: usize = 4096;

/// Reads all that is added. `None` if the language cannot say it.
pub(super) fn read(lift: &mut Lift<'_>, added: &[Added], sizes: &Sizes) -> Option<Read> {
    let mut read = Read::default();
    let mut left: Vec<Added> = added.to_vec();
    let mut looked = 0;
    while let Some(added) = left.pop() {
        looked += 1;
        if looked > 32 {
            return None;
        }
        let value = match added {
            Added::Numbers(value) | Added::Mask(value) | Added::Seen(value) | Added::Hidden(value) => value,
        };
        match (&lift.origins[value], added) {
            (Origin::Constant(_), _) => match known(lift, added, sizes)? {
                Known::Nothing => {}
                Known::Band(causal, window) => {
                    read.causal |= causal;
                    read.window = [read.window, window].into_iter().flatten().min();
                }
                _ if matches!(added, Added::Mask(_)) => return None,
                other => read.branches.push(Branch::Known(other)),
            },
            (Origin::Parameters, Added::Numbers(_)) => {
                match bias::relative(lift, value, [sizes.heads, sizes.steps, sizes.keys]) {
                    Some(relative) => read.branches.push(Branch::Relative(relative)),
                    None => match parts(lift, added, sizes) {
                        Some(parts) => left.extend(parts),
                        None => read.branches.push(Branch::Value(value)),
                    },
                }
            }
            (Origin::Sample, _) => match (row(lift, added, sizes), parts(lift, added, sizes)) {
                (Some((looked, numbers)), _) => read.branches.push(Branch::Row(looked, numbers)),
                (None, Some(parts)) => left.extend(parts),
                (None, None) if matches!(added, Added::Numbers(_)) => read.branches.push(Branch::Value(value)),
                _ => return None,
            },
            _ => return None,
        }
    }
    // They were found from the softmax back.
    read.branches.reverse();
    Some(read)
}

/// Returns the numbers of each token that are added to the scores of its key. `None` if it is no row over keys that tokens tell.
fn row(lift: &mut Lift<'_>, added: Added, sizes: &Sizes) -> Option<(Rc<Looked>, Vec<f64>)> {
    let (Added::Numbers(value) | Added::Mask(value) | Added::Seen(value) | Added::Hidden(value)) = added;
    let looked = condition::looked_up(lift, value)?;
    let hide = |is_hidden: bool| if is_hidden { -HIDDEN } else { 0.0 };
    let one = |&number: &f64| match added {
        Added::Seen(_) => Some(hide(number == 0.0)),
        Added::Hidden(_) => Some(hide(number != 0.0)),
        _ if number == 0.0 || hides(number) => Some(hide(hides(number))),
        Added::Numbers(_) => Some(number).filter(|number| number.is_finite()),
        Added::Mask(_) => None,
    };
    let numbers: Vec<f64> = looked.numbers.iter().map(one).collect::<Option<_>>()?;
    // A mask of zeros and ones hides the keys of zeros, even if nothing else tells that it is one.
    let is_known = looked.is_complete || numbers == [-HIDDEN, 0.0];
    let is_row = sizes.axes.is_empty() && looked.row(lift, sizes.keys).is_some();
    (is_known && is_row).then_some((looked, numbers))
}

/// Returns the summands of a bias, if it is a sum that is only broadcast afterwards, or the masks that a mask consists of.
fn parts(lift: &Lift<'_>, added: Added, sizes: &Sizes) -> Option<Vec<Added>> {
    let (Added::Numbers(value) | Added::Mask(value) | Added::Seen(value) | Added::Hidden(value)) = added;
    let as_before = |value: ValueId| match added {
        Added::Numbers(_) => Added::Numbers(value),
        Added::Mask(_) => Added::Mask(value),
        Added::Seen(_) => Added::Seen(value),
        Added::Hidden(_) => Added::Hidden(value),
    };
    let (_, node) = lift.maker(value)?;
    let is_matrix = |value: ValueId| lift.sample(value).ends_with(&[sizes.steps, sizes.keys]);
    let is_truth = lift.model.values[value].dtype == Dtype::Bool;
    match (op(node), added) {
        ("add", Added::Numbers(_)) if node.argument("alpha").is_none() => {
            let (left, right) = (node.tensor("self")?, node.tensor("other")?);
            let is_float = |value: ValueId| lift.model.values[value].dtype.is_float();
            (is_matrix(value) && is_float(left) && is_float(right))
                .then(|| vec![Added::Numbers(left), Added::Numbers(right)])
        }
        ("where", Added::Numbers(_)) => {
            let hides = |name: &str| node.argument(name).and_then(|argument| number(lift, argument)).is_some_and(hides);
            let condition = node.tensor("condition").filter(|_| is_matrix(value))?;
            // Zeros elsewhere add nothing.
            let rest = |name: &str| match node.argument(name).and_then(|argument| number(lift, argument)) {
                Some(0.0) => Some(None),
                Some(_) => None,
                None => node.tensor(name).map(|value| Some(Added::Numbers(value))),
            };
            let (rest, mask) = match (hides("self"), hides("other")) {
                (false, true) => (rest("self")?, Added::Seen(condition)),
                (true, false) => (rest("other")?, Added::Hidden(condition)),
                _ => return None,
            };
            Some(rest.into_iter().chain([mask]).collect())
        }
        ("masked_fill", Added::Numbers(_))
            if number(lift, node.argument("value")?).is_some_and(hides) && is_matrix(value) =>
        {
            Some(vec![Added::Numbers(node.tensor("self")?), Added::Hidden(node.tensor("mask")?)])
        }
        ("__and__" | "bitwise_and" | "logical_and", Added::Seen(_))
        | ("__or__" | "bitwise_or" | "logical_or", Added::Hidden(_))
            if is_truth =>
        {
            Some(vec![as_before(node.tensor("self")?), as_before(node.tensor("other")?)])
        }
        ("bitwise_not" | "logical_not", Added::Seen(_)) if is_truth => Some(vec![Added::Hidden(node.tensor("self")?)]),
        ("bitwise_not" | "logical_not", Added::Hidden(_)) if is_truth => Some(vec![Added::Seen(node.tensor("self")?)]),
        ("contiguous" | "clone" | "to" | "expand" | "type_as", _) => {
            let input = node.tensors().next()?;
            // Only the batch or an axis of one element is repeated.
            let shape =
                |value: ValueId| lift.sample(value).into_iter().skip_while(|size| *size == 1).collect::<Vec<u64>>();
            let is_float = |value: ValueId| lift.model.values[value].dtype.is_float();
            (shape(input) == shape(value) && is_float(input) == is_float(value)).then(|| vec![as_before(input)])
        }
        _ => None,
    }
}

/// Returns what a constant mask does.
fn known(lift: &mut Lift<'_>, added: Added, sizes: &Sizes) -> Option<Known> {
    let key = (added, sizes.heads, sizes.steps, sizes.keys);
    if let Some(known) = lift.masks.get(&key) {
        return known.clone();
    }
    let known = looked_at(lift, added, sizes);
    lift.masks.insert(key, known.clone());
    known
}

fn looked_at(lift: &Lift<'_>, added: Added, sizes: &Sizes) -> Option<Known> {
    let (Added::Numbers(value) | Added::Mask(value) | Added::Seen(value) | Added::Hidden(value)) = added;
    let tensor = lift.origins[value].numbers()?;
    let (shape, mut numbers) = lift.shared_tensor(value, tensor).ok()?;
    if let Added::Seen(_) | Added::Hidden(_) = added {
        let is_hidden = |number: f64| (number != 0.0) != matches!(added, Added::Seen(_));
        numbers.iter_mut().for_each(|number| *number = if is_hidden(*number) { f64::NEG_INFINITY } else { 0.0 });
    }
    if numbers.iter().all(|number| *number == 0.0) {
        return Some(Known::Nothing);
    }
    let Sizes { heads, steps, keys, .. } = *sizes;
    let matrix = steps.checked_mul(keys)? as usize;
    if shape.ends_with(&[steps, keys]) && matrix > 0 {
        let first = numbers.get(..matrix)?;
        let is_one = numbers.chunks(matrix).all(|other| other == first);
        if is_one && let Some(known) = band(first, keys as usize) {
            return Some(known);
        }
        if let Some(known) = windows(&shape, &numbers, steps) {
            return Some(known);
        }
        if is_one && first.len() <= MOST_NUMBERS {
            return Some(Known::Numbers(vec![steps, keys], first.to_vec()));
        }
    }
    if is_alibi(&shape, &numbers, [heads, steps, keys]) {
        return Some(Known::Alibi);
    }
    let shape: Vec<u64> = shape.iter().copied().skip_while(|size| *size == 1).collect();
    (numbers.len() <= MOST_NUMBERS && !shape.is_empty()).then_some(Known::Numbers(shape, numbers))
}

/// Returns the band that a mask leaves. `None` if it is none.
fn band(mask: &[f64], keys: usize) -> Option<Known> {
    if !mask.iter().all(|&number| number == 0.0 || hides(number)) {
        return None;
    }
    let seen = |&(at, number): &(usize, &f64)| (*number == 0.0).then(|| (at / keys, at % keys));
    let pairs = || mask.iter().enumerate().filter_map(|pair| seen(&pair));
    let causal = pairs().all(|(query, key)| key <= query);
    let farthest = pairs().map(|(query, key)| query.abs_diff(key)).max()?;
    let is_band = mask.iter().enumerate().all(|(at, &number)| {
        let (query, key) = (at / keys, at % keys);
        (number == 0.0) == (!(causal && key > query) && query.abs_diff(key) <= farthest)
    });
    let queries = mask.len() / keys;
    // A band that reaches all that there is hides nothing.
    let reaches_all = farthest + 1 >= if causal { queries } else { queries.max(keys) };
    is_band.then_some(Known::Band(causal, (!reaches_all).then_some(farthest as u64 + 1)))
}

/// Returns map, window and shift of a mask for windows of a rolled map. `None` if it is another mask.
fn windows(shape: &[u64], numbers: &[f64], steps: u64) -> Option<Known> {
    let count: u64 = shape[..shape.len() - 2].iter().product();
    if !numbers.iter().all(|&number| number == 0.0 || number == -100.0) || !(2..=1 << 16).contains(&count) {
        return None;
    }
    let sides =
        |count: u64| (1..=count).filter(move |side| count.is_multiple_of(*side)).map(move |side| [side, count / side]);
    // Windows are square in all models that are known, so those are tried first.
    let mut found = Vec::new();
    for window in sides(steps) {
        for grid in sides(count) {
            found.push((window[0].abs_diff(window[1]) + grid[0].abs_diff(grid[1]), window, grid));
        }
    }
    found.sort();
    found.into_iter().take(64).find_map(|(_, window, grid)| {
        let size = [grid[0] * window[0], grid[1] * window[1]];
        let shifts = |axis: usize| (0..window[axis]).filter(move |shift| *shift == 0 || *shift == window[axis] / 2);
        let fits = |shift: [u64; 2]| is_windows(numbers, [size, window, shift]);
        shifts(0)
            .flat_map(|down| shifts(1).map(move |across| [down, across]))
            .find(|shift| fits(*shift))
            .map(|shift| Known::Windows([size, window, shift]))
    })
}

fn is_windows(numbers: &[f64], [size, window, shift]: [[u64; 2]; 3]) -> bool {
    let region = |axis: usize, position: u64| match shift[axis] {
        0 => 0,
        _ if position < size[axis] - window[axis] => 0,
        _ if position < size[axis] - shift[axis] => 1,
        _ => 2,
    };
    let across = size[1] / window[1];
    let steps = window[0] * window[1];
    let place = |index: u64, step: u64| {
        let row = index / across * window[0] + step / window[1];
        let column = index % across * window[1] + step % window[1];
        (region(0, row), region(1, column))
    };
    numbers.iter().enumerate().all(|(at, &number)| {
        let (pair, index) = (at as u64 % (steps * steps), at as u64 / (steps * steps));
        (number == 0.0) == (place(index, pair / steps) == place(index, pair % steps))
    })
}

/// True if numbers are those of attention with linear biases. A number that a whole row has in common changes no weight.
fn is_alibi(shape: &[u64], numbers: &[f64], [heads, steps, keys]: [u64; 3]) -> bool {
    let [front @ .., rows, columns] = shape else { return false };
    let count: u64 = front.iter().product();
    if count != heads || *columns != keys || steps != keys || (*rows != 1 && *rows != steps) {
        return false;
    }
    let slopes = slopes(heads);
    let per_head = (rows * columns) as usize;
    numbers.chunks(per_head).zip(slopes).all(|(head, slope)| {
        head.chunks(*columns as usize).all(|row| {
            row.iter().enumerate().all(|(key, number)| {
                let expected = slope * key as f64;
                (number - row[0] - expected).abs() <= 1e-6 * (1.0 + expected)
            })
        })
    })
}

fn slopes(heads: u64) -> Vec<f64> {
    let near = 1u64 << heads.max(1).ilog2();
    let slope = |count: u64, index: u64| 2f64.powf(-8.0 * index as f64 / count as f64);
    let first = (1..=near).map(|index| slope(near, index));
    first.chain((0..heads - near).map(|index| slope(2 * near, 2 * index + 1))).collect()
}

/// Writes the last branch of an attention. Nothing if nothing is added; `None` if it does not fit.
pub(super) fn write(plan: &mut Plan<'_, '_>, read: &Read, sizes: &Sizes, rows: ValueId) -> Option<Option<ValueId>> {
    let mut values = Vec::new();
    for branch in &read.branches {
        values.push(match branch {
            Branch::Relative(relative) => relative.write(plan, rows),
            Branch::Known(known) => known.write(plan, sizes, rows)?,
            Branch::Row(looked, numbers) => {
                let made = looked.write_once(plan, numbers)?;
                plan.reshape(made, &[1, sizes.keys])
            }
            Branch::Value(value) => {
                let shape = plan.lift.sample(*value);
                let own: Vec<u64> = shape.iter().copied().skip_while(|size| *size == 1).collect();
                let most = sizes.axes.len() + 3;
                let fits = !own.is_empty() && own.len() <= most && own.last() == Some(&sizes.keys);
                let shape = if own.len() < 2 { shape[shape.len().saturating_sub(2)..].to_vec() } else { own };
                fits.then(|| plan.reshape(*value, &shape))?
            }
        });
    }
    Some(match values[..] {
        [] => None,
        [only] => Some(only),
        _ => {
            let rank = values.iter().map(|&value| plan.lift.sample(value).len()).max().unwrap_or(2);
            let mut shape = vec![1; rank];
            for &value in &values {
                let own = plan.lift.sample(value);
                let shift = rank - own.len();
                own.iter().enumerate().for_each(|(axis, size)| shape[shift + axis] = shape[shift + axis].max(*size));
            }
            Some(plan.add(Layer::join("Add", values, 0), &shape))
        }
    })
}

impl Known {
    fn write(&self, plan: &mut Plan<'_, '_>, sizes: &Sizes, rows: ValueId) -> Option<ValueId> {
        let steps = sizes.steps;
        let pair = |[a, b]: [u64; 2]| Literal::sizes(&[a as i64, b as i64]);
        match self {
            Known::Nothing | Known::Band(..) => None,
            Known::Alibi => {
                Some(plan.add(Layer::new("AlibiBias", rows, 0).with(sizes.heads), &[sizes.heads, steps, steps]))
            }
            Known::Windows([size, window, shift]) => {
                let windows: u64 = size.iter().product::<u64>() / steps;
                // A layer of its own shape is needed: windows are the axis before the steps.
                if sizes.axes.last() != Some(&windows) {
                    return None;
                }
                let layer =
                    Layer::new("ShiftedWindowMask", rows, 0).with(pair(*size)).with(pair(*window)).with(pair(*shift));
                Some(plan.add(layer, &[windows, 1, steps, steps]))
            }
            Known::Numbers(shape, numbers) => {
                let layer = crate::lift::parameters::constant(&(shape.clone(), numbers.clone())).ok()?;
                Some(plan.add(layer, shape))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Known, band, is_alibi, is_windows, slopes, windows};

    fn mask(queries: usize, keys: usize, sees: impl Fn(usize, usize) -> bool) -> Vec<f64> {
        let hidden = f64::from(f32::MIN);
        (0..queries * keys).map(|at| if sees(at / keys, at % keys) { 0.0 } else { hidden }).collect()
    }

    #[test]
    fn masks_are_bands() {
        assert_eq!(band(&mask(6, 6, |q, k| k <= q), 6), Some(Known::Band(true, None)));
        assert_eq!(band(&mask(6, 6, |q, k| k <= q && q - k < 3), 6), Some(Known::Band(true, Some(3))));
        assert_eq!(band(&mask(6, 6, |q, k| q.abs_diff(k) < 2), 6), Some(Known::Band(false, Some(2))));
        // Queries that are later than keys, blocks, and a triangle the other way.
        assert_eq!(band(&mask(4, 6, |q, k| k <= q + 2), 6), None);
        assert_eq!(band(&mask(6, 6, |q, k| q / 3 == k / 3), 6), None);
        assert_eq!(band(&mask(6, 6, |q, k| k >= q), 6), None);
        assert_eq!(band(&[0.0, -100.0, 0.0, 0.0], 2), None);
    }

    /// Heads of 4 are not those of 3, which take every other slope of 4 in the end.
    #[test]
    fn slopes_are_told_apart() {
        let bias = |slopes: &[f64]| {
            slopes.iter().flat_map(|slope| (0..5).map(move |key| slope * (key as f64 - 4.0))).collect::<Vec<_>>()
        };
        assert!(is_alibi(&[4, 1, 5], &bias(&slopes(4)), [4, 5, 5]));
        assert!(is_alibi(&[3, 1, 5], &bias(&slopes(3)), [3, 5, 5]));
        assert!(!is_alibi(&[3, 1, 5], &bias(&slopes(4)[..3]), [3, 5, 5]));
        assert!(!is_alibi(&[4, 1, 5], &bias(&[0.25, 0.0625, 0.015625, 0.004]), [4, 5, 5]));
    }

    /// A map of 8 in windows of 4 that was rolled by 2, and one that was rolled along one axis.
    #[test]
    fn windows_of_a_rolled_map_are_found() {
        for sizes @ [size, window, shift] in [[[8, 8], [4, 4], [2, 2]], [[8, 4], [4, 4], [2, 0]]] {
            let region = |axis: usize, position: u64| match shift[axis] {
                0 => 0,
                _ if position < size[axis] - window[axis] => 0,
                _ if position < size[axis] - shift[axis] => 1,
                _ => 2,
            };
            let across = size[1] / 4;
            let count = size[0] / 4 * across;
            let place = |index: u64, step: u64| {
                (region(0, index / across * 4 + step / 4), region(1, index % across * 4 + step % 4))
            };
            let pairs = (0..count * 256).map(|at| (at / 256, at / 16 % 16, at % 16));
            let mut numbers: Vec<f64> = pairs
                .map(|(index, query, key)| if place(index, query) == place(index, key) { 0.0 } else { -100.0 })
                .collect();
            assert!(is_windows(&numbers, sizes));
            assert_eq!(windows(&[count, 16, 16], &numbers, 16), Some(Known::Windows(sizes)));
            numbers[1] = -100.0;
            assert_eq!(windows(&[count, 16, 16], &numbers, 16), None);
        }
    }
}
