//! Generates plans, budgets and checks, each of which is evaluated once.

use super::levels::{Leveled, leveled};
use super::numbers::{self, Numbers};
use super::remedies::known;
use super::tables::Names;
use super::{Programs, Readings, generics, record, refusal_place, steps};
use crate::settings::reading::Reading;
use crate::syntax::{Place, Source};
use gpumem_core::memory::refusal::Remedies;
use gpumem_core::program::Program;
use proc_macro2::{Group, Ident, Literal, Span, TokenStream, TokenTree};
use quote::{format_ident, quote};
use syn::ext::IdentExt as _;

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

/// One program at the batch and precision of one constant.
pub(super) struct Planned<'a> {
    /// Prefix of the generated names.
    pub(super) prefix: String,
    names: Names,
    pub(super) transients: usize,
    /// The constant that has the batch and the precision.
    settings: Ident,
    /// True if that constant belongs to a training step.
    trains: bool,
    pub(super) reading: Option<&'a Reading<'a>>,
    /// True if the program is checked against the cards of its constant.
    is_checked: bool,
    /// Programs that would fit if this one is refused. They are named in the message.
    pub(super) remedies: Remedies,
}

/// A training step.
pub(super) struct Trained<'a> {
    /// The program of a step without recompute levels. Empty for others.
    pub(super) only: Vec<Planned<'a>>,
    /// The programs of a step with recompute levels, between which const evaluation chooses.
    pub(super) levels: Vec<Planned<'a>>,
    pub(super) leveled: Option<TokenStream>,
    /// Its checks against the cards, as expressions.
    pub(super) checks: Vec<TokenStream>,
    /// An expression for the compiled program that runs. It names an item that does not exist if the network does not train.
    pub(super) value: TokenStream,
}

/// Generates the first training step among `readings`.
pub(super) fn trained<'a>(source: &Source, readings: &'a Readings<'_>, programs: &Programs) -> Trained<'a> {
    let reading = readings.train();
    let settings = || reading.map_or_else(|| Ident::new("TRAIN", Span::call_site()), Reading::ident);
    let planned = |prefix: &str, program: &Program, structure: &str| Planned {
        prefix: prefix.to_string(),
        names: Names::new(structure),
        transients: program.transients().count(),
        settings: settings(),
        trains: true,
        reading,
        is_checked: true,
        remedies: programs.remedies,
    };
    let (mut only, mut levels) = (Vec::new(), Vec::new());
    match &programs.training {
        Some(program) if programs.levels.is_empty() => only.push(planned("TRAINING", program, "TRAINING")),
        Some(program) => {
            levels.push(planned("TRAINING_0", program, "TRAINING"));
            for (level, program) in &programs.levels {
                let name = format!("TRAINING_{level}");
                levels.push(planned(&name, program, &name));
            }
        }
        None => {}
    }
    let mut checks: Vec<TokenStream> = only.iter().map(|planned| check(source, planned)).collect();
    let leveled = (!levels.is_empty()).then(|| leveled(source, &levels, programs)).map(|Leveled { items, check }| {
        checks.push(check);
        items
    });
    Trained { only, levels, leveled, checks, value: value(source, "TRAINING") }
}

