//! Collects mistakes, so that one build shows all of them.

use crate::syntax::Place;
use proc_macro2::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};
use std::collections::HashSet;

/// A mistake and the tokens to underline.
#[derive(Clone, Debug)]
pub(crate) struct Error {
    /// The number of the expression that has the mistake. `None` if it is not in an expression.
    id: Option<usize>,
    pub(crate) place: Place,
    pub(crate) message: String,
}

/// All mistakes of one network.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    list: Vec<Error>,
    /// Expressions that have a mistake already, each with the words of its message.
    reported: HashSet<(usize, String)>,
    /// True if there are mistakes in an earlier list, from which this one was begun.
    earlier: bool,
}

impl Errors {
    /// Returns an empty list that knows if this one has mistakes.
    pub(crate) fn begin(&self) -> Errors {
        Errors { earlier: !self.is_empty(), ..Errors::default() }
    }

    pub(crate) fn add(&mut self, place: impl Into<Place>, message: impl Into<String>) {
        self.list.push(Error { id: None, place: place.into(), message: message.into() });
    }

    /// Adds a mistake of the expression numbered `id`, unless it has been added already.
    ///
    /// An expression is resolved once for each use of the block that contains it, so the mistake would be reported as often.
    pub(crate) fn add_once(&mut self, id: usize, place: impl Into<Place>, message: impl Into<String>) {
        let message = message.into();
        if self.reported.insert((id, words(&message))) {
            self.list.push(Error { id: Some(id), place: place.into(), message });
        }
    }

    /// Adds the mistakes of a list that was begun from this one, keeping only the first of each expression.
    pub(crate) fn append(&mut self, found: Vec<Error>) {
        let mut seen = HashSet::new();
        self.list.extend(found.into_iter().filter(|error| error.id.is_none_or(|id| seen.insert(id))));
    }

    /// Returns a mistake of the same expression in the same words. `None` if there is none.
    pub(crate) fn like(&self, error: &Error) -> Option<&Error> {
        let said = words(&error.message);
        self.list.iter().find(|other| other.id == error.id && words(&other.message) == said)
    }

    /// Adds the errors of a parser of `syn`.
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

    /// Drops all but the first `count` mistakes.
    ///
    /// Used if the mistakes of the parts of an item are replaced by one mistake of the whole item.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.list.truncate(count);
    }

    /// Moves the last mistake to the front, because it may be the cause of the others.
    pub(crate) fn last_to_front(&mut self) {
        if let Some(last) = self.list.pop() {
            self.list.insert(0, last);
        }
    }

    /// Returns one `compile_error!` for each mistake. All but the last are items; the last may replace an item or a value.
    pub(crate) fn into_tokens(mut self) -> (TokenStream, TokenStream) {
        let last = self.list.pop();
        let tokens = |list: &[Error]| list.iter().flat_map(Error::tokens).collect();
        (tokens(&self.list), tokens(last.as_slice()))
    }
}

/// Returns the letters of a message without its numbers, so that messages that differ only in a shape compare as equal.
fn words(message: &str) -> String {
    message.chars().filter(|letter| letter.is_alphabetic()).collect()
}

impl Error {
    /// Returns the tokens of `::core::compile_error! { "message" }`.
    ///
    /// Stable Rust cannot join spans, but it underlines from the first token of the invocation to the last.
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
