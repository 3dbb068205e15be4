//! Gives networks the modules of blocks that they use, as the hidden macros of these modules do in a compiler.

use super::text::{Blocks, Text};
use super::{Mistake, mistakes};
use crate::errors::Errors;
use crate::modules::cross_crate_blocks::handed_on;
use crate::syntax::Use;
use crate::{parse, resolve};
use gpumem_core::suggest::nearest;
use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt as _;

/// The most modules that are read for one network. Modules that others use are read once for each use.
const MOST: usize = 1024;

/// The most modules of which each uses the next.
const LONGEST: usize = 32;

/// The modules around the one that is being read, and the number of all that were.
#[derive(Default)]
struct Route<'t> {
    around: Vec<&'t Blocks>,
    count: usize,
}

impl Text {
    /// Returns the modules of these `use blocks`, in the form in which a network gets them.
    pub(super) fn fetched(&self, uses: &[Use]) -> Result<Vec<TokenStream>, Vec<Mistake>> {
        self.fetch(uses, &mut Route::default())
    }

    fn fetch<'t>(&'t self, uses: &[Use], route: &mut Route<'t>) -> Result<Vec<TokenStream>, Vec<Mistake>> {
        uses.iter().map(|import| self.module(import, route)).collect()
    }

    fn module<'t>(&'t self, import: &Use, route: &mut Route<'t>) -> Result<TokenStream, Vec<Mistake>> {
        let blocks = self.blocks(import).map_err(|mistake| vec![mistake])?;
        route.count += 1;
        let is_around = route.around.iter().any(|around| std::ptr::eq(*around, blocks));
        if is_around || route.count > MOST || route.around.len() > LONGEST {
            let message = match is_around {
                true => format!("`{}` uses itself", blocks.name),
                false => format!(
                    "the network uses more than {MOST} modules of blocks, or more than {LONGEST} one through another"
                ),
            };
            return Err(vec![Mistake::at(import.name.span(), message)]);
        }
        route.around.push(blocks);
        let mut errors = Errors::default();
        let (module, _) = parse::module(blocks.tokens.clone(), &[], &mut errors);
        let nested = self.fetch(&module.uses, route)?;
        route.around.pop();
        let mut errors = Errors::default();
        let (module, _) = parse::module(blocks.tokens.clone(), &nested, &mut errors);
        resolve::declare(&module, &mut errors);
        mistakes(&errors)?;
        Ok(handed_on(&blocks.tokens, &nested))
    }

    /// Finds the module that a `use blocks` names: the last part of its path is a name in this text.
    fn blocks(&self, import: &Use) -> Result<&Blocks, Mistake> {
        let last = import.path.clone().into_iter().filter_map(|tree| match tree {
            TokenTree::Ident(name) => Some(name.unraw().to_string()),
            _ => None,
        });
        let wanted = last.last().unwrap_or_default();
        let found = self.modules.iter().find(|blocks| blocks.name.unraw() == wanted);
        found.ok_or_else(|| {
            let known: Vec<String> = self.modules.iter().map(|blocks| blocks.name.unraw().to_string()).collect();
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            let near = nearest(&wanted, &known).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            Mistake::at(import.name.span(), format!("no module of blocks is called `{wanted}` here{near}"))
        })
    }
}
