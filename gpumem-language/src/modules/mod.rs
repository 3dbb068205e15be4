//! Expands `#[network_mod] mod m { .. }`, `#[blocks_mod] mod m { .. }` and `blocks! { mod m { .. } }`.
//!
//! The attributes take the items of the macros, in a form that rustfmt and rust-analyzer read.

pub(crate) mod cross_crate_blocks;
pub(crate) mod declare;

use crate::syntax::Facade;
use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::parse::{ParseStream, Parser as _};
use syn::{Attribute, Token, Visibility};

/// The message for what is no module of blocks.
const BLOCKS: &str = "`blocks!` holds modules: `pub mod name { fn block() -> Block { [..] } }`";

/// The message for what is no layer.
const OPERATIONS: &str = "`operation!` holds layers, each as a function: `pub fn Swish(x) { x * sigmoid(x) }`";

/// A module with its attributes and contents: `#[..] pub mod name { #![..] .. }`.
struct Written {
    attributes: Vec<Attribute>,
    visibility: Visibility,
    name: Ident,
    inner: Vec<Attribute>,
    tokens: TokenStream,
}

impl Written {
    fn parse(input: ParseStream<'_>, expected: &str) -> syn::Result<Written> {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility: Visibility = input.parse()?;
        if !(input.peek(Token![mod]) && input.peek3(syn::token::Brace)) {
            return Err(input.error(expected));
        }
        input.parse::<Token![mod]>()?;
        let name: Ident = input.parse()?;
        let content;
        syn::braced!(content in input);
        let inner = content.call(Attribute::parse_inner)?;
        Ok(Written { attributes, visibility, name, inner, tokens: content.parse()? })
    }

    /// Puts `crate = gm;` before the items, if a path is given.
    fn reached_by(mut self, facade: Option<&Facade>) -> Written {
        if let Some(Facade(path)) = facade {
            let tokens = self.tokens;
            self.tokens = quote!(crate = #path; #tokens);
        }
        self
    }

    fn with_blocks(self) -> TokenStream {
        let Written { attributes, visibility, name, inner, tokens } = self;
        let (docs, contents) = declare::declare(&name, tokens);
        quote!(#(#attributes)* #[doc = #docs] #visibility mod #name { #(#inner)* #contents })
    }
}

pub(crate) fn network_mod(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let expected = "`#[network_mod]` stands before a module with a network in it: `mod name { pub struct Name; .. }`";
    attribute("network_mod", expected, arguments, item, |module| {
        let Written { attributes, visibility, name, inner, tokens } = module;
        let network = crate::network(tokens);
        quote!(#(#attributes)* #visibility mod #name { #(#inner)* #network })
    })
}

pub(crate) fn blocks_mod(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let expected =
        "`#[blocks_mod]` stands before a module with blocks in it: `pub mod name { fn block() -> Block { [..] } }`";
    attribute("blocks_mod", expected, arguments, item, Written::with_blocks)
}

/// Expands the modules inside `blocks! { .. }`.
pub(crate) fn blocks(tokens: TokenStream) -> TokenStream {
    modules(tokens, BLOCKS, |input, facade| {
        Written::parse(input, BLOCKS).map(|module| module.reached_by(facade).with_blocks())
    })
}

/// Expands `operation! { pub fn Swish(x) { .. } }` outside a network: each layer becomes a module of its name, for `use blocks Swish;`.
pub(crate) fn operations(tokens: TokenStream) -> TokenStream {
    modules(tokens, OPERATIONS, |input, facade| {
        let Written { visibility, name, tokens, .. } = operation(input, OPERATIONS)?.reached_by(facade);
        let (docs, contents) = declare::declare(&name, tokens);
        Ok(quote! {
            #[doc = #docs]
            #[allow(non_snake_case)]
            #visibility mod #name {
                #[allow(unused_imports)]
                use super::*;
                #contents
            }
        })
    })
}

/// Reads the next function as a module with one operation.
fn operation(input: ParseStream<'_>, expected: &str) -> syn::Result<Written> {
    let attributes = input.call(Attribute::parse_outer)?;
    let visibility: Visibility = input.parse()?;
    let ahead = input.fork();
    let name: syn::Result<Ident> = ahead.parse::<Token![fn]>().and_then(|_| ahead.parse());
    let name = name.map_err(|_| input.error(expected))?;
    let mut function = TokenStream::new();
    // The function ends with its braces.
    loop {
        let tree: TokenTree = input.parse().map_err(|error| syn::Error::new(error.span(), expected))?;
        let ends = matches!(&tree, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
        function.extend([tree]);
        if ends {
            break;
        }
    }
    let tokens = quote!(operation! { #(#attributes)* #function });
    Ok(Written { attributes: Vec::new(), visibility, name, inner: Vec::new(), tokens })
}

/// Calls `each` with the name and the contents of each module that `blocks!` or `operation!` declares, before they are expanded.
pub(crate) fn each(macro_name: &str, tokens: TokenStream, mut each: impl FnMut(Ident, TokenStream)) -> syn::Result<()> {
    items(tokens, |input, _| {
        let Written { name, tokens, .. } = match macro_name {
            "operation" => operation(input, OPERATIONS)?,
            _ => Written::parse(input, BLOCKS)?,
        };
        each(name, tokens);
        Ok(())
    })
}

/// Expands each item of a macro with `each`, after an optional `crate = gm;`. Stops after an item that cannot be read.
fn modules(
    tokens: TokenStream,
    expected: &str,
    mut each: impl FnMut(ParseStream<'_>, Option<&Facade>) -> syn::Result<TokenStream>,
) -> TokenStream {
    let mut modules = TokenStream::new();
    let read = items(tokens, |input, facade| {
        modules.extend(each(input, facade)?);
        Ok(())
    });
    match read {
        Ok(()) if modules.is_empty() => quote!(::core::compile_error! { #expected }),
        Ok(()) => modules,
        Err(error) => {
            modules.extend(error.to_compile_error());
            modules
        }
    }
}

/// Calls `each` for each item of a macro, after an optional `crate = gm;`.
fn items(
    tokens: TokenStream,
    mut each: impl FnMut(ParseStream<'_>, Option<&Facade>) -> syn::Result<()>,
) -> syn::Result<()> {
    (|input: ParseStream<'_>| {
        let facade = crate::parse::facade(input)?;
        if facade.is_some() {
            input.parse::<Token![;]>()?;
        }
        while !input.is_empty() {
            each(input, facade.as_ref())?;
        }
        Ok(())
    })
    .parse2(tokens)
}

fn attribute(
    name: &str,
    expected: &str,
    arguments: TokenStream,
    item: TokenStream,
    expand: impl FnOnce(Written) -> TokenStream,
) -> TokenStream {
    let place = arguments.clone().into_iter().next().map(|argument| argument.span());
    let facade = crate::parse::facade.parse2(arguments).ok().flatten();
    // The module is expanded even after a mistake in the arguments.
    let unexpected = place.filter(|_| facade.is_none()).map(|place| {
        let message = format!("`#[{name}]` takes nothing but `crate = path`, the path of this library; remove this");
        quote_spanned!(place=> ::core::compile_error! { #message })
    });
    match (|input: ParseStream<'_>| Written::parse(input, expected)).parse2(item.clone()) {
        Ok(module) => {
            let module = expand(module.reached_by(facade.as_ref()));
            quote!(#unexpected #module)
        }
        Err(error) => {
            let error = error.to_compile_error();
            quote!(#unexpected #error #item)
        }
    }
}
