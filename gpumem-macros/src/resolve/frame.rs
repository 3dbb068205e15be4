//! What names mean: one frame for each call of a block.

use crate::syntax::{Expression, Function, Module, Place};
use gpumem_core::graph::{NodeId, RowId};
use gpumem_core::layers::arguments::{extent, list};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

/// The current value of a sequence. `None` after a mistake: what follows is checked for names only.
pub(crate) type Current = Option<NodeId>;

/// What an expression stands for.
#[derive(Clone)]
pub(crate) enum Known<'s> {
    Integer(u64),
    /// A whole number below 0, by how much.
    Negative(u64),
    Float(f64),
    Flag(bool),
    Text(String),
    Pair([u64; 2]),
    Numbers(Vec<f64>),
    /// How many numbers there are along each axis, and all of them in order.
    Table(Vec<u64>, Vec<f64>),
    /// An argument of a block that is missing or wrong, which has been reported, or a parameter of a block that nobody calls.
    Open,
    /// A `Block` argument: an element with the names that it was written among.
    Element(&'s Expression, Rc<Frame<'s>>),
}

impl fmt::Display for Known<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Known::Integer(value) => write!(f, "{value}"),
            Known::Negative(value) => write!(f, "-{value}"),
            Known::Float(value) => write!(f, "{value:?}"),
            Known::Flag(value) => write!(f, "{value}"),
            Known::Text(value) => write!(f, "{value:?}"),
            Known::Pair([height, width]) => write!(f, "({height}, {width})"),
            Known::Numbers(numbers) => f.write_str(&list(numbers)),
            Known::Table(dims, _) => write!(f, "a table of {}", extent(dims)),
            Known::Open => f.write_str(".."),
            Known::Element(element, _) => write!(f, "{element}"),
        }
    }
}

impl Known<'_> {
    /// A whole number; `None` where it is too large.
    pub(crate) fn of_whole(value: i128) -> Option<Self> {
        let size = u64::try_from(value.unsigned_abs()).ok()?;
        Some(if value < 0 { Known::Negative(size) } else { Known::Integer(size) })
    }

    /// The whole number that it is, if it is one.
    pub(crate) fn whole(&self) -> Option<i128> {
        match self {
            Known::Integer(value) => Some((*value).into()),
            Known::Negative(value) => Some(-i128::from(*value)),
            _ => None,
        }
    }

    /// The number that it is, if it is one.
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Known::Integer(value) => Some(*value as f64),
            Known::Negative(value) => Some(-(*value as f64)),
            Known::Float(value) => Some(*value),
            _ => None,
        }
    }

    /// What it is, in a message.
    pub(crate) fn describe(&self) -> &'static str {
        match self {
            Known::Integer(_) => "a whole number",
            Known::Negative(_) => "a whole number below 0",
            Known::Float(_) => "a number with a fraction",
            Known::Flag(_) => "`true` or `false`",
            Known::Text(_) => "a text",
            Known::Pair(_) => "a pair",
            Known::Numbers(_) => "a list of numbers",
            Known::Table(..) => "a table of numbers",
            Known::Open => "not known",
            Known::Element(..) => "a block",
        }
    }
}

/// The names of one call of a block, or of `forward`.
pub(crate) struct Frame<'s> {
    /// The call with its arguments evaluated, `stage(3, 64)`; `None` for `forward`.
    pub(crate) call: Option<String>,
    /// The block that is called, and how many mistakes had been found before.
    pub(crate) entered: Option<(&'s Function, usize)>,
    pub(crate) caller: Option<Rc<Frame<'s>>>,
    /// Where the caller calls it.
    pub(crate) place: Place,
    /// The blocks and constants that are seen here.
    pub(crate) module: &'s Module,
    /// Calls around this one.
    pub(crate) depth: usize,
    pub(crate) parameters: Vec<(String, Known<'s>)>,
    pub(crate) bindings: Vec<Rc<Binding<'s>>>,
    pub(crate) taps: RefCell<HashMap<String, Current>>,
}

/// `let w = ..;`
pub(crate) struct Binding<'s> {
    pub(crate) name: String,
    pub(crate) element: &'s Expression,
    /// The rows of the first use, whose parameters later uses share; `None` for a row that could not be made.
    pub(crate) first_use: RefCell<Option<Vec<Option<RowId>>>>,
    /// Whether a use is being resolved.
    pub(crate) busy: Cell<bool>,
}

impl<'s> Frame<'s> {
    /// The frame of the constants of `module`, which sees nothing but constants, used by `caller` at `place`.
    pub(crate) fn global(module: &'s Module, caller: Option<Rc<Frame<'s>>>, place: Place) -> Rc<Frame<'s>> {
        Rc::new(Frame {
            call: None,
            entered: None,
            caller,
            place,
            module,
            depth: 0,
            parameters: Vec::new(),
            bindings: Vec::new(),
            taps: RefCell::default(),
        })
    }

    pub(crate) fn parameter(&self, name: &str) -> Option<&Known<'s>> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    pub(crate) fn binding(&self, name: &str) -> Option<&Rc<Binding<'s>>> {
        self.bindings.iter().find(|binding| binding.name == name)
    }

    /// Returns the number of mistakes before `block` first called itself, on the way to this call. `None` if it did not.
    pub(crate) fn found_before_recursion(&self, block: &Function) -> Option<usize> {
        let mut calls = Vec::new();
        let mut around = Some(self);
        while let Some(frame) = around {
            calls.extend(frame.entered.filter(|(entered, _)| std::ptr::eq(*entered, block)).map(|(_, found)| found));
            around = frame.caller.as_deref();
        }
        // From the inside to the outside: the last one is the call that everything began with.
        calls.len().checked_sub(2).map(|second| calls[second])
    }

    /// What was tapped as `name`, in this call or in those around it.
    pub(crate) fn tapped(&self, name: &str) -> Option<Current> {
        let own = self.taps.borrow().get(name).copied();
        own.or_else(|| self.caller.as_ref()?.tapped(name))
    }

    /// Every name that [`Frame::tapped`] would find.
    pub(crate) fn tap_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.taps.borrow().keys().cloned().collect();
        names.extend(self.caller.iter().flat_map(|caller| caller.tap_names()));
        names.sort();
        names
    }
}
