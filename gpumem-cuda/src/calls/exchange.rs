//! Exchanges between ranks as plain data, in NCCL's terms.

use super::Argument;
use gpumem_core::Format;

/// The start of an exchange with the other ranks, or the wait for it.
///
/// An exchange runs beside later calls. Between the two, nothing else may touch its tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// Starts to exchange these tensors at once, after all earlier work.
    Start(Vec<Exchanged>),
    /// Makes later work wait for the exchange that brings numbers to these tensors.
    Wait(Vec<Argument>),
}

impl Exchange {
    /// Returns the tensors that receive numbers.
    pub fn received(&self) -> Vec<Argument> {
        match self {
            Exchange::Start(all) => all.iter().map(|exchanged| exchanged.received.tensor).collect(),
            Exchange::Wait(received) => received.clone(),
        }
    }
}

/// A tensor that ranks exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchanged {
    /// The numbers that ranks get.
    pub kind: Kind,
    /// The format of each number.
    pub format: Format,
    /// Elements of [`Kind::Reduce`] or, of the other kinds, of the shard of one rank.
    pub count: u64,
    /// The first element that this rank sends.
    pub sent: Place,
    /// The first element that it receives.
    pub received: Place,
    /// The elements after the last one of a tensor that is sent. They are set to 0 before, so that sums of them are. `None` if there are none.
    pub padding: Option<Padding>,
}

/// The numbers that ranks get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All ranks get one number for each element: `ncclAllReduce`.
    Reduce(Reduction),
    /// Each rank gets the sums of its shard: `ncclReduceScatter`.
    Scatter,
    /// All ranks get all shards: `ncclAllGather`.
    Gather,
}

/// The way in which numbers of all ranks become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// The largest of them.
    Largest,
    /// Their mean.
    Mean,
}

/// A place in a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The tensor.
    pub tensor: Argument,
    /// Bytes from its beginning.
    pub at: u64,
}

/// Elements that only fill up the last shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padding {
    /// The place of the first one.
    pub place: Place,
    /// The bytes of all of them.
    pub bytes: u64,
}

impl Kind {
    /// Returns the bytes that a rank sends, and those that it receives. A shard has `shard` bytes, and all ranks have `whole`.
    pub fn bytes(self, shard: u64, whole: u64) -> [u64; 2] {
        match self {
            Kind::Reduce(_) => [shard; 2],
            Kind::Scatter => [whole, shard],
            Kind::Gather => [shard, whole],
        }
    }
}
