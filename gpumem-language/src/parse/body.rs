//! Parses the contents of a function's braces: `let` statements and one element.

use super::{Parser, Rounds, skip_token};
use crate::syntax::{Argument, Body, Expression, Kind, Let, Place};
use gpumem_core::layers::Entry;
use proc_macro2::{Ident, TokenTree};
use syn::Token;
use syn::parse::ParseStream;

impl Parser<'_> {
    /// Parses `let` statements and one element.
    pub(super) fn body(&mut self, input: ParseStream<'_>, place: Place) -> Body {
        let (before, applied) = (self.errors.list().len(), self.applied.take());
        let mut lets = Vec::new();
        let mut element: Option<Expression> = None;
        let mut rounds = Rounds::default();
        while rounds.another(input) {
            if self.attributes_within(input) {
                continue;
            }
            let assigns = input.peek(syn::Ident) && input.peek2(Token![=]);
            if input.peek(Token![let]) || assigns && !input.peek2(Token![==]) && !input.peek2(Token![=>]) {
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
                Ok(more) => self.end(&mut element, more, input),
                Err(error) => {
                    self.errors.add_syn(&error);
                    // A broken element is not reported as missing too.
                    element.get_or_insert(Expression { id: self.id(), place, kind: Kind::Broken });
                    skip_statement(input);
                }
            }
        }
        let element = element.unwrap_or_else(|| {
            self.errors.add(place, "the body has no layers; write `[]` for one that passes its input on");
            Expression { id: self.id(), place, kind: Kind::Broken }
        });
        let applied = std::mem::replace(&mut self.applied, applied);
        self.without_values(Body { lets, element }, applied, before)
    }

    /// Sets the element of a body, after which nothing should follow, and reports what does.
    fn end(&mut self, element: &mut Option<Expression>, more: Expression, input: ParseStream<'_>) {
        if let Some(first) = &element {
            let message = format!("a body ends with one list, and `{first}` is already it; put both into one list");
            self.errors.add(more.place, message);
            return;
        }
        let (separator, is_separated) = (input.span(), input.peek(Token![;]) || input.peek(Token![,]));
        let mut elements = vec![more];
        while input.peek(Token![;]) || input.peek(Token![,]) {
            skip_token(input);
            if input.is_empty() || input.peek(Token![let]) {
                break;
            }
            elements.extend(self.expression(input));
        }
        if elements.len() > 1 {
            self.errors
                .add(separator, format!("layers stand in one list, with commas between them: `[{}]`", all(&elements)));
            let place = elements[0].place.to(elements[elements.len() - 1].place);
            *element = Some(self.new_expression(place, Kind::List(elements)));
        } else {
            if is_separated {
                self.errors.add(separator, "remove this `;`: the list is what the body stands for");
            }
            *element = elements.pop();
        }
    }

    pub(super) fn binding(&mut self, input: ParseStream<'_>) -> syn::Result<Let> {
        if input.peek(Token![let]) {
            input.parse::<Token![let]>()?;
        } else {
            self.errors.add(input.span(), "a name is given with `let`, as `let stem = Conv2d(64, 3);`");
        }
        if input.peek(Token![mut]) {
            self.errors.add(input.span(), "a name stands for one element and never changes; remove `mut`");
            input.parse::<Token![mut]>()?;
        }
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

    /// Reports a body that calls layers with values, as in `let x = Relu(x);`, as one mistake. Here names mean layers, not values.
    ///
    /// Returns the list that was meant, if each value goes into the next layer only.
    fn without_values(&mut self, body: Body, mut applied: Option<Place>, before: usize) -> Body {
        let mut names: Vec<String> = self.inputs.clone();
        let mut layers = Vec::new();
        let mut is_chain = true;
        let count = body.lets.len();
        if count > 0 {
            for binding in &body.lets {
                applied = applied.or_else(|| takes_value(&binding.element, &names));
                names.push(binding.name.to_string());
            }
            applied = applied.or_else(|| takes_value(&body.element, &names));
        }
        let Some(place) = applied.filter(|_| count > 0) else {
            if let Some(place) = applied {
                let layer = self.applied_layer.take().unwrap_or_default();
                self.errors.add(place, called_with_a_value(&format!("[{layer}, ..]")));
            }
            return body;
        };
        self.errors.truncate(before);
        let end = body.element.place;
        let last = match body.element.kind {
            Kind::List(elements) => elements,
            _ => vec![body.element],
        };
        for element in body.lets.into_iter().map(|binding| binding.element).chain(last) {
            is_chain &= !matches!(element.kind, Kind::Broken | Kind::Binary { .. });
            layers.extend(without_value(element, &names));
        }
        let list = if is_chain { format!("[{}]", all(&layers)) } else { "[..]".to_string() };
        let mut message = called_with_a_value(&list);
        if !is_chain {
            message += "; a value that is read again is marked with `tap(name)` and read with `from(name)`";
        }
        self.errors.add(place, message);
        let kind = if is_chain { Kind::List(layers) } else { Kind::Broken };
        Body { lets: Vec::new(), element: self.new_expression(end, kind) }
    }
}

/// Returns the message about `Relu(x)` and `Relu()(x)`. `list` is the correct form.
fn called_with_a_value(list: &str) -> String {
    format!("layers are not called with a value; they are listed, each after the one that it follows: `{list}`")
}

/// Joins elements with commas: `a, b`.
pub(super) fn all(elements: &[Expression]) -> String {
    elements.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns the first argument of a layer if it is one of these names and not an option of the layer.
fn value_of<'a>(name: &Ident, arguments: &'a [Argument], names: &[String]) -> Option<&'a Argument> {
    let entry = Entry::find(&name.to_string())?;
    let is_value = |argument: &&Argument| match (&argument.name, &argument.value.kind) {
        (None, Kind::Name(value)) => {
            let value = value.to_string();
            names.contains(&value) && !entry.signature().names().contains(&value.as_str())
        }
        _ => false,
    };
    arguments.first().filter(is_value).filter(|_| !entry.is_join() && entry.name != "Tied")
}

/// Returns the place of the value with which an element is called, as in `Relu(x)`. `None` if there is none.
fn takes_value(element: &Expression, names: &[String]) -> Option<Place> {
    match &element.kind {
        Kind::Call { name, arguments } => value_of(name, arguments, names).map(|value| value.value.place),
        Kind::List(elements) => elements.iter().find_map(|element| takes_value(element, names)),
        _ => None,
    }
}

/// Removes the value with which an element is called. `None` if the element is such a value itself.
fn without_value(mut element: Expression, names: &[String]) -> Option<Expression> {
    match &mut element.kind {
        Kind::Name(name) if names.contains(&name.to_string()) => return None,
        Kind::Call { name, arguments } => {
            if value_of(name, arguments, names).is_some() {
                arguments.remove(0);
            }
            if arguments.is_empty() {
                element.kind = Kind::Name(name.clone());
            }
        }
        _ => {}
    }
    Some(element)
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
