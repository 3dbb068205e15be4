//! Makes functions of units: those that differ only in numbers, or in one branch, are one function.

use super::Refusal;
use super::element::{Argument, Body, Element, Function, Functions, Kind, Parameter, Value, visit_mut, visit_values};
use super::repeat;
use super::unify::{Branch, COLUMNS, Column, Sort, Unifier};
use super::units::{Node, Units};
use super::words::{Names, identifier, is_container};
use crate::lift::Literal;
use crate::model::ValueId;
use std::collections::{BTreeMap, HashMap};

/// The most parameters of a function. With more, two functions are clearer.
const MOST_PARAMETERS: usize = 6;
/// The most elements of an argument. With more, two functions are clearer.
const MOST_OF_ARGUMENT: usize = 10;
/// The most different bodies of which one function is made.
const MOST_BODIES: usize = 64;

/// A function and the arguments with which it is a unit.
type Made = (usize, Vec<Argument>);

/// Makes functions of all units.
pub(super) fn functions(units: &Units<'_>, inputs: &[ValueId]) -> Result<Functions, Refusal> {
    let mut maker = Maker { functions: Vec::new(), made: vec![None; units.all.len()] };
    let Some((network, inner)) = units.all.split_last() else { return Err(Refusal("it has no layers".into())) };
    let mut open: Vec<usize> = (0..inner.len()).collect();
    let mut bodies: Vec<Body> = Vec::new();
    for unit in inner {
        bodies.push(super::lists::body(units, unit, &[])?);
    }
    while !open.is_empty() {
        let group = maker.ready(units, &open);
        open.retain(|unit| !group.contains(unit));
        let mut folded = Vec::new();
        for &unit in &group {
            let mut body = bodies[unit].clone();
            maker.resolve(&mut body)?;
            repeat::fold(&mut body);
            folded.push(body);
        }
        maker.make(units, &group, &folded);
    }
    let mut forward = super::lists::body(units, network, inputs)?;
    maker.resolve(&mut forward)?;
    repeat::fold(&mut forward);
    Ok(Functions { all: maker.functions, forward })
}

struct Maker {
    functions: Vec<Function>,
    made: Vec<Option<Made>>,
}

impl Maker {
    /// Returns units of one class whose inner units are functions already: all units of the class if there is such a class.
    fn ready(&self, units: &Units<'_>, open: &[usize]) -> Vec<usize> {
        let is_ready = |unit: usize| {
            let inside = |node: &Node| match node {
                Node::Unit(inner) => self.made[*inner].is_some(),
                Node::Layer(_) => true,
            };
            units.all[unit].nodes.iter().all(inside)
        };
        let mut classes: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for &unit in open {
            classes.entry(&units.all[unit].class).or_default().push(unit);
        }
        let whole = classes.values().find(|members| members.iter().all(|&unit| is_ready(unit)));
        match whole {
            Some(members) => members.clone(),
            // A class that contains itself: those that are ready.
            None => {
                let ready =
                    classes.values().map(|members| members.iter().copied().filter(|&unit| is_ready(unit)).collect());
                ready.into_iter().find(|ready: &Vec<usize>| !ready.is_empty()).unwrap_or_else(|| open.to_vec())
            }
        }
    }

    /// Replaces units by functions in all calls.
    fn resolve(&self, body: &mut Body) -> Result<(), Refusal> {
        for (_, element) in &mut body.lets {
            self.resolve_element(element)?;
        }
        body.elements.iter_mut().try_for_each(|element| self.resolve_element(element))
    }

    fn resolve_element(&self, element: &mut Element) -> Result<(), Refusal> {
        for inner in element.lists_mut() {
            inner.iter_mut().try_for_each(|element| self.resolve_element(element))?;
        }
        if let Element::Call(call) = element {
            let made = self.made.get(call.function).and_then(Option::as_ref);
            let Some((function, arguments)) = made else { return Err(Refusal("a module contains itself".into())) };
            call.function = *function;
            // These are resolved already.
            call.arguments.extend(arguments.iter().cloned());
        }
        Ok(())
    }

