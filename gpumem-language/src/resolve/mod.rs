//! Turns syntax into a graph, in which there are no blocks, `repeat`s, sharing, taps or conditions any more.

mod blocks;
mod calls;
pub(crate) mod check;
mod expressions;
mod formulas;
pub(crate) mod frame;
mod initializers;
mod joined;
mod layers;
mod lines;
mod lora;
mod modes;
mod modules;
mod operations;
mod paths;
mod recovery;
mod sharing;
mod steps;
mod taps;
mod types;

use crate::errors::{Error, Errors};
use crate::syntax::{Expression, Function, Kind, Module, Place, Source};
use frame::{Binding, Current, Frame, Known};
use gpumem_core::graph::{Graph, NodeId, RowId, SourceLines};
use gpumem_core::layers::Steps;
use gpumem_core::layers::initializer::Initial;
pub(crate) use layers::{BLOCK_NAME, is_block_name};
use lines::Lines;
use lora::Adapted;
use modes::{At, Detached, Mode};
pub(crate) use operations::with_functions;
use paths::{Paths, Segment};
use proc_macro2::Ident;
use recovery::Guesses;
use sharing::Sharing;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
pub(crate) use taps::taps_of;
pub(crate) use types::{Declared, Form, is_type};

/// A network as a graph, with everything that later stages need from the source.
pub(crate) struct Resolved {
    pub(crate) graph: Graph,
    /// The values that the network produces. `None` after a mistake.
    pub(crate) outputs: Option<Vec<NodeId>>,
    /// The inputs and taps that `forward` can read by name. A value is `None` if a mistake makes it unknown.
    pub(crate) taps: HashMap<String, Current>,
    /// The place of each row in the source.
    pub(crate) places: Vec<Place>,
    /// The files and lines of the rows, for the record.
    pub(crate) lines: SourceLines,
    /// Taps and outputs with padded time steps.
    pub(crate) padded: Padded,
    /// The declared types of the inputs, if they could be read.
    pub(crate) inputs: Option<Vec<Declared>>,
    /// The declared types of the outputs, if they could be read.
    pub(crate) promised: Option<Vec<Declared>>,
}

/// Values with padded time steps, each with the name of the input that says how many steps count.
#[derive(Default)]
pub(crate) struct Padded {
    /// Padded values by the names of their taps.
    pub(crate) taps: HashMap<String, String>,
    pub(crate) outputs: Vec<Option<String>>,
}

/// The most layers of a network: the tables number them with 16 bits.
const MOST_ROWS: usize = u16::MAX as usize - 1;

/// The most elements that a network may unroll to. More are probably a mistake, such as `repeat(1_000_000_000, [])`.
const MOST_STEPS: usize = 1 << 20;

