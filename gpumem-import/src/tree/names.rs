//! Names of functions, taps and parameters, and which names are printed.
//!
//! A call or a layer has a segment in the path of its parameters. Equal segments of one function get numbers in their order, so calls with
//! the paths `h.0`, `h.1`, .. all have the segment `h`.

use super::element::{Body, Element, Function, Name, Value};
use super::units::{Node, Unit, Units};
use super::words::{Names, identifier, is_container, numbered, snake_case};
use crate::lift::Literal;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Returns a name for the value of a node: its module, or the layer. `None` stands for the value that arrives.
pub(super) fn of_value(units: &Units<'_>, unit: &Unit, maker: Option<Node>) -> String {
    let (path, kind) = match maker {
        Some(Node::Unit(inner)) => (units.all[inner].path.clone(), units.all[inner].class.clone()),
        Some(Node::Layer(layer)) => {
            let layer = &units.graph.layers[layer];
            let path = layer.modules.last().map_or(String::new(), |module| module.path.clone());
            (if path == unit.path { String::new() } else { path }, layer.kind.to_string())
        }
        None => return "arriving".into(),
    };
    let mut segments = path.split('.').rev().map(identifier).filter(|segment| !segment.is_empty());
    segments.next().or(Some(identifier(&kind)).filter(|kind| !kind.is_empty())).unwrap_or_else(|| "value".into())
}

/// Chooses the segments of all calls, names the functions after them, and finds the names that are printed.
pub(super) fn choose(forward: &mut Body, functions: &mut [Function]) {
    let bodies = std::iter::once(&mut *forward).chain(functions.iter_mut().map(|function| &mut function.body));
    let mut segments: Vec<BTreeMap<String, usize>> = Vec::new();
    for body in bodies {
        choose_segments(body);
        each(body, &mut |element| {
            if let Element::Call(call) = element {
                if segments.len() <= call.function {
                    segments.resize(call.function + 1, BTreeMap::new());
                }
                *segments[call.function].entry(call.segment.clone()).or_default() += 1;
            }
        });
    }
    name_functions(functions, &segments);
    let functions_named: Vec<String> = functions.iter().map(|function| function.name.clone()).collect();
    let names: Vec<String> =
        functions.iter().map(|function| function.attribute.clone().unwrap_or_else(|| function.name.clone())).collect();
    for body in std::iter::once(forward).chain(functions.iter_mut().map(|function| &mut function.body)) {
        // A `let` hides a function of its name.
        let mut lets = Names::with(functions_named.iter().cloned());
        for (name, _) in &mut body.lets {
            *name = lets.add(std::mem::take(name));
        }
        print_names(body, &names);
    }
}

/// Calls `visit` with every element that is written in a function.
fn each(body: &mut Body, visit_one: &mut impl FnMut(&mut Element)) {
    for (_, element) in &mut body.lets {
        super::element::visit_mut(std::slice::from_mut(element), visit_one);
    }
    super::element::visit_mut(&mut body.elements, visit_one);
}

/// Gives each call the segment that makes its path: without a number if those of all equal segments are 0, 1, ..
fn choose_segments(body: &mut Body) {
    let mut segments = Segments::default();
    // A `let` has its path at its first use.
    each_use(body, &mut |element, times| segments.add(element, times));
    for (_, element) in &mut body.lets {
        segments.choose(std::slice::from_mut(element));
    }
    segments.choose(&mut body.elements);
}

/// Counts the paths of one function's instance.
#[derive(Default)]
struct Segments {
    /// For each base, so many calls from 0 on in a row.
    counts: HashMap<String, usize>,
    /// Bases after whose row another number came.
    ended: HashSet<String>,
    /// Paths without a number.
    plain: HashSet<String>,
}

impl Segments {
    fn add(&mut self, element: &Element, times: usize) {
        let path = match element {
            Element::Call(call) => call.path.clone(),
            Element::Repeat(repeat) => match &repeat.modules {
                Some(base) => format!("{base}.0"),
                None => return,
            },
            _ => return,
        };
        match numbered(&path) {
            Some((base, number)) => {
                let count = self.counts.entry(base.to_string()).or_default();
                if *count == number && !self.ended.contains(base) {
                    *count += times;
                } else {
                    self.ended.insert(base.to_string());
                }
            }
            None => _ = self.plain.insert(path),
        }
    }

