//! Values of fields: names, numbers and texts, as they stand in the source.

use crate::errors::Errors;
use crate::syntax::Place;
use gpumem_core::layers::mistake::{either, listed};
use gpumem_core::suggest::nearest;
use proc_macro2::Ident;
use syn::{Expr, ExprCall, ExprLit, Lit, UnOp};

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

/// Returns the bytes of a literal, `mib(256)` or `gib(1.5)`. `None` for others, such as `256 << 20`.
pub(crate) fn size(value: &Expr) -> Option<u64> {
    let Expr::Call(ExprCall { func, args, .. }) = value else { return literal(value) };
    let Expr::Path(function) = &**func else { return None };
    let unit = match function.path.segments.last()?.ident.to_string().as_str() {
        "mib" => 20,
        "gib" => 30,
        _ => return None,
    };
    match args.first()? {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => number.base10_parse::<u64>().ok()?.checked_shl(unit),
        Expr::Lit(ExprLit { lit: Lit::Float(number), .. }) => {
            Some((number.base10_parse::<f64>().ok()? * f64::from(1u32 << unit)) as u64)
        }
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
            None => format!("the {what} must be literal, since the macro reads it; write {}", either(known)),
        };
        errors.add(Place::of(value), message);
        0
    })
}

/// Returns the text of an expression, nearly as it was written.
pub(crate) fn text(value: &impl quote::ToTokens) -> String {
    value.to_token_stream().to_string().replace(" ,", ",").replace("( ", "(").replace(" )", ")")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_they_are_written() {
        let size = |text: &str| size(&syn::parse_str(text).unwrap());
        assert_eq!(size("1024"), Some(1024));
        assert_eq!(size("mib(256)"), Some(256 << 20));
        assert_eq!(size("gpumem::gib(1.5)"), Some(3 << 29));
        assert_eq!([size("256 << 20"), size("kib(1)"), size("mib(N)"), size("HEADROOM")], [None; 4]);
    }
}