pub(crate) struct Resolver<'s, 'e> {
    /// The names of the network, or of the module of blocks that is being declared.
    pub(crate) module: &'s Module,
    /// The name of the batch parameter.
    pub(crate) batch: Option<&'s Ident>,
    /// True for a module of blocks that is resolved without calls, so that values, taps and shapes are not known.
    pub(crate) declaring: bool,
    pub(crate) errors: &'e mut Errors,
    /// Constants that have been folded, by their modules and names. `None` after a mistake.
    pub(crate) constants: HashMap<(*const Module, String), Option<Known<'s>>>,
    /// Constants that are being folded.
    pub(crate) folding: Vec<(*const Module, String)>,
    graph: Graph,
    paths: Paths,
    /// The segment and the place of each row of the graph.
    rows: Vec<(Segment, Place)>,
    /// The source line of each row, and all source lines.
    row_lines: Vec<Option<usize>>,
    lines: Lines,
    /// The number of layers so far, including layers with mistakes.
    count: usize,
    sharing: Sharing,
    /// Indices of parameters whose name is the path of their layer: `parameter = "cls_token"`.
    bare: Vec<usize>,
    /// Imported constants that have been reported, by their modules and names.
    pub(crate) imports_named: HashSet<(*const Module, String)>,
    /// Names that a misspelt name probably meant. They count as used.
    meant: HashSet<String>,
    /// Layers with the same output for every sample, although their input differs. Each has its row, its source, and a flag that is true if the input
    /// is tokens.
    lost: Vec<(RowId, String, bool)>,
    /// The guesses under which mistakes are interpreted.
    guesses: Guesses,
    /// Unknown conditions that have been passed, by their expressions.
    open_conditions: HashSet<usize>,
    /// The outermost `freeze` around the current element, or `None`. The next field is the mode of the innermost `eval` or `train`.
    frozen: Option<At<'s>>,
    mode: Option<Mode>,
    /// The initialisers of the `init`s around the current element.
    init_around: Initial,
    /// The `lengths` and `segments` around the current element, the innermost one last.
    around: Vec<Steps>,
    /// All `lengths` and `segments` so far.
    scopes: Vec<Steps>,
    /// Inputs of lengths or segments, with their declared types, by their nodes.
    counted: HashMap<NodeId, Declared>,
    /// The `detach`es that have been resolved.
    detached: Vec<Detached<'s>>,
    /// The `lora`s that have been resolved.
    adapted: Vec<Adapted<'s>>,
    /// True if there is a `lora` around the current element.
    is_adapted: bool,
    /// For each element with an unknown name, the nearest known name, if there is one.
    nearest_layers: HashMap<usize, Option<String>>,
    /// The number of elements so far.
    steps: usize,
    /// True after a limit was exceeded: the rest is not resolved.
    stopped: bool,
}

