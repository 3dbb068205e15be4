//! How blocks reach the networks that use them.
//!
//! A macro sees nothing but its own tokens. So each module of blocks has a hidden macro that hands its tokens on, and what
//! uses the module calls that macro with the macro to go on with:
//!
//! ```text
//! network! { pub struct Net; use blocks zoo::resnet; .. }
//!     zoo::resnet::__declared_with_blocks! { [::gpumem::network] @ { [::gpumem] } { pub struct Net; .. } }
//!         ::gpumem::network! { @ { [::gpumem] } { pub struct Net; .. } { [] fn bottleneck(..) .. } }
//! ```
//!
//! The braces after `@` hold where this library is found and the paths that are still to be fetched, the next ones what was written at first, and one more
//! is added for each module. A module that uses others hands theirs on as well, in the brackets.

use crate::syntax::{Facade, Place, Use};
use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens as _, quote, quote_spanned};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// The hidden macro's name in its module. The compiler shows it where a path is no module of blocks: "could not find
/// `__declared_with_blocks` in `nn`".
const HANDED_ON: &str = "__declared_with_blocks";

/// What was written in a macro that uses blocks, and the modules that have been fetched for it.
pub(crate) struct Gathered {
    pub(crate) tokens: TokenStream,
    pub(crate) modules: Vec<TokenStream>,
}

/// Reads the tokens of a macro: as the user wrote them, or on the way. Then it is on the way further, where paths are left.
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
    // Anything else was written by hand, and is refused as such.
    if !left.iter().chain([&facade.0]).all(is_path) {
        return Ok(Gathered { tokens, modules: Vec::new() });
    }
    match left.is_empty() {
        true => Ok(Gathered { tokens: unpacked(written.clone()), modules: modules.to_vec() }),
        false => Err(fetch(&facade, macro_name, left.remove(0), &left, written, modules)),
    }
}

/// Returns true for segments between `::`, with or without one before them. A path from `macro_rules!` is one invisible group.
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

/// The way to the modules of `uses`, for a macro with these tokens.
pub(crate) fn depart(facade: &Facade, macro_name: &str, uses: &[Use], written: &TokenStream) -> Option<TokenStream> {
    let mut paths: Vec<TokenStream> = uses.iter().map(|import| import.path.clone()).collect();
    (!paths.is_empty()).then(|| {
        let first = paths.remove(0);
        fetch(facade, macro_name, first, &paths, &packed(written.clone()), &[])
    })
}

/// `path::__declared_with_blocks! { [::gpumem::network] @ { .. } { .. } .. }`, at the place of the path.
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

/// The hidden macro of the module `name`. Without `tokens` the module has mistakes.
pub(crate) fn hand_on(name: &Ident, tokens: Option<TokenStream>, nested: &[TokenStream]) -> TokenStream {
    let contents = match tokens {
        Some(tokens) => {
            let tokens = packed(tokens);
            quote!([ #({ #nested })* ] #tokens)
        }
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

/// What [`hand_on`] handed on: the modules that the module uses, and its tokens. `None` where it has mistakes.
pub(crate) fn unpack(module: TokenStream) -> Option<(Vec<TokenStream>, TokenStream)> {
    let mut trees = module.into_iter();
    match trees.next() {
        Some(TokenTree::Group(nested)) if nested.delimiter() == Delimiter::Bracket => {
            Some((nested.stream().into_iter().filter_map(contents).collect(), unpacked(trees.collect())))
        }
        _ => None,
    }
}

/// A macro that other crates see stands at the root of its crate, so its name must be the only one there: it has the
/// contents and the place of the module in it. Of the file's path, the end must do: where a crate is built changes nothing.
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

/// Tokens as they go through `macro_rules!`, which dissolves the invisible groups that other macros bring: `2 * $n` with
/// `3 + 4` for `$n` would become `2 * 3 + 4`. Such a group travels as `@ (..)`, and a `@` as `@ []`.
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

/// The tokens that [`packed`] has packed.
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

/// A group with what `change` makes of its contents; anything else as it is. A group without a `@` or an invisible group
/// stays itself, with the places of its brackets.
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
