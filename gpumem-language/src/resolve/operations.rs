//! Resolves layers that `operation!` declares.

use super::Resolver;
use super::formulas::Making;
use super::frame::{Current, Frame, Known};
use super::layers::Call;
use crate::errors::Errors;
use crate::parse::call_of_one;
use crate::syntax::{Argument as Written, Axis, Expression, Function, Kind, Module, Operation, Place, Tensor};
use gpumem_core::layers::arguments::{Argument, Arguments};
use gpumem_core::layers::declared::{Own, OwnParameter};
use gpumem_core::layers::{Built, Entry};
use gpumem_core::program::Init;
use gpumem_core::program::op::Op;
use gpumem_core::program::ops;
use gpumem_core::shape::Shape;
use proc_macro2::Ident;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::OnceLock;

/// An operation, and the module in which its names are resolved.
pub(super) type Declared<'s> = (&'s Operation, &'s Module);

/// A list of names that live as long as the process, as names of layers do. Each is stored once, however often it is expanded.
#[derive(Default)]
struct Names {
    name: OnceLock<String>,
    rest: OnceLock<Box<Names>>,
}

/// The names of arguments.
static NAMES: Names = Names { name: OnceLock::new(), rest: OnceLock::new() };

/// Returns the name of an argument from [`NAMES`], which has it from then on.
fn stored(name: &str) -> &'static str {
    let mut names = &NAMES;
    loop {
        let own = names.name.get_or_init(|| name.into());
        if own == name {
            return own;
        }
        names = names.rest.get_or_init(Box::default);
    }
}

