//! Checks the numbers of `TRAIN` with calls that fail to compile, each at the number's own place.
//!
//! A check whose result does not depend on the batch is a separate item, even in a network that is generic over its batch. So all mistakes are
//! reported at once, at the declaration of the network.

use super::planned::called_at;
use super::{Programs, generics, refusal_place};
use crate::settings::reading::Reading;
use crate::settings::values::plain;
use crate::syntax::Source;
use proc_macro2::{Ident, Literal, TokenStream, TokenTree};
use quote::{ToTokens as _, quote};
use syn::Expr;

/// The checks, as expressions.
#[derive(Default)]
pub(super) struct Numbers {
    /// Checks whose result does not depend on the batch.
    pub(super) settled: Vec<TokenStream>,
    /// Checks of a generic network that depend on its batch. The batch is known only when a program names the network with it.
    pub(super) of_batch: Vec<TokenStream>,
}

impl Numbers {
    fn add(&mut self, check: TokenStream, depends: bool) {
        if depends { &mut self.of_batch } else { &mut self.settled }.push(check);
    }
}

/// Returns the checks of the numbers of a training step.
pub(super) fn checks(source: &Source, reading: &Reading<'_>, programs: &Programs) -> Numbers {
    let mut checks = Numbers::default();
    hyperparameters(source, reading, &mut checks);
    states(source, reading, &mut checks);
    falls(source, reading, &mut checks);
    splits(source, reading, &mut checks);
    varies(source, reading, programs, &mut checks);
    compares(source, reading, programs, &mut checks);
    checks
}

/// Returns the network as a type. A generic network has its parameter as batch if `depends`, otherwise 1.
fn network(source: &Source, depends: bool) -> TokenStream {
    let name = &source.declaration.name;
    match source.declaration.batch {
        Some(_) if !depends => quote!(#name<1>),
        _ => generics(source).1,
    }
}

/// Adds checks that each hyperparameter and each group that are written are within their bounds, each at its own place.
fn hyperparameters(source: &Source, reading: &Reading<'_>, checks: &mut Numbers) {
    let constant = reading.ident();
    let scaled = scaled(source, reading);
    // The bounds of other numbers never depend on the rate. Only the optimizer knows how the other numbers depend on each other.
    let is_rate = |name: &str| name == "lr" || name.ends_with("_lr");
    let all_depend = scaled.iter().any(|name| !is_rate(name));
    for (name, place) in &reading.hyperparameters {
        let depends = all_depend || is_rate(name) && !scaled.is_empty();
        let path = network(source, depends);
        let function = quote!(__gpumem::__private::train::optim::assert_hyperparameter);
        checks.add(called_at(function, quote!(&<#path>::#constant.optimizer, #name), *place), depends);
    }
    for (index, place) in reading.groups.iter().enumerate() {
        let depends = !scaled.is_empty();
        let path = network(source, depends);
        let function = quote!(__gpumem::__private::train::optim::assert_group);
        checks.add(called_at(function, quote!(&<#path>::#constant.optimizer, #index), *place), depends);
    }
}

/// Adds the check that the optimizer keeps as many states as the program has tensors for, at the place of the optimizer.
fn states(source: &Source, reading: &Reading<'_>, checks: &mut Numbers) {
    let constant = reading.ident();
    let Some(place) = reading.optimizer else { return };
    let depends = !scaled(source, reading).is_empty();
    let path = network(source, depends);
    let moments = Literal::u64_unsuffixed(reading.moments);
    let function = quote!(__gpumem::__private::train::optim::assert_states);
    checks.add(called_at(function, quote!(&<#path>::#constant.optimizer, #moments), place), depends);
}

/// Adds the check that a schedule does not end at a higher rate than its first. It is at the place of the last rate.
fn falls(source: &Source, reading: &Reading<'_>, checks: &mut Numbers) {
    let constant = reading.ident();
    let Some(place) = reading.least else { return };
    let depends =
        !scaled(source, reading).is_empty() || field(reading, "schedule").is_some_and(|value| names(source, value));
    let path = network(source, depends);
    let arguments = quote!(<#path>::#constant.schedule, <#path>::#constant.optimizer.lr());
    checks.add(called_at(quote!(__gpumem::__private::train::assert_falls), arguments, place), depends);
}

/// Adds the check that the batch splits into equal micro-batches, at the place of their number.
fn splits(source: &Source, reading: &Reading<'_>, checks: &mut Numbers) {
    let constant = reading.ident();
    let Some(place) = reading.split else { return };
    let (_, path) = generics(source);
    let [ranks, parts] = [reading.descent.ranks.count, reading.descent.micro_batches].map(Literal::u64_unsuffixed);
    let batch = quote!(<#path>::#constant.batch as ::core::primitive::u64);
    let check = called_at(quote!(__gpumem::__private::train::assert_splits), quote!(#batch, #ranks, #parts), place);
    checks.add(check, source.declaration.batch.is_some());
}

/// Adds the check that a normalisation over the batch has several values for each channel. It is at the place of the batch.
fn varies(source: &Source, reading: &Reading<'_>, programs: &Programs, checks: &mut Numbers) {
    let constant = reading.ident();
    let Some(layer) = programs.training.as_ref().and_then(|program| program.normalizes_single()) else { return };
    // A generic network may be used with a batch of one without training.
    if source.declaration.batch.is_some() {
        return;
    }
    let (_, path) = generics(source);
    let parts = Literal::u64_unsuffixed(reading.descent.parts());
    let batch = quote!(<#path>::#constant.batch as ::core::primitive::u64);
    let arguments = quote!(#batch, #parts, #layer);
    let place = refusal_place(source, Some(reading));
    checks.add(called_at(quote!(__gpumem::__private::train::assert_varies), arguments, place), false);
}

/// Adds the check that a loss that compares samples has more than one of them, at the place of the batch.
fn compares(source: &Source, reading: &Reading<'_>, programs: &Programs, checks: &mut Numbers) {
    let Some(loss) = programs.training.as_ref().and_then(|program| program.compares_samples()) else { return };
    // A generic network may be used with a batch of one without training, as in `varies`.
    if source.declaration.batch.is_some() {
        return;
    }
    let (constant, (_, path)) = (reading.ident(), generics(source));
    let batch = quote!(<#path>::#constant.batch as ::core::primitive::u64);
    let place = refusal_place(source, Some(reading));
    checks.add(called_at(quote!(__gpumem::__private::train::assert_compares), quote!(#batch, #loss), place), false);
}

/// Returns the hyperparameters of the optimizer whose values name the batch parameter of a generic network.
fn scaled(source: &Source, reading: &Reading<'_>) -> Vec<String> {
    let Some(Expr::Struct(written)) = field(reading, "optimizer").map(plain) else { return Vec::new() };
    let scaled = written.fields.iter().filter(|field| names(source, &field.expr));
    scaled.map(|field| field.member.to_token_stream().to_string()).collect()
}

/// Returns the value of a field of `TRAIN`, or `None` if it is not written.
fn field<'s>(reading: &Reading<'s>, name: &str) -> Option<&'s Expr> {
    let fields = &reading.settings?.fields;
    fields.iter().find(|field| field.name == name).map(|field| &field.value)
}

/// True if a value names the batch parameter of a generic network.
fn names(source: &Source, value: &Expr) -> bool {
    source.declaration.batch.as_ref().is_some_and(|batch| has(value.to_token_stream(), batch))
}

fn has(tokens: TokenStream, name: &Ident) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == *name,
        TokenTree::Group(group) => has(group.stream(), name),
        _ => false,
    })
}
