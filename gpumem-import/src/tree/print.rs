//! Prints networks as source, in lines of 120 letters.

use super::element::{Argument, Body, Element, Function, Kind, Name, Placed, Value};
use super::{Network, Signature};
use crate::lift::Literal;
use std::fmt::Write as _;

/// The longest line.
const WIDTH: usize = 120;

/// A text that may be broken into lines: between its items.
struct Text {
    begin: String,
    items: Vec<Text>,
    end: &'static str,
    /// True if it begins a group: the items after it, up to the next such one, belong to it.
    leads: bool,
}

impl Text {
    fn word(text: impl Into<String>) -> Text {
        Text { begin: text.into(), items: Vec::new(), end: "", leads: false }
    }

    fn call(name: &str, items: Vec<Text>) -> Text {
        match items.is_empty() {
            true => Text::word(format!("{name}()")),
            false => Text { begin: format!("{name}("), items, end: ")", leads: false },
        }
    }

    fn list(items: Vec<Text>) -> Text {
        match items.is_empty() {
            true => Text::word("[]"),
            false => Text { begin: "[".into(), items, end: "]", leads: false },
        }
    }

    fn flat(&self, out: &mut String) {
        out.push_str(&self.begin);
        out.push_str(if self.begin.ends_with('{') { " " } else { "" });
        for (index, item) in self.items.iter().enumerate() {
            out.push_str(if index > 0 { ", " } else { "" });
            item.flat(out);
        }
        out.push_str(self.end);
    }

    fn width(&self) -> usize {
        let items: usize = self.items.iter().map(|item| item.width() + 2).sum();
        self.begin.chars().count() + usize::from(self.begin.ends_with('{')) + items.saturating_sub(2) + self.end.len()
    }

    /// Writes the text from `column` on. `after` is the number of letters that follow in its last line.
    fn write(&self, out: &mut String, indent: usize, column: usize, after: usize) {
        if column + self.width() + after <= WIDTH || self.items.is_empty() {
            return self.flat(out);
        }
        if self.write_last_broken(out, indent, column) {
            return;
        }
        out.push_str(&self.begin);
        let inner = indent + 4;
        if let ([only], true) = (&self.items[..], self.begin.ends_with('{')) {
            new_line(out, inner);
            only.write(out, inner, inner, 0);
            for line in ["} else {", "    []", "}"] {
                new_line(out, indent);
                out.push_str(line);
            }
            return;
        }
        let (mut at, mut is_long, mut was_broken) = (WIDTH, false, true);
        for (index, item) in self.items.iter().enumerate() {
            let width = item.width() + 1;
            let group: usize = match item.leads {
                true => {
                    let rest = self.items[index + 1..].iter().take_while(|item| !item.leads);
                    width + rest.map(|item| item.width() + 2).sum::<usize>()
                }
                false => width,
            };
            let is_full = at + 1 + width > WIDTH;
            // A group begins a line unless all of it fits, or after one that has several.
            if is_full || item.leads && (at + 1 + group > WIDTH && inner + group <= WIDTH || is_long) {
                new_line(out, inner);
                at = inner;
                is_long = is_full && !item.leads && !was_broken;
            } else {
                out.push(' ');
                at += 1;
            }
            let is_broken = inner + width > WIDTH;
            item.write(out, inner, at, 1);
            out.push(',');
            at = if is_broken { WIDTH } else { at + width };
            is_long &= !is_broken;
            was_broken = is_broken;
        }
        new_line(out, indent);
        out.push_str(self.end);
    }

    /// Breaks the last item alone, as in `Add([], [`, if the others are short. False if they are not.
    fn write_last_broken(&self, out: &mut String, indent: usize, column: usize) -> bool {
        let Some((last, before)) =
            self.items.split_last().filter(|(last, before)| last.begin == "[" && !before.is_empty())
        else {
            return false;
        };
        let width: usize = before.iter().map(|item| item.width() + 2).sum();
        if self.begin == "["
            || column + self.begin.len() + width > WIDTH / 2
            || before.iter().any(|item| item.width() > 24)
        {
            return false;
        }
        out.push_str(&self.begin);
        for item in before {
            item.flat(out);
            out.push_str(", ");
        }
        // The last item does not fit beside them, so it is broken.
        last.write(out, indent, WIDTH, 1);
        out.push_str(self.end);
        true
    }
}

fn new_line(out: &mut String, indent: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n(' ', indent));
}

