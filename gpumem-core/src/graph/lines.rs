//! Source lines of layers: where each was written, and which calls of blocks led to it.

use crate::program::encoding::{Reader, Wire};
use alloc::string::String;
use alloc::vec::Vec;

/// The line at which a layer, or the call of a block, begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceLine {
    /// Index of its file in [`SourceLines::files`].
    pub file: usize,
    /// The line, from 1.
    pub line: u32,
    /// Index of the line of the call whose block it is in. `None` in `forward`. It is less than the index of this line.
    pub caller: Option<usize>,
}

/// The source lines of a network's layers. Empty if nobody knows them, as for a model of PyTorch.
///
/// Layers of `repeat` share one line, so that a deep network has few.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceLines {
    /// The files, as the compiler was given them.
    pub files: Vec<String>,
    /// The lines, each once for each chain of calls.
    pub lines: Vec<SourceLine>,
    /// The line of each layer's row, as an index in `lines`. `None` if it is unknown, as for rows beyond the end.
    pub rows: Vec<Option<usize>>,
}

impl SourceLines {
    /// Returns the line of a layer's row and those of the calls around it, the innermost first. Each is a file and a line.
    pub fn of_row(&self, row: usize) -> impl Iterator<Item = (&str, u32)> {
        let mut next = self.rows.get(row).copied().flatten();
        core::iter::from_fn(move || {
            let SourceLine { file, line, caller } = *self.lines.get(next?)?;
            next = caller;
            Some((self.files.get(file)?.as_str(), line))
        })
    }

    /// True if all indices exist, callers come before what they call, and there are no more than `rows` rows.
    #[cfg(any(test, feature = "lower"))]
    pub(crate) fn is_sound(&self, rows: usize) -> bool {
        let is_line = |(index, line): (usize, &SourceLine)| {
            line.file < self.files.len() && line.caller.is_none_or(|caller| caller < index)
        };
        self.lines.iter().enumerate().all(is_line)
            && self.rows.len() <= rows
            && self.rows.iter().flatten().all(|&line| line < self.lines.len())
    }
}

/// Writes how much larger `value` is than `before`, both as numbers of 63 bits. Neighbours are close, so most take one byte.
fn put_step(before: u64, value: u64, out: &mut Vec<u8>) {
    let step = value.wrapping_sub(before) as i64;
    (((step << 1) ^ (step >> 63)) as u64).put(out);
}

fn take_step(before: u64, from: &mut Reader<'_>) -> Option<u64> {
    let step = u64::take(from)?;
    Some(before.wrapping_add((step >> 1) ^ (step & 1).wrapping_neg()))
}

/// Returns 0 for `None`, and one more than the index otherwise.
fn numbered(index: Option<usize>) -> u64 {
    index.map_or(0, |index| index as u64 + 1)
}

fn index_of(number: u64) -> Option<Option<usize>> {
    Some(match number.checked_sub(1) {
        Some(index) => Some(index.try_into().ok()?),
        None => None,
    })
}

impl Wire for SourceLines {
    fn put(&self, out: &mut Vec<u8>) {
        self.files.put(out);
        self.lines.len().put(out);
        let mut before = 0;
        for line in &self.lines {
            line.file.put(out);
            put_step(before, line.line.into(), out);
            numbered(line.caller).put(out);
            before = line.line.into();
        }
        self.rows.len().put(out);
        let mut before = 0;
        for &row in &self.rows {
            put_step(before, numbered(row), out);
            before = numbered(row);
        }
    }

    fn take(from: &mut Reader<'_>) -> Option<SourceLines> {
        let mut found = SourceLines { files: Wire::take(from)?, ..SourceLines::default() };
        let mut before = 0;
        for _ in 0..usize::take(from)? {
            let file = Wire::take(from)?;
            before = take_step(before, from)?;
            let caller = index_of(Wire::take(from)?)?;
            found.lines.push(SourceLine { file, line: before.try_into().ok()?, caller });
        }
        let mut before = 0;
        for _ in 0..usize::take(from)? {
            before = take_step(before, from)?;
            found.rows.push(index_of(before)?);
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn lines() -> SourceLines {
        let line = |file, line, caller| SourceLine { file, line, caller };
        SourceLines {
            files: vec!["src/net.rs".into(), "src/blocks.rs".into()],
            lines: vec![line(0, 30, None), line(1, 4, Some(0)), line(0, 31, None)],
            rows: vec![Some(1), Some(1), None, Some(2)],
        }
    }

    fn decoded(bytes: &[u8]) -> Option<SourceLines> {
        let mut from = Reader::new(bytes);
        SourceLines::take(&mut from).filter(|_| from.is_empty())
    }

    #[test]
    fn a_row_has_its_line_and_those_of_the_calls_around_it() {
        let lines = lines();
        let of = |row| lines.of_row(row).collect::<Vec<_>>();
        assert_eq!(of(0), [("src/blocks.rs", 4), ("src/net.rs", 30)]);
        assert_eq!(of(3), [("src/net.rs", 31)]);
        assert!(of(2).is_empty() && of(4).is_empty());
    }

    #[test]
    fn lines_are_read_as_they_were_written() {
        for lines in [lines(), SourceLines::default()] {
            let mut bytes = Vec::new();
            lines.put(&mut bytes);
            assert_eq!(decoded(&bytes), Some(lines));
            // Nothing that is cut off is read, and nothing panics.
            (0..bytes.len()).for_each(|end| assert_eq!(decoded(&bytes[..end]), None));
        }
        let mut bytes = Vec::new();
        lines().put(&mut bytes);
        assert!(bytes.len() < 45, "{} bytes", bytes.len());
    }

    #[test]
    fn indices_that_do_not_exist_are_refused() {
        assert!(lines().is_sound(4) && !lines().is_sound(3));
        let mut wrong = lines();
        wrong.lines[1].caller = Some(1);
        assert!(!wrong.is_sound(4), "a call of itself");
        let mut wrong = lines();
        wrong.lines[0].file = 2;
        assert!(!wrong.is_sound(4));
        let mut wrong = lines();
        wrong.rows[0] = Some(3);
        assert!(!wrong.is_sound(4));
    }

    #[test]
    fn a_length_without_contents_takes_no_memory() {
        let mut bytes = vec![0];
        u64::MAX.put(&mut bytes);
        assert_eq!(decoded(&bytes), None);
    }
}
