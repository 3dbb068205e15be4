//! Turns the graph of a network into tokens.
//!
//! The structure is written as literals: plain tables for const evaluation, one byte string for each program. Numbers of `TRAIN` and `INFER` stay
//! const expressions. A network that is generic over its batch gets associated constants instead of statics; everything else is equal.
//!
//! Variables of generated code begin with `__`, because a pattern may not have the name of a constant, a static or a struct of the user.

mod assumed_sizes;
mod blueprint;
mod budget_docs;
mod docs;
mod editor;
mod fallback;
mod levels;
mod numbers;
mod operations;
mod planned;
mod plans;
mod proofs;
mod record;
mod remedies;
mod steps;
mod tables;
mod target_cards;
mod training;
mod types;

pub(crate) use assumed_sizes::NOMINAL;
pub(crate) use blueprint::blueprint;
pub(crate) use budget_docs::documentation;
pub(crate) use editor::links_of_blocks;
pub(crate) use operations::operations;
pub(crate) use planned::called_at;
pub(crate) use record::{column, section, written_at};
pub(crate) use target_cards::{largest_batch, room_of};

use crate::errors::Errors;
use crate::resolve::{Declared, Resolved};
use crate::settings::reading::Reading;
use crate::settings::steps::function;
use crate::syntax::{Constant, Declaration, Facade, Place, Settings, Source};
use blueprint::{blueprints, check_cache, check_inputs, copy_settled};
use gpumem_core::graph::NodeId;
use gpumem_core::lower::{Blueprint, Cached, Fitted, LowerError, Term};
use gpumem_core::memory::levels::available_within;
use gpumem_core::memory::plan::PackedRanges;
use gpumem_core::memory::refusal::Remedies;
use gpumem_core::program::Program;
use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens as _, quote};
use syn::ext::IdentExt as _;
use target_cards::{Found, Known};
use types::{inputs_of, served, served_batch, tensors, types, wired};

/// The settings in the constants of a network.
#[derive(Default)]
pub(crate) struct Readings<'s> {
    /// The training steps: `TRAIN`, then those of other names.
    pub(crate) trains: Vec<Reading<'s>>,
    pub(crate) infer: Option<Reading<'s>>,
}

impl<'s> Readings<'s> {
    /// Returns the first training step, or `None` if there is none.
    pub(crate) fn train(&self) -> Option<&Reading<'s>> {
        self.trains.first()
    }

    /// Returns the settings of one training step alone.
    pub(crate) fn only(&self, train: &Reading<'s>) -> Readings<'s> {
        Readings { trains: vec![train.clone()], infer: None }
    }

    /// Returns the terms of the losses of all training steps.
    pub(crate) fn terms(&self) -> impl Iterator<Item = &Term> {
        self.trains.iter().flat_map(|train| &train.loss.terms)
    }

    /// Returns how `INFER` splits a sequence over calls. `None` if it has no cache.
    pub(crate) fn cached(&self) -> Option<Cached> {
        self.infer.as_ref()?.cached.map(|(cached, _)| cached)
    }

    /// Returns the constants that are written: the training steps, then `INFER`.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Reading<'s>> {
        self.trains.iter().chain(&self.infer)
    }

    /// Returns the constant whose batch is in the network's types: the first training step, or else `INFER`.
    pub(crate) fn primary(&self) -> Option<&Reading<'s>> {
        self.all().next()
    }
}

/// The programs of a network.
struct Programs {
    training: Option<Program>,
    /// Programs of the same step that recompute more and more, each with its level number.
    levels: Vec<(u64, Program)>,
    level_count: u64,
    /// The batch of `batch: Largest`, and the arena bytes for which it is the largest. `None` if the macro did not search for it.
    found: Option<[u64; 2]>,
    /// Packings of some of the programs, known because the macro packed these programs to choose between them.
    packed: Vec<PackedRanges>,
    /// Programs that would fit if the training step is refused. They are named in the message.
    remedies: Remedies,
    inference: Program,
    /// The forward pass at the sizes of the training step, if it is another program than that of `INFER`.
    evaluation: Option<Program>,
    /// The forward pass of one time step, if that of `INFER` has a cache and takes several at once.
    one_step: Option<Program>,
    /// The blueprint from which all of them are lowered.
    blueprint: Blueprint,
}

