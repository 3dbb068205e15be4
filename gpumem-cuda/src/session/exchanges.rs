//! Exchanges between ranks, on a stream besides the step's.
//!
//! An exchange starts after all earlier work of the step, and the step waits for it by an event. In a captured graph it is a branch beside the calls
//! that are enqueued in between.

use crate::calls::Argument;
use crate::calls::exchange::{Exchange, Place};
use crate::error::failure;
use crate::libraries::nccl::{Communicator, Member};
use cudarc::driver::sys::{self, CUdeviceptr};
use cudarc::driver::{CudaEvent, CudaStream};
use gpumem_core::error::Error;
use std::collections::BTreeMap;
use std::sync::Arc;

const STRAY: Error = Error::Damaged("an exchange of ranks starts and does not end, or ends without a start");

/// The events of an exchange: after the work before it, and after the exchange.
#[derive(Debug)]
struct Events {
    begun: CudaEvent,
    ended: CudaEvent,
}

/// An exchange, or the wait for one, with its addresses.
#[derive(Debug)]
pub(super) struct BoundExchange {
    group: Arc<Communicator>,
    events: Arc<Events>,
    /// The tensors that are exchanged; `None` for the wait.
    members: Option<Vec<Member>>,
    /// Addresses and bytes of padding that is set to 0 before.
    padding: Vec<(CUdeviceptr, usize)>,
}

/// State while the exchanges of a program are bound in order: those that have not ended, by the tensors that receive numbers.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    running: BTreeMap<Vec<Argument>, Arc<Events>>,
}

/// Returns the address of a place with so many bytes.
type Address<'a> = dyn Fn(Place, u64) -> Result<CUdeviceptr, Error> + 'a;

impl Exchanges {
    /// Binds the next exchange, or the wait for one.
    pub(super) fn bind(
        &mut self,
        exchange: &Exchange,
        group: Option<&Arc<Communicator>>,
        address: &Address<'_>,
    ) -> Result<BoundExchange, Error> {
        let group = group.ok_or(Error::Damaged("a program of several ranks runs on one"))?.clone();
        let Exchange::Start(all) = exchange else {
            let events = self.running.remove(&exchange.received()).ok_or(STRAY)?;
            return Ok(BoundExchange { group, events, members: None, padding: Vec::new() });
        };
        let event = || group.stream().context().new_event(None).map_err(failure("making an event"));
        let events = Arc::new(Events { begun: event()?, ended: event()? });
        if self.running.insert(exchange.received(), events.clone()).is_some() {
            return Err(STRAY);
        }
        let ranks = group.count();
        let member = |it: &crate::calls::exchange::Exchanged| {
            let too_many = Error::Damaged("ranks exchange more bytes than there are addresses");
            let shard = it.count.checked_mul(it.format.bytes()).ok_or(too_many.clone())?;
            let whole = shard.checked_mul(ranks).ok_or(too_many.clone())?;
            let [sent, received] = it.kind.bytes(shard, whole);
            let count = usize::try_from(it.count).map_err(|_| too_many)?;
            let [sent, received] = [address(it.sent, sent)?, address(it.received, received)?];
            Ok(Member { kind: it.kind, format: it.format, count, sent, received })
        };
        let members = all.iter().map(member).collect::<Result<_, Error>>()?;
        let padding = all.iter().filter_map(|it| it.padding).map(|padding| {
            let bytes = usize::try_from(padding.bytes).map_err(|_| STRAY)?;
            Ok((address(padding.place, padding.bytes)?, bytes))
        });
        Ok(BoundExchange { group, events, members: Some(members), padding: padding.collect::<Result<_, Error>>()? })
    }

    /// Checks that every exchange has ended.
    ///
    /// # Errors
    /// [`Error::Damaged`] otherwise.
    pub(super) fn end(&self) -> Result<(), Error> {
        if self.running.is_empty() { Ok(()) } else { Err(STRAY) }
    }
}

impl BoundExchange {
    /// Enqueues the exchange beside `stream`, the stream of the step, or lets that wait for it.
    pub(super) fn launch(&self, stream: &CudaStream) -> Result<(), Error> {
        let (other, Events { begun, ended }) = (self.group.stream(), &*self.events);
        let Some(members) = &self.members else {
            return stream.wait(ended).map_err(failure("waiting for the other ranks"));
        };
        for &(start, bytes) in &self.padding {
            // SAFETY: the range was checked to be inside its tensor in the arena, which outlives the stream's work. Nothing reads it before.
            unsafe { sys::cuMemsetD8Async(start, 0, bytes, stream.cu_stream()) }
                .result()
                .map_err(failure("setting padding to 0"))?;
        }
        let record =
            |event: &CudaEvent, stream: &CudaStream| event.record(stream).map_err(failure("recording an event"));
        record(begun, stream)?;
        other.wait(begun).map_err(failure("waiting for the step"))?;
        self.group.exchange(members)?;
        record(ended, other)
    }
}
