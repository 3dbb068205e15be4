//! Parses the fields of `TRAIN` and `INFER`, whose values are expressions of Rust.

use super::{Parser, skip_to_comma};
use crate::settings::values::text;
use crate::syntax::{Field, Place, Settings};
use gpumem_core::Loss;
use gpumem_core::program::loss::Compares;
use gpumem_core::train::Schedule;
use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use syn::Token;
use syn::parse::ParseStream;

impl Parser<'_> {
    /// Parses `: Train = Train { batch: 64, .. };`.
    pub(super) fn settings(&mut self, input: ParseStream<'_>, settings: &mut Settings, kind: &str) -> syn::Result<()> {
        let has_type = input.peek(Token![:]);
        if has_type {
            input.parse::<Token![:]>()?;
            self.settings_type(input, kind)?;
        }
        // `: Train { .. }` has a type and no value.
        let has_value = !(has_type && input.peek(syn::token::Brace));
        if has_value {
            input.parse::<Token![=]>()?;
            self.settings_type(input, kind)?;
        }
        if !has_type || !has_value {
            let message =
                format!("write its type and its value: `const {}: {kind} = {kind} {{ .. }};`", kind.to_uppercase());
            self.errors.add(settings.place, message);
        }
        let content;
        syn::braced!(content in input);
        let fields = self.separated(&content, "a field", Self::field, |field| format!("{}: ..", field.name));
        if input.peek(Token![;]) {
            input.parse::<Token![;]>()?;
        } else {
            self.errors.add(input.span(), format!("expected `;` after `{kind} {{ .. }}`"));
        }
        settings.fields = fields.into_iter().map(|(field, _)| field).collect();
        Ok(())
    }

    fn settings_type(&mut self, input: ParseStream<'_>, kind: &str) -> syn::Result<()> {
        let expected = format!("expected `{kind}`, as `: {kind} = {kind} {{ batch: 64 }};`");
        let place = input.fork();
        match input.call(syn::Path::parse_mod_style) {
            Ok(path) if path.segments.last().is_some_and(|last| last.ident == kind) => Ok(()),
            Ok(path) => Err(syn::Error::new_spanned(path, expected)),
            Err(_) => Err(place.error(expected)),
        }
    }

    fn field(&mut self, input: ParseStream<'_>) -> syn::Result<(Field, Place)> {
        if input.peek(Token![..]) {
            let dots: Token![..] = input.parse()?;
            return Err(syn::Error::new_spanned(dots, "fields left out take their defaults; remove the `..`"));
        }
        let name: Ident = input.parse()?;
        if !input.peek(Token![:]) {
            return Err(syn::Error::new(name.span(), format!("expected `{name}: value`")));
        }
        input.parse::<Token![:]>()?;
        if let Some(error) = unnamed_value(&name.to_string(), input) {
            skip_to_comma(input);
            return Err(error);
        }
        let value: syn::Expr = input.parse()?;
        let place = Place::from(&name).to(Place::of(&value));
        Ok((Field { name, value }, place))
    }
}

/// Returns the error for `Adam { 1e-3 }` instead of `Adam { lr: 1e-3 }`, if that is next in `field`.
fn unnamed_value(field: &str, input: ParseStream<'_>) -> Option<syn::Error> {
    if !(input.peek(syn::Ident) && input.peek2(syn::token::Brace)) {
        return None;
    }
    let (kind, rest) = input.cursor().ident()?;
    let (inside, ..) = rest.group(Delimiter::Brace)?;
    let (first, rest) = inside.token_tree()?;
    let has_colon = rest.punct().is_some_and(|(mark, _)| mark.as_char() == ':');
    let is_value = match &first {
        _ if has_colon => false,
        TokenTree::Literal(_) | TokenTree::Group(_) => true,
        TokenTree::Punct(mark) => mark.as_char() == '-',
        // `lr` alone is short for `lr: lr`.
        TokenTree::Ident(_) => false,
    };
    let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ',');
    let value: TokenStream = inside.token_stream().into_iter().take_while(|token| !is_comma(token)).collect();
    let value = text(&value).replace("- ", "-");
    let message = match only_name(field, &kind.to_string()) {
        Some(name) => format!("values have names here; write `{name}: {value}`"),
        None => format!("values have names here, as `name: {value}`; write the one that is meant"),
    };
    is_value.then(|| syn::Error::new(first.span(), message))
}

/// Returns the name that a value without one probably has in the braces of `kind`. `None` if several are likely.
fn only_name(field: &str, kind: &str) -> Option<&'static str> {
    match field {
        "optimizer" => Some("lr"),
        "loss" => {
            let row = Loss::ALL.iter().find(|loss| loss.name() == kind)?.row();
            let labels = (row.compares == Compares::Labels).then_some("target_length");
            labels.or(row.number.map(|number| number.name)).or(row.weights)
        }
        "schedule" => {
            let (_, fields) = Schedule::ROWS.iter().find(|(name, _)| *name == kind)?;
            fields.iter().find(|field| field.is_usual()).or(fields.first()).map(|field| field.name)
        }
        _ => None,
    }
}
