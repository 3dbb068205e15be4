//! The builder that a layer makes its parameters, operations, views and inner layers with.

use super::Layer;
use super::initializer::{Initial, is_bias};
use super::mistake::{Kind, Mistake, Shared};
use super::recovery::{Guess, Guessed};
use super::steps::Steps;
use crate::graph::{self, Elements, Graph, NodeId, Row, RowId, Source, Type, check_elements};
use crate::number::Role;
use crate::program::ops::Expand;
use crate::program::{Init, Op};
use crate::shape::Shape;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// A node of the graph, with its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// The node.
    pub node: NodeId,
    /// Dimensions of one sample.
    pub shape: Shape,
    /// The kind of its elements.
    pub elements: Elements,
    /// True if each sample has its own value, false if one value is shared by the batch.
    pub batched: bool,
}

impl Value {
    pub(crate) fn of(graph: &Graph, node: NodeId) -> Value {
        let Type { shape, elements, batched } = graph.value(node);
        Value { node, shape, elements, batched }
    }
}

/// A use of a layer: the settings that hold at the place where it is used.
#[derive(Clone, Debug, Default)]
pub struct Use {
    /// The row whose parameters it shares, if any.
    pub owner: Option<RowId>,
    /// True inside `freeze`: no gradient goes to its parameters through this use.
    pub frozen: bool,
    /// True inside `eval`: it computes in training as it does in inference.
    pub eval: bool,
    /// Initialisers of its parameters, from its own arguments.
    pub init: Initial,
    /// Initialisers of its parameters, from the `init` scope around it.
    pub init_around: Initial,
    /// The `lengths` and `segments` scopes around it, the innermost one last.
    pub steps: Vec<Steps>,
}

impl Use {
    /// Returns a use that shares the parameters of a row, if any.
    pub fn of(owner: Option<RowId>) -> Use {
        Use { owner, ..Use::default() }
    }
}

/// The surroundings in which a layer is built.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) path: String,
    pub(crate) kind: String,
    pub(crate) used: Use,
    /// The row whose weight it uses in addition to its own parameters. `None` if it is not tied.
    pub(crate) tied_to: Option<RowId>,
    pub(crate) guess: Guess,
}

/// The result of building a layer.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) mistakes: Vec<Mistake>,
    pub(crate) guessed: Guessed,
    /// Its row, and the node of its output. `None` if a mistake leaves the output unknown.
    pub(crate) row: Option<(Row, NodeId)>,
}

/// Counts of the owner's parameters and running statistics that have been taken so far, in order.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    parameters: usize,
    buffers: usize,
}

/// A layer under construction.
#[derive(Debug)]
pub struct Builder<'g> {
    graph: &'g mut Graph,
    scope: Scope,
    row: RowId,
    /// Names of the inner layers around the current one: `["qkv"]`.
    parts: Vec<&'static str>,
    taken: Taken,
    parameters: Vec<usize>,
    buffers: Vec<usize>,
    mistakes: Vec<Mistake>,
    guessed: Guessed,
    /// A mistake that leaves the output of the layer unknown.
    open: Option<Mistake>,
    in_place: bool,
    /// True for weights, and for biases, if a parameter took the layer's own `init` or `bias_init`.
    began: [bool; 2],
}

