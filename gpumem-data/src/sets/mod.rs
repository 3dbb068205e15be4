//! Data sets in the formats that they are published in.

pub(crate) mod bytes;