/// Expands the network, or reports its mistakes and expands a stand-in.
pub(crate) fn expand(source: &Source, resolved: &Resolved, readings: &Readings<'_>, mut errors: Errors) -> TokenStream {
    if errors.is_empty()
        && let (Some(outputs), Some(inputs), Some(promised)) = (&resolved.outputs, &resolved.inputs, &resolved.promised)
    {
        if check_cache(readings, (inputs, promised), &mut errors).is_none() {
            return fallback::network(source, readings, errors);
        }
        let made = all_programs(source, resolved, outputs, readings).and_then(|(first, others)| {
            check_inputs(source, &first.blueprint)?;
            Ok((first, others))
        });
        match made {
            Ok((first, others)) => {
                return network(source, resolved, readings, (&first, &others), (inputs, promised));
            }
            Err(error) => report(source, resolved, &error, &mut errors),
        }
    }
    fallback::network(source, readings, errors)
}

/// Lowers the programs of the first training step, and those of each further one.
fn all_programs(
    source: &Source,
    resolved: &Resolved,
    outputs: &[NodeId],
    readings: &Readings<'_>,
) -> Result<(Programs, Vec<Programs>), LowerError> {
    let (blueprint, steps) = blueprints(source, resolved, outputs, readings);
    let mut first = programs(readings, blueprint)?;
    let mut others = Vec::new();
    for (step, train) in steps.into_iter().zip(&readings.trains).skip(1) {
        others.push(programs(&readings.only(train), step)?);
    }
    copy_settled(&mut first.blueprint, others.iter().map(|other| &other.blueprint));
    Ok((first, others))
}

fn programs(readings: &Readings<'_>, mut blueprint: Blueprint) -> Result<Programs, LowerError> {
    blueprint.settle_conv_norm(&assumed_sizes::least(readings))?;
    let infers = readings.infer.is_some() || readings.train().is_none();
    let has_both = readings.train().is_some() && infers && blueprint.infers_apart();
    let known = target_cards::known(readings);
    let (found, (training, levels, level_count, packed)) = match target_cards::largest(readings, &blueprint)? {
        Some(Found { batch, room, fitted }) => (Some([batch, room]), between(fitted)),
        None => (None, trainings(readings, &blueprint, known.as_ref())?),
    };
    let leanest = levels.last().map(|(_, program)| program).or(training.as_ref());
    let remedies =
        leanest.zip(known).map(|(program, Known { setting, room })| blueprint.remedies(program, &setting, room));
    Ok(Programs {
        training,
        levels,
        level_count,
        found,
        packed,
        remedies: remedies.unwrap_or(Remedies::UNKNOWN),
        inference: if infers { blueprint.inference() } else { blueprint.evaluation() }?,
        evaluation: has_both.then(|| blueprint.evaluation()).transpose()?,
        one_step: blueprint.decoding()?,
        blueprint,
    })
}

/// The programs of a training step. They are the plain one, each further level with its number, the count of levels, and packings that are known.
type Trainings = (Option<Program>, Vec<(u64, Program)>, u64, Vec<PackedRanges>);

/// Lowers the programs of the training step between which const evaluation chooses.
///
/// If all sizes are literals, the macro chooses, and at most one program remains besides the plain step.
fn trainings(readings: &Readings<'_>, blueprint: &Blueprint, known: Option<&Known>) -> Result<Trainings, LowerError> {
    let checkpoint = blueprint.checkpoint();
    let known = known.filter(|_| blueprint.decides());
    if let Some(&Known { setting, room }) = known
        && let Some(fitted) = blueprint.fitted(&setting, |budget| available_within(checkpoint, budget, room))?
    {
        return Ok(between(fitted));
    }
    let mut all = blueprint.trainings(&assumed_sizes::nominal(readings))?.into_iter();
    let (plain, levels) = (all.next(), (1..).zip(all).collect::<Vec<_>>());
    let count = levels.len() as u64 + 1;
    Ok((plain, levels, count, Vec::new()))
}

/// Returns the plain step and, if that does not fit, the level that does.
fn between(Fitted { plain, leaner, packed, .. }: Fitted) -> Trainings {
    let count = leaner.as_ref().map_or(1, |leaner| leaner.number[1]);
    (Some(plain), leaner.map(|leaner| (leaner.number[0], leaner.program)).into_iter().collect(), count, packed)
}

fn report(source: &Source, resolved: &Resolved, error: &LowerError, errors: &mut Errors) {
    match error.row {
        Some(row) => {
            let name = &resolved.graph.rows[row].kind;
            errors.add(resolved.places[row], format!("layer {row} `{name}` {}", error.message));
        }
        None => errors.add(&source.declaration.name, error.message.clone()),
    }
}

