//! The records that every build leaves in the object section `.gpumem`, one for each network. A record says what the network needs, and has what
//! a tool plans it from at any batch and precision.
//!
//! | bytes | what |
//! | ---: | --- |
//! | 8 | `GPUMEM4\0`: the digit is the version of this layout |
//! | 4 | length of the text |
//! | | the text: JSON, with the budgets and settings of the network |
//! | 8 | digest of the text |
//! | 4 | length of the blueprint; 0 for one instance of a network that is generic over its batch |
//! | | the blueprint, encoded by `lower::Blueprint` |
//! | 8 | digest of the blueprint |
//!
//! Numbers are little-endian. Linkers concatenate records in any order and may pad between them, so that a reader looks for the first bytes.

use crate::cards::Card;
use crate::memory::Compiled;
use crate::memory::budget::Line;
use crate::message::Message;
use crate::train::{Infer, Train};

/// The first bytes of a record.
pub const MAGIC: [u8; 8] = *b"GPUMEM4\0";

/// The version in [`MAGIC`].
pub const VERSION: u8 = 4;

/// Bytes of magic and length.
const HEADER: usize = 12;

/// Bytes of a record besides text and blueprint.
const OVERHEAD: usize = HEADER + 8 + 4 + 8;

/// The most bytes of a name.
const LONGEST_NAME: usize = 128;

/// The most bytes of a path.
const LONGEST_PATH: usize = 1024;

/// The most cards that are named: a list of all known ones fits.
const MOST_CARDS: usize = 256;

/// The text of a record. The longest one fits: a name, two paths, four lists of cards, and some forty numbers of twenty digits.
pub type Text = Message<{ 3072 + 2 * LONGEST_PATH + 4 * MOST_CARDS * 32 }>;

/// The facts about a network that the text of a record states.
#[derive(Clone, Copy)]
pub struct Declared<'a> {
    /// Name of the struct.
    pub name: &'a str,
    /// The file that declares it, and the line that a refusal points at; empty and 0 if they are not known.
    pub place: (&'a str, u32),
    /// True if it is generic over its batch: its batches, and with them its budgets, are not known then.
    pub is_generic: bool,
    /// The place of the network, if this is the record of one instance. `place` is then where the instance was asked for. `None` for other
    /// records.
    pub of: Option<(&'a str, u32)>,
    /// The `fits!` that asked for this instance; `None` unless it names cards or several networks.
    pub fits: Option<Fits<'a>>,
    /// The cards whose Cargo feature is on.
    pub selected: &'a [Card],
    /// `const TRAIN`, or the constant of the largest named step; `None` if the network is not trained.
    pub train: Option<&'a Train>,
    /// `const INFER`; `None` if the network has none.
    pub infer: Option<&'a Infer>,
    /// The training step; `None` if the network is not trained, or its batch is not known.
    pub training: Option<&'a Compiled<'a>>,
    /// The forward pass; `None` if the network has no `INFER`, or its batch is not known.
    pub inference: Option<&'a Compiled<'a>>,
}

/// A `fits!` with cards or several networks. Each of its networks has a record of its own, which has the number of the network in it.
#[derive(Clone, Copy, Debug)]
pub struct Fits<'a> {
    /// Line and column of the first network. The file is that of the record.
    pub place: [u32; 2],
    /// The number of this network, from 0.
    pub index: u32,
    /// The number of networks.
    pub count: u32,
    /// The cards that are named. Empty if they are those of Cargo features.
    pub cards: &'a [Card],
}

