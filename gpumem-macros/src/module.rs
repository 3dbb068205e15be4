//! `#[network_mod] mod m { .. }`: the same items where rustfmt and rust-analyzer read them.

use proc_macro2::{Ident, TokenStream};
use quote::{quote, quote_spanned};
use syn::parse::{ParseStream, Parser as _};
use syn::{Attribute, Token, Visibility};

pub(crate) fn network_mod(arguments: TokenStream, item: TokenStream) -> TokenStream {
    if let Some(argument) = arguments.into_iter().next() {
        let message = "`#[network_mod]` takes no arguments";
        return quote_spanned!(argument.span()=> ::core::compile_error!(#message););
    }
    let parsed = (|input: ParseStream<'_>| {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility: Visibility = input.parse()?;
        input.parse::<Token![mod]>()?;
        let name: Ident = input.parse()?;
        let content;
        syn::braced!(content in input);
        let tokens: TokenStream = content.parse()?;
        Ok((attributes, visibility, name, tokens))
    })
    .parse2(item);
    match parsed {
        Ok((attributes, visibility, name, tokens)) => {
            let network = crate::compile(tokens);
            quote!(#(#attributes)* #visibility mod #name { #network })
        }
        Err(error) => error.to_compile_error(),
    }
}
