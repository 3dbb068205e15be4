//! Autograd: the graph that operations record, and the engine that runs it backwards.

use super::layout::{dense, elements, view_strides};
use super::meta::{Backward, Eager, Edge, Gradients, Inner, Node, Tensor};
use super::trace::{Purpose, Site};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::rc::{Rc, Weak};

impl Tensor {
    pub fn requires_grad(&self) -> bool {
        self.history.borrow().requires_grad
    }

    /// Makes this tensor a parameter.
    pub fn require_grad(&self) {
        self.history.borrow_mut().requires_grad = true;
    }

    pub fn is_leaf(&self) -> bool {
        let history = self.history.borrow();
        history.node.is_none() && history.base.is_none()
    }

    pub fn base(&self) -> Option<Tensor> {
        self.history.borrow().base.clone()
    }

    /// Makes this tensor a view of another, or of the tensor of which that one is a view.
    pub fn set_base(&self, other: &Tensor) {
        let base = other.base().unwrap_or_else(|| other.clone());
        self.history.borrow_mut().base = Some(base);
    }

    pub fn gradient(&self) -> Option<Tensor> {
        self.history.borrow().gradient.clone()
    }

    /// Sets the gradient to none, and forgets the paths of the step before.
    pub fn clear_gradient(&self) {
        let mut history = self.history.borrow_mut();
        (history.gradient, history.end) = (None, None);
    }

    fn edge(&self, e: &Eager) -> Option<Edge> {
        let mut history = self.history.borrow_mut();
        if !history.requires_grad {
            return None;
        }
        let (node, output) = match &history.node {
            Some((node, output)) => (node.clone(), *output),
            None => {
                let end = || Rc::new(Node::new(e, Vec::new(), 1, Some(Rc::downgrade(&self.0))));
                (history.end.get_or_insert_with(end).clone(), 0)
            }
        };
        Some(Edge { node, output, shape: self.shape.clone(), dtype: self.dtype })
    }
}

impl Node {
    fn new(e: &Eager, edges: Vec<Option<Edge>>, outputs: usize, parameter: Option<Weak<Inner>>) -> Node {
        Node {
            number: e.next_node(),
            site: e.site(),
            edges: RefCell::new(edges),
            saved: RefCell::default(),
            derivative: RefCell::default(),
            outputs,
            parameter,
        }
    }

    /// Returns the place in the queue: the latest operation first, and before all of them what arrived at a parameter.
    fn priority(&self) -> u64 {
        if self.parameter.is_some() { u64::MAX } else { self.number }
    }
}

impl Eager {
    /// True if autograd records an operation of these inputs.
    pub fn needs(&self, inputs: &[Option<&Tensor>]) -> bool {
        self.records() && inputs.iter().flatten().any(|input| input.requires_grad())
    }

