//! Values of fields: names, numbers and texts, as they stand in the source.

use crate::errors::Errors;
use crate::syntax::Place;
use gpumem_core::layers::mistake::{either, listed};
use gpumem_core::suggest::nearest;
use proc_macro2::Ident;
use syn::{Expr, ExprLit, Lit, UnOp};

/// Removes parentheses around an expression, and the invisible ones of a macro's `$value:expr`.
pub(crate) fn plain(value: &Expr) -> &Expr {
    match value {
        Expr::Paren(inner) => plain(&inner.expr),
        Expr::Group(inner) => plain(&inner.expr),
        _ => value,
    }
}

/// Returns the value of a literal whole number. `None` for other expressions.
pub(crate) fn literal(value: &Expr) -> Option<u64> {
    match plain(value) {
        Expr::Lit(ExprLit { lit: Lit::Int(value), .. }) => value.base10_parse().ok(),
        _ => None,
    }
}

/// Returns the value of a literal number, which may have a sign. `None` for other expressions.
pub(crate) fn number(value: &Expr) -> Option<f64> {
    match plain(value) {
        Expr::Lit(ExprLit { lit: Lit::Float(value), .. }) => value.base10_parse().ok(),
        Expr::Lit(ExprLit { lit: Lit::Int(value), .. }) => value.base10_parse().ok(),
        Expr::Unary(negative) if matches!(negative.op, UnOp::Neg(_)) => number(&negative.expr).map(|value| -value),
        _ => None,
    }
}

/// True if an expression is this name alone.
pub(crate) fn is_name(value: &Expr, name: &Ident) -> bool {
    matches!(plain(value), Expr::Path(path) if path.path.is_ident(name))
}

/// Returns the name at the end of a path: `Bf16` for `Precision::Bf16`. `None` for other expressions.
pub(crate) fn last_name(value: &Expr) -> Option<&Ident> {
    match plain(value) {
        Expr::Path(path) => path.path.segments.last().map(|segment| &segment.ident),
        _ => None,
    }
}

/// Returns the index of one of several names. After a mistake, which is reported, returns 0.
pub(crate) fn one_of(value: &Expr, what: &str, known: &[&str], errors: &mut Errors) -> usize {
    let name = last_name(value).map(ToString::to_string);
    let found = known.iter().position(|known| Some(*known) == name.as_deref());
    found.unwrap_or_else(|| {
        let message = match &name {
            Some(name) => match nearest(name, known) {
                Some(near) => format!("no {what} is called `{name}`; did you mean `{near}`?"),
                None => format!("no {what} is called `{name}`; there are {}", listed(known)),
            },
            None => format!("the {what} is read by the macro as it stands; write {}", either(known)),
        };
        errors.add(Place::of(value), message);
        0
    })
}

/// Returns the text of an expression, nearly as it was written.
pub(crate) fn text(value: &impl quote::ToTokens) -> String {
    value.to_token_stream().to_string().replace(" ,", ",").replace("( ", "(").replace(" )", ")")
}
