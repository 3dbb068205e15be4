//! Translates operations of ONNX to ATen's, with the shapes of everything they return.

mod call;
mod elementwise;
mod layers;
mod movement;
mod pools;
mod recurrent;
mod reductions;
mod shapes;
mod stored;
mod ties;

use super::names::{Roles, copied};
use super::proto::{FunctionProto, GraphProto, NodeProto, TensorProto};
use super::scope::{Scope, Scopes};
use super::tensor::{self, Dim};
use super::{Onnx, Weight};
use crate::batch::{Axis, Batch};
use crate::error::Error;
use crate::fold::{self, Origin};
use crate::model::{Argument, Data, Dtype, Model, Node, State, StateKind, Value, ValueId};
pub(super) use call::Call;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

/// The most operations of a program, those of functions included.
const MOST_NODES: usize = 1_000_000;
/// The input that says which tokens are padding. Exporters ask for it; a planned step has none, so that it is one everywhere.
const ALL_ONES: &str = "attention_mask";
/// The deepest nesting of functions and branches.
const DEEPEST: u32 = 16;

/// The reason why an operation is not translated.
#[derive(Debug)]
pub(super) struct Fault(pub(super) String);

/// The result of translating an operation.
pub(super) type Result<T = ()> = std::result::Result<T, Fault>;

pub(super) fn refuse<T>(reason: impl Into<String>) -> Result<T> {
    Err(Fault(reason.into()))
}

/// The meaning of a name.
#[derive(Clone, Debug)]
pub(super) enum Bound {
    Tensor(ValueId),
    Sequence(Vec<ValueId>),
    /// A value whose shape is not known, since an operation before it is not.
    Unknown,
}

/// An operation that is not translated.
struct Lacking {
    op: String,
    node: String,
    reason: String,
}

/// The names of a graph, or of the body of a function.
#[derive(Default)]
struct Names<'f> {
    bound: HashMap<String, Bound>,
    /// Tensors that nothing has read so far.
    stored: HashMap<&'f str, &'f TensorProto>,
    /// Shapes that the file notes.
    noted: HashMap<&'f str, (Dtype, Vec<Dim>)>,
    /// The arguments of a function, for attributes that refer to them.
    attributes: HashMap<String, &'f super::proto::AttributeProto>,
}

/// Sizes that the names of dimensions stand for.
pub(super) type Sizes = BTreeMap<String, u64>;

pub(super) struct Translator<'f> {
    path: &'f Path,
    functions: HashMap<(&'f str, &'f str), &'f FunctionProto>,
    roles: &'f Roles,
    /// The names of all tensors of the file.
    stored_names: HashSet<&'f str>,
    pub(super) model: Model,
    pub(super) origins: Vec<Origin>,
    /// Elements of constants that may still be evaluated.
    budget: u64,
    pub(super) batch: Batch,
    /// True if sizes in the file may be those of another batch.
    is_widened: bool,
    /// The batch size of the file's own constants.
    old_batch: u64,
    pub(super) opset: i64,
    sizes: &'f Sizes,
    scopes: Scopes,
    pub(super) scope: Scope,
    node: String,
    taken: HashMap<String, usize>,
    keys: HashSet<String>,
    /// The node that makes each value.
    makers: HashMap<ValueId, usize>,
    /// The state that each value is.
    owners: HashMap<ValueId, usize>,
    pub(super) weights: Vec<Weight>,
    /// Parameters that are stored as `[in, out]`.
    pub(super) turned: Vec<ValueId>,
    lacking: Vec<Lacking>,
    steps: usize,
}

/// Translates a file for `batch` samples.
pub(super) fn translate<'f>(
    file: &'f Onnx,
    graph: &'f GraphProto,
    batch: u64,
    old: u64,
    sizes: &'f Sizes,
) -> std::result::Result<Translated, Error> {
    let functions = file.document.functions.iter().map(|function| {
        let key = (function.domain.as_deref().unwrap_or(""), function.name.as_deref().unwrap_or(""));
        (key, function)
    });
    let mut translator = Translator {
        path: &file.path,
        functions: functions.collect(),
        roles: &file.roles,
        stored_names: graph.initializer.iter().filter_map(|tensor| tensor.name.as_deref()).collect(),
        model: Model::default(),
        origins: Vec::new(),
        budget: fold::BUDGET,
        batch: Batch { size: batch, axes: Vec::new(), mixing: Vec::new(), makers: Vec::new() },
        is_widened: batch != old,
        old_batch: old,
        opset: file.opset,
        sizes,
        scopes: Scopes::default(),
        scope: Scope::default(),
        node: String::new(),
        taken: HashMap::new(),
        keys: HashSet::new(),
        makers: HashMap::new(),
        owners: HashMap::new(),
        weights: Vec::new(),
        turned: Vec::new(),
        lacking: Vec::new(),
        steps: 0,
    };
    translator.whole(graph)?;
    translator.tie(graph);
    let Translator { model, weights, .. } = translator;
    Ok(Translated { model, weights })
}

