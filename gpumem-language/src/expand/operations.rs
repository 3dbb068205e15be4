//! Expands the functions of a module's operations to Rust.

use crate::resolve::with_functions;
use crate::syntax::{Module, Operation};
use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;

/// Returns an `Operations` with the functions that a module declares, and those of modules that it uses. `library` is the path of this library.
pub(crate) fn operations(module: &Module, library: &TokenStream) -> TokenStream {
    let own = with_functions(module).map(|operation| functions(operation, library));
    let used = module.uses.iter().map(|import| {
        let path = &import.path;
        quote!(&#path::__OPERATIONS)
    });
    quote!(#library::operation::Operations { own: &[#(#own),*], used: &[#(#used),*] })
}

/// True if a module, or one that it uses, has an operation with functions.
pub(super) fn has_functions(module: &Module) -> bool {
    with_functions(module).next().is_some() || module.uses.iter().any(|import| has_functions(&import.module))
}

fn functions(operation: &Operation, library: &TokenStream) -> TokenStream {
    let Operation { name, cpu, cuda, .. } = operation;
    let name = name.unraw().to_string();
    let none = || quote!(::core::option::Option::None);
    let cpu = cpu.as_ref().map(|path| {
        // rustc reports a function that is missing or has a wrong type at the span of the path.
        let functions = quote_spanned!(path.span()=> forward: #path::forward, backward: #path::backward);
        quote!(::core::option::Option::Some(#library::operation::CpuFunctions { #functions }))
    });
    let cuda = cuda.as_ref().map(|file| {
        let text = quote_spanned!(file.span()=> ::core::include_str!(#file));
        quote!(::core::option::Option::Some(#library::operation::CudaFile { name: #file, text: #text }))
    });
    let (cpu, cuda) = (cpu.unwrap_or_else(none), cuda.unwrap_or_else(none));
    quote!(#library::operation::Functions { name: #name, cpu: #cpu, cuda: #cuda })
}
