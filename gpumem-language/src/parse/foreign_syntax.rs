//! Parses forms of other languages and libraries, to say how they are written here: `nn.ReLU()`, `x.relu()`, `a | b`, `True`.
//!
//! Loops are in `loops`.

use super::body::all;
use super::expression::is_element;
use super::{Parser, drain, skip_token};
use crate::foreign_names::{self, is_module, layer_called};
use crate::syntax::{Argument, Expression, Kind, Place};
use gpumem_core::layers::Entry;
use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::Token;
use syn::parse::ParseStream;

impl Parser<'_> {
    /// Parses a name or a call, and the methods that follow it after dots.
    pub(super) fn chain(&mut self, input: ParseStream<'_>) -> syn::Result<Expression> {
        if input.peek(syn::Ident) && input.peek2(Token![!]) && input.peek3(syn::token::Bracket) {
            let name: Ident = input.parse()?;
            input.parse::<Token![!]>()?;
            self.errors.add(&name, format!("lists need no macro; write `[..]` without `{name}!`"));
            return self.list(input);
        }
        let before = self.errors.list().len();
        let first = self.name_or_call(input)?;
        if self.in_formula {
            return self.in_a_formula(input, first);
        }
        if input.peek(syn::token::Paren) {
            return self.applied(input, first);
        }
        if input.peek(syn::token::Brace)
            && let Kind::Name(name) = &first.kind
            && Entry::find(&name.to_string()).is_some()
        {
            let content;
            let braces = syn::braced!(content in input);
            drain(&content);
            let message = format!("arguments stand in parentheses, and options are written with `=`: `{name}(..)`");
            self.errors.add(braces.span.join(), message);
            return Ok(self.new_expression(first.place, Kind::Broken));
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
        if matches!(&parts[0].kind, Kind::Name(name) if is_module(name)) {
            // The last part is the layer: `torch.nn.ReLU()`.
            let layer = parts.pop().map_or(Kind::Broken, |last| last.kind);
            return Ok(self.of_a_module(layer, place));
        }
        Ok(self.methods(parts, place, before))
    }

    /// Parses methods after a name or a call in a formula. A dot there is a method call of Rust.
    pub(super) fn in_a_formula(&mut self, input: ParseStream<'_>, first: Expression) -> syn::Result<Expression> {
        let mut all = first;
        while input.peek(Token![.]) && !input.peek(Token![..]) && input.peek2(syn::Ident) {
            input.parse::<Token![.]>()?;
            let method = self.name_or_call(input)?;
            let place = all.place.to(method.place);
            let (name, rest) = match method.kind {
                Kind::Call { name, arguments } => (name, arguments),
                Kind::Name(name) => (name, Vec::new()),
                _ => return Ok(self.new_expression(place, Kind::Broken)),
            };
            let arguments = std::iter::once(Argument { name: None, value: all }).chain(rest).collect();
            all = self.new_expression(place, Kind::Call { name, arguments });
            self.errors.add(place, format!("functions stand before what they are of; write `{all}`"));
        }
        Ok(all)
    }

    /// Returns the layer of `nn.ReLU()` or `F.relu(x)`. If there is no such layer, the resolver reports it.
    fn of_a_module(&mut self, mut layer: Kind, place: Place) -> Expression {
        drop_value(&mut layer);
        if let Kind::Name(name) | Kind::Call { name, .. } = &mut layer
            && let Some(known) = layer_called(name)
        {
            *name = known;
            self.errors.add(place, format!("layers have no path; write `{name}`"));
        }
        self.new_expression(place, layer)
    }

    /// Returns the layers of `x.conv2d(8, 3).relu()` as a list. The value that they are called on is left out, unless it is a layer.
    ///
    /// `before` is the count of mistakes before this expression.
    fn methods(&mut self, mut parts: Vec<Expression>, place: Place, before: usize) -> Expression {
        let mut hint = None;
        for part in &mut parts {
            if let Kind::Call { name, arguments } = &part.kind
                && arguments.is_empty()
            {
                part.kind = Kind::Name(name.clone());
            }
            if let Kind::Name(name) | Kind::Call { name, .. } = &mut part.kind {
                match layer_called(name) {
                    Some(known) => *name = known,
                    None => {
                        hint = hint.or_else(|| {
                            foreign_names::of_elsewhere(&name.to_string()).map(|found| (name.clone(), found.hint))
                        })
                    }
                }
            }
        }
        if let Some((name, hint)) = hint {
            self.errors.truncate(before);
            self.errors.add(place, format!("layers have no methods, and there is no layer `{name}`; {hint}"));
            return self.new_expression(place, Kind::Broken);
        }
        let is_layer = |part: &Expression| match &part.kind {
            Kind::Name(name) => Entry::find(&name.to_string()).is_some(),
            Kind::Call { .. } => true,
            _ => false,
        };
        if !is_layer(&parts[0]) {
            parts.remove(0);
        }
        let message =
            format!("layers have no methods; they are listed, each after the one that it follows: `[{}]`", all(&parts));
        self.errors.add(place, message);
        self.new_expression(place, Kind::List(parts))
    }

    /// Takes the value of `Conv2d(8, 3)(x)`. The body reports once that layers are not called with values.
    fn applied(&mut self, input: ParseStream<'_>, layer: Expression) -> syn::Result<Expression> {
        let content;
        let parentheses = syn::parenthesized!(content in input);
        drain(&content);
        if self.applied.is_none() {
            self.applied = Some(Place { start: parentheses.span.open(), end: parentheses.span.close() });
            self.applied_layer = Some(layer.to_string());
        }
        Ok(layer)
    }

    /// Parses `a | b`, `a |> b`, `a >> b`, `a -> b` and `a => b`, and returns the layers as a list.
    pub(super) fn piped(&mut self, input: ParseStream<'_>, first: Expression) -> syn::Result<Expression> {
        let is_pipe = |input: ParseStream<'_>| {
            let is_arrow = input.peek(Token![->]) || input.peek(Token![=>]) || input.peek(Token![>>]);
            is_arrow || input.peek(Token![|]) && !input.peek(Token![||])
        };
        if !is_pipe(input) {
            return Ok(first);
        }
        let mut place = Place::from(input.span());
        let mut elements = vec![first];
        while is_pipe(input) {
            let is_bar = input.peek(Token![|]);
            skip_token(input);
            if !is_bar || input.peek(Token![>]) {
                if elements.len() == 1 {
                    place.end = input.span();
                }
                skip_token(input);
            }
            elements.push(self.binary(input, 1)?);
        }
        let message = format!("layers are listed, each after the one that it follows: `[{}]`", all(&elements));
        self.errors.add(place, message);
        let place = elements[0].place.to(elements[elements.len() - 1].place);
        Ok(self.new_expression(place, Kind::List(elements)))
    }

    /// Skips and reports `self.conv1(x)`.
    pub(super) fn field_of_self(&mut self, input: ParseStream<'_>) -> syn::Result<Expression> {
        let mut place = Place::from(input.span());
        skip_token(input);
        while input.peek(Token![.]) || input.peek(syn::Ident) || input.peek(syn::token::Paren) {
            place.end = input.parse::<TokenTree>()?.span();
        }
        let message = "a network has no `self`; layers are listed where they are used, as `[Conv2d(64, 3), Relu]`, and one that is \
                       used twice has a name, as `let conv = Conv2d(64, 3);`";
        self.errors.add(place, message);
        Ok(self.new_expression(place, Kind::Broken))
    }

    /// Parses `return [..];` and reports the `return`.
    pub(super) fn returned(&mut self, input: ParseStream<'_>) -> syn::Result<Expression> {
        self.errors.add(input.span(), "remove `return`: a body stands for its list");
        input.parse::<Token![return]>()?;
        let value = self.operand(input)?;
        if input.peek(Token![;]) {
            skip_token(input);
        }
        Ok(value)
    }

    /// Parses `|i| [..]`. Returns the element, unless it depends on `i`.
    pub(super) fn closure(&mut self, input: ParseStream<'_>) -> syn::Result<Expression> {
        let mut place = Place::from(input.span());
        skip_token(input);
        let mut counters = Vec::new();
        while !input.is_empty() && !input.peek(Token![|]) {
            if let Ok(TokenTree::Ident(counter)) = input.parse() {
                counters.push(counter);
            }
        }
        place.end = input.span();
        skip_token(input);
        let (before, rest) = (self.errors.list().len(), input.fork());
        let element = self.operand(input)?;
        let uses = |counter: &Ident| mentions(&rest, input, counter);
        let counter = counters.iter().find(|counter| uses(counter));
        self.errors.truncate(before);
        let Some(counter) = counter else {
            self.errors
                .add(place, format!("what is repeated is no function; write it alone, as `repeat(3, {element})`"));
            return Ok(element);
        };
        let message = format!(
            "what is repeated is no function, and the same each time; for a `{counter}` that counts, write a block with a \
             parameter that calls itself: `fn stage({counter}: usize) -> Block {{ .. }}`"
        );
        self.errors.add(place, message);
        Ok(self.new_expression(element.place, Kind::Broken))
    }

    /// Parses `{ a, b }`. Returns the layers as a list, or a value without its braces.
    pub(super) fn braced(&mut self, input: ParseStream<'_>) -> syn::Result<Expression> {
        let content;
        let braces = syn::braced!(content in input);
        let place = Place { start: braces.span.open(), end: braces.span.close() };
        let before = self.errors.list().len();
        let element = self.body(&content, place).element;
        self.errors.truncate(before);
        let elements = match element.kind {
            Kind::List(elements) => elements,
            Kind::Broken => Vec::new(),
            _ if is_element(&element) => vec![element],
            _ => {
                self.errors.add(place, format!("what is no list stands without braces; write `{element}`"));
                return Ok(Expression { place, ..element });
            }
        };
        self.errors.add(place, format!("layers are listed in brackets, not in braces: `[{}]`", all(&elements)));
        Ok(self.new_expression(place, Kind::List(elements)))
    }

    /// Returns `(a, b)` as a list of layers, or as the outputs of `forward` if it has as many.
    pub(super) fn layers_in_parentheses(&mut self, place: Place, layers: Vec<Expression>) -> Expression {
        let written = all(&layers);
        if self.outputs == layers.len() && self.outputs > 1 {
            self.errors.add(place, format!("several outputs are written `Outputs({written})`"));
            let arguments = layers.into_iter().map(|value| Argument { name: None, value }).collect();
            let name = Ident::new("Outputs", place.start);
            return self.new_expression(place, Kind::Call { name, arguments });
        }
        self.errors.add(place, format!("layers are listed in brackets, not in parentheses: `[{written}]`"));
        self.new_expression(place, Kind::List(layers))
    }

    /// Returns a bare name. Reports `True`, `False` and `None`, which are Python's.
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

