//! Finds networks and modules of blocks in a text.

use super::{Mistake, Network, Resolved, mistakes};
use crate::errors::Errors;
use crate::syntax::Source;
use crate::{modules, parse};
use gpumem_core::graph::SourceLines;
use gpumem_core::suggest::nearest;
use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use syn::ext::IdentExt as _;

/// The most bytes of a text. A network of hundreds of layers has less than a thousandth of that.
const MOST_BYTES: usize = 1 << 26;

/// The most groups around a token. Readers of tokens call themselves for a group, and have a stack of 2 MiB in a thread.
const DEEPEST: usize = 128;

/// The networks and the modules of blocks in a text.
#[derive(Debug, Default)]
pub struct Text {
    /// The tokens of each network, with its name. The name is `None` if there is no struct.
    networks: Vec<(Option<Ident>, TokenStream)>,
    pub(super) modules: Vec<Blocks>,
    /// The names that spans have for texts, each with the name of the text's file.
    files: Vec<(String, String)>,
    /// The name that spans of this text have.
    own: String,
}

/// A module of blocks that is declared in a text.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    pub(super) name: Ident,
    pub(super) tokens: TokenStream,
}

impl Text {
    /// Reads a file of Rust with networks in `network!` or `#[network_mod]`, or the contents of one `network! { .. }` alone.
    ///
    /// Of Rust, only tokens are read: nothing of it is evaluated, and no other file is looked for.
    ///
    /// # Errors
    /// The text is no Rust tokens, or a module of blocks cannot be read.
    pub fn read(text: &str) -> Result<Text, Vec<Mistake>> {
        if text.len() > MOST_BYTES {
            let message = format!("the text has {} bytes, and at most {MOST_BYTES} are read", text.len());
            return Err(vec![Mistake { message, line: 1, column: 1 }]);
        }
        let tokens: TokenStream = text.parse().map_err(|error: proc_macro2::LexError| {
            vec![Mistake::at(error.span(), "this is no token of Rust, or a bracket without its counterpart")]
        })?;
        if let Some(group) = too_deep(&tokens) {
            return Err(vec![Mistake::at(group, format!("more than {DEEPEST} brackets are open here"))]);
        }
        let own = tokens.clone().into_iter().next().map(|token| token.span().file()).unwrap_or_default();
        let mut found = Text { own, ..Text::default() };
        let mut errors = Errors::default();
        found.collect(tokens.clone(), &mut errors);
        mistakes(&errors)?;
        // A network alone may declare layers too, which are its own.
        if found.networks.is_empty() && (found.modules.is_empty() || has_forward(&tokens)) {
            found.modules.clear();
            found.networks.push((struct_of(&tokens), tokens));
        }
        Ok(found)
    }

    /// Returns the names of the networks, in their order.
    pub fn names(&self) -> Vec<String> {
        self.networks.iter().filter_map(|(name, _)| Some(name.as_ref()?.unraw().to_string())).collect()
    }

    /// Returns the text as that of a file. Blueprints of its networks then have the source lines of their layers.
    pub fn in_file(mut self, name: &str) -> Text {
        self.files.push((self.own.clone(), name.into()));
        self
    }

    /// Replaces the names that spans have for texts by those of their files. Forgets all lines if one of them is in no file.
    pub(super) fn name_files(&self, lines: &mut SourceLines) {
        let named = |file: &String| Some(self.files.iter().find(|(known, _)| known == file)?.1.clone());
        match lines.files.iter().map(named).collect() {
            Some(files) => lines.files = files,
            None => *lines = SourceLines::default(),
        }
    }

    /// Adds the modules of blocks of another text, for the `use blocks ..` of networks in this one. Its own come first.
    pub fn add_blocks(&mut self, other: &Text) {
        self.modules.extend(other.modules.iter().cloned());
        self.files.extend(other.files.iter().cloned());
    }

    /// Resolves the network of this name, or the only one.
    ///
    /// # Errors
    /// There is no such network, or it has mistakes.
    pub fn resolve(&self, name: Option<&str>) -> Result<Resolved, Vec<Mistake>> {
        self.network(name)?.into_resolved()
    }

    /// Parses and resolves the network of this name, or the only one.
    fn network(&self, name: Option<&str>) -> Result<Network, Vec<Mistake>> {
        let (source, errors) = self.source(name)?;
        Network::of(source, errors)
    }

    /// Parses the network of this name, or the only one, with the mistakes that were found on the way.
    pub(super) fn source(&self, name: Option<&str>) -> Result<(Source, Errors), Vec<Mistake>> {
        let tokens = self.tokens(name).map_err(|mistake| vec![mistake])?;
        let mut first = Errors::default();
        let uses = parse::source(tokens.clone(), &[], &mut first).map(|source| source.module.uses).unwrap_or_default();
        let fetched = self.fetched(&uses)?;
        let mut errors = Errors::default();
        match parse::source(tokens, &fetched, &mut errors) {
            Some(source) => Ok((source, errors)),
            None => {
                mistakes(&errors)?;
                Err(vec![Mistake::at(Span::call_site(), "the network has no struct")])
            }
        }
    }