    /// Makes functions of units of one class.
    fn make(&mut self, units: &Units<'_>, group: &[usize], bodies: &[Body]) {
        let extra = |unit: usize| units.all[unit].inputs.len() - 1;
        // Equal bodies are one.
        let mut distinct: Vec<(usize, Vec<usize>)> = Vec::new();
        for (index, &unit) in group.iter().enumerate() {
            let is_equal = |(first, _): &&mut (usize, Vec<usize>)| {
                bodies[*first] == bodies[index] && extra(group[*first]) == extra(unit)
            };
            match distinct.iter_mut().find(is_equal) {
                Some((_, members)) => members.push(unit),
                None => distinct.push((index, vec![unit])),
            }
        }
        let class = &units.all[group[0]].class;
        let is_container = is_container(class);
        let mut clusters: Vec<Vec<usize>> = Vec::new();
        for at in 0..distinct.len() {
            let found = clusters.iter_mut().find(|cluster| {
                let same = extra(group[distinct[cluster[0]].0]) == extra(group[distinct[at].0]);
                same && cluster.len() < MOST_BODIES
                    && self.joined(&[cluster, &[at]], &distinct, bodies, false).is_some()
            });
            match found {
                Some(cluster) => cluster.push(at),
                None => clusters.push(vec![at]),
            }
        }
        let mut allows = vec![false; clusters.len()];
        let mut at = 0;
        while at < clusters.len() && !is_container {
            let other = (at + 1..clusters.len().min(at + MOST_BODIES)).find(|&other| {
                let same = extra(group[distinct[clusters[at][0]].0]) == extra(group[distinct[clusters[other][0]].0]);
                let cost = |clusters: &[&[usize]], allows| {
                    self.joined(clusters, &distinct, bodies, allows).map(|made| cost(&made))
                };
                let (one, two) = (cost(&[&clusters[at]], allows[at]), cost(&[&clusters[other]], allows[other]));
                let both = cost(&[&clusters[at], &clusters[other]], true);
                // A function that is mostly arguments is none.
                let is_shorter = || Some(4 * both? < 3 * (one? + two?));
                same && is_shorter() == Some(true)
            });
            match other {
                Some(other) => {
                    let joined = clusters.remove(other);
                    allows.remove(other);
                    clusters[at].extend(joined);
                    allows[at] = true;
                }
                None => at += 1,
            }
        }
        for (cluster, allows) in clusters.iter().zip(allows) {
            let Some((mut function, arguments)) = self.joined(&[cluster], &distinct, bodies, allows) else { continue };
            function.class.clone_from(class);
            let extra = extra(group[distinct[cluster[0]].0]);
            add_extra(&mut function, extra);
            self.functions.push(function);
            for (&at, arguments) in cluster.iter().zip(arguments) {
                for &unit in &distinct[at].1 {
                    self.made[unit] = Some((self.functions.len() - 1, arguments.clone()));
                }
            }
        }
    }

    /// Returns one function for several bodies, and the arguments with which it is each of them. `None` if they are too different.
    fn joined(
        &self,
        clusters: &[&[usize]],
        distinct: &[(usize, Vec<usize>)],
        bodies: &[Body],
        allows_branches: bool,
    ) -> Option<(Function, Vec<Vec<Argument>>)> {
        let all: Vec<&Body> = clusters.iter().copied().flatten().map(|&at| &bodies[distinct[at].0]).collect();
        let instances = all.len();
        let mut unifier = Unifier {
            functions: &self.functions,
            columns: Vec::new(),
            branches: Vec::new(),
            allows_branches,
            instances,
        };
        let mut body = unifier.bodies(&all)?;
        let branches = std::mem::take(&mut unifier.branches);
        if branches.len() > 2 {
            return None;
        }
        let choices: Vec<Option<(Vec<Element>, usize)>> =
            branches.iter().map(|branch| optional(branch, &mut unifier)).collect();
        let flags: Vec<usize> = choices.iter().flatten().map(|(_, flag)| *flag).collect();
        let mut parameters = Parameters::new(unifier.columns, &flags, instances);
        parameters.add_branches(&branches, &choices);
        if parameters.all.len() > MOST_PARAMETERS {
            return None;
        }
        parameters.replace(&mut body, &choices);
        let kinds =
            parameters.all.iter().map(|parameter| Parameter { name: parameter.name.clone(), kind: parameter.kind });
        let function = Function { parameters: kinds.collect(), body, ..Function::default() };
        let arguments: Vec<Vec<Argument>> = (0..instances).map(|instance| parameters.arguments(instance)).collect();
        let mut blocks = arguments.iter().flatten().filter_map(Argument::block);
        if blocks.any(|block| block.iter().map(Element::count).sum::<usize>() > MOST_OF_ARGUMENT) {
            return None;
        }
        Some((function, arguments))
    }
}

