//! Reads a file of protocol buffers without its long tensors, so that a file of gigabytes takes memory for its graph alone.
//!
//! A tensor whose bytes are left out says where they are, as tensors with external data do. Its location is [`HERE`].

use std::io::{self, BufReader, Read, Seek, SeekFrom};

/// The location of a tensor whose bytes are in the file itself. No file can have this name.
pub(super) const HERE: &str = "\0";
/// The longest tensor that is kept, in bytes: masks and tables of positions are shorter.
const LONGEST_TENSOR: u64 = 4 << 20;
/// The most bytes of all tensors that are kept.
const MOST_DATA: u64 = 128 << 20;
/// The most bytes of everything else. An operation takes some hundred bytes.
const MOST_GRAPH: u64 = 512 << 20;
/// The deepest nesting of messages.
const DEEPEST: u32 = 60;

/// The messages that lead to tensors.
#[derive(Clone, Copy)]
enum Kind {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    Function,
}

impl Kind {
    /// Returns the kind of message that a field holds. `None` if no tensor can be in it.
    fn field(self, number: u64) -> Option<Kind> {
        Some(match (self, number) {
            (Kind::Model, 7) => Kind::Graph,
            (Kind::Model, 25) => Kind::Function,
            (Kind::Graph, 1) | (Kind::Function, 7) => Kind::Node,
            (Kind::Graph, 5) | (Kind::Attribute, 5 | 10) => Kind::Tensor,
            (Kind::Node, 5) => Kind::Attribute,
            (Kind::Attribute, 6 | 11) => Kind::Graph,
            _ => return None,
        })
    }
}

/// A file and what may still be read of it.
struct Source<R> {
    reader: R,
    position: u64,
    data: u64,
    graph: u64,
}

/// Reads a file of `length` bytes. The result is a message of the same form without long tensors.
pub(super) fn read<R: Read + Seek>(file: R, length: u64) -> io::Result<Vec<u8>> {
    let mut source =
        Source { reader: BufReader::with_capacity(1 << 16, file), position: 0, data: MOST_DATA, graph: MOST_GRAPH };
    let mut whole = Vec::new();
    source.message(Kind::Model, length, &mut whole, DEEPEST)?;
    Ok(whole)
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn put(mut number: u64, to: &mut Vec<u8>) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// Writes a field that holds bytes.
fn put_bytes(number: u64, bytes: &[u8], to: &mut Vec<u8>) {
    put(number << 3 | 2, to);
    put(bytes.len() as u64, to);
    to.extend_from_slice(bytes);
}

impl<R: Read + Seek> Source<R> {
    /// Copies a message that ends at `end`.
    fn message(&mut self, kind: Kind, end: u64, to: &mut Vec<u8>, depth: u32) -> io::Result<()> {
        let Some(depth) = depth.checked_sub(1) else { return Err(broken("messages are nested too deeply")) };
        while self.position < end {
            let key = self.number(end)?;
            match key & 7 {
                0 => {
                    put(key, to);
                    put(self.number(end)?, to);
                }
                1 | 5 => {
                    put(key, to);
                    self.copy(if key & 7 == 1 { 8 } else { 4 }, end, to)?;
                }
                2 => {
                    let length = self.number(end)?;
                    if length > end - self.position {
                        return Err(broken("a field is longer than its message"));
                    }
                    self.field(kind, key >> 3, length, to, depth)?;
                }
                _ => return Err(broken("a field has an unknown type")),
            }
        }
        Ok(())
    }

    /// Copies a field of `length` bytes, or says where they are.
    fn field(&mut self, kind: Kind, number: u64, length: u64, to: &mut Vec<u8>, depth: u32) -> io::Result<()> {
        let end = self.position + length;
        if let Some(inner) = kind.field(number) {
            let mut message = Vec::new();
            self.message(inner, end, &mut message, depth)?;
            put_bytes(number, &message, to);
            return Ok(());
        }
        // `raw_data`, and lists of floats and doubles, which are the same bytes.
        let is_data = matches!((kind, number), (Kind::Tensor, 4 | 9 | 10));
        if is_data && length > LONGEST_TENSOR.min(self.data) {
            for (key, value) in
                [("location", HERE), ("offset", &self.position.to_string()), ("length", &length.to_string())]
            {
                let mut entry = Vec::new();
                put_bytes(1, key.as_bytes(), &mut entry);
                put_bytes(2, value.as_bytes(), &mut entry);
                put_bytes(13, &entry, to);
            }
            put(14 << 3, to);
            put(1, to);
            return self.skip(length);
        }
        if is_data {
            self.data -= length;
        }
        put(number << 3 | 2, to);
        put(length, to);
        self.copy(length, end, to)
    }

    fn copy(&mut self, length: u64, end: u64, to: &mut Vec<u8>) -> io::Result<()> {
        if length > end - self.position {
            return Err(broken("a field is longer than its message"));
        }
        let Some(left) = self.graph.checked_sub(length) else { return Err(broken("its graph is longer than 512 MiB")) };
        self.graph = left;
        let copied = (&mut self.reader).take(length).read_to_end(to)?;
        self.position += copied as u64;
        if copied as u64 == length { Ok(()) } else { Err(broken("it ends in the middle of a field")) }
    }

    fn skip(&mut self, length: u64) -> io::Result<()> {
        let distance = i64::try_from(length).map_err(|_| broken("a field is too long"))?;
        self.reader.seek_relative(distance).or_else(|_| self.reader.seek(SeekFrom::Current(distance)).map(drop))?;
        self.position += length;
        Ok(())
    }

    /// Reads a number of variable length.
    fn number(&mut self, end: u64) -> io::Result<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            if self.position >= end {
                return Err(broken("it ends in the middle of a number"));
            }
            let mut byte = [0];
            self.reader.read_exact(&mut byte)?;
            self.position += 1;
            number |= u64::from(byte[0] & 0x7f) << shift;
            if byte[0] < 0x80 {
                return Ok(number);
            }
        }
        Err(broken("a number is too long"))
    }
}
