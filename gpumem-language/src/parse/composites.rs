//! Parses the composites of the language, if the network names one of them.

use super::Parser;
use crate::syntax::Module;
use gpumem_core::layers::composite::{COMPOSITES, is_composite};
use proc_macro2::{TokenStream, TokenTree};

impl Parser<'_> {
    /// Returns the module of all composites, if one of their names is among these tokens.
    pub(super) fn composites(&mut self, tokens: TokenStream) -> Option<Box<Module>> {
        if self.of_composites || !names_one(tokens) {
            return None;
        }
        let texts: Vec<&str> = COMPOSITES.iter().map(|composite| composite.text).collect();
        let tokens: TokenStream = texts.join("\n").parse().ok()?;
        let around = (std::mem::replace(&mut self.of_blocks, true), std::mem::replace(&mut self.of_composites, true));
        let module = self.items(tokens).module;
        (self.of_blocks, self.of_composites) = around;
        Some(Box::new(Module { is_of_composites: true, ..module }))
    }
}

fn names_one(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|tree| match tree {
        TokenTree::Ident(name) => is_composite(&name.to_string()),
        TokenTree::Group(group) => names_one(group.stream()),
        _ => false,
    })
}
