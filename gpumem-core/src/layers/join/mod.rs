//! Joins of branches, as `Add([], [..])`.

mod add;
mod along;
mod concat;
mod div;
mod gather;
mod mat_mul;
mod maximum;
mod minimum;
mod mul;
mod scatter_add;
mod sub;
mod take;

pub use add::Add;
pub use concat::Concat;
pub use div::Div;
pub use gather::Gather;
pub use mat_mul::MatMul;
pub use maximum::Maximum;
pub use minimum::Minimum;
pub use mul::Mul;
pub use scatter_add::ScatterAdd;
pub use sub::Sub;
pub use take::Take;

use super::Entry;
use super::builder::{Builder, Value};
use super::mistake::Mistake;
use crate::graph::Elements;
use crate::program::ops::{Binary, BinaryFunction, broadcast};
use alloc::format;

/// The layers of this family.
pub(super) const LAYERS: &[Entry] = &[
    Entry::of::<Add>(),
    Entry::of::<Sub>(),
    Entry::of::<Mul>(),
    Entry::of::<Div>(),
    Entry::of::<MatMul>(),
    Entry::of::<Concat>(),
    Entry::of::<Take>(),
    Entry::of::<Maximum>(),
    Entry::of::<Minimum>(),
    Entry::of::<Gather>(),
    Entry::of::<ScatterAdd>(),
];

/// Checks that all branches carry numbers.
fn check_numbers(x: &[Value]) -> Result<(), Mistake> {
    let other = |(branch, value): (usize, &Value)| Some((branch, value.elements.no_numbers()?));
    match x.iter().enumerate().find_map(other) {
        Some((branch, [given, remedy])) => {
            let text = format!("joins numbers, but a branch carries {given}; put `{remedy}` in that branch");
            Err(Mistake::of_input(branch, text))
        }
        None => Ok(()),
    }
}

/// Checks that no branch carries bytes.
fn check_bytes(x: &[Value]) -> Result<(), Mistake> {
    if x.iter().any(|value| value.elements == Elements::Bytes) { check_numbers(x) } else { Ok(()) }
}

/// Returns the first branch that does not fit those before it, with the mistake. `None` if all fit.
fn unequal_shapes(x: &[Value]) -> Option<(usize, Mistake)> {
    let mut shape = x[0].shape;
    for (branch, value) in x.iter().enumerate().skip(1) {
        shape = match broadcast(shape, value.shape) {
            Some(shape) => shape,
            None => {
                let (first, other) = (x[0].shape, value.shape);
                let mut text = format!(
                    "joins branches of one shape, but branch 0 produces {first} and branch {branch} produces {other}"
                );
                if let (&[channels, ..], &[features]) = (first.dims(), other.dims())
                    && first.dims().len() == 3
                    && channels == features
                {
                    // Probably squeeze and excitation.
                    text += &format!(
                        "; as a map of [{channels}, 1, 1], from `AdaptiveAvgPool2d(1)` and 1x1 convolutions, it is broadcast"
                    );
                }
                return Some((branch, Mistake::of_input(branch, text)));
            }
        };
    }
    None
}

/// Adds a function of two branches, broadcast as numpy does.
fn binary(b: &mut Builder<'_>, function: BinaryFunction, x: &[Value]) -> Result<Value, Mistake> {
    check_numbers(x)?;
    if let Some((branch, mistake)) = unequal_shapes(x) {
        b.report(mistake);
        return Ok(b.either(x[0], x[branch]));
    }
    b.op(Binary { function, left: x[0].shape, right: x[1].shape }, x)
}
