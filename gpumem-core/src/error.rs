//! What can go wrong at run time.

use alloc::string::String;
use core::fmt;

/// What can go wrong at run time. Every message says what to do next.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// Data of another length than the tensor it is meant for.
    Length {
        /// What the data is meant for.
        what: String,
        /// Elements that are needed.
        expected: u64,
        /// Elements that were given.
        found: u64,
    },
    /// An index in the data that is not below its limit.
    Index {
        /// What the index is: `label`, `token`.
        what: &'static str,
        /// Where it stands in the data.
        position: u64,
        /// Its value.
        value: u32,
        /// The first value that is too large.
        limit: u64,
    },
    /// No parameter, gradient or buffer of that name.
    Name {
        /// The name that was asked for.
        name: String,
        /// The nearest name that exists.
        nearest: Option<String>,
    },
    /// Something that this device cannot do.
    Unsupported {
        /// The device.
        device: &'static str,
        /// What it cannot do, and what can be done instead.
        what: String,
    },
    /// Too little memory on the device.
    Memory {
        /// The device.
        device: &'static str,
        /// Bytes that are needed.
        needed: u64,
        /// Bytes that are free, if known.
        free: Option<u64>,
    },
    /// A library that the device needs is not there, or too old.
    Library {
        /// The library.
        name: &'static str,
        /// The version that was found, if any.
        found: Option<String>,
        /// The version that is needed.
        wanted: &'static str,
        /// What brings it.
        package: &'static str,
    },
    /// The device reported a failure.
    Device {
        /// The device.
        device: &'static str,
        /// What failed and what the device said.
        what: String,
    },
    /// A tensor's bytes lie outside the arena.
    Range {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// Size of the arena in bytes.
        arena: u64,
    },
    /// The program that the macro embedded is damaged or does not match its plan: a defect of this library.
    Damaged(&'static str),
}

/// Bytes as text with a fitting unit.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes >= 1 << 30 => write!(f, "{:.2} GiB", bytes as f64 / f64::from(1 << 30)),
            bytes if bytes >= 1 << 20 => write!(f, "{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
            bytes => write!(f, "{bytes} bytes"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Length { what, expected, found } => {
                write!(f, "{what} has {expected} elements, but {found} were given")
            }
            Error::Index { what, position, value, limit } => {
                write!(f, "{what} {value} at position {position} is too large: it must be below {limit}")
            }
            Error::Name { name, nearest: Some(nearest) } => {
                write!(f, "the network has nothing called `{name}`; did you mean `{nearest}`?")
            }
            Error::Name { name, nearest: None } => {
                write!(f, "the network has nothing called `{name}`; `names()` lists what it has")
            }
            Error::Unsupported { device, what } => write!(f, "{device}: {what}"),
            Error::Memory { device, needed, free: Some(free) } => write!(
                f,
                "{device}: {} are needed, but only {} are free; free some, or train with a smaller batch",
                Bytes(*needed),
                Bytes(*free)
            ),
            Error::Memory { device, needed, free: None } => {
                write!(
                    f,
                    "{device}: {} could not be allocated; free some, or train with a smaller batch",
                    Bytes(*needed)
                )
            }
            Error::Library { name, found: None, wanted, package } => {
                write!(f, "{name} {wanted} is needed, but there is none; install {package}")
            }
            Error::Library { name, found: Some(found), wanted, package } => {
                write!(f, "{name} {wanted} is needed, but version {found} was found; install {package}")
            }
            Error::Device { device, what } => write!(f, "{device}: {what}"),
            Error::Range { offset, length, arena } => {
                write!(f, "bytes {offset} to {offset} + {length} lie outside the arena of {arena} bytes")
            }
            Error::Damaged(what) => write!(f, "{what}; rebuild the crate, and report it if it stays"),
        }
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn messages_say_what_to_do() {
        let cases = [
            (
                Error::Memory { device: "CPU", needed: 3 << 30, free: Some(1 << 20) },
                "CPU: 3.00 GiB are needed, but only 1.0 MiB are free; free some, or train with a smaller batch",
            ),
            (
                Error::Memory { device: "CPU", needed: 1000, free: None },
                "CPU: 1000 bytes could not be allocated; free some, or train with a smaller batch",
            ),
            (
                Error::Library { name: "NVRTC", found: None, wanted: "12.2 or newer", package: "cuda-nvrtc" },
                "NVRTC 12.2 or newer is needed, but there is none; install cuda-nvrtc",
            ),
            (
                Error::Library {
                    name: "NVRTC",
                    found: Some("11.8".into()),
                    wanted: "12.2 or newer",
                    package: "cuda-nvrtc",
                },
                "NVRTC 12.2 or newer is needed, but version 11.8 was found; install cuda-nvrtc",
            ),
            (Error::Device { device: "CUDA", what: "launch failed".into() }, "CUDA: launch failed"),
            (Error::Range { offset: 8, length: 4, arena: 10 }, "bytes 8 to 8 + 4 lie outside the arena of 10 bytes"),
            (
                Error::Name { name: "x".into(), nearest: None },
                "the network has nothing called `x`; `names()` lists what it has",
            ),
            (
                Error::Damaged("the plan is damaged"),
                "the plan is damaged; rebuild the crate, and report it if it stays",
            ),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }
}
