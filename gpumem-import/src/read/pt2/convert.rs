//! From the document to a [`Model`]: sizes are evaluated, subgraphs are inlined, operations on sizes go.

use super::archive::{Archive, damaged};
use super::expression::{Symbols, evaluate};
use super::schema::{self, Arg, Document, Graph, InputSpec, OptionalTensor, OutputSpec, SymInt, SymIntArg, TensorMeta};
use crate::error::Error;
use crate::model::{Argument, Data, Dtype, Model, Module, Node, State, StateKind, Value, ValueId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::rc::Rc;

/// The deepest nesting of subgraphs.
const DEEPEST: u32 = 16;
/// The most operations of a program, subgraphs included.
const MOST_NODES: usize = 1_000_000;

/// A tensor of the file: where its memory is, and its elements if they were read.
pub(super) struct Stored {
    key: String,
    /// The record with its elements. Tied tensors have one.
    record: Option<String>,
    data: Option<Data>,
}

/// Reads the elements of buffers and constants, and the records of all tensors.
pub(super) fn stored(archive: &mut Archive, document: &Document, path: &Path) -> Result<Vec<Stored>, Error> {
    let configs = [("weights", archive.config("weights")?), ("constants", archive.config("constants")?)];
    let tensors = &document.graph_module.graph.tensor_values;
    let mut all = Vec::new();
    for spec in &document.graph_module.signature.input_specs {
        let (key, name, is_parameter) = match spec {
            InputSpec::Parameter { arg, parameter_name } => (parameter_name, &arg.name, true),
            InputSpec::Buffer { arg, buffer_name, .. } => (buffer_name, &arg.name, false),
            InputSpec::TensorConstant { arg, tensor_constant_name } => (tensor_constant_name, &arg.name, false),
            _ => continue,
        };
        let entry = configs.iter().find_map(|(folder, config)| Some((*folder, config.config.get(key)?)));
        let data = match (entry, is_parameter) {
            (Some((folder, entry)), false) => {
                let meta = tensors.get(name).ok_or_else(|| damaged(path, &format!("`{name}` has no shape")))?;
                match value(name, meta, &Symbols::new()).ok().and_then(|value| bytes(&value)) {
                    Some(bytes) => archive.tensor(folder, entry, bytes)?,
                    None => None,
                }
            }
            _ => None,
        };
        let record = entry.map(|(folder, entry)| format!("{folder}/{}", entry.path_name));
        all.push(Stored { key: key.clone(), record, data });
    }
    Ok(all)
}

fn bytes(value: &Value) -> Option<u64> {
    value.elements()?.checked_mul(value.dtype.bytes())
}

/// Converts a document.
pub(super) fn model(document: &Document, stored: &[Stored], symbols: &Symbols, path: &Path) -> Result<Model, Error> {
    let version = document.schema_version;
    let torch = document.torch_version.as_ref().map(|version| format!(", PyTorch {version}")).unwrap_or_default();
    let mut converter = Converter {
        symbols,
        path,
        stacks: HashMap::new(),
        model: Model { source: format!("torch.export {}.{}{torch}", version.major, version.minor), ..Model::default() },
    };
    let graph = &document.graph_module.graph;
    let mut scope = Scope { graph, names: HashMap::new() };
    let records: HashMap<&str, &Stored> = stored.iter().map(|stored| (&stored.key[..], stored)).collect();
    for spec in &document.graph_module.signature.input_specs {
        converter.input(spec, &mut scope, &records)?;
    }
    converter.nodes(&mut scope, true, DEEPEST)?;
    for spec in &document.graph_module.signature.output_specs {
        match spec {
            OutputSpec::UserOutput { arg } => {
                let values = converter.argument(arg, &scope)?;
                converter.model.outputs.extend(tensors(&values));
            }
            OutputSpec::LossOutput { arg } => {
                let value = converter.value(&arg.name, &scope)?;
                converter.model.outputs.push(value);
            }
            _ => {}
        }
    }
    let mut model = converter.model;
    tie(&mut model, &records);
    let first = model.inputs.first().and_then(|&input| model.values[input].shape.first().copied());
    model.batch = first;
    Ok(model)
}

fn tensors(argument: &Argument) -> Vec<ValueId> {
    match argument {
        Argument::Tensor(value) => vec![*value],
        Argument::Tensors(values) => values.iter().copied().flatten().collect(),
        _ => Vec::new(),
    }
}

/// Finds the tensors that share memory. In a file with its tensors these are the tensors of one record.
///
/// Without the records, two things remain. A module that reads another module's parameter in place of its own, which nothing reads, has it
/// tied. And a parameter that nothing reads is tied to those of its shape that are tied already, as a table is that several modules share.
fn tie(model: &mut Model, records: &HashMap<&str, &Stored>) {
    let mut owners = HashMap::new();
    for index in 0..model.state.len() {
        if let Some(record) = records.get(&model.state[index].key[..]).and_then(|stored| stored.record.as_ref()) {
            let owner = *owners.entry(record).or_insert(index);
            model.state[index].tied_to = (owner != index).then_some(owner);
        }
    }
    let readers = readers(model);
    let is_unread = |index: usize, model: &Model| {
        let state = &model.state[index];
        !readers.contains_key(&index) && state.tied_to.is_none() && matches!(state.kind, StateKind::Parameter { .. })
    };
    let unread: Vec<usize> = (0..model.state.len()).filter(|&index| is_unread(index, model)).collect();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for &index in &unread {
        let module = model.state[index].key.rsplit_once('.').map_or("", |(module, _)| module);
        let mut read = readers.iter().filter(|(other, paths)| {
            let is_free = model.state[**other].tied_to.is_none();
            is_free && paths.contains(module) && is_alike(model, index, **other)
        });
        let (Some((&other, _)), None) = (read.next(), read.next()) else { continue };
        match groups.iter_mut().find(|group| group.contains(&other)) {
            Some(group) => group.push(index),
            None => groups.push(vec![other, index]),
        }
    }
    for &index in &unread {
        if groups.iter().any(|group| group.contains(&index)) {
            continue;
        }
        // Of several, the one whose name ends like it.
        let nearness = |group: &Vec<usize>| {
            let shared = group.iter().map(|&other| shared_names(&model.state[index].key, &model.state[other].key));
            if is_alike(model, index, group[0]) { shared.max().unwrap_or(0) } else { 0 }
        };
        let most = groups.iter().map(nearness).max().unwrap_or(0);
        let mut nearest = groups.iter_mut().filter(|group| most > 0 && nearness(group) == most);
        if let (Some(group), None) = (nearest.next(), nearest.next()) {
            group.push(index);
        }
    }
    for group in groups {
        // The first key owns the tensor.
        let owner = group.iter().copied().min().unwrap_or_default();
        for index in group.into_iter().filter(|&index| index != owner) {
            model.state[index].tied_to = Some(owner);
        }
    }
}

/// Returns the number of names with which both keys end.
fn shared_names(key: &str, other: &str) -> usize {
    key.rsplit('.').zip(other.rsplit('.')).take_while(|(a, b)| a == b).count()
}

/// True if two tensors have one shape and one type.
fn is_alike(model: &Model, index: usize, other: usize) -> bool {
    let [a, b] = [index, other].map(|index| &model.values[model.state[index].value]);
    index != other && a.shape == b.shape && a.dtype == b.dtype
}

/// Returns the paths of the modules that read each tensor of the model.
fn readers(model: &Model) -> BTreeMap<usize, HashSet<String>> {
    let owners: HashMap<ValueId, usize> =
        model.state.iter().enumerate().map(|(index, state)| (state.value, index)).collect();
    let mut readers: BTreeMap<usize, HashSet<String>> = BTreeMap::new();
    for node in &model.nodes {
        for index in node.tensors().filter_map(|value| owners.get(&value)) {
            readers.entry(*index).or_default().insert(node.path().to_string());
        }
    }
    readers
}

/// A graph and the values that its names stand for.
struct Scope<'g> {
    graph: &'g Graph,
    names: HashMap<String, ValueId>,
}

