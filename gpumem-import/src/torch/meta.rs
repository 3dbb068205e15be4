//! A run of PyTorch in eager mode: its rules, the trace of its memory, and tensors without data.
//!
//! A tensor has a shape, strides, a type, and a storage that is counted while something owns it.

use super::Rules;
use super::layout::{dense, dense_in_order, elements, index, is_contiguous};
use super::trace::{Phase, Purpose, Site, Trace};
use crate::model::Dtype;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};

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

/// The part of a tensor that autograd owns.
#[derive(Default)]
pub(super) struct History {
    /// The node that made the tensor, and which of its outputs the tensor is.
    pub node: Option<(Rc<Node>, usize)>,
    pub requires_grad: bool,
    /// The tensor of which this one is a view.
    pub base: Option<Tensor>,
    /// The end of the paths to a parameter.
    pub end: Option<Rc<Node>>,
    pub gradient: Option<Tensor>,
}

/// The tensors that a derivative reads.
pub(super) struct Backward<'a> {
    pub e: &'a Eager,
    /// The tensors that the operation saved.
    pub saved: &'a [Option<Tensor>],
    /// The gradient of each output. `None` if the loss does not depend on it.
    pub gradients: &'a [Option<Tensor>],
    /// The first gradient that there is.
    pub gradient: &'a Tensor,
    /// True for each input whose gradient is wanted.
    pub needs: &'a [bool],
}

impl Backward<'_> {
    pub fn saved(&self, index: usize) -> Option<&Tensor> {
        self.saved.get(index).and_then(Option::as_ref)
    }

    pub fn needs(&self, index: usize) -> bool {
        self.needs.get(index).copied().unwrap_or(false)
    }

    /// Makes a tensor of this shape in the type of the gradient.
    pub fn fresh(&self, shape: &[u64]) -> Tensor {
        self.e.new_tensor(shape, self.gradient.dtype)
    }
}

/// The gradients of an operation's inputs. `None` if one is not wanted.
pub(super) type Gradients = Vec<Option<Tensor>>;

