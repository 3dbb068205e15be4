//! Generates the plan of one program, its `Compiled`, and its check against the cards.

use super::remedies::known;
use super::tables::Names;
use super::{generics, refusal_place};
use crate::settings::reading::Reading;
use crate::syntax::{Place, Source};
use gpumem_core::memory::refusal::Remedies;
use proc_macro2::{Group, Ident, Literal, TokenStream, TokenTree};
use quote::{format_ident, quote};
use syn::ext::IdentExt as _;

/// One program at the batch and precision of one constant.
pub(super) struct Planned<'a> {
    /// Prefix of the generated names.
    pub(super) prefix: String,
    pub(super) names: Names,
    pub(super) transients: usize,
    /// The constant that has the batch and the precision.
    pub(super) settings: Ident,
    /// True if that constant belongs to a training step.
    pub(super) trains: bool,
    pub(super) reading: Option<&'a Reading<'a>>,
    /// True if the program is checked against the cards of its constant.
    pub(super) is_checked: bool,
    /// Programs that would fit if this one is refused. They are named in the message.
    pub(super) remedies: Remedies,
}

/// Returns the constant that has a plan's batch and precision, as `Vgg16::TRAIN`.
pub(super) fn settings(source: &Source, planned: &Planned<'_>) -> TokenStream {
    let (_, path) = generics(source);
    let constant = &planned.settings;
    quote!(<#path>::#constant)
}

/// Returns an expression for the cards, headroom and environment that a program is checked against.
pub(super) fn target_cards(settings: &TokenStream) -> TokenStream {
    quote! {
        __gpumem::__private::memory::target_cards::TargetCards {
            cards: #settings.cards,
            selected: __gpumem::SELECTED,
            headroom: #settings.headroom,
            ranks: #settings.over_ranks(),
            environment: __gpumem::__environment!(),
        }
    }
}

/// Returns the name of the tables whose scratch is limited.
pub(super) fn limited_name(planned: &Planned<'_>) -> Ident {
    format_ident!("__{}_LIMITED", planned.prefix)
}

/// Returns the tables, with the scratch limits for the network's target cards.
pub(super) fn limited(planned: &Planned<'_>, settings: &TokenStream) -> TokenStream {
    let (tables, target_cards) = (&planned.names.tables, target_cards(settings));
    let convolution = if planned.trains {
        quote!(#settings.conv_workspace)
    } else {
        quote!(__gpumem::__private::Train::DEFAULT.conv_workspace)
    };
    // The forward pass that evaluates a training step takes micro-batches of the same size. Its tables may be those of `INFER`.
    let parts = planned.reading.map_or(1, |reading| reading.descent.micro_batches);
    let parts = Some(parts).filter(|&parts| parts > 1).map(|parts| {
        let parts = Literal::u64_unsuffixed(parts);
        quote!(.with_micro_batches(#parts))
    });
    let ranks = planned.reading.map_or(1, |reading| reading.descent.ranks.count);
    let ranks = Some(ranks).filter(|&ranks| ranks > 1).map(|ranks| {
        let ranks = Literal::u64_unsuffixed(ranks);
        quote!(.on_ranks(#ranks))
    });
    quote! {
        #tables.for_cards(&#target_cards, #convolution)#parts #ranks
    }
}

/// Returns an expression for the plan of `tables`. A plan that will be refused need not be packed.
fn plan(source: &Source, planned: &Planned<'_>, tables: &TokenStream) -> TokenStream {
    let settings = settings(source, planned);
    let (transients, limit) = (Literal::usize_unsuffixed(planned.transients), limit(source, planned));
    quote! {
        __gpumem::__private::memory::budget::plan_within::<#transients>(
            #tables,
            #settings.batch as ::core::primitive::u64,
            #settings.precision,
            #limit,
        )
    }
}

/// Returns the most bytes that an arena may have.
///
/// A generic network has no limit: it is planned at every batch that the program names, refused or not.
fn limit(source: &Source, planned: &Planned<'_>) -> TokenStream {
    let (transients, target_cards) =
        (Literal::usize_unsuffixed(planned.transients), target_cards(&settings(source, planned)));
    match (&source.declaration.batch, planned.is_checked) {
        (Some(_), _) => quote!(::core::primitive::u64::MAX),
        (None, true) => quote!(__gpumem::__private::memory::refusal::limit(#transients, &#target_cards)),
        // If the training step is refused, nothing runs, so its forward pass need not be packed.
        (None, false) => quote!(if __TRAINING_RUNS { ::core::primitive::u64::MAX } else { 0 }),
    }
}

/// Returns the `Compiled` that a backend runs. Its reserve is that of the first card, or of an unknown one.
pub(super) fn compiled(
    source: &Source,
    planned: &Planned<'_>,
    tables: &TokenStream,
    plan: &TokenStream,
    level: &TokenStream,
) -> TokenStream {
    let settings = settings(source, planned);
    let program = &planned.names.program;
    quote! {
        __gpumem::__private::memory::Compiled {
            program: #program,
            tables: #tables,
            offsets: &#plan.packing.offsets,
            budget: #plan.budget_on(#settings.cards, #settings.over_ranks()),
            batch: #plan.batch,
            precision: #plan.precision,
            level: #level,
        }
    }
}

fn only_level() -> TokenStream {
    quote!(__gpumem::__private::memory::levels::Level::ONLY)
}

pub(super) fn statics(source: &Source, planned: &Planned<'_>) -> TokenStream {
    let (plan_name, compiled_name) =
        (format_ident!("__{}_PLAN", planned.prefix), format_ident!("__{}", planned.prefix));
    let transients = Literal::usize_unsuffixed(planned.transients);
    let (limited_name, limited) = (limited_name(planned), limited(planned, &settings(source, planned)));
    let tables = quote!(&#limited_name);
    let plan = plan(source, planned, &tables);
    let compiled = compiled(source, planned, &tables, &quote!(#plan_name), &only_level());
    quote! {
        static #limited_name: __gpumem::__private::memory::tables::Tables<'static> = #limited;
        #[allow(long_running_const_eval)]
        static #plan_name: __gpumem::__private::memory::budget::Plan<#transients> = #plan;
        static #compiled_name: __gpumem::__private::memory::Compiled<'static> = #compiled;
        #[allow(long_running_const_eval)]
        const _: () = __gpumem::__private::memory::budget::assert_packed(#tables, &#plan_name);
    }
}

pub(super) fn associated(source: &Source, planned: &Planned<'_>) -> TokenStream {
    let (plan_name, compiled_name) =
        (format_ident!("__{}_PLAN", planned.prefix), format_ident!("__{}", planned.prefix));
    let transients = Literal::usize_unsuffixed(planned.transients);
    let (limited_name, limited) = (limited_name(planned), limited(planned, &settings(source, planned)));
    let tables = quote!(Self::#limited_name);
    let plan = plan(source, planned, &tables);
    let compiled = compiled(source, planned, &tables, &quote!(Self::#plan_name), &only_level());
    quote! {
        const #limited_name: &'static __gpumem::__private::memory::tables::Tables<'static> = &#limited;
        #[allow(long_running_const_eval)]
        const #plan_name: &'static __gpumem::__private::memory::budget::Plan<#transients> = &#plan;
        #[allow(long_running_const_eval)]
        const #compiled_name: &'static __gpumem::__private::memory::Compiled<'static> = {
            __gpumem::__private::memory::budget::assert_packed(#tables, Self::#plan_name);
            &#compiled
        };
    }
}

/// Returns the check that a program fits.
///
/// rustc underlines a const panic at the call that has `#[track_caller]`: from the span of its first token to that of its last group.
pub(super) fn check(source: &Source, planned: &Planned<'_>) -> TokenStream {
    let Place { start, end } = refusal_place(source, planned.reading);
    let settings = settings(source, planned);
    let name = source.declaration.name.unraw().to_string();
    let (plan_name, limited_name) = (format_ident!("__{}_PLAN", planned.prefix), limited_name(planned));
    let [tables, plan] = [limited_name, plan_name].map(|name| match &source.declaration.batch {
        Some(parameter) => quote!(__Plans::<#parameter>::#name),
        None => quote!(&#name),
    });
    let (transients, target_cards) = (Literal::usize_unsuffixed(planned.transients), target_cards(&settings));
    let arguments = quote! {
        #name,
        #tables,
        #plan,
        &#target_cards
    };
    let refusal = quote!(__gpumem::__private::memory::refusal);
    if planned.remedies == Remedies::UNKNOWN {
        return called_at(quote!(#refusal::check::<#transients>), arguments, Place { start, end });
    }
    let remedies = known(&planned.remedies, None);
    called_at(quote!(#refusal::check_with::<#transients>), quote!(#arguments, #remedies), Place { start, end })
}

/// Returns a call that rustc underlines at `place` if it panics. For that, every name of the path `function` has the span of its start.
pub(crate) fn called_at(function: TokenStream, arguments: TokenStream, place: Place) -> TokenStream {
    let mut group = Group::new(proc_macro2::Delimiter::Parenthesis, arguments);
    group.set_span(place.end);
    let mut tokens: Vec<TokenTree> = function.into_iter().collect();
    tokens.iter_mut().for_each(|token| token.set_span(place.start));
    tokens.push(group.into());
    tokens.into_iter().collect()
}
