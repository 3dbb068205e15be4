//! Parses loops of Rust and Python, which are `repeat` here: `for i in 0..3 { .. }`, `[x; 3]`, `x for _ in range(3)`.

use super::foreign_syntax::stands_in;
use super::{Parser, drain, skip_token};
use crate::syntax::{Argument, Expression, Kind, Place};
use proc_macro2::{Ident, Literal, TokenStream, TokenTree};
use syn::Token;
use syn::parse::ParseStream;

impl Parser<'_> {
    /// Parses `for i in 0..3 { .. }` and returns the body, repeated. The count of other loops is not known.
    pub(super) fn any_loop(&mut self, input: ParseStream<'_>) -> syn::Result<Expression> {
        let is_for = input.peek(Token![for]);
        let keyword = input.span();
        skip_token(input);
        let start = Place::from(keyword);
        let mut head: Vec<TokenTree> = Vec::new();
        while !input.is_empty() && !input.peek(syn::token::Brace) && !input.peek(Token![,]) {
            head.push(input.parse()?);
        }
        let (counter, times) = if is_for { self.counted(&head) } else { (None, None) };
        let written = times.as_ref().map_or("n".to_string(), ToString::to_string);
        self.errors.add(start, format!("there are no loops; write `repeat({written}, [..])`"));
        if !input.peek(syn::token::Brace) {
            return Ok(self.new_expression(start, Kind::Broken));
        }
        let content;
        let braces = syn::braced!(content in input);
        let place = start.to(Place::from(braces.span.close()));
        let contents: TokenStream = content.fork().parse()?;
        // If the body uses the counter, only a block with a parameter can express it.
        let (Some(times), false) = (times, counter.is_some_and(|counter| stands_in(contents, &counter))) else {
            drain(&content);
            return Ok(self.new_expression(place, Kind::Broken));
        };
        let body = self.body(&content, place).element;
        let arguments = [times, body].map(|value| Argument { name: None, value }).into();
        Ok(self.new_expression(place, Kind::Call { name: Ident::new("repeat", keyword), arguments }))
    }

    /// Returns the counter and the count of `i in 0..3` or `i in range(3)`. Each is `None` if it cannot be read.
    fn counted(&mut self, head: &[TokenTree]) -> (Option<Ident>, Option<Expression>) {
        let Some(TokenTree::Ident(counter)) = head.first() else { return (None, None) };
        let times = match &head[1..] {
            [_, TokenTree::Literal(start), TokenTree::Punct(_), TokenTree::Punct(dot), end @ ..]
                if dot.as_char() == '.' =>
            {
                count(&start.to_string(), end)
            }
            [_, TokenTree::Ident(range), TokenTree::Group(times)] if range == "range" => Some(times.stream()),
            _ => None,
        };
        let Some(times) = times else { return (Some(counter.clone()), None) };
        let before = self.errors.list().len();
        let value = |input: ParseStream<'_>| self.expression(input);
        let times = syn::parse::Parser::parse2(value, times).ok();
        self.errors.truncate(before);
        (Some(counter.clone()), times)
    }

    /// Parses `[x; 3]`, if the brackets contain that.
    pub(super) fn repeated(&mut self, content: ParseStream<'_>, place: Place) -> Option<Expression> {
        let tokens: Vec<TokenTree> = content.fork().parse::<TokenStream>().ok()?.into_iter().collect();
        let is_semicolon = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ';');
        let at = tokens.iter().position(is_semicolon)?;
        let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
        if at == 0 || at + 1 == tokens.len() || tokens.iter().any(is_comma) {
            return None;
        }
        drain(content);
        let [element, times] = [&tokens[..at], &tokens[at + 1..]].map(|part| {
            let value = |input: ParseStream<'_>| self.expression(input);
            syn::parse::Parser::parse2(value, part.iter().cloned().collect()).ok()
        });
        // A second attempt would parse nested lists twice at every level, so a broken one is given up.
        let (Some(element), Some(times)) = (element, times) else {
            self.errors
                .add(place, "what is repeated is one element, written `repeat(n, [..])` with commas between layers");
            return Some(self.new_expression(place, Kind::Broken));
        };
        self.errors.add(place, format!("what is repeated is written `repeat({times}, {element})`"));
        let arguments = [times, element].map(|value| Argument { name: None, value }).into();
        Some(self.new_expression(place, Kind::Call { name: Ident::new("repeat", place.start), arguments }))
    }
}

/// Returns the count of numbers from `start` to the end of a range, which is written `9` or `=9`.
fn count(start: &str, end: &[TokenTree]) -> Option<TokenStream> {
    let (end, inclusive) = match end {
        [TokenTree::Punct(equals), end @ ..] if equals.as_char() == '=' => (end, 1),
        _ => (end, 0),
    };
    let start: u64 = start.parse().ok()?;
    if let [TokenTree::Literal(last)] = end {
        let times = last.to_string().parse::<u64>().ok()?.checked_add(inclusive)?.checked_sub(start)?;
        return Some(TokenTree::from(Literal::u64_unsuffixed(times)).into());
    }
    // A range from 0 has as many numbers as its end says.
    (start == inclusive).then(|| end.iter().cloned().collect())
}