impl<'s> Resolver<'s, '_> {
    /// Returns the operation that a name without a path means, or `None`. Reports a name that several modules have.
    pub(super) fn operation_called(
        &mut self,
        element: &Expression,
        name: &str,
        frame: &Frame<'s>,
    ) -> Option<Declared<'s>> {
        let found = self.operations_called(name, frame);
        if found.len() > 1 {
            let uses = frame.module.uses.iter().filter(|import| operation(&import.module, name).is_some());
            let calls: Vec<String> = uses.map(|import| format!("`{}::{name}`", import.name)).collect();
            let message = format!("several modules have an operation `{name}`; write {}", calls.join(" or "));
            self.report(element.id, element.place, frame, &message);
        }
        found.first().copied()
    }

    /// Returns the operations that a name without a path may mean. They are that of this module, or those of the modules that it imports.
    pub(super) fn operations_called(&self, name: &str, frame: &Frame<'s>) -> Vec<Declared<'s>> {
        match operation(frame.module, name) {
            Some(own) => vec![own],
            None => frame.module.uses.iter().filter_map(|import| operation(&import.module, name)).collect(),
        }
    }

    /// Returns every name that [`Resolver::operations_called`] would find.
    pub(super) fn operation_names(&self, frame: &Frame<'s>) -> Vec<String> {
        let modules = std::iter::once(frame.module).chain(frame.module.uses.iter().map(|import| &import.module));
        modules.flat_map(|module| &module.operations).map(|operation| operation.name.to_string()).collect()
    }

    /// Feeds `current` to an operation, and returns its output.
    pub(super) fn operation(
        &mut self,
        element: &'s Expression,
        (operation, module): Declared<'s>,
        arguments: &'s [Written],
        frame: &Rc<Frame<'s>>,
        current: Current,
        segment: Option<&str>,
    ) -> Current {
        let name = operation.name.to_string();
        let call = Call { element, name: &name, arguments, frame };
        let options: Vec<&'static str> =
            operation.arguments.iter().map(|asked| stored(&asked.name.to_string())).collect();
        let given = self.given(&call, &options, false);
        let defaults = self.defaults(operation, module, frame, element.place);
        let guess = self.guesses.of(element.id);
        let reading = Arguments::read(&given.values, guess, |from| {
            let asked = operation.arguments.iter().zip(&options).zip(&defaults);
            asked.map(|((asked, name), default)| read(from, name, &asked.kind, default.as_ref())).collect::<Vec<_>>()
        });
        let mut built = Built { value: None, row: None, mistakes: reading.mistakes, guessed: reading.guessed };
        let values = options.iter().map(ToString::to_string).zip(reading.layer).collect();
        if let Some(input) = current.filter(|_| !operation.is_broken && !self.declaring) {
            let inner = self.inside(operation, module, values, (element, frame));
            // `None` means that a mistake has been reported.
            if let Some(own) = self.own(&call, operation, (module, inner), input) {
                let added = self.graph.own_layer(&own, input, String::new(), self.used(&given));
                built.mistakes.extend(added.mistakes);
                (built.value, built.row) = (added.value, added.row);
            }
        }
        self.finish(&call, &given, built, current, segment)
    }

    /// Returns the frame of an operation whose arguments have these values.
    fn inside(
        &self,
        operation: &'s Operation,
        module: &'s Module,
        values: Vec<(String, Known<'s>)>,
        (element, frame): (&Expression, &Rc<Frame<'s>>),
    ) -> Frame<'s> {
        let written: Vec<String> = values.iter().map(|(_, value)| value.to_string()).collect();
        let call = match written.as_slice() {
            [] => operation.name.to_string(),
            _ => format!("{}({})", operation.name, written.join(", ")),
        };
        Frame {
            call: Some(call),
            entered: None,
            caller: Some(frame.clone()),
            place: element.place,
            line: frame.line,
            module,
            depth: frame.depth + 1,
            parameters: values,
            bindings: Vec::new(),
            taps: RefCell::default(),
        }
    }

    fn defaults(
        &mut self,
        operation: &'s Operation,
        module: &'s Module,
        frame: &Rc<Frame<'s>>,
        place: Place,
    ) -> Vec<Option<Known<'s>>> {
        let around = Frame::global(module, Some(frame.clone()), place);
        let mut defaults = Vec::new();
        for asked in &operation.arguments {
            let value = asked.default.as_ref().map(|default| {
                let Some(value) = self.value(default, &around) else { return Known::Open };
                match (asked.kind.to_string().as_str(), value) {
                    ("usize", value @ Known::Integer(_)) | ("bool", value @ Known::Flag(_)) => value,
                    ("f64", value) if let Some(number) = value.number() => Known::Float(number),
                    (kind, other) => {
                        let message =
                            format!("`{}` is a `{kind}`, but its default is {}", asked.name, other.describe());
                        self.report(default.id, default.place, &around, &message);
                        Known::Open
                    }
                }
            });
            defaults.push(value);
        }
        defaults
    }

    /// Returns the layer that an operation is for this input. `None` after a mistake, which has been reported.
    fn own(
        &mut self,
        call: &Call<'s, '_>,
        operation: &'s Operation,
        (module, mut inner): (&'s Module, Frame<'s>),
        input: usize,
    ) -> Option<Own> {
        let value = self.graph.value(input);
        if let Some([given, remedy]) = value.elements.no_numbers() {
            let message = format!("works on numbers, but it is given {given}; put `{remedy}` before it");
            self.report_layer(call.element, call.element.place, call.name, call.frame, &message);
            return None;
        }
        let rest = self.bind_axes(call, operation, value.shape, &mut inner)?;
        let inner = Rc::new(inner);
        for condition in &operation.requires {
            if !self.flag(condition, &inner)? {
                let known: Vec<String> = names_of(condition)
                    .into_iter()
                    .filter_map(|name| Some(format!("`{name}` is {}", inner.parameter(&name)?)))
                    .collect();
                let but = if known.is_empty() { String::new() } else { format!(", but {}", known.join(" and ")) };
                let message = format!("needs `{condition}`{but}");
                self.report_layer(call.element, call.element.place, call.name, call.frame, &message);
                return None;
            }
        }
        let kind = operation.name.to_string();
        if let Some(body) = &operation.value {
            let (formula, result) = self.formula(body, Making::new(&operation.input, false), &inner)?;
            let slope = match &operation.slope {
                Some(slope) => {
                    let (formula, result) =
                        self.formula(&slope.formula, Making::new(&operation.input, true), &inner)?;
                    formula.of(result)
                }
                None => formula.derivative(result),
            };
            let op = ops::Formula { value: formula.of(result), slope, shape: value.shape };
            return Some(Own { kind, op: op.into(), parameters: Vec::new() });
        }
        let output = match &operation.output {
            Some(axes) => self.shape(axes, rest, &inner)?,
            None => value.shape,
        };
        let mut parameters = Vec::new();
        for Tensor { name, axes, init } in &operation.parameters {
            let shape = self.shape(axes, rest, &inner)?;
            let name = name.to_string();
            let init = self.own_init(&name, init.as_ref()?, &inner, shape)?;
            parameters.push(OwnParameter { name, shape, init });
        }
        let op = self.functions(operation, module, &inner, rest, (value.shape, output), &parameters)?;
        Some(Own { kind, op, parameters })
    }

    /// Binds the names of the input's axes to their lengths. Returns the axes of the name with `..`. `None` after a mistake.
    fn bind_axes(
        &mut self,
        call: &Call<'s, '_>,
        operation: &'s Operation,
        shape: Shape,
        inner: &mut Frame<'s>,
    ) -> Option<Shape> {
        let Some(axes) = &operation.axes else { return Some(shape) };
        let dims = shape.dims();
        let written: Vec<String> = axes.iter().map(ToString::to_string).collect();
        let wrong = format!("works on [{}], but the previous layer produces {shape}", written.join(", "));
        let rests = axes.iter().filter(|axis| matches!(axis, Axis::Rest(_))).count();
        let mut fits = if rests > 0 { dims.len() + 1 >= axes.len() } else { dims.len() == axes.len() };
        let (mut rest, mut next) = (Shape::new(&[]), dims.iter().copied());
        for axis in axes {
            if !fits {
                break;
            }
            match axis {
                Axis::Rest(name) => {
                    let taken: Vec<u64> = next.by_ref().take(dims.len() + 1 - axes.len()).collect();
                    rest = Shape::new(&taken);
                    let elements = if taken.is_empty() { Some(1) } else { rest.elements() };
                    inner.parameters.push((name.to_string(), Known::Integer(elements.unwrap_or(u64::MAX))));
                }
                Axis::Length(Expression { kind: Kind::Name(name), .. }) if !self.is_number(name, inner) => {
                    inner.parameters.push((name.to_string(), Known::Integer(next.next().unwrap_or(0))));
                }
                Axis::Length(length) => {
                    let wanted = self.integer(length, &Rc::new(copy(inner)))?;
                    fits = next.next() == Some(wanted);
                }
            }
        }
        if fits {
            return Some(rest);
        }
        self.report_layer(call.element, call.element.place, call.name, call.frame, &wrong);
        None
    }

    /// True if an axis has the name of an argument or a constant, and so must have that length.
    fn is_number(&self, name: &Ident, inner: &Frame<'s>) -> bool {
        let name = name.to_string();
        inner.parameter(&name).is_some() || inner.module.constants.iter().any(|constant| constant.name == name)
    }

    /// Returns the shape whose dimensions are written as expressions. `None` after a mistake, which has been reported.
    fn shape(&mut self, axes: &'s [Axis], rest: Shape, inner: &Rc<Frame<'s>>) -> Option<Shape> {
        let mut dims = Vec::new();
        for axis in axes {
            match axis {
                Axis::Rest(_) => dims.extend(rest.dims()),
                Axis::Length(length) => {
                    let value = self.integer(length, inner)?;
                    if value == 0 {
                        let message = format!("`{length}` is 0 here, and no axis has that length");
                        self.report(length.id, length.place, inner, &message);
                        return None;
                    }
                    dims.push(value);
                }
            }
        }
        if (1..=Shape::MAX_RANK).contains(&dims.len()) {
            return Some(Shape::new(&dims));
        }
        let message = format!("a tensor has 1 to {} axes, and here it has {}", Shape::MAX_RANK, dims.len());
        let place = axes.iter().find_map(|axis| if let Axis::Length(length) = axis { Some(length) } else { None });
        match place {
            Some(length) => self.report(length.id, length.place, inner, &message),
            None => self.report(0, inner.place, inner, &message),
        }
        None
    }

    /// Returns how parameter `name` begins. `None` after a mistake, which has been reported.
    ///
    /// It is written `1.0`, as an initialiser such as `Normal(0.02)`, or as `Kaiming(inputs)`: uniform within `1 / sqrt(inputs)`.
    fn own_init(&mut self, name: &str, written: &'s Expression, inner: &Rc<Frame<'s>>, shape: Shape) -> Option<Init> {
        let Some((_, inputs)) = call_of_one(written).filter(|(name, _)| *name == "Kaiming") else {
            let initializer = self.initializer(name, written, inner)?;
            return match initializer.of(shape, Init::Constant(0.0)) {
                Ok(init) => Some(init),
                Err(mistake) => {
                    self.report(written.id, written.place, inner, &format!("`{name}` {mistake}"));
                    None
                }
            };
        };
        let found = self.value(inputs, inner)?;
        match found.number().filter(|value| value.is_finite() && *value > 0.0) {
            Some(value) => Some(Init::Uniform(1.0 / value.sqrt())),
            None => {
                let message = format!("expected a number above 0, found {}", found.describe());
                self.report(inputs.id, inputs.place, inner, &message);
                None
            }
        }
    }

    /// Returns an operation that has functions rather than a formula.
    fn functions(
        &mut self,
        operation: &'s Operation,
        module: &'s Module,
        inner: &Rc<Frame<'s>>,
        rest: Shape,
        (input, output): (Shape, Shape),
        parameters: &[OwnParameter],
    ) -> Option<Op> {
        let mut saves = Vec::new();
        for saved in &operation.saves {
            saves.push(self.shape(&saved.axes, rest, inner)?);
        }
        let workspace = self.both(operation.workspace.as_ref(), inner)?;
        let threads = self.both(operation.threads.as_ref(), inner)?;
        let macs = self.both(operation.macs.as_ref(), inner)?[0];
        let number_of = |name: &Ident| {
            let parameter = parameters.iter().position(|parameter| *name == parameter.name);
            if *name == operation.input { Some(0) } else { parameter.map(|index| index as u64 + 1) }
        };
        let (mut sizes, mut numbers) = (Vec::new(), Vec::new());
        for (name, value) in &inner.parameters {
            match value {
                Known::Integer(value) => sizes.push((name.clone(), *value)),
                Known::Flag(value) => sizes.push((name.clone(), u64::from(*value))),
                Known::Float(value) => numbers.push((name.clone(), *value)),
                _ => {}
            }
        }
        let mut keeps: Vec<u64> = operation.keeps.iter().filter_map(number_of).collect();
        keeps.sort_unstable();
        let op = ops::Declaration {
            name: operation.name.to_string(),
            route: self.route(operation, module)?,
            sizes,
            numbers,
            input,
            output,
            parameters: parameters.iter().map(|parameter| parameter.shape).collect(),
            saves,
            keeps,
            keeps_output: operation.keeps.iter().any(|kept| kept == "y"),
            workspace,
            threads,
            macs,
        };
        Some(ops::Declared::from(op).into())
    }

    /// Returns the numbers for forward and backward, which are written as one number or as a pair. Both are 0 if none is written.
    fn both(&mut self, written: Option<&'s Expression>, inner: &Rc<Frame<'s>>) -> Option<[u64; 2]> {
        let Some(written) = written else { return Some([0, 0]) };
        match &written.kind {
            Kind::Tuple(pair) if pair.len() == 2 => {
                let first = self.integer(&pair[0], inner)?;
                Some([first, self.integer(&pair[1], inner)?])
            }
            _ => self.integer(written, inner).map(|number| [number; 2]),
        }
    }

    /// Returns the route to the functions of an operation: see `gpumem_core::operation::Operations`.
    fn route(&self, operation: &Operation, module: &'s Module) -> Option<Vec<u64>> {
        fn to(from: &Module, module: &Module) -> Option<Vec<u64>> {
            if std::ptr::eq(from, module) {
                return Some(Vec::new());
            }
            from.uses.iter().zip(0..).find_map(|(import, number)| {
                let mut route = to(&import.module, module)?;
                route.insert(0, number);
                Some(route)
            })
        }
        let mut route = to(self.module, module)?;
        let own = with_functions(module).position(|known| std::ptr::eq(known, operation))?;
        route.push(own as u64);
        Some(route)
    }
}

