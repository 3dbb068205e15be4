//! Mistakes are collected, so that one build shows all of them.

use crate::syntax::Place;
use proc_macro2::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};
use std::collections::HashSet;

/// A mistake and the tokens to underline.
#[derive(Clone, Debug)]
pub(crate) struct Error {
    /// The expression that it is in, if it is in one.
    id: Option<usize>,
    pub(crate) place: Place,
    pub(crate) message: String,
}

/// All mistakes of one network.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    list: Vec<Error>,
    /// Expressions with a mistake, and its words.
    reported: HashSet<(usize, String)>,
    /// Whether there are mistakes in another list, which was begun before.
    earlier: bool,
}

impl Errors {
    /// A list that goes on from this one.
    pub(crate) fn begin(&self) -> Errors {
        Errors { earlier: !self.is_empty(), ..Errors::default() }
    }

    pub(crate) fn add(&mut self, place: impl Into<Place>, message: impl Into<String>) {
        self.list.push(Error { id: None, place: place.into(), message: message.into() });
    }

    /// Adds a mistake of the expression numbered `id`, unless it has been added already: an expression is resolved once for each
    /// use of the block that it stands in.
    pub(crate) fn add_once(&mut self, id: usize, place: impl Into<Place>, message: impl Into<String>) {
        let message = message.into();
        if self.reported.insert((id, words(&message))) {
            self.list.push(Error { id: Some(id), place: place.into(), message });
        }
    }

    /// Adds what was found in a list that went on from this one: the first mistake of each expression.
    pub(crate) fn append(&mut self, found: Vec<Error>) {
        let mut seen = HashSet::new();
        self.list.extend(found.into_iter().filter(|error| error.id.is_none_or(|id| seen.insert(id))));
    }

    /// A mistake of the same expression in the same words.
    pub(crate) fn like(&self, error: &Error) -> Option<&Error> {
        let said = words(&error.message);
        self.list.iter().find(|other| other.id == error.id && words(&other.message) == said)
    }

    /// Adds what syn found.
    pub(crate) fn add_syn(&mut self, error: &syn::Error) {
        for error in error.clone() {
            self.add(error.span(), error.to_string());
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty() && !self.earlier
    }

    pub(crate) fn list(&self) -> &[Error] {
        &self.list
    }

    /// Leaves out all but the first `count` mistakes: what was said of the parts of something that is one mistake as a whole.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.list.truncate(count);
    }

    /// Puts the last mistake before the others: what the others may come of.
    pub(crate) fn last_to_front(&mut self) {
        if let Some(last) = self.list.pop() {
            self.list.insert(0, last);
        }
    }

    /// One `compile_error!` each: all but the last, as items, and the last, to stand for an item or a value.
    pub(crate) fn into_tokens(mut self) -> (TokenStream, TokenStream) {
        let last = self.list.pop();
        let tokens = |list: &[Error]| list.iter().flat_map(Error::tokens).collect();
        (tokens(&self.list), tokens(last.as_slice()))
    }
}

/// What a message says, whatever the numbers and shapes in it.
fn words(message: &str) -> String {
    message.chars().filter(|letter| letter.is_alphabetic()).collect()
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
