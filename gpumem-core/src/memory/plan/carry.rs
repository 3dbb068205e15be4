//! Address orders that the macro finds, and that generated code carries into const evaluation.

use super::{LiveRange, PackedRanges, PackedSlice, below, order, pack_slice, replay};
use crate::memory::bytes::{fill, largest};
use crate::memory::tables::{Order, Tables};
use crate::number::Precision;
use alloc::vec;
use alloc::vec::Vec;

/// The contents of an [`Order`].
#[derive(Clone, Debug, PartialEq)]
pub struct OwnedOrder {
    /// See [`Order::entries`].
    pub entries: Vec<u64>,
    /// See [`Order::size`].
    pub size: u64,
    /// See [`Order::lower_bound`].
    pub lower_bound: u64,
    /// See [`Order::offsets`].
    pub offsets: Vec<u64>,
    /// See [`Order::bytes`].
    pub bytes: Vec<u64>,
}

impl OwnedOrder {
    /// Returns the order as const evaluation reads it.
    pub fn as_order(&self) -> Order<'_> {
        let OwnedOrder { entries, size, lower_bound, offsets, bytes } = self;
        Order { entries, size: *size, lower_bound: *lower_bound, offsets, bytes }
    }
}

/// The address orders of one program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AddressOrders {
    /// See [`Transients::orders`](crate::memory::tables::Transients::orders).
    pub orders: Vec<OwnedOrder>,
    /// See [`Transients::below`](crate::memory::tables::Transients::below).
    pub below: Vec<u32>,
}

impl AddressOrders {
    /// Packs a step at this batch and in this format, so that const evaluation need not. Takes the packing from `known` if these tensors were
    /// packed before.
    ///
    /// Does nothing if a known order reaches the lower bound there. Tensors that cannot be packed are left to const evaluation.
    pub fn add(&mut self, tables: &Tables<'_>, batch: u64, precision: Precision, known: &[PackedRanges]) {
        let count = tables.transients.lives.len();
        let (mut bytes, mut ranges) = (vec![0; count], vec![LiveRange { bytes: 0, first: 0, last: 0 }; count]);
        let Ok(largest) = largest(tables, batch, precision, &mut bytes) else { return };
        let Ok(()) = fill(tables, largest.bytes, &mut ranges) else { return };
        // So no sum of offsets can overflow.
        let Some(_) = ranges.iter().try_fold(0u64, |sum, range| sum.checked_add(range.bytes)) else { return };
        let mut offsets = vec![0; count];
        let bound = tables.transients.peak(largest.bytes).map(|(bound, _)| bound);
        if self.orders.iter().any(|known| Some(replay(&known.entries, &ranges, &mut offsets)) == bound) {
            return;
        }
        let known = known.iter().find(|known| known.ranges == ranges).map(|known| known.packed.clone());
        let Ok(PackedSlice { mut offsets, lower_bound, .. }) = known.map_or_else(|| pack_slice(&ranges), Ok) else {
            return;
        };
        let Some(entries) = order(&ranges, &offsets) else { return };
        if self.orders.iter().any(|known| known.entries == entries) {
            return;
        }
        let size = replay(&entries, &ranges, &mut offsets);
        if self.orders.is_empty() {
            self.below = below(&entries, count);
        }
        self.orders.push(OwnedOrder { entries, size, lower_bound, offsets, bytes: largest.bytes.to_vec() });
    }
}
