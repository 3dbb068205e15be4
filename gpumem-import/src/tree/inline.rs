//! Writes small functions where they are called.

use super::element::{Argument, Body, Call, Element, Function, Functions, Name, Value, visit, visit_mut, visit_values};
use super::words::{is_container, numbered};
use crate::lift::Literal;

/// Functions of so few elements that are called once are written at the call.
const SMALL: usize = 3;
/// Containers of so few elements are functions only if they are called more often than twice.
const CONTAINER: usize = 5;

/// Writes small functions where they are called, and removes them.
pub(super) fn inline(functions: &mut Functions) {
    // Functions call those before them only, so inner ones come first.
    for index in 0..functions.all.len() {
        let function = functions.all[index].clone();
        let mut sites = Sites::default();
        for body in functions.all[index..].iter().map(|function| &function.body).chain([&functions.forward]) {
            sites.count(body, index);
        }
        if sites.is_bound || !is_small(&function, sites.calls) || !sites.can_be_replaced {
            continue;
        }
        for body in functions.all.iter_mut().map(|function| &mut function.body).chain([&mut functions.forward]) {
            replace(&mut body.elements, index, &function);
        }
    }
    remove_unused(functions);
}

fn is_small(function: &Function, calls: usize) -> bool {
    let count: usize = function.body.elements.iter().map(Element::count).sum();
    let has_own_names = !function.body.lets.is_empty() || !function.body.taps.is_empty();
    let has_blocks = function.parameters.iter().any(|parameter| parameter.kind == super::element::Kind::Block);
    let most = if is_container(&function.class) && calls < 3 { CONTAINER } else { SMALL };
    let is_rare = calls == 1 || is_container(&function.class) && calls < 3;
    is_rare && count <= most && !has_own_names && !has_blocks
}

/// The places at which a function is called.
#[derive(Default)]
struct Sites {
    calls: usize,
    is_bound: bool,
    can_be_replaced: bool,
}

impl Sites {
    fn count(&mut self, body: &Body, function: usize) {
        let is_call = |element: &Element| matches!(element, Element::Call(call) if call.function == function);
        let mut paths: Vec<String> = Vec::new();
        let mut own: Vec<String> = Vec::new();
        let mut in_repeat = 0;
        visit(&body.elements, &mut |element| {
            if let Element::Call(call) = element {
                paths.push(call.path.clone());
                own.extend(Some(call.path.clone()).filter(|_| call.function == function));
            }
            if let Element::Repeat(repeat) = element {
                in_repeat += repeat.body.iter().filter(|element| is_call(element)).count();
            }
        });
        for (_, element) in &body.lets {
            visit(std::slice::from_ref(element), &mut |element| self.is_bound |= is_call(element));
        }
        if own.is_empty() {
            return;
        }
        // A call among others with numbers keeps theirs right.
        let is_numbered = |path: &String| {
            let base = numbered(path).map(|(base, _)| base);
            base.is_some() && paths.iter().filter(|other| numbered(other).map(|(base, _)| base) == base).count() > 1
        };
        let can_be = in_repeat == 0 && !own.iter().any(is_numbered);
        self.can_be_replaced = can_be && (self.calls == 0 || self.can_be_replaced);
        self.calls += own.len();
    }
}

/// Replaces the calls of a function by its elements.
fn replace(list: &mut Vec<Element>, index: usize, function: &Function) {
    let mut all = Vec::with_capacity(list.len());
    for mut element in std::mem::take(list) {
        for inner in element.lists_mut() {
            replace(inner, index, function);
        }
        match element {
            Element::Call(call) if call.function == index => match inside(&call, function) {
                Some(elements) => all.extend(elements),
                None => all.push(Element::Call(call)),
            },
            other => all.push(other),
        }
    }
    *list = all;
}

/// Returns the elements of a call. `None` if a number cannot be written.
fn inside(call: &Call, function: &Function) -> Option<Vec<Element>> {
    let mut body = function.body.clone();
    let mut is_possible = true;
    visit_values(&mut body, &mut |value| {
        if let Value::Parameter(index, times, over) = value {
            match call.arguments.get(*index) {
                Some(Argument::Value(given)) => match product(given, *times, *over) {
                    Some(product) => *value = product,
                    None => is_possible = false,
                },
                _ => is_possible = false,
            }
        }
    });
    visit_mut(&mut body.elements, &mut |element| {
        match element {
            Element::If(..) => is_possible = false,
            Element::Call(inner) => inner.path = joined(&call.path, &inner.path),
            Element::Repeat(repeat) => {
                if let Some(base) = &mut repeat.modules {
                    *base = joined(&call.path, base);
                }
            }
            Element::Layer(layer) | Element::Tied(_, layer) => {
                if let Name::Path(path) | Name::Parameter(path) = &mut layer.name {
                    *path = joined(&call.path, path);
                }
            }
            _ => {}
        };
    });
    // Paths inside of arguments and of rounds are seen from elsewhere.
    let has_scopes = body.elements.iter().any(|element| {
        let mut found = false;
        visit(std::slice::from_ref(element), &mut |element| {
            found |= matches!(element, Element::Repeat(_))
                || matches!(element, Element::Call(call) if call.arguments.iter().any(|argument| argument.block().is_some()));
        });
        found
    });
    (is_possible && !has_scopes).then_some(body.elements)
}

fn joined(path: &str, inner: &str) -> String {
    match inner {
        "" => path.to_string(),
        inner => format!("{path}.{inner}"),
    }
}

/// Returns a value times a number over another one. `None` if it cannot be written as one product.
fn product(value: &Value, times: u64, over: u64) -> Option<Value> {
    match value {
        other if (times, over) == (1, 1) => Some(other.clone()),
        Value::Literal(Literal::Int(size)) => {
            let product = u64::try_from(*size).ok()?.checked_mul(times)? / over;
            Some(Value::Literal(Literal::Int(i64::try_from(product).ok()?)))
        }
        Value::Parameter(index, more, less) if *less == 1 || times == 1 => {
            Some(Value::Parameter(*index, more.checked_mul(times)?, less.checked_mul(over)?))
        }
        _ => None,
    }
}

/// Puts functions into the order in which they are read, and removes those that nothing calls.
fn remove_unused(functions: &mut Functions) {
    let mut order: Vec<usize> = Vec::new();
    let mut open = called(&functions.forward);
    open.reverse();
    while let Some(function) = open.pop() {
        if !order.contains(&function) {
            order.push(function);
            open.extend(called(&functions.all[function].body).into_iter().rev());
        }
    }
    let mut old: Vec<Option<Function>> = std::mem::take(&mut functions.all).into_iter().map(Some).collect();
    functions.all = order.iter().filter_map(|&index| old[index].take()).collect();
    let renumber = |element: &mut Element| {
        if let Element::Call(call) = element {
            call.function = order.iter().position(|other| *other == call.function).unwrap_or(0);
        }
    };
    for body in functions.all.iter_mut().map(|function| &mut function.body).chain([&mut functions.forward]) {
        visit_mut(&mut body.elements, &mut { renumber });
        for (_, element) in &mut body.lets {
            visit_mut(std::slice::from_mut(element), &mut { renumber });
        }
    }
}

/// Returns the functions that a body calls, in their order.
fn called(body: &Body) -> Vec<usize> {
    let mut all = Vec::new();
    let mut add = |element: &Element| {
        if let Element::Call(call) = element {
            all.push(call.function);
        }
    };
    for (_, element) in &body.lets {
        visit(std::slice::from_ref(element), &mut add);
    }
    visit(&body.elements, &mut add);
    all
}