/// Removes the value that a function is called with, as in `relu(x)`. A layer without arguments, as in `flatten(x, 1)`, loses all.
fn drop_value(layer: &mut Kind) {
    if let Kind::Call { name, arguments } = layer
        && name.to_string().starts_with(char::is_lowercase)
        && matches!(arguments.first(), Some(Argument { name: None, value: Expression { kind: Kind::Name(_), .. } }))
    {
        arguments.remove(0);
        let takes_nothing = |entry: Entry| entry.signature().names().is_empty();
        if layer_called(name).and_then(|name| Entry::find(&name.to_string())).is_some_and(takes_nothing) {
            arguments.clear();
        }
    }
}

/// True if a name occurs between these two positions.
fn mentions(start: ParseStream<'_>, end: ParseStream<'_>, name: &Ident) -> bool {
    let (start, mut open) = (start.fork(), Vec::new());
    let left = |input: ParseStream<'_>| input.fork().parse::<TokenStream>().map_or(0, |rest| rest.into_iter().count());
    for _ in left(end)..left(&start) {
        open.extend(start.parse::<TokenTree>());
    }
    stands_in(open.into_iter().collect(), name)
}

/// True if a name occurs anywhere among these tokens.
pub(super) fn stands_in(tokens: TokenStream, name: &Ident) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Group(group) => stands_in(group.stream(), name),
        TokenTree::Ident(other) => other == *name,
        _ => false,
    })
}
