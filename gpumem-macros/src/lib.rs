//! The `network!` macro of gpumem: tokens to graph to tokens.
//!
//! ```text
//! tokens --parse--> syntax --resolve--> graph --expand--> tokens
//! ```
//!
//! Shapes, lifetimes and programs are `gpumem-core`'s; no memory is counted here.

mod errors;
mod expressions;
mod parse;
mod resolve;
mod syntax;

use proc_macro::TokenStream;

#[proc_macro]
pub fn network(tokens: TokenStream) -> TokenStream {
    let mut errors = errors::Errors::default();
    let source = parse::source(tokens.into(), &mut errors);
    if let Some(s) = &source { resolve::resolve(s, &mut errors); }
    errors.into_tokens().into()
}
