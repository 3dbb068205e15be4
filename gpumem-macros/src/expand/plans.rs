//! Plans, budgets and checks, each evaluated once.

use super::tables::Names;
use super::{Programs, Readings, generics, refusal_place};
use crate::syntax::{Place, Source};
use crate::train::Reading;
use gpumem_core::program::Program;
use proc_macro2::{Group, Ident, Literal, Span, TokenStream, TokenTree};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt as _;

/// What `Network` is told.
pub(super) struct Plans {
    /// Items in front of the implementation.
    pub(super) items: TokenStream,
    pub(super) training: TokenStream,
    pub(super) inference: TokenStream,
    pub(super) evaluation: TokenStream,
    /// The value of `CHECKED`.
    pub(super) checked: TokenStream,
}

/// One program at the batch and precision of one constant.
struct Planned<'a> {
    /// Prefix of the generated names.
    prefix: &'static str,
    names: Names,
    transients: usize,
    /// `TRAIN` or `INFER`: where batch and precision are.
    settings: &'static str,
    reading: Option<&'a Reading<'a>>,
    /// Whether it is checked against the cards of its constant.
    is_checked: bool,
}

pub(super) fn plans(source: &Source, readings: &Readings<'_>, programs: &Programs) -> Plans {
    let planned = |prefix, program: &Program, structure, settings, is_checked| Planned {
        prefix,
        names: Names::new(structure),
        transients: program.transients().count(),
        settings,
        reading: if settings == "TRAIN" { readings.train.as_ref() } else { readings.infer.as_ref() },
        is_checked,
    };
    let mut all = Vec::new();
    if let Some(program) = &programs.training {
        all.push(planned("TRAINING", program, "TRAINING", "TRAIN", true));
    }
    // The forward pass at the batch of `INFER`, and beside it, where both constants are written, at that of `TRAIN`.
    let infers = readings.infer.is_some() || readings.train.is_none();
    if infers {
        all.push(planned("INFERENCE", &programs.inference, "INFERENCE", "INFER", true));
    }
    if readings.train.is_some() {
        all.push(planned("EVALUATION", &programs.inference, "INFERENCE", "TRAIN", false));
    }
    let value = |prefix: &str| {
        let prefix = if all.iter().any(|planned| planned.prefix == prefix) {
            prefix
        } else if prefix == "INFERENCE" {
            "EVALUATION"
        } else {
            "INFERENCE"
        };
        let compiled = format_ident!("__{prefix}");
        match &source.declaration.batch {
            Some(parameter) => quote!(__Plans::<#parameter>::#compiled),
            None => quote!(&#compiled),
        }
    };
    let training = match &programs.training {
        Some(_) => {
            let training = value("TRAINING");
            quote!(::core::option::Option::Some(#training))
        }
        None => quote!(::core::option::Option::None),
    };
    let checks: Vec<TokenStream> =
        all.iter().filter(|planned| planned.is_checked).map(|planned| check(source, planned)).collect();
    let (inference, evaluation) = (value("INFERENCE"), value("EVALUATION"));
    let (items, checked) = match &source.declaration.batch {
        Some(parameter) => {
            let constants = all.iter().map(|planned| associated(source, planned));
            let items = quote! {
                struct __Plans<const #parameter: ::core::primitive::usize>;
                impl<const #parameter: ::core::primitive::usize> __Plans<#parameter> {
                    #(#constants)*
                }
            };
            (items, quote!({ #(#checks;)* }))
        }
        None => {
            let statics = all.iter().map(|planned| statics(source, planned));
            let record = record(programs.training.is_some(), &inference);
            let name = source.declaration.name.unraw().to_string();
            let items = quote! {
                #(#statics)*
                #(#[allow(long_running_const_eval)] const _: () = #checks;)*
                #record
                const __NAME: &::core::primitive::str = #name;
            };
            (items, quote!(()))
        }
    };
    Plans { items, training, inference, evaluation, checked }
}

/// `Vgg16::TRAIN`, where a plan's batch and precision are.
fn settings(source: &Source, planned: &Planned<'_>) -> TokenStream {
    let (_, path) = generics(source);
    let constant = Ident::new(planned.settings, Span::call_site());
    quote!(<#path>::#constant)
}

/// The step with its workspaces capped for the cards that the network is aimed at, as a constant expression.
fn step(source: &Source, planned: &Planned<'_>) -> TokenStream {
    let settings = settings(source, planned);
    let step = &planned.names.step;
    let convolution = if planned.settings == "TRAIN" {
        quote!(#settings.conv_workspace)
    } else {
        quote!(::gpumem::core::Train::DEFAULT.conv_workspace)
    };
    quote! {
        #step.with_workspaces(
            ::gpumem::core::step::Workspaces::aimed([#settings.cards, ::gpumem::SELECTED], #convolution)
        )
    }
}

/// The plan as an expression.
fn plan(source: &Source, planned: &Planned<'_>) -> TokenStream {
    let settings = settings(source, planned);
    let step = step(source, planned);
    let transients = Literal::usize_unsuffixed(planned.transients);
    quote! {
        ::gpumem::core::budget::plan::<#transients>(
            &#step,
            #settings.batch as ::core::primitive::u64,
            #settings.precision,
        )
    }
}

/// What a backend runs. The reserve is that of the first card, or of an unknown one.
fn compiled(source: &Source, planned: &Planned<'_>, plan: &TokenStream) -> TokenStream {
    let settings = settings(source, planned);
    let program = &planned.names.program;
    let step = step(source, planned);
    quote! {
        ::gpumem::core::network::Compiled {
            program: #program,
            step: &#step,
            offsets: &#plan.packing.offsets,
            budget: #plan.budget(match #settings.cards {
                [card, ..] => card.reserve(),
                [] => ::gpumem::core::cards::Architecture::Unknown.reserve_mib() << 20,
            }),
        }
    }
}

fn statics(source: &Source, planned: &Planned<'_>) -> TokenStream {
    let (plan_name, compiled_name) =
        (format_ident!("__{}_PLAN", planned.prefix), format_ident!("__{}", planned.prefix));
    let transients = Literal::usize_unsuffixed(planned.transients);
    let plan = plan(source, planned);
    let compiled = compiled(source, planned, &quote!(#plan_name));
    let step = step(source, planned);
    quote! {
        #[allow(long_running_const_eval)]
        static #plan_name: ::gpumem::core::budget::Plan<#transients> = #plan;
        static #compiled_name: ::gpumem::core::network::Compiled = #compiled;
        #[allow(long_running_const_eval)]
        const _: () = ::gpumem::core::budget::assert_packed(&#step, &#plan_name);
    }
}

fn associated(source: &Source, planned: &Planned<'_>) -> TokenStream {
    let (plan_name, compiled_name) =
        (format_ident!("__{}_PLAN", planned.prefix), format_ident!("__{}", planned.prefix));
    let transients = Literal::usize_unsuffixed(planned.transients);
    let plan = plan(source, planned);
    let compiled = compiled(source, planned, &quote!(Self::#plan_name));
    let step = step(source, planned);
    quote! {
        #[allow(long_running_const_eval)]
        const #plan_name: &'static ::gpumem::core::budget::Plan<#transients> = &#plan;
        #[allow(long_running_const_eval)]
        const #compiled_name: &'static ::gpumem::core::network::Compiled = {
            ::gpumem::core::budget::assert_packed(&#step, Self::#plan_name);
            &#compiled
        };
    }
}

/// The fit check. rustc underlines a const panic at the call that has `#[track_caller]`: from the span of its first token to
/// that of its last group.
fn check(source: &Source, planned: &Planned<'_>) -> TokenStream {
    let Place { start, end } = refusal_place(source, planned.reading);
    let settings = settings(source, planned);
    let step = step(source, planned);
    let name = source.declaration.name.unraw().to_string();
    let plan_name = format_ident!("__{}_PLAN", planned.prefix);
    let plan = match &source.declaration.batch {
        Some(parameter) => quote!(__Plans::<#parameter>::#plan_name),
        None => quote!(&#plan_name),
    };
    let transients = Literal::usize_unsuffixed(planned.transients);
    let arguments = quote! {
        #name,
        &#step,
        #plan,
        #settings.cards,
        ::gpumem::SELECTED,
        ::core::option_env!("GPUMEM_VRAM"),
        #settings.headroom
    };
    let mut group = Group::new(proc_macro2::Delimiter::Parenthesis, arguments);
    group.set_span(end);
    let mut call = quote_spanned!(start=> ::gpumem::core::refusal::check::<#transients>);
    call.extend([TokenTree::from(group)]);
    call
}

/// The record in the object section `.gpumem`.
fn record(trains: bool, inference: &TokenStream) -> TokenStream {
    let training = if trains {
        quote!(::core::option::Option::Some(&__TRAINING.budget))
    } else {
        quote!(::core::option::Option::None)
    };
    section(&quote! {
        ::gpumem::core::record::record(__NAME, #training, ::core::option::Option::Some(&(#inference).budget))
    })
}

/// A static that survives into the binary.
pub(crate) fn section(value: &TokenStream) -> TokenStream {
    quote! {
        #[used]
        #[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__gpumem"))]
        #[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".gpumem"))]
        static __RECORD: [::core::primitive::u8; ::gpumem::core::record::RECORD_BYTES] = #value;
    }
}