    /// Records an operation, if a gradient flows through it. `saved` are kept until the node has run.
    pub fn record(
        &self,
        outputs: &[&Tensor],
        inputs: &[Option<&Tensor>],
        saved: Vec<Option<&Tensor>>,
        derivative: impl Fn(&Backward<'_>) -> Gradients + 'static,
    ) {
        if !self.needs(inputs) {
            return;
        }
        let node = self.node(inputs, outputs.len(), saved, derivative);
        for (index, output) in outputs.iter().enumerate().filter(|(_, output)| output.is_float()) {
            let mut history = output.history.borrow_mut();
            history.node = Some((node.clone(), index));
            history.requires_grad = true;
        }
    }

    /// Makes a node without tying outputs to it.
    pub fn node(
        &self,
        inputs: &[Option<&Tensor>],
        outputs: usize,
        saved: Vec<Option<&Tensor>>,
        derivative: impl Fn(&Backward<'_>) -> Gradients + 'static,
    ) -> Rc<Node> {
        let edges = inputs.iter().map(|input| input.and_then(|input| input.edge(self))).collect();
        let node = Node::new(self, edges, outputs, None);
        for saved in saved.iter().flatten() {
            saved.mark(Purpose::Saved);
        }
        *node.saved.borrow_mut() = saved.into_iter().map(|saved| saved.map(Tensor::detached)).collect();
        *node.derivative.borrow_mut() = Some(Box::new(derivative));
        Rc::new(node)
    }

    /// Reduces a gradient to the shape of a broadcast operand.
    pub fn sum_to(&self, gradient: Tensor, shape: &[u64]) -> Tensor {
        if gradient.shape == shape {
            return gradient;
        }
        let extra = gradient.rank().saturating_sub(shape.len());
        let is_reduced = |(dim, &size): (usize, &u64)| size != 1 && (dim < extra || shape.get(dim - extra) == Some(&1));
        if gradient.shape.iter().enumerate().any(is_reduced) || elements(shape) != gradient.elements() {
            self.label("sum_to_size");
            return self.new_tensor(shape, gradient.dtype);
        }
        let strides = view_strides(&gradient.shape, &gradient.strides, shape).unwrap_or_else(|| dense(shape));
        gradient.alias(shape.to_vec(), strides)
    }

    /// Runs the graph backwards from a loss.
    pub fn backward(&self, root: &Tensor) {
        let Some((start, output)) = root.history.borrow().node.clone() else { return };
        let mut waiting_for = count_edges(&start);
        self.enter(Site { node: None, label: "ones_like" });
        // `torch.autograd.backward` holds the first gradient until it returns.
        let ones = self.like(root);
        let mut queue = Queue::default();
        queue.deliver(self, &start, output, Some(ones.clone()));
        queue.push(start);
        while let Some((node, gradients)) = queue.pop() {
            if let Some(parameter) = &node.parameter {
                if let (Some(parameter), Some(gradient)) = (parameter.upgrade(), gradients.into_iter().next().flatten())
                {
                    self.accumulate(&Tensor(parameter), gradient);
                }
                continue;
            }
            let outputs = self.run(&node, gradients);
            for (edge, gradient) in node.edges.borrow().iter().zip(outputs) {
                let Some(edge) = edge else { continue };
                queue.deliver(self, &edge.node, edge.output, gradient);
                if let Some(count) = waiting_for.get_mut(&edge.node.number) {
                    *count -= 1;
                    if *count == 0 {
                        queue.push(edge.node.clone());
                    }
                }
            }
        }
    }

    /// Runs one node. The gradients that arrived go last but for what the node saved.
    fn run(&self, node: &Node, gradients: Vec<Option<Tensor>>) -> Gradients {
        let edges = node.edges.borrow();
        let derivative = node.derivative.borrow_mut().take();
        let saved = std::mem::take(&mut *node.saved.borrow_mut());
        let mut outputs = match (gradients.iter().flatten().next(), derivative) {
            (Some(gradient), Some(derivative)) => {
                self.enter(node.site);
                let needs: Vec<bool> = edges.iter().map(Option::is_some).collect();
                derivative(&Backward { e: self, saved: &saved, gradients: &gradients, gradient, needs: &needs })
            }
            _ => Vec::new(),
        };
        outputs.resize(edges.len(), None);
        for (output, edge) in outputs.iter_mut().zip(edges.iter()) {
            let Some(edge) = edge else {
                *output = None;
                continue;
            };
            if let Some(mut gradient) = output.take() {
                gradient = self.sum_to(gradient, &edge.shape);
                if gradient.dtype != edge.dtype {
                    self.label("to");
                    gradient = self.like_as(&gradient, edge.dtype);
                }
                *output = Some(gradient);
            }
        }
        drop(gradients);
        drop(saved);
        outputs
    }

    /// Keeps the gradient of a parameter: the tensor itself if nothing else holds it and it lies as the parameter does, else a copy.
    fn accumulate(&self, parameter: &Tensor, gradient: Tensor) {
        self.enter(Site { node: self.site().node, label: "accumulate_grad" });
        let is_dense = parameter.is_dense();
        let is_laid_out = if is_dense { gradient.has_strides(&parameter.strides) } else { gradient.is_contiguous() };
        let kept = if gradient.is_sole() && is_laid_out {
            gradient.detached()
        } else {
            let strides = if is_dense { parameter.strides.clone() } else { dense(&parameter.shape) };
            self.strided(&parameter.shape, strides, gradient.dtype)
        };
        kept.mark(Purpose::Gradient);
        parameter.history.borrow_mut().gradient.get_or_insert(kept);
    }
}

/// Counts the edges that lead to each node that can be reached.
fn count_edges(start: &Rc<Node>) -> HashMap<u64, usize> {
    let mut counts = HashMap::new();
    let mut seen = HashSet::new();
    let mut stack = vec![start.clone()];
    while let Some(node) = stack.pop() {
        if !seen.insert(node.number) {
            continue;
        }
        for edge in node.edges.borrow().iter().flatten() {
            *counts.entry(edge.node.number).or_insert(0) += 1;
            stack.push(edge.node.clone());
        }
    }
    counts
}

/// The nodes that wait to be run, with the gradients that have arrived.
#[derive(Default)]
struct Queue {
    gradients: HashMap<u64, Vec<Option<Tensor>>>,
    ready: BinaryHeap<(u64, Reverse<u64>)>,
    nodes: HashMap<u64, Rc<Node>>,
    pushed: u64,
}

impl Queue {
    /// Adds a gradient to what has arrived at a node.
    fn deliver(&mut self, e: &Eager, node: &Rc<Node>, output: usize, gradient: Option<Tensor>) {
        let arrived = self.gradients.entry(node.number).or_insert_with(|| vec![None; node.outputs]);
        let (Some(gradient), Some(slot)) = (gradient, arrived.get_mut(output)) else { return };
        *slot = Some(match slot.take() {
            None => gradient,
            Some(older) => add(e, older, gradient),
        });
    }

    fn push(&mut self, node: Rc<Node>) {
        self.ready.push((node.priority(), Reverse(self.pushed)));
        self.nodes.insert(self.pushed, node);
        self.pushed += 1;
    }

    fn pop(&mut self) -> Option<(Rc<Node>, Vec<Option<Tensor>>)> {
        let (_, Reverse(pushed)) = self.ready.pop()?;
        let node = self.nodes.remove(&pushed)?;
        let gradients = self.gradients.remove(&node.number).unwrap_or_default();
        Some((node, gradients))
    }
}

/// Adds two gradients that meet: into the older one if nothing else holds it. Trackers are subclasses of tensors, for which it never is.
fn add(e: &Eager, older: Tensor, newer: Tensor) -> Tensor {
    e.label("accumulate");
    if !e.rules.tracker && older.is_dense() && older.is_sole() && older.has_sole_memory() {
        return older;
    }
    let is_like_older = older.is_dense() || !newer.is_dense();
    e.like(if is_like_older { &older } else { &newer })
}