/// Returns about how many elements a function and its calls have.
fn cost((function, arguments): &(Function, Vec<Vec<Argument>>)) -> usize {
    let blocks = arguments.iter().flatten().filter_map(Argument::block).flatten();
    let body: usize = function.body.elements.iter().map(Element::count).sum();
    body + 2 * function.parameters.len() + blocks.map(Element::count).sum::<usize>()
}

/// Puts parameters for values from elsewhere before the others, and numbers all that are layers.
fn add_extra(function: &mut Function, extra: usize) {
    let mut names = Names::with(function.parameters.iter().map(|parameter| parameter.name.clone()));
    let own: Vec<Parameter> =
        (0..extra).map(|_| Parameter { name: names.add("read".into()), kind: Kind::Block }).collect();
    function.parameters.splice(0..0, own);
    visit_values(&mut function.body, &mut |value| {
        if let Value::Parameter(index, ..) = value {
            *index += extra;
        }
    });
    let shift = |element: &mut Element| match element {
        Element::Block(index) if *index >= COLUMNS => *index = *index - COLUMNS + extra,
        Element::If(index, ..) => *index += extra,
        _ => {}
    };
    visit_mut(&mut function.body.elements, &mut { shift });
}

/// Returns the layers of a branch that some instances have and the others lack, with a new column of flags. `None` if the instances have
/// different layers, or only one without parameters.
fn optional(branch: &Branch, unifier: &mut Unifier<'_>) -> Option<(Vec<Element>, usize)> {
    let members: Vec<usize> = (0..branch.lists.len()).filter(|&index| !branch.lists[index].is_empty()).collect();
    if members.len() == branch.lists.len() {
        return None;
    }
    let lists: Vec<&[Element]> = members.iter().map(|&index| &branch.lists[index][..]).collect();
    let is_plain =
        |list: &&[Element]| matches!(list, [Element::Layer(layer)] if layer.name == super::element::Name::None);
    if lists.iter().all(is_plain) && lists.iter().any(|list| *list != lists[0]) {
        return None;
    }
    let columns = unifier.columns.len();
    let allowed = std::mem::replace(&mut unifier.allows_branches, false);
    let found = unifier.lists(&members, &lists, true);
    unifier.allows_branches = allowed;
    let Some(list) = found else {
        unifier.columns.truncate(columns);
        return None;
    };
    let flag = |index| Some(Value::Literal(Literal::Bool(members.contains(&index))));
    let values = (0..branch.lists.len()).map(flag).collect();
    unifier.columns.push(Column { role: flag_name(&list), sort: Sort::Other, values });
    Some((list, unifier.columns.len() - 1))
}

/// Returns the name of the flag that says if a branch is there.
fn flag_name(list: &[Element]) -> String {
    let path = list.iter().find_map(|element| match element {
        Element::Layer(layer) => match &layer.name {
            super::element::Name::Path(path) | super::element::Name::Parameter(path) => Some(path.clone()),
            super::element::Name::None => None,
        },
        Element::Call(call) => Some(call.path.clone()),
        _ => None,
    });
    let first = path.and_then(|path| path.split('.').map(identifier).find(|name| !name.is_empty()));
    match first {
        Some(name) => format!("has_{name}"),
        None => match list.first() {
            Some(Element::Layer(layer)) => format!("has_{}", identifier(layer.kind)),
            _ => "has_more".into(),
        },
    }
}

/// Parameters of a function, made of columns.
struct Parameters {
    all: Vec<Chosen>,
    /// For each column, the parameter that it is, with the numbers by which that is multiplied and divided.
    of: Vec<(usize, u64, u64)>,
    /// For each branch, its parameter. `None` if it is chosen by a flag.
    blocks: Vec<Option<usize>>,
    /// For columns of flags that are true where a stride is not this one, the parameter of the stride.
    conditions: HashMap<usize, (usize, u64)>,
    instances: usize,
}

struct Chosen {
    name: String,
    kind: Kind,
    sort: Sort,
    values: Vec<Option<Value>>,
    lists: Vec<Vec<Element>>,
}

