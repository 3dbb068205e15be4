//! Rows of a CSV, of bounded length.

use crate::error::{Error, Place, Result};
use csv_core::{ReadRecordResult, Reader};
use std::io::BufRead;

/// The most bytes of a row: the longest path of Linux has 4096. An unclosed quotation mark turns the rest of the file into one field.
const MOST_BYTES: usize = 1 << 14;

/// The most fields of a row.
const MOST_FIELDS: usize = 64;

/// A reader of rows. Its memory does not depend on the file.
pub(super) struct Rows<R> {
    from: R,
    reader: Reader,
    /// The fields of a row, one after the other.
    text: Vec<u8>,
    ends: [usize; MOST_FIELDS],
    count: usize,
    line: u64,
}

impl<R: BufRead> Rows<R> {
    pub fn new(from: R) -> Rows<R> {
        let text = vec![0; MOST_BYTES];
        Rows { from, reader: Reader::new(), text, ends: [0; MOST_FIELDS], count: 0, line: 1 }
    }

    /// Reads the next non-empty row. Returns false if there is none.
    ///
    /// # Errors
    /// A row that is too long, or is not UTF-8.
    pub fn advance(&mut self) -> Result<bool> {
        self.line = self.reader.line();
        let is_read = self.read().map_err(|what| {
            let what = format!("cannot be read ({what}); save it as CSV in UTF-8 with a comma between fields");
            self.at(Error::format(what))
        })?;
        Ok(is_read)
    }

    fn read(&mut self) -> std::result::Result<bool, String> {
        self.count = 0;
        let mut length = 0;
        loop {
            let input = self.from.fill_buf().map_err(|error| error.to_string())?;
            let (result, read, written, ends) =
                self.reader.read_record(input, &mut self.text[length..], &mut self.ends[self.count..]);
            self.from.consume(read);
            length += written;
            self.count += ends;
            match result {
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull => {
                    return Err(format!("a row has more than {MOST_BYTES} bytes, or a quotation mark is not closed"));
                }
                ReadRecordResult::OutputEndsFull => return Err(format!("a row has more than {MOST_FIELDS} fields")),
                ReadRecordResult::Record => {
                    let is_text = (0..self.count).all(|number| self.field(number).is_some());
                    return if is_text { Ok(true) } else { Err("it is not UTF-8".into()) };
                }
                ReadRecordResult::End => return Ok(false),
            }
        }
    }

    /// Returns the number of fields.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns a field without spaces around it. `None` if there is none of this number, or if it is not UTF-8.
    pub fn field(&self, number: usize) -> Option<&str> {
        let ends = &self.ends[..self.count];
        let start = number.checked_sub(1).map_or(Some(0), |before| ends.get(before).copied())?;
        std::str::from_utf8(&self.text[start..*ends.get(number)?]).ok().map(str::trim)
    }

    /// Returns the line at which the row begins, or an empty one before it.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Adds the line to an error.
    pub fn at(&self, error: Error) -> Error {
        error.with_place(Place::Line(self.line))
    }
}
