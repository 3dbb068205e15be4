//! A training step with several programs: the first saves every tensor, and each further one recomputes more.
//!
//! Const evaluation plans one after the other until one fits.

use super::planned::{Planned, aim, aimed, aimed_name, called_at, compiled, settings};
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

/// Names the flag that is true if a program fits, or one before it does.
fn settled_name(level: usize) -> Ident {
    format_ident!("__TRAINING_{level}_SETTLED")
}

/// Turns names of generated items into expressions that refer to them. Items of a generic network are associated constants.
struct Names<'a> {
    batch: Option<&'a Ident>,
}

impl Names<'_> {
    /// Refers to an item from among the generated items.
    fn inside(&self, name: &Ident) -> TokenStream {
        if self.batch.is_some() { quote!(Self::#name) } else { quote!(&#name) }
    }

    /// Refers to a number or a flag from among the generated items.
    fn value(&self, name: &Ident) -> TokenStream {
        if self.batch.is_some() { quote!(Self::#name) } else { quote!(#name) }
    }

    /// Refers to an item from outside the generated items.
    fn outside(&self, name: &Ident) -> TokenStream {
        match self.batch {
            Some(batch) => quote!(__Plans::<#batch>::#name),
            None => quote!(&#name),
        }
    }

    /// Refers to a number or a flag from outside the generated items.
    fn outside_value(&self, name: &Ident) -> TokenStream {
        match self.batch {
            Some(batch) => quote!(__Plans::<#batch>::#name),
            None => quote!(#name),
        }
    }

    /// Declares an item: `static A: B = c;`, or `const A: &B = &c;` in a generic network.
    fn item(&self, name: &Ident, kind: &TokenStream, value: &TokenStream) -> TokenStream {
        match self.batch {
            Some(_) => quote!(#[allow(long_running_const_eval)] const #name: &'static #kind = &#value;),
            None => quote!(#[allow(long_running_const_eval)] static #name: #kind = #value;),
        }
    }
}

/// Returns an expression for the value of the first level that is settled, or of the last level if none is.
fn first_settled(names: &[TokenStream], values: Vec<TokenStream>) -> TokenStream {
    let mut all = values.into_iter().zip(names).rev();
    let last = all.next().map(|(last, _)| quote!({ #last })).unwrap_or_default();
    all.fold(last, |rest, (value, settled)| quote!(if #settled { #value } else #rest)).into_iter().collect()
}

pub(super) fn leveled(source: &Source, all: &[Planned<'_>], programs: &Programs) -> Leveled {
    let names = Names { batch: source.declaration.batch.as_ref() };
    let settings = settings(source, &all[0]);
    let (aim, checkpoint) = (aim(&settings), quote!(#settings.checkpoint));
    let levels = quote!(__gpumem::__private::memory::levels);
    let room = Ident::new("__TRAINING_ROOM", proc_macro2::Span::call_site());
    let plans: Vec<Ident> = all.iter().map(plan_name).collect();
    let (first_plan, room_value) = (names.inside(&plans[0]), names.value(&room));
    let mut items = TokenStream::new();
    for (level, planned) in all.iter().enumerate() {
        let aimed_name = aimed_name(planned);
        let (transients, tables) = (Literal::usize_unsuffixed(planned.transients), names.inside(&aimed_name));
        let kind = quote!(__gpumem::__private::memory::tables::Tables<'static>);
        items.extend(names.item(&aimed_name, &kind, &aimed(planned, &settings)));
        let at = quote!(#settings.batch as ::core::primitive::u64, #settings.precision);
        let plan = match level.checked_sub(1) {
            None => quote!(#levels::first::<#transients>(#tables, #at, #checkpoint, &#aim)),
            Some(before) => {
                let (settled, is_last) = (names.value(&settled_name(before)), level + 1 == all.len());
                quote!(#levels::next::<#transients>(#tables, #at, #room_value, (#settled, #is_last), &#aim))
            }
        };
        let kind = quote!(__gpumem::__private::memory::budget::Plan<#transients>);
        items.extend(names.item(&plans[level], &kind, &plan));
        if level == 0 {
            items.extend(quote! {
                const #room: ::core::primitive::u64 = #levels::room(#first_plan, #checkpoint, &#aim);
            });
        }
        let (settled, plan) = (settled_name(level), names.inside(&plans[level]));
        let before = level.checked_sub(1).map(|before| names.value(&settled_name(before)));
        let before = before.unwrap_or_else(|| quote!(false));
        items.extend(quote! {
            const #settled: ::core::primitive::bool = #before || #levels::fits(#plan, #room_value);
        });
    }
    let settled = |value: &dyn Fn(&Ident) -> TokenStream| -> Vec<TokenStream> {
        (0..all.len()).map(|level| value(&settled_name(level))).collect()
    };
    let count = programs.level_count;
    let numbers: Vec<u64> = [0].into_iter().chain(programs.levels.iter().map(|(number, _)| *number)).collect();
    let without = quote!((#first_plan).budget.get(__gpumem::__private::memory::budget::Line::Activations));
    let values = all.iter().enumerate().map(|(level, planned)| {
        let tables = names.inside(&aimed_name(planned));
        let (plan, level) = (&plans[level], numbers[level]);
        let (checked, plan) = (names.inside(plan), names.value(plan));
        let level = quote!(#levels::Level { number: #level, count: #count, activations_without: #without });
        let compiled = compiled(source, planned, &tables, &plan, &level);
        quote!(__gpumem::__private::memory::budget::assert_packed(#tables, #checked); #compiled)
    });
    let value = first_settled(&settled(&|name| names.value(name)), values.collect());
    let compiled_name = format_ident!("__TRAINING");
    items.extend(names.item(
        &compiled_name,
        &quote!(__gpumem::__private::memory::Compiled<'static>),
        &quote!({ #value }),
    ));
    let runs = format_ident!("__TRAINING_RUNS");
    let is_packed: Vec<TokenStream> =
        plans.iter().map(|plan| names.inside(plan)).map(|plan| quote!((#plan).is_packed)).collect();
    let is_packed = first_settled(&settled(&|name| names.value(name)), is_packed);
    items.extend(quote!(const #runs: ::core::primitive::bool = #is_packed;));
    Leveled { items, check: check(source, all, &names, &settled(&|name| names.outside_value(name))) }
}

/// Returns the name of a level's plan.
fn plan_name(planned: &Planned<'_>) -> Ident {
    format_ident!("__{}_PLAN", planned.prefix)
}

fn check(source: &Source, all: &[Planned<'_>], names: &Names<'_>, settled: &[TokenStream]) -> TokenStream {
    let place = refusal_place(source, all[0].reading);
    let settings = settings(source, &all[0]);
    let (name, aim) = (source.declaration.name.unraw().to_string(), aim(&settings));
    let first = names.outside(&plan_name(&all[0]));
    let refusal = quote!(__gpumem::__private::memory::refusal);
    let checks = all.iter().enumerate().map(|(level, planned)| {
        let (tables, plan) = (names.outside(&aimed_name(planned)), names.outside(&plan_name(planned)));
        let transients = Literal::usize_unsuffixed(planned.transients);
        let arguments = quote!(#name, #tables, #plan, &#aim);
        if level + 1 < all.len() {
            return called_at(quote!(#refusal::check::<#transients>), arguments, place);
        }
        let is_settled = &settled[level];
        let budget = called_at(
            quote!(__gpumem::__private::memory::levels::check_budget::<#transients>),
            quote!(
                #name,
                #settings.checkpoint,
                (#first).budget.get(__gpumem::__private::memory::budget::Line::Activations),
                #plan,
                &#aim
            ),
            place,
        );
        let remedies = known(&planned.remedies, Some(quote!((#first).arena())));
        let check = called_at(quote!(#refusal::check_with::<#transients>), quote!(#arguments, #remedies), place);
        quote!(if !#is_settled { #budget; } #check)
    });
    let checks = first_settled(settled, checks.collect());
    quote!({ #checks })
}
