//! Finds what several functions have in common: one list with columns where they differ.

use super::element::{Argument, Body, Call, Element, Function, Placed, Repeat, Value};
use crate::lift::Literal;

/// The index of the first column of layers, among elements `Block`.
pub(super) const COLUMNS: usize = 1 << 16;

/// Sorts of numbers: only numbers of one sort may become one parameter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Sort {
    /// Channels, features and other sizes that are often multiples of each other.
    Width,
    Kernel,
    Padding,
    Other,
}

/// Numbers that differ from instance to instance.
#[derive(Clone, Debug)]
pub(super) struct Column {
    /// The name of the argument.
    pub role: String,
    pub sort: Sort,
    /// One for each instance. `None` if the instance does not have the place.
    pub values: Vec<Option<Value>>,
}

/// Layers that differ from instance to instance.
#[derive(Clone, Debug)]
pub(super) struct Branch {
    pub lists: Vec<Vec<Element>>,
}

/// The columns of several bodies.
pub(super) struct Unifier<'f> {
    pub functions: &'f [Function],
    pub columns: Vec<Column>,
    pub branches: Vec<Branch>,
    /// True if layers may differ.
    pub allows_branches: bool,
    pub instances: usize,
}

impl Unifier<'_> {
    /// Returns the body that is common to all. `None` if they differ in more than columns.
    pub(super) fn bodies(&mut self, bodies: &[&Body]) -> Option<Body> {
        let first = bodies.first()?;
        let members: Vec<usize> = (0..bodies.len()).collect();
        let mut lets = Vec::new();
        for (index, (name, _)) in first.lets.iter().enumerate() {
            let all: Option<Vec<&Element>> =
                bodies.iter().map(|body| body.lets.get(index).map(|(_, element)| element)).collect();
            lets.push((name.clone(), self.elements(&members, &all?)?));
        }
        if bodies.iter().any(|body| body.lets.len() != lets.len() || body.taps.len() != first.taps.len()) {
            return None;
        }
        let lists: Vec<&[Element]> = bodies.iter().map(|body| &body.elements[..]).collect();
        let elements = self.lists(&members, &lists, false)?;
        Some(Body { lets, elements, taps: first.taps.clone() })
    }

    /// Returns what lists have in common. In a branch nothing needs to be.
    pub(super) fn lists(&mut self, members: &[usize], lists: &[&[Element]], is_branch: bool) -> Option<Vec<Element>> {
        let first = lists.first()?;
        let heads =
            |at: usize| lists.iter().all(|list| list.get(at).is_some_and(|element| self.same(&first[at], element)));
        let shortest = lists.iter().map(|list| list.len()).min()?;
        let begin = (0..shortest).take_while(|&at| heads(at)).count();
        let is_whole = lists.iter().all(|list| list.len() == begin);
        if is_whole {
            return self.row(members, lists, 0..begin);
        }
        let from_end = |back: usize| {
            let element = |list: &&[Element]| list.len().checked_sub(back + 1).filter(|at| *at >= begin);
            let Some(one) = element(first) else { return false };
            lists.iter().all(|list| element(list).is_some_and(|at| self.same(&first[one], &list[at])))
        };
        let end = (0..shortest - begin).take_while(|&back| from_end(back)).count();
        if !self.allows_branches || !is_branch && begin + end == 0 {
            return None;
        }
        let mut all = self.row(members, lists, 0..begin)?;
        let middles: Vec<&[Element]> = lists.iter().map(|list| &list[begin..list.len() - end]).collect();
        all.push(self.branch(members, &middles)?);
        let ends: Vec<&[Element]> = lists.iter().map(|list| &list[list.len() - end..]).collect();
        all.extend(self.row(members, &ends, 0..end)?);
        Some(all)
    }

    fn row(&mut self, members: &[usize], lists: &[&[Element]], range: std::ops::Range<usize>) -> Option<Vec<Element>> {
        range
            .map(|at| {
                let elements: Vec<&Element> = lists.iter().map(|list| &list[at]).collect();
                self.elements(members, &elements)
            })
            .collect()
    }

    /// Adds a column of layers. `None` if they read or make values with names, which an argument cannot.
    fn branch(&mut self, members: &[usize], lists: &[&[Element]]) -> Option<Element> {
        let mut all = vec![Vec::new(); self.instances];
        for (&member, list) in members.iter().zip(lists) {
            let mut is_closed = true;
            super::element::visit(list, &mut |element| {
                is_closed &= matches!(element, Element::Layer(_) | Element::Call(_) | Element::Repeat(_));
            });
            if !is_closed {
                return None;
            }
            all[member] = list.to_vec();
        }
        // Members of a branch inside of a branch do not have all instances.
        if members.len() != self.instances {
            return None;
        }
        self.branches.push(Branch { lists: all });
        Some(Element::Block(COLUMNS + self.branches.len() - 1))
    }

    /// True if two elements can be one with columns, as far as can be seen without their branches.
    fn same(&self, a: &Element, b: &Element) -> bool {
        match (a, b) {
            (Element::Layer(a), Element::Layer(b)) => {
                let branches = |layer: &Placed| layer.branches.as_ref().map(Vec::len);
                let has_default = |(name, value): &(&'static str, Value), other: &Placed| {
                    let is_there = other.options.iter().any(|(other, _)| other == name);
                    is_there || default_of(other, name, value).is_some()
                };
                a.kind == b.kind
                    && a.name == b.name
                    && a.arguments.len() == b.arguments.len()
                    && branches(a) == branches(b)
                    && a.options.iter().all(|option| has_default(option, b))
                    && b.options.iter().all(|option| has_default(option, a))
            }
            (Element::Call(a), Element::Call(b)) => {
                a.function == b.function && a.path == b.path && a.arguments.len() == b.arguments.len()
            }
            (Element::Repeat(a), Element::Repeat(b)) => a.modules == b.modules,
            (Element::Tied(a, one), Element::Tied(b, two)) => a == b && one == two,
            (Element::Outputs(_), _) | (_, Element::Outputs(_)) => false,
            _ => a == b,
        }
    }

    fn elements(&mut self, members: &[usize], elements: &[&Element]) -> Option<Element> {
        let first = *elements.first()?;
        if !elements.iter().all(|element| self.same(first, element)) {
            return None;
        }
        match first {
            Element::Layer(_) => {
                let layers: Option<Vec<&Placed>> = elements
                    .iter()
                    .map(|element| match element {
                        Element::Layer(layer) => Some(&**layer),
                        _ => None,
                    })
                    .collect();
                Some(Element::Layer(Box::new(self.layers(members, &layers?)?)))
            }
            Element::Call(_) => {
                let calls: Option<Vec<&Call>> = elements
                    .iter()
                    .map(|element| match element {
                        Element::Call(call) => Some(&**call),
                        _ => None,
                    })
                    .collect();
                Some(Element::Call(Box::new(self.calls(members, &calls?)?)))
            }
            Element::Repeat(repeat) => {
                let lists: Option<Vec<&[Element]>> = elements
                    .iter()
                    .map(|element| match element {
                        Element::Repeat(repeat) => Some(&repeat.body[..]),
                        _ => None,
                    })
                    .collect();
                let times = elements.iter().filter_map(|element| match element {
                    Element::Repeat(repeat) => Some(repeat.times.clone()),
                    _ => None,
                });
                let times: Vec<Value> = times.collect();
                let times = self.values(members, &times, "depth", Sort::Other)?;
                let body = self.lists(members, &lists?, false)?;
                Some(Element::Repeat(Box::new(Repeat { body, times, ..(**repeat).clone() })))
            }
            other => Some(other.clone()),
        }
    }

    fn layers(&mut self, members: &[usize], layers: &[&Placed]) -> Option<Placed> {
        let first = *layers.first()?;
        let mut all = first.clone();
        for (index, argument) in all.arguments.iter_mut().enumerate() {
            let values: Vec<Value> = layers.iter().map(|layer| layer.arguments[index].clone()).collect();
            let (role, sort) = role_of(first.kind, index, first.arguments.len());
            *argument = self.values(members, &values, role, sort)?;
        }
        for layer in layers {
            for (name, value) in &layer.options {
                if !all.options.iter().any(|(other, _)| other == name) {
                    all.options.push((name, value.clone()));
                }
            }
        }
        all.options.sort_by_key(|(name, value)| order_of(name, value));
        for (name, value) in &mut all.options {
            let values: Option<Vec<Value>> = layers
                .iter()
                .map(|layer| {
                    let own = layer.options.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone());
                    own.or_else(|| default_of(layer, name, value))
                })
                .collect();
            let (role, sort) = role_of_option(name);
            *value = self.values(members, &values?, role, sort)?;
        }
        if let Some(branches) = &mut all.branches {
            for (index, branch) in branches.iter_mut().enumerate() {
                let lists: Option<Vec<&[Element]>> =
                    layers.iter().map(|layer| layer.branches.as_ref()?.get(index).map(|list| &list[..])).collect();
                *branch = self.lists(members, &lists?, true)?;
            }
        }
        Some(all)
    }

    fn calls(&mut self, members: &[usize], calls: &[&Call]) -> Option<Call> {
        let first = *calls.first()?;
        let mut all = first.clone();
        for (index, argument) in all.arguments.iter_mut().enumerate() {
            let given: Vec<&Argument> = calls.iter().map(|call| &call.arguments[index]).collect();
            let name = self.functions.get(first.function).and_then(|function| function.parameters.get(index));
            let (role, sort) =
                name.map_or(("size", Sort::Other), |parameter| (&parameter.name[..], sort_of(&parameter.name)));
            *argument = match argument {
                Argument::Value(_) => {
                    let values: Option<Vec<Value>> = given
                        .iter()
                        .map(|argument| match argument {
                            Argument::Value(value) => Some(value.clone()),
                            Argument::Block(_) => None,
                        })
                        .collect();
                    Argument::Value(self.values(members, &values?, role, sort)?)
                }
                Argument::Block(_) => {
                    let lists: Option<Vec<&[Element]>> =
                        given.iter().map(|argument| argument.block().map(|block| &block[..])).collect();
                    Argument::Block(self.lists(members, &lists?, true)?)
                }
            };
        }
        Some(all)
    }

    /// Returns one value if all are equal, and else a column.
    fn values(&mut self, members: &[usize], values: &[Value], role: &str, sort: Sort) -> Option<Value> {
        let first = values.first()?;
        if values.iter().all(|value| value == first) {
            return Some(first.clone());
        }
        if let Value::Tuple(inner) = first {
            let mut all = Vec::new();
            for index in 0..inner.len() {
                let column: Option<Vec<Value>> = values
                    .iter()
                    .map(|value| match value {
                        Value::Tuple(other) if other.len() == inner.len() => Some(other[index].clone()),
                        _ => None,
                    })
                    .collect();
                all.push(self.values(members, &column?, role, sort)?);
            }
            return Some(Value::Tuple(all));
        }
        // A parameter is a size, a number or a flag, and the same in all instances.
        let kind = |value: &Value| match value {
            Value::Literal(Literal::Int(size)) if *size >= 0 => Some(0),
            Value::Literal(Literal::Float(_)) => Some(1),
            Value::Literal(Literal::Bool(_)) => Some(2),
            _ => None,
        };
        let one = kind(first)?;
        if values.iter().any(|value| kind(value) != Some(one)) {
            return None;
        }
        let mut column = vec![None; self.instances];
        for (&member, value) in members.iter().zip(values) {
            column[member] = Some(value.clone());
        }
        self.columns.push(Column { role: role.to_string(), sort, values: column });
        Some(Value::Parameter(self.columns.len() - 1, 1, 1))
    }
}

