//! Networks as they are written: elements, functions and values.

use crate::lift::Literal;

/// An argument, or a number that a parameter of the function gives.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A literal that is no tuple.
    Literal(Literal),
    /// Several values in brackets.
    Tuple(Vec<Value>),
    /// A parameter of the function: its index, multiplied and then divided.
    Parameter(usize, u64, u64),
}

impl From<Literal> for Value {
    fn from(literal: Literal) -> Value {
        match literal {
            Literal::Tuple(all) => Value::Tuple(all.into_iter().map(Value::from).collect()),
            other => Value::Literal(other),
        }
    }
}

/// The name of a layer: the place of its parameters in the state dict, seen from the function.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Name {
    /// It has no parameters.
    #[default]
    None,
    /// A path, such as `attn.c_attn`.
    Path(String),
    /// The path of its only parameter, such as `cls_token`.
    Parameter(String),
}

/// A layer in a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// Its name in the language.
    pub kind: &'static str,
    /// Arguments without names.
    pub arguments: Vec<Value>,
    /// Arguments with names, and flags, which are true.
    pub options: Vec<(&'static str, Value)>,
    /// The branches, if it is a join.
    pub branches: Option<Vec<Vec<Element>>>,
    /// Its place in the state dict.
    pub name: Name,
    /// The name as it is printed. `None` if the path is right without.
    pub printed: Option<String>,
}

/// An argument of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// A number or a truth value.
    Value(Value),
    /// Layers.
    Block(Vec<Element>),
}

/// A call of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The index of the function, or of the unit before functions are found.
    pub function: usize,
    /// One for each parameter.
    pub arguments: Vec<Argument>,
    /// The module's path, seen from the function around it.
    pub path: String,
    /// The segment that the call has in paths, without its number.
    pub segment: String,
    /// The name as it is printed. `None` if the function has it.
    pub printed: Option<String>,
}

/// Elements that are repeated, each time with parameters of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeat {
    /// The number of rounds.
    pub times: Value,
    /// The elements of a round. Names are those of the first round.
    pub body: Vec<Element>,
    /// True if each round is a module: paths inside begin with the path and a number, and names are seen from there.
    pub modules: Option<String>,
    /// The name as it is printed.
    pub printed: Option<String>,
}

/// An element of a list.
#[derive(Clone, Debug, PartialEq)]
pub enum Element {
    /// A layer, or a join with its branches.
    Layer(Box<Placed>),
    /// A call of a function.
    Call(Box<Call>),
    /// Elements that are repeated.
    Repeat(Box<Repeat>),
    /// Marks the value at this place.
    Tap(usize),
    /// Reads a value that was marked.
    From(usize),
    /// Reads an input of the network.
    Input(usize),
    /// A parameter of the function that stands for layers.
    Block(usize),
    /// Layers, if a parameter of the function is true or is not one.
    If(usize, Option<u64>, Vec<Element>),
    /// A layer or a call that is declared by a `let`.
    Use(usize),
    /// The transposed use of a layer that is declared by a `let`.
    Tied(usize, Box<Placed>),
    /// The values that the network returns.
    Outputs(Vec<Vec<Element>>),
}

/// The contents of a function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Body {
    /// Layers and calls with a name, since they are used several times.
    pub lets: Vec<(String, Element)>,
    /// The list.
    pub elements: Vec<Element>,
    /// The names of taps.
    pub taps: Vec<String>,
}

/// The kinds of parameters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// `usize`.
    Size,
    /// `f64`.
    Number,
    /// `bool`.
    Flag,
    /// `Block`.
    Block,
}

/// A parameter of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
}

/// A function that returns a block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The segment in paths of its calls, if it is not the name.
    pub attribute: Option<String>,
    /// The class of the module.
    pub class: String,
    /// The parameters.
    pub parameters: Vec<Parameter>,
    /// The contents.
    pub body: Body,
}

/// A network as functions.
pub struct Functions {
    /// The functions, each before those that call it.
    pub all: Vec<Function>,
    /// The contents of `forward`.
    pub forward: Body,
}

impl Element {
    /// Returns the lists directly inside of this element.
    pub fn lists(&self) -> Vec<&Vec<Element>> {
        match self {
            Element::Layer(layer) | Element::Tied(_, layer) => layer.branches.iter().flatten().collect(),
            Element::Call(call) => call.arguments.iter().filter_map(Argument::block).collect(),
            Element::Repeat(repeat) => vec![&repeat.body],
            Element::If(.., then) => vec![then],
            Element::Outputs(all) => all.iter().collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the lists directly inside of this element.
    pub fn lists_mut<'e>(&'e mut self) -> Vec<&'e mut Vec<Element>> {
        match self {
            Element::Layer(layer) | Element::Tied(_, layer) => layer.branches.iter_mut().flatten().collect(),
            Element::Call(call) => {
                let block = |argument: &'e mut Argument| match argument {
                    Argument::Block(block) => Some(block),
                    Argument::Value(_) => None,
                };
                call.arguments.iter_mut().filter_map(block).collect()
            }
            Element::Repeat(repeat) => vec![&mut repeat.body],
            Element::If(.., then) => vec![then],
            Element::Outputs(all) => all.iter_mut().collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the number of layers, calls and references that are written in this element.
    pub fn count(&self) -> usize {
        1 + self.lists().into_iter().flatten().map(Element::count).sum::<usize>()
    }
}

impl Argument {
    /// Returns the layers. `None` if it is a value.
    pub fn block(&self) -> Option<&Vec<Element>> {
        match self {
            Argument::Block(block) => Some(block),
            Argument::Value(_) => None,
        }
    }
}

/// Calls `visit` with every element of a list, the outer ones first.
pub fn visit(list: &[Element], visit_one: &mut impl FnMut(&Element)) {
    for element in list {
        visit_one(element);
        for inner in element.lists() {
            visit(inner, visit_one);
        }
    }
}

/// Calls `visit` with every element of a list, the outer ones first.
pub fn visit_mut(list: &mut [Element], visit_one: &mut impl FnMut(&mut Element)) {
    for element in list {
        visit_one(element);
        for inner in element.lists_mut() {
            visit_mut(inner, visit_one);
        }
    }
}

/// Calls `visit` with every value in a function, also inside of tuples.
pub fn visit_values(body: &mut Body, visit_one: &mut impl FnMut(&mut Value)) {
    let mut of_element = |element: &mut Element| match element {
        Element::Layer(layer) | Element::Tied(_, layer) => {
            let options = layer.options.iter_mut().map(|(_, value)| value);
            layer.arguments.iter_mut().chain(options).for_each(|value| visit_value(value, visit_one));
        }
        Element::Call(call) => {
            for argument in &mut call.arguments {
                if let Argument::Value(value) = argument {
                    visit_value(value, visit_one);
                }
            }
        }
        Element::Repeat(repeat) => visit_value(&mut repeat.times, visit_one),
        _ => {}
    };
    visit_mut(&mut body.elements, &mut of_element);
    for (_, element) in &mut body.lets {
        visit_mut(std::slice::from_mut(element), &mut of_element);
    }
}

fn visit_value(value: &mut Value, visit_one: &mut impl FnMut(&mut Value)) {
    match value {
        Value::Tuple(all) => all.iter_mut().for_each(|value| visit_value(value, visit_one)),
        other => visit_one(other),
    }
}