    /// Returns the base of a path, if numbers after it come by themselves.
    fn counted(&self, path: &str) -> Option<String> {
        let (base, number) = numbered(path)?;
        let count = *self.counts.get(base)?;
        // One call alone would have no number, except for `[]`.
        let is_right = number < count && (count > 1 || base == "[]") && !self.plain.contains(base);
        is_right.then(|| base.to_string())
    }

    fn choose(&self, list: &mut [Element]) {
        for element in list {
            match element {
                Element::Call(call) => {
                    call.segment = self.counted(&call.path).unwrap_or_else(|| call.path.clone());
                    // Paths of arguments are seen from the function that is called.
                    let mut inner = Segments::default();
                    for block in call.arguments.iter().filter_map(super::element::Argument::block) {
                        walk(block, &[], &mut [], 1, &mut |element, times| inner.add(element, times));
                    }
                    element.lists_mut().into_iter().for_each(|list| inner.choose(list));
                }
                Element::Repeat(repeat) if repeat.modules.is_some() => {
                    let mut inner = Segments::default();
                    walk(&repeat.body, &[], &mut [], 1, &mut |element, times| inner.add(element, times));
                    inner.choose(&mut repeat.body);
                }
                other => other.lists_mut().into_iter().for_each(|list| self.choose(list)),
            }
        }
    }
}

/// Calls `visit` with the elements that belong to a function's own instance, in their order, and how often each is there. What is declared
/// by a `let` is visited at its first use.
fn each_use(body: &Body, visit_one: &mut impl FnMut(&Element, usize)) {
    let mut seen = vec![false; body.lets.len()];
    walk(&body.elements, &body.lets, &mut seen, 1, visit_one);
}

fn walk(
    list: &[Element],
    lets: &[(String, Element)],
    seen: &mut [bool],
    times: usize,
    visit_one: &mut impl FnMut(&Element, usize),
) {
    for element in list {
        visit_one(element, times);
        match element {
            Element::Use(binding) | Element::Tied(binding, _) => {
                if let (Some((_, element)), Some(seen)) = (lets.get(*binding), seen.get_mut(*binding))
                    && !std::mem::replace(seen, true)
                {
                    // Only the first use has parameters, and a name that is written stays without a number.
                    visit_one(element, 1);
                }
            }
            Element::Repeat(repeat) if repeat.modules.is_none() => {
                let rounds = match &repeat.times {
                    Value::Literal(Literal::Int(rounds)) => usize::try_from(*rounds).unwrap_or(1),
                    // At least two, whatever the parameter is.
                    _ => 2,
                };
                walk(&repeat.body, lets, seen, times.saturating_mul(rounds), visit_one);
            }
            // Paths of arguments are seen from the function that is called.
            Element::Repeat(_) | Element::Call(_) => {}
            other => {
                for inner in other.lists() {
                    walk(inner, lets, seen, times, visit_one);
                }
            }
        }
    }
}

/// Names functions after the segment of their calls if there is one, and after their class otherwise.
fn name_functions(functions: &mut [Function], segments: &[BTreeMap<String, usize>]) {
    // A parameter hides a function of its name.
    let parameters = functions.iter().flat_map(|function| &function.parameters);
    let mut taken = Names::with(parameters.map(|parameter| parameter.name.clone()));
    for (index, function) in functions.iter_mut().enumerate() {
        let all = segments.get(index).cloned().unwrap_or_default();
        let most = all.iter().max_by_key(|(segment, count)| (**count, std::cmp::Reverse(segment.len())));
        let most = most.map_or("", |(segment, _)| segment);
        let last = most.rsplit('.').next().unwrap_or("");
        let is_container = is_container(&function.class);
        let class = if is_container { contents(&function.body) } else { identifier(&function.class) };
        let class = Some(class).filter(|class| !class.is_empty());
        let is_only = all.len() == 1 && identifier(last) == last && !last.is_empty();
        let wanted = match is_only {
            true => last.to_string(),
            false => class.or(Some(identifier(last)).filter(|name| !name.is_empty())).unwrap_or_else(|| "block".into()),
        };
        function.name = taken.add(wanted);
        let total: usize = all.values().sum();
        let is_common = all.get(most).is_some_and(|count| 2 * count > total || all.len() == 1);
        function.attribute = Some(most.to_string()).filter(|most| is_common && *most != function.name);
    }
}

