//! Errors at run time.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

/// An error at run time. Every message says what to do next.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// Data with another length than the tensor that it is meant for.
    Length {
        /// The tensor that the data is meant for.
        what: String,
        /// Elements that are needed.
        expected: u64,
        /// Elements that were given.
        found: u64,
    },
    /// More samples than a batch has.
    Samples {
        /// Samples of a batch.
        batch: u64,
        /// Samples that were given.
        found: u64,
    },
    /// A tensor of another shape than the one of its name in the network that it is meant for.
    Shape {
        /// The name of both.
        name: String,
        /// The shape that is needed.
        expected: Vec<u64>,
        /// The shape of the given tensor.
        found: Vec<u64>,
    },
    /// An index in the data that is not below its limit.
    Index {
        /// The kind of the index: `label`, `token`.
        what: &'static str,
        /// Its place in the data.
        position: u64,
        /// Its value.
        value: u32,
        /// The first value that is too large.
        limit: u64,
    },
    /// An index below the one before it, although the indices of a sample must not fall.
    Order {
        /// The name of the index: `segment`.
        what: &'static str,
        /// Its place in the data.
        position: u64,
        /// Its value.
        value: u32,
        /// The value before it.
        before: u32,
    },
    /// A value that a tensor of the network cannot have, such as a negative variance.
    Value {
        /// The tensor's name.
        name: String,
        /// The index of the value in the data.
        position: u64,
        /// The value.
        value: f32,
        /// The rule that the value breaks, such as `a variance is 0 or more`.
        rule: &'static str,
    },
    /// The name of a state that another optimizer keeps.
    State {
        /// The name that was asked for.
        name: String,
        /// The parameter that it would be a state of.
        parameter: String,
        /// The optimizers that keep such a state.
        owners: Vec<&'static str>,
        /// The optimizer in `TRAIN`.
        optimizer: &'static str,
        /// Names of the states that it keeps of this parameter.
        kept: Vec<String>,
    },
    /// A sequence that cannot go back to an earlier time step. The network keeps a state of all steps so far.
    Rewind {
        /// Steps that should remain.
        steps: u64,
        /// Steps in the cache.
        cached: u64,
    },
    /// No parameter, gradient or buffer of that name.
    Name {
        /// The name that was asked for.
        name: String,
        /// The nearest name that exists.
        nearest: Option<String>,
    },
    /// Ranks that share a step and could not finish it together. The others get the same error, or one of their own.
    Ranks {
        /// The rank that ended it, from 0.
        rank: u64,
        /// The reason, to be read after the rank.
        what: String,
    },
    /// Something that this device cannot do.
    Unsupported {
        /// The device.
        device: &'static str,
        /// The request in words, and what to do instead.
        what: String,
    },
    /// Too little memory on the device.
    Memory {
        /// The device.
        device: &'static str,
        /// Bytes that are needed.
        needed: u64,
        /// The bytes that `needed` counts besides the arena. `None` if the device did not compare `needed` with free memory.
        beside: Option<Beside>,
        /// Bytes of `needed` that every batch needs: weights, gradients that last, and optimizer state. 0 if that is not known.
        lasting: u64,
        /// Bytes that are free. `None` if that is not known.
        free: Option<u64>,
        /// The processes that hold the rest, as far as known, the largest first.
        holders: Vec<Holder>,
    },
    /// A library that the device needs is missing or too old.
    Library {
        /// The library.
        name: &'static str,
        /// The version that was found, as `version 11.8 (libnvrtc.so.11)`, or the fault of a file. `None` if nothing was found.
        found: Option<String>,
        /// The version that is needed.
        wanted: String,
        /// The package that installs it.
        package: String,
    },
    /// Several errors, all of which must be fixed.
    Several(Vec<Error>),
    /// The device reported a failure.
    Device {
        /// The device.
        device: &'static str,
        /// The call that failed, and the message of the device.
        what: String,
        /// The error of the device's library, for programs that read its code. `None` if there is none.
        cause: Option<Cause>,
    },
    /// The bytes of a tensor are outside the arena.
    Range {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// Size of the arena in bytes.
        arena: u64,
    },
    /// The embedded program is damaged or does not match its plan: a defect of this library.
    Damaged(&'static str),
}

/// The error that caused another one, for [`core::error::Error::source`]. The message of the outer error contains its text.
#[derive(Clone, Debug)]
pub struct Cause(Arc<dyn core::error::Error + Send + Sync>);

