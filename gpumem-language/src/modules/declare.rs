//! Expands a module of blocks: its constants, its documentation, and the macro that passes its blocks to other macros.

use super::cross_crate_blocks;
use crate::errors::Errors;
use crate::expand::{links_of_blocks, operations};
use crate::syntax::{Constant, Facade, Module};
use crate::{parse, resolve};
use proc_macro2::{Ident, TokenStream};
use quote::quote;
use std::fmt::Write as _;

/// Returns the documentation and the contents of the module `name`.
///
/// If the module uses others, the contents are a call that fetches those first; see `cross_crate_blocks`.
pub(crate) fn declare(name: &Ident, tokens: TokenStream) -> (String, TokenStream) {
    let mut errors = Errors::default();
    let (module, facade) = parse::module(tokens.clone(), &[], &mut errors);
    let docs = documentation(&module);
    let inside = match cross_crate_blocks::depart(&facade, "blocks", &module.uses, &quote!(#name { #tokens })) {
        Some(on_the_way) => on_the_way,
        None => inside(name, tokens, &[], (&module, &facade), errors),
    };
    (docs, inside)
}

/// Returns the contents of a module after the modules that it uses have been fetched.
pub(crate) fn arrived(written: TokenStream, fetched: &[TokenStream]) -> TokenStream {
    let mut trees = written.into_iter();
    let (Some(proc_macro2::TokenTree::Ident(name)), Some(proc_macro2::TokenTree::Group(tokens))) =
        (trees.next(), trees.next())
    else {
        return TokenStream::new();
    };
    let mut errors = Errors::default();
    let (module, facade) = parse::module(tokens.stream(), fetched, &mut errors);
    inside(&name, tokens.stream(), fetched, (&module, &facade), errors)
}

fn inside(
    name: &Ident,
    tokens: TokenStream,
    fetched: &[TokenStream],
    (module, facade): (&Module, &Facade),
    mut errors: Errors,
) -> TokenStream {
    resolve::declare(module, &mut errors);
    let handed_on = cross_crate_blocks::hand_on(name, errors.is_empty().then_some(tokens), fetched);
    let imports = module.imports.iter().map(|import| quote!(#[allow(unused_imports)] #import));
    let constants = module.constants.iter().map(|constant| {
        let Constant { attributes, visibility, name, kind, tokens, .. } = constant;
        quote!(#(#attributes)* #[allow(dead_code)] #visibility const #name: #kind = #tokens;)
    });
    let links = links_of_blocks(facade, module, errors.is_empty());
    let Facade(library) = facade;
    // After a mistake no network refers to `__OPERATIONS`, so it is left out.
    let operations = errors.is_empty().then(|| {
        let operations = operations(module, library);
        quote! {
            #[doc(hidden)]
            pub const __OPERATIONS: #library::operation::Operations = #operations;
        }
    });
    let (errors, last) = errors.into_tokens();
    quote!(#errors #last #(#imports)* #(#constants)* #operations #links #handed_on)
}

/// Returns Markdown: each layer and block with its parameters and the documentation written above it.
fn documentation(module: &Module) -> String {
    let mut text = String::new();
    // Strips one leading space from each line, as rustdoc does: the space that follows `///`.
    let plain = |docs: &str| -> String {
        docs.lines().map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line))).collect()
    };
    if !module.operations.is_empty() {
        text += "\n# Layers\n";
    }
    for operation in &module.operations {
        let arguments = operation.arguments.iter().map(|asked| match &asked.default {
            Some(default) => format!("{} = {default}", asked.name),
            None => asked.name.to_string(),
        });
        let _ = write!(text, "\n## `{}({})`\n\n", operation.name, arguments.collect::<Vec<_>>().join(", "));
        text += &plain(&operation.docs);
    }
    if module.operations.is_empty() || !module.blocks.is_empty() {
        text += "\n# Blocks\n";
    }
    for block in &module.blocks {
        let parameters =
            block.parameters.iter().map(|parameter| format!("{}: {}", parameter.name, parameter.kind.name));
        let _ = write!(text, "\n## `{}({})`\n\n", block.name, parameters.collect::<Vec<_>>().join(", "));
        text += &plain(&block.docs);
    }
    text
}