struct Converter<'d> {
    symbols: &'d Symbols,
    path: &'d Path,
    /// Module stacks by their text.
    stacks: HashMap<String, Rc<[Module]>>,
    model: Model,
}

impl Converter<'_> {
    fn damaged(&self, what: &str) -> Error {
        damaged(self.path, what)
    }

    /// Adds a tensor of a graph, under its name there.
    fn define(&mut self, name: &str, scope: &mut Scope<'_>) -> Result<ValueId, Error> {
        let Some(meta) = scope.graph.tensor_values.get(name) else {
            return Err(self.damaged(&format!("the tensor `{name}` has no shape")));
        };
        let value = value(name, meta, self.symbols).map_err(|what| Error::new(self.path, what))?;
        self.model.values.push(value);
        scope.names.insert(name.to_string(), self.model.values.len() - 1);
        Ok(self.model.values.len() - 1)
    }

    fn value(&self, name: &str, scope: &Scope<'_>) -> Result<ValueId, Error> {
        let found = scope.names.get(name).copied();
        found.ok_or_else(|| self.damaged(&format!("the tensor `{name}` is read before it is written")))
    }

    fn input(
        &mut self,
        spec: &InputSpec,
        scope: &mut Scope<'_>,
        records: &HashMap<&str, &Stored>,
    ) -> Result<(), Error> {
        let (name, key, kind) = match spec {
            InputSpec::UserInput { arg: Arg::AsTensor(tensor) } => {
                let value = self.define(&tensor.name, scope)?;
                self.model.inputs.push(value);
                return Ok(());
            }
            InputSpec::Parameter { arg, parameter_name } => {
                let trains = scope.graph.tensor_values.get(&arg.name).is_some_and(|tensor| tensor.requires_grad);
                (&arg.name, parameter_name, StateKind::Parameter { trains })
            }
            InputSpec::Buffer { arg, buffer_name, persistent } => {
                (&arg.name, buffer_name, StateKind::Buffer { is_saved: *persistent })
            }
            InputSpec::TensorConstant { arg, tensor_constant_name } => {
                (&arg.name, tensor_constant_name, StateKind::Constant)
            }
            // Numbers and texts: the operations have them as arguments.
            _ => return Ok(()),
        };
        let value = self.define(name, scope)?;
        let data = records.get(&key[..]).and_then(|stored| stored.data.clone());
        self.model.state.push(State { key: key.clone(), value, kind, tied_to: None, data });
        Ok(())
    }

    fn nodes(&mut self, scope: &mut Scope<'_>, has_gradient: bool, depth: u32) -> Result<(), Error> {
        for node in &scope.graph.nodes {
            if self.model.nodes.len() >= MOST_NODES {
                return Err(Error::new(
                    self.path,
                    format!("has more than {MOST_NODES} operations; export a part of it"),
                ));
            }
            if let Some(name) = node.target.strip_prefix("torch.ops.higher_order.") {
                self.higher_order(name, node, scope, has_gradient, depth)?;
                continue;
            }
            let Some(full) = node.target.strip_prefix("torch.ops.") else { continue };
            let (op, overload) = full.rsplit_once('.').unwrap_or((full, "default"));
            let op = op.strip_prefix("aten.").unwrap_or(op);
            let mut outputs = Vec::new();
            for output in &node.outputs {
                match output {
                    Arg::AsTensor(tensor) => outputs.push(self.define(&tensor.name, scope)?),
                    Arg::AsTensors(tensors) => {
                        for tensor in tensors {
                            outputs.push(self.define(&tensor.name, scope)?);
                        }
                    }
                    _ => {}
                }
            }
            // An operation on sizes: they are known.
            if outputs.is_empty() {
                continue;
            }
            let mut arguments = Vec::with_capacity(node.inputs.len());
            for input in &node.inputs {
                arguments.push((input.name.clone(), self.argument(&input.arg, scope)?));
            }
            let name = node.name.clone().unwrap_or_else(|| self.model.values[outputs[0]].name.clone());
            let modules = self.modules(node);
            let (op, overload) = (op.to_string(), overload.to_string());
            self.model.nodes.push(Node { name, op, overload, arguments, outputs, modules, has_gradient });
        }
        Ok(())
    }

    /// Inlines the graph of `wrap_with_set_grad_enabled(flag, graph, arguments..)`.
    fn higher_order(
        &mut self,
        name: &str,
        node: &schema::Node,
        scope: &mut Scope<'_>,
        has_gradient: bool,
        depth: u32,
    ) -> Result<(), Error> {
        let refuse = |what: &str| {
            Error::new(
                self.path,
                format!(
                    "runs `{name}`{what}; export the model with `strict=False`, or without control flow that depends on data"
                ),
            )
        };
        let (flag, rest) = match (name, &node.inputs[..]) {
            ("wrap_with_set_grad_enabled", [flag, rest @ ..]) => match flag.arg {
                Arg::AsBool(flag) => (flag, rest),
                _ => return Err(refuse(" without a flag")),
            },
            ("wrap_with_autocast", [_, _, _, _, rest @ ..]) => (true, rest),
            _ => return Err(refuse("")),
        };
        let [schema::Input { arg: Arg::AsGraph(inner), .. }, arguments @ ..] = rest else {
            return Err(refuse(" without a graph"));
        };
        let Some(depth) = depth.checked_sub(1) else {
            return Err(refuse(&format!(" more than {DEEPEST} times inside of itself")));
        };
        let mut names = HashMap::new();
        for (input, argument) in inner.graph.inputs.iter().zip(arguments) {
            if let (Arg::AsTensor(input), Arg::AsTensor(argument)) = (input, &argument.arg) {
                names.insert(input.name.clone(), self.value(&argument.name, scope)?);
            }
        }
        let mut inside = Scope { graph: &inner.graph, names };
        self.nodes(&mut inside, has_gradient && flag, depth)?;
        let outer = node.outputs.iter().flat_map(|output| match output {
            Arg::AsTensor(tensor) => std::slice::from_ref(tensor),
            Arg::AsTensors(tensors) => &tensors[..],
            _ => &[],
        });
        for (outer, output) in outer.zip(&inner.graph.outputs) {
            if let Arg::AsTensor(tensor) = output {
                let value = self.value(&tensor.name, &inside)?;
                scope.names.insert(outer.name.clone(), value);
            }
        }
        Ok(())
    }

    /// Returns the modules in which an operation runs: `call,path,class` for each, separated by semicolons.
    fn modules(&mut self, node: &schema::Node) -> Rc<[Module]> {
        let text = node.metadata.get("nn_module_stack").map_or("", |text| text);
        if let Some(modules) = self.stacks.get(text) {
            return modules.clone();
        }
        let module = |entry: &str| {
            let mut parts = entry.splitn(3, ',').map(String::from);
            Some(Module { call: parts.next()?, path: parts.next()?, class: parts.next()? })
        };
        let modules: Rc<[Module]> = text.split(';').filter_map(module).collect();
        self.stacks.insert(text.to_string(), modules.clone());
        modules
    }

    fn argument(&self, argument: &Arg, scope: &Scope<'_>) -> Result<Argument, Error> {
        let tensor = |name: &str| self.value(name, scope);
        Ok(match argument {
            Arg::AsNone(_) => Argument::None,
            Arg::AsTensor(named) => Argument::Tensor(tensor(&named.name)?),
            Arg::AsTensors(all) => {
                let all: Result<Vec<_>, Error> = all.iter().map(|named| tensor(&named.name).map(Some)).collect();
                Argument::Tensors(all?)
            }
            Arg::AsOptionalTensors(all) => {
                let one = |value: &OptionalTensor| match value {
                    OptionalTensor::AsTensor(named) => tensor(&named.name).map(Some),
                    OptionalTensor::AsNone(_) => Ok(None),
                };
                Argument::Tensors(all.iter().map(one).collect::<Result<_, _>>()?)
            }
            Arg::AsInt(value) => Argument::Int(*value),
            Arg::AsInts(values) => Argument::Ints(values.clone()),
            Arg::AsSymInt(value) => Argument::Int(self.integer(value, scope)?),
            Arg::AsSymInts(values) => {
                Argument::Ints(values.iter().map(|value| self.integer(value, scope)).collect::<Result<_, _>>()?)
            }
            Arg::AsFloat(value) => Argument::Float(value.value()),
            Arg::AsFloats(values) => Argument::Floats(values.iter().map(schema::Number::value).collect()),
            Arg::AsBool(value) => Argument::Bool(*value),
            Arg::AsBools(values) => Argument::Bools(values.clone()),
            Arg::AsString(value) => Argument::Text(value.clone()),
            Arg::AsScalarType(code) => Argument::Dtype(dtype(*code)),
            _ => Argument::Other,
        })
    }

    fn integer(&self, value: &SymIntArg, scope: &Scope<'_>) -> Result<i64, Error> {
        match value {
            SymIntArg::AsInt(value) => Ok(*value),
            SymIntArg::AsName(name) => {
                let size = scope.graph.sym_int_values.get(name);
                let value = size.and_then(|size| integer(size, self.symbols));
                value.ok_or_else(|| Error::new(self.path, unknown_size(name)))
            }
        }
    }
}

