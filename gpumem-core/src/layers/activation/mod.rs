//! `Relu`, `Silu`, `Softmax`: functions of one number, and functions of a whole axis.
//!
//! [`Gelu`], [`Softmax`], [`LogSoftmax`] and [`Prelu`] have pages of their own; all others are on that of [`Function`], each with its
//! arguments. The output has the input's shape, which may be any; only `Prelu` has parameters.

mod gelu;
mod log_softmax;
mod prelu;
mod softmax;

pub use crate::program::functions::Function;
pub use gelu::Gelu;
pub use log_softmax::LogSoftmax;
pub use prelu::Prelu;
pub use softmax::Softmax;

use super::Build;
use super::Entry;
use super::arguments::Arguments;
use super::builder::{Builder, Value};
use super::mistake::Mistake;
use crate::program::functions::Bound;
use crate::program::ops::Pointwise;
use alloc::format;
use alloc::vec::Vec;

/// The layers of this family.
pub(super) const LAYERS: &[Entry] =
    &[Entry::of::<Gelu>(), Entry::of::<Softmax>(), Entry::of::<LogSoftmax>(), Entry::of::<Prelu>()];

/// A [function](Function) as a layer. The output has the input's shape, which may be any. There are no parameters, and the function's row
/// says what backward keeps.
#[derive(Clone, Debug)]
pub struct Activation {
    function: Function,
    arguments: Vec<f64>,
    inplace: bool,
}

impl Activation {
    pub(super) fn read(function: Function, from: &mut Arguments<'_>) -> Activation {
        let row = function.row();
        let arguments = row.arguments.iter().map(|argument| {
            let asking = from.trailing(argument.name);
            match argument.bound {
                Bound::Any => asking.number(argument.default),
                Bound::From(least) => asking.number_from(argument.default, least),
                Bound::Above(bound) => asking.number_above(argument.default, bound),
            }
        });
        let arguments = arguments.collect();
        let inplace = row.inplace && from.option("inplace").flag(false);
        let function = row.in_place.filter(|_| inplace).unwrap_or(function);
        Activation { function, arguments, inplace }
    }
}

impl Build for Activation {
    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let shape = x[0].numbers()?;
        b.in_place(self.inplace);
        if let (Function::Hardtanh, &[least, most]) = (self.function, &self.arguments[..])
            && least >= most
        {
            let text = format!(
                "has min_val = {least:?} and max_val = {most:?}, which leave nothing between; use a larger `max_val`"
            );
            b.report(Mistake::of("max_val", text));
        }
        b.op(Pointwise { function: self.function, arguments: self.arguments.clone(), shape }, x)
    }
}
