//! Parses a layer of the user's own: `operation! { fn Swish(x, beta: f64 = 1.0) { x * sigmoid(beta * x) } }`.

use super::{Parser, Rounds, brief, drain, skip_to_comma, skip_token};
use crate::syntax::{Argument, Asked, Axis, Body, Expression, Kind, Operation, Place, Slope, Tensor};
use gpumem_core::suggest::nearest;
use proc_macro2::Ident;
use syn::ext::IdentExt as _;
use syn::parse::ParseStream;
use syn::{Attribute, Token};

/// The fields of an operation that is more than a formula.
const FIELDS: [&str; 11] =
    ["value", "derivative", "requires", "parameters", "saves", "keeps", "workspace", "threads", "macs", "cpu", "cuda"];

impl Parser<'_> {
    /// Parses `operation! { .. }` inside a network or a module of blocks. `before` are the attributes that precede it.
    pub(super) fn operation_item(
        &mut self,
        input: ParseStream<'_>,
        before: &[Attribute],
    ) -> syn::Result<Vec<Operation>> {
        self.attributes_of_operation(before);
        if let Some(docs) = before.iter().find(|attribute| attribute.path().is_ident("doc")) {
            let message =
                "an operation's documentation stands before its `fn`, inside `operation! { .. }`; move it there";
            self.errors.add(Place::of(docs), message);
        }
        input.call(Ident::parse_any)?;
        input.parse::<Token![!]>()?;
        let content;
        syn::braced!(content in input);
        if input.peek(Token![;]) {
            skip_token(input);
        }
        let mut operations = Vec::new();
        let mut rounds = Rounds::default();
        while rounds.another(&content) {
            let attributes = content.call(Attribute::parse_outer)?;
            let visibility: syn::Visibility = content.parse()?;
            if !matches!(visibility, syn::Visibility::Inherited) {
                let message = "an operation is seen where the blocks beside it are; remove the visibility";
                self.errors.add(Place::of(&visibility), message);
            }
            match self.operation(&content, &attributes) {
                Ok(operation) => operations.push(operation),
                Err(error) => {
                    self.errors.add_syn(&error);
                    super::skip_item(&content);
                }
            }
        }
        Ok(operations)
    }

    /// Parses `fn Swish(x, beta: f64 = 1.0) { .. }`.
    pub(super) fn operation(&mut self, input: ParseStream<'_>, attributes: &[Attribute]) -> syn::Result<Operation> {
        let docs = self.attributes_of_operation(attributes);
        if !input.peek(Token![fn]) {
            return Err(input.error(
                "an operation is written as a function, as `fn Swish(x, beta: f64 = 1.0) { x * sigmoid(beta * x) }`",
            ));
        }
        input.parse::<Token![fn]>()?;
        let name: Ident = input.parse()?;
        let before = self.errors.list().len();
        let name = self.name_of_operation(name);
        // An operation that cannot be read still declares its name.
        let mut operation = Operation::new(docs, name);
        if let Err(error) = self.rest_of_operation(input, &mut operation) {
            self.errors.add_syn(&error);
            super::skip_item(input);
        }
        operation.is_broken = self.errors.list().len() > before;
        Ok(operation)
    }

    /// Returns the name with a capital, as layers have it, and reports it if it had none.
    fn name_of_operation(&mut self, name: Ident) -> Ident {
        let text = name.unraw().to_string();
        // Scripts without capitals pass too.
        if text.starts_with(|first: char| first.is_alphabetic() && first.to_uppercase().eq([first])) {
            return name;
        }
        let capital = capitalised(&text);
        if syn::parse_str::<Ident>(&capital).is_err() {
            self.errors.add(&name, format!("layers begin with a capital, as `Swish`; rename `{name}`"));
            return name;
        }
        self.errors.add(&name, format!("layers begin with a capital; write `{capital}`"));
        Ident::new(&capital, name.span())
    }

    /// Parses everything after the name.
    fn rest_of_operation(&mut self, input: ParseStream<'_>, operation: &mut Operation) -> syn::Result<()> {
        let content;
        let parentheses = syn::parenthesized!(content in input);
        let first = self.tensor_of_operation(&content, &operation.name, parentheses.span.join().into());
        (operation.input, operation.axes) = first.inspect_err(|_| drain(&content))?;
        if content.peek(Token![,]) {
            skip_token(&content);
        }
        let arguments = self.separated(&content, "an argument", Self::argument_of_operation, |argument| {
            format!("{}: {}", argument.name, argument.kind)
        });
        operation.arguments = arguments.into_iter().map(|(argument, _)| argument).collect();
        if input.peek(Token![->]) {
            input.parse::<Token![->]>()?;
            operation.output = Some(self.axes(input, "an output")?);
        }
        let content;
        let braces = syn::braced!(content in input);
        let has_fields = content.is_empty() || content.peek(syn::Ident) && is_field(&content);
        let around = std::mem::replace(&mut self.in_formula, true);
        let read = match has_fields {
            true => self.fields_of_operation(&content, operation),
            false => self.formula(&content).map(|formula| operation.value = Some(formula)),
        };
        self.in_formula = around;
        if let Err(error) = read {
            self.errors.add_syn(&error);
            drain(&content);
        }
        self.check_operation(operation, braces.span.join().into());
        Ok(())
    }

    fn attributes_of_operation(&mut self, attributes: &[Attribute]) -> String {
        let mut docs = String::new();
        for attribute in attributes {
            match attribute.path().is_ident("doc") {
                true => docs.extend(super::function::line(attribute)),
                false => self.errors.add(Place::of(attribute), "operations have no such attribute; remove it"),
            }
        }
        docs
    }

    /// Parses `x: [channels, height, width]`, or `x` for a value of any shape.
    fn tensor_of_operation(
        &mut self,
        input: ParseStream<'_>,
        name: &Ident,
        place: Place,
    ) -> syn::Result<(Ident, Option<Vec<Axis>>)> {
        let message = format!(
            "an operation works on one value, which comes first: `fn {name}(x)`, or `fn {name}(x: [channels, height, width])`"
        );
        let Ok(first) = input.parse::<Ident>() else { return Err(syn::Error::new(place.start, message)) };
        if !input.peek(Token![:]) {
            return Ok((first, None));
        }
        input.parse::<Token![:]>()?;
        if !input.peek(syn::token::Bracket) {
            return Err(syn::Error::new(first.span(), message));
        }
        self.axes(input, "an input").map(|axes| (first, Some(axes)))
    }

    /// Parses `[rows.., channels, 2 * height]`.
    fn axes(&mut self, input: ParseStream<'_>, what: &str) -> syn::Result<Vec<Axis>> {
        if !input.peek(syn::token::Bracket) {
            return Err(input.error(format!("the shape of {what} stands in brackets, as `[channels, height, width]`")));
        }
        let content;
        syn::bracketed!(content in input);
        let axis = |parser: &mut Self, input: ParseStream<'_>| {
            if input.peek(syn::Ident) && input.peek2(Token![..]) {
                let name: Ident = input.parse()?;
                let dots: Token![..] = input.parse()?;
                let place = Place::from(&name).to(Place::of(&dots));
                return Ok((Axis::Rest(name), place));
            }
            let length = parser.expression(input)?;
            let place = length.place;
            Ok((Axis::Length(length), place))
        };
        let axes = self.separated(&content, "an axis", axis, ToString::to_string);
        Ok(axes.into_iter().map(|(axis, _)| axis).collect())
    }

    /// Parses `beta: f64 = 1.0`.
    fn argument_of_operation(&mut self, input: ParseStream<'_>) -> syn::Result<(Asked, Place)> {
        let name: Ident = input.parse()?;
        let types = "`usize`, `f64` or `bool`";
        if !input.peek(Token![:]) {
            return Err(syn::Error::new(name.span(), format!("`{name}` has no type; write `{name}: f64`")));
        }
        input.parse::<Token![:]>()?;
        let kind: Ident = match input.parse::<Ident>() {
            Ok(kind) if ["usize", "f64", "bool"].iter().any(|known| kind == known) => kind,
            Ok(kind) => {
                return Err(syn::Error::new(
                    kind.span(),
                    format!("an operation's arguments are {types}; use one of these"),
                ));
            }
            Err(error) => return Err(syn::Error::new(error.span(), format!("expected a type: {types}"))),
        };
        let mut place = Place::from(&name).to(Place::from(&kind));
        let default = self.value_after(input)?;
        place = default.as_ref().map_or(place, |value| place.to(value.place));
        Ok((Asked { name, kind, default }, place))
    }

    /// Parses `= 1.0`, if that is next.
    fn value_after(&mut self, input: ParseStream<'_>) -> syn::Result<Option<Expression>> {
        if !input.peek(Token![=]) {
            return Ok(None);
        }
        input.parse::<Token![=]>()?;
        self.expression(input).map(Some)
    }

    /// Parses a formula: `let s = sigmoid(x); x * s`.
    fn formula(&mut self, input: ParseStream<'_>) -> syn::Result<Body> {
        let mut lets = Vec::new();
        while input.peek(Token![let]) {
            lets.push(self.binding(input)?);
        }
        let element = self.expression(input)?;
        if let Some((token, _)) = input.cursor().token_tree().filter(|_| !input.peek(Token![,])) {
            let message = match input.peek(Token![;]) {
                true => "remove this `;`: what stands last is the formula's value".to_string(),
                false => {
                    format!("a formula ends with its value, and `{element}` is already it; found `{}`", brief(&token))
                }
            };
            self.errors.add(input.span(), message);
            drain(input);
        }
        Ok(Body { lets, element })
    }

    /// Parses a formula as the value of a field. It is in braces if it has `let`s.
    fn formula_field(&mut self, input: ParseStream<'_>) -> syn::Result<Body> {
        if input.peek(syn::token::Brace) {
            let content;
            syn::braced!(content in input);
            return self.formula(&content);
        }
        Ok(Body { lets: Vec::new(), element: self.expression(input)? })
    }

    /// Parses `parameters: { .. }, keeps: [x], ..`.
    fn fields_of_operation(&mut self, input: ParseStream<'_>, operation: &mut Operation) -> syn::Result<()> {
        let mut seen: Vec<String> = Vec::new();
        let mut rounds = Rounds::default();
        while rounds.another(input) {
            if self.attributes_within(input) {
                continue;
            }
            let name: Ident = input.parse()?;
            let text = name.to_string();
            if seen.contains(&text) {
                self.errors.add(&name, format!("`{text}` is given twice; remove one"));
            }
            input.parse::<Token![:]>()?;
            match text.as_str() {
                "value" => operation.value = Some(self.formula_field(input)?),
                "derivative" => operation.slope = Some(Slope { name, formula: self.formula_field(input)? }),
                "requires" => operation.requires = self.conditions(input)?,
                "parameters" => operation.parameters = self.tensors(input, true)?,
                "saves" => operation.saves = self.tensors(input, false)?,
                "keeps" => operation.keeps = self.names(input)?,
                "workspace" => operation.workspace = Some(self.expression(input)?),
                "threads" => operation.threads = Some(self.expression(input)?),
                "macs" => operation.macs = Some(self.expression(input)?),
                "cpu" => operation.cpu = Some(input.call(syn::Path::parse_mod_style)?),
                "cuda" => {
                    let message =
                        "the CUDA file is a text, with its path from this file on, as `cuda: \"kernels/blur.cu\"`";
                    operation.cuda =
                        Some(input.parse().map_err(|error: syn::Error| syn::Error::new(error.span(), message))?);
                }
                _ => {
                    let hint = match nearest(&text, &FIELDS) {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => format!("it has {}", FIELDS.map(|field| format!("`{field}`")).join(", ")),
                    };
                    self.errors.add(&name, format!("an operation has no `{text}`; {hint}"));
                    skip_to_comma(input);
                }
            }
            seen.push(text);
            if input.is_empty() {
                break;
            }
            if !input.peek(Token![,]) {
                return Err(input.error(format!("expected `,` after `{}`", seen.last().map_or("", String::as_str))));
            }
            input.parse::<Token![,]>()?;
        }
        Ok(())
    }

    /// Parses `[channels % groups == 0]`.
    fn conditions(&mut self, input: ParseStream<'_>) -> syn::Result<Vec<Expression>> {
        if !input.peek(syn::token::Bracket) {
            return Ok(vec![self.expression(input)?]);
        }
        let content;
        syn::bracketed!(content in input);
        let conditions = self.separated(&content, "a condition", Self::placed, ToString::to_string);
        Ok(conditions.into_iter().map(|(condition, _)| condition).collect())
    }

    /// Parses `{ weight: [channels] = Normal(0.02) }`. With `filled`, each tensor must have an initial value; without, none may.
    fn tensors(&mut self, input: ParseStream<'_>, filled: bool) -> syn::Result<Vec<Tensor>> {
        let example = if filled { "`{ weight: [channels] = 1.0 }`" } else { "`{ means: [channels] }`" };
        if !input.peek(syn::token::Brace) {
            return Err(input.error(format!("expected names with shapes, as {example}")));
        }
        let content;
        syn::braced!(content in input);
        let tensor = |parser: &mut Self, input: ParseStream<'_>| {
            let name: Ident = input.parse()?;
            if !input.peek(Token![:]) {
                return Err(syn::Error::new(name.span(), format!("`{name}` has no shape; write it as in {example}")));
            }
            input.parse::<Token![:]>()?;
            let axes = parser.axes(input, "a tensor")?;
            let init = parser.value_after(input)?;
            if init.is_some() != filled {
                let message = match filled {
                    true => format!(
                        "`{name}` begins with no value; write one, as `= 0.0`, `= Uniform(0.1)`, `= Normal(0.02)` or, as the weights \
                         of `Linear`, `= Kaiming(inputs)`"
                    ),
                    false => format!("`{name}` is filled by the forward pass; remove its value"),
                };
                parser.errors.add(&name, message);
            }
            let place = Place::from(&name);
            Ok((Tensor { name, axes, init }, place))
        };
        let tensors = self.separated(&content, "a tensor", tensor, |tensor| tensor.name.to_string());
        Ok(tensors.into_iter().map(|(tensor, _)| tensor).collect())
    }

    /// Parses `[x, weight]`.
    fn names(&mut self, input: ParseStream<'_>) -> syn::Result<Vec<Ident>> {
        if !input.peek(syn::token::Bracket) {
            return Err(input.error("what backward keeps stands in brackets, as `keeps: [x, weight]`"));
        }
        let content;
        syn::bracketed!(content in input);
        let name = |_: &mut Self, input: ParseStream<'_>| {
            let name: Ident = input.parse()?;
            let place = Place::from(&name);
            Ok((name, place))
        };
        let names = self.separated(&content, "a name", name, ToString::to_string);
        Ok(names.into_iter().map(|(name, _)| name).collect())
    }

    /// Reports mistakes of an operation that do not depend on its uses.
    fn check_operation(&mut self, operation: &Operation, braces: Place) {
        let Operation { name, value, slope, .. } = operation;
        if let Some(slope) = slope.as_ref().filter(|_| value.is_none()) {
            self.errors.add(&slope.name, "this is the derivative of no formula; add `value: ..`");
        }
        let has_functions = operation.has_functions();
        if value.is_some() && has_functions {
            let message = "an operation is a formula, with `value` and `derivative`, or has functions and tensors of its own; \
                           remove one";
            self.errors.add(braces, message);
        } else if value.is_some() && operation.output.is_some() {
            self.errors.add(name, "a formula gives the shape that arrives; remove `-> [..]`");
        }
        let y = "y".to_string();
        let mut names = vec![operation.input.to_string(), y.clone(), "batch".to_string()];
        let bound = operation.axes.iter().flatten().filter_map(|axis| match axis {
            Axis::Length(Expression { kind: Kind::Name(name), .. }) => Some(name.clone()),
            axis => axis.rest().cloned(),
        });
        // An axis may have the length that an argument gives.
        let is_argument = |name: &Ident| operation.arguments.iter().any(|argument| argument.name == *name);
        let bound = bound.filter(|name| !is_argument(name));
        let arguments = operation.arguments.iter().map(|argument| argument.name.clone());
        let tensors = operation.parameters.iter().chain(&operation.saves).map(|tensor| tensor.name.clone());
        for bound in bound.chain(arguments).chain(tensors) {
            match bound.to_string() {
                name if name == y || name == "batch" => {
                    let what = if name == y { "the output" } else { "the number of samples" };
                    self.errors.add(&bound, format!("`{name}` is {what}; choose another name"));
                }
                name if names.contains(&name) => {
                    self.errors.add(&bound, format!("`{name}` stands for something already; choose another name"));
                }
                name => names.push(name),
            }
        }
        if operation.axes.iter().flatten().filter_map(Axis::rest).count() > 1 {
            self.errors.add(&operation.input, "only one name stands for several axes, with `..` after it");
        }
        self.check_rests(operation);
        self.check_arguments(operation);
        self.check_kept(operation);
    }

    /// Checks that a name for several axes, `rows..`, is one that the input has.
    fn check_rests(&mut self, operation: &Operation) {
        let Operation { input, axes, output, parameters, saves, .. } = operation;
        let known = axes.iter().flatten().find_map(Axis::rest);
        let tensors = parameters.iter().chain(saves).flat_map(|tensor| &tensor.axes);
        for name in output.iter().flatten().chain(tensors).filter_map(Axis::rest) {
            match known {
                Some(known) if known == name => {}
                Some(known) => {
                    let message = format!("no axes of `{input}` are called `{name}`; write `{known}..`");
                    self.errors.add(name, message);
                }
                None => {
                    let message = format!(
                        "no axes of `{input}` are called `{name}`; call them so where it arrives, as `{input}: [{name}.., features]`"
                    );
                    self.errors.add(name, message);
                }
            }
        }
    }

    /// Checks that arguments without a default come first, because values without names are taken in the order of the arguments.
    fn check_arguments(&mut self, operation: &Operation) {
        let arguments = &operation.arguments;
        if let Some(first) = arguments.iter().position(|argument| argument.default.is_some()) {
            for late in arguments[first..].iter().filter(|argument| argument.default.is_none()) {
                let message =
                    format!("`{}` has no default, so it stands before `{}`", late.name, arguments[first].name);
                self.errors.add(&late.name, message);
            }
        }
        let is_taken = |name: &Ident| ["name", "parameter", "freeze"].iter().any(|taken| name == taken);
        for argument in arguments.iter().filter(|argument| is_taken(&argument.name)) {
            self.errors.add(&argument.name, format!("every layer takes `{}`; choose another name", argument.name));
        }
    }

    fn check_kept(&mut self, operation: &Operation) {
        let Operation { input, keeps, parameters, .. } = operation;
        let parameters: Vec<String> = parameters.iter().map(|parameter| parameter.name.to_string()).collect();
        let most = gpumem_core::program::ops::Declared::MOST_PARAMETERS;
        if let Some(extra) = operation.parameters.get(most) {
            self.errors
                .add(&extra.name, format!("an operation has {most} parameters at most; put several into one tensor"));
        }
        for (index, kept) in keeps.iter().enumerate() {
            let text = kept.to_string();
            if *input != text && text != "y" && !parameters.contains(&text) {
                let mut known = vec![format!("`{input}`"), "`y`".to_string()];
                known.extend(parameters.iter().map(|name| format!("`{name}`")));
                let saved = operation.saves.iter().any(|saved| saved.name == text);
                let message = match saved {
                    true => format!("what is saved is kept in any case; remove `{text}`"),
                    false => format!("backward can keep {}; there is no `{text}`", known.join(", ")),
                };
                self.errors.add(kept, message);
            } else if keeps[..index].contains(kept) {
                self.errors.add(kept, format!("`{text}` is kept twice; remove one"));
            }
        }
    }
}

/// True if the braces of an operation begin with a field: a name with a colon.
fn is_field(input: ParseStream<'_>) -> bool {
    input.peek2(Token![:]) && !input.peek2(Token![::])
}

/// Returns a name in the form of layers: `Swish` for `swish`.
fn capitalised(name: &str) -> String {
    let parts = name.split('_').map(|part| {
        let mut letters = part.chars();
        letters.next().map(|first| first.to_uppercase().chain(letters).collect::<String>()).unwrap_or_default()
    });
    parts.collect()
}

/// True if `operation! { .. }` is next.
pub(super) fn begins_with_operation(input: ParseStream<'_>) -> bool {
    let ahead = input.fork();
    ahead.call(Ident::parse_any).is_ok_and(|name| name == "operation")
        && ahead.peek(Token![!])
        && ahead.peek2(syn::token::Brace)
}

/// Returns the name and the only argument of a call such as `Uniform(0.1)`. `None` for other expressions.
pub(crate) fn call_of_one(expression: &Expression) -> Option<(&Ident, &Expression)> {
    match &expression.kind {
        Kind::Call { name, arguments } => match arguments.as_slice() {
            [Argument { name: None, value }] => Some((name, value)),
            _ => None,
        },
        _ => None,
    }
}