#[cfg(test)]
thread_local! {
    /// The number of elements that were resolved on this thread, in all attempts.
    pub(crate) static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A network resolved under one set of guesses.
struct Attempt {
    resolved: Resolved,
    errors: Errors,
    guesses: Guesses,
    /// The number of elements that it unrolled to.
    steps: usize,
    stopped: bool,
}

/// Resolves a network and checks it as a whole.
pub(crate) fn resolve(source: &Source, errors: &mut Errors) -> Resolved {
    let (resolved, found) = recovery::certain(|guesses| attempt(source, errors.begin(), guesses), MOST_STEPS);
    errors.append(found);
    resolved
}

fn attempt(source: &Source, mut errors: Errors, guesses: Guesses) -> Attempt {
    let mut resolver = Resolver::new(&source.module, source.declaration.batch.as_ref(), &mut errors);
    resolver.guesses = guesses;
    blocks::check_blocks(&source.module.blocks, resolver.errors);
    operations::check_operations(&source.module, resolver.errors);
    resolver.check_formulas(&source.module);
    let resolved = resolver.network(source);
    let Resolver { guesses, steps, stopped, .. } = resolver;
    #[cfg(test)]
    STEPS.set(STEPS.get() + steps);
    Attempt { resolved, errors, guesses, steps, stopped }
}

/// Resolves the blocks of a module as far as possible without a call: names, numbers of arguments, and literal arguments.
pub(crate) fn declare(module: &Module, errors: &mut Errors) {
    blocks::check_blocks(&module.blocks, errors);
    operations::check_operations(module, errors);
    Resolver::new(module, None, errors).check_formulas(module);
    for block in &module.blocks {
        let found = declared(module, block, errors.begin(), Guesses::default());
        let again = declared(module, block, errors.begin(), Guesses::default().with_another_number());
        // Mistakes that depend on the arguments or the input of a call are reported at the call.
        let is_certain = |error: &&Error| again.like(error).is_some_and(|again| again.message == error.message);
        errors.append(found.list().iter().filter(is_certain).cloned().collect());
    }
}

/// Returns the mistakes of a block that is not called.
fn declared(module: &Module, block: &Function, mut errors: Errors, guesses: Guesses) -> Errors {
    {
        let mut resolver = Resolver::new(module, None, &mut errors);
        resolver.declaring = true;
        resolver.guesses = guesses;
        let parameters = block.parameters.iter().map(|parameter| (parameter.name.to_string(), Known::Open));
        let frame = Rc::new(Frame {
            call: None,
            entered: None,
            caller: None,
            place: block.signature,
            line: None,
            module,
            depth: 0,
            parameters: parameters.collect(),
            bindings: resolver.bindings(&block.body),
            taps: RefCell::default(),
        });
        resolver.element(&block.body.element, &frame, None, None);
        resolver.check_declared(block);
    }
    taps::check_declared(block, module, &mut errors);
    errors
}

impl<'s, 'e> Resolver<'s, 'e> {
    fn new(module: &'s Module, batch: Option<&'s Ident>, errors: &'e mut Errors) -> Resolver<'s, 'e> {
        Resolver {
            module,
            batch,
            declaring: false,
            errors,
            constants: HashMap::new(),
            folding: Vec::new(),
            graph: Graph::default(),
            paths: Paths::new(),
            rows: Vec::new(),
            row_lines: Vec::new(),
            lines: Lines::default(),
            count: 0,
            sharing: Sharing::default(),
            bare: Vec::new(),
            imports_named: HashSet::new(),
            meant: HashSet::new(),
            lost: Vec::new(),
            guesses: Guesses::default(),
            open_conditions: HashSet::new(),
            frozen: None,
            mode: None,
            init_around: Initial::default(),
            around: Vec::new(),
            scopes: Vec::new(),
            counted: HashMap::new(),
            detached: Vec::new(),
            adapted: Vec::new(),
            is_adapted: false,
            nearest_layers: HashMap::new(),
            steps: 0,
            stopped: false,
        }
    }
}

impl<'s> Resolver<'s, '_> {
    fn network(&mut self, source: &'s Source) -> Resolved {
        let Some(forward) = &source.forward else {
            let (graph, places, taps) = (Graph::default(), Vec::new(), HashMap::new());
            let (padded, lines) = (Padded::default(), SourceLines::default());
            return Resolved { graph, outputs: None, taps, places, lines, padded, inputs: None, promised: None };
        };
        let [inputs, promised] = self.declared_types(forward);
        let starts: Vec<Current> = match &inputs {
            Some(inputs) => {
                self.check_first_input(forward, &inputs[0]);
                inputs.iter().map(|input| self.input(input)).collect()
            }
            None => vec![None; forward.parameters.len()],
        };
        // Inputs can be read by their names, like taps.
        let names = forward.parameters.iter().map(|input| input.name.to_string());
        let frame = Rc::new(Frame {
            call: None,
            entered: None,
            caller: None,
            place: forward.signature,
            line: None,
            module: &source.module,
            depth: 0,
            parameters: Vec::new(),
            bindings: self.bindings(&forward.body),
            taps: RefCell::new(names.zip(starts.iter().copied()).collect()),
        });
        let body = At::new(&forward.body.element, &frame);
        self.frozen = Some(body).filter(|_| forward.attributes.is_frozen);
        let outputs = self.outputs(&forward.body.element, &frame, starts.first().copied().flatten());
        self.spell_paths();
        self.check_unused(Some(forward));
        if let Some(outputs) = outputs.as_ref().filter(|_| !self.stopped) {
            self.check_outputs(forward, outputs, promised.as_deref());
        }
        taps::check(source, self.errors);
        let places = self.rows.iter().map(|(_, place)| *place).collect();
        let lines = std::mem::take(&mut self.lines).of_rows(std::mem::take(&mut self.row_lines));
        let mut taps = frame.taps.borrow().clone();
        let mut outputs: Option<Vec<NodeId>> = outputs.and_then(|outputs| outputs.into_iter().collect());
        let padded = self.padded(forward, &taps, outputs.as_deref().unwrap_or_default());
        let mut detached = std::mem::take(&mut self.detached);
        let views = detached.iter_mut().map(|of| &mut of.view);
        if !self.stopped {
            self.adapt(taps.values_mut().flatten().chain(views), outputs.as_deref_mut());
        }
        self.check_detached(&detached);
        let graph = std::mem::take(&mut self.graph);
        Resolved { graph, outputs, taps, places, lines, padded, inputs, promised }
    }

    /// Reports a mistake once, however often its expression is unrolled, and names the call in which it was found.
    pub(crate) fn report(&mut self, id: usize, place: Place, frame: &Frame<'s>, message: &str) {
        let (place, origin) = self.shown(place, frame);
        let message = match (&frame.call, origin) {
            (Some(call), Some(origin)) => format!("{message} (in `{call}`, at {origin})"),
            (Some(call), None) => format!("{message} (in `{call}`)"),
            (None, Some(origin)) => format!("{message} (at {origin})"),
            (None, None) => message.to_string(),
        };
        self.errors.add_once(id, place, message);
    }

    /// Reports that a limit is exceeded, once, and resolves nothing more.
    fn stop(&mut self, element: &Expression, frame: &Frame<'s>, message: &str) {
        if !std::mem::replace(&mut self.stopped, true) {
            self.errors.add_once(element.id, self.shown(element.place, frame).0, message);
        }
    }

    /// Feeds `current` to an element and returns its output. `segment` is the element's name, if a `let` gave it one.
    fn element(
        &mut self,
        element: &'s Expression,
        frame: &Rc<Frame<'s>>,
        current: Current,
        segment: Option<&str>,
    ) -> Current {
        self.steps += 1;
        if self.steps > MOST_STEPS {
            self.stop(element, frame, &too_many_elements());
        } else if self.count > MOST_ROWS {
            self.stop(element, frame, &too_many_layers());
        }
        if self.stopped {
            return None;
        }
        match &element.kind {
            Kind::List(elements) => {
                let opened = segment.map(|segment| self.paths.open(segment));
                let end = elements.iter().fold(current, |current, element| self.element(element, frame, current, None));
                if let Some(opened) = opened {
                    self.paths.close(opened);
                }
                end
            }
            Kind::Name(name) => self.named(element, name, None, frame, current, segment),
            Kind::Call { name, arguments } => self.named(element, name, Some(arguments), frame, current, segment),
            Kind::Path { module, name, arguments } => {
                let arguments = arguments.as_deref().unwrap_or_default();
                self.qualified(element, (module, name), arguments, frame, current, segment)
            }
            Kind::If { condition, then, otherwise } if self.declaring => {
                self.flag(condition, frame);
                for branch in std::iter::once(then).chain(otherwise) {
                    self.element(branch, frame, None, None);
                }
                None
            }
            Kind::If { condition, then, otherwise } => {
                let holds = match self.flag(condition, frame) {
                    Some(holds) => holds,
                    // Only once for each condition, because it may be the one that ends a recursion.
                    None if self.open_conditions.insert(element.id) => !self.guesses.second(element.id),
                    None => return None,
                };
                match (holds, otherwise) {
                    (true, _) => self.element(then, frame, current, segment),
                    (false, Some(otherwise)) => self.element(otherwise, frame, current, segment),
                    (false, None) => current,
                }
            }
            Kind::Broken => None,
            Kind::Binary { .. } => {
                self.joined(element, frame);
                None
            }
            _ => {
                let message = format!("expected a layer, a block or a list `[..]`, found `{element}`");
                self.report(element.id, element.place, frame, &message);
                None
            }
        }
    }

    fn input(&mut self, input: &Declared) -> Current {
        let added = self.graph.input(input.value());
        let node = added.map_err(|mistake| self.errors.add(input.place, mistake.to_string())).ok()?;
        if input.form.counts_steps() {
            self.counted.insert(node, input.clone());
        }
        Some(node)
    }

    /// Returns the values of `forward`'s body: the branches of an `Outputs(..)` at its end, or a single value.
    fn outputs(&mut self, element: &'s Expression, frame: &Rc<Frame<'s>>, current: Current) -> Option<Vec<Current>> {
        match &element.kind {
            Kind::Call { name, arguments } if name == "Outputs" => {
                if let Some(argument) = arguments.iter().find(|argument| argument.name.is_some()) {
                    let message = "`Outputs` takes values and no options; `tap` a value to name it";
                    self.report(argument.value.id, argument.place(), frame, message);
                }
                let values = || arguments.iter().filter(|argument| argument.name.is_none());
                if values().count() < 2 {
                    let message = "`Outputs` has two outputs or more, as `Outputs(Linear(10), Linear(4))`";
                    self.report(element.id, element.place, frame, message);
                }
                Some(values().map(|argument| self.element(&argument.value, frame, current, None)).collect())
            }
            Kind::List(elements) if elements.last().is_some_and(ends_in_outputs) => {
                let (last, first) = elements.split_last()?;
                let end = first.iter().fold(current, |current, element| self.element(element, frame, current, None));
                self.outputs(last, frame, end)
            }
            _ => Some(vec![self.element(element, frame, current, None)]),
        }
    }

    /// Returns the `let`s of a body, which are resolved when they are used.
    fn bindings(&mut self, body: &'s crate::syntax::Body) -> Vec<Rc<Binding<'s>>> {
        let mut names = HashSet::new();
        let mut bindings = Vec::new();
        for binding in &body.lets {
            let name = binding.name.to_string();
            if !names.insert(name.clone()) {
                let message = format!("`{name}` is bound twice; rename one");
                self.errors.add_once(binding.element.id, &binding.name, message);
            }
            bindings.push(Rc::new(Binding {
                name,
                element: &binding.element,
                first_use: RefCell::default(),
                busy: false.into(),
            }));
        }
        bindings
    }

    /// Gives rows and parameters their final paths, and checks names that users chose.
    fn spell_paths(&mut self) {
        for (name, place) in self.paths.taken() {
            self.errors
                .add(place, format!("the name \"{name}\" is taken by another layer of the same block; choose another"));
        }
        let is_sound = self.paths.taken().next().is_none();
        let mut seen = HashSet::new();
        for (row, (segment, place)) in self.graph.rows.iter_mut().zip(&self.rows) {
            row.path = self.paths.spell(*segment);
            // Names with dots, and blocks without a segment, can produce a path that another block has.
            if is_sound && !seen.insert(row.path.clone()) {
                self.errors.add(*place, format!("another layer has the path `{}` too; choose another name", row.path));
            }
        }
        let rows = &self.graph.rows;
        for &parameter in &self.bare {
            self.graph.parameters[parameter].name.clear();
        }
        let parameters = self.graph.parameters.iter_mut().map(|parameter| (&mut parameter.name, parameter.row));
        let buffers = self.graph.buffers.iter_mut().map(|buffer| (&mut buffer.name, buffer.row));
        for (name, row) in parameters.chain(buffers) {
            // Their names were added without a path, as `.weight` or `.qkv.weight`.
            name.insert_str(0, &rows[row].path);
            if rows[row].path.is_empty() {
                name.remove(0);
            }
        }
    }
}

fn too_many_elements() -> String {
    format!("the network unrolls to more than {MOST_STEPS} elements; check its numbers")
}

fn too_many_layers() -> String {
    format!("the network has more than {MOST_ROWS} layers; check its numbers")
}

/// True if an element is an `Outputs(..)`, or a list that ends in one.
fn ends_in_outputs(element: &Expression) -> bool {
    match &element.kind {
        Kind::Call { name, .. } => name == "Outputs",
        Kind::List(elements) => elements.last().is_some_and(ends_in_outputs),
        _ => false,
    }
}