/// Returns an expression for the compiled program of this prefix.
fn value(source: &Source, prefix: &str) -> TokenStream {
    let compiled = format_ident!("__{prefix}");
    match &source.declaration.batch {
        Some(parameter) => quote!(__Plans::<#parameter>::#compiled),
        None => quote!(&#compiled),
    }
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
            let (tables, aim) = (aimed(planned, &settings), aim(&settings));
            let transients = Literal::usize_unsuffixed(planned.transients);
            let (refusal, asked) =
                (quote!(__gpumem::__private::memory::refusal), quote!(&#tables, #settings.precision, &#aim));
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

/// Returns the constant that has a plan's batch and precision, as `Vgg16::TRAIN`.
pub(super) fn settings(source: &Source, planned: &Planned<'_>) -> TokenStream {
    let (_, path) = generics(source);
    let constant = &planned.settings;
    quote!(<#path>::#constant)
}

/// Returns an expression for the cards, headroom and environment that a program is checked against.
pub(super) fn aim(settings: &TokenStream) -> TokenStream {
    quote! {
        __gpumem::__private::memory::refusal::Aim {
            cards: #settings.cards,
            selected: __gpumem::SELECTED,
            headroom: #settings.headroom,
            environment: __gpumem::__environment!(),
        }
    }
}

/// Returns the name of the tables whose scratch is limited.
pub(super) fn aimed_name(planned: &Planned<'_>) -> Ident {
    format_ident!("__{}_AIMED", planned.prefix)
}

/// Returns the tables, with the scratch limits for the network's target cards.
pub(super) fn aimed(planned: &Planned<'_>, settings: &TokenStream) -> TokenStream {
    let (tables, aim) = (&planned.names.tables, aim(settings));
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
    quote! {
        #tables.with_workspaces(__gpumem::__private::memory::tables::Workspaces::aimed(&#aim, #convolution))#parts
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
    let (transients, aim) = (Literal::usize_unsuffixed(planned.transients), aim(&settings(source, planned)));
    match (&source.declaration.batch, planned.is_checked) {
        (Some(_), _) => quote!(::core::primitive::u64::MAX),
        (None, true) => quote!(__gpumem::__private::memory::refusal::limit(#transients, &#aim)),
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
            budget: #plan.budget(match #settings.cards {
                [__card, ..] => __card.reserve(),
                [] => __gpumem::cards::UNKNOWN_RESERVE,
            }),
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
    let (aimed_name, aimed) = (aimed_name(planned), aimed(planned, &settings(source, planned)));
    let tables = quote!(&#aimed_name);
    let plan = plan(source, planned, &tables);
    let compiled = compiled(source, planned, &tables, &quote!(#plan_name), &only_level());
    quote! {
        static #aimed_name: __gpumem::__private::memory::tables::Tables = #aimed;
        #[allow(long_running_const_eval)]
        static #plan_name: __gpumem::__private::memory::budget::Plan<#transients> = #plan;
        static #compiled_name: __gpumem::__private::memory::Compiled = #compiled;
        #[allow(long_running_const_eval)]
        const _: () = __gpumem::__private::memory::budget::assert_packed(#tables, &#plan_name);
    }
}

pub(super) fn associated(source: &Source, planned: &Planned<'_>) -> TokenStream {
    let (plan_name, compiled_name) =
        (format_ident!("__{}_PLAN", planned.prefix), format_ident!("__{}", planned.prefix));
    let transients = Literal::usize_unsuffixed(planned.transients);
    let (aimed_name, aimed) = (aimed_name(planned), aimed(planned, &settings(source, planned)));
    let tables = quote!(Self::#aimed_name);
    let plan = plan(source, planned, &tables);
    let compiled = compiled(source, planned, &tables, &quote!(Self::#plan_name), &only_level());
    quote! {
        const #aimed_name: &'static __gpumem::__private::memory::tables::Tables = &#aimed;
        #[allow(long_running_const_eval)]
        const #plan_name: &'static __gpumem::__private::memory::budget::Plan<#transients> = &#plan;
        #[allow(long_running_const_eval)]
        const #compiled_name: &'static __gpumem::__private::memory::Compiled = {
            __gpumem::__private::memory::budget::assert_packed(#tables, Self::#plan_name);
            &#compiled
        };
    }
}

/// Returns the check that a program fits.
///
/// rustc underlines a const panic at the call that has `#[track_caller]`: from the span of its first token to that of its last group.
fn check(source: &Source, planned: &Planned<'_>) -> TokenStream {
    let Place { start, end } = refusal_place(source, planned.reading);
    let settings = settings(source, planned);
    let name = source.declaration.name.unraw().to_string();
    let (plan_name, aimed_name) = (format_ident!("__{}_PLAN", planned.prefix), aimed_name(planned));
    let [tables, plan] = [aimed_name, plan_name].map(|name| match &source.declaration.batch {
        Some(parameter) => quote!(__Plans::<#parameter>::#name),
        None => quote!(&#name),
    });
    let (transients, aim) = (Literal::usize_unsuffixed(planned.transients), aim(&settings));
    let arguments = quote! {
        #name,
        #tables,
        #plan,
        &#aim
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
