//! Reads `ranks`, `shard`, `bucket`, `channels` and `sync_batch_norm` of `TRAIN`: the processes that share a step.

use crate::errors::Errors;
use crate::settings::literals::is_negative;
use crate::settings::optimizer::named;
use crate::settings::reading::Reading;
use crate::settings::values::{literal, one_of, plain, size};
use crate::syntax::{Place, Settings, Source};
use gpumem_core::lower::{Term, not_in_parts, not_sharded};
use gpumem_core::train::optim::whole_states;
use gpumem_core::train::{Ranks, Shard, Train, not_split_over_ranks};
use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::quote;
use syn::{Expr, ExprLit, Lit};

/// The variable that replaces the number in `ranks`.
const VARIABLE: &str = "GPUMEM_RANKS";

/// Reads `ranks`. `GPUMEM_RANKS` replaces the number that is written.
pub(crate) fn ranks(value: &Expr, reading: &mut Reading<'_>, errors: &mut Errors) -> TokenStream {
    let place = Place::of(value);
    match literal(value) {
        Some(count) if (1..=Ranks::MOST).contains(&count) => reading.descent.ranks.count = count,
        Some(0) => errors.add(place, "`ranks` must be at least 1"),
        Some(_) => errors.add(place, format!("`ranks` must be at most {}", Ranks::MOST)),
        None if is_negative(value) => errors.add(place, "`ranks` must be at least 1"),
        None => errors.add(
            place,
            format!("`ranks` changes the program, so it must be a literal; `{VARIABLE}=4 cargo build` replaces it"),
        ),
    }
    let replaced = Some(()).filter(|()| !reading.is_alone).and_then(|()| std::env::var(VARIABLE).ok());
    if let Some(written) = replaced.filter(|written| !written.trim().is_empty()) {
        match written.trim().parse() {
            Ok(count) if (1..=Ranks::MOST).contains(&count) => reading.descent.ranks.count = count,
            _ => errors.add(
                place,
                format!("`{VARIABLE}` is `{}`; write a number of ranks from 1 to {}", written.trim(), Ranks::MOST),
            ),
        }
    }
    let count = Literal::u64_unsuffixed(reading.descent.ranks.count);
    // The compiler then knows that the crate depends on the variable.
    quote!({
        const _: ::core::option::Option<&::core::primitive::str> = ::core::option_env!(#VARIABLE);
        #count
    })
}

/// Reads `shard`.
pub(crate) fn shard(value: &Expr, reading: &mut Reading<'_>, errors: &mut Errors) -> TokenStream {
    let shard = Shard::ALL[one_of(value, "value of `shard`", &Shard::NAMES, errors)];
    reading.descent.ranks.shard = shard;
    let name = Ident::new(shard.name(), Span::call_site());
    quote!(__gpumem::__private::train::Shard::#name)
}

/// Reads `bucket`.
pub(crate) fn bucket(value: &Expr, reading: &mut Reading<'_>, errors: &mut Errors) -> TokenStream {
    match size(value) {
        Some(0) => errors.add(Place::of(value), "a bucket has at least 1 byte; write its size, as `bucket: mib(32.0)`"),
        Some(bytes) => reading.descent.ranks.bucket = bytes,
        None => errors.add(
            Place::of(value),
            "`bucket` changes the program, so it must be literal; write its size, as `bucket: mib(32.0)`",
        ),
    }
    let bytes = Literal::u64_unsuffixed(reading.descent.ranks.bucket);
    quote!(#bytes)
}

/// Reads `channels`.
pub(crate) fn channels(value: &Expr, reading: &mut Reading<'_>, errors: &mut Errors) -> TokenStream {
    match literal(value) {
        Some(channels) if (1..=Ranks::MOST_CHANNELS).contains(&channels) => reading.descent.ranks.channels = channels,
        _ => errors.add(
            Place::of(value),
            format!("`channels` is a literal from 1 to {}, the most that NCCL has", Ranks::MOST_CHANNELS),
        ),
    }
    let channels = Literal::u64_unsuffixed(reading.descent.ranks.channels);
    quote!(#channels)
}

/// Reads `sync_batch_norm`.
pub(crate) fn sync_batch_norm(value: &Expr, reading: &mut Reading<'_>, errors: &mut Errors) -> TokenStream {
    match plain(value) {
        Expr::Lit(ExprLit { lit: Lit::Bool(is_on), .. }) => reading.descent.ranks.sync_batch_norm = is_on.value,
        _ => errors.add(
            Place::of(value),
            "`sync_batch_norm` changes the program, so it must be literal; write `true` or `false`",
        ),
    }
    let is_on = reading.descent.ranks.sync_batch_norm;
    quote!(#is_on)
}

/// Checks that the batch splits over ranks and micro-batches, that no loss compares samples of different ranks, and that the optimizer can update a
/// shard of a parameter.
pub(crate) fn check(settings: &Settings, is_generic: bool, reading: &mut Reading<'_>, errors: &mut Errors) {
    let ranks = reading.descent.ranks;
    let place = |field: &str| {
        let written = settings.fields.iter().find(|written| written.name == field);
        written.map(|field| Place::of(&field.value))
    };
    let (count, shard) = (place("ranks"), place("shard"));
    if let Some(place) = count.filter(|_| !ranks.is_alone()) {
        if is_generic {
            let message = "a rank takes its part of the batch, and a type cannot divide a parameter; write the batch as a number, or remove `ranks`";
            errors.add(place, message);
        }
        if let Some(term) = reading.loss.terms.iter().find(|term| Term::compares_samples(term)) {
            errors.add(place, not_in_parts(term.measure.name(), "ranks"));
        }
        match reading.batch.map(|_| reading.known_batch) {
            Some(None) if !reading.takes_largest => reading.split = Some(place),
            Some(Some(batch)) if batch > 0 && !batch.is_multiple_of(reading.descent.parts()) => {
                let message = not_split_over_ranks::<256>(batch, ranks.count, reading.descent.micro_batches);
                errors.add(place, message.as_str());
            }
            _ => {}
        }
    }
    if let Some(place) = place("sync_batch_norm").filter(|_| ranks.sync_batch_norm && count.is_none()) {
        errors.add(
            place,
            "one rank has nothing to synchronise; write how many there are, as `ranks: 8, sync_batch_norm: true`",
        );
    }
    let Some(place) = shard.filter(|_| ranks.shard != Shard::None) else { return };
    if count.is_none() {
        errors.add(
            place,
            format!(
                "one rank has nothing to share; write how many there are, as `ranks: 8, shard: {}`",
                ranks.shard.name()
            ),
        );
        return;
    }
    let written = settings.fields.iter().find(|field| field.name == "optimizer");
    let name = match written.map(|field| named(&field.value)) {
        Some(Some(name)) => name.to_string(),
        // A wrong optimizer is reported elsewhere.
        Some(None) => return,
        None => Train::DEFAULT.optimizer.row().name.to_string(),
    };
    if whole_states(reading.moments).1 {
        errors.add(place, not_sharded(ranks.shard, &format!("`{name}`")));
        reading.descent.ranks.shard = Shard::None;
    }
}

/// Checks that all steps of a network have the same ranks, which keep one set of weights.
pub(crate) fn check_steps(source: &Source, readings: &[Reading<'_>], errors: &mut Errors) {
    let Some(first) = readings.first().filter(|_| source.has_named_steps()) else { return };
    for reading in readings {
        let [own, theirs] = [reading, first].map(|reading| (reading.descent.ranks.count, reading.descent.ranks.shard));
        if own != theirs {
            let message = format!(
                "all ranks keep the weights of all steps; write the same `ranks` and `shard` in `{}` and `{}`",
                first.constant, reading.constant
            );
            errors.add(reading.place_of(if own.0 != theirs.0 { "ranks" } else { "shard" }), message);
        }
    }
}

/// Returns ranks as Rust.
pub(crate) fn tokens(ranks: Ranks) -> TokenStream {
    let path = quote!(__gpumem::__private::train);
    if ranks == Ranks::ALONE {
        return quote!(#path::Ranks::ALONE);
    }
    let [count, bucket, channels] = [ranks.count, ranks.bucket, ranks.channels].map(Literal::u64_unsuffixed);
    let shard = Ident::new(ranks.shard.name(), Span::call_site());
    let sync_batch_norm = ranks.sync_batch_norm;
    quote!(#path::Ranks {
        count: #count,
        shard: #path::Shard::#shard,
        bucket: #bucket,
        channels: #channels,
        sync_batch_norm: #sync_batch_norm,
        ..#path::Ranks::ALONE
    })
}
