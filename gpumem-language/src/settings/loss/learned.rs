//! Reads numbers of a loss that are values of the network: a learned scale, and a learned bias.

use super::{Written, tapped};
use crate::errors::Errors;
use crate::resolve::Resolved;
use crate::settings::values::{last_name, plain};
use crate::syntax::Place;
use gpumem_core::graph::NodeId;
use gpumem_core::program::loss::{BIAS, SCALE};
use proc_macro2::Ident;
use syn::Expr;

/// The names of these options, indexed by their numbers: 0 is the scale, 1 the bias.
const NAMES: [&str; 2] = [SCALE, BIAS];

/// Returns the name that is written instead of a number. `None` if it is not a name.
pub(super) fn name(value: &Expr) -> Option<Ident> {
    match plain(value) {
        Expr::Path(path) => last_name(value).filter(|_| path.path.segments.len() == 1).cloned(),
        _ => None,
    }
}

/// Reads `scale`, which must be a name.
pub(super) fn scale(value: &Expr) -> Result<Ident, &'static str> {
    name(value).ok_or(
        "`scale` is the name of a value that is tapped and that all samples share, whose exponential multiplies the products; for a \
         number write `temperature: 0.07`",
    )
}

/// Returns the node of a learned number, which all samples share. `None` if it is not written, or after a mistake.
pub(super) fn node(term: &Written, number: usize, resolved: &Resolved, errors: &mut Errors) -> Option<NodeId> {
    let name = term.options.learned[number].as_ref()?;
    let node = tapped(name, resolved, errors)?;
    let (value, option) = (resolved.graph.value(node), NAMES[number]);
    let mistake = if let Some([given, _]) = value.elements.no_numbers() {
        format!("is {given}")
    } else if value.batched {
        "differs between samples".to_string()
    } else if value.shape.elements() != Some(1) {
        format!("is {}", value.shape)
    } else {
        return Some(node);
    };
    errors.add(Place::from(name), format!("`{option}` is one number that all samples share, but `{name}` {mistake}"));
    None
}