impl<'g> Builder<'g> {
    pub(crate) fn new(graph: &'g mut Graph, scope: Scope) -> Builder<'g> {
        let row = graph.rows.len();
        Builder {
            graph,
            scope,
            row,
            parts: Vec::new(),
            taken: Taken::default(),
            parameters: Vec::new(),
            buffers: Vec::new(),
            mistakes: Vec::new(),
            guessed: Guessed::default(),
            open: None,
            in_place: false,
            began: [false; 2],
        }
    }

    /// Returns the graph with all that was built so far.
    pub(super) fn graph(&self) -> &Graph {
        self.graph
    }

    /// Ends the layer, and returns it with its mistakes.
    pub(crate) fn finish(mut self, built: Result<Value, Mistake>) -> Finished {
        let (open, value) = match (self.open.take(), built) {
            (Some(open), _) | (None, Err(open)) => (Some(open), None),
            (None, Ok(value)) => (None, Some(value)),
        };
        self.mistakes.extend(open);
        if value.is_some() {
            self.check_init();
        }
        let value = value.map(|value| self.own(value));
        let row = value.map(|value| {
            let parameters = || self.parameters.iter().map(|&id| &self.graph.parameters[id]);
            let own = parameters().filter(|parameter| parameter.row == self.row);
            let count = own.map(|parameter| parameter.shape.elements().unwrap_or(0)).sum();
            let Value { node, shape, elements, batched } = value;
            let row = Row {
                path: self.scope.path,
                kind: self.scope.kind,
                output: Type { shape, elements, batched },
                parameters: count,
                parameter_ids: self.parameters,
                buffer_ids: self.buffers,
            };
            (row, node)
        });
        Finished { mistakes: self.mistakes, guessed: self.guessed, row }
    }

    /// Returns `value` as an output of this layer. If another layer made it, returns a view of it: every layer has an output of its own.
    fn own(&mut self, value: Value) -> Value {
        let node = &self.graph.nodes[value.node];
        let is_own = node.row == self.row && node.source != Source::Input;
        if is_own { value } else { self.view(value, value.shape) }
    }

    /// Adds a mistake, if there is one, and goes on.
    pub fn report(&mut self, mistake: impl Into<Option<Mistake>>) {
        self.mistakes.extend(mistake.into());
    }

    /// Returns one of two readings after a mistake, and marks that it was assumed.
    pub fn either<T>(&mut self, first: T, second: T) -> T {
        self.guessed.reading = true;
        if self.scope.guess.second { second } else { first }
    }

    /// Returns one of two values after a mistake that allows many, and marks that it was assumed.
    pub fn any<T>(&mut self, [first, other]: [T; 2]) -> T {
        self.guessed.number = true;
        if self.scope.guess.other_number { other } else { first }
    }

    /// True inside `eval`.
    pub fn is_in_eval(&self) -> bool {
        self.scope.used.eval
    }

    /// Returns the `lengths` and `segments` scopes around the layer, the innermost one last.
    pub(super) fn steps(&self) -> &[Steps] {
        &self.scope.used.steps
    }

    /// Lets the output of the next operation overwrite its input, if the user asked for that.
    pub fn in_place(&mut self, asked: bool) {
        self.in_place = asked;
    }

    /// Returns the full name of a parameter or buffer of this layer.
    fn name(&self, name: &str) -> String {
        let parts: String = self.parts.iter().map(|part| format!(".{part}")).collect();
        format!("{}{parts}.{name}", self.scope.path)
    }

    /// Reports an `init` or `bias_init` of this layer that no parameter uses.
    fn check_init(&mut self) {
        let Initial { weights, biases } = self.scope.used.init;
        let said = [(weights, "init", "weight"), (biases, "bias_init", "bias")];
        for ((init, option, what), began) in said.into_iter().zip(self.began) {
            if init.is_some() && !began {
                self.report(Mistake::of(option, format!("has no {what} to begin so; remove `{option}`")));
            }
        }
    }

    /// Returns the initialiser of a parameter: that of `init` on the layer or around it, else `usual`.
    fn begins(&mut self, name: &str, shape: Shape, role: Role, usual: Init) -> Init {
        let is_bias = is_bias(name);
        // Lengths of a weight normalisation belong to its directions. `init` on a norm holds for its scale, but not for the scale of an
        // inner norm.
        let is_weight = role == Role::Weight || name == "weight" && self.parts.is_empty();
        if usual == Init::Lengths || !(is_bias || is_weight) {
            return usual;
        }
        let (own, around) = (self.scope.used.init, self.scope.used.init_around);
        // An `init` scope around the layer applies only to weights that would be random, and neither to scales of 1 nor to shifts of 0.
        let is_random = matches!(usual, Init::Uniform(_) | Init::Normal(_) | Init::NormalWithZeros { .. });
        let around = if role == Role::Weight && is_random { around } else { Initial::default() };
        let Initial { weights, biases } = own.within(around);
        self.began[usize::from(is_bias)] = true;
        let Some(initializer) = (if is_bias { biases } else { weights }) else { return usual };
        initializer.of(shape, usual).unwrap_or_else(|mistake| {
            self.report(mistake);
            usual
        })
    }

    /// Adds a parameter, or takes that of the layer whose parameters are shared.
    pub fn parameter(&mut self, name: &str, shape: &[u64], role: Role, init: Init) -> Value {
        let shape = Shape::new(shape);
        let init = self.begins(name, shape, role, init);
        let id = match self.scope.used.owner {
            Some(owner) => self.shared_parameter(owner, shape),
            None => {
                if let Err(mistake) = check_elements("a parameter", shape) {
                    self.open.get_or_insert(mistake.into());
                }
                let name = self.name(name);
                self.graph.parameters.push(graph::Parameter { name, row: self.row, shape, role, init });
                self.graph.parameters.len() - 1
            }
        };
        self.parameters.push(id);
        self.use_of(id, shape)
    }

    /// Adds a use of a parameter. It has a gradient unless the layer is frozen in this use.
    fn use_of(&mut self, parameter: usize, shape: Shape) -> Value {
        let value = Type { shape, elements: Elements::Numbers, batched: false };
        let node = self.graph.node(value, Source::Parameter(parameter), self.row);
        self.graph.nodes[node].detached = self.scope.used.frozen;
        Value::of(self.graph, node)
    }

    fn shared_parameter(&mut self, owner: RowId, needed: Shape) -> usize {
        let ids = &self.graph.rows[owner].parameter_ids;
        let id = ids.get(self.taken.parameters).copied();
        self.taken.parameters += 1;
        let Some(id) = id else {
            self.open
                .get_or_insert(Mistake::new("shares the parameters of a layer that has fewer; use a layer of its own"));
            return 0;
        };
        let parameter = &self.graph.parameters[id];
        if parameter.shape != needed {
            let own = &self.graph.rows[owner].path;
            let name = parameter.name.strip_prefix(own.as_str()).unwrap_or(&parameter.name);
            let (parameter, own) = (name.trim_start_matches('.').into(), parameter.shape);
            // Go on as if it had a parameter of its own.
            self.report(Mistake::from(Kind::Shared(Shared { owner, parameter, own, needed }.into())));
        }
        id
    }

    /// Adds a scale of ones.
    pub fn scale(&mut self, shape: &[u64]) -> Value {
        self.parameter("weight", shape, Role::Norm, Init::Constant(1.0))
    }

    /// Adds a shift of zeros.
    pub fn shift(&mut self, shape: &[u64]) -> Value {
        self.parameter("bias", shape, Role::Norm, Init::Constant(0.0))
    }

    /// Adds a running statistic, and returns its number.
    pub fn buffer(&mut self, name: &str, shape: &[u64], init: Init) -> usize {
        let shape = Shape::new(shape);
        let id = match self.scope.used.owner {
            Some(owner) => {
                let id = self.graph.rows[owner].buffer_ids.get(self.taken.buffers).copied();
                self.taken.buffers += 1;
                id.unwrap_or_else(|| {
                    let message = "shares the running statistics of a layer that has fewer; use a layer of its own";
                    self.open.get_or_insert(Mistake::new(message));
                    0
                })
            }
            None => {
                let name = self.name(name);
                self.graph.buffers.push(graph::Buffer { name, row: self.row, shape, init });
                self.graph.buffers.len() - 1
            }
        };
        self.buffers.push(id);
        id
    }

    /// Adds an operation on these values.
    ///
    /// # Errors
    /// An output of more elements than a tensor can have.
    pub fn op(&mut self, op: impl Into<Op>, inputs: &[Value]) -> Result<Value, Mistake> {
        self.op_with(op, inputs, &[])
    }

    /// Adds an operation on these values that has running statistics.
    ///
    /// # Errors
    /// An output of more elements than a tensor can have.
    pub fn op_with(&mut self, op: impl Into<Op>, inputs: &[Value], buffers: &[usize]) -> Result<Value, Mistake> {
        let op = match (op.into(), self.scope.used.eval) {
            (op, false) => op,
            (op, true) => match op.in_eval() {
                Some(op) => op,
                None => {
                    self.in_place = false;
                    return Ok(inputs[0]);
                }
            },
        };
        let (op, inputs) = self.within_steps(op, inputs)?;
        let shape = op.output();
        check_elements("an output", shape)?;
        let elements = if op.makes_indices() { Elements::Indices } else { Elements::Numbers };
        let value = Type { shape, elements, batched: inputs.iter().any(|input| input.batched) };
        let source = Source::Op {
            op,
            inputs: inputs.iter().map(|input| input.node).collect(),
            buffers: buffers.to_vec(),
            in_place: core::mem::take(&mut self.in_place),
        };
        let node = self.graph.node(value, source, self.row);
        Ok(Value::of(self.graph, node))
    }

    /// Returns distinct values for an operation that computes the gradient of each input by itself: further occurrences of a value become
    /// views of it. If one value differs between samples, shared values among the first `each` are repeated for all samples.
    ///
    /// # Errors
    /// As for [`Builder::op`].
    pub fn apart(&mut self, x: &[Value], each: usize) -> Result<Vec<Value>, Mistake> {
        let mut apart = self.repeated(x, each)?;
        for index in 1..apart.len() {
            let value = apart[index];
            if apart[..index].iter().any(|other| other.node == value.node) {
                apart[index] = self.view(value, value.shape);
            }
        }
        Ok(apart)
    }

    /// Returns the values `x`. If one of them differs between samples, shared values among the first `each` are repeated for all samples.
    ///
    /// # Errors
    /// As for [`Builder::op`].
    pub fn repeated(&mut self, x: &[Value], each: usize) -> Result<Vec<Value>, Mistake> {
        let Some(&like) = x.iter().find(|value| value.batched) else { return Ok(x.to_vec()) };
        let repeat = |(index, &value): (usize, &Value)| match value.batched || index >= each {
            true => Ok(value),
            false => self.op(Expand { shape: value.shape }, &[value, like]),
        };
        x.iter().enumerate().map(repeat).collect()
    }

    /// Adds a weight that is computed from parameters. A layer that shares another one's parameters takes the weight that was computed
    /// there, so that it is computed once. If only one of the two layers is frozen, each computes its own, since a gradient flows through
    /// one of them only.
    ///
    /// # Errors
    /// A weight of more elements than a tensor can have.
    pub fn made_of_parameters(&mut self, op: impl Into<Op>, parameters: &[Value]) -> Result<Value, Mistake> {
        self.made_with(op, parameters, &[])
    }

    /// Adds a weight that is computed from parameters and running statistics: see [`Builder::made_of_parameters`]. Uses inside `eval` do
    /// not share it with uses outside.
    ///
    /// # Errors
    /// A weight of more elements than a tensor can have.
    pub fn made_with(&mut self, op: impl Into<Op>, parameters: &[Value], buffers: &[usize]) -> Result<Value, Mistake> {
        let op: Op = op.into();
        let op = if self.scope.used.eval { op.clone().in_eval().unwrap_or(op) } else { op };
        let number = |id: NodeId| match self.graph.nodes[id] {
            graph::Node { source: Source::Parameter(number), detached, .. } => Some((number, detached)),
            _ => None,
        };
        let is_it = |node: &graph::Node| match &node.source {
            Source::Op { op: other, inputs, .. } if *other == op && inputs.len() == parameters.len() => {
                inputs.iter().zip(parameters).all(|(&id, own)| number(id).is_some() && number(id) == number(own.node))
            }
            _ => false,
        };
        match self.graph.nodes.iter().position(is_it) {
            Some(made) => Ok(Value::of(self.graph, made)),
            None => self.op_with(op, parameters, buffers),
        }
    }

    /// Adds a view of `x` with another shape: it has the memory of `x`, and needs no operation.
    pub fn view(&mut self, x: Value, shape: Shape) -> Value {
        let value = Type { shape, elements: x.elements, batched: x.batched };
        let node = self.graph.node(value, Source::View(x.node), self.row);
        Value { node, shape, ..x }
    }

    /// Returns the shape of `x` as rows of its last axes, and the axes of a row: see [`Value::last_axes`]. If they are not the expected
    /// ones, reports that, and takes the last axis as a row.
    ///
    /// # Errors
    /// A value for which it is unknown which axes are a row.
    pub fn last_axes(&mut self, x: Value, expected: Option<&[u64]>) -> Result<(Shape, Shape), Mistake> {
        match x.last_axes(expected) {
            Err(mistake) if expected.is_some() && x.shape.rank() <= 2 => {
                self.report(mistake);
                x.last_axes(None)
            }
            found => found,
        }
    }

    /// Applies a layer of feature maps to a signal `[C, L]`, as a map `[C, 1, L]` of one row.
    ///
    /// # Errors
    /// A value that is no signal, and as for `on_map`.
    pub fn on_row(
        &mut self,
        x: Value,
        on_map: impl FnOnce(&mut Self, Value, [u64; 3]) -> Result<Value, Mistake>,
    ) -> Result<Value, Mistake> {
        let [channels, length] = x.signal()?;
        let map = [channels, 1, length];
        let row = self.view(x, Shape::new(&map));
        let y = on_map(self, row, map)?;
        let [channels, .., length] = y.feature_map()?;
        Ok(self.view(y, Shape::new(&[channels, length])))
    }

    /// Returns `x` with another shape: a view, or `x` itself if it has that shape.
    pub fn reshaped(&mut self, x: Value, shape: Shape) -> Value {
        if x.shape == shape { x } else { self.view(x, shape) }
    }

    /// Adds a layer as a part of this one. The names of its parameters begin with `name`, unless that is empty.
    ///
    /// # Errors
    /// As for the layer.
    pub fn layer(&mut self, name: &'static str, layer: &impl Layer, x: &[Value]) -> Result<Value, Mistake> {
        if !name.is_empty() {
            self.parts.push(name);
        }
        let built = layer.build(self, x);
        if !name.is_empty() {
            self.parts.pop();
        }
        built
    }

    /// Returns the weight of the layer that this one is tied to, and the operation that reads it there. `None` without such a layer.
    pub fn tied_weight(&mut self) -> Option<(Value, Op)> {
        let tied_to = self.scope.tied_to?;
        let id = self.graph.rows[tied_to].parameter_ids.first().copied()?;
        let nodes = &self.graph.nodes;
        let reader = |is_read: &dyn Fn(NodeId) -> bool| {
            nodes.iter().enumerate().find_map(|(reader, node)| match &node.source {
                Source::Op { op, inputs, .. } if inputs.iter().any(|&input| is_read(input)) => {
                    Some((reader, op.clone()))
                }
                _ => None,
            })
        };
        let (first, op) = reader(&|input| nodes[input].source == Source::Parameter(id))?;
        // If the parameter is reparametrised, the result is the weight.
        let made = matches!(op, Op::Reparametrize(_) | Op::SpectralNorm(_)).then_some(first);
        let op = if made.is_some() { reader(&|input| made == Some(input))?.1 } else { op };
        self.parameters.push(id);
        // It is the first parameter of this layer, even if another layer shares its parameters.
        self.taken.parameters += 1;
        if let Some(made) = made {
            return Some((self.made_as(made)?, op));
        }
        Some((self.use_of(id, self.graph.parameters[id].shape), op))
    }

    /// Returns the weight that node `made` computes from parameters. If that node is frozen and this layer is not, or the other way round,
    /// adds a second computation.
    fn made_as(&mut self, made: NodeId) -> Option<Value> {
        let Source::Op { op, inputs, buffers, .. } = self.graph.nodes[made].source.clone() else { return None };
        if inputs.iter().all(|&input| self.graph.nodes[input].detached == self.scope.used.frozen) {
            return Some(Value::of(self.graph, made));
        }
        let parameter = |&input: &NodeId| match self.graph.nodes[input].source {
            Source::Parameter(parameter) => Some(parameter),
            _ => None,
        };
        let parameters: Vec<usize> = inputs.iter().map(parameter).collect::<Option<_>>()?;
        let uses: Vec<Value> =
            parameters.into_iter().map(|id| self.use_of(id, self.graph.parameters[id].shape)).collect();
        self.made_with(op, &uses, &buffers).ok()
    }

    /// Returns the name in the language of the layer that this one is tied to. `None` if it is not tied.
    pub fn tied_kind(&self) -> Option<String> {
        Some(self.graph.rows[self.scope.tied_to?].kind.clone())
    }
}
