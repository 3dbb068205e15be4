//! Frames: the names that are visible in one call of a block, with their values.

use crate::syntax::{Expression, Function, Module, Place};
use gpumem_core::graph::{NodeId, RowId};
use gpumem_core::layers::arguments::{extent, list};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

/// The current value of a sequence of layers. `None` after a mistake: the layers after it are checked for names only.
pub(crate) type Current = Option<NodeId>;

/// The value of an expression.
#[derive(Clone)]
pub(crate) enum Known<'s> {
    Integer(u64),
    /// A whole number below 0, stored without its sign.
    Negative(u64),
    Float(f64),
    Flag(bool),
    Text(String),
    Pair([u64; 2]),
    Numbers(Vec<f64>),
    /// The shape of nested brackets of numbers, and all the numbers in order.
    Table(Vec<u64>, Vec<f64>),
    /// An argument whose mistake has been reported, or a parameter of a block that is resolved without a call.
    Open,
    /// A `Block` argument: an element, and the frame in which it was written.
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
    /// Returns a whole number. `None` if it is too large.
    pub(crate) fn of_whole(value: i128) -> Option<Self> {
        let size = u64::try_from(value.unsigned_abs()).ok()?;
        Some(if value < 0 { Known::Negative(size) } else { Known::Integer(size) })
    }

    /// Returns the whole number, or `None` if the value is not one.
    pub(crate) fn whole(&self) -> Option<i128> {
        match self {
            Known::Integer(value) => Some((*value).into()),
            Known::Negative(value) => Some(-i128::from(*value)),
            _ => None,
        }
    }

    /// Returns the number, or `None` if the value is not one.
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Known::Integer(value) => Some(*value as f64),
            Known::Negative(value) => Some(-(*value as f64)),
            Known::Float(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns a description of the value for messages.
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

/// The names that are visible in one call of a block, or in `forward`.
pub(crate) struct Frame<'s> {
    /// The call with its arguments evaluated, as `stage(3, 64)`. `None` for `forward`.
    pub(crate) call: Option<String>,
    /// The block that is called, and the number of mistakes found before.
    pub(crate) entered: Option<(&'s Function, usize)>,
    pub(crate) caller: Option<Rc<Frame<'s>>>,
    /// The place of the call in the caller.
    pub(crate) place: Place,
    /// The source line of the call. `None` for `forward`, and if it is in no file.
    pub(crate) line: Option<usize>,
    /// The module whose blocks and constants are visible here.
    pub(crate) module: &'s Module,
    /// The number of calls around this one.
    pub(crate) depth: usize,
    pub(crate) parameters: Vec<(String, Known<'s>)>,
    pub(crate) bindings: Vec<Rc<Binding<'s>>>,
    pub(crate) taps: RefCell<HashMap<String, Current>>,
}

/// A `let w = ..;`.
pub(crate) struct Binding<'s> {
    pub(crate) name: String,
    pub(crate) element: &'s Expression,
    /// The rows of the first use, whose parameters later uses share. A row is `None` if a mistake kept it from being made.
    pub(crate) first_use: RefCell<Option<Vec<Option<RowId>>>>,
    /// True while a use is being resolved.
    pub(crate) busy: Cell<bool>,
}

impl<'s> Frame<'s> {
    /// Returns a frame in which only the constants of `module` are visible. `caller` uses one of them at `place`.
    pub(crate) fn global(module: &'s Module, caller: Option<Rc<Frame<'s>>>, place: Place) -> Rc<Frame<'s>> {
        Rc::new(Frame {
            call: None,
            entered: None,
            caller,
            place,
            line: None,
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

    /// Returns the number of mistakes found before `block` first called itself. `None` if this call is not inside a recursion of `block`.
    pub(crate) fn found_before_recursion(&self, block: &Function) -> Option<usize> {
        let mut calls = Vec::new();
        let mut around = Some(self);
        while let Some(frame) = around {
            calls.extend(frame.entered.filter(|(entered, _)| std::ptr::eq(*entered, block)).map(|(_, found)| found));
            around = frame.caller.as_deref();
        }
        // The list runs from the inside to the outside, so its last entry is the first call.
        calls.len().checked_sub(2).map(|second| calls[second])
    }

    /// Returns the value that was tapped as `name` in this call or in those around it. `None` if there is no such tap.
    pub(crate) fn tapped(&self, name: &str) -> Option<Current> {
        let own = self.taps.borrow().get(name).copied();
        own.or_else(|| self.caller.as_ref()?.tapped(name))
    }

    /// Returns every name that [`Frame::tapped`] would find.
    pub(crate) fn tap_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.taps.borrow().keys().cloned().collect();
        names.extend(self.caller.iter().flat_map(|caller| caller.tap_names()));
        names.sort();
        names
    }
}
