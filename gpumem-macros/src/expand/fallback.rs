//! A network with mistakes still exists, so that they are the only errors: its uses compile, and nothing runs.

use super::{Readings, constants, declaration, generics, types};
use crate::resolve::Resolved;
use crate::syntax::Source;
use proc_macro2::TokenStream;
use quote::quote;

pub(super) fn network(source: &Source, resolved: &Resolved, readings: &Readings<'_>) -> TokenStream {
    let declaration = declaration(source, "");
    let constants = constants(source, readings);
    let (generics, path) = generics(source);
    let name = source.declaration.name.to_string();
    let types = match (&resolved.input, &resolved.promised) {
        (Some(input), Some(promised)) => types(source, readings, input, promised),
        _ => quote! {
            type Input = ();
            type Target = ();
            type Output = ();
        },
    };
    quote! {
        #declaration
        #constants
        const _: () = {
            static __STEP: ::gpumem::core::step::Step = ::gpumem::core::step::Step {
                operations: 0,
                transients: &[],
                parameters: &[],
                buffers: &[],
                batch: &[],
                moments: 0,
                holds_gradients: false,
                training: false,
                operation_tags: &[],
                transient_tags: &[],
                paths: &[],
            };
            static __COMPILED: ::gpumem::core::network::Compiled = ::gpumem::core::network::Compiled {
                program: &[],
                step: &__STEP,
                offsets: &[],
                budget: ::gpumem::core::budget::plan::<0>(&__STEP, 1, ::gpumem::core::Precision::F32).budget,
            };
            #[automatically_derived]
            impl #generics ::gpumem::Network for #path {
                const NAME: &'static str = #name;
                const LAYERS: &'static [::gpumem::core::network::LayerInfo] = &[];
                const TRAINING: ::core::option::Option<&'static ::gpumem::core::network::Compiled> =
                    ::core::option::Option::None;
                const INFERENCE: &'static ::gpumem::core::network::Compiled = &__COMPILED;
                const EVALUATION: &'static ::gpumem::core::network::Compiled = &__COMPILED;
                const TRAIN: ::core::option::Option<::gpumem::core::Train> = ::core::option::Option::None;
                const CHECKED: () = ();
                #types
            }
        };
    }
}
