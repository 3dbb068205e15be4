//! What other languages and libraries taught: `nn.ReLU()`, `x.relu()`, `for i in 0..3 { .. }`, `[x; 3]`, `True`.

use super::{Parser, drain};
use crate::syntax::{Argument, Expression, Kind, Place};
use gpumem_core::layers::Entry;
use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::Token;
use syn::parse::ParseStream;

/// Where PyTorch and Keras keep their layers.
const MODULES: [&str; 9] = ["nn", "F", "torch", "functional", "modules", "tf", "keras", "layers", "torchvision"];

/// The layer of this name but for case and `_`, `relu` or `ReLU`.
fn layer_called(name: &Ident) -> Option<Ident> {
    let plain = |name: &str| name.to_lowercase().replace('_', "");
    let target = plain(&name.to_string());
    Entry::names().into_iter().find(|known| plain(known) == target).map(|known| Ident::new(known, name.span()))
}

impl Parser<'_> {
    /// A name or a call, and what was written behind it with dots.
    pub(super) fn chain(&mut self, input: ParseStream<'_>) -> syn::Result<Expression> {
        if input.peek(syn::Ident) && input.peek2(Token![!]) && input.peek3(syn::token::Bracket) {
            let name: Ident = input.parse()?;
            input.parse::<Token![!]>()?;
            self.errors.add(&name, format!("lists need no macro; write `[..]` without `{name}!`"));
            return self.list(input);
        }
        let first = self.name_or_call(input)?;
        if input.peek(syn::token::Paren) {
            return self.applied(input, first);
        }
        if !input.peek(Token![.]) || input.peek(Token![..]) {
            return Ok(first);
        }
        let mut parts = vec![first];
        while input.peek(Token![.]) && !input.peek(Token![..]) && input.peek2(syn::Ident) {
            input.parse::<Token![.]>()?;
            parts.push(self.name_or_call(input)?);
        }
        let place = parts[0].place.to(parts[parts.len() - 1].place);
        let is_module =
            |part: &Expression| matches!(&part.kind, Kind::Name(name) if MODULES.iter().any(|module| name == module));
        if is_module(&parts[0]) {
            // The last one is the layer: `torch.nn.ReLU()`.
            let mut layer = parts.pop().map_or(Kind::Broken, |last| last.kind);
            drop_value(&mut layer);
            if let Kind::Name(name) | Kind::Call { name, .. } = &mut layer {
                *name = layer_called(name).unwrap_or_else(|| name.clone());
                self.errors.add(place, format!("layers have no path; write `{name}`"));
            }
            return Ok(self.new_expression(place, layer));
        }
        Ok(self.methods(parts, place))
    }

    /// `x.conv2d(8, 3).relu()`: the layers in a list. What they are called on is not one, unless it is the first layer.
    fn methods(&mut self, mut parts: Vec<Expression>, place: Place) -> Expression {
        for part in &mut parts {
            if let Kind::Call { name, arguments } = &part.kind
                && arguments.is_empty()
            {
                part.kind = Kind::Name(name.clone());
            }
            if let Kind::Name(name) | Kind::Call { name, .. } = &mut part.kind
                && let Some(known) = layer_called(name)
            {
                *name = known;
            }
        }
        let is_layer = |part: &Expression| match &part.kind {
            Kind::Name(name) => Entry::find(&name.to_string()).is_some(),
            Kind::Call { .. } => true,
            _ => false,
        };
        if !is_layer(&parts[0]) {
            parts.remove(0);
        }
        let layers: Vec<String> = parts.iter().map(ToString::to_string).collect();
        let message = format!(
            "layers have no methods; they are listed, each after the one that it follows: `[{}]`",
            layers.join(", ")
        );
        self.errors.add(place, message);
        self.new_expression(place, Kind::List(parts))
    }

    /// `Conv2d(8, 3)(x)`: a layer that is called with a value.
    fn applied(&mut self, input: ParseStream<'_>, layer: Expression) -> syn::Result<Expression> {
        let content;
        let parentheses = syn::parenthesized!(content in input);
        drain(&content);
        let place = Place { start: parentheses.span.open(), end: parentheses.span.close() };
        let message = format!(
            "layers are not called with a value; they are listed, each after the one that it follows: `[{layer}, ..]`"
        );
        self.errors.add(place, message);
        Ok(layer)
    }

    /// `for i in 0..3 { .. }`: the body, repeated.
    pub(super) fn for_loop(&mut self, input: ParseStream<'_>) -> syn::Result<Expression> {
        let keyword: Token![for] = input.parse()?;
        let start = Place::from(keyword.span);
        let mut head = TokenStream::new();
        while !input.is_empty() && !input.peek(syn::token::Brace) && !input.peek(Token![,]) {
            head.extend([input.parse::<TokenTree>()?]);
        }
        if !input.peek(syn::token::Brace) {
            self.errors.add(start, "there are no loops; write `repeat(3, [..])`");
            return Ok(self.new_expression(start, Kind::Broken));
        }
        let content;
        let braces = syn::braced!(content in input);
        let place = start.to(Place::from(braces.span.close()));
        // `i in 0..3`: how often it runs, where it counts from 0.
        let written: Vec<TokenTree> = head.into_iter().collect();
        let range = match written.as_slice() {
            [
                TokenTree::Ident(counter),
                _,
                TokenTree::Literal(zero),
                TokenTree::Punct(_),
                TokenTree::Punct(dot),
                times @ ..,
            ] if zero.to_string() == "0" && dot.as_char() == '.' => {
                let times: TokenStream = times.iter().cloned().collect();
                let value = |input: ParseStream<'_>| self.expression(input);
                syn::parse::Parser::parse2(value, times).ok().map(|times| (counter, times))
            }
            _ => None,
        };
        let Some((counter, times)) = range else {
            self.errors.add(start, "there are no loops; write `repeat(3, [..])`");
            drain(&content);
            return Ok(self.new_expression(place, Kind::Broken));
        };
        self.errors.add(start, format!("there are no loops; write `repeat({times}, [..])`"));
        if mentions(content.fork().parse()?, counter) {
            // Which number it is each time is for a block with a parameter to know.
            drain(&content);
            return Ok(self.new_expression(place, Kind::Broken));
        }
        let body = self.body(&content, place).element;
        let arguments = [times, body].map(|value| Argument { name: None, value }).into();
        Ok(self.new_expression(place, Kind::Call { name: Ident::new("repeat", keyword.span), arguments }))
    }

    /// `[x; 3]`, if that stands between the brackets.
    pub(super) fn repeated(&mut self, content: ParseStream<'_>, place: Place) -> Option<Expression> {
        let tokens: Vec<TokenTree> = content.fork().parse::<TokenStream>().ok()?.into_iter().collect();
        let is_semicolon = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ';');
        let at = tokens.iter().position(is_semicolon)?;
        let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
        if at == 0 || at + 1 == tokens.len() || tokens.iter().any(is_comma) {
            return None;
        }
        let [element, times] = [&tokens[..at], &tokens[at + 1..]].map(|part| {
            let value = |input: ParseStream<'_>| self.expression(input);
            syn::parse::Parser::parse2(value, part.iter().cloned().collect()).ok()
        });
        let (element, times) = (element?, times?);
        drain(content);
        self.errors.add(place, format!("what is repeated is written `repeat({times}, {element})`"));
        let arguments = [times, element].map(|value| Argument { name: None, value }).into();
        Some(self.new_expression(place, Kind::Call { name: Ident::new("repeat", place.start), arguments }))
    }

    /// A bare name; `True`, `False` and `None` are Python's.
    pub(super) fn constant_of_python(&mut self, place: Place, name: Ident) -> Expression {
        let kind = if name == "True" || name == "False" {
            let value = name == "True";
            self.errors.add(place, format!("write `{value}`"));
            Kind::Flag(value)
        } else if name == "None" {
            self.errors.add(place, "there is no `None`; leave the argument out");
            Kind::Broken
        } else {
            Kind::Name(name)
        };
        self.new_expression(place, kind)
    }
}

/// Leaves out what a function is called with: `relu(x)`.
fn drop_value(layer: &mut Kind) {
    if let Kind::Call { name, arguments } = layer
        && name.to_string().starts_with(char::is_lowercase)
        && matches!(arguments.first(), Some(Argument { name: None, value: Expression { kind: Kind::Name(_), .. } }))
    {
        arguments.remove(0);
    }
}

/// Whether a name stands anywhere among these tokens.
fn mentions(tokens: TokenStream, name: &Ident) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Group(group) => mentions(group.stream(), name),
        TokenTree::Ident(other) => other == *name,
        _ => false,
    })
}
