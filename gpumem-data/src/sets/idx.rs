//! IDX files: MNIST and its relatives.

use super::array::{Array, Layout, MOST_UNPACKED, Number};
use super::arrays::Arrays;
use super::bytes::{Bytes, fill, open, read_exactly};
use crate::error::{Error, Result};
use flate2::read::GzDecoder;
use std::io::{BufReader, Read};
use std::path::Path;

impl Array {
    /// Opens an IDX file, packed (`.gz`) or not. Bytes are those of images: in a network of `f32` they are divided by 255.
    ///
    /// # Errors
    /// A file that cannot be read, is no IDX file, has another length than its header says, or is larger than
    /// [`MOST_UNPACKED`] when it is unpacked.
    pub fn idx(path: impl AsRef<Path>) -> Result<Array> {
        let path = path.as_ref();
        read(path).map_err(|error| error.with_file(path))
    }
}

impl Arrays {
    /// Opens MNIST, Fashion-MNIST or KMNIST: 60,000 images for training or 10,000 for testing, of `[1, 28, 28]`, in 10 classes.
    ///
    /// `folder` has `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and
    /// `t10k-labels-idx1-ubyte`, packed (`.gz`) or not.
    ///
    /// # Errors
    /// As for [`Array::idx`].
    pub fn mnist(folder: impl AsRef<Path>, is_training: bool) -> Result<Arrays> {
        let set = if is_training { "train" } else { "t10k" };
        let array = |name: &str| {
            let path = folder.as_ref().join(format!("{set}-{name}-ubyte"));
            let packed = path.with_extension("gz");
            Array::idx(if packed.exists() && !path.exists() { packed } else { path })
        };
        Ok(Arrays::new([array("images-idx3")?], [array("labels-idx1")?])?.classes(10))
    }
}

fn read(path: &Path) -> Result<Array> {
    let mut start = [0; 2];
    let file = open(path)?;
    let read = (&file).read(&mut start).map_err(|error| Error::io(path, &error))?;
    if read < 2 || start != [0x1f, 0x8b] {
        let bytes = Bytes::map(path)?;
        let mut rest = &bytes[..];
        let layout = header(&mut rest)?;
        let first = bytes.len() - rest.len();
        return Array::new(path, bytes, first, layout);
    }
    let mut unpacked = GzDecoder::new(BufReader::new(open(path)?));
    let layout = header(&mut unpacked)?;
    let advice = "unpack it with `gunzip`: files that are not packed are mapped, not held";
    let bytes = read_exactly(unpacked, layout.length()?, MOST_UNPACKED, advice)?;
    Array::new(path, Bytes::Held(bytes), 0, layout)
}

/// Reads the magic number and the dimensions, all big-endian.
fn header(from: &mut impl Read) -> Result<Layout> {
    let [zero, also_zero, code, rank] = word(from)?;
    let number = match code {
        0x08 => Number::U8,
        0x09 => Number::I8,
        0x0b => Number::I16,
        0x0c => Number::I32,
        0x0d => Number::F32,
        0x0e => Number::F64,
        _ => return Err(no_idx()),
    };
    if [zero, also_zero] != [0, 0] || rank == 0 {
        return Err(no_idx());
    }
    let dims = (0..rank).map(|_| Ok(u32::from_be_bytes(word(from)?) as usize)).collect::<Result<Vec<_>>>()?;
    Ok(Layout { dims, number, is_big_endian: true, is_image: number == Number::U8 })
}

fn word(from: &mut impl Read) -> Result<[u8; 4]> {
    let mut word = [0; 4];
    fill(from, &mut word, no_idx)?;
    Ok(word)
}

fn no_idx() -> Error {
    Error::format("is no IDX file; give one such as `train-images-idx3-ubyte`, or download it again")
}
