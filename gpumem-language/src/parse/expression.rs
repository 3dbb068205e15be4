//! Parses elements and values.

use super::function::begins_with_path;
use super::{Parser, brief, drain, skip_to_comma};
use crate::foreign_names::{is_module, layer_called};
use crate::syntax::{Argument, Expression, Kind, Operator, Place};
use gpumem_core::layers::Entry;
use proc_macro2::{Delimiter, Ident, Span, TokenStream};
use syn::parse::{ParseStream, Parser as _};
use syn::{Lit, Token};

/// The deepest nesting of expressions that the parser follows, so that it never runs out of stack.
const DEEPEST: usize = 128;

/// Returns the message about a path where no block is allowed.
pub(crate) fn no_paths(of_blocks: bool) -> String {
    let around = if of_blocks { "module" } else { "network" };
    format!(
        "a macro cannot read what other code declares; write the number, or a `const` that is declared inside the {around}"
    )
}

impl Parser<'_> {
    pub(super) fn expression(&mut self, input: ParseStream<'_>) -> syn::Result<Expression> {
        let first = self.binary(input, 1)?;
        if self.in_constant || self.in_formula { Ok(first) } else { self.piped(input, first) }
    }

    /// Parses an operand, then every operator that binds at least as tightly as `least`: precedence climbing.
    pub(super) fn binary(&mut self, input: ParseStream<'_>, least: u8) -> syn::Result<Expression> {
        let mut left = self.operand(input)?;
        while let Some(operator) = operator(input).filter(|operator| operator.precedence() >= least) {
            for _ in operator.symbol().chars() {
                input.parse::<proc_macro2::Punct>()?;
            }
            let right = self.binary(input, operator.precedence() + 1)?;
            let place = left.place.to(right.place);
            left = self.new_expression(place, Kind::Binary { operator, operands: Box::new([left, right]) });
        }
        Ok(left)
    }

    pub(super) fn operand(&mut self, input: ParseStream<'_>) -> syn::Result<Expression> {
        if self.depth >= DEEPEST {
            return Err(input.error(format!("lists are nested {DEEPEST} deep here; use blocks")));
        }
        self.depth += 1;
        let operand = self.shallow_operand(input);
        self.depth -= 1;
        operand
    }

    fn shallow_operand(&mut self, input: ParseStream<'_>) -> syn::Result<Expression> {
        if let Some(inside) = invisible_expression(input) {
            return (|input: ParseStream<'_>| self.expression(input)).parse2(inside);
        }
        if input.peek(Token![!]) {
            let start = Place::from(input.parse::<Token![!]>()?.span);
            let value = self.operand(input)?;
            Ok(self.new_expression(start.to(value.place), Kind::Not(Box::new(value))))
        } else if input.peek(Token![-]) {
            let start = Place::from(input.parse::<Token![-]>()?.span);
            let value = self.operand(input)?;
            Ok(self.new_expression(start.to(value.place), Kind::Negative(Box::new(value))))
        } else if input.peek(Token![if]) {
            self.conditional(input)
        } else if input.peek(Lit) {
            self.literal(input)
        } else if input.peek(Token![for]) || input.peek(Token![while]) || input.peek(Token![loop]) {
            self.any_loop(input)
        } else if input.peek(Token![return]) {
            self.returned(input)
        } else if input.peek(Token![|]) && !self.in_constant {
            self.closure(input)
        } else if input.peek(Token![self]) && input.peek2(Token![.]) {
            self.field_of_self(input)
        } else if begins_with_path(input) {
            let path = input.call(syn::Path::parse_mod_style)?;
            let place = Place::of(&path);
            self.errors.add(place, no_paths(self.of_blocks));
            skip_to_comma(input);
            Ok(self.new_expression(place, Kind::Broken))
        } else if input.peek(syn::Ident) {
            self.chain(input)
        } else if input.peek(syn::token::Bracket) {
            self.list(input)
        } else if input.peek(syn::token::Paren) {
            let inside = self.parenthesized(input)?;
            if self.in_formula { self.in_a_formula(input, inside) } else { Ok(inside) }
        } else if input.peek(syn::token::Brace) && !self.in_constant {
            self.braced(input)
        } else {
            let found = input.cursor().token_tree().map(|(token, _)| token);
            let found = found.map_or("nothing".into(), |token| format!("`{}`", brief(&token)));
            let expected = match self.in_formula {
                true => "a number, a name or a function, as `exp(x)`",
                false => "a layer, a block, a list `[..]` or a number",
            };
            Err(input.error(format!("expected {expected}, found {found}")))
        }
    }

    /// Parses `[a, b, c]`.
    pub(super) fn list(&mut self, input: ParseStream<'_>) -> syn::Result<Expression> {
        let content;
        let brackets = syn::bracketed!(content in input);
        let place = Place { start: brackets.span.open(), end: brackets.span.close() };
        if let Some(repeated) = self.repeated(&content, place) {
            return Ok(repeated);
        }
        let elements = self.separated(&content, "a layer", Self::placed, ToString::to_string);
        let elements = elements.into_iter().map(|(element, _)| element).collect();
        Ok(self.new_expression(place, Kind::List(elements)))
    }

    pub(super) fn new_expression(&mut self, place: Place, kind: Kind) -> Expression {
        Expression { id: self.id(), place, kind }
    }

    pub(super) fn placed(&mut self, input: ParseStream<'_>) -> syn::Result<(Expression, Place)> {
        let expression = self.expression(input)?;
        let place = expression.place;
        Ok((expression, place))
    }

    fn literal(&mut self, input: ParseStream<'_>) -> syn::Result<Expression> {
        let literal: Lit = input.parse()?;
        let kind = match &literal {
            Lit::Int(value) if matches!(value.suffix(), "f64" | "f32") => {
                Kind::Float(value.base10_digits().parse().unwrap_or(0.0))
            }
            Lit::Int(value) => match value.base10_digits().parse() {
                Ok(value) => Kind::Integer(value),
                Err(_) => {
                    self.errors
                        .add(value.span(), format!("{} is too large; the largest number is {}", value, u64::MAX));
                    Kind::Broken
                }
            },
            Lit::Float(value) => Kind::Float(value.base10_parse()?),
            Lit::Bool(value) => Kind::Flag(value.value),
            Lit::Str(value) => Kind::Text(value.value()),
            other => {
                self.errors.add(other.span(), "expected a number, `true`, `false` or a text");
                Kind::Broken
            }
        };
        Ok(self.new_expression(literal.span().into(), kind))
    }

    pub(super) fn name_or_call(&mut self, input: ParseStream<'_>) -> syn::Result<Expression> {
        let mut name: Ident = input.parse()?;
        let mut start = Place::from(&name);
        if input.peek(Token![::]) {
            let is_layer = |name: &Ident| Entry::find(&name.to_string()).is_some();
            let first = name.clone();
            let mut segments = 1;
            while input.peek(Token![::]) && input.peek3(syn::Ident) {
                input.parse::<Token![::]>()?;
                let next: Ident = input.parse()?;
                start.end = next.span();
                segments += 1;
                name = if is_layer(&name) { name } else { next };
            }
            let of_module = is_module(&first);
            name = layer_called(&name).filter(|_| of_module).unwrap_or(name);
            if of_module && !is_layer(&name) {
                // The unknown layer is reported, rather than the path.
                return if input.peek(syn::token::Paren) {
                    self.call(input, start, name)
                } else {
                    Ok(self.new_expression(start, Kind::Name(name)))
                };
            }
            if !is_layer(&name) {
                if segments == 2 && !input.peek(Token![::]) && !self.in_constant {
                    return self.path(input, first, name, start);
                }
                self.errors.add(start, no_paths(self.of_blocks));
                // A call of a function, possibly with a turbofish.
                skip_to_comma(input);
                return Ok(self.new_expression(start, Kind::Broken));
            }
            self.errors.add(start, format!("layers have no path; write `{name}`"));
        }
        if !input.peek(syn::token::Paren) {
            return Ok(self.constant_of_python(start, name));
        }
        self.call(input, start, name)
    }

    /// Parses the parentheses of `Conv2d(64, 3)`.
    pub(super) fn call(&mut self, input: ParseStream<'_>, start: Place, name: Ident) -> syn::Result<Expression> {
        let (arguments, end) = self.arguments(input)?;
        Ok(self.new_expression(Place { end, ..start }, Kind::Call { name, arguments }))
    }

    /// Parses the rest of a call such as `resnet::bottleneck(64)`, after its path.
    fn path(
        &mut self,
        input: ParseStream<'_>,
        module: Ident,
        name: Ident,
        mut place: Place,
    ) -> syn::Result<Expression> {
        let mut arguments = None;
        if input.peek(syn::token::Paren) {
            let (list, end) = self.arguments(input)?;
            (arguments, place.end) = (Some(list), end);
        }
        Ok(self.new_expression(place, Kind::Path { module, name, arguments }))
    }

    /// Parses arguments in parentheses. Returns the place of the closing one too.
    fn arguments(&mut self, input: ParseStream<'_>) -> syn::Result<(Vec<Argument>, Span)> {
        let content;
        let parentheses = syn::parenthesized!(content in input);
        let arguments = self.separated(&content, "an argument", Self::argument, ToString::to_string);
        Ok((arguments.into_iter().map(|(argument, _)| argument).collect(), parentheses.span.close()))
    }

    fn argument(&mut self, input: ParseStream<'_>) -> syn::Result<(Argument, Place)> {
        let has_colon = input.peek2(Token![:]) && !input.peek2(Token![::]);
        let named = input.peek(syn::Ident) && (has_colon || input.peek2(Token![=]) && !input.peek2(Token![==]));
        let name: Option<Ident> = if named { Some(input.parse()?) } else { None };
        match &name {
            Some(name) if has_colon => {
                self.errors.add(name, format!("options are written with `=`: `{name} = ..`"));
                input.parse::<Token![:]>()?;
            }
            Some(_) => _ = input.parse::<Token![=]>()?,
            None => {}
        }
        let argument = Argument { name, value: self.expression(input)? };
        let place = argument.place();
        Ok((argument, place))
    }

    /// Parses `(3, 5)`, or parentheses around an expression.
    fn parenthesized(&mut self, input: ParseStream<'_>) -> syn::Result<Expression> {
        let content;
        let parentheses = syn::parenthesized!(content in input);
        let place = Place { start: parentheses.span.open(), end: parentheses.span.close() };
        let values = self.separated(&content, "a number", Self::placed, ToString::to_string);
        let mut values: Vec<Expression> = values.into_iter().map(|(value, _)| value).collect();
        match values.len() {
            1 => Ok(Expression { place, ..values.remove(0) }),
            _ if values.iter().any(is_element) => Ok(self.layers_in_parentheses(place, values)),
            0 => {
                self.errors.add(place, "expected one value or a pair (height, width) between these parentheses");
                Ok(self.new_expression(place, Kind::Broken))
            }
            _ => Ok(self.new_expression(place, Kind::Tuple(values))),
        }
    }

    /// Parses `if condition { .. } else { .. }`, or `else if`.
    fn conditional(&mut self, input: ParseStream<'_>) -> syn::Result<Expression> {
        let start = Place::from(input.parse::<Token![if]>()?.span);
        let condition = self.expression(input)?;
        let then = self.branch(input)?;
        let mut place = start.to(then.place);
        let mut otherwise = None;
        if input.peek(Token![else]) {
            input.parse::<Token![else]>()?;
            let other = if input.peek(Token![if]) { self.conditional(input)? } else { self.branch(input)? };
            place = start.to(other.place);
            otherwise = Some(Box::new(other));
        }
        let kind = Kind::If { condition: Box::new(condition), then: Box::new(then), otherwise };
        Ok(self.new_expression(place, kind))
    }

    /// Parses a branch of a condition: `{ [..] }`.
    fn branch(&mut self, input: ParseStream<'_>) -> syn::Result<Expression> {
        if !input.peek(syn::token::Brace) {
            return Err(input.error("expected `{ [..] }`"));
        }
        let content;
        let braces = syn::braced!(content in input);
        let place = Place { start: braces.span.open(), end: braces.span.close() };
        if content.peek(Token![let]) {
            self.errors.add(content.span(), "`let` stands at the start of a function's body, not inside `if`");
            drain(&content);
            return Ok(self.new_expression(place, Kind::Broken));
        }
        let body = self.body(&content, place);
        Ok(Expression { place, ..body.element })
    }
}

