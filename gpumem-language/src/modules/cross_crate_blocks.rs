//! Passes blocks to the networks that use them, across crates.
//!
//! A macro sees only its own tokens. So each module of blocks has a hidden macro that passes its tokens on. An invocation that uses the module
//! expands to a call of that hidden macro, which in turn calls the original macro again with the module's tokens:
//!
//! ```text
//! network! { pub struct Net; use blocks zoo::resnet; .. }
//!     zoo::resnet::__declared_with_blocks! { [::gpumem::network] @ { [::gpumem] } { pub struct Net; .. } }
//!         ::gpumem::network! { @ { [::gpumem] } { pub struct Net; .. } { [] fn bottleneck(..) .. } }
//! ```
//!
//! The first braces after `@` hold the path of this library and the paths that are still to be fetched. The second ones hold the tokens that the user
//! wrote. Each module adds further braces. A module that uses others passes on their tokens too, in the brackets.

use crate::syntax::{Facade, Place, Use};
use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens as _, quote, quote_spanned};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// The name of the hidden macro in its module.
///
/// The compiler shows it if a path is not a module of blocks: "could not find `__declared_with_blocks` in `nn`".
const HANDED_ON: &str = "__declared_with_blocks";

/// The tokens that a user wrote in a macro that uses blocks, and the modules that have been fetched for it.
pub(crate) struct Gathered {
    pub(crate) tokens: TokenStream,
    pub(crate) modules: Vec<TokenStream>,
}

/// Reads the tokens of a macro: as the user wrote them, or with fetched modules.
///
/// Returns the call that fetches the next module as an `Err`, if there are paths left to fetch.
pub(crate) fn arrive(macro_name: &str, tokens: TokenStream) -> Result<Gathered, TokenStream> {
    let mut trees = tokens.clone().into_iter();
    let marked = matches!(trees.next(), Some(TokenTree::Punct(mark)) if mark.as_char() == '@');
    let groups: Option<Vec<TokenStream>> = trees.map(contents).collect();
    let Some([paths, written, modules @ ..]) = groups.as_deref().filter(|_| marked) else {
        return Ok(Gathered { tokens, modules: Vec::new() });
    };
    let facade = match paths.clone().into_iter().next() {
        Some(TokenTree::Group(path)) if path.delimiter() == Delimiter::Bracket => Facade(path.stream()),
        _ => Facade::default(),
    };
    let mut left: Vec<TokenStream> = paths.clone().into_iter().filter_map(contents).collect();
    // Anything else was written by hand, and is refused in that form.
    if !left.iter().chain([&facade.0]).all(is_path) {
        return Ok(Gathered { tokens, modules: Vec::new() });
    }
    match left.is_empty() {
        true => Ok(Gathered { tokens: unpacked(written.clone()), modules: modules.to_vec() }),
        false => Err(fetch(&facade, macro_name, left.remove(0), &left, written, modules)),
    }
}

/// True for path segments between `::`, which may also come first. A path from `macro_rules!` is one invisible group.
fn is_path(tokens: &TokenStream) -> bool {
    let trees: Vec<TokenTree> = tokens.clone().into_iter().collect();
    if let [TokenTree::Group(group)] = &trees[..] {
        return group.delimiter() == Delimiter::None && is_path(&group.stream());
    }
    let is_colon = |tree: &TokenTree| matches!(tree, TokenTree::Punct(mark) if mark.as_char() == ':');
    let segments = match &trees[..] {
        [first, second, segments @ ..] if is_colon(first) && is_colon(second) => segments,
        segments => segments,
    };
    let mut parts = segments.chunks(3);
    !segments.is_empty()
        && segments.len() % 3 == 1
        && parts.all(|part| matches!(&part[0], TokenTree::Ident(_)) && part[1..].iter().all(is_colon))
}

/// Returns the call that fetches the modules of `uses` for a macro with these tokens. `None` if it uses no module.
pub(crate) fn depart(facade: &Facade, macro_name: &str, uses: &[Use], written: &TokenStream) -> Option<TokenStream> {
    let mut paths: Vec<TokenStream> = uses.iter().map(|import| import.path.clone()).collect();
    (!paths.is_empty()).then(|| {
        let first = paths.remove(0);
        fetch(facade, macro_name, first, &paths, &packed(written.clone()), &[])
    })
}

