//! The parts of `models/model.json` that are read. Keys that are not named here are ignored.

use serde::Deserialize;
use std::collections::HashMap;

/// The whole document.
#[derive(Deserialize)]
pub(super) struct Document {
    pub graph_module: GraphModule,
    pub schema_version: Version,
    #[serde(default)]
    pub torch_version: Option<String>,
    #[serde(default)]
    pub range_constraints: HashMap<String, Range>,
}

#[derive(Clone, Copy, Deserialize)]
pub(super) struct Version {
    pub major: u64,
    pub minor: u64,
}

/// The values that a symbol may have.
#[derive(Clone, Copy, Deserialize)]
pub(super) struct Range {
    #[serde(default)]
    pub min_val: Option<i64>,
    #[serde(default)]
    pub max_val: Option<i64>,
}

#[derive(Deserialize)]
pub(super) struct GraphModule {
    pub graph: Graph,
    pub signature: Signature,
}

#[derive(Deserialize)]
pub(super) struct Graph {
    #[serde(default)]
    pub inputs: Vec<Arg>,
    #[serde(default)]
    pub outputs: Vec<Arg>,
    #[serde(default)]
    pub nodes: Vec<Node>,
    #[serde(default)]
    pub tensor_values: HashMap<String, TensorMeta>,
    #[serde(default)]
    pub sym_int_values: HashMap<String, SymInt>,
}

#[derive(Deserialize)]
pub(super) struct TensorMeta {
    pub dtype: u64,
    pub sizes: Vec<SymInt>,
    #[serde(default)]
    pub strides: Option<Vec<SymInt>>,
    #[serde(default)]
    pub requires_grad: bool,
}

/// An integer that is known, or an expression over symbols.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SymInt {
    AsInt(i64),
    AsExpr(Expression),
}

#[derive(Clone, Deserialize)]
pub(super) struct Expression {
    pub expr_str: String,
    #[serde(default)]
    pub hint: Option<Hint>,
}

/// The value of an expression in the example with which the model was exported.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::enum_variant_names, reason = "they are the names of the format")]
pub(super) enum Hint {
    AsInt(i64),
    AsBool(serde::de::IgnoredAny),
    AsFloat(serde::de::IgnoredAny),
}

/// A symbolic integer as an argument: known, or named.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SymIntArg {
    AsInt(i64),
    AsName(String),
}

#[derive(Deserialize)]
pub(super) struct Node {
    pub target: String,
    #[serde(default)]
    pub inputs: Vec<Input>,
    #[serde(default)]
    pub outputs: Vec<Arg>,
    #[serde(default)]
    pub metadata: HashMap<String, String>,
    #[serde(default)]
    pub name: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Input {
    #[serde(default)]
    pub name: String,
    pub arg: Arg,
}

#[derive(Deserialize)]
pub(super) struct Named {
    pub name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OptionalTensor {
    AsTensor(Named),
    AsNone(serde::de::IgnoredAny),
}

#[derive(Deserialize)]
pub(super) struct Subgraph {
    pub graph: Box<Graph>,
}

/// An argument: a dictionary of one key, which is its kind.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::enum_variant_names, reason = "they are the names of the format")]
pub(super) enum Arg {
    AsNone(serde::de::IgnoredAny),
    AsTensor(Named),
    AsTensors(Vec<Named>),
    AsOptionalTensors(Vec<OptionalTensor>),
    AsInt(i64),
    AsInts(Vec<i64>),
    AsSymInt(SymIntArg),
    AsSymInts(Vec<SymIntArg>),
    AsFloat(Number),
    AsFloats(Vec<Number>),
    AsBool(bool),
    AsBools(Vec<bool>),
    AsString(String),
    AsScalarType(u64),
    AsGraph(Subgraph),
    AsSymBool(serde::de::IgnoredAny),
    AsSymFloat(serde::de::IgnoredAny),
    AsDevice(serde::de::IgnoredAny),
    AsLayout(serde::de::IgnoredAny),
    AsMemoryFormat(serde::de::IgnoredAny),
    AsStrings(serde::de::IgnoredAny),
    AsOperator(serde::de::IgnoredAny),
    AsCustomObj(serde::de::IgnoredAny),
    AsComplex(serde::de::IgnoredAny),
    AsSymFloats(serde::de::IgnoredAny),
    AsSymBools(serde::de::IgnoredAny),
    AsNestedTensors(serde::de::IgnoredAny),
    AsIntLists(serde::de::IgnoredAny),
    AsStringToArgument(serde::de::IgnoredAny),
}

/// A number. Infinities and NaN are texts in JSON.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Number {
    Float(f64),
    Text(String),
}

impl Number {
    pub(super) fn value(&self) -> f64 {
        match self {
            Number::Float(value) => *value,
            Number::Text(text) => text.parse().unwrap_or(f64::NAN),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Signature {
    pub input_specs: Vec<InputSpec>,
    pub output_specs: Vec<OutputSpec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum InputSpec {
    UserInput {
        arg: Arg,
    },
    Parameter {
        arg: Named,
        parameter_name: String,
    },
    Buffer {
        arg: Named,
        buffer_name: String,
        #[serde(default = "yes")]
        persistent: bool,
    },
    TensorConstant {
        arg: Named,
        tensor_constant_name: String,
    },
    ConstantInput(serde::de::IgnoredAny),
    CustomObj(serde::de::IgnoredAny),
    Token(serde::de::IgnoredAny),
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OutputSpec {
    UserOutput { arg: Arg },
    LossOutput { arg: Named },
    BufferMutation(serde::de::IgnoredAny),
    GradientToParameter(serde::de::IgnoredAny),
    GradientToUserInput(serde::de::IgnoredAny),
    UserInputMutation(serde::de::IgnoredAny),
    ParameterMutation(serde::de::IgnoredAny),
    Token(serde::de::IgnoredAny),
}

/// `model_weights_config.json` and `model_constants_config.json`.
#[derive(Default, Deserialize)]
pub(super) struct Config {
    #[serde(default)]
    pub config: HashMap<String, Entry>,
}

/// A tensor of the file: the record that holds it.
#[derive(Deserialize)]
pub(super) struct Entry {
    pub path_name: String,
    #[serde(default)]
    pub use_pickle: bool,
    #[serde(default)]
    pub tensor_meta: Option<StoredMeta>,
}

#[derive(Deserialize)]
pub(super) struct StoredMeta {
    #[serde(default)]
    pub sizes: Vec<SymInt>,
    #[serde(default)]
    pub strides: Vec<SymInt>,
    #[serde(default)]
    pub storage_offset: Option<SymInt>,
}
