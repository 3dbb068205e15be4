//! Folds equal elements that follow each other into `repeat`.

use super::element::{Argument, Body, Element, Name, Repeat, Value};
use super::words::numbered;
use crate::lift::Literal;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The most elements of a round.
const LONGEST: usize = 12;
/// The fewest letters that a fold must save.
const LEAST: usize = 24;

/// Folds all lists of a function.
pub(super) fn fold(body: &mut Body) {
    let paths = Paths::of(body);
    let reads = reads_of(&body.elements);
    fold_list(&mut body.elements, &paths, &reads);
}

/// Counts of the paths with a number in one function.
struct Paths {
    /// For each base, so many calls in a row, from 0 on, and all calls or layers.
    counts: HashMap<String, (usize, usize)>,
    /// For each base, so many layers and calls that are below one of its numbers.
    below: HashMap<String, usize>,
}

impl Paths {
    fn of(body: &Body) -> Paths {
        let mut paths = Paths { counts: HashMap::new(), below: HashMap::new() };
        let mut all = Vec::new();
        // Further uses of a `let` have no paths of their own.
        for (_, element) in &body.lets {
            collect(std::slice::from_ref(element), &mut all);
        }
        collect(&body.elements, &mut all);
        for (path, is_call) in all {
            if let Some((base, number)) = numbered(&path) {
                let (row, count) = paths.counts.entry(base.to_string()).or_default();
                if is_call && number == *row && *row == *count {
                    *row += 1;
                }
                *count += 1;
            }
            for (base, _) in bases_above(&path) {
                *paths.below.entry(base).or_default() += 1;
            }
        }
        paths
    }
}

/// Collects the paths of a list in their order, and whether each is a call.
fn collect(list: &[Element], all: &mut Vec<(String, bool)>) {
    for element in list {
        match element {
            Element::Call(call) => all.push((call.path.clone(), true)),
            Element::Layer(layer) | Element::Tied(_, layer) => {
                if let Name::Path(path) | Name::Parameter(path) = &layer.name {
                    all.push((path.clone(), false));
                }
            }
            _ => {}
        }
        if !matches!(element, Element::Call(_)) {
            for inner in element.lists() {
                collect(inner, all);
            }
        }
    }
}

/// Returns each base of a path that has a number and more after it, with that number: `h` and 3 of `h.3.ln_1`.
fn bases_above(path: &str) -> Vec<(String, usize)> {
    let ends = path.match_indices('.').map(|(at, _)| at);
    ends.filter_map(|end| numbered(&path[..end]).map(|(base, number)| (base.to_string(), number))).collect()
}

fn reads_of(list: &[Element]) -> HashMap<usize, usize> {
    let mut reads = HashMap::new();
    super::element::visit(list, &mut |element| {
        if let Element::From(tap) = element {
            *reads.entry(*tap).or_default() += 1;
        }
    });
    reads
}

fn fold_list(list: &mut Vec<Element>, paths: &Paths, reads: &HashMap<usize, usize>) {
    for element in list.iter_mut() {
        for inner in element.lists_mut() {
            fold_list(inner, paths, reads);
        }
    }
    let hashes: Vec<u64> = list.iter().map(hash).collect();
    let mut found: Vec<(usize, usize, usize, usize)> = Vec::new();
    for period in 1..=LONGEST.min(list.len() / 2) {
        let mut equal = 0;
        for start in (0..list.len() - period).rev() {
            equal = if hashes[start] == hashes[start + period] { equal + 1 } else { 0 };
            let rounds = 1 + equal / period;
            if rounds > 1 {
                let size: usize = list[start..start + period].iter().map(size).sum();
                found.push(((rounds - 1) * size, start, period, rounds));
            }
        }
    }
    // The greatest saving first, and of equal ones the shorter rounds, from the left.
    found.sort_by_key(|&(saving, start, period, _)| (std::cmp::Reverse(saving), period, start));
    let mut taken = vec![false; list.len()];
    let mut folds: Vec<(usize, usize, usize, Rounds)> = Vec::new();
    for (_, start, period, rounds) in found {
        if taken[start..start + period * 2].iter().any(|taken| *taken) {
            continue;
        }
        let free = taken[start..start + period * rounds].iter().take_while(|taken| !**taken).count() / period;
        let Some((rounds, form)) = verified(&list[start..], period, free, paths, reads) else { continue };
        let size: usize = list[start..start + period].iter().map(size).sum();
        if (rounds - 1) * size >= LEAST {
            taken[start..start + period * rounds].fill(true);
            folds.push((start, period, rounds, form));
        }
    }
    folds.sort_by_key(|fold| std::cmp::Reverse(fold.0));
    for (start, period, rounds, form) in folds {
        let mut body: Vec<Element> = list.drain(start..start + period * rounds).take(period).collect();
        if let Rounds::Modules(base) = &form {
            shorten(&mut body, base);
        }
        let times = Value::Literal(Literal::Int(i64::try_from(rounds).unwrap_or(i64::MAX)));
        let modules = match form {
            Rounds::Modules(base) => Some(base),
            Rounds::Numbered => None,
        };
        list.insert(start, Element::Repeat(Box::new(Repeat { times, body, modules, printed: None })));
    }
}

