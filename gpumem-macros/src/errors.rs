//! Mistakes are collected, so that one build shows all of them.

use crate::syntax::Place;
use proc_macro2::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};
use std::collections::HashSet;

/// A mistake and the tokens to underline.
#[derive(Debug)]
pub(crate) struct Error {
    pub(crate) place: Place,
    pub(crate) message: String,
}

/// All mistakes of one network.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    list: Vec<Error>,
    reported: HashSet<usize>,
}

impl Errors {
    pub(crate) fn add(&mut self, place: impl Into<Place>, message: impl Into<String>) {
        self.list.push(Error { place: place.into(), message: message.into() });
    }

    /// Adds a mistake of the expression numbered `id`, unless one has been reported there already: an expression is
    /// resolved once for each use of the block that it stands in.
    pub(crate) fn add_once(&mut self, id: usize, place: impl Into<Place>, message: impl Into<String>) {
        if self.reported.insert(id) {
            self.add(place, message);
        }
    }

    /// Adds what syn found.
    pub(crate) fn add_syn(&mut self, error: &syn::Error) {
        for error in error.clone() {
            self.add(error.span(), error.to_string());
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn list(&self) -> &[Error] {
        &self.list
    }

    /// One `compile_error!` each: all but the last, as items, and the last, to stand for an item or a value.
    pub(crate) fn into_tokens(mut self) -> (TokenStream, TokenStream) {
        let last = self.list.pop();
        let tokens = |list: &[Error]| list.iter().flat_map(Error::tokens).collect();
        (tokens(&self.list), tokens(last.as_slice()))
    }
}

impl Error {
    /// `::core::compile_error! { "message" }`. Stable Rust cannot join spans, but it underlines from the first token of the
    /// invocation to the last.
    fn tokens(&self) -> [TokenTree; 8] {
        let Place { start, end } = self.place;
        let punct = |symbol, spacing, span: Span| {
            let mut punct = Punct::new(symbol, spacing);
            punct.set_span(span);
            TokenTree::from(punct)
        };
        let mut message = Literal::string(&self.message);
        message.set_span(end);
        let mut group = Group::new(Delimiter::Brace, TokenTree::from(message).into());
        group.set_span(end);
        [
            punct(':', Spacing::Joint, start),
            punct(':', Spacing::Alone, start),
            Ident::new("core", start).into(),
            punct(':', Spacing::Joint, start),
            punct(':', Spacing::Alone, start),
            Ident::new("compile_error", start).into(),
            punct('!', Spacing::Alone, start),
            group.into(),
        ]
    }
}
