//! The `network!` macro of gpumem: tokens to graph to tokens.
//!
//! ```text
//! tokens --parse--> syntax --resolve--> graph --expand--> tokens
//! ```
//!
//! Shapes, lifetimes and programs are `gpumem-core`'s; no memory is counted here.

mod errors;
mod expand;
mod expressions;
mod instantiation;
mod module;
mod parse;
mod resolve;
mod syntax;
#[cfg(test)]
mod tests;
mod train;

use proc_macro::TokenStream;

#[proc_macro]
pub fn network(tokens: TokenStream) -> TokenStream {
    compile(tokens.into()).into()
}

#[proc_macro_attribute]
pub fn network_mod(arguments: TokenStream, item: TokenStream) -> TokenStream {
    module::network_mod(arguments.into(), item.into()).into()
}

#[proc_macro]
pub fn fits(tokens: TokenStream) -> TokenStream {
    instantiation::fits(tokens.into()).into()
}

/// The whole way.
fn compile(tokens: proc_macro2::TokenStream) -> proc_macro2::TokenStream {
    let mut errors = errors::Errors::default();
    let Some(source) = parse::source(tokens, &mut errors) else { return errors.into_tokens() };
    let resolved = resolve::resolve(&source, &mut errors);
    let promised = resolved.promised.as_ref();
    let readings = expand::Readings {
        train: source.train.as_ref().map(|settings| train::train(settings, promised, &mut errors)),
        infer: source.infer.as_ref().map(|settings| train::infer(settings, &mut errors)),
    };
    train::check_generic_batch(&source.declaration, readings.primary(), &mut errors);
    expand::expand(&source, &resolved, &readings, errors)
}