/// The ways in which the paths of rounds may differ.
enum Rounds {
    /// Each call has the next number.
    Numbered,
    /// All paths of a round begin with this base and the round's number.
    Modules(String),
}

/// Returns the number of rounds whose paths `repeat` can make, and how.
fn verified(
    list: &[Element],
    period: usize,
    rounds: usize,
    paths: &Paths,
    reads: &HashMap<usize, usize>,
) -> Option<(usize, Rounds)> {
    let first = &list[..period];
    let inside = reads_of(first);
    let mut own = Vec::new();
    super::element::visit(first, &mut |element| {
        if let Element::Tap(tap) = element {
            own.push(*tap);
        }
    });
    if own.iter().any(|tap| inside.get(tap) != reads.get(tap)) {
        return None;
    }
    let mut pairs: Vec<Vec<(String, String, bool)>> = Vec::new();
    for round in 1..rounds {
        let mut comparison = Comparison::default();
        let other = &list[round * period..(round + 1) * period];
        if !comparison.lists(first, other)
            || comparison.taps.iter().any(|(tap, _)| reads.get(tap) != reads_of(other).get(tap))
        {
            break;
        }
        let is_next = |base: &String| is_of_modules(&comparison.paths, base, round);
        let base = pairs.first().unwrap_or(&comparison.paths).first().map(|(path, ..)| bases_above(path));
        let goes_on = base.into_iter().flatten().any(|(base, _)| is_next(&base));
        if !goes_on && !is_numbered(&comparison.paths, round, paths) {
            break;
        }
        pairs.push(comparison.paths);
    }
    let numbered_rounds =
        pairs.iter().enumerate().take_while(|(round, pairs)| is_numbered(pairs, round + 1, paths)).count();
    if numbered_rounds > 0 {
        let is_layer = matches!(first, [Element::Layer(_)]) && !pairs[0].is_empty();
        let is_whole = |base: &str| paths.counts.get(base).is_some_and(|(_, count)| *count == numbered_rounds + 1);
        let base = pairs[0].first().and_then(|(path, ..)| numbered(path));
        if !is_layer || base.is_some_and(|(base, number)| number == 0 && base != "[]" && is_whole(base)) {
            return Some((numbered_rounds + 1, Rounds::Numbered));
        }
    }
    let base = pairs.first()?.first().map(|(path, ..)| bases_above(path))?;
    base.into_iter().find_map(|(base, number)| {
        let is_next = |(round, pairs): &(usize, &Vec<(String, String, bool)>)| is_of_modules(pairs, &base, round + 1);
        let count = pairs.iter().enumerate().take_while(is_next).count();
        let all: usize = pairs.first().map_or(0, Vec::len) * (count + 1);
        let is_whole = paths.below.get(&base) == Some(&all) && !paths.counts.contains_key(&base);
        (number == 0 && count > 0 && base != "[]" && is_whole).then_some((count + 1, Rounds::Modules(base)))
    })
}

/// True if the paths of a round are those of the first one, below a later number of a base.
fn is_of_modules(pairs: &[(String, String, bool)], base: &str, round: usize) -> bool {
    let (first, own) = (format!("{base}.0."), format!("{base}.{round}."));
    pairs.iter().all(|(a, b, _)| a.strip_prefix(&first).is_some_and(|rest| Some(rest) == b.strip_prefix(&own)))
}