    fn tokens(&self, name: Option<&str>) -> Result<TokenStream, Mistake> {
        let names = self.names();
        let named = |wanted: &str| {
            let is_it = |name: &Ident| name.unraw() == wanted;
            self.networks.iter().find(|(name, _)| name.as_ref().is_some_and(is_it))
        };
        match (name, self.networks.as_slice()) {
            (None, [(_, tokens)]) => Ok(tokens.clone()),
            (None, [] | [_, ..]) if names.is_empty() => {
                Err(Mistake::at(Span::call_site(), "no network is declared here; write `network! { .. }`"))
            }
            (None, _) => {
                let message = format!("several networks are declared here; name one: {}", names.join(", "));
                Err(Mistake::at(Span::call_site(), message))
            }
            (Some(wanted), _) => match named(wanted) {
                Some((_, tokens)) => Ok(tokens.clone()),
                None => {
                    let known: Vec<&str> = names.iter().map(String::as_str).collect();
                    let near = nearest(wanted, &known).map(|near| format!("; did you mean `{near}`?"));
                    let message = format!("no network is called `{wanted}`{}", near.unwrap_or_default());
                    Err(Mistake::at(Span::call_site(), message))
                }
            },
        }
    }

    /// Collects the networks and modules among these tokens, and in braces below them.
    fn collect(&mut self, tokens: TokenStream, errors: &mut Errors) {
        let trees: Vec<TokenTree> = tokens.into_iter().collect();
        let mut rest = trees.as_slice();
        while let [first, after @ ..] = rest {
            rest = after;
            if let Some((name, group, after)) = called(first, after) {
                rest = after;
                match name.to_string().as_str() {
                    "network" => self.networks.push((struct_of(&group), group)),
                    "blocks" | "operation" => {
                        let found = &mut self.modules;
                        let add = |name, tokens| found.push(Blocks { name, tokens });
                        if let Err(error) = modules::each(&name.to_string(), group, add) {
                            errors.add_syn(&error);
                        }
                    }
                    _ => {}
                }
            } else if let Some(attribute) = attribute(first, after)
                && let Some((name, tokens, after)) = module_after(after)
            {
                rest = after;
                match attribute.to_string().as_str() {
                    "network_mod" => self.networks.push((struct_of(&tokens), tokens)),
                    _ => self.modules.push(Blocks { name, tokens }),
                }
            } else if let TokenTree::Group(group) = first
                && group.delimiter() == Delimiter::Brace
            {
                self.collect(group.stream(), errors);
            }
        }
    }
}

/// Reads a call of a macro that begins with `first`: its name, its tokens, and the trees after it.
///
/// The macro of `macro_rules!` has a name before its tokens.
fn called<'t>(first: &TokenTree, after: &'t [TokenTree]) -> Option<(Ident, TokenStream, &'t [TokenTree])> {
    let TokenTree::Ident(name) = first else { return None };
    match after {
        [TokenTree::Punct(mark), TokenTree::Group(group), rest @ ..] if mark.as_char() == '!' => {
            Some((name.clone(), group.stream(), rest))
        }
        [TokenTree::Punct(mark), TokenTree::Ident(_), TokenTree::Group(group), rest @ ..] if mark.as_char() == '!' => {
            Some((name.clone(), group.stream(), rest))
        }
        _ => None,
    }
}

/// Returns the name of the attribute `network_mod` or `blocks_mod`, if `#` and brackets with it come first.
fn attribute(first: &TokenTree, after: &[TokenTree]) -> Option<Ident> {
    let (TokenTree::Punct(mark), [TokenTree::Group(group), ..]) = (first, after) else { return None };
    if mark.as_char() != '#' || group.delimiter() != Delimiter::Bracket {
        return None;
    }
    let is_known = |name: &Ident| name == "network_mod" || name == "blocks_mod";
    // The name may end a path: `#[gpumem::network_mod]`.
    let names = group.stream().into_iter().take_while(|tree| !matches!(tree, TokenTree::Group(_)));
    names
        .filter_map(|tree| match tree {
            TokenTree::Ident(name) => Some(name),
            _ => None,
        })
        .find(is_known)
}

/// Reads the module that follows an attribute, after further attributes and its visibility. `None` if another item follows.
fn module_after(mut rest: &[TokenTree]) -> Option<(Ident, TokenStream, &[TokenTree])> {
    loop {
        match rest {
            [TokenTree::Ident(keyword), TokenTree::Ident(name), TokenTree::Group(group), after @ ..]
                if keyword == "mod" =>
            {
                return Some((name.clone(), group.stream(), after));
            }
            [TokenTree::Ident(name), after @ ..] if name == "pub" => rest = after,
            [TokenTree::Punct(mark), after @ ..] if mark.as_char() == '#' => rest = after,
            [TokenTree::Group(group), after @ ..] if group.delimiter() != Delimiter::Brace => rest = after,
            _ => return None,
        }
    }
}

/// Returns the place of a group that has too many others around it. Does not call itself for a group.
fn too_deep(tokens: &TokenStream) -> Option<Span> {
    let mut open = vec![tokens.clone().into_iter()];
    while let Some(trees) = open.last_mut() {
        match trees.next() {
            Some(TokenTree::Group(group)) if open.len() > DEEPEST => return Some(group.span_open()),
            Some(TokenTree::Group(group)) => open.push(group.stream().into_iter()),
            Some(_) => {}
            None => {
                open.pop();
            }
        }
    }
    None
}

/// True if `fn forward` is among these tokens, and not in a group of them.
fn has_forward(tokens: &TokenStream) -> bool {
    let trees: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let is_forward = |pair: &[TokenTree]| match pair {
        [TokenTree::Ident(keyword), TokenTree::Ident(name)] => keyword == "fn" && name == "forward",
        _ => false,
    };
    trees.windows(2).any(is_forward)
}

/// Returns the name after the first `struct` of a network.
fn struct_of(tokens: &TokenStream) -> Option<Ident> {
    let trees: Vec<TokenTree> = tokens.clone().into_iter().collect();
    trees.windows(2).find_map(|pair| match pair {
        [TokenTree::Ident(keyword), TokenTree::Ident(name)] if keyword == "struct" => Some(name.clone()),
        _ => None,
    })
}
