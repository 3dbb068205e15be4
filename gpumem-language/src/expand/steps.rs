//! Expands the training steps of a network whose constants have names of their own.
//!
//! The first step is planned like the only step of other networks. Each further step is a separate block, in which items have the same names.

use super::planned::{associated, statics};
use super::training::{Trained, trained};
use super::types::{all, tensor};
use super::{Programs, Readings, generics, tensors, wired};
use super::{assumed_sizes, numbers, tables};
use crate::resolve::Declared;
use crate::settings::steps::function;
use crate::syntax::{Facade, Source};
use proc_macro2::{Literal, TokenStream};
use quote::quote;
use syn::ext::IdentExt as _;

/// Returns the functions that make steps: `Gan::critic(&mut net)`.
pub(super) fn functions(source: &Source) -> TokenStream {
    let Facade(facade) = &source.facade;
    let named = source.trains.iter().enumerate().filter(|(_, settings)| settings.name != "TRAIN");
    let functions = named.map(|(number, settings)| {
        let (name, number) = (function(&settings.name), Literal::usize_unsuffixed(number));
        let docs = format!("The training step of [`{0}`](Self::{0}).", settings.name.unraw());
        quote! {
            #[doc = #docs]
            #[allow(dead_code)]
            pub fn #name<Device: #facade::__private::run::device::Device>(
                net: &mut #facade::Net<Self, Device>,
            ) -> #facade::Step<'_, Self, #number, Device> {
                #facade::Step::of(net)
            }
        }
    });
    functions.collect()
}

/// Returns stand-ins for the types of steps if the network has mistakes.
pub(super) fn stand_ins(source: &Source) -> TokenStream {
    let (generics, path) = generics(source);
    let all = (0..source.trains.len()).filter(|_| source.has_named_steps()).map(Literal::usize_unsuffixed);
    quote! {
        #(
            #[automatically_derived]
            impl #generics __gpumem::__private::network::NamedStep<#all> for #path {
                type StepInput = <Self as __gpumem::Network>::Input;
                type StepTarget = <Self as __gpumem::Network>::Input;
            }
        )*
    }
}

/// Implements `NamedStep` for each step: the types of its inputs and targets.
pub(super) fn types(source: &Source, readings: &Readings<'_>, programs: &Programs, inputs: &[Declared]) -> TokenStream {
    let (generics, path) = generics(source);
    let steps =
        readings.trains.iter().zip(&programs.blueprint.parts.all).enumerate().map(|(number, (reading, part))| {
            let batch = super::batch_of(source, Some(reading));
            let wanted = wired(inputs, &programs.blueprint.inputs_of(part));
            let input = all(tensors(&wanted, &batch));
            let targets = reading.loss.targets.iter();
            let target = all(targets.map(|target| tensor(target.elements, target.shape.dims(), &batch)).collect());
            let number = Literal::usize_unsuffixed(number);
            quote! {
                #[automatically_derived]
                impl #generics __gpumem::__private::network::NamedStep<#number> for #path {
                    type StepInput = #input;
                    type StepTarget = #target;
                }
            }
        });
    steps.collect()
}

/// Returns the value of `STEPS`. `first` is the compiled program of the first step.
pub(super) fn list(source: &Source, readings: &Readings<'_>, first: &TokenStream, others: &[Programs]) -> TokenStream {
    let (_, path) = generics(source);
    let of_first = readings.trains.first().map(|reading| (reading, first.clone()));
    let of_others = readings.trains.iter().skip(1).zip(others);
    let of_others = of_others.map(|(reading, programs)| (reading, compiled(source, &readings.only(reading), programs)));
    let steps = of_first.into_iter().chain(of_others).map(|(reading, compiled)| {
        let (name, constant) = (&reading.constant, reading.ident());
        quote! {
            __gpumem::__private::network::StepInfo {
                name: #name,
                compiled: #compiled,
                train: <#path>::#constant,
            }
        }
    });
    quote!(&[#(#steps),*])
}

/// Returns a block that plans and checks a further step, and whose value is its compiled program.
fn compiled(source: &Source, readings: &Readings<'_>, programs: &Programs) -> TokenStream {
    let structure = tables::of_step(programs, &assumed_sizes::Guesses::new(readings, programs));
    let Trained { only, leveled, checks, value, .. } = trained(source, readings, programs);
    let numbers::Numbers { settled, of_batch } =
        readings.train().map(|reading| numbers::checks(source, reading, programs)).unwrap_or_default();
    match &source.declaration.batch {
        Some(parameter) => {
            let constants = only.iter().map(|planned| associated(source, planned));
            quote! {{
                #structure
                struct __Plans<const #parameter: ::core::primitive::usize>;
                impl<const #parameter: ::core::primitive::usize> __Plans<#parameter> {
                    #leveled
                    #(#constants)*
                }
                #(const _: () = #settled;)*
                #(#checks;)*
                #(#of_batch;)*
                #value
            }}
        }
        None => {
            let statics = only.iter().map(|planned| statics(source, planned));
            quote! {{
                #structure
                #leveled
                #(#statics)*
                #(const _: () = #settled;)*
                #(#[allow(long_running_const_eval)] const _: () = #checks;)*
                #(#of_batch;)*
                #value
            }}
        }
    }
}