/// Returns a name that says what is inside, such as `conv_norm_act`.
fn contents(body: &Body) -> String {
    let mut words: Vec<&str> = Vec::new();
    for element in &body.elements {
        let Element::Layer(layer) = element else { continue };
        let word = match layer.kind {
            kind if kind.starts_with("Conv") => "conv",
            kind if kind.contains("Norm") => "norm",
            kind if kind.contains("Pool") => "pool",
            "Linear" => "linear",
            "Upsample" => "up",
            "Dropout" | "Flatten" | "Reshape" | "Transpose" | "Permute" => continue,
            _ => "act",
        };
        if words.len() < 3 && words.last() != Some(&word) {
            words.push(word);
        }
    }
    words.join("_")
}

/// Finds the names that must be printed, since the path would be another one without.
fn print_names(body: &mut Body, names: &[String]) {
    let mut counts: HashMap<String, usize> = HashMap::new();
    each_use(body, &mut |element, times| {
        if let Element::Layer(layer) | Element::Tied(_, layer) = element {
            let segment = match &layer.name {
                Name::Path(path) | Name::Parameter(path) => path.clone(),
                Name::None => snake_case(layer.kind),
            };
            *counts.entry(segment).or_default() += times;
        }
    });
    each(body, &mut |element| match element {
        Element::Call(call) => {
            let is_named = names.get(call.function) == Some(&call.segment);
            call.printed = Some(call.segment.clone()).filter(|_| !is_named);
        }
        Element::Layer(layer) | Element::Tied(_, layer) => {
            let plain = snake_case(layer.kind);
            layer.printed = match &layer.name {
                Name::Path(path) if *path == plain && counts.get(path) == Some(&1) => None,
                Name::Path(path) | Name::Parameter(path) => Some(path.clone()),
                Name::None => None,
            };
        }
        _ => {}
    });
    each(body, &mut |element| {
        if let Element::Repeat(repeat) = element {
            repeat.printed = name_of_rounds(repeat);
        }
    });
    // An element that a `let` declares has the name of the `let` in paths, and a number if it is used again without a name.
    let mut uses = vec![0; body.lets.len()];
    each_use_of_let(body, &mut uses);
    for ((name, element), uses) in body.lets.iter_mut().zip(uses) {
        match element {
            Element::Call(call) => {
                call.printed = Some(call.segment.clone()).filter(|segment| uses > 1 || segment != name);
            }
            Element::Layer(layer) => {
                if let Name::Path(path) = &layer.name {
                    layer.printed = Some(path.clone()).filter(|path| uses > 1 || path != name);
                }
            }
            _ => {}
        }
    }
}

/// Counts the uses of each `let`. A repeat counts as two.
fn each_use_of_let(body: &Body, uses: &mut [usize]) {
    fn within(list: &[Element], times: usize, uses: &mut [usize]) {
        for element in list {
            let times = if matches!(element, Element::Repeat(_)) { 2 * times.min(2) } else { times };
            if let Element::Use(binding) = element
                && let Some(count) = uses.get_mut(*binding)
            {
                *count += times;
            }
            element.lists().into_iter().for_each(|inner| within(inner, times, uses));
        }
    }
    within(&body.elements, 1, uses);
    body.lets.iter().for_each(|(_, element)| within(std::slice::from_ref(element), 1, uses));
}

/// Returns the name of a repeat, which its only element then does not have.
fn name_of_rounds(repeat: &mut super::element::Repeat) -> Option<String> {
    if let Some(base) = &repeat.modules {
        return Some(base.clone());
    }
    match &mut repeat.body[..] {
        [Element::Call(call)] => call.printed.take(),
        [Element::Layer(layer)] => {
            let printed = layer.printed.take()?;
            Some(numbered(&printed).map_or(printed.clone(), |(base, _)| base.to_string()))
        }
        _ => None,
    }
}