/// True if the paths of a round are those of the first one with later numbers.
fn is_numbered(pairs: &[(String, String, bool)], round: usize, paths: &Paths) -> bool {
    let per_round = pairs.len();
    pairs.iter().all(|(a, b, is_call)| {
        let (Some((base, first)), Some((other, number))) = (numbered(a), numbered(b)) else { return false };
        let in_row = paths.counts.get(base).is_some_and(|(row, count)| number < *row || !is_call && *count > number);
        let of_base = pairs.iter().filter(|(path, ..)| numbered(path).is_some_and(|(other, _)| other == base)).count();
        base == other && number == first + round * of_base && in_row && (*is_call || per_round == 1)
    })
}

/// Removes the base and the number from all paths of a round.
fn shorten(body: &mut [Element], base: &str) {
    let prefix = format!("{base}.0.");
    super::element::visit_mut(body, &mut |element| match element {
        Element::Call(call) => call.path = call.path.strip_prefix(&prefix).unwrap_or(&call.path).to_string(),
        Element::Layer(layer) | Element::Tied(_, layer) => {
            if let Name::Path(path) | Name::Parameter(path) = &mut layer.name {
                *path = path.strip_prefix(&prefix).unwrap_or(path).to_string();
            }
        }
        _ => {}
    });
}

/// Compares elements without their paths.
#[derive(Default)]
struct Comparison {
    /// Pairs of paths, and whether they are calls.
    paths: Vec<(String, String, bool)>,
    /// For each tap of the second element, that of the first.
    taps: HashMap<usize, usize>,
}

impl Comparison {
    fn lists(&mut self, a: &[Element], b: &[Element]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| self.elements(a, b))
    }

    fn elements(&mut self, a: &Element, b: &Element) -> bool {
        match (a, b) {
            (Element::Layer(one), Element::Layer(two)) => {
                let is_equal = one.kind == two.kind && one.arguments == two.arguments && one.options == two.options;
                is_equal && self.names(&one.name, &two.name) && self.inner(a, b)
            }
            (Element::Call(one), Element::Call(two)) => {
                self.paths.push((one.path.clone(), two.path.clone(), true));
                // Paths of arguments are seen from the function that is called.
                one.function == two.function && one.arguments == two.arguments
            }
            (Element::Repeat(one), Element::Repeat(two)) => {
                one.times == two.times && one.modules.is_none() && two.modules.is_none() && self.inner(a, b)
            }
            (Element::Tap(one), Element::Tap(two)) => self.taps.insert(*two, *one).is_none(),
            (Element::From(one), Element::From(two)) => self.taps.get(two).unwrap_or(two) == one,
            _ => a == b,
        }
    }

    fn names(&mut self, a: &Name, b: &Name) -> bool {
        match (a, b) {
            (Name::None, Name::None) => true,
            (Name::Path(a), Name::Path(b)) | (Name::Parameter(a), Name::Parameter(b)) => {
                self.paths.push((a.clone(), b.clone(), false));
                true
            }
            _ => false,
        }
    }

    fn inner(&mut self, a: &Element, b: &Element) -> bool {
        let (a, b) = (a.lists(), b.lists());
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| self.lists(a, b))
    }
}

/// Returns a number that is equal for elements that differ only in paths and taps.
fn hash(element: &Element) -> u64 {
    let mut hasher = DefaultHasher::new();
    hash_into(element, &mut hasher);
    hasher.finish()
}

fn hash_into(element: &Element, hasher: &mut DefaultHasher) {
    std::mem::discriminant(element).hash(hasher);
    match element {
        Element::Layer(layer) => format!("{}{:?}{:?}", layer.kind, layer.arguments, layer.options).hash(hasher),
        Element::Call(call) => {
            call.function.hash(hasher);
            for argument in &call.arguments {
                if let Argument::Value(value) = argument {
                    format!("{value:?}").hash(hasher);
                }
            }
        }
        Element::Repeat(repeat) => format!("{:?}", repeat.times).hash(hasher),
        Element::Input(index) | Element::Block(index) | Element::Use(index) => index.hash(hasher),
        _ => {}
    }
    for inner in element.lists() {
        inner.len().hash(hasher);
        for element in inner {
            hash_into(element, hasher);
        }
    }
}

/// Returns about how many letters an element has.
fn size(element: &Element) -> usize {
    let own = match element {
        Element::Layer(layer) => layer.kind.len() + 4 * layer.arguments.len() + 12 * layer.options.len(),
        Element::Call(_) | Element::Repeat(_) => 24,
        Element::Tap(_) | Element::From(_) | Element::Input(_) => 8,
        _ => 8,
    };
    own + element.lists().into_iter().flatten().map(size).sum::<usize>()
}
