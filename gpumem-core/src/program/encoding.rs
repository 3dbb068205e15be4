//! The compact encoding in which a program goes from the macro into the user's binary.
//!
//! A program of a thousand layers as Rust expressions would cost the compiler more than all the checks together. As one
//! byte string it is one token. Integers are LEB128, floats their bits, sequences their length and their elements.

use crate::shape::Shape;
use alloc::string::String;
use alloc::vec::Vec;

/// A value that can be written to and read back from bytes.
pub trait Wire: Sized {
    /// Appends the value to `out`.
    fn put(&self, out: &mut Vec<u8>);
    /// Reads a value. Returns `None` if the bytes do not encode one.
    fn take(from: &mut Reader<'_>) -> Option<Self>;
}

/// Bytes being read.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes }
    }

    /// True if everything has been read.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(first)
    }
}

impl Wire for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        let mut rest = *self;
        while rest >= 0x80 {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }

    fn take(from: &mut Reader<'_>) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = from.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte holds the last of 64 bits.
            if shift == 63 && byte > 1 {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

impl Wire for usize {
    fn put(&self, out: &mut Vec<u8>) {
        (*self as u64).put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<usize> {
        u64::take(from)?.try_into().ok()
    }
}

impl Wire for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        u64::from(*self).put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<u32> {
        u64::take(from)?.try_into().ok()
    }
}

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn take(from: &mut Reader<'_>) -> Option<bool> {
        match from.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Wire for f64 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_bits().to_le_bytes());
    }

    fn take(from: &mut Reader<'_>) -> Option<f64> {
        let (bits, rest) = from.bytes.split_first_chunk::<8>()?;
        from.bytes = rest;
        Some(f64::from_bits(u64::from_le_bytes(*bits)))
    }
}

impl<T: Wire, const N: usize> Wire for [T; N] {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|value| value.put(out));
    }

    fn take(from: &mut Reader<'_>) -> Option<[T; N]> {
        let values: Option<Vec<T>> = (0..N).map(|_| T::take(from)).collect();
        values?.try_into().ok()
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn take(from: &mut Reader<'_>) -> Option<Vec<T>> {
        let length = u64::take(from)?;
        // Every value takes at least a byte, so a longer length is damage: refuse before reserving memory for it.
        if length > from.bytes.len() as u64 {
            return None;
        }
        (0..length).map(|_| T::take(from)).collect()
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(from: &mut Reader<'_>) -> Option<Option<T>> {
        if bool::take(from)? { T::take(from).map(Some) } else { Some(None) }
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<(A, B)> {
        Some((A::take(from)?, B::take(from)?))
    }
}

impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn take(from: &mut Reader<'_>) -> Option<String> {
        let length = usize::try_from(u64::take(from)?).ok()?;
        let (text, rest) = from.bytes.split_at_checked(length)?;
        from.bytes = rest;
        String::from_utf8(text.to_vec()).ok()
    }
}

impl Wire for Shape {
    fn put(&self, out: &mut Vec<u8>) {
        self.dims().to_vec().put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Shape> {
        let dims = Vec::<u64>::take(from)?;
        (dims.len() <= Shape::MAX_RANK).then(|| Shape::new(&dims))
    }
}

/// Defines a struct whose fields are all written and read in order.
macro_rules! record {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name { $($(#[$field_meta])* pub $field: $type,)* }

        $crate::program::encoding::wire_struct!($name { $($field),* });
    };
    // A struct with any number of axes, by default two.
    (
        $(#[$meta:meta])*
        pub struct $name:ident<const $axes:ident: usize = 2> { $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name<const $axes: usize = 2> { $($(#[$field_meta])* pub $field: $type,)* }

        $crate::program::encoding::wire_struct!(<const $axes> $name { $($field),* });
    };
}
pub(crate) use record;

/// Writes and reads the fields of a struct in order.
macro_rules! wire_struct {
    ($(<const $axes:ident>)? $name:ident { $($field:ident),* $(,)? }) => {
        impl$(<const $axes: usize>)? $crate::program::encoding::Wire for $name$(<$axes>)? {
            fn put(&self, out: &mut ::alloc::vec::Vec<u8>) {
                let _ = &out;
                $($crate::program::encoding::Wire::put(&self.$field, out);)*
            }

            fn take(from: &mut $crate::program::encoding::Reader<'_>) -> Option<Self> {
                let _ = &from;
                Some($name { $($field: $crate::program::encoding::Wire::take(from)?,)* })
            }
        }
    };
}
pub(crate) use wire_struct;

/// Gives an enum without fields a number for each variant on the wire.
macro_rules! wire_enum {
    ($name:ident { $($variant:ident),* $(,)? }) => {
        impl $crate::program::encoding::Wire for $name {
            fn put(&self, out: &mut ::alloc::vec::Vec<u8>) {
                // A variant that is missing from the list could not be read back.
                match self {
                    $($name::$variant => out.push(*self as u8),)*
                }
            }

            fn take(from: &mut $crate::program::encoding::Reader<'_>) -> Option<Self> {
                let number = u64::take(from)?;
                [$($name::$variant),*].into_iter().find(|value| *value as u64 == number)
            }
        }
    };
}
pub(crate) use wire_enum;

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<T: Wire + PartialEq + core::fmt::Debug>(value: T) {
        let mut bytes = Vec::new();
        value.put(&mut bytes);
        let mut reader = Reader::new(&bytes);
        assert_eq!(T::take(&mut reader), Some(value));
        assert!(reader.is_empty());
        for end in 0..bytes.len() {
            assert_eq!(T::take(&mut Reader::new(&bytes[..end])), None, "read from {end} of {} bytes", bytes.len());
        }
    }

    #[test]
    fn values_survive_and_truncation_is_noticed() {
        for value in [0, 1, 127, 128, 25_088, u64::from(u32::MAX), u64::MAX] {
            round_trip(value);
        }
        round_trip(true);
        round_trip(-0.1f64);
        round_trip([3u64, 224, 224]);
        round_trip(alloc::vec![1u64, 2, 300]);
        round_trip(Some(7usize));
        round_trip(String::from("stage[0].conv2d[1]"));
    }

    #[test]
    fn a_length_beyond_the_input_is_refused() {
        let mut bytes = Vec::new();
        u64::MAX.put(&mut bytes);
        assert_eq!(Vec::<u64>::take(&mut Reader::new(&bytes)), None);
        assert_eq!(String::take(&mut Reader::new(&bytes)), None);
    }
}
