//! `fn forward(..)` and blocks.

use super::{Parser, drain};
use crate::syntax::{Body, Expression, Function, Kind, Let, Parameter, Place, Type};
use proc_macro2::{Ident, TokenTree};
use syn::parse::ParseStream;
use syn::{Attribute, Token};

impl Parser<'_> {
    pub(super) fn function(&mut self, input: ParseStream<'_>, attributes: &[Attribute]) -> syn::Result<Function> {
        let mut frozen = false;
        let mut docs = String::new();
        for attribute in attributes {
            if attribute.path().is_ident("freeze") {
                frozen = true;
                if !matches!(attribute.meta, syn::Meta::Path(_)) {
                    self.errors.add(Place::of(attribute), "`#[freeze]` takes no arguments; remove them");
                }
            } else if attribute.path().is_ident("doc") {
                docs.extend(line(attribute));
            } else if attribute.path().is_ident("checkpoint") {
                self.errors.add(Place::of(attribute), "`#[checkpoint]` is not available yet; remove it");
            } else if !["allow", "expect", "rustfmt"]
                .iter()
                .any(|known| attribute.path().segments.first().is_some_and(|first| first.ident == known))
            {
                self.errors.add(Place::of(attribute), "blocks have no such attribute; remove it");
            }
        }
        let keyword = input.parse::<Token![fn]>()?;
        let name: Ident = input.parse()?;
        let content;
        let parentheses = syn::parenthesized!(content in input);
        let parameters = self.separated(&content, "a parameter", Self::parameter, |parameter| {
            format!("{}: {}", parameter.name, parameter.kind.name)
        });
        let outputs = if input.peek(Token![->]) {
            input.parse::<Token![->]>()?;
            self.output_types(input)?
        } else {
            let output = if name == "forward" { "Logits<1000>" } else { "Block" };
            self.errors.add(
                Place { start: keyword.span, end: parentheses.span.close() },
                format!("`{name}` has no output type; write `-> {output}` after its parentheses"),
            );
            Vec::new()
        };
        let content;
        let braces = syn::braced!(content in input);
        let body = self.body(&content, braces.span.join().into());
        Ok(Function {
            docs,
            name,
            parameters: parameters.into_iter().map(|(parameter, _)| parameter).collect(),
            signature: Place { start: parentheses.span.open(), end: parentheses.span.close() },
            outputs,
            frozen,
            body,
        })
    }

    fn parameter(&mut self, input: ParseStream<'_>) -> syn::Result<(Parameter, Place)> {
        if input.peek(Token![&]) || input.peek(Token![self]) {
            return Err(
                input.error("a network has no `self`: `forward` takes its inputs only, and blocks their parameters")
            );
        }
        let name: Ident = input.parse()?;
        if !input.peek(Token![:]) {
            return Err(input.error(format!("expected `: usize`, `: f64`, `: bool` or `: Block` after `{name}`")));
        }
        input.parse::<Token![:]>()?;
        let kind = self.written_type(input)?;
        let place = Place::from(&name).to(kind.place);
        Ok((Parameter { name, kind }, place))
    }

    /// `Logits<1000>`, or `(Logits<10>, Map<4, 8, 8>)`
    fn output_types(&mut self, input: ParseStream<'_>) -> syn::Result<Vec<Type>> {
        if !input.peek(syn::token::Paren) {
            return Ok(vec![self.written_type(input)?]);
        }
        let content;
        syn::parenthesized!(content in input);
        let item = |parser: &mut Self, input: ParseStream<'_>| {
            let written = parser.written_type(input)?;
            let place = written.place;
            Ok((written, place))
        };
        let types = self.separated(&content, "a type", item, |written| written.name.to_string());
        Ok(types.into_iter().map(|(written, _)| written).collect())
    }

    /// `Block`, `Image<3, 224, { SIZE / 2 }>`
    fn written_type(&mut self, input: ParseStream<'_>) -> syn::Result<Type> {
        let name: Ident = input.parse()?;
        let mut place = Place::from(&name);
        let mut dimensions = Vec::new();
        if input.peek(Token![<]) {
            input.parse::<Token![<]>()?;
            while !input.peek(Token![>]) {
                dimensions.push(self.dimension(input)?);
                if !input.peek(Token![,]) {
                    break;
                }
                input.parse::<Token![,]>()?;
            }
            place.end = input.parse::<Token![>]>()?.span;
        }
        Ok(Type { name, dimensions, place })
    }

    fn dimension(&mut self, input: ParseStream<'_>) -> syn::Result<Expression> {
        if input.peek(syn::token::Brace) {
            let content;
            syn::braced!(content in input);
            let value = self.expression(&content);
            if value.is_ok() && !content.is_empty() {
                let error = content.error("expected one number");
                drain(&content);
                return Err(error);
            }
            drain(&content);
            value
        } else if input.peek(syn::Lit) || input.peek(syn::Ident) {
            self.operand(input)
        } else {
            Err(input.error("expected a number, a constant or `{ .. }` around a longer expression"))
        }
    }

    /// `let` statements and one element.
    pub(super) fn body(&mut self, input: ParseStream<'_>, place: Place) -> Body {
        let mut lets = Vec::new();
        let mut element: Option<Expression> = None;
        while !input.is_empty() {
            if input.peek(Token![let]) {
                match self.binding(input) {
                    Ok(binding) => lets.push(binding),
                    Err(error) => {
                        self.errors.add_syn(&error);
                        skip_statement(input);
                    }
                }
                continue;
            }
            match self.expression(input) {
                Ok(more) => match &element {
                    None => element = Some(more),
                    Some(first) => self.errors.add(
                        more.place,
                        format!("a body ends with one list, and `{first}` is already it; put both into one list"),
                    ),
                },
                Err(error) => {
                    self.errors.add_syn(&error);
                    // Something was there, so that it is not reported as missing too.
                    element.get_or_insert(Expression { id: self.id(), place, kind: Kind::Broken });
                    skip_statement(input);
                }
            }
            if input.peek(Token![;]) {
                self.errors.add(input.span(), "remove this `;`: the list is what the body stands for");
                let _ = input.parse::<Token![;]>();
            }
        }
        let element = element.unwrap_or_else(|| {
            self.errors.add(place, "the body has no layers; write `[]` for one that passes its input on");
            Expression { id: self.id(), place, kind: Kind::Broken }
        });
        Body { lets, element }
    }

    fn binding(&mut self, input: ParseStream<'_>) -> syn::Result<Let> {
        input.parse::<Token![let]>()?;
        let name: Ident = input.parse()?;
        input.parse::<Token![=]>()?;
        let element = self.expression(input)?;
        if input.peek(Token![;]) {
            input.parse::<Token![;]>()?;
        } else {
            self.errors.add(input.span(), format!("expected `;` after `let {name} = {element}`"));
        }
        Ok(Let { name, element })
    }
}

fn skip_statement(input: ParseStream<'_>) {
    while !input.is_empty() {
        if let Ok(TokenTree::Punct(punct)) = input.parse::<TokenTree>()
            && punct.as_char() == ';'
        {
            return;
        }
    }
}

/// The text of a `///` line, which `#[doc = include_str!(..)]` has not.
fn line(documentation: &Attribute) -> Option<String> {
    let syn::Meta::NameValue(syn::MetaNameValue { value, .. }) = &documentation.meta else { return None };
    match value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value() + "\n"),
        _ => None,
    }
}
