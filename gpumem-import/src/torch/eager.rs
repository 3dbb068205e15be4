//! A run of PyTorch in eager mode: its rules, the trace of its memory, and what autograd records.

use super::Rules;
use super::meta::Tensor;
use super::trace::{Phase, Site, Trace};
use crate::model::Dtype;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// A run.
pub(super) struct Eager {
    pub rules: Rules,
    trace: Rc<RefCell<Trace>>,
    /// True if autograd records operations.
    records: Cell<bool>,
    /// The number of nodes that autograd has made.
    nodes: Cell<u64>,
    /// Copies of parameters in the type of autocast, by the number of their storage. They live until the context ends.
    pub casts: RefCell<HashMap<u32, Tensor>>,
}

impl Eager {
    pub fn new(rules: Rules) -> Eager {
        let trace = Rc::new(RefCell::new(Trace::new(rules.grain())));
        Eager { rules, trace, records: Cell::new(true), nodes: Cell::new(0), casts: RefCell::default() }
    }

    pub fn trace(&self) -> &Rc<RefCell<Trace>> {
        &self.trace
    }

    pub fn records(&self) -> bool {
        self.records.get()
    }

    /// Sets the flag that `torch.no_grad()` clears. Returns the flag before.
    pub fn set_records(&self, records: bool) -> bool {
        self.records.replace(records)
    }

    /// Returns a number for a node of autograd: later nodes have larger ones.
    pub fn next_node(&self) -> u64 {
        let number = self.nodes.get();
        self.nodes.set(number + 1);
        number
    }

    pub fn begin(&self, phase: Phase) {
        self.trace.borrow_mut().begin(phase);
    }

    /// Sets the place of what is made from now on. Returns the place before.
    pub fn enter(&self, site: Site) -> Site {
        self.trace.borrow_mut().enter(site)
    }

    /// Names the work that makes what is made from now on, at the operation of before.
    pub fn label(&self, label: &'static str) {
        let mut trace = self.trace.borrow_mut();
        let site = Site { label, ..trace.site() };
        trace.enter(site);
    }

    pub fn site(&self) -> Site {
        self.trace.borrow().site()
    }

    /// Returns the type to which autocast converts. `None` outside of autocast.
    pub fn autocast(&self) -> Option<Dtype> {
        self.rules.autocast.map(|autocast| autocast.dtype())
    }
}