/// Returns the text of a record: the network's name and place, its settings, and its budgets in bytes.
///
/// ```json
/// {"name":"Vgg16","file":"examples/vgg16.rs","line":15,"generic":false,
///  "selected":[],"settings":{"train":{"precision":"F32","headroom":0,"conv_workspace":268435456,"cards":["rtx3090"]},"infer":null},
///  "train":{"batch":64,"weights":553430176,...},"infer":{"batch":64,...}}
/// ```
///
/// A training step whose constant has a name of its own has it after `"batch"`: `"step":"CRITIC"`. Of several steps it is the largest.
///
/// The record of an instance that `fits!` asked for names the network after `"generic"`, since names need not be unique:
/// `"of":{"file":"src/net.rs","line":15}`. Records of versions that knew only the name lack it. A `fits!` that names cards or several networks
/// adds after that `"fits":{"line":40,"column":7,"index":0,"count":2,"cards":["t4"]}`.
pub const fn text(declared: &Declared<'_>) -> Text {
    let mut text = Text::new();
    text.text("{\"name\":\"");
    append_name::<LONGEST_NAME>(&mut text, declared.name);
    text.text("\",\"file\":\"");
    append_name::<LONGEST_PATH>(&mut text, declared.place.0);
    text.text("\",\"line\":").number(declared.place.1 as u64);
    text.text(",\"generic\":").text(if declared.is_generic { "true" } else { "false" });
    if let Some((file, line)) = declared.of {
        text.text(",\"of\":{\"file\":\"");
        append_name::<LONGEST_PATH>(&mut text, file);
        text.text("\",\"line\":").number(line as u64).text("}");
    }
    if let Some(Fits { place: [line, column], index, count, cards }) = declared.fits {
        text.text(",\"fits\":{\"line\":").number(line as u64).text(",\"column\":").number(column as u64);
        text.text(",\"index\":").number(index as u64).text(",\"count\":").number(count as u64).text(",\"cards\":");
        append_cards(&mut text, cards);
        text.text("}");
    }
    text.text(",\"selected\":");
    append_cards(&mut text, declared.selected);
    text.text(",\"settings\":{\"train\":");
    match declared.train {
        Some(train) => {
            let Train { precision, headroom, conv_workspace, cards, .. } = train;
            append_settings(&mut text, precision.name(), *headroom, Some(*conv_workspace), cards);
        }
        None => {
            text.text("null");
        }
    }
    text.text(",\"infer\":");
    match declared.infer {
        Some(Infer { precision, headroom, cards, .. }) => {
            append_settings(&mut text, precision.name(), *headroom, None, cards);
        }
        None => {
            text.text("null");
        }
    }
    text.text("},\"train\":");
    append_program(&mut text, declared.training);
    text.text(",\"infer\":");
    append_program(&mut text, declared.inference);
    text.text("}");
    text
}

/// Returns the bytes of a record.
pub const fn bytes(text: &Text, blueprint: &[u8]) -> usize {
    OVERHEAD + text.as_str().len() + blueprint.len()
}

/// Returns a record. `N` must be [`bytes`], and `blueprint_digest` the [`digest`] of the blueprint, which the macro knows.
pub const fn record<const N: usize>(text: &Text, blueprint: &[u8], blueprint_digest: u64) -> [u8; N] {
    let text = text.as_str().as_bytes();
    let mut record = [0; N];
    let rest = put(&mut record, &MAGIC);
    let rest = put(rest, &(text.len() as u32).to_le_bytes());
    let rest = put(rest, text);
    let rest = put(rest, &digest(text).to_le_bytes());
    let rest = put(rest, &(blueprint.len() as u32).to_le_bytes());
    let rest = put(rest, blueprint);
    put(rest, &blueprint_digest.to_le_bytes());
    record
}

/// Writes `bytes` to the beginning of `record`, and returns the rest of it.
const fn put<'r>(record: &'r mut [u8], bytes: &[u8]) -> &'r mut [u8] {
    let (here, rest) = record.split_at_mut(bytes.len());
    here.copy_from_slice(bytes);
    rest
}

/// Returns the 64-bit FNV-1a digest of `bytes`: it notices damage, not malice.
pub const fn digest(bytes: &[u8]) -> u64 {
    let mut digest = 0xcbf2_9ce4_8422_2325u64;
    let mut i = 0;
    while i < bytes.len() {
        digest = (digest ^ bytes[i] as u64).wrapping_mul(0x0100_0000_01b3);
        i += 1;
    }
    digest
}