impl Cause {
    /// Wraps an error.
    pub fn new(error: impl core::error::Error + Send + Sync + 'static) -> Cause {
        Cause(Arc::new(error))
    }
}

/// Two causes are equal if their messages are equal.
impl PartialEq for Cause {
    fn eq(&self, other: &Cause) -> bool {
        self.0.to_string() == other.0.to_string()
    }
}

/// A process that holds memory of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Holder {
    /// Its name in messages: `python3 (process 4711)`.
    pub name: String,
    /// Bytes that it holds. `None` if that is not known.
    pub bytes: Option<u64>,
}

/// Memory that a network needs on a device besides its arena: library handles, modules, graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Beside {
    /// Bytes that this network took when it was loaded before.
    Measured(u64),
    /// Bytes that are left of the budget's reserve, which is an estimate by a rule for cards.
    Rule(u64),
    /// Nothing, since it is not known how much of the reserve the context took.
    NotCounted,
}

impl Beside {
    /// Returns the bytes; 0 if they are not counted.
    pub const fn bytes(self) -> u64 {
        match self {
            Beside::Measured(bytes) | Beside::Rule(bytes) => bytes,
            Beside::NotCounted => 0,
        }
    }
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Beside::Measured(bytes) => {
                write!(f, "{} of them beside the arena, as measured when the network was loaded before", Bytes(bytes))
            }
            Beside::Rule(bytes) => write!(f, "{} of them beside the arena, by the rule for cards", Bytes(bytes)),
            Beside::NotCounted => write!(f, "those beside the arena not counted"),
        }
    }
}

/// The largest number of processes that are named one by one.
const NAMED: usize = 4;

/// The text `: python3 (process 4711) holds 8.01 GiB, this process holds 428.0 MiB`; empty without holders.
struct Holders<'a>(&'a [Holder]);

impl fmt::Display for Holders<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A single further process is named as well: its name is no longer than the words for one more process.
        let named = if self.0.len() == NAMED + 1 { NAMED + 1 } else { self.0.len().min(NAMED) };
        let (first, others) = self.0.split_at(named);
        for (index, holder) in first.iter().enumerate() {
            write!(f, "{}{} holds ", if index == 0 { ": " } else { ", " }, holder.name)?;
            match holder.bytes {
                Some(bytes) => write!(f, "{}", Bytes(bytes))?,
                None => write!(f, "an unknown amount")?,
            }
        }
        if !others.is_empty() {
            let sum = others.iter().filter_map(|holder| holder.bytes).fold(0, u64::saturating_add);
            write!(f, ", {} others hold {}", others.len(), Bytes(sum))?;
        }
        Ok(())
    }
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

/// `a`, `b` and `c`, each in backticks; `nothing` if there are none.
struct Listed<'a, T>(&'a [T]);

impl<T: fmt::Display> fmt::Display for Listed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((last, first)) = self.0.split_last() else { return f.write_str("nothing") };
        for (index, one) in first.iter().enumerate() {
            write!(f, "{}`{one}`", if index == 0 { "" } else { ", " })?;
        }
        write!(f, "{}`{last}`", if first.is_empty() { "" } else { " and " })
    }
}

/// True if an index that is too large was a negative number before it was an unsigned one.
fn is_negative(index: u32, limit: u64) -> bool {
    index.cast_signed() < 0 && limit <= 1 << 31
}

impl Error {
    /// Returns a failure of a device without an error of a library.
    pub fn failed(device: &'static str, what: impl Into<String>) -> Error {
        Error::Device { device, what: what.into(), cause: None }
    }

