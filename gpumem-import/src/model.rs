//! A model as a list of ATen operations on tensors of known shapes, whatever file it came from.

use std::fmt;
use std::rc::Rc;

/// The number of a value in [`Model::values`].
pub type ValueId = usize;

/// A model, as a framework exported it, with all sizes known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    /// The format and the framework that wrote the file, such as `torch.export 8.20, PyTorch 2.15.0`.
    pub source: String,
    /// Every tensor: inputs, parameters, buffers, and what nodes return.
    pub values: Vec<Value>,
    /// The operations, in the order in which they run.
    pub nodes: Vec<Node>,
    /// The inputs of `forward` that are tensors.
    pub inputs: Vec<ValueId>,
    /// The tensors that the model owns.
    pub state: Vec<State>,
    /// The values that `forward` returns.
    pub outputs: Vec<ValueId>,
    /// The batch size for which all shapes hold: the first dimension of the first input. `None` if that input has no dimension.
    pub batch: Option<u64>,
    /// True if the file has the batch size as a symbol, so that it can be read for any other.
    pub has_symbolic_batch: bool,
}

/// A tensor, without its data.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Its name in the file.
    pub name: String,
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its dimensions, in elements.
    pub shape: Vec<u64>,
    /// The distance from one element to the next along each dimension, in elements. `None` if the file does not say.
    pub strides: Option<Vec<u64>>,
}

/// A tensor that a model owns: a parameter, a buffer or a constant.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// The key in PyTorch's state dict, such as `layer1.0.conv1.weight`.
    pub key: String,
    /// The tensor.
    pub value: ValueId,
    /// Its role in the model.
    pub kind: StateKind,
    /// The index in [`Model::state`] of the tensor with which it shares its memory, as tied weights do.
    pub tied_to: Option<usize>,
    /// Its elements. `None` for parameters, and if the file has no data or too much of it.
    pub data: Option<Data>,
}

/// The kinds of tensors that a model owns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StateKind {
    /// It is trained, unless it is frozen.
    Parameter {
        /// True if it has a gradient.
        trains: bool,
    },
    /// It is not trained.
    Buffer {
        /// True if it is part of the state dict.
        is_saved: bool,
    },
    /// It was a number in the source of the model.
    Constant,
}

/// The bytes of a tensor: contiguous, row by row, the low byte first.
#[derive(Clone, PartialEq)]
pub struct Data(pub Rc<[u8]>);

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// An ATen operation with its arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name in the file, such as `conv2d_3`.
    pub name: String,
    /// The operation, such as `conv2d` or `add_`.
    pub op: String,
    /// The overload, such as `default` or `Tensor`.
    pub overload: String,
    /// The arguments by their names in ATen. Those that equal their default may be missing.
    pub arguments: Vec<(String, Argument)>,
    /// The tensors that it returns.
    pub outputs: Vec<ValueId>,
    /// The modules in which it runs, from the model inwards.
    pub modules: Rc<[Module]>,
    /// True if gradients flow through it: false inside of `torch.no_grad()`.
    pub has_gradient: bool,
}

/// A module in which an operation runs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Module {
    /// The call: a module that is called twice has two.
    pub call: String,
    /// The path, such as `layer1.0`. The model's own is empty.
    pub path: String,
    /// The class with its package, such as `torch.nn.modules.conv.Conv2d`.
    pub class: String,
}

/// An argument of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// Python's `None`.
    None,
    /// A tensor.
    Tensor(ValueId),
    /// A list of tensors, some of which may be `None`.
    Tensors(Vec<Option<ValueId>>),
    /// An integer.
    Int(i64),
    /// A list of integers.
    Ints(Vec<i64>),
    /// A number.
    Float(f64),
    /// A list of numbers.
    Floats(Vec<f64>),
    /// A truth value.
    Bool(bool),
    /// A list of truth values.
    Bools(Vec<bool>),
    /// A text.
    Text(String),
    /// The type of elements.
    Dtype(Dtype),
    /// A device, a memory layout or another argument on which neither shapes nor memory depend.
    Other,
}

/// The types of elements that PyTorch has.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(missing_docs)]
pub enum Dtype {
    U8,
    I8,
    I16,
    I32,
    I64,
    F16,
    F32,
    F64,
    Bool,
    Bf16,
    /// Any other, with the bytes of an element.
    Other(u64),
}

impl Dtype {
    /// Returns the size of an element, in bytes.
    pub fn bytes(self) -> u64 {
        match self {
            Dtype::U8 | Dtype::I8 | Dtype::Bool => 1,
            Dtype::I16 | Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::I32 | Dtype::F32 => 4,
            Dtype::I64 | Dtype::F64 => 8,
            Dtype::Other(bytes) => bytes,
        }
    }

    /// True for numbers that a gradient can flow through.
    pub fn is_float(self) -> bool {
        matches!(self, Dtype::F16 | Dtype::F32 | Dtype::F64 | Dtype::Bf16)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Dtype::U8 => "u8",
            Dtype::I8 => "i8",
            Dtype::I16 => "i16",
            Dtype::I32 => "i32",
            Dtype::I64 => "i64",
            Dtype::F16 => "f16",
            Dtype::F32 => "f32",
            Dtype::F64 => "f64",
            Dtype::Bool => "bool",
            Dtype::Bf16 => "bf16",
            Dtype::Other(_) => "another type",
        })
    }
}

impl Value {
    /// Returns the number of elements. `None` if it is 2^63 or more.
    pub fn elements(&self) -> Option<u64> {
        let product = self.shape.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim));
        product.filter(|elements| *elements < 1 << 63)
    }
}

impl Node {
    /// Returns the argument of this name. `None` if the file leaves it out, since it equals its default.
    pub fn argument(&self, name: &str) -> Option<&Argument> {
        self.arguments.iter().find_map(|(other, argument)| (other == name).then_some(argument))
    }

    /// Returns the tensor of this name. `None` if it is missing or is `None`.
    pub fn tensor(&self, name: &str) -> Option<ValueId> {
        match self.argument(name)? {
            Argument::Tensor(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns the tensors that the operation reads, in the order of its arguments.
    pub fn tensors(&self) -> impl Iterator<Item = ValueId> {
        self.arguments.iter().flat_map(|(_, argument)| {
            let (one, several) = match argument {
                Argument::Tensor(value) => (Some(*value), &[][..]),
                Argument::Tensors(values) => (None, &values[..]),
                _ => (None, &[][..]),
            };
            one.into_iter().chain(several.iter().copied().flatten())
        })
    }

    /// Returns the path of the innermost module.
    pub fn path(&self) -> &str {
        self.modules.last().map_or("", |module| &module.path)
    }
}

impl Model {
    /// Returns the shapes of the inputs.
    pub fn input_shapes(&self) -> impl Iterator<Item = &[u64]> {
        self.inputs.iter().map(|&input| &self.values[input].shape[..])
    }

    /// Returns the elements of all trained and frozen parameters, tied ones counted once.
    pub fn parameters(&self) -> u64 {
        let counted = self.state.iter().filter(|state| state.tied_to.is_none());
        let parameters = counted.filter(|state| matches!(state.kind, StateKind::Parameter { .. }));
        parameters.filter_map(|state| self.values[state.value].elements()).sum()
    }
}
