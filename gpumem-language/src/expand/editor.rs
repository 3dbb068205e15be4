//! Links for editors: from each name that was written to the item that documents it.
//!
//! The expansion contains no names of layers, so an editor would find nothing to show for them. Each link is a `use` of the documented item whose
//! last segment has the span of the name. Blocks and taps have no documented item, so theirs is an item that stands for the declaration.

use crate::resolve::taps_of;
use crate::syntax::{Asked, Expression, Facade, Function, Kind, Module, Operation, Source, Type};
use gpumem_core::language::WORDS;
use gpumem_core::layers::Entry;
use gpumem_core::layers::composite::is_composite;
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use std::collections::{BTreeMap, HashSet};

/// Returns the links of a network. If it has mistakes, its own declarations get no links, because one of them may be the mistake.
pub(super) fn links(source: &Source, is_sound: bool) -> TokenStream {
    all(&source.facade, &source.module, source.forward.as_ref(), is_sound)
}

/// Returns the links of a module of blocks.
pub(crate) fn links_of_blocks(facade: &Facade, module: &Module, is_sound: bool) -> TokenStream {
    all(facade, module, None, is_sound)
}

fn all(Facade(facade): &Facade, module: &Module, forward: Option<&Function>, is_sound: bool) -> TokenStream {
    let declared = if is_sound { module.blocks.as_slice() } else { &[] };
    let operations = if is_sound { module.operations.as_slice() } else { &[] };
    let names = declared.iter().map(|block| &block.name).chain(operations.iter().map(|operation| &operation.name));
    let blocks = names.map(Ident::to_string).collect();
    let mut links =
        Links { facade: facade.clone(), is_sound, blocks, taps: BTreeMap::new(), tokens: TokenStream::new() };
    let functions = || forward.into_iter().chain(&module.blocks);
    for function in functions().filter(|_| is_sound) {
        for tap in taps_of(&function.body).0 {
            links.taps.entry(tap.to_string()).or_insert_with(|| tap.clone());
        }
    }
    for function in functions() {
        links.function(function);
    }
    let blocks = declared.iter().map(declaration).chain(operations.iter().map(declaration_of_operation));
    let taps = links.taps.values().map(|name| {
        let docs = format!("The value that `tap({name})` marks.");
        quote!(#[doc = #docs] pub(super) const #name: () = ();)
    });
    let tokens = &links.tokens;
    quote! {
        #[allow(warnings, clippy::all, clippy::pedantic, clippy::nursery)]
        const _: () = {
            // Only rust-analyzer reads the links; rustc has no use for them.
            #[cfg(rust_analyzer)]
            const _: () = {
                mod __blocks {
                    use #facade::__private::language::Block;
                    #(#blocks)*
                }
                mod __taps { #(#taps)* }
                #tokens
            };
        };
    }
}

/// Declares a block as a function, which an editor shows with its documentation.
fn declaration(block: &Function) -> TokenStream {
    let Function { docs, name, parameters, .. } = block;
    let names = parameters.iter().map(|parameter| &parameter.name);
    let kinds = parameters.iter().map(|parameter| Ident::new(&parameter.kind.name.to_string(), Span::call_site()));
    quote!(#[doc = #docs] pub(super) fn #name(#(#names: #kinds),*) -> Block { loop {} })
}

/// Declares an operation as a function with its arguments, as `declaration` does for a block.
fn declaration_of_operation(operation: &Operation) -> TokenStream {
    let Operation { docs, name, arguments, .. } = operation;
    let arguments = arguments.iter().map(|Asked { name, kind, .. }| quote!(#name: #kind));
    quote!(#[doc = #docs] pub(super) fn #name(#(#arguments),*) -> Block { loop {} })
}

struct Links {
    facade: TokenStream,
    is_sound: bool,
    blocks: HashSet<String>,
    /// Taps by name, each with the identifier that marks it first.
    taps: BTreeMap<String, Ident>,
    tokens: TokenStream,
}

impl Links {
    fn function(&mut self, function: &Function) {
        let kinds = function.parameters.iter().map(|parameter| &parameter.kind).chain(&function.outputs);
        for Type { name, .. } in kinds {
            self.word(name);
        }
        function.body.expressions().into_iter().for_each(|expression| self.expression(expression));
    }

    fn expression(&mut self, expression: &Expression) {
        match &expression.kind {
            Kind::Name(name) => self.name(name),
            Kind::Call { name, arguments } => {
                self.name(name);
                let taps = name == "tap" || name == "from";
                for argument in arguments {
                    match (&argument.name, &argument.value.kind) {
                        (None, Kind::Name(tap)) if taps && self.taps.contains_key(&tap.to_string()) => {
                            self.tokens.extend(quote!(use __taps::#tap as _;));
                        }
                        // An option is explained on its layer's page.
                        (Some(option), _) => self.layer(&name.to_string(), option.span()),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    fn name(&mut self, name: &Ident) {
        let text = name.to_string();
        if self.blocks.contains(&text) {
            self.tokens.extend(quote!(use __blocks::#name as _;));
        } else {
            self.layer(&text, name.span());
            self.word(name);
            if !self.is_sound
                && !has_page(&text)
                && !WORDS.contains(&text.as_str())
                && text.starts_with(char::is_uppercase)
            {
                // The name may be incomplete: an editor completes it with items of `layers`.
                let facade = &self.facade;
                self.tokens.extend(quote!(const _: fn() = || { #facade::layers::#name; };));
            }
        }
    }

    /// Adds a link from `place` to the page of a layer or composite, if `name` is one.
    fn layer(&mut self, name: &str, place: Span) {
        if has_page(name) {
            let page = Ident::new(name, place);
            let facade = &self.facade;
            self.tokens.extend(quote!(use #facade::layers::#page as _;));
        }
    }

    fn word(&mut self, name: &Ident) {
        if WORDS.iter().any(|word| name == word) {
            let facade = &self.facade;
            self.tokens.extend(quote!(use #facade::__private::language::#name as _;));
        }
    }
}

/// True if `gpumem::layers` has an item of this name.
fn has_page(name: &str) -> bool {
    Entry::find(name).is_some() || is_composite(name)
}
