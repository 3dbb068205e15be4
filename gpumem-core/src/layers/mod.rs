//! The layers that a network is written with.
//!
//! ```text
//! [Conv2d(64, 3, padding = 1, bias = false), BatchNorm2d, Relu(inplace), MaxPool2d(2), Flatten, Linear(10, name = "fc")]
//! ```
//!
//! Arguments come in PyTorch's order, without the sizes that follow from the input. Options are `name = value` in any order; a boolean one
//! may be written as a flag, `inplace`. Each layer's page has its options with their defaults, shapes, parameters, the tensors that are
//! saved for its backward pass, and PyTorch's name for it. Every layer takes `name = "fc"`, its name in paths, and `freeze`. `init` and
//! `bias_init` initialise its weights and biases, by an [initialiser](initializer) as `init = XavierUniform`, or by a number. A layer of
//! one parameter takes `parameter = "cls_token"` in place of a name: its parameter is `cls_token`, as an `nn.Parameter` of the module
//! around, and not `cls_token.weight`.
//!
//! | family | as in |
//! | --- | --- |
//! | [convolutions](convolution) | `Conv2d(64, 3, padding = 1)` |
//! | [affine maps](linear) | `Linear(10)` |
//! | [normalisation](norm) | `BatchNorm2d`, `LayerNorm` |
//! | [pooling](pool) | `MaxPool2d(2)` |
//! | [shapes](shape) | `Flatten`, `Upsample(2)`, `Mean(1)` |
//! | [functions](activation) | `Relu`, `Silu`, `Softmax` |
//! | [random zeros](dropout) | `Dropout(0.5)`, `DropPath(0.1)` |
//! | [tables of rows](embedding) | `Embedding(50257, 768)` |
//! | [attentions](attention) | `CausalSelfAttention(12)` |
//! | [recurrent layers](recurrent) | `Lstm(650, layers = 2)` |
//! | [composites](composite) | `TransformerBlock(768, 12)` |
//! | [state space models](state_space) | `StepSizes(1536)` |
//! | [joins of branches](join) | `Add([], [..])` |
//!
//! The page of a family lists its layers, and [Porting](https://docs.rs/gpumem/latest/gpumem/guide/porting/index.html) all of them beside PyTorch's names.
//!
//! In this crate a layer is one file, in the folder of its family: its arguments, shapes, parameters and their initialisation,
//! documentation, and the operations that it is built of. A new layer is a new file and its lines in the family's `mod.rs`; [functions of
//! one number](crate::program::functions) are rows of a table. The items below are for those who add one.

pub mod activation;
pub mod arguments;
pub mod attention;
mod bind_arguments;
pub mod builder;
mod channels;
pub mod composite;
pub mod convolution;
pub mod declared;
pub mod dropout;
pub mod embedding;
mod indices;
pub mod initializer;
mod input;
mod insert;
pub mod join;
pub mod linear;
pub mod mistake;
pub mod norm;
pub mod pool;
pub mod recovery;
pub mod recurrent;
pub mod shape;
mod signature;
pub mod state_space;
mod steps;
mod values;
pub mod window;
mod within_steps;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
pub use arguments::Written;
use arguments::{Arguments, Reading, Signature};
use builder::{Builder, Value};
use core::fmt;
use mistake::Mistake;
use recovery::Guess;

/// Functions of one number. Each name is a layer.
pub use self::activation::Function::*;
/// The layer `Gelu`. Its two forms are two functions.
pub use self::activation::Gelu;
pub use self::{
    activation::*, attention::*, composite::*, convolution::*, dropout::*, embedding::*, join::*, linear::*, norm::*,
    pool::*, recurrent::*, shape::*, state_space::*,
};
pub use builder::Use;
pub use insert::{Built, Tie};
pub use steps::Steps;

/// The layers of all families.
const FAMILIES: &[&[Entry]] = &[
    convolution::LAYERS,
    linear::LAYERS,
    norm::LAYERS,
    pool::LAYERS,
    shape::LAYERS,
    activation::LAYERS,
    dropout::LAYERS,
    embedding::LAYERS,
    attention::LAYERS,
    recurrent::LAYERS,
    state_space::LAYERS,
    join::LAYERS,
];

/// The most values that a join can have: operations number their inputs in a byte.
pub const MOST_BRANCHES: usize = 255;

/// A layer: its arguments, and the operations that it is built of.
pub trait Layer: fmt::Debug + Sized + 'static {
    /// The name in the language.
    const NAME: &'static str;

    /// The least and the most inputs. A join has several; each of its branches gets the join's own input.
    const INPUTS: (usize, usize) = (1, 1);

    /// True if the output has the input's shape for all arguments. Later layers can then be checked after a mistake in the arguments.
    const KEEPS_SHAPE: bool = false;

    /// Reads the arguments. These calls are the layer's signature.
    fn read(from: &mut Arguments<'_>) -> Self;

    /// Adds the parameters and operations of the layer for the inputs `x`: the shape rule. There are as many inputs as [`Layer::INPUTS`]
    /// says.
    ///
    /// # Errors
    /// A mistake that leaves the output of the layer unknown. Other mistakes are reported to the builder.
    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake>;
}