/// Returns the operations of a module that are not formulas, in the order in which their functions are listed.
pub(crate) fn with_functions(module: &Module) -> impl Iterator<Item = &Operation> {
    module.operations.iter().filter(|operation| operation.value.is_none())
}

/// Reads an argument by its name.
fn read<'s>(from: &mut Arguments<'_>, name: &'static str, kind: &Ident, default: Option<&Known<'s>>) -> Known<'s> {
    let kind = kind.to_string();
    let (wanted, take): (&str, fn(&Argument) -> Option<Argument>) = match kind.as_str() {
        "usize" => ("a whole number", |value| matches!(value, Argument::Integer(_)).then(|| value.clone())),
        "bool" => ("`true` or `false`", |value| matches!(value, Argument::Flag(_)).then(|| value.clone())),
        _ => ("a number", |value| match value {
            Argument::Integer(value) => Some(Argument::Float(*value as f64)),
            Argument::Float(_) => Some(value.clone()),
            _ => None,
        }),
    };
    let known = |argument: &Argument| match argument {
        Argument::Integer(value) => Known::Integer(*value),
        Argument::Float(value) => Known::Float(*value),
        Argument::Flag(value) => Known::Flag(*value),
        _ => Known::Open,
    };
    let blank = match kind.as_str() {
        "usize" => Argument::Integer(1),
        "bool" => Argument::Flag(false),
        _ => Argument::Float(1.0),
    };
    match default {
        Some(default) => {
            let usual = match default {
                Known::Integer(value) => Argument::Integer(*value),
                Known::Float(value) => Argument::Float(*value),
                Known::Flag(value) => Argument::Flag(*value),
                _ => blank,
            };
            let text = Some(usual.to_string());
            known(&from.trailing(name).take(wanted, text, take, [usual.clone(), usual]))
        }
        None => known(&from.required(name).take(wanted, take, [blank.clone(), blank])),
    }
}

