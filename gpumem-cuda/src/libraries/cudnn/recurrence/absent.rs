//! Sizes that cuDNN needs for recurrent layers, found without a card.

use super::descriptors::Description;
use super::pieces;
use crate::calls::Recurrence;
use crate::calls::product::Element;
use crate::libraries::cudnn::failure;
use crate::libraries::preflight;
use cudarc::cudnn::sys;
use gpumem_core::error::Error;
use std::sync::OnceLock;

/// Words of the zeroed memory that is passed in place of what a handle points to.
const WORDS: usize = 1 << 17;

/// The compute capability is among this many first words.
const FIRST: usize = 256;

/// Calls the library with the handle of an imaginary card.
fn asked<T>(it: &Recurrence, ask: impl FnOnce(sys::cudnnHandle_t) -> Result<T, Error>) -> Result<T, Error> {
    if preflight::cudnn().is_none() {
        return Err(Error::failed("CUDA", "cuDNN is not installed: GPUMEM_CUDA names the folder that it is in"));
    }
    let mut nothing = vec![0u64; WORDS];
    if it.element == Element::Bf16 {
        tell_capability(&mut nothing, capability_at(it)?);
    }
    ask(nothing.as_mut_ptr().cast())
}

/// Makes the memory a handle of compute capability 9.0, which is in a word of 32 bits.
fn tell_capability(handle: &mut [u64], word: usize) {
    handle[word / 2] = 900 << (32 * (word % 2));
}

/// Returns the index of the word that has the compute capability. It is found by trial: without it the library reports no sizes for layers in Bf16.
fn capability_at(it: &Recurrence) -> Result<usize, Error> {
    static WORD: OnceLock<Option<usize>> = OnceLock::new();
    let is_it = |word: usize| {
        let mut handle = vec![0u64; WORDS];
        tell_capability(&mut handle, word);
        let handle: sys::cudnnHandle_t = handle.as_mut_ptr().cast();
        Description::new(handle, it).is_ok_and(|description| description.temporary(handle).0 != [0; 2])
    };
    let word = *WORD.get_or_init(|| (0..FIRST).find(|&word| is_it(word)));
    word.ok_or_else(|| Error::failed("CUDA", "cuDNN has the compute capability nowhere in its handle that is known"))
}

/// Returns the bytes of workspace, reserve and weights that the library reports without a card.
///
/// The library fills in both sizes before it notices that there is no card. Before that it reads only the compute capability from the handle;
/// without it, the library has no Bf16.
///
/// # Errors
/// [`Error::Device`] for a layer that the library does not support.
#[doc(hidden)]
pub fn absent_sizes(it: &Recurrence) -> Result<[u64; 3], Error> {
    asked(it, |handle| {
        let failure = || failure(format!("describing {it}"));
        let description = Description::new(handle, it).map_err(failure())?;
        let ([workspace, reserve], _) = description.temporary(handle);
        let weights = description.weights(handle).map_err(failure())?;
        Ok([workspace, reserve, weights].map(|bytes| bytes as u64))
    })
}

/// Returns the pieces of the library's single weight buffer, found without a card. Each piece has its direction, the index of its weight in
/// [`Each`](crate::calls::recurrence::Each), its offset in that weight, its offset in the buffer, and its length, all in bytes.
///
/// # Errors
/// [`Error::Device`] for a layer that the library does not support, or if a piece is outside the buffer.
#[doc(hidden)]
pub fn absent_pieces(it: &Recurrence) -> Result<Vec<[u64; 5]>, Error> {
    asked(it, |handle| {
        let failure = || failure(format!("describing {it}"));
        let description = Description::new(handle, it).map_err(failure())?;
        let bytes = description.weights(handle).map_err(failure())?;
        // Any address of the card will do: nothing is read there.
        let pieces = pieces::of(&description, handle, it, bytes, 1 << 40).map_err(failure())?;
        let pieces = pieces.ok_or_else(|| Error::failed("CUDA", format!("{it} has weights outside of all")))?;
        Ok(pieces.iter().map(|it| [it.of[0] as u64, it.of[1] as u64, it.at, it.packed, it.bytes as u64]).collect())
    })
}