/// Names that elements refer to.
struct Scope<'n> {
    functions: &'n [Function],
    parameters: &'n [super::element::Parameter],
    body: &'n Body,
    inputs: &'n [Signature],
}

impl Scope<'_> {
    fn body(&self, out: &mut String, indent: usize) {
        for (name, element) in &self.body.lets {
            new_line(out, indent);
            let _ = write!(out, "let {name} = ");
            self.element(element).write(out, indent, indent + name.len() + 7, 1);
            out.push(';');
        }
        new_line(out, indent);
        match &self.body.elements[..] {
            [only @ (Element::Repeat(_) | Element::Call(_))] => self.element(only).write(out, indent, indent, 0),
            [only @ Element::Layer(layer)] if layer.branches.is_some() => {
                self.element(only).write(out, indent, indent, 0)
            }
            all => self.list(all).write(out, indent, indent, 0),
        }
    }

    fn list(&self, list: &[Element]) -> Text {
        Text::list(list.iter().map(|element| self.element(element)).collect())
    }

    /// Writes a branch or an argument: one element needs no brackets.
    fn branch(&self, list: &[Element]) -> Text {
        match list {
            [only] if !matches!(only, Element::Tap(_)) => self.element(only),
            _ => self.list(list),
        }
    }

    fn element(&self, element: &Element) -> Text {
        match element {
            Element::Layer(layer) => self.layer(layer, None),
            Element::Tied(binding, layer) => self.layer(layer, self.body.lets.get(*binding).map(|(name, _)| &name[..])),
            Element::Use(binding) => {
                let name = self.body.lets.get(*binding).map_or("", |(name, _)| name);
                Text { leads: true, ..Text::word(name) }
            }
            Element::Call(call) => {
                let function = self.functions.get(call.function);
                let mut items: Vec<Text> = call
                    .arguments
                    .iter()
                    .map(|argument| match argument {
                        Argument::Value(value) => Text::word(self.value(value)),
                        Argument::Block(block) => self.branch(block),
                    })
                    .collect();
                items.extend(call.printed.as_ref().map(|name| Text::word(format!("name = {name:?}"))));
                Text { leads: true, ..Text::call(function.map_or("", |function| &function.name), items) }
            }
            Element::Repeat(repeat) => {
                // The rounds of a list have a name, and what is inside has its own.
                let body = if repeat.modules.is_some() { self.list(&repeat.body) } else { self.branch(&repeat.body) };
                let mut items = vec![Text::word(self.value(&repeat.times)), body];
                items.extend(repeat.printed.as_ref().map(|name| Text::word(format!("name = {name:?}"))));
                Text { leads: true, ..Text::call("repeat", items) }
            }
            Element::Tap(tap) => Text::word(format!("tap({})", self.tap(*tap))),
            Element::From(tap) => Text { leads: true, ..Text::word(format!("from({})", self.tap(*tap))) },
            Element::Input(input) => {
                let name = self.inputs.get(*input).map_or("", |input| &input.name);
                Text { leads: true, ..Text::word(format!("from({name})")) }
            }
            Element::Block(parameter) => Text::word(self.parameter(*parameter)),
            Element::If(parameter, size, then) => {
                let name = self.parameter(*parameter);
                let condition = size.map_or(name.clone(), |size| format!("{name} != {size}"));
                Text {
                    begin: format!("if {condition} {{"),
                    items: vec![self.branch(then)],
                    end: " } else { [] }",
                    leads: false,
                }
            }
            Element::Outputs(outputs) => {
                let items = outputs.iter().map(|output| self.branch(output)).collect();
                Text { leads: true, ..Text::call("Outputs", items) }
            }
        }
    }

    fn tap(&self, tap: usize) -> &str {
        self.body.taps.get(tap).map_or("", |name| name)
    }

    fn parameter(&self, index: usize) -> String {
        self.parameters.get(index).map_or(String::new(), |parameter| parameter.name.clone())
    }

    fn layer(&self, layer: &Placed, tied: Option<&str>) -> Text {
        let mut items: Vec<Text> = tied.map(Text::word).into_iter().collect();
        items.extend(layer.branches.iter().flatten().map(|branch| self.branch(branch)));
        items.extend(layer.arguments.iter().map(|argument| Text::word(self.value(argument))));
        for (name, value) in &layer.options {
            items.push(Text::word(match value {
                Value::Literal(Literal::Bool(true)) => (*name).to_string(),
                value => format!("{name} = {}", self.value(value)),
            }));
        }
        if let Some(name) = &layer.printed {
            let option = if matches!(layer.name, Name::Parameter(_)) { "parameter" } else { "name" };
            items.push(Text::word(format!("{option} = {name:?}")));
        }
        let leads = leads(layer);
        match items.is_empty() {
            true => Text { leads, ..Text::word(layer.kind) },
            false => Text { leads, ..Text::call(layer.kind, items) },
        }
    }

    fn value(&self, value: &Value) -> String {
        match value {
            Value::Literal(literal) => literal.to_string(),
            Value::Tuple(all) => {
                let all: Vec<String> = all.iter().map(|value| self.value(value)).collect();
                match &all[..] {
                    [only] => only.clone(),
                    _ => format!("({})", all.join(", ")),
                }
            }
            Value::Parameter(index, times, over) => {
                let name = self.parameter(*index);
                match (times, over) {
                    (1, 1) => name,
                    (times, 1) => format!("{times} * {name}"),
                    (1, over) => format!("{name} / {over}"),
                    (times, over) => format!("{times} * {name} / {over}"),
                }
            }
        }
    }
}

