//! Checks fields of `TRAIN` and `INFER` that may be any const expression, if their value is a literal.

use crate::errors::Errors;
use crate::settings::values::{plain, text};
use crate::syntax::Place;
use proc_macro2::TokenStream;
use quote::quote;
use syn::{Expr, ExprLit, Lit, UnOp};

/// The fewest bytes that are plausible. A smaller number was probably meant as MiB or GiB.
const LEAST_BYTES: u64 = 1 << 20;

/// The value of a field, by its form.
enum Written {
    /// A whole number from 0 on. `None` if it is too large for a `u64`.
    Whole(Option<u64>),
    /// A number below 0.
    Negative,
    Fraction(f64),
    Flag,
    /// Python's `True`, `False` or `None`.
    OfPython(&'static str),
    /// A text, a character or bytes.
    Text,
    /// An expression that rustc evaluates.
    Expression,
}

impl Written {
    fn of(value: &Expr) -> Written {
        match plain(value) {
            Expr::Lit(ExprLit { lit, .. }) => match lit {
                Lit::Int(number) if !number.suffix().starts_with('f') => Written::Whole(number.base10_parse().ok()),
                Lit::Int(number) => Written::Fraction(number.base10_digits().parse().unwrap_or(0.0)),
                Lit::Float(number) => Written::Fraction(number.base10_parse().unwrap_or(0.0)),
                Lit::Bool(_) => Written::Flag,
                _ => Written::Text,
            },
            Expr::Unary(negative) if matches!(negative.op, UnOp::Neg(_)) => match Written::of(&negative.expr) {
                Written::Whole(_) | Written::Fraction(_) => Written::Negative,
                other => other,
            },
            Expr::Path(path) => {
                let known = ["True", "False", "None"].into_iter().find(|known| path.path.is_ident(known));
                known.map_or(Written::Expression, Written::OfPython)
            }
            _ => Written::Expression,
        }
    }
}

/// True if a number below 0 is written.
pub(crate) fn is_negative(value: &Expr) -> bool {
    matches!(Written::of(value), Written::Negative)
}

/// Returns the value of the field `name` as Rust. `kind` is `Train` or `Infer`.
///
/// A literal that the field cannot have is reported, and replaced by the default.
pub(crate) fn field(kind: &str, name: &syn::Ident, value: &Expr, errors: &mut Errors) -> TokenStream {
    let mistake = match name.to_string().as_str() {
        "batch" => of_batch(value),
        "seed" => of_seed(value),
        "tf32" | "deterministic" => of_flag(name, value),
        "headroom" | "conv_workspace" => of_bytes(name, value),
        _ => None,
    };
    match mistake {
        Some(message) => {
            errors.add(Place::of(value), message);
            let kind = syn::Ident::new(kind, proc_macro2::Span::call_site());
            quote!(__gpumem::__private::#kind::DEFAULT.#name)
        }
        None => quote!(#value),
    }
}

fn of_batch(value: &Expr) -> Option<String> {
    match Written::of(value) {
        Written::Whole(Some(0)) => Some("the batch is 0; a step needs at least 1 sample".to_string()),
        Written::Negative => Some(format!("the batch is {}; a step needs at least 1 sample", tight(value))),
        Written::Fraction(number) if number >= 1.0 && number.fract() == 0.0 => {
            Some(format!("the batch is a whole number of samples; write `batch: {number}`"))
        }
        Written::Whole(Some(_)) | Written::Expression => None,
        _ => Some("the batch is a whole number of samples, as `batch: 32`".to_string()),
    }
}

fn of_seed(value: &Expr) -> Option<String> {
    match Written::of(value) {
        Written::Whole(Some(_)) | Written::Expression => None,
        Written::OfPython("None") => Some("there is always a seed, 0 if it is left out; leave it out".to_string()),
        _ => Some(format!("`seed` is a whole number from 0 to {}, as `seed: 1`", u64::MAX)),
    }
}

fn of_flag(name: &syn::Ident, value: &Expr) -> Option<String> {
    match Written::of(value) {
        Written::Flag | Written::Expression => None,
        Written::OfPython(word @ ("True" | "False")) => Some(format!("write `{}`", word.to_lowercase())),
        _ => Some(format!("`{name}` is `true` or `false`, not `{}`", tight(value))),
    }
}

fn of_bytes(name: &syn::Ident, value: &Expr) -> Option<String> {
    match Written::of(value) {
        Written::Whole(Some(bytes @ 1..LEAST_BYTES)) => {
            let is = if bytes == 1 { "1 byte".to_string() } else { format!("{bytes} bytes") };
            Some(format!("`{name}` is {is} here; write a size as `gib({bytes}.0)` or `mib({bytes}.0)`"))
        }
        Written::Fraction(number) => {
            Some(format!("`{name}` counts bytes; write a size as `gib({number:?})` or `mib({number:?})`"))
        }
        Written::Whole(Some(_)) | Written::Expression => None,
        _ => Some(format!("`{name}` is a size from 0 on; write it as `gib(1.5)` or `mib(512.0)`")),
    }
}

/// Returns a value as it was written, with no space after a minus sign.
fn tight(value: &Expr) -> String {
    text(value).replace("- ", "-")
}