/// A layer whose arguments have been read.
pub trait Build: fmt::Debug {
    /// See [`Layer::build`].
    ///
    /// # Errors
    /// See [`Layer::build`].
    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake>;
}

impl<L: Layer> Build for L {
    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        Layer::build(self, b, x)
    }
}

/// A layer by its name.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name in the language.
    pub name: &'static str,
    /// See [`Layer::INPUTS`].
    pub inputs: (usize, usize),
    /// See [`Layer::KEEPS_SHAPE`].
    pub keeps_shape: bool,
    reader: Reader,
}

/// Reads the arguments of one layer.
type Read = fn(&[Written], Guess) -> Reading<Box<dyn Build>>;

#[derive(Clone, Copy, Debug)]
enum Reader {
    Layer { read: Read, signature: fn() -> Signature },
    Function(Function),
}

fn boxed<L: Layer>(written: &[Written], guess: Guess) -> Reading<Box<dyn Build>> {
    Arguments::read(written, guess, |from| Box::new(L::read(from)) as Box<dyn Build>)
}

impl Entry {
    /// Returns the entry of a layer.
    const fn of<L: Layer>() -> Entry {
        let reader = Reader::Layer { read: boxed::<L>, signature: || Arguments::signature(L::read) };
        Entry { name: L::NAME, inputs: L::INPUTS, keeps_shape: L::KEEPS_SHAPE, reader }
    }

    const fn function(function: Function) -> Entry {
        Entry { name: function.name(), inputs: (1, 1), keeps_shape: true, reader: Reader::Function(function) }
    }

    /// Returns every layer.
    pub fn all() -> impl Iterator<Item = Entry> {
        let functions = Function::ALL.iter().copied().filter(|function| function.row().is_layer);
        FAMILIES.iter().copied().flatten().copied().chain(functions.map(Entry::function))
    }

    /// Returns the layer called `name`. `None` if there is none.
    pub fn find(name: &str) -> Option<Entry> {
        Entry::all().find(|entry| entry.name == name)
    }

    /// Returns the names of all layers.
    pub fn names() -> Vec<&'static str> {
        Entry::all().map(|entry| entry.name).collect()
    }

    /// Returns the names of all layers in the family of `member`. Functions of one number belong to the activations.
    pub fn family(member: &str) -> Vec<&'static str> {
        let has_member = |family: &Vec<&'static str>| family.contains(&member);
        let names = |family: &&[Entry]| family.iter().map(|entry| entry.name).collect::<Vec<_>>();
        let mut activations = names(&activation::LAYERS);
        let functions = Function::ALL.iter().filter(|function| function.row().is_layer);
        activations.extend(functions.map(|function| function.name()));
        let families = FAMILIES.iter().map(names).chain([activations]);
        families.filter(has_member).max_by_key(Vec::len).unwrap_or_default()
    }

    /// True if it is a function of one number.
    pub fn is_function(&self) -> bool {
        matches!(self.reader, Reader::Function(_))
    }

    /// True if it joins branches.
    pub fn is_join(&self) -> bool {
        self.inputs.1 > 1
    }

    /// Returns the arguments that the layer takes.
    pub fn signature(&self) -> Signature {
        match self.reader {
            Reader::Layer { signature, .. } => signature(),
            Reader::Function(function) => Arguments::signature(|from| Activation::read(function, from)),
        }
    }

    /// Reads the arguments between the layer's parentheses.
    pub fn read(&self, written: &[Written], guess: Guess) -> Reading<Box<dyn Build>> {
        match self.reader {
            Reader::Layer { read, .. } => read(written, guess),
            Reader::Function(function) => {
                Arguments::read(written, guess, |from| Box::new(Activation::read(function, from)) as Box<dyn Build>)
            }
        }
    }

    /// Returns a mistake if the layer cannot have so many inputs.
    pub fn wrong_count(&self, count: usize) -> Option<Mistake> {
        let (least, most) = self.inputs;
        if (least..=most).contains(&count) {
            return None;
        }
        let name = self.name;
        let given = match count {
            0 => "none is given".to_string(),
            1 => "1 is given".to_string(),
            count => format!("{count} are given"),
        };
        Some(Mistake::new(match (least, most) {
            (least, most) if least == most && count > most => {
                format!("joins exactly {least} branches, but {given}; nest it: `{name}({name}(x, y), z)`")
            }
            (least, most) if least == most => {
                format!("joins exactly {least} branches, but {given}; a branch can be `[]`")
            }
            (least, _) if count < least => {
                format!("joins at least {least} branches, but {given}; a branch can be `[]`")
            }
            (_, most) => format!("joins at most {most} branches, not {count}; nest it"),
        }))
    }
}
