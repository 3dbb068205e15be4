//! Tensors of which ranks have shards, and those that they exchange.

use super::{MISSING, Operands, Target};
use crate::element::Element;
use crate::ranks::Group;
use gpumem_core::error::Error;
use gpumem_core::program::{Piece, Slot, TensorId};
use gpumem_core::train::ranks::Sharding;
use std::marker::PhantomData;
use std::ops::Range;

/// The rows of a tensor of which each rank has one.
pub(crate) struct Rows {
    /// The row of this rank, without padding.
    pub(crate) own: Piece,
    /// Elements from one row to the next.
    pub(crate) pitch: usize,
    /// All rows.
    pub(crate) all: Piece,
}

impl<'a> Operands<'a> {
    /// Returns these tensors in a session with other ranks.
    pub(crate) fn with_peers(self, peers: Option<&'a Group>) -> Operands<'a> {
        Operands { peers, ..self }
    }

    /// Returns the other ranks. `None` if there are none.
    pub(crate) fn peers(&self) -> Option<Group> {
        self.peers.cloned()
    }

    /// Returns the number of tensors that the operation exchanges.
    pub(crate) fn exchanged(&self) -> usize {
        self.operation.exchanged().count()
    }

    /// True if the tensor of this number is received in the place from which it is sent.
    pub(crate) fn is_exchanged_in_place(&self, number: u8) -> bool {
        self.either(Slot::Sent(number)) == self.either(Slot::Received(number))
    }

    /// True if ranks have, or update, a shard of the tensor of this slot.
    pub(crate) fn is_sharded(&self, slot: Slot) -> bool {
        self.sharding(slot) != Sharding::Replicated
    }

    /// Returns the tensor that is written or read as `slot`.
    fn either(&self, slot: Slot) -> Option<TensorId> {
        self.operation.written(slot).or_else(|| self.operation.read(slot))
    }

    fn sharding(&self, slot: Slot) -> Sharding {
        self.either(slot).map_or(Sharding::Replicated, |id| self.program.tensor(id).sharding)
    }

    /// Returns all elements in memory of a tensor that is exchanged, in their order there.
    pub(crate) fn exchanged_target<T: Element>(&mut self, slot: Slot) -> Result<Target<T>, Error> {
        let tensor = self.either(slot).ok_or(MISSING)?;
        if !T::holds(self.program.tensor(tensor).role) {
            return Err(Error::Damaged("an operation takes numbers, indices or bytes for one another"));
        }
        if self.taken.contains(&tensor) {
            return Err(Error::Damaged("an operation writes one tensor in two roles"));
        }
        self.taken.push(tensor);
        let Range { start, end } = self.ranges[tensor as usize];
        let length = (end - start) / size_of::<T>();
        Ok(Target { arena: self.arena.clone(), offset: start, length, elements: PhantomData })
    }

    /// Returns the elements of this rank's shard of the parameter or gradient of a slot, in the order of the whole tensor. `None` if it is
    /// replicated.
    pub(crate) fn own_shard(&self, slot: Slot) -> Result<Option<Piece>, Error> {
        const DAMAGED: Error = Error::Damaged("a shard is none of its tensor");
        if !self.is_sharded(slot) {
            return Ok(None);
        }
        let tensor = self.program.tensor(self.either(slot).ok_or(MISSING)?);
        let rank = self.peers.map(|(peers, _)| peers.rank()).ok_or(DAMAGED)?;
        let (each, all) = (tensor.own_shard().ok_or(DAMAGED)?, tensor.unsharded().ok_or(DAMAGED)?);
        let first = rank.checked_mul(each).ok_or(DAMAGED)?.min(all);
        Ok(Some(Piece { first, count: each.min(all - first), buffer: 0 }))
    }

    /// Returns the elements of each rank's shard of the tensor of a slot, with padding: all elements if it is replicated.
    pub(crate) fn shard_length(&self, slot: Slot) -> Result<usize, Error> {
        let tensor = self.program.tensor(self.either(slot).ok_or(MISSING)?);
        tensor.own_shard().and_then(|count| usize::try_from(count).ok()).ok_or(MISSING)
    }

    /// Returns the rows of a tensor `[ranks, elements]` of which each rank has one. `None` if it is replicated.
    pub(crate) fn rows_of_ranks(&self, slot: Slot) -> Result<Option<Rows>, Error> {
        const DAMAGED: Error = Error::Damaged("ranks have no rows of a tensor that has one for each");
        if !self.is_sharded(slot) {
            return Ok(None);
        }
        let tensor = self.program.tensor(self.either(slot).ok_or(MISSING)?);
        let (peers, _) = self.peers.ok_or(DAMAGED)?;
        let (&[ranks, count], Some(pitch)) = (tensor.shape.dims(), tensor.own_shard()) else { return Err(DAMAGED) };
        if ranks != peers.count() || count > pitch {
            return Err(DAMAGED);
        }
        let piece = |first, count| Piece { first, count, buffer: 0 };
        let own = piece(peers.rank() * pitch, count);
        Ok(Some(Rows { own, pitch: pitch as usize, all: piece(0, ranks * pitch) }))
    }

    /// Returns the place of elements of this rank's shard in the tensor of a slot, which has all of them or the shard alone. `piece` is counted in
    /// the whole tensor.
    pub(crate) fn placed(&self, slot: Slot, shard: Piece, piece: Piece) -> Piece {
        match self.sharding(slot) {
            Sharding::Sharded(_) => Piece { first: piece.first - shard.first, ..piece },
            Sharding::Gathered(_) | Sharding::Replicated => piece,
        }
    }
}