impl Parameters {
    fn new(columns: Vec<Column>, flags: &[usize], instances: usize) -> Parameters {
        let mut parameters = Parameters {
            all: Vec::new(),
            of: vec![(0, 1, 1); columns.len()],
            blocks: Vec::new(),
            conditions: HashMap::new(),
            instances,
        };
        // The smallest widths first, since others are multiples of them.
        let total = |column: &Column| column.values.iter().flatten().filter_map(size_of).sum::<u64>();
        let mut order: Vec<usize> = (0..columns.len()).collect();
        order.sort_by_key(|&index| {
            let column = &columns[index];
            match column.sort {
                Sort::Width => (0, total(column), index),
                Sort::Kernel => (1, 0, index),
                Sort::Padding => (3, 0, index),
                Sort::Other => (2, 0, index),
            }
        });
        for index in order {
            if flags.contains(&index) {
                continue;
            }
            parameters.of[index] = parameters.find(&columns[index]);
        }
        for &flag in flags {
            match parameters.condition(&columns[flag]) {
                Some(condition) => _ = parameters.conditions.insert(flag, condition),
                None => parameters.of[flag] = parameters.find(&columns[flag]),
            }
        }
        parameters.sort(&columns);
        parameters
    }

    /// Returns the stride that is not this number if and only if a flag is true. `None` if there is none.
    fn condition(&self, flag: &Column) -> Option<(usize, u64)> {
        let is_true = |index: usize| flag.values[index] == Some(Value::Literal(Literal::Bool(true)));
        let plain = (0..self.instances).find(|&index| !is_true(index))?;
        self.all.iter().enumerate().filter(|(_, chosen)| chosen.name == "stride").find_map(|(index, stride)| {
            let size = stride.values[plain].as_ref().and_then(size_of)?;
            let differs = |index: usize| stride.values[index].as_ref().and_then(size_of).map(|other| other != size);
            (0..self.instances).all(|index| differs(index) == Some(is_true(index))).then_some((index, size))
        })
    }

    /// Returns the parameter that a column is, or adds one.
    fn find(&mut self, column: &Column) -> (usize, u64, u64) {
        for (index, chosen) in self.all.iter_mut().enumerate() {
            if chosen.sort == column.sort
                && same_role(&chosen.name, &column.role, column.sort)
                && fill(chosen, column, 1, 1)
            {
                return (index, 1, 1);
            }
        }
        for (index, chosen) in self.all.iter_mut().enumerate() {
            let related: &[(u64, u64)] = match (chosen.sort, column.sort) {
                (Sort::Width, Sort::Width) => &[(2, 1), (3, 1), (4, 1), (6, 1), (8, 1), (3, 2)],
                (Sort::Kernel, Sort::Padding) => &[(1, 2)],
                _ => &[],
            };
            if let Some(&(times, over)) = related.iter().find(|(times, over)| fill(chosen, column, *times, *over)) {
                return (index, times, over);
            }
        }
        let kind = match column.values.iter().flatten().next() {
            Some(Value::Literal(Literal::Float(_))) => Kind::Number,
            Some(Value::Literal(Literal::Bool(_))) => Kind::Flag,
            _ => Kind::Size,
        };
        let name = column.role.trim_end_matches(|last: char| last.is_ascii_digit()).to_string();
        self.all.push(Chosen { name, kind, sort: column.sort, values: column.values.clone(), lists: Vec::new() });
        (self.all.len() - 1, 1, 1)
    }

    /// Puts the parameters into the order in which they are used, and makes their names different.
    fn sort(&mut self, columns: &[Column]) {
        let mut order: Vec<usize> = Vec::new();
        for index in (0..columns.len()).filter(|index| !self.conditions.contains_key(index)) {
            let parameter = self.of[index].0;
            if !order.contains(&parameter) {
                order.push(parameter);
            }
        }
        for of in &mut self.of {
            of.0 = order.iter().position(|other| *other == of.0).unwrap_or(0);
        }
        for (parameter, _) in self.conditions.values_mut() {
            *parameter = order.iter().position(|other| other == parameter).unwrap_or(0);
        }
        let mut old: Vec<Option<Chosen>> = std::mem::take(&mut self.all).into_iter().map(Some).collect();
        self.all = order.iter().filter_map(|&index| old[index].take()).collect();
        let widths: Vec<usize> = (0..self.all.len())
            .filter(|&index| ["channels", "features"].contains(&&self.all[index].name[..]))
            .collect();
        if let [first, _] = widths[..]
            && self.all[first].name == self.all[widths[1]].name
        {
            self.all[first].name = "inner".into();
        }
        let mut names = Names::default();
        for chosen in &mut self.all {
            chosen.name = names.add(identifier(&chosen.name));
        }
    }