fn integer(size: &SymInt, symbols: &Symbols) -> Option<i64> {
    match size {
        SymInt::AsInt(value) => Some(*value),
        SymInt::AsExpr(expression) => evaluate(&expression.expr_str, symbols),
    }
}

fn unknown_size(name: &str) -> String {
    format!(
        "the size `{name}` depends on data, and memory for it is not known before a run; export the model with fixed sizes"
    )
}

/// Converts the description of a tensor. The error says what is wrong with it.
fn value(name: &str, meta: &TensorMeta, symbols: &Symbols) -> Result<Value, String> {
    let size = |size: &SymInt| integer(size, symbols).and_then(|size| u64::try_from(size).ok());
    let shape: Option<Vec<u64>> = meta.sizes.iter().map(size).collect();
    let shape = shape.ok_or_else(|| unknown_size(name))?;
    let strides = meta.strides.as_ref().and_then(|strides| strides.iter().map(size).collect());
    let value = Value { name: name.to_string(), dtype: dtype(meta.dtype), shape, strides };
    match bytes(&value) {
        Some(_) => Ok(value),
        None => Err(format!("the tensor `{name}` has 2^63 bytes or more; choose a smaller batch")),
    }
}

/// Returns the type of this number in `torch/_export/serde/schema.py`.
fn dtype(code: u64) -> Dtype {
    match code {
        1 => Dtype::U8,
        2 => Dtype::I8,
        3 => Dtype::I16,
        4 => Dtype::I32,
        5 => Dtype::I64,
        6 => Dtype::F16,
        7 => Dtype::F32,
        8 => Dtype::F64,
        // Complex numbers of two halves, singles or doubles.
        9 => Dtype::Other(4),
        10 => Dtype::Other(8),
        11 => Dtype::Other(16),
        12 => Dtype::Bool,
        13 => Dtype::Bf16,
        28 => Dtype::Other(2),
        _ => Dtype::Other(1),
    }
}
