//! A stand-in for a network with mistakes, so that they are the only errors: its uses compile, and nothing runs.
//!
//! The last mistake is put into the type of the input. The compiler reports nothing else about a type that contains an error, so tensors of any
//! type may be passed in and out.

use super::types::{generates, served_batch};
use super::{Readings, conditions, constants, declaration, generics};
use crate::errors::Errors;
use crate::syntax::Source;
use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt as _;

pub(super) fn network(source: &Source, readings: &Readings<'_>, errors: Errors) -> TokenStream {
    let declaration = declaration(source, "", None);
    let constants = constants(source, readings);
    let (generics, path) = generics(source);
    let name = source.declaration.name.unraw().to_string();
    let links = super::editor::links(source, false);
    let (errors, last) = errors.into_tokens();
    let conditions = conditions(source);
    let import = source.facade.import();
    let generates = readings.cached().map(|_| generates(source, readings));
    let served = served_batch(source, readings).map(|_| {
        quote! {
            #generates
            #[automatically_derived]
            impl #generics __gpumem::__private::network::Serve for #path {
                const SERVED_HEADROOM: ::core::primitive::u64 = 0;
                type ServedInput = <Self as __gpumem::Network>::Input;
                type ServedOutput = <Self as __gpumem::Network>::Input;
            }
        }
    });
    let step_types = super::steps::stand_ins(source);
    let takes_largest = readings.all().any(|reading| reading.takes_largest);
    let largest = takes_largest.then(|| quote!(impl #generics __gpumem::__private::network::Largest for #path {}));
    // Links come first: rust-analyzer completes a name where it is in the expansion, and a message before it would move it.
    quote! {
        #conditions
        #links
        #declaration
        #constants
        #conditions
        const _: () = {
            #errors
            #import
            static __TABLES: __gpumem::__private::memory::tables::Tables<'static> = __gpumem::__private::memory::tables::Tables {
                operations: 0,
                transients: __gpumem::__private::memory::tables::Transients::NONE,
                parameters: &[],
                buffers: &[],
                batch: &[],
                caches: &[],
                moments: 0,
                holds_gradients: false,
                wide_sums: false,
                training: false,
                operation_tags: &[],
                transient_tags: &[],
                paths: __gpumem::__private::memory::tables::Paths::NONE,
                workspaces: __gpumem::__private::memory::tables::Workspaces::UNLIMITED,
                micro_batches: 1,
                parts: 1,
                ranks: __gpumem::__private::train::Ranks::ALONE,
                averages: false,
                offloads: false,
                parked: &[],
                step: "",
            };
            static __COMPILED: __gpumem::__private::memory::Compiled<'static> = __gpumem::__private::memory::Compiled {
                program: &[],
                tables: &__TABLES,
                offsets: &[],
                budget: __gpumem::__private::memory::budget::plan::<0>(&__TABLES, 1, __gpumem::__private::Precision::F32).budget,
                batch: 1,
                precision: __gpumem::__private::Precision::F32,
                level: __gpumem::__private::memory::levels::Level::ONLY,
            };
            #[automatically_derived]
            impl #generics __gpumem::Network for #path {
                const NAME: &'static ::core::primitive::str = #name;
                const LAYERS: &'static [__gpumem::__private::network::LayerInfo] = &[];
                const TRAINING: ::core::option::Option<&'static __gpumem::__private::memory::Compiled<'static>> =
                    ::core::option::Option::None;
                const INFERENCE: &'static __gpumem::__private::memory::Compiled<'static> = &__COMPILED;
                const EVALUATION: &'static __gpumem::__private::memory::Compiled<'static> = &__COMPILED;
                const TRAIN: ::core::option::Option<__gpumem::__private::Train> = ::core::option::Option::None;
                const HEADROOM: ::core::primitive::u64 = 0;
                const CHECKED: () = ();
                type Input = [(); #last];
                type Target = <Self as __gpumem::Network>::Input;
                type Output = <Self as __gpumem::Network>::Input;
            }
            #served
            #largest
            #step_types
        };
    }
}