/// Returns the order in which options are written. Flags come last.
fn order_of(name: &str, value: &Value) -> usize {
    const ORDER: [&str; 8] = ["stride", "padding", "output_padding", "dilation", "groups", "bias", "eps", "momentum"];
    let is_flag = *value == Value::Literal(Literal::Bool(true));
    ORDER.iter().position(|other| *other == name).unwrap_or(ORDER.len() + usize::from(is_flag))
}

/// Returns the value of an option that a layer does not have. `like` is the value that another layer has. `None` if it is not known.
fn default_of(layer: &Placed, name: &str, like: &Value) -> Option<Value> {
    let is_pool = layer.kind.contains("Pool");
    let literal = match name {
        "stride" if is_pool => return layer.arguments.first().cloned(),
        "stride" | "dilation" | "groups" => Literal::Int(1),
        "padding" | "output_padding" => Literal::Int(0),
        "bias" if layer.kind == "Tied" => Literal::Bool(false),
        "bias" | "affine" | "elementwise_affine" | "count_include_pad" => Literal::Bool(true),
        "eps" => Literal::Float(1e-5),
        "momentum" => Literal::Float(0.1),
        _ if *like == Value::Literal(Literal::Bool(true)) => Literal::Bool(false),
        _ => return None,
    };
    (layer.kind != "RmsNorm" || name != "eps").then_some(Value::Literal(literal))
}

