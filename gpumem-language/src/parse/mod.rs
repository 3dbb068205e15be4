//! Turns tokens into syntax. A mistake is reported at its place, and parsing continues after it.

mod body;
mod composites;
mod expression;
mod foreign_syntax;
mod function;
mod imports;
mod loops;
mod operation;
mod settings;

pub(crate) use expression::{is_element, no_paths};
pub(crate) use operation::call_of_one;

use crate::errors::Errors;
use crate::syntax::{Constant, Declaration, Facade, Function, Module, Operation, Place, Settings, Source};
use gpumem_core::suggest::nearest;
use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use syn::buffer::Cursor;
use syn::parse::{ParseBuffer, ParseStream, Parser as _};
use syn::{Attribute, Token, Visibility};

/// Parses the contents of `network! { .. }`. `None` if there is no struct for the expansion to implement traits for.
///
/// `fetched` holds the modules of its `use blocks ..`, as [`crate::modules::cross_crate_blocks`] passes them. It is empty before they have been fetched.
pub(crate) fn source(tokens: TokenStream, fetched: &[TokenStream], errors: &mut Errors) -> Option<Source> {
    let mut parser = Parser::new(&mut *errors, 0, false);
    let mut items = parser.items(tokens.clone());
    let all = parser.fetch(&mut items.module.uses, fetched);
    items.find_forward(errors);
    // Without the modules, names in `forward` could not be resolved.
    items.forward = items.forward.filter(|_| all);
    // After a mistake, the struct may be anywhere in the tokens.
    let declaration = items.declaration.or_else(|| find_struct(tokens).filter(|_| !errors.is_empty()));
    let Some(declaration) = declaration else {
        if errors.is_empty() {
            errors.add(Span::call_site(), "the network has no struct; start with `pub struct Name;`");
        }
        return None;
    };
    if items.forward.is_none() && errors.is_empty() {
        errors.add(
            &declaration.name,
            format!(
                "network `{}` has no `forward`; add `fn forward(image: Image<3, 224, 224>) -> Logits<1000> {{ [..] }}`",
                declaration.name
            ),
        );
    }
    let Items { facade, trains, infer, forward, module, .. } = items;
    Some(Source { facade, declaration, trains, infer, forward, module })
}

/// Parses the contents of a module of blocks, and the path of this library. `fetched` holds the modules that it uses.
pub(crate) fn module(tokens: TokenStream, fetched: &[TokenStream], errors: &mut Errors) -> (Module, Facade) {
    let mut parser = Parser::new(errors, 0, true);
    let mut items = parser.items(tokens);
    parser.fetch(&mut items.module.uses, fetched);
    (items.module, items.facade)
}

