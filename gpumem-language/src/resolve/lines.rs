//! Source lines of layers, which the record of a network has for tools.

use super::Resolver;
use super::frame::Frame;
use crate::syntax::Place;
use gpumem_core::graph::{SourceLine, SourceLines};
use proc_macro2::Span;
use std::collections::HashMap;

/// Source lines that were found so far.
#[derive(Default)]
pub(super) struct Lines {
    found: SourceLines,
    files: HashMap<String, usize>,
    known: HashMap<SourceLine, usize>,
}

impl Lines {
    /// Returns the index of a token's line, in a block that the line `caller` calls. `None` for a token of no file.
    fn add(&mut self, span: Span, caller: Option<usize>) -> Option<usize> {
        let line = u32::try_from(span.start().line).ok().filter(|&line| line > 0)?;
        let name = span.file().replace('\\', "/");
        let next = self.files.len();
        let file = *self.files.entry(name.clone()).or_insert(next);
        if file == next {
            self.found.files.push(name);
        }
        let next = self.found.lines.len();
        let line = SourceLine { file, line, caller };
        let index = *self.known.entry(line).or_insert(next);
        if index == next {
            self.found.lines.push(line);
        }
        Some(index)
    }

    /// Returns the source lines of rows that have these lines.
    pub(super) fn of_rows(self, rows: Vec<Option<usize>>) -> SourceLines {
        SourceLines { rows, ..self.found }
    }
}

impl<'s> Resolver<'s, '_> {
    /// Returns the line of an element in a frame. The text of a composite is in no file, so the line of its call is returned instead.
    pub(super) fn line_of(&mut self, place: Place, frame: &Frame<'s>) -> Option<usize> {
        if frame.module.is_of_composites {
            return frame.line;
        }
        self.lines.add(place.start, frame.line)
    }
}