    /// Returns a failure that the device's library reported. `what` contains its message.
    pub fn failed_because(
        device: &'static str,
        what: impl Into<String>,
        cause: impl core::error::Error + Send + Sync + 'static,
    ) -> Error {
        Error::Device { device, what: what.into(), cause: Some(Cause::new(cause)) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Length { what, expected, found } => {
                write!(f, "{what} has {expected} elements, but {found} were given")
            }
            Error::Shape { name, expected, found } => {
                write!(
                    f,
                    "`{name}` has the shape {expected:?} here and {found:?} in the other network; give the layer the same size and options in both"
                )
            }
            Error::Samples { batch, found } => {
                write!(
                    f,
                    "the batch has room for {batch} samples, but {found} were given; hand them over in several batches, as \
                     `samples.chunks({batch})` gives them"
                )
            }
            Error::Value { name, position, value, rule } => {
                write!(
                    f,
                    "`{name}` cannot be {value} at position {position}: {rule}; set what `get` gave for this name"
                )
            }
            Error::State { name, parameter, owners, optimizer, kept } => {
                write!(
                    f,
                    "`{name}` is a state of {}, but the network is trained by `{optimizer}`, which keeps {} of `{parameter}`; write the \
                     optimizer that the state is of in `TRAIN`, or set parameters and statistics only",
                    Listed(owners),
                    Listed(kept)
                )
            }
            &Error::Index { what, position, value, limit } if is_negative(value, limit) => {
                let (signed, last) = (value.cast_signed(), limit.saturating_sub(1));
                write!(f, "{what} {signed} at position {position} is negative: it must be from 0 to {last}")?;
                match what {
                    "label" => write!(f, "; `ignore_index: {signed}` in the loss leaves out what is labelled so"),
                    "token" => write!(
                        f,
                        "; a table has a row for each token, also for the one that fills up: give that a number of its own"
                    ),
                    _ => Ok(()),
                }
            }
            Error::Index { what, position, value, limit } => {
                write!(f, "{what} {value} at position {position} is too large: it must be below {limit}")
            }
            Error::Order { what, position, value, before } => write!(
                f,
                "{what} {value} at position {position} comes after {before}: {what}s of a sample must not fall; number them in order, as \
                 0, 0, 1, 1, 1, 2"
            ),
            Error::Rewind { steps, cached } => write!(
                f,
                "the network keeps what all {cached} steps come to and cannot go back to step {steps}; begin anew with `truncate(0)` and \
                 take the first {steps} steps again"
            ),
            Error::Name { name, nearest: Some(nearest) } => {
                write!(f, "the network has nothing called `{name}`; did you mean `{nearest}`?")
            }
            Error::Name { name, nearest: None } => {
                write!(f, "the network has nothing called `{name}`; `names()` lists what it has")
            }
            Error::Ranks { rank, what } => write!(f, "rank {rank} {what}"),
            Error::Unsupported { device, what } => write!(f, "{device}: {what}"),
            Error::Memory { device, needed, beside, lasting, free: Some(free), holders } => {
                write!(f, "{device}: {} are needed, ", Bytes(*needed))?;
                if let Some(beside) = beside {
                    write!(f, "{beside}, ")?;
                }
                write!(
                    f,
                    "but only {} are free{}; {}",
                    Bytes(*free),
                    Holders(holders),
                    Shortage { lasting: *lasting, room: *free }
                )
            }
            Error::Memory { device, needed, lasting, free: None, holders, .. } => {
                let advice = Shortage { lasting: *lasting, room: *needed / 2 };
                write!(f, "{device}: {} could not be allocated{}; {advice}", Bytes(*needed), Holders(holders))
            }
            Error::Library { name, found: None, wanted, package } => {
                write!(f, "{name} {wanted} is needed, but there is none; install {package}")
            }
            Error::Library { name, found: Some(found), wanted, package } => {
                write!(f, "{name} {wanted} is needed, but {found} was found; install {package}")
            }
            Error::Several(errors) => errors.iter().enumerate().try_for_each(|(index, error)| {
                if index > 0 {
                    writeln!(f)?;
                }
                write!(f, "{error}")
            }),
            Error::Device { device, what, .. } => write!(f, "{device}: {what}"),
            Error::Range { offset, length, arena } => {
                write!(f, "bytes {offset} to {offset} + {length} lie outside the arena of {arena} bytes")
            }
            Error::Damaged(what) => write!(f, "{what}; rebuild the crate, and report it if it stays"),
        }
    }
}

/// Advice after a failed allocation. A smaller batch helps only if `lasting`, the bytes that any batch needs, fit in `room`.
struct Shortage {
    lasting: u64,
    room: u64,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lasting <= self.room {
            return f.write_str("free some, or train with a smaller batch");
        }
        write!(
            f,
            "{} of them are weights and what training keeps beside them, at any batch: free some, or make the network smaller",
            Bytes(self.lasting)
        )
    }
}

impl core::error::Error for Error {
    /// Returns the error of the device's library, or the first of several errors.
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Error::Device { cause: Some(cause), .. } => Some(&*cause.0),
            Error::Several(errors) => errors.first().map(|error| error as _),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
