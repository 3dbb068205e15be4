//! The layers, one file each: shape rule, parameters and their initialisation, what the backward pass keeps, workspace,
//! multiply-accumulates and documentation. A new layer is a new file and a line in the list below.

pub mod arguments;
pub mod rule;
pub mod window;

use crate::shape::Shape;
use crate::wire::{Reader, Wire};
use alloc::vec::Vec;
use arguments::{Arguments, Mistake, Signature};
use rule::{Backward, Buffer, Inference, Parameter, Pass, Proof, Rule, Saved, Value, Workspace};

macro_rules! layers {
    ($($module:ident::$name:ident,)*) => {
        $(mod $module; pub use $module::$name;)*

        /// The type-level shape rule of each layer.
        pub(crate) mod typed {
            $(#[allow(unused_imports)] pub use super::$module::typed::*;)*
        }

        /// A layer with every dimension fixed.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Layer {
            $(#[doc = concat!("See [`", stringify!($name), "`].")] $name($name),)*
        }

        impl Layer {
            /// The names of all layers.
            pub const NAMES: &'static [&'static str] = &[$(<$name as Rule>::NAME,)*];

            /// The least number of branches of the join called `name`; `None` for other layers.
            pub fn branches(name: &str) -> Option<usize> {
                match name {
                    $(<$name as Rule>::NAME => <$name as Rule>::BRANCHES,)*
                    _ => None,
                }
            }

            /// Whether the layer called `name` has the output shape of its input whatever its arguments.
            pub fn keeps_shape(name: &str) -> bool {
                match name {
                    $(<$name as Rule>::NAME => <$name as Rule>::KEEPS_SHAPE,)*
                    _ => false,
                }
            }

            /// The arguments that the layer called `name` takes, or `None` if there is no such layer.
            pub fn signature(name: &str) -> Option<&'static Signature> {
                match name {
                    $(<$name as Rule>::NAME => Some(&<$name as Rule>::SIGNATURE),)*
                    _ => None,
                }
            }

            /// Resolves the layer called `name`, or `None` if there is no such layer.
            pub fn resolve(name: &str, arguments: &Arguments, inputs: &[Value]) -> Option<Result<Layer, Mistake>> {
                match name {
                    $(<$name as Rule>::NAME => Some($name::resolve(arguments, inputs).map(Layer::$name)),)*
                    _ => None,
                }
            }

            layers!(@delegate [$($name)*]
                /// The name in the language.
                pub fn name(&self) -> &'static str;
                /// See [`Rule::output`].
                pub fn output(&self) -> Shape;
                /// See [`Rule::parameters`].
                pub fn parameters(&self) -> Vec<Parameter>;
                /// See [`Rule::buffers`].
                pub fn buffers(&self) -> Vec<Buffer>;
                /// See [`Rule::saved`].
                pub fn saved(&self) -> Vec<Saved>;
                /// See [`Rule::backward`].
                pub fn backward(&self) -> Backward;
                /// See [`Rule::in_place`].
                pub fn in_place(&self) -> bool;
                /// See [`Rule::asks_in_place`].
                pub fn asks_in_place(&self) -> bool;
                /// See [`Rule::is_view`].
                pub fn is_view(&self) -> bool;
                /// See [`Rule::draws`].
                pub fn draws(&self) -> bool;
                /// See [`Rule::ignores_input`].
                pub fn ignores_input(&self) -> bool;
                /// See [`Rule::inference`].
                pub fn inference(&self) -> Inference;
                /// See [`Rule::macs`].
                pub fn macs(&self) -> u64;
                /// See [`Rule::expand`].
                pub fn expand(&self) -> Option<Vec<(&'static str, Layer)>>;
                /// See [`Rule::proof`].
                pub fn proof(&self) -> Option<Proof>;
            );
        }

        impl Layer {
            /// See [`Rule::workspace`].
            pub fn workspace(&self, pass: Pass) -> Option<Workspace> {
                match self { $(Layer::$name(layer) => Rule::workspace(layer, pass),)* }
            }
        }

        impl Wire for Layer {
            fn put(&self, out: &mut Vec<u8>) {
                let mut number = 0u64;
                $(if let Layer::$name(layer) = self {
                    number.put(out);
                    return layer.put(out);
                }
                number += 1;)*
                let _ = number;
            }

            fn take(from: &mut Reader<'_>) -> Option<Layer> {
                let mut number = u64::take(from)?;
                $(if number == 0 {
                    return $name::take(from).map(Layer::$name);
                }
                number -= 1;)*
                let _ = number;
                None
            }
        }
    };
    (@delegate $names:tt $($(#[$meta:meta])* pub fn $method:ident(&self) -> $type:ty;)*) => {
        $(layers!(@method $names $(#[$meta])* $method $type);)*
    };
    (@method $names:tt $(#[$meta:meta])* name $type:ty) => {
        layers!(@name $names $(#[$meta])*);
    };
    (@method [$($name:ident)*] $(#[$meta:meta])* $method:ident $type:ty) => {
        $(#[$meta])*
        pub fn $method(&self) -> $type {
            match self { $(Layer::$name(layer) => Rule::$method(layer),)* }
        }
    };
    (@name [$($name:ident)*] $(#[$meta:meta])*) => {
        $(#[$meta])*
        pub fn name(&self) -> &'static str {
            match self { $(Layer::$name(_) => <$name as Rule>::NAME,)* }
        }
    };
}

layers! {
    conv2d::Conv2d,
    conv_transpose2d::ConvTranspose2d,
    linear::Linear,
    tied::Tied,
    batch_norm2d::BatchNorm2d,
    layer_norm::LayerNorm,
    max_pool2d::MaxPool2d,
    avg_pool2d::AvgPool2d,
    adaptive_avg_pool2d::AdaptiveAvgPool2d,
    global_avg_pool::GlobalAvgPool,
    flatten::Flatten,
    relu::Relu,
    relu6::Relu6,
    leaky_relu::LeakyRelu,
    gelu::Gelu,
    silu::Silu,
    sigmoid::Sigmoid,
    tanh::Tanh,
    softmax::Softmax,
    dropout::Dropout,
    upsample::Upsample,
    embedding::Embedding,
    position_embedding::PositionEmbedding,
    causal_self_attention::CausalSelfAttention,
    causal_attention::CausalAttention,
    add::Add,
    mul::Mul,
    concat::Concat,
}