/// Returns `path::__declared_with_blocks! { [::gpumem::network] @ { .. } { .. } .. }`, with the span of the path.
fn fetch(
    Facade(facade): &Facade,
    macro_name: &str,
    path: TokenStream,
    left: &[TokenStream],
    written: &TokenStream,
    modules: &[TokenStream],
) -> TokenStream {
    let place = Place::of(&path).end;
    let [callback, handed_on] = [macro_name, HANDED_ON].map(|name| Ident::new(name, place));
    let mut braces = Group::new(
        Delimiter::Brace,
        quote!([#facade::#callback] @ { [#facade] #({ #left })* } { #written } #({ #modules })*),
    );
    braces.set_span(place);
    let braces = braces.into_token_stream();
    quote_spanned!(place=> #path::#handed_on! #braces)
}

/// Returns the hidden macro of the module `name`. `tokens` is `None` if the module has mistakes.
pub(crate) fn hand_on(name: &Ident, tokens: Option<TokenStream>, nested: &[TokenStream]) -> TokenStream {
    let contents = match tokens {
        Some(tokens) => handed_on(&tokens, nested),
        None => quote!(!),
    };
    let unique = unique_name(name, &contents);
    let handed_on = Ident::new(HANDED_ON, Span::call_site());
    quote! {
        #[doc(hidden)]
        #[allow(non_local_definitions, unused_macros, clippy::crate_in_macro_def)]
        #[macro_export]
        macro_rules! #unique {
            ([$($callback:tt)*] $($all:tt)*) => { $($callback)*! { $($all)* { #contents } } };
        }
        #[doc(hidden)]
        #[allow(unused_imports, unreachable_pub)]
        pub use #unique as #handed_on;
    }
}

/// Returns the tokens that the hidden macro of a module passes on: the modules that it uses, and its own.
pub(crate) fn handed_on(tokens: &TokenStream, nested: &[TokenStream]) -> TokenStream {
    let tokens = packed(tokens.clone());
    quote!([ #({ #nested })* ] #tokens)
}

/// Reads the tokens that [`hand_on`] passed: the modules that the module uses, and its own tokens. `None` if it has mistakes.
pub(crate) fn unpack(module: TokenStream) -> Option<(Vec<TokenStream>, TokenStream)> {
    let mut trees = module.into_iter();
    match trees.next() {
        Some(TokenTree::Group(nested)) if nested.delimiter() == Delimiter::Bracket => {
            Some((nested.stream().into_iter().filter_map(contents).collect(), unpacked(trees.collect())))
        }
        _ => None,
    }
}

/// Returns a name for the hidden macro that is unique in its crate, at whose root an exported macro is.
///
/// It contains a hash of the contents and the place of the module. Only the end of the file's path is used, so that the name does not depend on the
/// folder in which a crate is built.
fn unique_name(name: &Ident, contents: &TokenStream) -> Ident {
    let (span, mut hasher) = (name.span(), DefaultHasher::new());
    let file = span.file();
    let file: Vec<&str> = file.rsplit(['/', '\\']).take(3).collect();
    (contents.to_string(), file, span.start().line, span.start().column).hash(&mut hasher);
    let name = name.to_string();
    let name = name.trim_start_matches("r#");
    Ident::new(&format!("__gpumem_blocks_{name}_{:016x}", hasher.finish()), Span::call_site())
}

fn contents(tree: TokenTree) -> Option<TokenStream> {
    match tree {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group.stream()),
        _ => None,
    }
}

/// Encodes invisible groups, which `macro_rules!` would dissolve: `2 * $n` with `3 + 4` for `$n` would become `2 * 3 + 4`.
///
/// An invisible group becomes `@ (..)`, and a `@` becomes `@ []`.
fn packed(tokens: TokenStream) -> TokenStream {
    let pack = |tree: TokenTree| match tree {
        TokenTree::Group(group) if group.delimiter() == Delimiter::None => {
            let mut visible = Group::new(Delimiter::Parenthesis, packed(group.stream()));
            visible.set_span(group.span());
            quote_spanned!(group.span()=> @ #visible)
        }
        TokenTree::Punct(mark) if mark.as_char() == '@' => quote_spanned!(mark.span()=> @ []),
        other => within(other, packed).into(),
    };
    tokens.into_iter().flat_map(pack).collect()
}

/// Decodes tokens that [`packed`] has encoded.
fn unpacked(tokens: TokenStream) -> TokenStream {
    let mut trees = tokens.into_iter();
    let mut unpacked_trees = Vec::new();
    while let Some(tree) = trees.next() {
        unpacked_trees.push(match &tree {
            TokenTree::Punct(mark) if mark.as_char() == '@' => match trees.next() {
                Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => {
                    let mut invisible = Group::new(Delimiter::None, unpacked(group.stream()));
                    invisible.set_span(group.span());
                    invisible.into()
                }
                _ => tree,
            },
            _ => within(tree, unpacked),
        });
    }
    unpacked_trees.into_iter().collect()
}

/// Applies `change` to the contents of a group, and returns other tokens unchanged.
///
/// A group without a `@` or an invisible group is returned unchanged too, so that its brackets keep their spans.
fn within(tree: TokenTree, change: fn(TokenStream) -> TokenStream) -> TokenTree {
    match tree {
        TokenTree::Group(group) if is_packed_or_invisible(group.stream()) => {
            let mut changed = Group::new(group.delimiter(), change(group.stream()));
            changed.set_span(group.span());
            changed.into()
        }
        other => other,
    }
}

fn is_packed_or_invisible(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|tree| match tree {
        TokenTree::Punct(mark) => mark.as_char() == '@',
        TokenTree::Group(group) => group.delimiter() == Delimiter::None || is_packed_or_invisible(group.stream()),
        _ => false,
    })
}
