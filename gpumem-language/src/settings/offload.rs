//! Reads `offload` of `TRAIN`: the tensors that are kept in host memory.

use crate::errors::Errors;
use crate::settings::optimizer::named;
use crate::settings::reading::Reading;
use crate::settings::values::one_of;
use crate::syntax::{Place, Settings};
use gpumem_core::lower::offload::{of_others, without_states};
use gpumem_core::train::optim::{Optimizer, whole_states};
use gpumem_core::train::{Offload, Train};
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::Expr;

/// Reads `offload`.
pub(crate) fn read(value: &Expr, reading: &mut Reading<'_>, errors: &mut Errors) -> TokenStream {
    let offload = Offload::ALL[one_of(value, "value of `offload`", &Offload::NAMES, errors)];
    reading.descent.offload = offload;
    let name = Ident::new(offload.name(), Span::call_site());
    quote!(__gpumem::__private::train::Offload::#name)
}

/// Checks that there is something to offload, and that the optimizer can update a part of a parameter by itself.
pub(crate) fn check(value: &Expr, settings: &Settings, reading: &mut Reading<'_>, errors: &mut Errors) {
    if !reading.descent.offloads() {
        return;
    }
    let written = settings.fields.iter().find(|field| field.name == "optimizer");
    let name = match written.map(|field| named(&field.value)) {
        Some(Some(name)) => name.to_string(),
        // A wrong optimizer is reported elsewhere.
        Some(None) => return reading.descent.offload = Offload::None,
        None => Train::DEFAULT.optimizer.row().name.to_string(),
    };
    if whole_states(reading.moments).1 {
        errors.add(Place::of(value), of_others(reading.descent.offload, &format!("`{name}`")));
        reading.descent.offload = Offload::None;
    } else if reading.moments == 0 && !reading.precision.has_master() {
        let keeps = Optimizer::ROWS.iter().find(|row| row.name == name).and_then(|row| row.states.first());
        let without = keeps.and_then(|state| state.unless_zero).map_or(String::new(), |it| format!(" without `{it}`"));
        let nothing =
            if reading.descent.parks() { "there are no states to offload" } else { "there is nothing to offload" };
        let message = format!(
            "{nothing}: `{name}`{without} keeps no state, and {} has no master copies; {}",
            reading.precision.name(),
            without_states(reading.descent.offload)
        );
        errors.add(Place::of(value), message);
        reading.descent.offload = Offload::None;
    }
}
