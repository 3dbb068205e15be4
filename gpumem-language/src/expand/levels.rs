//! A training step with several programs: the first saves every tensor, and each further one recomputes more.
//!
//! Const evaluation plans one after the other until one fits.

use super::planned::{Planned, called_at, compiled, limited, limited_name, settings, target_cards};
use super::remedies::known;
use super::{Programs, refusal_place};
use crate::syntax::Source;
use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};
use syn::ext::IdentExt as _;

/// The generated code of a step with recompute levels.
pub(super) struct Leveled {
    /// Statics, or constants of a network that is generic over its batch. The last of them is the program that runs.
    pub(super) items: TokenStream,
    /// The check, as an expression.
    pub(super) check: TokenStream,
}

/// Refers to generated items, which are statics, or associated constants of a network that is generic over its batch.
struct Names<'a> {
    batch: Option<&'a Ident>,
    /// True for expressions among the items.
    is_inside: bool,
}

impl Names<'_> {
    /// Returns a number or a flag.
    fn value(&self, name: &Ident) -> TokenStream {
        match self.batch {
            Some(_) if self.is_inside => quote!(Self::#name),
            Some(batch) => quote!(__Plans::<#batch>::#name),
            None => quote!(#name),
        }
    }

    /// Returns a reference to an item.
    fn reference(&self, name: &Ident) -> TokenStream {
        let value = self.value(name);
        if self.batch.is_some() { value } else { quote!(&#value) }
    }

    /// Declares an item: `static A: B = c;`, or `const A: &B = &c;` in a generic network.
    fn item(&self, name: &Ident, kind: &TokenStream, value: &TokenStream) -> TokenStream {
        match self.batch {
            Some(_) => quote!(#[allow(long_running_const_eval)] const #name: &'static #kind = &#value;),
            None => quote!(#[allow(long_running_const_eval)] static #name: #kind = #value;),
        }
    }

    /// Returns an expression for the value of the level that runs.
    fn chosen(&self, values: impl Iterator<Item = TokenStream>) -> TokenStream {
        let (level, mut values) = (self.value(&named("LEVEL")), values.collect::<Vec<_>>());
        let last = values.pop();
        let numbers = (0..values.len()).map(Literal::usize_unsuffixed);
        quote!(match #level { #(#numbers => { #values })* _ => { #last } })
    }
}

/// Returns the name of an item about all levels.
fn named(suffix: &str) -> Ident {
    format_ident!("__TRAINING_{suffix}")
}

/// Returns the name of the number of bytes in a level's arena.
fn arena_name(planned: &Planned<'_>) -> Ident {
    format_ident!("__{}_ARENA", planned.prefix)
}

pub(super) fn leveled(source: &Source, all: &[Planned<'_>], programs: &Programs) -> Leveled {
    let names = Names { batch: source.declaration.batch.as_ref(), is_inside: true };
    let settings = settings(source, &all[0]);
    let (target_cards, checkpoint) = (target_cards(&settings), checkpoint(programs, &settings));
    let levels = quote!(__gpumem::__private::memory::levels);
    let first_plan = names.reference(&plan_name(&all[0]));
    let available = named("AVAILABLE");
    let mut items = TokenStream::new();
    for (level, planned) in all.iter().enumerate() {
        items.extend(level_plan(&names, (all, level), (&settings, &checkpoint)));
        if level == 0 {
            items.extend(quote! {
                const #available: ::core::primitive::u64 = #levels::available(#first_plan, #checkpoint, &#target_cards);
            });
        }
        let (arena, plan) = (arena_name(planned), names.reference(&plan_name(planned)));
        items.extend(quote!(const #arena: ::core::primitive::u64 = #levels::arena(#plan);));
    }
    let (level, available) = (named("LEVEL"), names.value(&available));
    let arenas = all.iter().map(|planned| names.value(&arena_name(planned)));
    items.extend(quote! {
        const #level: ::core::primitive::usize = #levels::choose_level(&[#(#arenas),*], 0, #available);
    });
    let is_packed = names.chosen(all.iter().map(|planned| {
        let plan = names.reference(&plan_name(planned));
        quote!((#plan).is_packed)
    }));
    let compiled = names.chosen(all.iter().zip(numbers(programs)).map(|(planned, number)| {
        let (tables, plan) = (names.reference(&limited_name(planned)), plan_name(planned));
        let (checked, plan) = (names.reference(&plan), names.value(&plan));
        let count = programs.level_count;
        let without = quote!((#first_plan).budget.get(__gpumem::__private::memory::budget::Line::Activations));
        let level = quote!(#levels::Level { number: #number, count: #count, activations_without: #without });
        let compiled = compiled(source, planned, &tables, &plan, &level);
        quote!(__gpumem::__private::memory::budget::assert_packed(#tables, #checked); #compiled)
    }));
    let kind = quote!(__gpumem::__private::memory::Compiled<'static>);
    items.extend(names.item(&format_ident!("__TRAINING"), &kind, &compiled));
    let runs = named("RUNS");
    items.extend(quote!(const #runs: ::core::primitive::bool = #is_packed;));
    Leveled { items, check: check(source, all, programs) }
}

/// Returns an expression for how memory decides. A step whose `chunks` alone is `Auto` takes what fits the cards, as one with `checkpoint: Auto`
/// does.
fn checkpoint(programs: &Programs, settings: &TokenStream) -> TokenStream {
    match programs.blueprint.searches() {
        true => quote!(#settings.checkpoint),
        false => quote!(__gpumem::__private::Checkpoint::Auto),
    }
}

/// Returns the numbers of the levels that are planned, the plain step's first.
fn numbers(programs: &Programs) -> impl Iterator<Item = u64> {
    [0].into_iter().chain(programs.levels.iter().map(|(number, _)| *number))
}

/// Returns the tables and the plan of a level.
fn level_plan(
    names: &Names<'_>,
    (all, level): (&[Planned<'_>], usize),
    (settings, checkpoint): (&TokenStream, &TokenStream),
) -> TokenStream {
    let (planned, target_cards) = (&all[level], target_cards(settings));
    let (limited_name, transients) = (limited_name(planned), Literal::usize_unsuffixed(planned.transients));
    let (memory, tables) = (quote!(__gpumem::__private::memory), names.reference(&limited_name));
    let at = quote!(#tables, #settings.batch as ::core::primitive::u64, #settings.precision);
    let plan = if level == 0 {
        quote!(#memory::levels::first::<#transients>(#at, #checkpoint, &#target_cards))
    } else {
        let (is_last, available) = (level + 1 == all.len(), names.value(&named("AVAILABLE")));
        let before = all[..level].iter().map(|planned| names.value(&arena_name(planned)));
        quote!(#memory::levels::planned::<#transients>(#at, (&[#(#before),*], #is_last), #available, &#target_cards))
    };
    let mut items = names.item(&limited_name, &quote!(#memory::tables::Tables<'static>), &limited(planned, settings));
    items.extend(names.item(&plan_name(planned), &quote!(#memory::budget::Plan<#transients>), &plan));
    items
}

/// Returns the name of a level's plan.
fn plan_name(planned: &Planned<'_>) -> Ident {
    format_ident!("__{}_PLAN", planned.prefix)
}

/// Returns the check of the level that runs. The last level names alternatives, and must be within the share that `Budget` gives.
fn check(source: &Source, all: &[Planned<'_>], programs: &Programs) -> TokenStream {
    let names = Names { batch: source.declaration.batch.as_ref(), is_inside: false };
    let place = refusal_place(source, all[0].reading);
    let settings = settings(source, &all[0]);
    let (name, target_cards) = (source.declaration.name.unraw().to_string(), target_cards(&settings));
    let first = names.reference(&plan_name(&all[0]));
    let memory = quote!(__gpumem::__private::memory);
    let checks = names.chosen(all.iter().enumerate().map(|(level, planned)| {
        let (tables, plan) = (names.reference(&limited_name(planned)), names.reference(&plan_name(planned)));
        let transients = Literal::usize_unsuffixed(planned.transients);
        let arguments = quote!(#name, #tables, #plan, &#target_cards);
        if level + 1 < all.len() {
            return called_at(quote!(#memory::refusal::check::<#transients>), arguments, place);
        }
        let without = quote!((#first).budget.get(#memory::budget::Line::Activations));
        let budget = called_at(
            quote!(#memory::levels::check_budget::<#transients>),
            quote!(#name, #settings.checkpoint, #without, #plan, &#target_cards),
            place,
        );
        let remedies = known(&planned.remedies, Some((programs, quote!((#first).arena()))));
        let check =
            called_at(quote!(#memory::refusal::check_with::<#transients>), quote!(#arguments, #remedies), place);
        let [arena, available] = [arena_name(planned), named("AVAILABLE")].map(|name| names.value(&name));
        quote!(if !#memory::levels::fits(#arena, 0, #available) { #budget; } #check)
    }));
    quote!({ #checks })
}
