//! Reads `micro_batches: 4` of `TRAIN`: parts of a batch that run one after the other.

use crate::errors::Errors;
use crate::settings::literals::is_negative;
use crate::settings::reading::Reading;
use crate::settings::values::literal;
use crate::syntax::Place;
use gpumem_core::lower::{Term, not_in_parts};
use gpumem_core::train::not_split;
use proc_macro2::TokenStream;
use quote::quote;
use syn::Expr;

/// Reads `micro_batches`.
pub(crate) fn batches(value: &Expr, reading: &mut Reading<'_>, errors: &mut Errors) -> TokenStream {
    match literal(value) {
        None if is_negative(value) => errors.add(Place::of(value), "`micro_batches` must be at least 1"),
        Some(0) => errors.add(Place::of(value), "`micro_batches` must be at least 1"),
        Some(parts) => reading.descent.micro_batches = parts,
        None => errors.add(Place::of(value), "`micro_batches` changes the program, so it must be a literal"),
    }
    quote!(#value)
}

/// Checks that the batch splits into micro-batches, and that no loss compares samples of different ones.
pub(crate) fn check(value: &Expr, reading: &mut Reading<'_>, errors: &mut Errors) {
    let parts = reading.descent.micro_batches;
    if parts < 2 {
        return;
    }
    if let Some(term) = reading.loss.terms.iter().find(|term| Term::compares_samples(term)) {
        return errors.add(Place::of(value), not_in_parts(term.measure.name(), "micro_batches"));
    }
    match reading.batch.map(|_| reading.known_batch) {
        // Only const evaluation knows this batch, so a generated check compares it. A largest batch is chosen as a multiple.
        Some(None) if !reading.takes_largest => reading.split = Some(Place::of(value)),
        // The check of ranks says what both need.
        Some(Some(batch)) if batch > 0 && !batch.is_multiple_of(parts) && reading.descent.ranks.is_alone() => {
            errors.add(Place::of(value), not_split::<128>(batch, parts).as_str());
        }
        _ => {}
    }
}