/// Copies a frame without its `let`s and taps.
fn copy<'s>(frame: &Frame<'s>) -> Frame<'s> {
    Frame {
        call: frame.call.clone(),
        entered: frame.entered,
        caller: frame.caller.clone(),
        place: frame.place,
        line: frame.line,
        module: frame.module,
        depth: frame.depth,
        parameters: frame.parameters.clone(),
        bindings: Vec::new(),
        taps: RefCell::default(),
    }
}

/// Returns the names in an expression, each once.
fn names_of(expression: &Expression) -> Vec<String> {
    let mut names = Vec::new();
    for expression in expression.all() {
        if let Kind::Name(name) = &expression.kind
            && !names.contains(&name.to_string())
        {
            names.push(name.to_string());
        }
    }
    names
}

fn operation<'s>(module: &'s Module, name: &str) -> Option<Declared<'s>> {
    module.operations.iter().find(|operation| operation.name == name).map(|operation| (operation, module))
}

/// Reports names of operations that no network could use.
pub(super) fn check_operations(module: &Module, errors: &mut Errors) {
    for operation in &module.operations {
        let name = operation.name.to_string();
        let is_block = |block: &&Function| block.name == name;
        if Entry::find(&name).is_some() || gpumem_core::language::KEYWORDS.contains(&name.as_str()) {
            errors.add(&operation.name, format!("`{name}` has a meaning already; rename the operation"));
        } else if let Some(block) = module.blocks.iter().find(is_block) {
            errors.add(&block.name, format!("`{name}` is defined twice; rename or remove one"));
        }
    }
}

