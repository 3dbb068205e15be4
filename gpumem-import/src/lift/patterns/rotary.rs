//! Rotary positions: pairs of elements of a row that turn by angles, which are numbers of the model.
//!
//! The forms in which they are written are many (halves or neighbours, by slices, chunks, stacks, with rows before them that do not turn),
//! and all of them are sums of products of columns with tables. So the columns are followed, and the tables are compared with angles.

use crate::batch::index;
use crate::lift::view::{View, length, moved, op};
use crate::lift::{Arguments, Lift};
use crate::model::{Argument, Node, ValueId};
use std::collections::BTreeSet;

/// Rotary positions of a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Turn {
    /// The axis of a sample that is the time.
    pub(super) time: usize,
    pub(super) angles: Angles,
    /// The number of first steps that do not turn.
    pub(super) before: u64,
}

/// The angles by which elements turn.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Angles {
    /// The frequency of pair `i` is `base^(-2 i / dims)`.
    pub(crate) base: f64,
    /// The number of elements that turn, the first of each row.
    pub(crate) dims: u64,
    /// True if the elements of a pair are neighbours.
    pub(crate) interleaved: bool,
    /// Height and width of the map whose positions are the steps.
    pub(crate) size: Option<[u64; 2]>,
}

/// A product of a column, a sign and a column of a table.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Term {
    column: usize,
    is_negative: bool,
    factor: Option<Factor>,
}

/// A column of a table of numbers: one for each step.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Factor {
    table: ValueId,
    offset: u64,
    /// The distance from one step to the next.
    stride: u64,
    steps: u64,
}

/// A value whose columns are sums of products.
#[derive(Clone, Debug)]
struct Form {
    /// The columns, which are the elements of the last `tail` axes.
    columns: Vec<Vec<Term>>,
    tail: usize,
    /// The axis of time, once a table has said which it is.
    time: Option<usize>,
    /// The steps that these are: axis, first, and how many.
    range: Option<[u64; 3]>,
    before: u64,
}

/// The most numbers of a table that is compared.
const MOST_NUMBERS: u64 = 1 << 24;
/// The most operations of one rotation.
const MOST: usize = 48;

/// Returns the value that is turned, and how. `None` if the value is nothing that was turned.
pub(super) fn turned(lift: &mut Lift<'_>, value: ValueId) -> Option<(ValueId, Turn)> {
    // Everything may pass through several values, of which the first ones are within the rotation.
    let mut start = value;
    for _ in 0..4 {
        start = source(lift, start)?;
        if let Some(turn) = turned_from(lift, start, value) {
            return Some((start, turn));
        }
    }
    None
}

fn turned_from(lift: &mut Lift<'_>, source: ValueId, value: ValueId) -> Option<Turn> {
    let form = Walk { lift, source, left: 4 * MOST }.form(value)?;
    let (rank, width) = (lift.sample(source).len(), *lift.sample(source).last()?);
    let is_one = form.tail == 1 && form.range.is_none() && form.columns.len() as u64 == width;
    let time = form.time.filter(|_| is_one && lift.sample(value).len() == rank)?;
    let angles = match lift.rotations.get(&form.columns) {
        Some(known) => known.clone(),
        None => {
            let found = angles(lift, &form.columns);
            lift.rotations.insert(form.columns, found.clone());
            found
        }
    }?;
    Some(Turn { time, angles, before: form.before })
}

/// Returns the last value that everything passes through on its way to this one, along operations that a rotation consists of.
fn source(lift: &Lift<'_>, value: ValueId) -> Option<ValueId> {
    let mut front = BTreeSet::from([(lift.makers[value]?, value)]);
    for _ in 0..MOST {
        let (index, last) = front.pop_last()?;
        if front.is_empty() && last != value {
            return Some(last);
        }
        let (_, node) = lift.maker(last).filter(|(maker, _)| *maker == index)?;
        if !is_part(node) {
            return None;
        }
        for input in node.tensors().filter(|&input| lift.is_sample(input) && !is_empty(lift, input)) {
            front.insert((lift.makers[input].unwrap_or(0), input));
        }
        if let "type_as" | "to" | "expand_as" | "view_as" | "reshape_as" = op(node) {
            // The second argument gives no elements.
            let first = node.tensors().next();
            front.retain(|&(_, input)| Some(input) == first || !node.tensors().any(|other| other == input));
        }
    }
    None
}

