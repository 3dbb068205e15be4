//! Writes the record of a network in the object section `.gpumem`.

use super::{Programs, Readings, generics, refusal_place};
use crate::settings::reading::Reading;
use crate::syntax::Source;
use gpumem_core::graph::SourceLines;
use gpumem_core::lower::Blueprint;
use gpumem_core::memory::record::digest;
use proc_macro2::{Literal, Span, TokenStream};
use quote::{ToTokens as _, quote};
use syn::ext::IdentExt as _;

/// Returns the record of a network, which comes before the implementation of `Network`.
///
/// `training` and `inference` are expressions for its programs.
pub(super) fn of_network(
    source: &Source,
    readings: &Readings<'_>,
    programs: &Programs,
    [training, inference]: [&TokenStream; 2],
) -> TokenStream {
    let name = source.declaration.name.unraw().to_string();
    let path = match source.declaration.batch {
        // The settings do not depend on the batch, and only they are recorded of a generic network, so the batch may be 1.
        Some(_) => {
            let name = &source.declaration.name;
            quote!(#name<1>)
        }
        None => generics(source).1,
    };
    let is_generic = source.declaration.batch.is_some();
    let settings = |constant: TokenStream, exists: bool| {
        if exists { quote!(::core::option::Option::Some(&<#path>::#constant)) } else { none() }
    };
    let largest = quote!(__gpumem::__private::network::StepInfo::largest(<#path as __gpumem::Network>::STEPS));
    let train = match programs.blueprint.parts.all.is_empty() {
        true => settings(quote!(TRAIN), !source.trains.is_empty()),
        // The step with the most memory is named. An unknown batch has no memory yet, so the first step is named.
        false if is_generic => settings(readings.train().map(Reading::ident).into_token_stream(), true),
        false => quote!(::core::option::Option::Some(&#largest.train)),
    };
    let infer = settings(quote!(INFER), source.infer.is_some() || source.trains.is_empty());
    let (file, line) = declared_at(source, readings);
    let program = |program: &TokenStream| if is_generic { none() } else { program.clone() };
    let (training, inference) = (program(training), program(inference));
    let blueprint = recorded(&programs.blueprint);
    let declared = quote! {
        __gpumem::__private::memory::record::Declared {
            name: #name,
            place: (#file, #line),
            is_generic: #is_generic,
            of: ::core::option::Option::None,
            fits: ::core::option::Option::None,
            selected: __gpumem::SELECTED,
            train: #train,
            infer: #infer,
            training: #training,
            inference: #inference,
        }
    };
    section(&declared, &blueprint)
}

/// Returns the blueprint as bytes. Outside a compiler tokens are in no file, so that layers have no source lines.
fn recorded(blueprint: &Blueprint) -> Vec<u8> {
    if proc_macro::is_available() {
        return blueprint.encode();
    }
    let mut blueprint = blueprint.clone();
    blueprint.graph.lines = SourceLines::default();
    blueprint.encode()
}

fn none() -> TokenStream {
    quote!(::core::option::Option::None)
}

/// Returns the file and line that a refusal of the network points at.
pub(super) fn declared_at(source: &Source, readings: &Readings<'_>) -> (String, u32) {
    written_at(refusal_place(source, readings.primary()).start)
}

/// Returns the file and the line of a token, or an empty name and 0 outside a compiler.
pub(crate) fn written_at(span: Span) -> (String, u32) {
    if !proc_macro::is_available() {
        return (String::new(), 0);
    }
    let span = span.unwrap();
    (span.file().replace('\\', "/"), u32::try_from(span.line()).unwrap_or(0))
}

/// Returns the column of a token, or 0 outside a compiler.
pub(crate) fn column(span: Span) -> u32 {
    if !proc_macro::is_available() {
        return 0;
    }
    u32::try_from(span.unwrap().column()).unwrap_or(0)
}

/// Declares the record as a static that survives into the binary.
pub(crate) fn section(declared: &TokenStream, blueprint: &[u8]) -> TokenStream {
    let digest = Literal::u64_unsuffixed(digest(blueprint));
    let blueprint = Literal::byte_string(blueprint);
    quote! {
        const __BLUEPRINT: &[::core::primitive::u8] = #blueprint;
        static __RECORD_TEXT: __gpumem::__private::memory::record::Text =
            __gpumem::__private::memory::record::text(&#declared);
        #[used]
        #[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__gpumem"))]
        #[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".gpumem"))]
        static __RECORD: [
            ::core::primitive::u8;
            __gpumem::__private::memory::record::bytes(&__RECORD_TEXT, __BLUEPRINT)
        ] = __gpumem::__private::memory::record::record(&__RECORD_TEXT, __BLUEPRINT, #digest);
    }
}
