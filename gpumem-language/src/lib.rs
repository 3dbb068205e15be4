//! The language of [gpumem](https://docs.rs/gpumem): networks, modules of blocks and operations, from text to graph to code.
//!
//! ```text
//! tokens --parse--> syntax --resolve--> graph --expand--> tokens
//! ```
//!
//! | stage | does |
//! | --- | --- |
//! | `parse` | reads the tokens into a syntax tree, even after mistakes |
//! | `resolve` | unrolls blocks, `repeat`, conditions and sharing into a graph with every shape known |
//! | `settings` | reads `TRAIN` and `INFER` |
//! | `expand` | writes tables, the program, plans, checks and `typenum` proofs |
//!
//! `gpumem-core` computes shapes, live ranges and programs; no memory is counted here. All mistakes are collected and reported in one build, each at
//! its own tokens. The struct exists even after a mistake, so that no other errors follow.
//!
//! Each macro of `gpumem-macros` is a function here that takes and returns tokens of `proc_macro2`, and also runs outside a compiler.

mod errors;
mod expand;
mod foreign_names;
mod instantiation;
mod manifest;
mod modules;
mod namesake;
mod parse;
mod resolve;
mod settings;
pub mod source;
mod syntax;
#[cfg(test)]
mod tests;

// The compiler's own library: some places in a text are known to it alone. A crate of macros has it in scope, another has not.
extern crate proc_macro;

use modules::cross_crate_blocks;
use proc_macro2::TokenStream;
use syn::ext::IdentExt as _;

/// Expands a network, through all stages. If it uses modules of blocks, the expansion is a call that fetches those first.
pub fn network(tokens: TokenStream) -> TokenStream {
    let cross_crate_blocks::Gathered { tokens, modules } = match cross_crate_blocks::arrive("network", tokens) {
        Ok(gathered) => gathered,
        Err(on_the_way) => return on_the_way,
    };
    let mut errors = errors::Errors::default();
    let Some(mut source) = parse::source(tokens.clone(), &modules, &mut errors) else {
        let (items, last) = errors.into_tokens();
        return quote::quote!(#items #last);
    };
    if source.facade.is_default()
        && let Some(name) = manifest::other_name()
    {
        let message = format!(
            "this crate calls `gpumem` by the name `{name}`; begin with `crate = {name};`, or write `#[network_mod(crate = {name})]`"
        );
        errors.add(&source.declaration.name, message);
        source.facade = syntax::Facade::named(&name);
    }
    if modules.is_empty()
        && let Some(on_the_way) = cross_crate_blocks::depart(&source.facade, "network", &source.module.uses, &tokens)
    {
        let conditions = expand::conditions(&source);
        return quote::quote!(#conditions #on_the_way);
    }
    let resolved = resolve::resolve(&source, &mut errors);
    let readings = read(&source, &resolved, &mut errors);
    if let Some(line) = namesake::earlier(&source.declaration.name) {
        let name = source.declaration.name.unraw();
        let message = format!("the network in line {line} is called `{name}` too; give one of them another name");
        errors.add(&source.declaration.name, message);
        errors.last_to_front();
        let (items, last) = errors.into_tokens();
        return quote::quote!(#items #last);
    }
    expand::expand(&source, &resolved, &readings, errors)
}

/// Expands the items of a module that `#[network_mod]` precedes.
pub fn network_mod(arguments: TokenStream, item: TokenStream) -> TokenStream {
    modules::network_mod(arguments, item)
}

/// Expands modules of blocks.
pub fn blocks(tokens: TokenStream) -> TokenStream {
    match cross_crate_blocks::arrive("blocks", tokens) {
        Ok(gathered) if gathered.modules.is_empty() => modules::blocks(gathered.tokens),
        Ok(gathered) => modules::declare::arrived(gathered.tokens, &gathered.modules),
        Err(on_the_way) => on_the_way,
    }
}

/// Expands the blocks of a module that `#[blocks_mod]` precedes.
pub fn blocks_mod(arguments: TokenStream, item: TokenStream) -> TokenStream {
    modules::blocks_mod(arguments, item)
}

/// Expands custom layers.
pub fn operation(tokens: TokenStream) -> TokenStream {
    modules::operations(tokens)
}

/// Expands the check of one instantiation of a network, or of several networks at once.
pub fn fits(tokens: TokenStream) -> TokenStream {
    instantiation::fits(tokens)
}

/// Expands to the largest batch with which a network fits a card.
pub fn max_batch(tokens: TokenStream) -> TokenStream {
    instantiation::max_batch(tokens)
}

/// Expands to the text of a network's budget.
pub fn needs(tokens: TokenStream) -> TokenStream {
    expand::documentation(tokens)
}

/// Reads `TRAIN` and `INFER`, and checks the graph against them.
fn read<'s>(
    source: &'s syntax::Source,
    resolved: &resolve::Resolved,
    errors: &mut errors::Errors,
) -> expand::Readings<'s> {
    let is_generic = source.declaration.batch.is_some();
    let mut read = |settings| settings::train::train(settings, is_generic, resolved, &source.module.constants, errors);
    let trains = source.trains.iter().map(&mut read).collect();
    let infer = source.infer.as_ref().map(|settings| settings::train::infer(settings, errors));
    let readings = expand::Readings { trains, infer };
    settings::steps::check(source, &readings.trains, resolved, errors);
    settings::ranks::check_steps(source, &readings.trains, errors);
    settings::train::check_generic_batch(&source.declaration, readings.primary(), errors);
    if errors.is_empty() {
        let mut ends = resolved.outputs.clone().unwrap_or_default();
        ends.extend(readings.terms().flat_map(|term| term.nodes()));
        resolve::check::check_dead_layers(resolved, &ends, errors);
    }
    readings
}