/// Parses `crate = gm;`, which gives the path of this library, without the semicolon. `None` if it is not next.
pub(crate) fn facade(input: ParseStream<'_>) -> syn::Result<Option<Facade>> {
    if !(input.peek(Token![crate]) && input.peek2(Token![=])) {
        return Ok(None);
    }
    input.parse::<Token![crate]>()?;
    input.parse::<Token![=]>()?;
    let path = input.call(syn::Path::parse_mod_style)?;
    Ok(Some(Facade(quote::quote!(#path))))
}

/// Finds the first `struct Name` or `struct Name<const BATCH: usize>`, wherever it is.
fn find_struct(tokens: TokenStream) -> Option<Declaration> {
    let mut tokens = tokens.into_iter().peekable();
    let mut public = false;
    while let Some(token) = tokens.next() {
        if token.to_string() != "struct" {
            // Remembers `pub` or `pub(crate)`.
            public = token.to_string() == "pub" || (public && matches!(token, TokenTree::Group(_)));
            continue;
        }
        let Some(TokenTree::Ident(name)) = tokens.peek().cloned() else { continue };
        if syn::parse2::<Ident>(TokenTree::from(name.clone()).into()).is_err() {
            continue;
        }
        let rest: TokenStream = tokens.skip(1).collect();
        let generics = |input: ParseStream<'_>| {
            let generics: syn::Generics = input.parse()?;
            input.parse::<TokenStream>().map(|_| generics)
        };
        let (batch, default) = match generics.parse2(rest).ok().and_then(|generics| generics.params.into_iter().next())
        {
            Some(syn::GenericParam::Const(parameter)) => {
                (Some(parameter.ident), parameter.default.map(|(_, value)| value))
            }
            _ => (None, None),
        };
        let visibility = if public { Visibility::Public(Token![pub](name.span())) } else { Visibility::Inherited };
        return Some(Declaration { attributes: Vec::new(), visibility, name, batch, default });
    }
    None
}

/// The items that have been read so far.
#[derive(Default)]
struct Items {
    facade: Facade,
    declaration: Option<Declaration>,
    trains: Vec<Settings>,
    infer: Option<Settings>,
    forward: Option<Function>,
    module: Module,
}

impl Items {
    /// Takes a block as `forward` if its name is similar, or if it is the only function, and it does not return `Block`.
    fn find_forward(&mut self, errors: &mut Errors) {
        if self.forward.is_some() {
            return;
        }
        let returns_block = |function: &Function| function.outputs.first().is_none_or(|output| output.name == "Block");
        let meant = self.module.blocks.iter().position(|block| {
            let is_near = nearest(&block.name.to_string(), &["forward"]).is_some();
            !returns_block(block) && (is_near || self.module.blocks.len() == 1)
        });
        if let Some(meant) = meant {
            let function = self.module.blocks.remove(meant);
            errors.add(
                &function.name,
                format!("a network begins at `forward`, and there is none; rename `{}` to `forward`", function.name),
            );
            self.forward = Some(function);
        }
    }
}

struct Parser<'e> {
    errors: &'e mut Errors,
    next_id: usize,
    /// The number of expressions around the one that is being read.
    depth: usize,
    /// True if the items are those of a module of blocks.
    of_blocks: bool,
    /// True if the items are the composites of the language.
    of_composites: bool,
    /// True while the value of a constant is read, in which `a::b` is a path of Rust.
    in_constant: bool,
    /// True while an operation is read, whose expressions are numbers and formulas.
    in_formula: bool,
    /// The names of the inputs of `forward`, while its body is read.
    inputs: Vec<String>,
    /// The number of outputs of the function whose body is read.
    outputs: usize,
    /// The place where a layer of the body was first called with a value, as `Relu()(x)`.
    applied: Option<Place>,
    /// The text of that layer.
    applied_layer: Option<String>,
}

impl<'e> Parser<'e> {
    fn new(errors: &'e mut Errors, next_id: usize, of_blocks: bool) -> Parser<'e> {
        Parser {
            errors,
            next_id,
            depth: 0,
            of_blocks,
            of_composites: false,
            in_constant: false,
            in_formula: false,
            inputs: Vec::new(),
            outputs: 0,
            applied: None,
            applied_layer: None,
        }
    }
}

impl Parser<'_> {
    /// Parses all items, as far as they can be read.
    fn items(&mut self, tokens: TokenStream) -> Items {
        let mut items = Items::default();
        items.module.composites = self.composites(tokens.clone());
        let parsed = (|input: ParseStream<'_>| {
            while input.peek(Token![#]) && input.peek2(Token![!]) {
                let place = input.span();
                input.call(Attribute::parse_inner)?;
                let what = if self.of_blocks { "module" } else { "struct" };
                let message = format!("attributes and documentation stand before the {what}, as `#[..]` and `///`");
                self.errors.add(place, message);
            }
            let mut rounds = Rounds::default();
            while rounds.another(input) {
                if let Err(error) = self.item(input, &mut items) {
                    self.errors.add_syn(&error);
                    skip_item(input);
                }
            }
            Ok(())
        })
        .parse2(tokens);
        if let Err(error) = parsed {
            self.errors.add_syn(&error);
        }
        items
    }

    fn item(&mut self, input: ParseStream<'_>, items: &mut Items) -> syn::Result<()> {
        if let Some(facade) = facade(input)? {
            items.facade = facade;
            input.parse::<Token![;]>()?;
            return Ok(());
        }
        let attributes = input.call(Attribute::parse_outer)?;
        if operation::begins_with_operation(input) {
            for operation in self.operation_item(input, &attributes)? {
                self.declare_operation(operation, items);
            }
            return Ok(());
        }
        let visibility: Visibility = input.parse()?;
        if input.peek(Token![struct]) && !self.of_blocks {
            let declaration = self.declaration(input, attributes, visibility)?;
            match &items.declaration {
                None => items.declaration = Some(declaration),
                Some(first) => self.errors.add(
                    &declaration.name,
                    format!(
                        "a `network!` declares one struct, and `{}` is already it; use a second `network!`",
                        first.name
                    ),
                ),
            }
        } else if input.peek(Token![impl]) && !self.of_blocks {
            self.implementation(input, items)?;
        } else if input.peek(Token![const]) || input.peek(Token![static]) {
            self.constant(input, attributes, visibility, items)?;
        } else if input.peek(Token![use]) {
            self.import(input, &attributes, &visibility, &mut items.module)?;
        } else if input.peek(Token![fn]) {
            let function = self.function(input, &attributes)?;
            let known = items.forward.iter().chain(&items.module.blocks);
            if known.into_iter().any(|known| known.name == function.name) {
                self.errors.add(&function.name, format!("`{}` is defined twice; rename or remove one", function.name));
            } else if function.name == "forward" && !self.of_blocks {
                items.forward = Some(function);
            } else {
                items.module.blocks.push(function);
            }
        } else if self.of_blocks {
            return Err(input.error(
                "a module of blocks has blocks `fn name(..) -> Block`, `operation!`s, `const`s and `use`s; a network is \
                 declared with `network!`",
            ));
        } else {
            return Err(input.error(
                "expected `pub struct Name;`, `const TRAIN: Train = Train { .. };`, `fn forward(..)`, a block \
                 `fn name(..) -> Block`, an `operation!`, a `const` or a `use`",
            ));
        }
        Ok(())
    }

    fn declare_operation(&mut self, operation: Operation, items: &mut Items) {
        let name = &operation.name;
        if items.module.operations.iter().any(|known| known.name == *name) {
            self.errors.add(name, format!("`{name}` is defined twice; rename or remove one"));
        } else {
            items.module.operations.push(operation);
        }
    }

    /// Parses `impl Net { fn forward(..) .. }`. Its items are read as if they were next to the struct.
    fn implementation(&mut self, input: ParseStream<'_>, items: &mut Items) -> syn::Result<()> {
        let mut place = Place::from(input.span());
        while !input.is_empty() && !input.peek(syn::token::Brace) {
            place.end = input.span();
            skip_token(input);
        }
        self.errors.add(place, "a network has no `impl`; put `fn forward(..)` beside the struct");
        let content;
        syn::braced!(content in input);
        let mut rounds = Rounds::default();
        while rounds.another(&content) {
            if let Err(error) = self.item(&content, items) {
                self.errors.add_syn(&error);
                skip_item(&content);
            }
        }
        Ok(())
    }

    /// Parses `struct Name;` or `struct Name<const BATCH: usize>;`.
    fn declaration(
        &mut self,
        input: ParseStream<'_>,
        attributes: Vec<Attribute>,
        visibility: Visibility,
    ) -> syn::Result<Declaration> {
        input.parse::<Token![struct]>()?;
        let name: Ident = input.parse()?;
        let (mut batch, mut default) = (None, None);
        if input.peek(Token![<]) {
            let generics: syn::Generics = input.parse()?;
            let parameters: Vec<_> = generics.params.iter().collect();
            match parameters.as_slice() {
                [syn::GenericParam::Const(parameter)] => {
                    batch = Some(parameter.ident.clone());
                    default = parameter.default.clone().map(|(_, value)| value);
                    self.check_type_of_batch(parameter);
                }
                _ => self.errors.add(
                    &name,
                    format!(
                        "a network has no other parameter than its batch: `pub struct {name}<const BATCH: usize>;`"
                    ),
                ),
            }
        }
        if input.peek(Token![;]) {
            input.parse::<Token![;]>()?;
        } else {
            let message = format!("expected `;` after `struct {name}`: a network's struct has no fields");
            self.errors.add_syn(&input.error(message));
            skip_fields(input);
        }
        Ok(Declaration { attributes, visibility, name, batch, default })
    }

    fn check_type_of_batch(&mut self, parameter: &syn::ConstParam) {
        let is_usize = matches!(&parameter.ty, syn::Type::Path(syn::TypePath { path, .. })
            if path.segments.last().is_some_and(|last| last.ident == "usize"));
        if !is_usize {
            let message = format!("a batch is a `usize`; write `const {}: usize`", parameter.ident);
            self.errors.add(Place::of(&parameter.ty), message);
        }
    }

    /// Parses a constant of type `Train`, `const INFER`, or any other constant.
    fn constant(
        &mut self,
        input: ParseStream<'_>,
        mut attributes: Vec<Attribute>,
        visibility: Visibility,
        items: &mut Items,
    ) -> syn::Result<()> {
        attributes.retain(|attribute| {
            let is_condition = attribute.path().is_ident("cfg") || attribute.path().is_ident("cfg_attr");
            if is_condition {
                self.condition(attribute);
            }
            !is_condition
        });
        if input.peek(Token![static]) {
            self.errors.add(input.span(), "write `const` for `static`");
        }
        skip_token(input);
        let name: Ident = input.parse()?;
        let kind = if self.of_blocks {
            None
        } else if name == "INFER" {
            Some("Infer")
        } else if name == "TRAIN" || has_type(input, "Train") {
            Some("Train")
        } else {
            None
        };
        if let Some(kind) = kind {
            let place = Place::from(&name);
            let mut read = Settings { name: name.clone(), place, is_broken: true, attributes, fields: Vec::new() };
            let before = self.errors.list().len();
            let result = self.settings(input, &mut read, kind);
            read.is_broken = result.is_err() || self.errors.list().len() > before;
            let known = items.trains.iter().chain(&items.infer).any(|known| known.name == name);
            if known || items.module.constants.iter().any(|known| known.name == name) {
                self.errors.add(&name, format!("`{name}` is defined twice; remove one"));
            }
            // A constant that could not be read counts as declared too.
            match kind {
                "Infer" => items.infer = Some(read),
                _ if known => {}
                _ if name == "TRAIN" => items.trains.insert(0, read),
                _ => items.trains.push(read),
            }
            return result;
        }
        if !input.peek(Token![:]) {
            return Err(input.error(format!("expected a type: `const {name}: usize = ..;`")));
        }
        input.parse::<Token![:]>()?;
        let kind: syn::Type = input.parse()?;
        if let syn::Type::Path(syn::TypePath { path, .. }) = &kind
            && path.is_ident("Infer")
        {
            return Err(syn::Error::new(name.span(), format!("a constant `Infer` is called `INFER`; rename `{name}`")));
        }
        input.parse::<Token![=]>()?;
        let mut tokens = TokenStream::new();
        while !input.peek(Token![;]) {
            if input.is_empty() {
                return Err(input.error(format!("expected `;` after `const {name}`")));
            }
            tokens.extend([input.parse::<TokenTree>()?]);
        }
        input.parse::<Token![;]>()?;
        if let Err(error) = syn::parse2::<syn::Expr>(tokens.clone()) {
            self.errors.add_syn(&error);
            return Ok(());
        }
        let is_step = items.trains.iter().any(|known| known.name == name);
        if is_step || items.module.constants.iter().any(|known| known.name == name) {
            self.errors.add(&name, format!("`{name}` is defined twice; rename or remove one"));
            return Ok(());
        }
        // An expression that this language does not have is reported only if a layer needs the constant.
        let mut errors = Errors::default();
        let next_id = self.next_id;
        let mut parser = Parser { in_constant: true, ..Parser::new(&mut errors, next_id, self.of_blocks) };
        let value = (|input: ParseStream<'_>| parser.expression(input)).parse2(tokens.clone()).ok();
        self.next_id = parser.next_id;
        let value = value.filter(|_| errors.is_empty());
        let kind = quote::quote!(#kind);
        items.module.constants.push(Constant { attributes, visibility, name, kind, tokens, value });
        Ok(())
    }

    /// Parses items with commas between them, up to the end of `input`.
    ///
    /// A missing comma is one mistake, and so is an item that cannot be read.
    fn separated<T>(
        &mut self,
        input: ParseStream<'_>,
        expected: &str,
        mut item: impl FnMut(&mut Self, ParseStream<'_>) -> syn::Result<(T, Place)>,
        describe: impl Fn(&T) -> String,
    ) -> Vec<(T, Place)> {
        let mut items: Vec<(T, Place)> = Vec::new();
        let mut comma_missing = false;
        let mut rounds = Rounds::default();
        while rounds.another(input) {
            if input.peek(Token![,]) {
                self.errors.add(input.span(), format!("expected {expected}, found `,`; remove one comma"));
                skip_token(input);
                continue;
            }
            if self.attributes_within(input) && input.is_empty() {
                break;
            }
            let found = input.cursor().token_tree().map(|(token, _)| token);
            let start = input.span();
            let after = items.last().filter(|_| comma_missing).map(|(last, _)| describe(last));
            let before = self.errors.list().len();
            match item(self, input) {
                Ok((item, place)) => {
                    // If the item itself has a mistake, that is reported instead of the missing comma.
                    if let Some(after) = after.filter(|_| self.errors.list().len() == before) {
                        self.errors.add(place, format!("expected `,` after `{after}`"));
                    }
                    items.push((item, place));
                }
                Err(error) => {
                    match (after, found) {
                        (Some(after), Some(found)) => {
                            self.errors.truncate(before);
                            self.errors.add(start, format!("expected `,` after `{after}`, found `{}`", brief(&found)));
                        }
                        _ => self.errors.add_syn(&error),
                    }
                    if input.peek(Token![;]) {
                        // A semicolon was written instead of the comma.
                        skip_token(input);
                        comma_missing = false;
                        continue;
                    }
                    skip_to_comma(input);
                }
            }
            comma_missing = !input.is_empty() && !input.peek(Token![,]);
            if input.peek(Token![,]) {
                skip_token(input);
            }
        }
        items
    }

    fn id(&mut self) -> usize {
        self.next_id += 1;
        self.next_id
    }
}

/// Counts rounds of a loop over tokens. Every loop of the parser that calls other parts of it uses one, so that it ends.
#[derive(Default)]
struct Rounds<'c> {
    /// The place where the last round began.
    last: Option<Cursor<'c>>,
}

impl<'c> Rounds<'c> {
    /// True if there is something left to read. Skips a token if the last round read none.
    fn another(&mut self, input: &ParseBuffer<'c>) -> bool {
        if self.last == Some(input.cursor()) {
            skip_token(input);
        }
        self.last = Some(input.cursor());
        !input.is_empty()
    }
}

/// Returns a token for a message: a group is shown by its delimiters.
fn brief(token: &TokenTree) -> String {
    match token {
        TokenTree::Group(group) => match group.delimiter() {
            Delimiter::Parenthesis => "(..)".into(),
            Delimiter::Brace => "{..}".into(),
            Delimiter::Bracket => "[..]".into(),
            Delimiter::None => group.to_string(),
        },
        other => other.to_string(),
    }
}

fn skip_token(input: ParseStream<'_>) {
    let _ = input.parse::<TokenTree>();
}

fn skip_to_comma(input: ParseStream<'_>) {
    while !input.is_empty() && !input.peek(Token![,]) {
        skip_token(input);
    }
}

/// Reads the rest, so that `syn` does not report it as unexpected too.
fn drain(input: &ParseBuffer<'_>) {
    while !input.is_empty() {
        skip_token(input);
    }
}

/// Skips everything between a struct's name and the next item, if there is no semicolon.
fn skip_fields(input: ParseStream<'_>) {
    let is_item = |input: ParseStream<'_>| {
        let visible = input.peek(Token![pub]) || input.peek(Token![#]);
        visible || input.peek(Token![const]) || input.peek(Token![fn]) || input.peek(Token![use])
    };
    while !input.is_empty() && !is_item(input) {
        let ends = input.peek(Token![;]) || input.peek(syn::token::Brace);
        skip_token(input);
        if ends {
            if input.peek(Token![;]) {
                skip_token(input);
            }
            return;
        }
    }
}

/// Skips to the end of an item: a semicolon or a pair of braces.
fn skip_item(input: ParseStream<'_>) {
    while !input.is_empty() {
        match input.parse::<TokenTree>() {
            Ok(TokenTree::Punct(punct)) if punct.as_char() == ';' => return,
            Ok(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                if input.peek(Token![;]) {
                    skip_token(input);
                }
                return;
            }
            _ => {}
        }
    }
}

/// True if a type of this name comes next, as `: Train`.
fn has_type(input: ParseStream<'_>, name: &str) -> bool {
    let ahead = input.fork();
    let kind = ahead.parse::<Token![:]>().and_then(|_| ahead.call(syn::Path::parse_mod_style));
    kind.is_ok_and(|path| path.segments.last().is_some_and(|last| last.ident == name))
}
