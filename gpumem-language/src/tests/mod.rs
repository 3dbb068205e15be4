//! Native tests: tokens in, graphs and messages out, no compiler in the loop.

mod caches;
mod composites;
mod contrastive;
mod expansion;
mod going_on;
mod habits;
mod images;
mod initializers;
mod limits;
mod lora;
mod messages;
mod modes;
mod modules;
mod mutations;
mod names;
mod networks;
mod operations;
mod optimizers;
mod outside;
mod parsing;
mod settings;
mod several_steps;
mod steps;
mod structure;
mod tables;
mod training;
mod traps;
mod triplets;

use crate::errors::Errors;
use crate::parse;
use crate::resolve::{Resolved, resolve};
use proc_macro2::TokenStream;

/// The network in `text`, resolved, with its mistakes.
fn resolved(text: &str) -> (Option<Resolved>, Errors) {
    resolved_with(text, &[])
}

/// The same with the modules that its `use blocks` bring.
fn resolved_with(text: &str, modules: &[&str]) -> (Option<Resolved>, Errors) {
    let mut errors = Errors::default();
    let tokens: TokenStream = text.parse().expect("balanced tokens");
    let fetched = |text: &&str| {
        let module: TokenStream = text.parse().expect("balanced tokens");
        quote::quote!([] #module)
    };
    let fetched: Vec<TokenStream> = modules.iter().map(fetched).collect();
    let Some(source) = parse::source(tokens, &fetched, &mut errors) else { return (None, errors) };
    let resolved = resolve(&source, &mut errors);
    crate::read(&source, &resolved, &mut errors);
    (Some(resolved), errors)
}

/// The mistakes in `text`: what is underlined, and what is said.
fn mistakes(text: &str) -> Vec<(String, String)> {
    mistakes_with(text, &[])
}

/// The same with the modules that its `use blocks` bring.
fn mistakes_with(text: &str, modules: &[&str]) -> Vec<(String, String)> {
    let (_, errors) = resolved_with(text, modules);
    let underlined = |place: crate::syntax::Place| {
        let (start, end) = (place.start.byte_range(), place.end.byte_range());
        text.get(start.start..end.end).unwrap_or_default().to_string()
    };
    errors.list().iter().map(|error| (underlined(error.place), error.message.clone())).collect()
}

/// A network without mistakes.
#[track_caller]
fn sound(text: &str) -> Resolved {
    let found = mistakes(text);
    assert!(found.is_empty(), "{found:#?}");
    resolved(text).0.expect("a struct")
}

/// A network from an input type to an output type with this body, and further items.
fn forward(input: &str, output: &str, body: &str, items: &str) -> String {
    format!("pub struct Net; fn forward(x: {input}) -> {output} {{ {body} }} {items}")
}

/// Asserts that a network has exactly these mistakes.
#[track_caller]
fn assert_mistakes(text: &str, expected: &[(&str, &str)]) {
    let found = mistakes(text);
    let found: Vec<(&str, &str)> = found.iter().map(|(place, message)| (place.as_str(), message.as_str())).collect();
    assert_eq!(found, expected, "\n{found:#?}");
}