fn network(
    source: &Source,
    resolved: &Resolved,
    readings: &Readings<'_>,
    (programs, others): (&Programs, &[Programs]),
    (inputs, promised): (&[Declared], &[Declared]),
) -> TokenStream {
    let step_types = steps::types(source, readings, programs, inputs);
    let inputs = &*inputs_of(programs, inputs);
    let table = programs.blueprint.layers(programs.training.as_ref().unwrap_or(&programs.inference));
    let docs = docs::layer_table(&table);
    let needs = budget_docs::attribute(source, readings, programs);
    let declaration = declaration(source, &docs, needs);
    let constants = constants(source, readings);
    let structure = tables::structure(programs, &table, &assumed_sizes::Guesses::new(readings, programs));
    let plans = plans::plans(source, readings, (programs, others));
    let types = types(source, readings, inputs, promised);
    let served = served(source, readings, (inputs, promised));
    let links = editor::links(source, true);
    let proofs = proofs::proofs(resolved, readings, (inputs, promised));
    let (generics, path) = generics(source);
    let name = source.declaration.name.unraw().to_string();
    let (file, line) = record::declared_at(source, readings);
    let cached = cached(readings, programs);
    let plans::Plans { items, largest, training, steps, inference, evaluation, checked } = plans;
    let primary = match (&steps, readings.train()) {
        (Some(_), _) => quote!(__gpumem::__private::network::StepInfo::largest(Self::STEPS).train),
        (None, Some(_)) => quote!(<#path>::TRAIN),
        (None, None) => quote!(<#path>::INFER),
    };
    let steps = steps.map(|steps| quote!(const STEPS: &'static [__gpumem::__private::network::StepInfo] = #steps;));
    let train = match source.train().filter(|settings| settings.name == "TRAIN") {
        Some(_) => quote!(::core::option::Option::Some(<#path>::TRAIN)),
        None => quote!(::core::option::Option::None),
    };
    let conditions = conditions(source);
    let import = source.facade.import();
    let operations = operations::has_functions(&source.module).then(|| {
        let operations = operations(&source.module, &quote!(__gpumem));
        quote!(const OPERATIONS: &'static __gpumem::operation::Operations = &#operations;)
    });
    let runs = (source.trains.is_empty() && source.infer.is_none()).then(|| {
        quote!(
            const RUNS: ::core::primitive::bool = false;
        )
    });
    quote! {
        #declaration
        #constants
        #conditions
        #[allow(long_running_const_eval, clippy::all, clippy::pedantic)]
        const _: () = {
            #import
            #structure
            #items
            #largest
            #[automatically_derived]
            impl #generics __gpumem::Network for #path {
                const NAME: &'static ::core::primitive::str = #name;
                const PLACE: (&'static ::core::primitive::str, ::core::primitive::u32) = (#file, #line);
                const LAYERS: &'static [__gpumem::__private::network::LayerInfo] = &__LAYERS;
                #steps
                const TRAINING: ::core::option::Option<&'static __gpumem::__private::memory::Compiled<'static>> = #training;
                const INFERENCE: &'static __gpumem::__private::memory::Compiled<'static> = #inference;
                const EVALUATION: &'static __gpumem::__private::memory::Compiled<'static> = #evaluation;
                #cached
                const TRAIN: ::core::option::Option<__gpumem::__private::Train> = #train;
                const HEADROOM: ::core::primitive::u64 = #primary.headroom;
                const CARDS: &'static [__gpumem::cards::Card] = #primary.cards;
                #runs
                #operations
                const BLUEPRINT: &'static [::core::primitive::u8] = __BLUEPRINT;
                #[allow(long_running_const_eval)]
                const CHECKED: () = #checked;
                #types
            }
            #step_types
            #served
            #proofs
        };
        #conditions
        #links
    }
}

/// Returns the `CACHED` constant of a network whose forward pass keeps a cache. `None` for others.
fn cached(readings: &Readings<'_>, programs: &Programs) -> Option<TokenStream> {
    let Cached { steps, chunk } = readings.cached()?;
    let [steps, chunk] = [steps, chunk].map(Literal::u64_unsuffixed);
    let one_step = match &programs.one_step {
        Some(program) => {
            let bytes = Literal::byte_string(&program.encode());
            quote!(::core::option::Option::Some(#bytes))
        }
        None => quote!(::core::option::Option::None),
    };
    Some(quote! {
        const CACHED: ::core::option::Option<__gpumem::__private::network::Cached> =
            ::core::option::Option::Some(__gpumem::__private::network::Cached {
                steps: #steps,
                chunk: #chunk,
                one_step: #one_step,
            });
    })
}

/// Returns the `#[cfg(..)]` attributes of the struct, which apply to the whole network.
pub(crate) fn conditions(source: &Source) -> TokenStream {
    let conditions = source.declaration.attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    quote!(#(#conditions)*)
}

/// Returns the struct, the public constants and the imports of a network.
fn declaration(source: &Source, docs: &str, needs: Option<TokenStream>) -> TokenStream {
    let Declaration { attributes, visibility, name, batch, default } = &source.declaration;
    let default = default.as_ref().map(|default| quote!(= #default));
    let generics = batch.as_ref().map(|batch| quote!(<const #batch: ::core::primitive::usize #default>));
    let conditions = conditions(source);
    let imports = source.module.imports.iter().map(|import| quote!(#conditions #[allow(unused_imports)] #import));
    let public =
        source.module.constants.iter().filter(|constant| !matches!(constant.visibility, syn::Visibility::Inherited));
    let own = private_constants(source);
    let public = public.map(|constant| {
        let Constant { attributes, visibility, name, kind, tokens, .. } = constant;
        let value = match own.is_empty() {
            true => tokens.clone(),
            // Braces around the value: at the end of a block `{ 4 } / 2` would be read as two expressions.
            false => quote!({ #own const __VALUE: #kind = #tokens; __VALUE }),
        };
        quote!(#conditions #(#attributes)* #visibility const #name: #kind = #value;)
    });
    let docs = (!docs.is_empty()).then(|| quote!(#[doc = #docs]));
    quote! {
        #(#imports)*
        #(#public)*
        #(#attributes)*
        #docs
        #needs
        #visibility struct #name #generics;
    }
}

/// Returns the constants without a visibility. They exist only inside the values of others, so two networks of one module may use the same names.
fn private_constants(source: &Source) -> TokenStream {
    let private =
        source.module.constants.iter().filter(|constant| matches!(constant.visibility, syn::Visibility::Inherited));
    let items = private.map(|constant| {
        let Constant { attributes, name, kind, tokens, .. } = constant;
        quote!(#(#attributes)* #[allow(dead_code)] const #name: #kind = #tokens;)
    });
    items.collect()
}

/// Returns the generics of an `impl` and the network as a type: `<const BATCH: usize>` and `Vgg16<BATCH>`.
fn generics(source: &Source) -> (TokenStream, TokenStream) {
    let name = &source.declaration.name;
    match &source.declaration.batch {
        Some(batch) => (quote!(<const #batch: ::core::primitive::usize>), quote!(#name<#batch>)),
        None => (TokenStream::new(), quote!(#name)),
    }
}

/// Returns `TRAIN` and `INFER` as constants of the struct, and the functions that load the network onto a device.
fn constants(source: &Source, readings: &Readings<'_>) -> TokenStream {
    let (generics, path) = generics(source);
    let own = private_constants(source);
    let (Facade(facade), import) = (&source.facade, source.facade.import());
    let constant = |name: Ident, kind: &str, settings: Option<&Settings>, reading: Option<&Reading<'_>>, docs: &str| {
        let kind = Ident::new(kind, Span::call_site());
        let fields = reading.map(|reading| &reading.fields);
        let rest =
            (!reading.is_some_and(|reading| reading.complete)).then(|| quote!(..__gpumem::__private::#kind::DEFAULT));
        let attributes = settings.map(|settings| settings.attributes.as_slice()).unwrap_or_default();
        let docs = quote!(#[doc = #docs] #(#attributes)* #[allow(dead_code)]);
        let written = quote!({ #import #own __gpumem::__private::#kind { #fields #rest } });
        if !reading.is_some_and(|reading| reading.takes_largest) {
            return quote!(#docs pub const #name: #facade::__private::#kind = #written;);
        }
        // The largest batch depends on the cards, and they are in the same constant. So a copy with a batch of one names the cards.
        let of_one = plans::of_one_sample(&name);
        quote! {
            #[doc(hidden)]
            #[allow(dead_code)]
            const #of_one: #facade::__private::#kind = #written;
            #docs
            pub const #name: #facade::__private::#kind = #facade::__private::#kind {
                batch: <Self as #facade::__private::network::Largest>::#name as ::core::primitive::usize,
                ..Self::#of_one
            };
        }
    };
    let trains = source.trains.iter().zip(&readings.trains).map(|(settings, reading)| {
        let docs = match settings.name == "TRAIN" {
            true => "How the network is trained.".to_string(),
            false => format!("How [`{}`](Self::{0}) trains the network.", function(&settings.name)),
        };
        constant(reading.ident(), "Train", Some(settings), Some(reading), &docs)
    });
    let functions = steps::functions(source);
    let infer = (source.infer.is_some() || source.trains.is_empty()).then(|| {
        let docs = "How the network is used without training.";
        constant(Ident::new("INFER", Span::call_site()), "Infer", source.infer.as_ref(), readings.infer.as_ref(), docs)
    });
    let conditions = conditions(source);
    let shares = source.train().map(|_| {
        quote! {
            /// Loads the training step and the forward pass of `INFER` over one set of weights, in one arena.
            ///
            /// `infer` runs the forward pass, at the batch of `INFER`.
            ///
            /// # Errors
            /// As for `on`, or an `INFER` with another precision, a larger batch or more activations than `TRAIN`.
            #[allow(dead_code)]
            pub fn shared_on<Device: #facade::__private::run::device::Device>(
                target_device: &Device,
            ) -> ::core::result::Result<#facade::Net<Self, Device>, #facade::Error> {
                #facade::Net::load_shared(target_device)
            }
        }
    });
    let serve = served_batch(source, readings).map(|_| {
        let weights = format!(
            " needs. [`Net::copy_from`]({}::Net::copy_from) copies the weights of a trained network into it.",
            facade.to_string().replace(' ', "")
        );
        quote! {
            #shares

            /// Loads the forward pass alone onto `device`, at the batch and precision of `INFER`, without the memory that training
            #[doc = #weights]
            ///
            /// # Errors
            /// Too little memory, or a precision that the device cannot run.
            #[allow(dead_code)]
            pub fn infer_on<Device: #facade::__private::run::device::Device>(
                target_device: &Device,
            ) -> ::core::result::Result<#facade::Net<#facade::__private::network::Serving<Self>, Device>, #facade::Error> {
                #facade::Net::load(target_device)
            }
        }
    });
    quote! {
        #conditions
        #[automatically_derived]
        #[allow(clippy::all)]
        impl #generics #path {
            #(#trains)*
            #functions
            #infer
            #serve

            /// Loads the network onto `device`: one allocation of exactly the computed size.
            ///
            /// # Errors
            /// Too little memory, or a precision that the device cannot run.
            #[allow(dead_code)]
            pub fn on<Device: #facade::__private::run::device::Device>(
                target_device: &Device,
            ) -> ::core::result::Result<#facade::Net<Self, Device>, #facade::Error> {
                #facade::Net::load(target_device)
            }
        }
    }
}

/// Returns the batch for a type: a literal if it is one, so that messages show the number that was written.
fn batch(source: &Source, readings: &Readings<'_>) -> TokenStream {
    batch_of(source, readings.primary())
}

/// Returns the batch of one constant for a type.
fn batch_of(source: &Source, reading: Option<&Reading<'_>>) -> TokenStream {
    if let Some(parameter) = &source.declaration.batch {
        return quote!(#parameter);
    }
    // A rank is handed its part of the batch.
    let ranks = reading.map_or(1, |reading| reading.descent.ranks.count).max(1);
    match reading.map_or(Some(1), |reading| reading.known_batch) {
        Some(batch) => Literal::u64_unsuffixed(batch / ranks).into_token_stream(),
        None => {
            let constant = reading.map(Reading::ident);
            let name = &source.declaration.name;
            let ranks = Some(ranks).filter(|&ranks| ranks > 1).map(Literal::u64_unsuffixed);
            let part = ranks.map(|ranks| quote!(/ #ranks));
            quote!({ <#name>::#constant.batch #part })
        }
    }
}

/// Returns the place that a refusal points at: the `batch` field, or the struct's name.
pub(crate) fn refusal_place(source: &Source, reading: Option<&Reading<'_>>) -> Place {
    match reading.and_then(|reading| reading.batch) {
        Some(field) => Place::from(&field.name).to(Place::of(&field.value)),
        None => Place::from(&source.declaration.name),
    }
}
