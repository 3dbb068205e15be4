//! `#[network_mod] mod m { .. }`: the same items where rustfmt and rust-analyzer read them.

use proc_macro2::{Ident, TokenStream};
use quote::{quote, quote_spanned};
use syn::parse::{ParseStream, Parser as _};
use syn::{Attribute, Token, Visibility};

pub(crate) fn network_mod(arguments: TokenStream, item: TokenStream) -> TokenStream {
    // The module is there all the same.
    let unexpected = arguments.into_iter().next().map(|argument| {
        let message = "`#[network_mod]` takes no arguments; remove them";
        quote_spanned!(argument.span()=> ::core::compile_error! { #message })
    });
    let parsed = (|input: ParseStream<'_>| {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility: Visibility = input.parse()?;
        let expected =
            "`#[network_mod]` stands before a module with a network in it: `mod name { pub struct Name; .. }`";
        if !(input.peek(Token![mod]) && input.peek3(syn::token::Brace)) {
            return Err(input.error(expected));
        }
        input.parse::<Token![mod]>()?;
        let name: Ident = input.parse()?;
        let content;
        syn::braced!(content in input);
        let inner = content.call(Attribute::parse_inner)?;
        let tokens: TokenStream = content.parse()?;
        Ok((attributes, visibility, name, inner, tokens))
    })
    .parse2(item.clone());
    match parsed {
        Ok((attributes, visibility, name, inner, tokens)) => {
            let network = crate::compile(tokens);
            quote!(#unexpected #(#attributes)* #visibility mod #name { #(#inner)* #network })
        }
        Err(error) => {
            let error = error.to_compile_error();
            quote!(#unexpected #error #item)
        }
    }
}
