//! Reads `trains: "critic*"`, the parameters that a step trains, and checks the steps of a network against each other.

use crate::errors::Errors;
use crate::resolve::Resolved;
use crate::settings::optimizer::unknown_path;
use crate::settings::reading::Reading;
use crate::settings::values::{is_name, plain};
use crate::syntax::{Place, Source};
use gpumem_core::train::optim::matches;
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::ext::IdentExt as _;
use syn::{Expr, ExprLit, Lit};

/// Functions that every network has.
const FUNCTIONS: [&str; 3] = ["on", "infer_on", "shared_on"];

/// Names that no function can have, not even as raw identifiers such as `r#self`.
const RESERVED: [&str; 3] = ["self", "super", "crate"];

/// Reads `trains`.
pub(crate) fn trains(value: &Expr, resolved: &Resolved, reading: &mut Reading<'_>, errors: &mut Errors) -> TokenStream {
    let Expr::Lit(ExprLit { lit: Lit::Str(paths), .. }) = plain(value) else {
        let message = "`trains` changes the program, so it must be literal; write the names of parameters, as \
                       `trains: \"critic*\"`";
        errors.add(Place::of(value), message);
        return quote!("*");
    };
    let paths = paths.value();
    reading.trains = paths.clone();
    reading.trains_at = Some(Place::of(value));
    // After a mistake in a layer, some parameters are not known.
    if resolved.outputs.is_some() {
        let names: Vec<&str> = resolved.graph.trained_parameters().map(|parameter| parameter.name.as_str()).collect();
        for pattern in paths.split(',').map(str::trim) {
            if !names.iter().any(|name| matches(pattern, name)) {
                errors.add(Place::of(value), unknown_path(pattern, &names));
            }
        }
    }
    quote!(#paths)
}

/// Returns the name of the function that makes the steps of a constant: `critic` for `CRITIC`.
pub(crate) fn function(constant: &Ident) -> Ident {
    let name = constant.unraw().to_string().to_lowercase();
    if syn::parse_str::<Ident>(&name).is_ok() {
        return Ident::new(&name, Span::call_site());
    }
    // A reserved name is reported elsewhere.
    let is_reserved = RESERVED.contains(&name.as_str()) || name == "_";
    if is_reserved { Ident::new("step", Span::call_site()) } else { Ident::new_raw(&name, Span::call_site()) }
}

/// Checks the settings that all steps of a network must share, and that each parameter is trained by a step.
pub(crate) fn check(source: &Source, readings: &[Reading<'_>], resolved: &Resolved, errors: &mut Errors) {
    if !source.has_named_steps() {
        return check_only(readings, resolved, errors);
    }
    let Some(first) = readings.first() else { return };
    for (index, reading) in readings.iter().enumerate() {
        check_name(reading, &readings[..index], errors);
        if reading.takes_largest {
            let message = format!(
                "`batch: Largest` is for a network with `TRAIN` alone; write the batch of `{}` as a number, which `max_batch!` finds",
                reading.constant
            );
            errors.add(reading.place_of("batch"), message);
        }
        if reading.descent.ema.is_some() {
            let message = "`ema` averages the parameters of a network with `TRAIN` alone; average those of one step in another network, \
                           which takes them with `copy_from`";
            errors.add(reading.place_of("ema"), message);
        }
        if reading.precision != first.precision {
            let message = format!(
                "`{}` has precision {} and `{}` has {}, but both train one set of weights; write one precision in both",
                reading.constant,
                reading.precision.name(),
                first.constant,
                first.precision.name()
            );
            errors.add(reading.place_of("precision"), message);
        }
        if reading.descent.offloads() != first.descent.offloads() {
            let message = format!(
                "the states of all steps lie in host memory, or those of none; write the same `offload` in `{}` and `{}`",
                first.constant, reading.constant
            );
            errors.add(reading.place_of("offload"), message);
        }
        if let (Some(batch), Some(field), true) = (&source.declaration.batch, reading.batch, index > 0)
            && !is_name(&field.value, batch)
        {
            let message = format!("a network over `{batch}` has `batch: {batch}` in each of its steps");
            errors.add(Place::of(&field.value), message);
        }
    }
    check_untrained(source, readings, resolved, errors);
}

/// Checks that `TRAIN`, if it is the only step, trains every parameter.
fn check_only(readings: &[Reading<'_>], resolved: &Resolved, errors: &mut Errors) {
    let Some((reading, place)) = readings.first().and_then(|reading| Some((reading, reading.trains_at?))) else {
        return;
    };
    let untrained = untrained(readings, resolved);
    match untrained.first() {
        None if errors.is_empty() => errors.add(place, "the only step trains everything; remove `trains`"),
        Some(name) => errors.add(place, said_of(name, &reading.constant)),
        None => {}
    }
}

/// Refuses a parameter that no step trains.
fn check_untrained(source: &Source, readings: &[Reading<'_>], resolved: &Resolved, errors: &mut Errors) {
    // After a mistake, some names are not known.
    if !errors.is_empty() {
        return;
    }
    if let (Some(name), Some(last)) = (untrained(readings, resolved).first(), readings.last()) {
        let place = last.trains_at.unwrap_or_else(|| Place::from(&source.declaration.name));
        errors.add(place, said_of(name, &last.constant));
    }
}

fn said_of(parameter: &str, constant: &str) -> String {
    format!(
        "`{parameter}` is trained by no step; name it in `trains` of `{constant}`, or write `freeze(..)` around its layer"
    )
}

/// Returns the parameters that are not frozen and that no step names.
fn untrained<'r>(readings: &[Reading<'_>], resolved: &'r Resolved) -> Vec<&'r str> {
    if resolved.outputs.is_none() {
        return Vec::new();
    }
    let names =
        |reading: &Reading<'_>, name: &str| reading.trains.split(',').any(|pattern| matches(pattern.trim(), name));
    let all = resolved.graph.trained_parameters().map(|parameter| parameter.name.as_str());
    all.filter(|name| !readings.iter().any(|reading| names(reading, name))).collect()
}

/// Refuses a constant whose function would have a name that is taken.
fn check_name(reading: &Reading<'_>, earlier: &[Reading<'_>], errors: &mut Errors) {
    let Some(settings) = reading.settings.filter(|settings| settings.name != "TRAIN") else { return };
    let name = settings.name.unraw().to_string().to_lowercase();
    let of = |other: &Reading<'_>| other.constant.to_lowercase() == name && other.constant != "TRAIN";
    if FUNCTIONS.contains(&name.as_str()) || RESERVED.contains(&name.as_str()) {
        let message =
            format!("the step's function would be called `{name}`, which is taken; rename `{}`", settings.name);
        errors.add(settings.place, message);
    } else if let Some(other) = earlier.iter().find(|other| of(other)) {
        let message = format!(
            "the functions of `{}` and `{}` would both be called `{name}`; rename one of the two",
            other.constant, settings.name
        );
        errors.add(settings.place, message);
    }
}
