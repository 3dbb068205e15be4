//! Parses `fn forward(..)` and blocks.

use super::{Parser, brief, drain, skip_to_comma};
use crate::resolve::{BLOCK_NAME, is_block_name};
use crate::syntax::{BlockAttributes, Function, Parameter, Place, Type};
use proc_macro2::Ident;
use syn::ext::IdentExt as _;
use syn::parse::ParseStream;
use syn::{Attribute, Token};

impl Parser<'_> {
    pub(super) fn function(&mut self, input: ParseStream<'_>, attributes: &[Attribute]) -> syn::Result<Function> {
        let (docs, marks) = self.attributes_of_function(attributes);
        let keyword = input.parse::<Token![fn]>()?;
        let name: Ident = input.parse()?;
        if input.peek(Token![<]) {
            let generics: syn::Generics = input.parse()?;
            let message =
                format!("`{name}` has no parameters in `<..>`; numbers stand in its parentheses, as `(n: usize)`");
            self.errors.add(Place::of(&generics), message);
        }
        let content;
        let parentheses = syn::parenthesized!(content in input);
        let before = self.errors.list().len();
        let is_forward = name == "forward";
        if let Some(attribute) = attributes.iter().find(|it| is_forward && it.path().is_ident("checkpoint")) {
            let message = "`#[checkpoint]` on `forward` would compute everything a second time and keep nothing less; put it on \
                           blocks, or write `checkpoint: Auto` in `TRAIN`";
            self.errors.add(Place::of(attribute), message);
        }
        if let Some(attribute) = attributes.iter().find(|it| is_forward && it.path().is_ident("name")) {
            self.errors.add(Place::of(attribute), "paths begin inside `forward`, so it has no name; remove `#[name]`");
        }
        let parameter = |parser: &mut Self, input: ParseStream<'_>| parser.parameter(input, is_forward);
        let parameters = self.separated(&content, "a parameter", parameter, |parameter| {
            format!("{}: {}", parameter.name, parameter.kind.name)
        });
        let is_broken = self.errors.list().len() > before;
        let outputs = if input.peek(Token![->]) {
            input.parse::<Token![->]>()?;
            self.output_types(input)
        } else {
            let output = if is_forward { "Logits<1000>" } else { "Block" };
            self.errors.add(
                Place { start: keyword.span, end: parentheses.span.close() },
                format!("`{name}` has no output type; write `-> {output}` after its parentheses"),
            );
            Vec::new()
        };
        let content;
        let braces = syn::braced!(content in input);
        self.outputs = outputs.len();
        if is_forward {
            self.inputs = parameters.iter().map(|(input, _)| input.name.to_string()).collect();
        }
        let body = self.body(&content, braces.span.join().into());
        (self.outputs, self.inputs) = (0, Vec::new());
        Ok(Function {
            docs,
            name,
            parameters: parameters.into_iter().map(|(parameter, _)| parameter).collect(),
            is_broken,
            signature: Place { start: parentheses.span.open(), end: parentheses.span.close() },
            outputs,
            attributes: marks,
            body,
        })
    }

    /// Returns the text of the `///` lines, and the attributes that this language has.
    fn attributes_of_function(&mut self, attributes: &[Attribute]) -> (String, BlockAttributes) {
        let (mut docs, mut marks) = (String::new(), BlockAttributes::default());
        for attribute in attributes {
            let is_known = |known: &[&str]| known.iter().any(|known| attribute.path().is_ident(known));
            let first = attribute.path().segments.first();
            if is_known(&["freeze", "checkpoint"]) {
                let is_freeze = is_known(&["freeze"]);
                marks.is_frozen |= is_freeze;
                marks.is_computed_again |= !is_freeze;
                if !matches!(attribute.meta, syn::Meta::Path(_)) {
                    let name = if is_freeze { "freeze" } else { "checkpoint" };
                    self.errors.add(Place::of(attribute), format!("`#[{name}]` takes no arguments; remove them"));
                }
            } else if is_known(&["name"]) {
                marks.name = self.name_of_block(attribute);
            } else if is_known(&["doc"]) {
                docs.extend(line(attribute));
            } else if is_known(&["cfg", "cfg_attr"]) {
                self.condition(attribute);
            } else if !first
                .is_some_and(|first| ["allow", "expect", "rustfmt"].iter().any(|known| first.ident == known))
            {
                self.errors.add(Place::of(attribute), "blocks have no such attribute; remove it");
            }
        }
        (docs, marks)
    }

    /// Returns the text of `#[name = ".."]`; `None` after a mistake.
    fn name_of_block(&mut self, attribute: &Attribute) -> Option<String> {
        let message = match &attribute.meta {
            syn::Meta::NameValue(syn::MetaNameValue {
                value: syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(name), .. }),
                ..
            }) if is_block_name(&name.value()) => return Some(name.value()),
            syn::Meta::NameValue(_) => BLOCK_NAME,
            _ => "`#[name]` takes a text, as `#[name = \"layer1\"]`",
        };
        self.errors.add(Place::of(attribute), message);
        None
    }

    /// Reads and reports attributes and documentation before a layer, a `let`, a field or an argument, none of which may have any.
    ///
    /// True if there were some.
    pub(super) fn attributes_within(&mut self, input: ParseStream<'_>) -> bool {
        if !(input.peek(Token![#]) && input.peek2(syn::token::Bracket)) {
            return false;
        }
        let attributes = match input.call(Attribute::parse_outer) {
            Ok(attributes) => attributes,
            Err(error) => {
                self.errors.add_syn(&error);
                return true;
            }
        };
        let mut documented: Option<Place> = None;
        for attribute in attributes {
            let (place, path) = (Place::of(&attribute), attribute.path());
            if path.is_ident("doc") {
                documented = Some(documented.map_or(place, |first| first.to(place)));
            } else if path.is_ident("cfg") || path.is_ident("cfg_attr") {
                self.condition(&attribute);
            } else if let Some(word) = ["freeze", "checkpoint"].into_iter().find(|word| path.is_ident(word)) {
                let message = format!("`#[{word}]` stands before a block's `fn`; around layers write `{word}([..])`");
                self.errors.add(place, message);
            } else {
                self.errors.add(place, "no attributes stand here; remove it");
            }
        }
        if let Some(place) = documented {
            let message = "documentation stands before the struct and before a `fn`; here write a comment, with `//`";
            self.errors.add(place, message);
        }
        true
    }

    /// Reports a `#[cfg(..)]` on a part of a network. The macro would read that part even if the condition is false.
    pub(super) fn condition(&mut self, attribute: &Attribute) {
        let message = match self.of_blocks {
            true => "no part of a module of blocks has a condition; put `#[cfg(..)]` before the module".to_string(),
            false => {
                "no part of a network has a condition; put `#[cfg(..)]` before `pub struct ..;`, where it is for the \
                      whole network, and write a second network for the other case"
                    .to_string()
            }
        };
        self.errors.add(Place::of(attribute), message);
    }

    fn parameter(&mut self, input: ParseStream<'_>, is_forward: bool) -> syn::Result<(Parameter, Place)> {
        if input.peek(Token![mut]) {
            self.errors.add(input.span(), "inputs and parameters never change; remove `mut`");
            input.parse::<Token![mut]>()?;
        }
        if input.peek(Token![&]) || input.peek(Token![self]) {
            return Err(
                input.error("a network has no `self`: `forward` takes its inputs only, and blocks their parameters")
            );
        }
        let name: Ident = input.parse()?;
        let [example, types] = match is_forward {
            true => ["Image<3, 224, 224>", "a type, as `Image<3, 224, 224>`"],
            false => ["usize", "`usize`, `f64`, `bool` or `Block`"],
        };
        if input.peek(Token![<]) && is_forward {
            let place = Place::from(&name).to(self.angles(input));
            self.errors.add(place, format!("every input has a name; write `x: {name}<..>`"));
            return Ok((Parameter { name, kind: Type::broken(place), default: None }, place));
        }
        if !input.peek(Token![:]) || input.peek(Token![::]) {
            let place = Place::from(&name);
            self.errors.add(place, format!("`{name}` has no type; write `{name}: {example}`"));
            skip_to_comma(input);
            return Ok((Parameter { name, kind: Type::broken(place), default: None }, place));
        }
        input.parse::<Token![:]>()?;
        let kind = self.written_type(input, types);
        let place = Place::from(&name).to(kind.place);
        let default = match self.of_composites && input.peek(Token![=]) {
            true => {
                input.parse::<Token![=]>()?;
                Some(self.expression(input)?)
            }
            false => None,
        };
        Ok((Parameter { name, kind, default }, place))
    }

    /// Parses `Logits<1000>`, or `(Logits<10>, Map<4, 8, 8>)`. Empty after a mistake.
    fn output_types(&mut self, input: ParseStream<'_>) -> Vec<Type> {
        let expected = "a type, as `Logits<1000>`, or several in parentheses, as `(Logits<10>, Map<4, 8, 8>)`";
        if input.peek(syn::token::Brace) && input.peek2(syn::token::Brace) {
            let _ = self.fields(input);
            return Vec::new();
        }
        if !input.peek(syn::token::Paren) {
            let written = self.written_type(input, expected);
            if input.peek(syn::token::Brace) && input.peek2(syn::token::Brace) {
                let _ = self.fields(input);
                return Vec::new();
            }
            return if written.is_broken { Vec::new() } else { vec![written] };
        }
        let types = (|| {
            let content;
            syn::parenthesized!(content in input);
            let item = |parser: &mut Self, input: ParseStream<'_>| {
                let mut written = parser.written_type(input, expected);
                let place = written.place;
                if input.peek(syn::token::Brace) && !written.is_broken {
                    written.is_broken = parser.fields(input).is_ok();
                }
                if written.is_broken {
                    skip_to_comma(input);
                }
                Ok((written, place))
            };
            Ok::<_, syn::Error>(self.separated(&content, "a type", item, |written| written.name.to_string()))
        })();
        let types: Vec<Type> = types.unwrap_or_default().into_iter().map(|(written, _)| written).collect();
        if types.iter().any(|written| written.is_broken) { Vec::new() } else { types }
    }

    /// Skips and reports named outputs, `{ classes: Map<81, 8, 8>, boxes: Map<4, 8, 8> }`, which Rust does not allow either.
    fn fields(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        let content;
        let braces = syn::braced!(content in input);
        drain(&content);
        let message = "outputs have no names; their types stand in parentheses, as `-> (Map<81, 8, 8>, Map<4, 8, 8>)`, and the \
                       body ends with `Outputs(x, y)`";
        self.errors.add(braces.span.join(), message);
        Ok(())
    }

    /// Parses a type, as `Block` or `Image<3, 224, { SIZE / 2 }>`. Reports everything else, and each part that cannot be read.
    fn written_type(&mut self, input: ParseStream<'_>, expected: &str) -> Type {
        if input.peek(Token![&]) {
            self.errors.add(input.span(), "there are no references; remove `&`");
            let _ = input.parse::<Token![&]>();
        }
        let start = Place::from(input.span());
        let Ok(mut name) = input.call(Ident::parse_any) else {
            let found = input.cursor().token_tree().map_or("nothing".into(), |(token, _)| brief(&token));
            self.errors.add(start, format!("expected {expected}, found `{found}`"));
            skip_to_comma_or_braces(input);
            return Type::broken(start);
        };
        let mut place = Place::from(&name);
        while input.peek(Token![::]) && input.peek3(syn::Ident) {
            let _ = input.parse::<Token![::]>();
            let Ok(next) = input.parse::<Ident>() else { break };
            (name, place.end) = (next.clone(), next.span());
            if !input.peek(Token![::]) {
                self.errors.add(place, format!("types have no path; write `{name}`"));
            }
        }
        let (mut format, mut dimensions, mut is_broken) = (None, Vec::new(), false);
        if input.peek(Token![<]) && !crate::resolve::is_type(&name.to_string()) {
            // The unknown type is the mistake, so its sizes are skipped.
            place.end = self.angles(input).end;
        } else if input.peek(Token![<]) || input.peek(syn::token::Paren) {
            match self.dimensions(input, &name) {
                Ok((written, end)) => ((format, dimensions), place.end) = (written, end),
                Err(error) => {
                    self.errors.add_syn(&error);
                    skip_to_comma_or_braces(input);
                    is_broken = true;
                }
            }
        }
        Type { name, format, dimensions, place, is_broken }
    }

    /// Parses `<3, 224, 224>`, or with a number format `<u8, 3, 224, 224>`. Returns the span of the end too.
    fn dimensions(&mut self, input: ParseStream<'_>, name: &Ident) -> syn::Result<(Sizes, proc_macro2::Span)> {
        if input.peek(syn::token::Paren) {
            let content;
            let parentheses = syn::parenthesized!(content in input);
            let placed = |parser: &mut Self, input: ParseStream<'_>| {
                let value = parser.expression(input)?;
                let place = value.place;
                Ok((value, place))
            };
            let values = self.separated(&content, "a number", placed, ToString::to_string);
            let values: Vec<_> = values.into_iter().map(|(value, _)| value).collect();
            let place = Place { start: parentheses.span.open(), end: parentheses.span.close() };
            let message = format!("sizes stand between `<` and `>`; write `{name}<{}>`", Type::sizes(&values));
            self.errors.add(place, message);
            return Ok(((None, values), place.end));
        }
        let mut dimensions = Vec::new();
        input.parse::<Token![<]>()?;
        let mut format = input.fork().parse().ok().filter(|word: &Ident| FORMATS.iter().any(|format| word == format));
        if format.is_some() {
            format = Some(input.parse::<Ident>()?);
            if input.peek(Token![,]) {
                input.parse::<Token![,]>()?;
            }
        }
        while !input.peek(Token![>]) {
            dimensions.push(self.dimension(input)?);
            if !input.peek(Token![,]) {
                break;
            }
            input.parse::<Token![,]>()?;
        }
        let end = input.parse::<Token![>]>()?.span;
        Ok(((format, dimensions), end))
    }

    /// Skips from `<` to its `>`.
    fn angles(&mut self, input: ParseStream<'_>) -> Place {
        let mut place = Place::from(input.span());
        let mut depth = 0;
        while !input.is_empty() {
            place.end = input.span();
            depth += i32::from(input.peek(Token![<])) - i32::from(input.peek(Token![>]));
            super::skip_token(input);
            if depth <= 0 {
                break;
            }
        }
        place
    }

    fn dimension(&mut self, input: ParseStream<'_>) -> syn::Result<crate::syntax::Expression> {
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
        } else if input.peek(syn::Lit) || input.peek(syn::Ident) || begins_with_path(input) {
            self.operand(input)
        } else {
            Err(input.error("expected a number, a constant or `{ .. }` around a longer expression"))
        }
    }
}

/// Number formats that a user may write before the sizes of a type.
const FORMATS: [&str; 10] = ["u8", "i8", "u16", "i16", "u32", "i32", "f16", "bf16", "f32", "f64"];

/// The contents of `<` and `>`: an optional number format, and sizes.
type Sizes = (Option<Ident>, Vec<crate::syntax::Expression>);

/// True if a path that begins with one of Rust's keywords is next.
pub(super) fn begins_with_path(input: ParseStream<'_>) -> bool {
    let word = input.peek(Token![crate]) || input.peek(Token![super]) || input.peek(Token![self]);
    input.peek(Token![::]) || word && input.peek2(Token![::])
}

fn skip_to_comma_or_braces(input: ParseStream<'_>) {
    while !input.is_empty() && !input.peek(Token![,]) && !input.peek(syn::token::Brace) {
        super::skip_token(input);
    }
}

/// Returns the text of a `///` line. `None` for `#[doc = include_str!(..)]`, whose text is in another file.
pub(super) fn line(documentation: &Attribute) -> Option<String> {
    let syn::Meta::NameValue(syn::MetaNameValue { value, .. }) = &documentation.meta else { return None };
    match value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value() + "\n"),
        _ => None,
    }
}
