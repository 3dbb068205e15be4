//! Exchanges between ranks.
//!
//! An exchange takes place when it starts, or, late, when it is awaited. Both give the same bits, since nothing touches its tensors in between.

use super::super::{Bound, kernel};
use crate::operands::{Operands, Target};
use crate::ranks::{Peers, own_of};
use gpumem_core::error::Error;
use gpumem_core::program::{Collective, Exchange, Slot, StateWord};

/// A tensor that is exchanged.
enum Exchanged {
    /// It is received in its own place. True if a rank receives its shard, or sends it.
    InPlace(Target, bool),
    /// It is received in another tensor.
    Apart(Target, Target),
    /// The words of the state.
    State(Target<u32>),
}

/// Returns the error of a session without other ranks.
fn alone() -> Error {
    Error::Damaged("a step that several ranks share runs on one rank")
}

/// Binds the start of an exchange. It takes place now, unless it is late.
pub(in crate::kernels) fn begin(exchange: Exchange, operands: &mut Operands<'_>) -> Bound {
    let (peers, is_late) = operands.peers().ok_or_else(alone)?;
    let mut all = bound(exchange, operands)?;
    kernel(move |_| {
        if !is_late {
            return run(exchange, &mut all, &*peers);
        }
        for exchanged in &mut all {
            // Whoever reads too early computes with these.
            if let Exchanged::Apart(_, received) = exchanged {
                received.get().fill(f32::NAN);
            }
        }
    })
}

/// Binds the wait for an exchange. A late one takes place now.
pub(in crate::kernels) fn end(exchange: Exchange, operands: &mut Operands<'_>) -> Bound {
    let (peers, is_late) = operands.peers().ok_or_else(alone)?;
    let mut all = bound(exchange, operands)?;
    kernel(move |_| {
        if is_late {
            run(exchange, &mut all, &*peers);
        }
    })
}

/// Binds the tensors of an exchange.
fn bound(exchange: Exchange, operands: &mut Operands<'_>) -> Result<Vec<Exchanged>, Error> {
    let mut all = Vec::new();
    for number in 0..operands.exchanged() {
        let (sent, received) = (Slot::Sent(number as u8), Slot::Received(number as u8));
        all.push(match exchange.collective {
            Collective::Overflow => Exchanged::State(operands.exchanged_target(received)?),
            _ if operands.is_exchanged_in_place(number as u8) => {
                let is_sharded = operands.is_sharded(sent);
                Exchanged::InPlace(operands.exchanged_target(received)?, is_sharded)
            }
            _ => Exchanged::Apart(operands.exchanged_target(sent)?, operands.exchanged_target(received)?),
        });
    }
    Ok(all)
}

/// Exchanges tensors. After a failure it does nothing: the session reports it when the step has ended.
fn run(exchange: Exchange, all: &mut [Exchanged], peers: &dyn Peers) {
    let _ = all.iter_mut().try_for_each(|exchanged| one(exchange.collective, exchanged, peers));
}

fn one(collective: Collective, exchanged: &mut Exchanged, peers: &dyn Peers) -> Result<(), Error> {
    let (rank, count) = (peers.rank(), peers.count());
    match (collective, exchanged) {
        (Collective::Sum, Exchanged::InPlace(target, false)) => peers.sum(target.get()),
        (Collective::Sum, Exchanged::InPlace(target, true)) => {
            let mut own = own_of(target.get(), rank, count).to_vec();
            peers.sum_shard(target.get(), &mut own)?;
            let first = rank as usize * own.len();
            target.get()[first..][..own.len()].copy_from_slice(&own);
            Ok(())
        }
        (Collective::Sum, Exchanged::Apart(sent, received)) => peers.sum_shard(sent.get(), received.get()),
        (Collective::Gather, Exchanged::InPlace(target, _)) => {
            let own = own_of(target.get(), rank, count).to_vec();
            peers.gather(&own, target.get())
        }
        (Collective::Gather, Exchanged::Apart(sent, received)) => peers.gather(sent.get(), received.get()),
        (Collective::Mean, Exchanged::InPlace(target, _)) => peers.mean(target.get()),
        (Collective::Overflow, Exchanged::State(state)) => {
            let word = &mut state.get()[StateWord::Overflow as usize];
            let mut overflows = [*word as f32];
            peers.sum(&mut overflows)?;
            *word = u32::from(overflows[0] > 0.0);
            Ok(())
        }
        _ => Err(alone()),
    }
}
