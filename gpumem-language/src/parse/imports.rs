//! Parses imports: Rust's `use` is passed through, `use blocks path::to::resnet;` imports a module of blocks.

use super::Parser;
use crate::modules::cross_crate_blocks;
use crate::syntax::{Module, Place, Use};
use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::ext::IdentExt as _;
use syn::parse::ParseStream;
use syn::{Attribute, Token, UseTree, Visibility};

impl Parser<'_> {
    pub(super) fn import(
        &mut self,
        input: ParseStream<'_>,
        attributes: &[Attribute],
        visibility: &Visibility,
        module: &mut Module,
    ) -> syn::Result<()> {
        let marks = |attribute: &&Attribute| attribute.path().is_ident("blocks");
        let marked = attributes.iter().any(|attribute| marks(&attribute));
        let path = if begins_with_blocks(input) {
            input.parse::<Token![use]>()?;
            input.parse::<Ident>()?;
            let tree: UseTree = input.parse()?;
            input.parse::<Token![;]>()?;
            (TokenStream::new(), tree)
        } else {
            let import: syn::ItemUse = input.parse()?;
            if !marked {
                names_of(&import.tree, &mut module.imported);
                module.imports.push(quote!(#(#attributes)* #visibility #import));
                return Ok(());
            }
            let start = import.leading_colon;
            (quote!(#start), import.tree)
        };
        for attribute in attributes.iter().filter(|attribute| !marks(attribute) || !is_bare(attribute)) {
            self.errors.add(Place::of(attribute), "an import of blocks has no attributes; remove this one");
        }
        if !matches!(visibility, Visibility::Inherited) {
            let message = "an import of blocks is seen by the blocks beside it only; remove the visibility";
            self.errors.add(Place::of(visibility), message);
        }
        self.use_tree(path.0, &path.1, module);
        Ok(())
    }

    /// Imports the modules below `before`, a path that ends in `::` or is empty.
    fn use_tree(&mut self, before: TokenStream, tree: &UseTree, module: &mut Module) {
        match tree {
            UseTree::Path(path) => {
                let (segment, colons) = (&path.ident, &path.colon2_token);
                self.use_tree(quote!(#before #segment #colons), &path.tree, module);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.use_tree(before.clone(), tree, module);
                }
            }
            UseTree::Name(name) => self.use_module(before, &name.ident, &name.ident, module),
            UseTree::Rename(rename) => self.use_module(before, &rename.ident, &rename.rename, module),
            UseTree::Glob(glob) => {
                let message = "`use blocks` names modules, not what is in them; write the module's path without `::*`";
                self.errors.add(Place::of(glob), message);
            }
        }
    }

    fn use_module(&mut self, before: TokenStream, last: &Ident, name: &Ident, module: &mut Module) {
        if ["self", "super", "crate", "_"].iter().any(|reserved| name == reserved) {
            let message = format!("`{name}` is no name that blocks can be called by; name the module with `as`");
            self.errors.add(name, message);
            return;
        }
        if module.uses.iter().any(|known| known.name == *name) {
            self.errors
                .add(name, format!("`{name}` is imported twice; rename one, as `use blocks path::{name} as other;`"));
            return;
        }
        // `a::{self as b}` imports `a`.
        let path = if last == "self" && !before.is_empty() { without_colons(before) } else { quote!(#before #last) };
        module.uses.push(Use { name: name.clone(), path, module: Module::default() });
    }

    /// Parses the modules of `uses`, in their order. True if all of them could be read.
    pub(super) fn fetch(&mut self, uses: &mut [Use], fetched: &[TokenStream]) -> bool {
        let mut all = true;
        for (import, tokens) in uses.iter_mut().zip(fetched) {
            let Some((nested, tokens)) = cross_crate_blocks::unpack(tokens.clone()) else {
                let message =
                    format!("the blocks of `{}` have mistakes, which are shown where they are declared", import.name);
                self.errors.add(&import.name, message);
                all = false;
                continue;
            };
            let around = std::mem::replace(&mut self.of_blocks, true);
            import.module = self.items(tokens).module;
            all &= self.fetch(&mut import.module.uses, &nested);
            self.of_blocks = around;
        }
        all
    }
}

/// Collects the names that a `use` imports, except those of `*`.
fn names_of(tree: &UseTree, names: &mut Vec<Ident>) {
    match tree {
        UseTree::Path(path) => names_of(&path.tree, names),
        UseTree::Group(group) => group.items.iter().for_each(|tree| names_of(tree, names)),
        UseTree::Name(name) => names.push(name.ident.clone()),
        UseTree::Rename(rename) => names.push(rename.rename.clone()),
        UseTree::Glob(_) => {}
    }
}

/// True for `use blocks path`, but not for a path that begins with a crate or module called `blocks`.
fn begins_with_blocks(input: ParseStream<'_>) -> bool {
    let ahead = input.fork();
    let is_blocks = ahead.parse::<Token![use]>().is_ok() && ahead.parse::<Ident>().is_ok_and(|name| name == "blocks");
    let goes_on = ahead.peek(Ident::peek_any) && !ahead.peek(Token![as]);
    is_blocks && (goes_on || ahead.peek(syn::token::Brace) || ahead.peek(Token![*]))
}

fn is_bare(attribute: &Attribute) -> bool {
    matches!(attribute.meta, syn::Meta::Path(_))
}

/// Removes the `::` at the end of a path.
fn without_colons(path: TokenStream) -> TokenStream {
    let mut tokens: Vec<_> = path.into_iter().collect();
    tokens.truncate(tokens.len().saturating_sub(2));
    tokens.into_iter().collect()
}
