//! The types of elements, and the elements of one sample.

use std::fmt;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementType {
    /// Bytes, which the network normalises on the device.
    U8,
    /// Numbers.
    F32,
    /// Labels and tokens.
    U32,
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ElementType::U8 => "u8",
            ElementType::F32 => "f32",
            ElementType::U32 => "u32",
        })
    }
}

/// The elements of one sample in one tensor of a batch, in row-major order.
#[derive(Debug)]
pub enum Elements<'a> {
    /// Bytes.
    U8(&'a mut [u8]),
    /// Numbers.
    F32(&'a mut [f32]),
    /// Labels and tokens.
    U32(&'a mut [u32]),
}

impl Elements<'_> {
    /// Returns their type.
    pub fn element_type(&self) -> ElementType {
        match self {
            Elements::U8(_) => ElementType::U8,
            Elements::F32(_) => ElementType::F32,
            Elements::U32(_) => ElementType::U32,
        }
    }
}