fn is_empty(lift: &Lift<'_>, value: ValueId) -> bool {
    lift.model.values[value].elements() == Some(0)
}

fn is_part(node: &Node) -> bool {
    moved(node).is_some() || matches!(&node.op[..], "neg" | "mul" | "add" | "sub" | "cat" | "concat" | "stack")
}

/// A walk from a value back to its source.
struct Walk<'l, 'm> {
    lift: &'l Lift<'m>,
    source: ValueId,
    /// The operations that may still be looked at. A value that is read twice is looked at twice.
    left: usize,
}

impl Walk<'_, '_> {
    /// Returns the columns of a value as sums of products of those of the source.
    fn form(&mut self, value: ValueId) -> Option<Form> {
        let lift = self.lift;
        self.left = self.left.checked_sub(1)?;
        if value == self.source {
            let width = *lift.sample(value).last().filter(|width| **width <= 4096)?;
            let own = |column| vec![Term { column, is_negative: false, factor: None }];
            let columns = (0..width as usize).map(own).collect();
            return Some(Form { columns, tail: 1, time: None, range: None, before: 0 });
        }
        let (_, node) = lift.maker(value)?;
        if let Some(input) = moved(node) {
            let form = self.form(input)?;
            return after(lift, node, form, input, value);
        }
        match &node.op[..] {
            "neg" => self.form(node.tensor("self")?).map(negated),
            "cat" | "concat" | "stack" => {
                let Some(Argument::Tensors(inputs)) = node.argument("tensors") else { return None };
                let inputs: Vec<ValueId> = inputs.iter().copied().collect::<Option<_>>()?;
                let inputs = inputs.into_iter().filter(|&input| !is_empty(lift, input));
                let forms: Vec<Form> = inputs.map(|input| self.form(input)).collect::<Option<_>>()?;
                let dim = index(node.int("dim").unwrap_or(0), lift.model.values[value].shape.len());
                assembled(lift, forms, value, dim, node.op == "stack")
            }
            "add" | "sub" if node.float("alpha").is_none_or(|alpha| alpha == 1.0) => {
                let (a, b) = (self.form(node.tensor("self")?)?, self.form(node.tensor("other")?)?);
                sum(a, if node.op == "sub" { negated(b) } else { b })
            }
            "mul" => {
                let (a, b) = (node.tensor("self")?, node.tensor("other"));
                match (lift.is_sample(a), b.map(|b| (b, lift.is_sample(b)))) {
                    (true, None) => match node.float("other") {
                        Some(1.0) => self.form(a),
                        Some(-1.0) => self.form(a).map(negated),
                        _ => None,
                    },
                    (true, Some((b, false))) => times(lift, self.form(a)?, value, b),
                    (false, Some((b, true))) => times(lift, self.form(b)?, value, a),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

fn sum(a: Form, b: Form) -> Option<Form> {
    let is_one =
        a.tail == b.tail && a.range == b.range && a.columns.len() == b.columns.len() && a.before + b.before == 0;
    if !is_one || a.time.is_some_and(|time| b.time.is_some_and(|other| other != time)) {
        return None;
    }
    let columns = a.columns.into_iter().zip(b.columns).map(|(a, b)| [a, b].concat()).collect();
    Some(Form { columns, time: a.time.or(b.time), ..a })
}

fn negated(mut form: Form) -> Form {
    form.columns.iter_mut().flatten().for_each(|term| term.is_negative = !term.is_negative);
    form
}

/// Returns the columns after an operation that moves elements of the last axes, or takes some of the steps.
fn after(lift: &Lift<'_>, node: &Node, form: Form, input: ValueId, output: ValueId) -> Option<Form> {
    let (from, to) = (lift.sample(input), lift.sample(output));
    let first = from.len().checked_sub(form.tail)?;
    // The columns as a value of their own: a view of it says which of them are left.
    let mut axes = crate::lift::view::whole(&from[first..]);
    for &size in from[..first].iter().rev() {
        axes.insert(
            0,
            vec![crate::lift::view::Factor { size, stride: 0 }].into_iter().filter(|factor| factor.size != 1).collect(),
        );
    }
    let dim = lift.dim(input, node.int("dim").unwrap_or(0)).map(|dim| dim as usize - 1);
    if let ("slice" | "narrow", Some(dim)) = (op(node), dim)
        && dim < first
        && from[dim] != to[dim]
    {
        let start = node.int("start").unwrap_or(0);
        let start = u64::try_from(if start < 0 { start + from[dim] as i64 } else { start }).ok()?;
        let is_first = form.range.is_none() && form.before == 0 && node.int("step").unwrap_or(1) == 1;
        return is_first.then(|| Form { range: Some([dim as u64, start, to[dim]]), ..form });
    }
    if form.before > 0 && from != to {
        return None;
    }
    let view = View { base: input, offset: 0, axes }.after(lift, node, output)?;
    // The axes before the columns stay.
    if to.len() < first || to[..first] != from[..first] {
        return None;
    }
    let tail = to.len() - first;
    let columns = places(&view.axes[first..], view.offset)
        .into_iter()
        .map(|place| form.columns.get(place as usize).cloned())
        .collect::<Option<_>>()?;
    Some(Form { columns, tail, ..form })
}

/// Returns the places of all elements of some axes, in the order of rows.
fn places(axes: &[Vec<crate::lift::view::Factor>], offset: u64) -> Vec<u64> {
    let mut places = vec![offset];
    for factor in axes.iter().flatten() {
        places = places
            .into_iter()
            .flat_map(|place| (0..factor.size.min(8192)).map(move |at| place + at * factor.stride))
            .take(8192)
            .collect();
    }
    places
}

/// Returns columns that are put side by side, or steps that are put after others which do not turn.
fn assembled(lift: &Lift<'_>, forms: Vec<Form>, output: ValueId, dim: usize, is_stack: bool) -> Option<Form> {
    let shape = lift.sample(output);
    let axis = lift.dim(output, dim as i64)? as usize - 1;
    let first = forms.first()?;
    let time = forms.iter().find_map(|form| form.time);
    let tail = first.tail + usize::from(is_stack);
    let lead = shape.len().checked_sub(tail)?;
    if axis < lead {
        let [still, turned] = &forms[..] else { return None };
        let ([axis_of, 0, before], [axis_too, start, steps]) = (still.range?, turned.range?) else { return None };
        let is_identity = still
            .columns
            .iter()
            .enumerate()
            .all(|(column, terms)| *terms == [Term { column, is_negative: false, factor: None }]);
        let follows = axis_of == axis as u64
            && axis_too == axis_of
            && start == before
            && shape.get(axis) == Some(&(before + steps));
        let fits = follows && is_identity && !is_stack && turned.time == Some(axis) && still.tail == turned.tail;
        return fits.then(|| Form { range: None, before, ..turned.clone() });
    }
    let agree = |form: &Form| {
        form.tail == first.tail
            && form.range == first.range
            && form.before == 0
            && (form.time.is_none() || form.time == time)
    };
    if !forms.iter().all(agree) {
        return None;
    }
    // Columns are within the joined axis, or outside of it.
    let inner: u64 = shape.get(axis + 1..)?.iter().product();
    let outer: u64 = shape.get(lead..axis)?.iter().product();
    let mut columns = Vec::new();
    for row in 0..outer as usize {
        for form in &forms {
            let width = form.columns.len() / outer.max(1) as usize;
            if !is_stack && !(width as u64).is_multiple_of(inner.max(1)) {
                return None;
            }
            columns.extend(form.columns.get(row * width..(row + 1) * width)?.iter().cloned());
        }
    }
    Some(Form { columns, tail, time, ..first.clone() })
}

/// Returns the columns times those of a table.
fn times(lift: &Lift<'_>, form: Form, output: ValueId, table: ValueId) -> Option<Form> {
    lift.origins[table].numbers()?;
    let shape = lift.sample(output);
    let view = lift.view(table)?;
    // Aligned at their last axes. Further first axes have length 1.
    let spare = view.axes.len().saturating_sub(shape.len());
    if view.axes[..spare].iter().any(|axis| length(axis) != 1) {
        return None;
    }
    let shift = shape.len() - (view.axes.len() - spare);
    let first = shape.len().checked_sub(form.tail)?;
    let mut time = form.time;
    let (mut stride, mut steps) = (0, 1);
    let mut axes = Vec::new();
    for (axis, &size) in shape.iter().enumerate() {
        let factors = axis.checked_sub(shift).map_or(&[][..], |at| &view.axes[spare + at]);
        if axis >= first {
            axes.push(match (length(factors), size) {
                (own, size) if own == size => factors.to_vec(),
                (1, _) => vec![crate::lift::view::Factor { size, stride: 0 }],
                _ => return None,
            });
        } else if let [factor] = factors {
            if time.is_some_and(|time| time != axis) || steps > 1 || factor.size != size {
                return None;
            }
            (time, stride, steps) = (Some(axis), factor.stride, factor.size);
        } else if !factors.is_empty() {
            return None;
        }
    }
    let places = places(&axes, view.offset);
    if places.len() != form.columns.len() {
        return None;
    }
    let mut columns = form.columns;
    for (terms, offset) in columns.iter_mut().zip(places) {
        for term in terms {
            if term.factor.is_some() {
                return None;
            }
            term.factor = Some(Factor { table: view.base, offset, stride, steps });
        }
    }
    Some(Form { columns, time, ..form })
}

/// The cosines and sines of one column, for each step.
struct Column {
    /// The other column of the pair, and true if this one is the first.
    partner: usize,
    is_first: bool,
    cosines: Vec<f64>,
    sines: Vec<f64>,
}

/// Returns the angles by which columns turn. `None` if they do something else, or turn by other angles than the language has.
fn angles(lift: &Lift<'_>, columns: &[Vec<Term>]) -> Option<Angles> {
    let mut tables = std::collections::HashMap::new();
    for factor in columns.iter().flatten().filter_map(|term| term.factor.as_ref()) {
        if let std::collections::hash_map::Entry::Vacant(entry) = tables.entry(factor.table) {
            let tensor = lift.origins[factor.table].numbers()?;
            entry.insert(lift.shared_tensor(factor.table, tensor).ok()?.1);
        }
    }
    let numbers = |factor: &Factor| -> Option<Vec<f64>> {
        let table = tables.get(&factor.table)?;
        (0..factor.steps).map(|step| table.get((factor.offset + step * factor.stride) as usize).copied()).collect()
    };
    let steps = columns.iter().flatten().filter_map(|term| term.factor.as_ref()).map(|factor| factor.steps).max()?;
    if steps.checked_mul(columns.len() as u64)? > MOST_NUMBERS {
        return None;
    }
    let mut turned = Vec::new();
    for (column, terms) in columns.iter().enumerate() {
        match &terms[..] {
            // Columns that do not turn follow those that do.
            [Term { column: own, is_negative: false, factor: None }] if *own == column => {
                if turned.len() > column {
                    return None;
                }
            }
            [one, two] => {
                let (own, other) = if one.column == column { (one, two) } else { (two, one) };
                if own.column != column || own.is_negative || turned.len() != column {
                    return None;
                }
                turned.push(Column {
                    partner: other.column,
                    is_first: other.is_negative,
                    cosines: numbers(own.factor.as_ref()?)?,
                    sines: numbers(other.factor.as_ref()?)?,
                });
            }
            _ => return None,
        }
    }
    matched(&turned)
}

fn matched(columns: &[Column]) -> Option<Angles> {
    let dims = columns.len();
    let half = dims / 2;
    let interleaved = columns.first()?.partner == 1 && dims > 2;
    let pair = |column: usize| match interleaved {
        true => (column / 2, column.is_multiple_of(2), column ^ 1),
        false => (column % half.max(1), column < half, (column + half) % dims),
    };
    let is_paired = |(column, found): (usize, &Column)| {
        let (_, is_first, partner) = pair(column);
        (found.is_first, found.partner) == (is_first, partner)
    };
    let steps = columns.first()?.cosines.len();
    let is_even = |column: &Column| column.cosines.len() == steps && column.sines.len() == steps;
    if dims < 2
        || !dims.is_multiple_of(2)
        || steps < 2
        || !columns.iter().enumerate().all(is_paired)
        || !columns.iter().all(is_even)
    {
        return None;
    }
    let at = |pair: usize| if interleaved { &columns[2 * pair] } else { &columns[pair] };
    let angle = |pair: usize, step: usize| at(pair).sines[step].atan2(at(pair).cosines[step]);
    // The angle of the last pair at step 1 gives the base most exactly. On a map the second half of the pairs turns by the column.
    let row = (1..steps).find(|&step| at(0).sines[step] != 0.0)?;
    let is_map = row > 1 && steps.is_multiple_of(row) && dims.is_multiple_of(4);
    let (size, least, last) = match is_map {
        true => (Some([(steps / row) as u64, row as u64]), angle(half - 1, 1), half / 2 - 1),
        false => (None, angle(half - 1, 1), half - 1),
    };
    let power = if is_map { half / 2 } else { half } as f64;
    let base = if last == 0 { 10_000.0 } else { rounded(least.powf(-power / last as f64)) };
    if !(base.is_finite() && base >= 1.0) {
        return None;
    }
    let is_right = |(column, found): (usize, &Column)| {
        let (pair, ..) = pair(column);
        let (frequency, along_row) = match is_map {
            true => (base.powf(-((pair % (half / 2)) as f64) / power), pair < half / 2),
            false => (base.powf(-(pair as f64) / power), false),
        };
        (0..steps).all(|step| {
            let position = match (is_map, along_row) {
                (true, true) => step / row,
                (true, false) => step % row,
                _ => step,
            };
            let angle = position as f64 * frequency;
            let bound = 4e-6 + 1e-6 * angle;
            (found.cosines[step] - angle.cos()).abs() < bound && (found.sines[step] - angle.sin()).abs() < bound
        })
    };
    let angles = Angles { base, dims: dims as u64, interleaved, size };
    columns.iter().enumerate().all(is_right).then_some(angles)
}

/// Returns the number with four digits or fewer that is as good as this one, since tables have but seven of them.
fn rounded(number: f64) -> f64 {
    if !(number.is_finite() && number > 0.0) {
        return number;
    }
    let unit = 10f64.powi((number.log10().floor() as i32).saturating_sub(3));
    let short = (number / unit).round() * unit;
    if (short / number - 1.0).abs() < 3e-5 { short } else { number }
}

#[cfg(test)]
mod tests {
    use super::{Angles, Column, matched};

    /// Columns that turn by `angle(pair, step)`, as f32 has them.
    fn columns(dims: usize, interleaved: bool, steps: usize, angle: impl Fn(usize, usize) -> f64) -> Vec<Column> {
        let column = |column: usize| {
            let (pair, is_first, partner) = match interleaved {
                true => (column / 2, column.is_multiple_of(2), column ^ 1),
                false => (column % (dims / 2), column < dims / 2, (column + dims / 2) % dims),
            };
            let table = |f: fn(f64) -> f64| (0..steps).map(|step| f64::from(f(angle(pair, step)) as f32)).collect();
            Column { partner, is_first, cosines: table(f64::cos), sines: table(f64::sin) }
        };
        (0..dims).map(column).collect()
    }

    fn plain(base: f64, dims: usize) -> impl Fn(usize, usize) -> f64 {
        move |pair, step| step as f64 * f64::from(base.powf(-2.0 * pair as f64 / dims as f64) as f32)
    }

    #[test]
    fn bases_are_found() {
        for (base, dims, interleaved) in [(1e4, 64, false), (5e5, 128, false), (1e6, 64, true), (1e4, 16, true)] {
            let found = matched(&columns(dims, interleaved, 96, plain(base, dims)));
            assert_eq!(found, Some(Angles { base, dims: dims as u64, interleaved, size: None }));
        }
    }

    #[test]
    fn maps_turn_by_rows_and_columns() {
        let angle = |pair: usize, step: usize| {
            let position = if pair < 8 { step / 7 } else { step % 7 };
            position as f64 * 1e4f64.powf(-((pair % 8) as f64) / 8.0)
        };
        let found = matched(&columns(32, true, 42, angle));
        assert_eq!(found, Some(Angles { base: 1e4, dims: 32, interleaved: true, size: Some([6, 7]) }));
    }

    /// Llama 3 divides low frequencies, and other models scale positions: neither is a base.
    #[test]
    fn other_frequencies_are_refused() {
        let scaled = |pair: usize, step: usize| plain(1e4, 64)(pair, step) / if pair > 20 { 8.0 } else { 1.0 };
        assert_eq!(matched(&columns(64, false, 96, scaled)), None);
        let halved = |pair: usize, step: usize| plain(1e4, 64)(pair, step) / 2.0;
        assert_eq!(matched(&columns(64, false, 96, halved)), None);
        // The first element of a pair that turns the other way.
        let mut turned = columns(64, false, 96, plain(1e4, 64));
        turned.iter_mut().for_each(|column| column.is_first = !column.is_first);
        assert_eq!(matched(&turned), None);
    }
}