    fn add_branches(&mut self, branches: &[Branch], choices: &[Option<(Vec<Element>, usize)>]) {
        for (branch, choice) in branches.iter().zip(choices) {
            if choice.is_some() {
                self.blocks.push(None);
                continue;
            }
            let is_activation = branch.lists.iter().all(|list| {
                list.len() <= 1
                    && list.iter().all(|element| matches!(element, Element::Layer(layer) if layer.branches.is_none()))
            });
            let wanted = if is_activation { "activation" } else { "inside" };
            let name = Names::with(self.all.iter().map(|other| other.name.clone())).add(wanted.into());
            self.all.push(Chosen {
                name,
                kind: Kind::Block,
                sort: Sort::Other,
                values: Vec::new(),
                lists: branch.lists.clone(),
            });
            self.blocks.push(Some(self.all.len() - 1));
        }
    }

    /// Replaces columns by parameters.
    fn replace(&self, body: &mut Body, choices: &[Option<(Vec<Element>, usize)>]) {
        visit_mut(&mut body.elements, &mut |element| {
            let Element::Block(index) = element else { return };
            let Some(column) = index.checked_sub(COLUMNS) else { return };
            match (&choices[column], self.blocks[column]) {
                (Some((list, flag)), _) => *element = Element::If(*flag, None, list.clone()),
                (None, Some(parameter)) => *index = COLUMNS + parameter,
                (None, None) => {}
            }
        });
        visit_mut(&mut body.elements, &mut |element| {
            if let Element::If(flag, condition, _) = element {
                (*flag, *condition) = match self.conditions.get(flag) {
                    Some(&(stride, size)) => (stride, Some(size)),
                    None => (self.of[*flag].0, None),
                };
            }
        });
        visit_values(body, &mut |value| {
            if let Value::Parameter(column, times, over) = value {
                let (parameter, more, less) = self.of[*column];
                (*column, *times, *over) = (parameter, more, less);
            }
        });
    }

    /// Returns the arguments of an instance.
    fn arguments(&self, instance: usize) -> Vec<Argument> {
        debug_assert!(instance < self.instances);
        let argument = |chosen: &Chosen| match chosen.kind {
            Kind::Block => Argument::Block(chosen.lists[instance].clone()),
            Kind::Flag => {
                Argument::Value(chosen.values[instance].clone().unwrap_or(Value::Literal(Literal::Bool(false))))
            }
            // An instance without the place takes the number of any other.
            _ => {
                let own = chosen.values[instance].clone().or_else(|| chosen.values.iter().flatten().next().cloned());
                Argument::Value(own.unwrap_or(Value::Literal(Literal::Int(1))))
            }
        };
        self.all.iter().map(argument).collect()
    }
}

fn same_role(name: &str, role: &str, sort: Sort) -> bool {
    match sort {
        Sort::Width | Sort::Kernel | Sort::Padding => true,
        Sort::Other => name == role.trim_end_matches(|last: char| last.is_ascii_digit()),
    }
}

fn size_of(value: &Value) -> Option<u64> {
    match value {
        Value::Literal(Literal::Int(size)) => u64::try_from(*size).ok(),
        _ => None,
    }
}

/// True if a column is a parameter times a number over another one. Then places that the parameter lacks are filled.
fn fill(chosen: &mut Chosen, column: &Column, times: u64, over: u64) -> bool {
    let is_plain = (times, over) == (1, 1);
    let agrees = chosen.values.iter().zip(&column.values).all(|(a, b)| match (a, b) {
        (Some(a), Some(b)) if is_plain => a == b,
        (Some(a), Some(b)) => match (size_of(a), size_of(b)) {
            (Some(a), Some(b)) => a.checked_mul(times).is_some_and(|product| product / over == b),
            _ => false,
        },
        // Only equal columns fill each other.
        _ => is_plain,
    });
    // Something must be compared.
    let overlaps = chosen.values.iter().zip(&column.values).any(|(a, b)| a.is_some() && b.is_some());
    if agrees && overlaps && is_plain {
        for (a, b) in chosen.values.iter_mut().zip(&column.values) {
            *a = a.take().or_else(|| b.clone());
        }
    }
    agrees && overlaps
}