/// A translated file.
pub(super) struct Translated {
    pub(super) model: Model,
    pub(super) weights: Vec<Weight>,
}

impl<'f> Translator<'f> {
    fn error(&self, what: impl Into<String>) -> Error {
        Error::new(self.path, what)
    }

    fn whole(&mut self, graph: &'f GraphProto) -> std::result::Result<(), Error> {
        let mut names = self.names(graph);
        for input in &graph.input {
            let name = input.name.as_deref().unwrap_or("");
            // Old files list weights among the inputs.
            if names.stored.contains_key(name) {
                continue;
            }
            let described = tensor::described(input.r#type.as_ref());
            let Some((dtype, dims)) = described else {
                return Err(self.error(format!(
                    "the input `{name}` has no shape; export the model with an example of its inputs"
                )));
            };
            let mut shape = self.shape(&dims).map_err(|Fault(what)| self.error(what))?;
            let is_first = self.model.inputs.is_empty();
            let has_batch = is_first || dims.first() == graph_batch(graph).as_ref();
            if has_batch
                && self.is_widened
                && let Some(size) = shape.first_mut()
            {
                *size = self.batch.size;
            }
            if !is_first && name == ALL_ONES && !dtype.is_float() {
                let sizes = Argument::Ints(shape.iter().map(|&size| size as i64).collect());
                self.node = name.to_string();
                let value =
                    self.emit("ones", &[("size", sizes)], dtype, shape).map_err(|Fault(what)| self.error(what))?;
                names.bound.insert(name.to_string(), Bound::Tensor(value));
                continue;
            }
            let value = self.define(name, dtype, shape).map_err(|Fault(what)| self.error(what))?;
            self.origins[value] = Origin::Sample;
            let is_batch = self.model.values[value].shape.first() == Some(&self.batch.size);
            self.batch.axes[value] = (is_batch && has_batch).then(|| Axis::of(0));
            self.model.inputs.push(value);
            names.bound.insert(name.to_string(), Bound::Tensor(value));
        }
        self.nodes(&graph.node, &mut names, DEEPEST).map_err(|Fault(what)| self.error(what))?;
        for output in &graph.output {
            let name = output.name.as_deref().unwrap_or("");
            match self.read(name, &mut names) {
                Ok(Some(Bound::Tensor(value))) => self.model.outputs.push(value),
                Ok(Some(Bound::Sequence(values))) => self.model.outputs.extend(values),
                Ok(Some(Bound::Unknown)) => return Err(self.lacks()),
                Ok(None) | Err(_) => {
                    return Err(self.error(format!("nothing makes the output `{name}`; export the model again")));
                }
            }
        }
        Ok(())
    }

    /// Returns an error that lists all operations that are not translated.
    fn lacks(&self) -> Error {
        let mut kinds: BTreeMap<&str, (usize, &Lacking)> = BTreeMap::new();
        for lacking in &self.lacking {
            kinds.entry(&lacking.op).or_insert((0, lacking)).0 += 1;
        }
        let lines = kinds.values().map(|(count, lacking)| {
            format!("\n    {}, {count} times, first in `{}`: {}", lacking.op, lacking.node, lacking.reason)
        });
        let list: String = lines.collect();
        self.error(format!(
            "has operations that are not read:{list}\n  export the model as `.pt2` instead: \
             `torch.export.save(torch.export.export(model.train(), (torch.randn(2, 3, 224, 224),)), \"model.pt2\")`"
        ))
    }

    fn names(&self, graph: &'f GraphProto) -> Names<'f> {
        let mut names = Names::default();
        for tensor in &graph.initializer {
            names.stored.insert(tensor.name.as_deref().unwrap_or(""), tensor);
        }
        for info in graph.value_info.iter().chain(&graph.output) {
            if let (Some(name), Some(described)) = (info.name.as_deref(), tensor::described(info.r#type.as_ref())) {
                names.noted.insert(name, described);
            }
        }
        names
    }

    /// Returns the sizes of dimensions. Refuses names that no size is known for.
    fn shape(&self, dims: &[Dim]) -> Result<Vec<u64>> {
        let size = |dim: &Dim| match dim {
            Dim::Size(size) => Ok(*size),
            Dim::Named(name) => match self.sizes.get(name) {
                Some(size) => Ok(*size),
                None => refuse(format!("its size `{name}` is open, and no value is given for it; give one")),
            },
        };
        dims.iter().map(size).collect()
    }

    fn nodes(&mut self, nodes: &'f [NodeProto], names: &mut Names<'f>, depth: u32) -> Result {
        for node in nodes {
            self.steps += 1;
            if self.model.nodes.len() >= MOST_NODES || self.steps >= MOST_NODES {
                return refuse(format!("has more than {MOST_NODES} operations; export a part of it"));
            }
            self.visit(node, names, depth)?;
        }
        Ok(())
    }

    /// Translates a node. What it returns stays unknown if that is not possible.
    fn visit(&mut self, node: &'f NodeProto, names: &mut Names<'f>, depth: u32) -> Result {
        let kind = node.op_type.as_deref().unwrap_or("");
        let domain = node.domain.as_deref().unwrap_or("");
        if depth == DEEPEST || !node.metadata_props.is_empty() {
            self.scope = self.scopes.of(node);
        }
        self.node = node.name.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| kind.to_string());
        if let Some((tensor, copy)) = copied(node).and_then(|(name, copy)| Some((*names.stored.get(name)?, copy))) {
            let value = self.stored(copy, tensor)?;
            names.bound.insert(copy.to_string(), Bound::Tensor(value));
            return Ok(());
        }
        let mut inputs = Vec::with_capacity(node.input.len());
        for (index, name) in node.input.iter().enumerate() {
            let operand = self.roles.operand(node, index).and_then(|key| Some((key, *names.stored.get(&name[..])?)));
            inputs.push(match operand.filter(|(_, tensor)| self.is_uniform(tensor)) {
                Some((key, tensor)) => Some(self.merged(key, tensor, names)?),
                None => self.read(name, names)?,
            });
        }
        if inputs.iter().any(|input| matches!(input, Some(Bound::Unknown))) {
            self.leave(node, names, None);
            return Ok(());
        }
        if let Some(&function) = self.functions.get(&(domain, kind)) {
            return self.inline(function, node, inputs, names, depth);
        }
        let outer = std::mem::take(&mut names.attributes);
        let call = Call { node, kind, inputs, attributes: &outer };
        let result = match (domain, kind) {
            ("", "If") => self.branch(&call, names, depth),
            ("" | "ai.onnx" | "com.microsoft", _) => self.call(&call),
            _ => refuse("it is an operation of another library"),
        };
        names.attributes = outer;
        match result {
            Ok(outputs) => {
                for (name, bound) in node.output.iter().zip(outputs) {
                    names.bound.insert(name.clone(), bound);
                }
            }
            Err(Fault(reason)) => {
                let op = if domain.is_empty() { kind.to_string() } else { format!("{domain}::{kind}") };
                self.lacking.push(Lacking { op, node: self.node.clone(), reason });
                self.leave(node, names, Some(kind));
            }
        }
        Ok(())
    }

    /// Binds what a node returns that is not translated: to a value of the noted shape, under the name of the operation in ONNX.
    fn leave(&mut self, node: &'f NodeProto, names: &mut Names<'f>, kind: Option<&str>) {
        let mut arguments = Vec::new();
        for name in &node.input {
            if let Ok(Some(Bound::Tensor(value))) = self.read(name, names) {
                arguments.push((format!("input{}", arguments.len()), Argument::Tensor(value)));
            }
        }
        for name in node.output.iter().filter(|name| !name.is_empty()) {
            // A shape for another batch is of no use.
            let noted = names.noted.get(&name[..]).filter(|_| !self.is_widened && kind.is_some()).cloned();
            let known = noted.and_then(|(dtype, dims)| Some((dtype, self.shape(&dims).ok()?)));
            let bound = match (known, kind) {
                (Some((dtype, shape)), Some(kind)) => {
                    let op = format!("onnx::{kind}");
                    let made = self.emit_all(&op, arguments.clone(), &[(dtype, shape)]);
                    made.ok().and_then(|made| made.first().copied()).map_or(Bound::Unknown, Bound::Tensor)
                }
                _ => Bound::Unknown,
            };
            names.bound.insert(name.clone(), bound);
        }
    }

    /// Translates the body of a function in the place of its call.
    fn inline(
        &mut self,
        function: &'f FunctionProto,
        node: &'f NodeProto,
        inputs: Vec<Option<Bound>>,
        names: &mut Names<'f>,
        depth: u32,
    ) -> Result {
        let Some(depth) = depth.checked_sub(1) else { return refuse("calls functions too deeply") };
        let mut inside = Names::default();
        for (name, input) in function.input.iter().zip(inputs) {
            if let Some(input) = input {
                inside.bound.insert(name.clone(), input);
            }
        }
        let given =
            node.attribute.iter().filter(|attribute| attribute.ref_attr_name.as_deref().unwrap_or("").is_empty());
        for attribute in function.attribute_proto.iter().chain(given) {
            inside.attributes.insert(attribute.name.clone().unwrap_or_default(), attribute);
        }
        for attribute in &node.attribute {
            if let Some(outer) = attribute.ref_attr_name.as_ref().and_then(|name| names.attributes.get(name)) {
                inside.attributes.insert(attribute.name.clone().unwrap_or_default(), outer);
            }
        }
        self.nodes(&function.node, &mut inside, depth)?;
        for (outer, inner) in node.output.iter().zip(&function.output) {
            let bound = self.read(inner, &mut inside)?.unwrap_or(Bound::Unknown);
            names.bound.insert(outer.clone(), bound);
        }
        Ok(())
    }

    /// Translates the branch of an `If` whose condition is known.
    fn branch(&mut self, call: &Call<'f, '_>, names: &mut Names<'f>, depth: u32) -> Result<Vec<Bound>> {
        let Some(depth) = depth.checked_sub(1) else { return refuse("its branches are nested too deeply") };
        let condition = self.numbers(call.tensor(0)?);
        let Some(condition) = condition.and_then(|numbers| numbers.first().copied()) else {
            return refuse("which branch runs depends on data; export the model without control flow");
        };
        let Some(graph) = call.graph(if condition != 0.0 { "then_branch" } else { "else_branch" }) else {
            return refuse("it has no branch");
        };
        let inside = self.names(graph);
        names.stored.extend(inside.stored);
        names.noted.extend(inside.noted);
        self.nodes(&graph.node, names, depth)?;
        let outputs = graph.output.iter().map(|output| {
            let bound = self.read(output.name.as_deref().unwrap_or(""), names)?;
            Ok(bound.unwrap_or(Bound::Unknown))
        });
        outputs.collect()
    }

    /// Returns a parameter that an exporter has merged with another one, since both have one number everywhere.
    fn merged(&mut self, key: &str, tensor: &'f TensorProto, names: &mut Names<'f>) -> Result<Bound> {
        if let Some(bound) = names.bound.get(key) {
            return Ok(bound.clone());
        }
        let bound = Bound::Tensor(self.stored(key, tensor)?);
        names.bound.insert(key.to_string(), bound.clone());
        Ok(bound)
    }

    /// Returns what a name stands for. `None` for the empty name of a missing argument.
    fn read(&mut self, name: &str, names: &mut Names<'f>) -> Result<Option<Bound>> {
        if name.is_empty() {
            return Ok(None);
        }
        if let Some(bound) = names.bound.get(name) {
            return Ok(Some(bound.clone()));
        }
        let Some(tensor) = names.stored.get(name).copied() else {
            return refuse(format!("the value `{name}` is read before it is made; export the model again"));
        };
        let value = self.stored(name, tensor)?;
        names.bound.insert(name.to_string(), Bound::Tensor(value));
        Ok(Some(Bound::Tensor(value)))
    }

    /// Adds integers as a constant.
    pub(super) fn constant(&mut self, numbers: &[i64], shape: &[u64]) -> Result<ValueId> {
        let value = self.define(&self.node.clone(), Dtype::I64, shape.to_vec())?;
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let key = self.model.values[value].name.clone();
        self.own(key, value, StateKind::Constant, Some(Data(bytes.into())));
        Ok(value)
    }

    /// Adds a value. Refuses one of 2^62 bytes or more.
    pub(super) fn define(&mut self, name: &str, dtype: Dtype, shape: Vec<u64>) -> Result<ValueId> {
        if tensor::bytes(&shape, dtype).is_none() {
            return refuse(format!("the tensor `{name}` has 2^62 bytes or more; choose a smaller batch"));
        }
        let count = self.taken.entry(name.to_string()).or_insert(0);
        *count += 1;
        let name = if *count > 1 { format!("{name}.{count}") } else { name.to_string() };
        self.model.values.push(Value { name, dtype, shape, strides: None });
        self.origins.push(Origin::Constant(None));
        self.batch.axes.push(None);
        Ok(self.model.values.len() - 1)
    }

    /// Adds an operation that returns one tensor.
    pub(super) fn emit(
        &mut self,
        op: &str,
        arguments: &[(&str, Argument)],
        dtype: Dtype,
        shape: Vec<u64>,
    ) -> Result<ValueId> {
        let arguments = arguments.iter().map(|(name, argument)| (name.to_string(), argument.clone())).collect();
        let made = self.emit_all(op, arguments, &[(dtype, shape)])?;
        Ok(made[0])
    }

    /// Adds an operation.
    pub(super) fn emit_all(
        &mut self,
        op: &str,
        arguments: Vec<(String, Argument)>,
        outputs: &[(Dtype, Vec<u64>)],
    ) -> Result<Vec<ValueId>> {
        let name = self.node.clone();
        let mut made = Vec::with_capacity(outputs.len());
        for (dtype, shape) in outputs {
            made.push(self.define(&name, *dtype, shape.clone())?);
        }
        let node = Node {
            name: made.first().map_or(name, |&first| self.model.values[first].name.clone()),
            op: op.to_string(),
            overload: String::from("default"),
            arguments,
            outputs: made.clone(),
            modules: self.scope.modules.clone(),
            has_gradient: true,
        };
        fold::trace(&self.model, &node, &mut self.origins, &mut self.budget);
        for &output in &made {
            self.makers.insert(output, self.model.nodes.len());
        }
        self.model.nodes.push(node);
        self.batch.visit(&self.model, self.model.nodes.len() - 1);
        Ok(made)
    }

    /// Returns the numbers of a constant. `None` if it is none, or they are not known.
    pub(super) fn numbers(&self, value: ValueId) -> Option<Vec<f64>> {
        self.origins[value].numbers().map(fold::Tensor::numbers)
    }

    /// Returns the only number of a constant of one element, as an argument. `None` if it has more dimensions than `rank`.
    pub(super) fn scalar(&self, value: ValueId, rank: usize) -> Option<Argument> {
        let known = &self.model.values[value];
        if known.elements() != Some(1) || known.shape.len() > rank {
            return None;
        }
        let number = *self.numbers(value)?.first()?;
        Some(match known.dtype {
            Dtype::Bool => Argument::Bool(number != 0.0),
            dtype if dtype.is_float() => Argument::Float(call::shortest(number, dtype)),
            _ => Argument::Int(number as i64),
        })
    }

    /// Returns the shape of a value.
    pub(super) fn dims(&self, value: ValueId) -> Vec<u64> {
        self.model.values[value].shape.clone()
    }

    pub(super) fn dtype(&self, value: ValueId) -> Dtype {
        self.model.values[value].dtype
    }

    pub(super) fn rank(&self, value: ValueId) -> usize {
        self.model.values[value].shape.len()
    }

    /// Returns the state that a value is. `None` if it is computed.
    pub(super) fn state(&self, value: ValueId) -> Option<&State> {
        self.owners.get(&value).and_then(|&index| self.model.state.get(index))
    }

    /// True if a value is a parameter of the model, or computed from parameters.
    pub(super) fn is_parameter(&self, value: ValueId) -> bool {
        matches!(self.origins[value], Origin::Parameters)
    }

    /// Returns the node that makes a value.
    pub(super) fn maker(&self, value: ValueId) -> Option<&Node> {
        self.makers.get(&value).and_then(|&index| self.model.nodes.get(index))
    }
}

/// Returns the first dimension of the first input.
pub(super) fn graph_batch(graph: &GraphProto) -> Option<Dim> {
    let stored = |name: &str| graph.initializer.iter().any(|tensor| tensor.name.as_deref() == Some(name));
    let first = graph.input.iter().find(|input| !stored(input.name.as_deref().unwrap_or("")))?;
    tensor::described(first.r#type.as_ref())?.1.into_iter().next()
}
