//! `ema`: moving averages of parameters.

use crate::errors::Errors;
use crate::settings::clip_and_schedule::{Number, hint, number, unreadable};
use crate::settings::reading::Reading;
use crate::settings::values::plain;
use crate::syntax::{Constant, Place};
use gpumem_core::train::Ema;
use proc_macro2::{Literal, TokenStream};
use quote::quote;
use syn::{Expr, ExprLit, ExprStruct, Lit, Member};

/// Reads `0.999`, or `Ema { decay: 0.9999, warmup: true, every: 1 }`.
pub(crate) fn read(
    value: &Expr,
    constants: &[Constant],
    reading: &mut Reading<'_>,
    errors: &mut Errors,
) -> TokenStream {
    let found = match plain(value) {
        Expr::Struct(written) if written.path.segments.last().is_some_and(|last| last.ident == "Ema") => {
            fields(written, constants, errors)
        }
        Expr::Struct(_) | Expr::Call(_) => {
            let message = "moving averages are written as the share of them that a step keeps, `ema: 0.999`, or with more fields as \
                           `Ema { decay: 0.9999, warmup: true }`";
            errors.add(Place::of(value), message);
            None
        }
        other => match number(other, constants, 0) {
            Some(decay) => {
                let decay = decay.real();
                Some((Ema { decay, ..Ema::DEFAULT }, [Some(Place::of(value)), None, None]))
            }
            None => {
                unreadable(other, constants, errors);
                None
            }
        },
    };
    let none = quote!(::core::option::Option::None);
    let Some((ema, places)) = found else { return none };
    if let Some((field, rule)) = ema.mistake() {
        let at = Ema::FIELDS.iter().position(|known| *known == field);
        let place = at.and_then(|at| places[at]).unwrap_or(Place::of(value));
        errors.add(place, format!("`{field}` {rule}"));
        return none;
    }
    reading.descent.ema = Some(ema);
    let Ema { decay, warmup, every } = ema;
    let (decay, every) = (Literal::f64_unsuffixed(decay), Literal::u64_unsuffixed(every));
    let path = quote!(__gpumem::__private::train::Ema);
    quote!(::core::option::Option::Some(#path { decay: #decay, warmup: #warmup, every: #every }))
}

/// Returns the fields of `Ema { .. }` and the place of each value. `None` after a mistake, which has been reported.
fn fields(written: &ExprStruct, constants: &[Constant], errors: &mut Errors) -> Option<(Ema, [Option<Place>; 3])> {
    let (mut ema, mut places) = (Ema::DEFAULT, [None; 3]);
    let before = errors.list().len();
    if let Some(rest) = &written.dot2_token {
        errors.add(Place::of(rest), "fields left out take their defaults; remove this");
    }
    for field in &written.fields {
        let (member, value) = (&field.member, &field.expr);
        let name = match member {
            Member::Named(name) => name.to_string(),
            Member::Unnamed(_) => {
                errors.add(Place::of(member), "expected `decay`, `warmup` or `every`");
                continue;
            }
        };
        let Some(at) = Ema::FIELDS.iter().position(|known| *known == name) else {
            errors.add(Place::of(member), format!("`Ema` has no `{name}`; {}", hint(&name, &Ema::FIELDS)));
            continue;
        };
        if places[at].replace(Place::of(value)).is_some() {
            errors.add(Place::of(member), format!("`{name}` is given twice; remove one"));
            continue;
        }
        if name == "warmup" {
            match plain(value) {
                Expr::Lit(ExprLit { lit: Lit::Bool(warmup), .. }) => ema.warmup = warmup.value,
                _ => errors.add(
                    Place::of(value),
                    "`warmup` must be literal, since the macro reads it; write `true` or `false`",
                ),
            }
            continue;
        }
        match number(value, constants, 0) {
            Some(number) if name == "decay" => ema.decay = number.real(),
            Some(Number::Whole(every)) => ema.every = every,
            Some(Number::Real(_)) => {
                errors.add(Place::of(value), "`every` counts steps, so it is a whole number, as `every: 10`");
            }
            None => unreadable(value, constants, errors),
        }
    }
    (errors.list().len() == before).then_some((ema, places))
}
