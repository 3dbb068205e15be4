//! Generates plans, budgets and checks, each of which is evaluated once.

use super::numbers::{self, Numbers};
use super::planned::{Planned, associated, called_at, check, limited, statics, target_cards};
use super::tables::Names;
use super::training::{Trained, trained, value};
use super::{Programs, Readings, generics, record, refusal_place, steps};
use crate::settings::reading::Reading;
use crate::syntax::Source;
use gpumem_core::memory::refusal::Remedies;
use gpumem_core::program::Program;
use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{format_ident, quote};

/// The generated parts of the implementation of `Network` that hold programs.
pub(super) struct Plans {
    /// Items that come before the implementation.
    pub(super) items: TokenStream,
    /// The batches of `batch: Largest`. `None` if no constant has it.
    pub(super) largest: Option<TokenStream>,
    /// The list of training steps. `None` unless they have names of their own.
    pub(super) steps: Option<TokenStream>,
    pub(super) training: TokenStream,
    pub(super) inference: TokenStream,
    pub(super) evaluation: TokenStream,
    /// The value of `CHECKED`.
    pub(super) checked: TokenStream,
}

pub(super) fn plans(source: &Source, readings: &Readings<'_>, (programs, others): (&Programs, &[Programs])) -> Plans {
    let planned = |prefix: &str, program: &Program, structure: &str, reading: Option<_>, is_checked: bool| Planned {
        prefix: prefix.to_string(),
        names: Names::new(structure),
        transients: program.transients().count(),
        settings: reading.map_or_else(|| Ident::new("INFER", Span::call_site()), Reading::ident),
        trains: !is_checked,
        reading,
        is_checked,
        remedies: Remedies::UNKNOWN,
    };
    let Trained { only: mut all, mut levels, leveled, mut checks, value: training } =
        trained(source, readings, programs);
    // The forward pass is planned at the batch of `INFER` and, if the network trains, at the batch of the training step too.
    let infers = readings.infer.is_some() || readings.train().is_none();
    if infers {
        let planned = planned("INFERENCE", &programs.inference, "INFERENCE", readings.infer.as_ref(), true);
        checks.push(check(source, &planned));
        all.push(planned);
    }
    if readings.train().is_some() {
        let (program, structure) = match &programs.evaluation {
            Some(own) => (own, "EVALUATION"),
            None => (&programs.inference, "INFERENCE"),
        };
        all.push(planned("EVALUATION", program, structure, readings.train(), false));
    }
    let one_of = |prefix: &str, otherwise: &str| {
        let is_there = all.iter().any(|planned| planned.prefix == prefix);
        value(source, if is_there { prefix } else { otherwise })
    };
    let is_trained = programs.training.is_some();
    let named = !programs.blueprint.parts.all.is_empty();
    let steps = named.then(|| steps::list(source, readings, &training, others));
    let largest_of = |steps: TokenStream| quote!(__gpumem::__private::network::StepInfo::largest(#steps).compiled);
    let some = |value: TokenStream| quote!(::core::option::Option::Some(#value));
    let (_, path) = generics(source);
    let training = match (is_trained, named) {
        (true, true) => some(largest_of(quote!(<#path as __gpumem::Network>::STEPS))),
        (true, false) => some(training),
        (false, _) => quote!(::core::option::Option::None),
    };
    let numbers = readings.train().map(|reading| numbers::checks(source, reading, programs)).unwrap_or_default();
    let Numbers { settled, of_batch } = numbers;
    checks.extend(of_batch);
    if named && source.declaration.batch.is_some() {
        checks.push(quote!(_ = <#path as __gpumem::Network>::STEPS));
    }
    let (inference, evaluation) = (one_of("INFERENCE", "EVALUATION"), one_of("EVALUATION", "INFERENCE"));
    let record =
        record::of_network(source, readings, programs, [&training, &quote!(::core::option::Option::Some(#inference))]);
    let (items, checked) = match &source.declaration.batch {
        Some(parameter) => {
            let constants = all.iter().map(|planned| associated(source, planned));
            let items = quote! {
                struct __Plans<const #parameter: ::core::primitive::usize>;
                impl<const #parameter: ::core::primitive::usize> __Plans<#parameter> {
                    #leveled
                    #(#constants)*
                }
                #(const _: () = #settled;)*
                #record
            };
            (items, quote!({ #(#checks;)* }))
        }
        None => {
            let statics = all.iter().map(|planned| statics(source, planned));
            let has_one = is_trained && levels.is_empty();
            let runs = has_one.then(|| {
                quote!(
                    const __TRAINING_RUNS: ::core::primitive::bool = __TRAINING_PLAN.is_packed;
                )
            });
            let items = quote! {
                #leveled
                #runs
                #(#statics)*
                #(const _: () = #settled;)*
                #(#[allow(long_running_const_eval)] const _: () = #checks;)*
                #record
            };
            (items, quote!(()))
        }
    };
    // With recomputation, the last level recomputes most, so the largest batch is searched with it.
    let last = levels.pop();
    let largest = largest(source, all.iter().chain(&last), programs.found);
    Plans { items, largest, training, steps, inference, evaluation, checked }
}

/// Returns the name of a copy of a constant whose batch is 1.
pub(super) fn of_one_sample(constant: &Ident) -> Ident {
    format_ident!("__{constant}_OF_ONE")
}

/// Returns the largest batches that fit, for constants with `batch: Largest`. Their errors underline that field.
fn largest<'p>(
    source: &Source,
    all: impl Iterator<Item = &'p Planned<'p>>,
    found: Option<[u64; 2]>,
) -> Option<TokenStream> {
    let batches: Vec<TokenStream> = all
        .filter(|planned| planned.is_checked && planned.reading.is_some_and(|reading| reading.takes_largest))
        .map(|planned| {
            let constant = &planned.settings;
            let (_, path) = generics(source);
            let of_one = of_one_sample(constant);
            let settings = quote!(<#path>::#of_one);
            let (tables, target_cards) = (limited(planned, &settings), target_cards(&settings));
            let transients = Literal::usize_unsuffixed(planned.transients);
            let (refusal, asked) =
                (quote!(__gpumem::__private::memory::refusal), quote!(&#tables, #settings.precision, &#target_cards));
            let (function, arguments) = match found.filter(|_| planned.trains) {
                Some(found) => {
                    let [batch, room] = found.map(Literal::u64_unsuffixed);
                    (quote!(#refusal::largest_found::<#transients>), quote!(#asked, [#batch, #room]))
                }
                None => (quote!(#refusal::largest_fitting::<#transients>), asked),
            };
            let batch = called_at(function, arguments, refusal_place(source, planned.reading));
            quote! {
                #[allow(long_running_const_eval)]
                const #constant: ::core::primitive::u64 = match #batch {
                    // No sample fits: a batch of one is planned, and its refusal reports the bytes.
                    0 => 1,
                    __batch => __batch,
                };
            }
        })
        .collect();
    let (generics, path) = generics(source);
    (!batches.is_empty()).then(|| {
        quote! {
            #[automatically_derived]
            impl #generics __gpumem::__private::network::Largest for #path {
                #(#batches)*
            }
        }
    })
}
