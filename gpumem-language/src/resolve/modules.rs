//! Resolves names of blocks in other modules, and decides where mistakes inside them are shown.

use super::Resolver;
use super::frame::{Current, Frame};
use crate::syntax::{Argument, Expression, Function, Module, Place, Use};
use gpumem_core::layers::composite::COMPOSITES;
use gpumem_core::suggest::nearest;
use proc_macro2::Ident;
use std::rc::Rc;

/// A block, and the module in which its names are resolved.
pub(super) type Block<'s> = (&'s Function, &'s Module);

impl<'s> Resolver<'s, '_> {
    /// Returns the block that a name without a path means, or `None`. Reports a name that several modules have.
    pub(super) fn block_called(&mut self, element: &Expression, name: &str, frame: &Frame<'s>) -> Option<Block<'s>> {
        let found = self.blocks_called(name, frame);
        if found.len() > 1 {
            let uses = frame.module.uses.iter().filter(|import| block(&import.module, name).is_some());
            let uses: Vec<&Ident> = uses.map(|import| &import.name).collect();
            let owners: Vec<String> = uses.iter().map(|import| format!("`{import}`")).collect();
            let calls: Vec<String> = uses.iter().map(|import| format!("`{import}::{name}`")).collect();
            let message = format!("`{name}` is a block of {}; write {}", owners.join(" and of "), calls.join(" or "));
            self.report(element.id, element.place, frame, &message);
        }
        found.first().copied()
    }

    /// Returns the blocks that a name without a path may mean.
    ///
    /// These are the block of this module, or those of the modules that it imports, or else a composite.
    pub(super) fn blocks_called(&self, name: &str, frame: &Frame<'s>) -> Vec<Block<'s>> {
        let module = frame.module;
        if let Some(own) = block(module, name) {
            return vec![own];
        }
        let imported: Vec<_> = module.uses.iter().filter_map(|import| block(&import.module, name)).collect();
        if !imported.is_empty() {
            return imported;
        }
        module.composites.iter().filter_map(|composites| block(composites, name)).collect()
    }

    /// Returns the names of the blocks of this module, of those that it imports, and of the composites.
    pub(super) fn block_names(&self, frame: &Frame<'s>) -> Vec<String> {
        let modules = frame.module.uses.iter().map(|import| &import.module);
        let modules = std::iter::once(frame.module).chain(modules);
        let declared = modules.flat_map(|module| &module.blocks).map(|block| block.name.to_string());
        declared.chain(COMPOSITES.iter().map(|composite| composite.name.to_string())).collect()
    }

    /// True if `module` is imported where `frame` is.
    pub(crate) fn imports(&self, module: &Ident, frame: &Frame<'s>) -> bool {
        frame.module.uses.iter().any(|import| import.name == *module)
    }

    /// Resolves `resnet::bottleneck(64)`.
    pub(super) fn qualified(
        &mut self,
        element: &'s Expression,
        (module, name): (&Ident, &Ident),
        arguments: &'s [Argument],
        frame: &Rc<Frame<'s>>,
        current: Current,
        segment: Option<&str>,
    ) -> Current {
        let uses = &frame.module.uses;
        let names: Vec<String> = uses.iter().map(|import| import.name.to_string()).collect();
        let import = self.called(&names, module).and_then(|(index, sound)| {
            if !sound {
                let message =
                    format!("no module of blocks is imported as `{module}`; did you mean `{}`?", names[index]);
                self.report(element.id, Place::from(module), frame, &message);
            }
            uses.get(index)
        });
        let Some(Use { module: blocks, .. }) = import else {
            let message = format!(
                "no module of blocks is imported as `{module}`; import it beside the blocks that call it, as `use blocks \
                 path::to::{module};`"
            );
            self.report(element.id, Place::from(module), frame, &message);
            return self.fail_layer();
        };
        let mut names: Vec<String> = blocks.blocks.iter().map(|block| block.name.to_string()).collect();
        names.extend(blocks.operations.iter().map(|operation| operation.name.to_string()));
        let found = self.called(&names, name);
        if !found.is_some_and(|(_, sound)| sound) {
            let hint = match found {
                Some((index, _)) => format!("did you mean `{}`?", names[index]),
                None if names.is_empty() => "it has no blocks".to_string(),
                None => {
                    format!("it has {}", names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))
                }
            };
            let message = format!("`{module}` has no block `{name}`; {hint}");
            self.report(element.id, Place::from(name), frame, &message);
        }
        let index = found.map_or(usize::MAX, |(index, _)| index);
        let operation = index.checked_sub(blocks.blocks.len()).and_then(|index| blocks.operations.get(index));
        match (blocks.blocks.get(index), operation) {
            (Some(block), _) => self.call(element, (block, blocks), arguments, frame, current, segment),
            (None, Some(operation)) => self.operation(element, (operation, blocks), arguments, frame, current, segment),
            (None, None) => self.fail_layer(),
        }
    }

    /// Returns the index of a name among others, and true; or the index of the nearest one, and false. `None` if none is near.
    fn called(&self, names: &[String], name: &Ident) -> Option<(usize, bool)> {
        if let Some(index) = names.iter().position(|known| name == known) {
            return Some((index, true));
        }
        let known: Vec<&str> = names.iter().map(String::as_str).collect();
        let near = nearest(&name.to_string(), &known)?;
        names.iter().position(|known| known == near).map(|index| (index, false))
    }

    /// Returns the place at which a mistake at `place` is shown. If that is another place, returns the original one as text.
    ///
    /// A block of another module may be in another crate, whose source may be missing. So the user's call of it is underlined. The text of a
    /// composite is in no file, so it has no original place.
    pub(crate) fn shown(&self, place: Place, frame: &Frame<'s>) -> (Place, Option<String>) {
        let is_own = |frame: &Frame<'s>| std::ptr::eq(frame.module, self.module);
        let (mut shown, mut around) = (place, Some(frame));
        while let Some(frame) = around.filter(|frame| !is_own(frame)) {
            (shown, around) = (frame.place, frame.caller.as_deref());
        }
        let origin = (!is_own(frame) && !frame.module.is_of_composites).then(|| {
            let start = place.start.start();
            format!("{}:{}:{}", place.start.file(), start.line, start.column + 1)
        });
        (shown, origin)
    }
}

fn block<'s>(module: &'s Module, name: &str) -> Option<Block<'s>> {
    module.blocks.iter().find(|block| block.name == name).map(|block| (block, module))
}
