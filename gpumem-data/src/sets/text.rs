//! Tokenizes a text to a file of tokens.

use super::bytes::open;
use crate::error::{Error, ErrorKind, Place, Result};
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use tokenizers::Tokenizer;

/// The bytes of text that are encoded at once, extended to the end of a line.
const CHUNK: usize = 1 << 20;

/// The most bytes of a line.
const MOST_LINE: usize = 16 << 20;

/// The most bytes of a `tokenizer.json`.
const MOST_TOKENIZER: u64 = 256 << 20;

/// Writes the tokens of a text to a file for [`Tokens::u16`](super::Tokens::u16). Returns their number.
///
/// `tokenizer` is a `tokenizer.json` of Hugging Face. Special tokens are not added. The text is encoded in pieces of about 1 MiB that end
/// with a line. If a tokenizer joins characters across lines, the tokens at these ends may differ from those of the whole text. `out` is
/// written under another name, and renamed when it is complete.
///
/// ```no_run
/// use gpumem_data::sets::{Tokens, tokenize_u16};
///
/// tokenize_u16("shakespeare.txt", "tokenizer.json", "train.bin")?;
/// let set = Tokens::u16("train.bin", 256)?;
/// # Ok::<(), gpumem_data::Error>(())
/// ```
///
/// # Errors
/// A file that cannot be read or written, an `out` that is one of the other two, a `tokenizer.json` that is damaged, text that is not UTF-8, a line of more than 16 MiB,
/// and a token of 65,536 or more.
pub fn tokenize_u16(text: impl AsRef<Path>, tokenizer: impl AsRef<Path>, out: impl AsRef<Path>) -> Result<u64> {
    tokenize(text.as_ref(), tokenizer.as_ref(), out.as_ref(), |token| {
        let token = u16::try_from(token).map_err(|_| {
            Error::format(format!("makes token {token}, which takes more than two bytes; write it with `tokenize_u32`"))
        });
        Ok(token?.to_le_bytes())
    })
}

/// Writes the tokens of a text to a file for [`Tokens::u32`](super::Tokens::u32). Otherwise as [`tokenize_u16`].
///
/// # Errors
/// As for [`tokenize_u16`], except that large tokens are allowed.
pub fn tokenize_u32(text: impl AsRef<Path>, tokenizer: impl AsRef<Path>, out: impl AsRef<Path>) -> Result<u64> {
    tokenize(text.as_ref(), tokenizer.as_ref(), out.as_ref(), |token| Ok(token.to_le_bytes()))
}

fn tokenize<const N: usize>(
    text: &Path,
    tokenizer: &Path,
    out: &Path,
    encode: impl Fn(u32) -> Result<[u8; N]>,
) -> Result<u64> {
    let is_read = |file: &Path| file.canonicalize().is_ok_and(|file| out.canonicalize().is_ok_and(|out| out == file));
    if is_read(text) || is_read(tokenizer) {
        let what = "is read and would be written over; give the tokens a file of their own";
        return Err(Error::setting(what).with_file(out));
    }
    let model = load(tokenizer).map_err(|error| error.with_file(tokenizer))?;
    let mut reader = BufReader::new(open(text)?);
    let part = part_of(out);
    let unwritable = |error: std::io::Error| {
        Error::format(format!("cannot be written ({error}); check the folder and the space that is left"))
            .with_file(out)
    };
    let mut write = || {
        let mut file = BufWriter::new(fs::File::create(&part).map_err(unwritable)?);
        let (mut chunk, mut line, mut count) = (Vec::new(), 1, 0);
        loop {
            chunk.clear();
            read_lines(&mut reader, &mut chunk, line).map_err(|error| error.with_file(text))?;
            if chunk.is_empty() {
                file.flush().map_err(unwritable)?;
                return Ok(count);
            }
            for token in ids(&model, &chunk, line).map_err(|error| error.with_file(text))? {
                let bytes = encode(token).map_err(|error| error.with_file(tokenizer))?;
                file.write_all(&bytes).map_err(unwritable)?;
                count += 1;
            }
            line += chunk.iter().filter(|&&byte| byte == b'\n').count() as u64;
        }
    };
    let written = write().and_then(|count| fs::rename(&part, out).map(|()| count).map_err(unwritable));
    if written.is_err() {
        // The file is incomplete, or does not exist.
        let _ = fs::remove_file(&part);
    }
    written
}

/// Returns the name under which a file is written until it is complete.
fn part_of(out: &Path) -> PathBuf {
    let mut name = OsString::from(out);
    name.push(".part");
    name.into()
}

fn load(path: &Path) -> Result<Tokenizer> {
    let mut bytes = Vec::new();
    let file = open(path)?;
    file.take(MOST_TOKENIZER + 1).read_to_end(&mut bytes).map_err(|error| Error::io(path, &error))?;
    if bytes.len() as u64 > MOST_TOKENIZER {
        let advice = "give the `tokenizer.json` of a model";
        return Err(Error::new(ErrorKind::TooLarge { needed: None, limit: MOST_TOKENIZER, advice }));
    }
    Tokenizer::from_bytes(bytes).map_err(|error| {
        Error::format(format!("is no `tokenizer.json` ({error}); download it from the model's page again"))
    })
}

/// Appends lines until a chunk is full. The first one is line `line` of the file.
fn read_lines(reader: &mut impl BufRead, chunk: &mut Vec<u8>, mut line: u64) -> Result<()> {
    while chunk.len() < CHUNK {
        let before = chunk.len();
        let mut limited = reader.take(MOST_LINE as u64 + 1);
        let read = limited
            .read_until(b'\n', chunk)
            .map_err(|error| Error::format(format!("cannot be read ({error}); copy it again")))?;
        if read == 0 {
            return Ok(());
        }
        if chunk.len() - before > MOST_LINE {
            let advice = "break the line into several";
            let error = Error::new(ErrorKind::TooLarge { needed: None, limit: MOST_LINE as u64, advice });
            return Err(error.with_place(Place::Line(line)));
        }
        line += 1;
    }
    Ok(())
}

fn ids(model: &Tokenizer, chunk: &[u8], line: u64) -> Result<Vec<u32>> {
    let text = std::str::from_utf8(chunk).map_err(|error| {
        let before = chunk.iter().take(error.valid_up_to()).filter(|&&byte| byte == b'\n').count() as u64;
        Error::format("is not UTF-8; save it in UTF-8").with_place(Place::Line(line + before))
    })?;
    let encoding = model.encode_fast(text, false).map_err(|error| {
        Error::format(format!("cannot be encoded ({error}); take a tokenizer that knows all characters"))
            .with_place(Place::Line(line))
    })?;
    Ok(encoding.get_ids().to_vec())
}
