//! The records that every build leaves in the object section `.gpumem`, one a network.
//!
//! `GPUMEM1\0`, the length of the text as 32 bits little-endian, the text (JSON), zeros up to [`RECORD_BYTES`]. Linkers
//! concatenate records in any order and may pad between them: a reader looks for the magic.

use crate::memory::Compiled;
use crate::memory::budget::Line;
use crate::message::Message;

/// Bytes of a record.
pub const RECORD_BYTES: usize = 1024;

/// The first bytes of a record.
pub const MAGIC: [u8; 8] = *b"GPUMEM1\0";

/// Magic and length.
const HEADER: usize = 12;

/// The most bytes of a name, so that twice thirteen numbers of twenty digits always fit beside it.
const LONGEST_NAME: usize = 128;

/// The record of a network: its name and the budgets of the programs it has, in bytes.
///
/// ```json
/// {"name":"Vgg16","train":{"batch":64,"weights":553430176,...},"infer":null}
/// ```
pub const fn record(name: &str, train: Option<&Compiled>, infer: Option<&Compiled>) -> [u8; RECORD_BYTES] {
    let mut text = Message::<{ RECORD_BYTES - HEADER }>::new();
    text.text("{\"name\":\"");
    append_name(&mut text, name);
    text.text("\",\"train\":");
    append_program(&mut text, train);
    text.text(",\"infer\":");
    append_program(&mut text, infer);
    text.text("}");

    let text = text.as_str().as_bytes();
    let mut record = [0; RECORD_BYTES];
    let (magic, rest) = record.split_at_mut(MAGIC.len());
    magic.copy_from_slice(&MAGIC);
    let (length, rest) = rest.split_at_mut(4);
    length.copy_from_slice(&(text.len() as u32).to_le_bytes());
    rest.split_at_mut(text.len()).0.copy_from_slice(text);
    record
}

/// Appends `name` as the inside of a JSON string. A Rust name needs no escape; what would need one becomes `_`.
const fn append_name<const CAP: usize>(text: &mut Message<CAP>, name: &str) {
    let mut safe = [0; LONGEST_NAME];
    let bytes = name.as_bytes();
    let mut length = if bytes.len() < LONGEST_NAME { bytes.len() } else { LONGEST_NAME };
    while length < bytes.len() && bytes[length] & 0xC0 == 0x80 {
        length -= 1;
    }
    let mut i = 0;
    while i < length {
        safe[i] = match bytes[i] {
            0..=0x1F | b'"' | b'\\' => b'_',
            byte => byte,
        };
        i += 1;
    }
    if let Ok(safe) = core::str::from_utf8(safe.split_at(length).0) {
        text.text(safe);
    }
}

const fn append_program<const CAP: usize>(text: &mut Message<CAP>, compiled: Option<&Compiled>) {
    let Some(compiled) = compiled else {
        text.text("null");
        return;
    };
    text.text("{\"batch\":").number(compiled.batch);
    text.text(",\"workspace\":").number(compiled.budget.workspace);
    text.text(",\"lower_bound\":").number(compiled.budget.lower_bound);
    let mut i = 0;
    while i < Line::COUNT {
        text.text(",\"").text(Line::ALL[i].name()).text("\":").number(compiled.budget.get(Line::ALL[i]));
        i += 1;
    }
    text.text("}");
}

/// The JSON texts of all records in the bytes of a section. What is no record is skipped.
pub fn read_records(section: &[u8]) -> impl Iterator<Item = &str> {
    let mut rest = section;
    core::iter::from_fn(move || {
        while let Some(at) = rest.windows(MAGIC.len()).position(|window| window == MAGIC) {
            let record = &rest[at..];
            if let Some(text) = read_record(record) {
                rest = &record[HEADER + text.len()..];
                return Some(text);
            }
            rest = &record[1..];
        }
        None
    })
}

/// The text of the record that `bytes` begin with.
fn read_record(bytes: &[u8]) -> Option<&str> {
    let length = bytes.get(MAGIC.len()..HEADER)?.try_into().ok()?;
    let end = HEADER.checked_add(usize::try_from(u32::from_le_bytes(length)).ok()?)?;
    let text = core::str::from_utf8(bytes.get(HEADER..end)?).ok()?;
    (text.starts_with('{') && text.ends_with('}')).then_some(text)
}