impl<'s> Resolver<'s, '_> {
    /// Checks the formulas of a module, even if nothing calls them.
    pub(super) fn check_formulas(&mut self, module: &'s Module) {
        for operation in module.operations.iter().filter(|operation| !operation.is_broken) {
            let defaults = self.defaults(
                operation,
                module,
                &Frame::global(module, None, (&operation.name).into()),
                (&operation.name).into(),
            );
            let values = operation.arguments.iter().zip(defaults).map(|(asked, default)| {
                let any = match asked.kind.to_string().as_str() {
                    "usize" => Known::Integer(1),
                    "bool" => Known::Flag(true),
                    _ => Known::Float(1.0),
                };
                (asked.name.to_string(), default.filter(|default| !matches!(default, Known::Open)).unwrap_or(any))
            });
            let mut frame = copy(&Frame::global(module, None, (&operation.name).into()));
            frame.parameters = values.collect();
            let axes = operation.axes.iter().flatten().filter_map(|axis| match axis {
                Axis::Rest(name) | Axis::Length(Expression { kind: Kind::Name(name), .. }) => Some(name.to_string()),
                Axis::Length(_) => None,
            });
            for axis in axes {
                if frame.parameter(&axis).is_none() {
                    frame.parameters.push((axis, Known::Integer(1)));
                }
            }
            let frame = Rc::new(frame);
            if let Some(value) = &operation.value {
                self.formula(value, Making::new(&operation.input, false), &frame);
            }
            if let Some(slope) = &operation.slope {
                self.formula(&slope.formula, Making::new(&operation.input, true), &frame);
            }
        }
    }
}
