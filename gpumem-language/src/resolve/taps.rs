//! Checks for taps that nothing reads, and for names that are tapped twice.

use crate::errors::Errors;
use crate::syntax::{Argument, Body, Expression, Function, Kind, Module, Source};
use gpumem_core::suggest::nearest;
use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens as _;
use std::collections::HashSet;

/// Checks the taps of a network that has no other mistakes, since such mistakes may hide a read.
///
/// A `from` counts wherever it is: a block may read a tap of its caller, and an `if` may leave it out this time.
pub(super) fn check(source: &Source, errors: &mut Errors) {
    if !errors.is_empty() {
        return;
    }
    let Some(forward) = &source.forward else { return };
    let mut read = names_read(&source.module);
    read.extend(taps_of(&forward.body).1);
    let inputs: Vec<&Ident> = forward.parameters.iter().map(|input| &input.name).collect();
    let measured = source.trains.iter().flat_map(|train| &train.fields).filter(|field| field.name == "loss");
    let measured: Vec<String> = measured.flat_map(|loss| names_among(loss.value.to_token_stream())).collect();
    let taps: Vec<String> = taps_of(&forward.body).0.iter().map(|tap| tap.to_string()).collect();
    let taps: Vec<&str> = taps.iter().map(String::as_str).collect();
    // A misspelt name in the loss counts as a read of the nearest tap.
    read.extend(measured.iter().filter_map(|name| nearest(name, &taps)).map(String::from));
    check_function(forward, &inputs, &read, errors);
    for block in &source.module.blocks {
        check_function(block, &[], &read, errors);
    }
}

/// Checks the taps of a block of a module, which other crates may call, as `check` does for networks.
pub(super) fn check_declared(block: &Function, module: &Module, errors: &mut Errors) {
    if errors.is_empty() {
        check_function(block, &[], &names_read(module), errors);
    }
}

fn check_function(function: &Function, inputs: &[&Ident], read: &HashSet<String>, errors: &mut Errors) {
    let (taps, _) = taps_of(&function.body);
    for (index, tap) in taps.iter().enumerate() {
        if inputs.contains(tap) {
            errors
                .add(*tap, format!("`{tap}` is an input, which is read by its name; choose another name for the tap"));
        } else if taps[..index].contains(tap) {
            errors.add(*tap, format!("`{tap}` is tapped twice; choose another name for one of the two"));
        } else if !read.contains(&tap.to_string()) {
            let message = format!("nothing reads the tap `{tap}`; read it with `from({tap})`, or remove it");
            errors.add(*tap, message);
        }
    }
}

/// Returns every name that is read in the blocks of a module, and of those that it imports.
fn names_read(module: &Module) -> HashSet<String> {
    let own = module.blocks.iter().flat_map(|block| taps_of(&block.body).1);
    let imported = module.uses.iter().flat_map(|import| names_read(&import.module));
    own.chain(imported).collect()
}

/// Returns the names that are tapped in a body, and those that are read. A name in both branches of an `if` is tapped once.
pub(crate) fn taps_of(body: &Body) -> (Vec<&Ident>, Vec<String>) {
    let (mut taps, mut read) = (Vec::new(), Vec::new());
    for element in body.lets.iter().map(|binding| &binding.element).chain([&body.element]) {
        collect(element, &mut taps, &mut read);
    }
    (taps, read)
}

fn collect<'s>(expression: &'s Expression, taps: &mut Vec<&'s Ident>, read: &mut Vec<String>) {
    match &expression.kind {
        Kind::Call { name, arguments } => {
            if let [Argument { name: None, value: Expression { kind: Kind::Name(value), .. } }] = arguments.as_slice() {
                if name == "tap" {
                    taps.push(value);
                } else if name == "from" {
                    read.push(value.to_string());
                }
            }
            // `of` reads the value whose time steps are counted.
            let of = arguments.iter().filter(|argument| argument.name.as_ref().is_some_and(|name| name == "of"));
            read.extend(of.filter_map(|of| match &of.value.kind {
                Kind::Name(value) if name == "lengths" || name == "segments" => Some(value.to_string()),
                _ => None,
            }));
            arguments.iter().for_each(|argument| collect(&argument.value, taps, read));
        }
        Kind::Path { arguments, .. } => {
            arguments.iter().flatten().for_each(|argument| collect(&argument.value, taps, read));
        }
        Kind::List(elements) => elements.iter().for_each(|element| collect(element, taps, read)),
        Kind::If { then, otherwise, .. } => {
            let mut either = Vec::new();
            collect(then, &mut either, read);
            if let Some(otherwise) = otherwise {
                let mut others = Vec::new();
                collect(otherwise, &mut others, read);
                others.retain(|tap| !either.contains(tap));
                either.extend(others);
            }
            taps.extend(either);
        }
        _ => {}
    }
}

/// Returns every name among these tokens.
fn names_among(tokens: TokenStream) -> Vec<String> {
    let names = tokens.into_iter().flat_map(|token| match token {
        TokenTree::Ident(name) => vec![name.to_string()],
        TokenTree::Group(group) => names_among(group.stream()),
        _ => Vec::new(),
    });
    names.collect()
}