/// Makes the gradients of an operation's inputs. It holds numbers only: tensors are in the node, which lets them go in order.
pub(super) type Derivative = Box<dyn Fn(&Backward<'_>) -> Gradients>;

/// A recorded operation, or the end of the paths to a parameter.
pub(super) struct Node {
    pub number: u64,
    pub site: Site,
    pub edges: RefCell<Vec<Option<Edge>>>,
    pub saved: RefCell<Vec<Option<Tensor>>>,
    pub derivative: RefCell<Option<Derivative>>,
    pub outputs: usize,
    /// The parameter whose gradient arrives here.
    pub parameter: Option<Weak<Inner>>,
}

/// A path to the node that made an input.
#[derive(Clone)]
pub(super) struct Edge {
    pub node: Rc<Node>,
    pub output: usize,
    pub shape: Vec<u64>,
    pub dtype: Dtype,
}

impl Drop for Node {
    /// Lets go of earlier nodes one after the other: a chain of a million would overflow the stack.
    fn drop(&mut self) {
        let mut waiting = std::mem::take(self.edges.get_mut());
        while let Some(edge) = waiting.pop() {
            if let Some(mut node) = edge.and_then(|edge| Rc::try_unwrap(edge.node).ok()) {
                waiting.append(node.edges.get_mut());
            }
        }
    }
}

/// Memory that tensors share. It is given back when the last of them goes.
pub(super) struct Storage {
    /// `None` if it is empty: PyTorch takes no memory then.
    index: Option<u32>,
    purpose: Cell<Purpose>,
    trace: Rc<RefCell<Trace>>,
}

impl Drop for Storage {
    fn drop(&mut self) {
        if let Some(index) = self.index {
            self.trace.borrow_mut().free(index);
        }
    }
}

/// A tensor. Clones are the same tensor, as two names in Python are.
#[derive(Clone)]
pub(super) struct Tensor(pub(super) Rc<Inner>);

pub(super) struct Inner {
    pub shape: Vec<u64>,
    pub strides: Vec<u64>,
    pub dtype: Dtype,
    pub storage: Rc<Storage>,
    pub history: RefCell<History>,
}

impl std::ops::Deref for Tensor {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Tensor {
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    pub fn elements(&self) -> u64 {
        elements(&self.shape)
    }

    pub fn is_float(&self) -> bool {
        self.dtype.is_float()
    }

    pub fn is_contiguous(&self) -> bool {
        is_contiguous(&self.shape, &self.strides)
    }

    /// True if the elements lie in memory without gaps and without overlap, in any order of dimensions.
    pub fn is_dense(&self) -> bool {
        let pairs = self.strides.iter().zip(&self.shape);
        let mut pairs: Vec<(u64, u64)> =
            pairs.filter(|(_, dim)| **dim != 1).map(|(&stride, &dim)| (stride, dim)).collect();
        pairs.sort_unstable();
        let mut product = 1u64;
        for (stride, dim) in pairs {
            if stride != product {
                return false;
            }
            product = product.saturating_mul(dim);
        }
        true
    }

    /// True if PyTorch takes the tensor for images whose channels lie innermost in memory: `suggest_memory_format`. It may have gaps.
    pub fn is_channels_last(&self) -> bool {
        let order: &[usize] = match self.rank() {
            4 => &[1, 3, 2, 0],
            5 => &[1, 4, 3, 2, 0],
            _ => return false,
        };
        if self.strides[1] == 0 {
            return false;
        }
        let mut least = 0;
        for &dim in order {
            let (size, stride) = (self.shape[dim], self.strides[dim]);
            // An image of one pixel and one channel is taken for a contiguous one.
            if size == 0 || stride < least || (dim == 0 && least == self.strides[1]) {
                return false;
            }
            least = stride.saturating_mul(size);
        }
        true
    }

    /// True if the strides are these, in dimensions of more than one element.
    pub fn has_strides(&self, strides: &[u64]) -> bool {
        let mut dims = self.shape.iter().zip(&self.strides).zip(strides);
        dims.all(|((&dim, stride), other)| dim == 1 || stride == other)
    }

    /// Returns the index of a dimension that may be counted from the end. `None` if there is none.
    pub fn dim(&self, dim: i64) -> Option<usize> {
        index(dim, self.rank())
    }

    /// Returns another view of the memory, without a history.
    pub fn alias(&self, shape: Vec<u64>, strides: Vec<u64>) -> Tensor {
        let (dtype, storage) = (self.dtype, self.storage.clone());
        Tensor(Rc::new(Inner { shape, strides, dtype, storage, history: RefCell::default() }))
    }

    /// Returns this tensor without its history.
    pub fn detached(&self) -> Tensor {
        self.alias(self.shape.clone(), self.strides.clone())
    }

    /// Returns the tensor without a dimension, as `select` views it. Its memory stays alive.
    pub fn without(&self, dim: usize) -> Tensor {
        let (mut shape, mut strides) = (self.shape.clone(), self.strides.clone());
        shape.remove(dim);
        strides.remove(dim);
        self.alias(shape, strides)
    }

    /// True if nothing else holds this tensor.
    pub fn is_sole(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }

    /// True if no other tensor has this memory.
    pub fn has_sole_memory(&self) -> bool {
        Rc::strong_count(&self.storage) == 1
    }

    /// Notes the purpose of the memory in the trace. What is saved for the backward pass may have a purpose already, which it keeps.
    pub fn mark(&self, purpose: Purpose) {
        let before = self.storage.purpose.get();
        if before == purpose || (purpose == Purpose::Saved && before != Purpose::Temporary) {
            return;
        }
        self.storage.purpose.set(purpose);
        if let Some(index) = self.storage.index {
            self.storage.trace.borrow_mut().mark(index, purpose);
        }
    }

    /// Returns the number of the storage. `None` if it is empty.
    pub fn storage_index(&self) -> Option<u32> {
        self.storage.index
    }
}

impl Eager {
    /// Makes a contiguous tensor.
    pub fn new_tensor(&self, shape: &[u64], dtype: Dtype) -> Tensor {
        self.strided(shape, dense(shape), dtype)
    }

    /// Makes a tensor with these strides.
    pub fn strided(&self, shape: &[u64], strides: Vec<u64>, dtype: Dtype) -> Tensor {
        let bytes = elements(shape).saturating_mul(dtype.bytes());
        let index = (bytes > 0).then(|| self.trace().borrow_mut().make(bytes));
        let purpose = Cell::new(Purpose::Temporary);
        let storage = Rc::new(Storage { index, purpose, trace: self.trace().clone() });
        Tensor(Rc::new(Inner { shape: shape.to_vec(), strides, dtype, storage, history: RefCell::default() }))
    }

    /// Makes a tensor with the shape, the type and the layout of another.
    pub fn like(&self, other: &Tensor) -> Tensor {
        self.like_as(other, other.dtype)
    }

    /// Makes a tensor with the shape and the layout of another.
    pub fn like_as(&self, other: &Tensor, dtype: Dtype) -> Tensor {
        let strides = if other.is_contiguous() {
            dense(&other.shape)
        } else if other.is_dense() {
            other.strides.clone()
        } else {
            dense_in_order(&other.shape, &other.strides)
        };
        self.strided(&other.shape, strides, dtype)
    }

    /// Makes a bool of each element.
    pub fn mask_of(&self, other: &Tensor) -> Tensor {
        self.like_as(other, Dtype::Bool)
    }
}
