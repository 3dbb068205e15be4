//! Tokens of a language model, in a mapped file.

use super::array::label;
use super::bytes::Bytes;
use crate::dataset::Dataset;
use crate::draw::Draw;
use crate::element::Elements;
use crate::error::{Error, ErrorKind, Result};
use crate::sample::Sample;
use crate::slot::Slot;
use std::path::{Path, PathBuf};

/// Windows of a file of tokens, with the next tokens as targets: inputs `x[i..i + T]` and targets `x[i + 1..i + T + 1]`.
///
/// The file has tokens of two or four bytes, little-endian, without a header, like nanoGPT's `train.bin`. It is mapped: only the parts in
/// use take memory, and it must not be changed while it is open.
///
/// ```no_run
/// use gpumem_data::sets::Tokens;
///
/// let training = Tokens::u16("train.bin", 1024)?.vocabulary(50257).random(100_000);
/// let validation = Tokens::u16("val.bin", 1024)?.vocabulary(50257);
/// # Ok::<(), gpumem_data::Error>(())
/// ```
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    bytes: Bytes,
    /// The bytes of a token.
    width: usize,
    /// The tokens of a window.
    context: usize,
    vocabulary: u64,
    /// The number of random windows in an epoch. `None` for all windows one after the other.
    random: Option<usize>,
}

impl Tokens {
    /// Opens a file of tokens of two bytes, for windows of `context` tokens.
    ///
    /// # Errors
    /// A file that cannot be read, that ends within a token, or that is shorter than one window and its target.
    pub fn u16(path: impl AsRef<Path>, context: usize) -> Result<Tokens> {
        Tokens::open(path.as_ref(), 2, context)
    }

    /// Opens a file of tokens of four bytes, for windows of `context` tokens.
    ///
    /// # Errors
    /// As for [`Tokens::u16`].
    pub fn u32(path: impl AsRef<Path>, context: usize) -> Result<Tokens> {
        Tokens::open(path.as_ref(), 4, context)
    }

    fn open(path: &Path, width: usize, context: usize) -> Result<Tokens> {
        let bytes = Bytes::map(path)?;
        if bytes.len() % width != 0 {
            return Err(Error::format(format!(
                "has {} bytes, which is no multiple of the {width} of a token; write it again, or open it with tokens of another width",
                bytes.len()
            ))
            .with_file(path));
        }
        let tokens = bytes.len() / width;
        if context == 0 || tokens <= context {
            let wanted = format!(
                "{tokens} tokens hold no window of {context} and the token after it; take more text, or a shorter window of at least 1"
            );
            return Err(Error::new(ErrorKind::Empty { wanted }).with_file(path));
        }
        Ok(Tokens { path: path.into(), bytes, width, context, vocabulary: u64::MAX, random: None })
    }

    /// Sets the size of the vocabulary: a token that is not below it is an error.
    #[must_use]
    pub fn vocabulary(self, vocabulary: u64) -> Tokens {
        Tokens { vocabulary, ..self }
    }

    /// Takes `windows` random windows in each epoch, rather than all windows one after the other.
    #[must_use]
    pub fn random(self, windows: usize) -> Tokens {
        Tokens { random: Some(windows), ..self }
    }

    /// Returns the number of tokens in the file.
    pub fn tokens(&self) -> usize {
        self.bytes.len() / self.width
    }

    /// Writes the tokens from `first` on.
    fn put(&self, first: usize, slot: &mut Slot<'_>) -> Result<()> {
        slot.check_length(self.context, &[self.context])?;
        let Elements::U32(out) = slot.elements() else { return Err(slot.element_error("u32")) };
        let bytes = &self.bytes[first * self.width..(first + out.len()) * self.width];
        let mut put =
            |index: usize, token: u32| label(i64::from(token), self.vocabulary).map(|token| out[index] = token);
        if self.width == 2 {
            let tokens = bytes.as_chunks::<2>().0.iter().map(|&word| u32::from(u16::from_le_bytes(word)));
            tokens.enumerate().try_for_each(|(index, token)| put(index, token))
        } else {
            let tokens = bytes.as_chunks::<4>().0.iter().map(|&word| u32::from_le_bytes(word));
            tokens.enumerate().try_for_each(|(index, token)| put(index, token))
        }
    }
}

impl Dataset for Tokens {
    /// Returns the number of windows: random ones, or those that fit one after the other with a token after the last.
    fn len(&self) -> usize {
        self.random.unwrap_or((self.tokens() - 1) / self.context)
    }

    fn get(&self, index: usize, draw: &mut Draw, sample: &mut Sample<'_>) -> Result<()> {
        let first = match self.random {
            Some(_) => draw.below(self.tokens() - self.context),
            None => index * self.context,
        };
        let put = self.put(first, sample.input(0)?).and_then(|()| self.put(first + 1, sample.target(0)?));
        put.map_err(|error| error.with_file(&self.path))
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }
}
