//! Writes the alternatives of a refused step as an expression.

use super::Programs;
use gpumem_core::memory::refusal::{InChunks, Offloaded, Remedies, Remedy, Shared, Slopes, Split};
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;

/// Returns an expression for the alternatives of a refused step.
///
/// `leanest` is given if the refused step is the last of several: its programs, and an expression for the arena bytes of the first.
pub(super) fn known(remedies: &Remedies, leanest: Option<(&Programs, TokenStream)>) -> TokenStream {
    let planned = remedies.planned.iter().map(|remedy| optional(remedy.as_ref().map(remedy_of)));
    let leanest = optional(leanest.map(|(programs, without)| leanest_of(programs, &without)));
    let mixed = optional(remedies.mixed.map(|arena| quote!(#arena)));
    quote! {
        __gpumem::__private::memory::refusal::Remedies { leanest: #leanest, planned: [#(#planned),*], mixed: #mixed }
    }
}

fn leanest_of(programs: &Programs, without: &TokenStream) -> TokenStream {
    let recomputes = programs.blueprint.searches();
    // A number that is written is no change.
    let last = programs.levels.last().filter(|_| programs.blueprint.chunks_automatically());
    let chunks = last.map_or(1, |(_, program)| program.logit_chunks());
    quote! {
        __gpumem::__private::memory::refusal::Leanest { without: #without, recomputes: #recomputes, chunks: #chunks }
    }
}

fn remedy_of(remedy: &Remedy) -> TokenStream {
    let refusal = quote!(__gpumem::__private::memory::refusal);
    let &Remedy { arena, in_place, chunks, split, base, offload, shared, more } = remedy;
    let chunks = optional(chunks.map(
        |InChunks { count, time, twice }| quote!(#refusal::InChunks { count: #count, time: #time, twice: #twice }),
    ));
    let in_place = optional(in_place.map(|slopes| match slopes {
        Slopes::Default => quote!(#refusal::Slopes::Default),
        Slopes::Written => quote!(#refusal::Slopes::Written),
    }));
    let split = optional(split.map(|Split { micro_batches, has_statistics }| {
        quote!(#refusal::Split { micro_batches: #micro_batches, has_statistics: #has_statistics })
    }));
    let base = optional(base.map(|coding| {
        let name = Ident::new(coding.name(), Span::call_site());
        quote!(__gpumem::__private::number::Coding::#name)
    }));
    let offload = optional(offload.map(|Offloaded { what, moved, ms }| {
        let name = Ident::new(what.name(), Span::call_site());
        quote!(#refusal::Offloaded { what: __gpumem::__private::train::Offload::#name, moved: #moved, ms: #ms })
    }));
    let shared = optional(shared.map(|Shared { ranks, shard, sent }| {
        let ranks = optional(ranks.map(|ranks| quote!(#ranks)));
        let shard = optional(shard.map(|shard| {
            let name = Ident::new(shard.name(), Span::call_site());
            quote!(__gpumem::__private::train::Shard::#name)
        }));
        quote!(#refusal::Shared { ranks: #ranks, shard: #shard, sent: #sent })
    }));
    let more = optional(more.map(|[flops, time]| quote!([#flops, #time])));
    quote! {
        #refusal::Remedy {
            arena: #arena,
            in_place: #in_place,
            chunks: #chunks,
            split: #split,
            base: #base,
            offload: #offload,
            shared: #shared,
            more: #more,
        }
    }
}

fn optional(value: Option<TokenStream>) -> TokenStream {
    match value {
        Some(value) => quote!(::core::option::Option::Some(#value)),
        None => quote!(::core::option::Option::None),
    }
}