/// Appends `name` as the inside of a JSON string, `MOST` bytes of it at most. A Rust name needs no escape; a character that would need one
/// becomes `_`.
const fn append_name<const MOST: usize>(text: &mut Text, name: &str) {
    let mut safe = [0; MOST];
    let bytes = name.as_bytes();
    let mut length = if bytes.len() < MOST { bytes.len() } else { MOST };
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

const fn append_settings(
    text: &mut Text,
    precision: &str,
    headroom: u64,
    convolution_workspace: Option<u64>,
    cards: &[Card],
) {
    text.text("{\"precision\":\"").text(precision).text("\",\"headroom\":").number(headroom);
    if let Some(bytes) = convolution_workspace {
        text.text(",\"conv_workspace\":").number(bytes);
    }
    text.text(",\"cards\":");
    append_cards(text, cards);
    text.text("}");
}

const fn append_cards(text: &mut Text, cards: &[Card]) {
    text.text("[");
    let mut i = 0;
    while i < cards.len() && i < MOST_CARDS {
        text.text(if i > 0 { ",\"" } else { "\"" }).text(cards[i].slug).text("\"");
        i += 1;
    }
    text.text("]");
}

const fn append_program(text: &mut Text, compiled: Option<&Compiled<'_>>) {
    let Some(compiled) = compiled else {
        text.text("null");
        return;
    };
    text.text("{\"batch\":").number(compiled.batch);
    if !compiled.tables.step.is_empty() {
        text.text(",\"step\":\"");
        append_name::<LONGEST_NAME>(text, compiled.tables.step);
        text.text("\"");
    }
    text.text(",\"workspace\":").number(compiled.budget.workspace);
    text.text(",\"lower_bound\":").number(compiled.budget.lower_bound);
    let mut i = 0;
    while i < Line::COUNT {
        let (line, bytes) = (Line::ALL[i], compiled.budget.get(Line::ALL[i]));
        if !matches!(line, Line::Communication) || bytes > 0 {
            text.text(",\"").text(line.name()).text("\":").number(bytes);
        }
        i += 1;
    }
    text.text("}");
}

/// A record that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// See [`text`].
    pub text: &'a str,
    /// The encoded blueprint; empty for one instance of a network that is generic over its batch.
    pub blueprint: &'a [u8],
}

/// The reason why something in a section is no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unreadable {
    /// It is written in a layout of this version.
    Version(u8),
    /// It is cut off, its first bytes are others, or a digest does not match.
    Damaged,
}

impl core::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Unreadable::Version(version) => {
                let who = if *version > VERSION { "a newer" } else { "an older" };
                write!(f, "a record of layout {version}, written by {who} gpumem; this one reads layout {VERSION}")
            }
            Unreadable::Damaged => {
                f.write_str("a damaged record: its first bytes, a length or a digest does not match")
            }
        }
    }
}

impl core::error::Error for Unreadable {}

/// Returns all records in the bytes of a section, and an error for whatever is no record. Zeros between records are padding.
pub fn records(section: &[u8]) -> impl Iterator<Item = Result<Record<'_>, Unreadable>> {
    let mut rest = section;
    core::iter::from_fn(move || {
        let begin = rest.iter().position(|&byte| byte != 0)?;
        let here = &rest[begin..];
        // A record whose first bytes are damaged is recognised by its digests, so that the next one is counted separately.
        let read = read(here);
        let found = match (version(here), read) {
            (Some(VERSION), Some((record, _))) => Ok(record),
            (Some(VERSION) | None, _) => Err(Unreadable::Damaged),
            (Some(other), _) => Err(Unreadable::Version(other)),
        };
        let length = match read {
            Some((_, bytes)) if !matches!(found, Err(Unreadable::Version(_))) => bytes,
            _ => {
                1 + here[1..]
                    .windows(MAGIC.len())
                    .position(|window| version(window).is_some())
                    .unwrap_or(here.len() - 1)
            }
        };
        rest = &here[length..];
        Some(found)
    })
}

/// Returns the layout version of the record that `bytes` begin with; `None` if they begin with none.
fn version(bytes: &[u8]) -> Option<u8> {
    const DIGIT: usize = MAGIC.len() - 2;
    let magic = bytes.get(..MAGIC.len())?;
    let is_one =
        magic[..DIGIT] == MAGIC[..DIGIT] && magic[DIGIT].is_ascii_digit() && magic[DIGIT + 1] == MAGIC[DIGIT + 1];
    is_one.then(|| magic[DIGIT] - b'0')
}

/// Returns the JSON texts of all intact records in the bytes of a section.
pub fn read_records(section: &[u8]) -> impl Iterator<Item = &str> {
    records(section).filter_map(|record| record.ok()).map(|record| record.text)
}

/// Returns the record that `bytes` begin with, and its length; `None` if it is damaged.
fn read(bytes: &[u8]) -> Option<(Record<'_>, usize)> {
    let (text, rest) = part(bytes.get(MAGIC.len()..)?)?;
    let (blueprint, rest) = part(rest)?;
    let text = core::str::from_utf8(text).ok()?;
    Some((Record { text, blueprint }, bytes.len() - rest.len()))
}

/// Returns bytes that come between their length and their digest, and the rest. `None` if the digest does not match.
fn part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (part, rest) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    let (stored, rest) = rest.split_first_chunk::<8>()?;
    (u64::from_le_bytes(*stored) == digest(part)).then_some((part, rest))
}