/// True for layers after which norms, activations and others follow.
fn leads(layer: &Placed) -> bool {
    const FOLLOWS: [&str; 8] = ["Norm", "Dropout", "DropPath", "Pool", "Flatten", "elu", "Scale", "Softmax"];
    layer.branches.is_some() || layer.name != Name::None && !FOLLOWS.iter().any(|word| layer.kind.contains(word))
}

/// Returns the source of a network.
pub(super) fn source(network: &Network) -> String {
    let mut out = String::from("use gpumem::network;\n\nnetwork! {\n");
    for line in &network.docs {
        let _ = writeln!(out, "    /// {line}");
    }
    let _ = write!(out, "    pub struct {};\n\n", network.name);
    out.push_str("    ");
    Text {
        begin: "const TRAIN: Train = Train {".into(),
        items: network.train.iter().map(Text::word).collect(),
        end: " };",
        leads: false,
    }
    .write_braces(&mut out);
    out.push_str("\n\n");
    let inputs: Vec<Text> =
        network.inputs.iter().map(|input| Text::word(format!("{}: {}", input.name, input.kind))).collect();
    let outputs = match &network.outputs[..] {
        [only] => only.clone(),
        several => format!("({})", several.join(", ")),
    };
    out.push_str("    ");
    Text::call("fn forward", inputs).write(&mut out, 4, 4, outputs.len() + 6);
    let _ = write!(out, " -> {outputs} {{");
    let functions = &network.functions;
    let scope = Scope { functions, parameters: &[], body: &network.forward, inputs: &network.inputs };
    scope.body(&mut out, 8);
    out.push_str("\n    }\n");
    for function in functions {
        out.push('\n');
        if let Some(attribute) = &function.attribute {
            let _ = writeln!(out, "    #[name = {attribute:?}]");
        }
        let kind = |kind: Kind| match kind {
            Kind::Size => "usize",
            Kind::Number => "f64",
            Kind::Flag => "bool",
            Kind::Block => "Block",
        };
        let parameters = function.parameters.iter();
        let items: Vec<Text> =
            parameters.map(|parameter| Text::word(format!("{}: {}", parameter.name, kind(parameter.kind)))).collect();
        out.push_str("    ");
        Text::call(&format!("fn {}", function.name), items).write(&mut out, 4, 4, 11);
        out.push_str(" -> Block {");
        Scope { functions, parameters: &function.parameters, body: &function.body, inputs: &[] }.body(&mut out, 8);
        out.push_str("\n    }\n");
    }
    out.push_str("}\n");
    out
}

impl Text {
    /// Writes the fields of a struct: one a line, if they do not fit into one.
    fn write_braces(&self, out: &mut String) {
        if 4 + self.width() <= WIDTH {
            return self.flat(out);
        }
        out.push_str(self.begin.trim_end());
        for item in &self.items {
            new_line(out, 8);
            let mut text = String::new();
            item.flat(&mut text);
            if 9 + text.chars().count() > WIDTH {
                // Terms of a loss.
                text = text.replace(" + ", "\n            + ");
            }
            out.push_str(&text);
            out.push(',');
        }
        new_line(out, 4);
        out.push_str(self.end.trim_start());
    }
}
