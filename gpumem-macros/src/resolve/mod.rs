//! Syntax to graph: blocks, `repeat`, sharing, taps and conditions are gone afterwards.

mod blocks;
mod calls;
mod check;
pub(crate) mod frame;
mod layers;
mod paths;
mod sharing;
mod types;

use crate::errors::Errors;
use crate::syntax::{Expression, Kind, Place, Source};
use frame::{Binding, Current, Frame, Known};
use gpumem_core::graph::Graph;
use paths::{Paths, Segment};
use sharing::Sharing;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
pub(crate) use types::{Declared, Form};

/// A network without blocks and names.
pub(crate) struct Resolved {
    pub(crate) graph: Graph,
    /// The value that the network produces; `None` after a mistake.
    pub(crate) output: Current,
    /// Where each row was written.
    pub(crate) places: Vec<Place>,
    /// The declared type of the input, if it could be read.
    pub(crate) input: Option<Declared>,
    /// The declared type of the output, if it could be read.
    pub(crate) promised: Option<Declared>,
}

/// More layers than this are refused: the tables number them with 16 bits.
const MOST_ROWS: usize = u16::MAX as usize - 1;

/// More elements than this are taken for a mistake, such as `repeat(1_000_000_000, [])`.
const MOST_STEPS: usize = 1 << 20;

pub(crate) struct Resolver<'s, 'e> {
    pub(crate) source: &'s Source,
    pub(crate) errors: &'e mut Errors,
    /// Constants that have been folded.
    pub(crate) constants: HashMap<String, Option<Known<'s>>>,
    /// Constants that are being folded.
    pub(crate) folding: Vec<String>,
    graph: Graph,
    paths: Paths,
    /// Segment and place of each row of the graph.
    rows: Vec<(Segment, Place)>,
    /// Layers so far, with those that could not be made.
    count: usize,
    sharing: Sharing,
    /// Names that a misspelt name was probably meant to be.
    meant: HashSet<String>,
    /// Elements so far.
    steps: usize,
    /// Whether a limit was met: the rest is not resolved.
    stopped: bool,
}

/// Resolves a network and checks it as a whole.
pub(crate) fn resolve(source: &Source, errors: &mut Errors) -> Resolved {
    let mut resolver = Resolver {
        source,
        errors,
        constants: HashMap::new(),
        folding: Vec::new(),
        graph: Graph::default(),
        paths: Paths::new(),
        rows: Vec::new(),
        count: 0,
        sharing: Sharing::default(),
        meant: HashSet::new(),
        steps: 0,
        stopped: false,
    };
    resolver.check_blocks();
    let Some(forward) = &source.forward else {
        let (graph, places) = (resolver.graph, Vec::new());
        return Resolved { graph, output: None, places, input: None, promised: None };
    };
    let (input, promised) = resolver.declared_types(forward);
    let start = input.as_ref().and_then(|input| {
        resolver.graph.input(input.value()).map_err(|mistake| resolver.errors.add(input.place, mistake.message)).ok()
    });
    let frame = Rc::new(Frame {
        call: None,
        caller: None,
        depth: 0,
        parameters: Vec::new(),
        bindings: resolver.bindings(&forward.body),
        // The input can be read again by its name.
        taps: RefCell::new(forward.parameters.iter().map(|input| (input.name.to_string(), start)).collect()),
    });
    let output = resolver.element(&forward.body.element, &frame, start, None);
    resolver.spell_paths();
    resolver.check_unused();
    if let Some(output) = output.filter(|_| !resolver.stopped) {
        resolver.check_output(output, promised.as_ref(), start);
    }
    let places = resolver.rows.iter().map(|(_, place)| *place).collect();
    Resolved { graph: resolver.graph, output, places, input, promised }
}

impl<'s> Resolver<'s, '_> {
    /// Reports a mistake once, however often its expression is unrolled, and names the call in which it was found.
    pub(crate) fn report(&mut self, id: usize, place: Place, frame: &Frame<'s>, message: &str) {
        let message = match &frame.call {
            Some(call) => format!("{message} (in `{call}`)"),
            None => message.to_string(),
        };
        self.errors.add_once(id, place, message);
    }

    /// Reports a limit, once, and resolves nothing more.
    fn stop(&mut self, element: &Expression, message: &str) {
        if !std::mem::replace(&mut self.stopped, true) {
            self.errors.add_once(element.id, element.place, message);
        }
    }

    /// Feeds `current` to an element. `segment` is its name, if a `let` gave it one.
    fn element(
        &mut self,
        element: &'s Expression,
        frame: &Rc<Frame<'s>>,
        current: Current,
        segment: Option<&str>,
    ) -> Current {
        self.steps += 1;
        if self.steps > MOST_STEPS {
            self.stop(element, &format!("the network unrolls to more than {MOST_STEPS} elements; check its numbers"));
        } else if self.count > MOST_ROWS {
            self.stop(element, &format!("the network has more than {MOST_ROWS} layers; check its numbers"));
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
            Kind::If { condition, then, otherwise } => match (self.flag(condition, frame)?, otherwise) {
                (true, _) => self.element(then, frame, current, segment),
                (false, Some(otherwise)) => self.element(otherwise, frame, current, segment),
                (false, None) => current,
            },
            Kind::Broken => None,
            _ => {
                let message = format!("expected a layer, a block or a list `[..]`, found `{element}`");
                self.report(element.id, element.place, frame, &message);
                None
            }
        }
    }

    /// The bindings of a body, not executed yet.
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
        for (row, (segment, _)) in self.graph.rows.iter_mut().zip(&self.rows) {
            row.path = self.paths.spell(*segment);
        }
        let rows = &self.graph.rows;
        let parameters = self.graph.parameters.iter_mut().map(|(name, row, _)| (name, *row));
        let buffers = self.graph.buffers.iter_mut().map(|(name, row, _)| (name, *row));
        for (name, row) in parameters.chain(buffers) {
            // They were added under an empty path: `.weight`, `.qkv.weight`.
            name.insert_str(0, &rows[row].path);
        }
    }
}