/// Returns the name of an argument, and its sort.
fn role_of(kind: &str, index: usize, count: usize) -> (&'static str, Sort) {
    let is_last = index + 1 == count;
    match (kind, index) {
        _ if kind.starts_with("Conv") && index + 2 == count => ("channels", Sort::Width),
        _ if kind.starts_with("Conv") => ("kernel", Sort::Kernel),
        _ if kind.contains("Pool") => ("size", Sort::Kernel),
        ("Linear", _) if is_last => ("features", Sort::Width),
        ("Linear", _) => ("inputs", Sort::Width),
        ("LayerNorm" | "RmsNorm" | "Scale" | "Parameter" | "ClassToken", _) => ("features", Sort::Width),
        ("Embedding" | "PositionEmbedding", 0) => ("count", Sort::Other),
        ("Embedding" | "PositionEmbedding", _) => ("width", Sort::Width),
        ("CausalAttention" | "MultiHeadAttention" | "CausalSelfAttention", 0) => ("heads", Sort::Width),
        ("Dropout" | "Dropout2d" | "Dropout1d" | "Dropout3d", _) => ("p", Sort::Other),
        ("DropPath", _) => ("drop", Sort::Other),
        ("Upsample", _) => ("factor", Sort::Other),
        ("Slice", 0) => ("start", Sort::Width),
        ("Slice", _) => ("end", Sort::Width),
        ("GroupNorm", _) => ("groups", Sort::Other),
        ("Lstm" | "Gru" | "Rnn", _) => ("hidden", Sort::Width),
        _ => ("size", Sort::Width),
    }
}

fn role_of_option(name: &'static str) -> (&'static str, Sort) {
    (name, sort_of(name))
}

fn sort_of(name: &str) -> Sort {
    match name.trim_end_matches(|last: char| last.is_ascii_digit()) {
        "channels" | "features" | "inputs" | "inner" | "hidden" | "width" | "heads" | "start" | "end" | "groups"
        | "size" => Sort::Width,
        "kernel" => Sort::Kernel,
        "padding" | "dilation" => Sort::Padding,
        _ => Sort::Other,
    }
}