/// True if an expression can only be an element.
pub(crate) fn is_element(expression: &Expression) -> bool {
    match &expression.kind {
        Kind::Name(name) => Entry::find(&name.to_string()).is_some(),
        // A path may be that of a constant.
        Kind::Call { .. } | Kind::List(_) => true,
        _ => false,
    }
}

/// Takes an invisible group of more than one token from `input`. Such a group comes from another macro, and is one operand.
fn invisible_expression(input: ParseStream<'_>) -> Option<TokenStream> {
    let inside = input.step(|cursor| match cursor.group(Delimiter::None) {
        Some((inside, _, rest)) if inside.token_stream().into_iter().nth(1).is_some() => {
            Ok((inside.token_stream(), rest))
        }
        _ => Err(cursor.error("no invisible group")),
    });
    inside.ok()
}

fn operator(input: ParseStream<'_>) -> Option<Operator> {
    // Two-character operators stand before their first characters in the list.
    let spelled = |operator: &Operator| match operator {
        Operator::Or => input.peek(Token![||]),
        Operator::And => input.peek(Token![&&]),
        Operator::Equal => input.peek(Token![==]),
        Operator::NotEqual => input.peek(Token![!=]),
        Operator::LessOrEqual => input.peek(Token![<=]),
        Operator::GreaterOrEqual => input.peek(Token![>=]),
        Operator::Less => input.peek(Token![<]),
        // `>>` and `->` are pipes.
        Operator::Greater => input.peek(Token![>]) && !input.peek(Token![>>]),
        Operator::Plus => input.peek(Token![+]),
        Operator::Minus => input.peek(Token![-]) && !input.peek(Token![->]),
        Operator::Times => input.peek(Token![*]),
        Operator::Over => input.peek(Token![/]),
        Operator::Remainder => input.peek(Token![%]),
    };
    Operator::ALL.into_iter().find(spelled)
}
