//! Exchanges between ranks: the calls of a bucket of tensors.

use crate::calls::Call;
use crate::calls::exchange::{Exchange, Exchanged, Kind, Padding, Place, Reduction};
use crate::operations::context::Context;
use gpumem_core::Format;
use gpumem_core::error::Error;
use gpumem_core::program::{Collective, StateWord, TensorId};
use gpumem_core::train::ranks::Sharding;

/// Returns the call that starts an exchange.
pub(in crate::operations) fn start(context: &Context<'_>, collective: Collective) -> Result<Vec<Call>, Error> {
    let all = context.operation.exchanged().map(|pair| exchanged(context, collective, pair));
    Ok(vec![Call::Exchange(Exchange::Start(all.collect::<Result<_, Error>>()?))])
}

/// Returns the call that waits for an exchange.
pub(in crate::operations) fn wait(context: &Context<'_>) -> Vec<Call> {
    vec![Call::Exchange(Exchange::Wait(context.operation.exchanged().map(|(_, received)| received).collect()))]
}

/// Returns the exchange of one tensor, which is sent, and received in the same tensor or in another one.
fn exchanged(
    context: &Context<'_>,
    collective: Collective,
    (sent, received): (TensorId, TensorId),
) -> Result<Exchanged, Error> {
    const DAMAGED: Error = Error::Damaged("an exchange of ranks has tensors of other sizes than their shards");
    let tensor = context.tensor(sent);
    let format = tensor.role.format(context.setting.precision);
    let whole = |id: TensorId| Place { tensor: id, at: 0 };
    if collective == Collective::Overflow {
        let word = Place { tensor: sent, at: 4 * StateWord::Overflow as u64 };
        let (kind, format) = (Kind::Reduce(Reduction::Largest), Format::U32);
        return Ok(Exchanged { kind, format, count: 1, sent: word, received: word, padding: None });
    }
    if tensor.sharding == Sharding::Replicated {
        let kind = Kind::Reduce(match collective {
            Collective::Sum => Reduction::Sum,
            Collective::Mean => Reduction::Mean,
            Collective::Gather | Collective::Overflow => return Err(DAMAGED),
        });
        let count = context.elements(sent);
        if sent != received || !format.is_float() {
            return Err(DAMAGED);
        }
        return Ok(Exchanged { kind, format, count, sent: whole(sent), received: whole(sent), padding: None });
    }
    let kind = match collective {
        Collective::Sum => Kind::Scatter,
        Collective::Gather => Kind::Gather,
        Collective::Mean | Collective::Overflow => return Err(DAMAGED),
    };
    let count = context.tensor(sent).own_shard().ok_or(DAMAGED)?;
    // The one with all elements is summed or filled, and the other one has a shard of them.
    let [all, shard] = if kind == Kind::Scatter { [sent, received] } else { [received, sent] };
    let is_whole = |id: TensorId| matches!(context.tensor(id).sharding, Sharding::Gathered(_));
    let is_alike = |id: TensorId| {
        let other = context.tensor(id);
        other.role.format(context.setting.precision) == format && other.own_shard() == Some(count)
    };
    if !is_whole(all) || (all != shard && is_whole(shard)) || !is_alike(sent) || !is_alike(received) {
        return Err(DAMAGED);
    }
    let own = Place { tensor: shard, at: context.own_start(shard)? };
    let places = if kind == Kind::Scatter { [whole(sent), own] } else { [own, whole(received)] };
    let padding = if kind == Kind::Scatter { padding(context, sent)? } else { None };
    Ok(Exchanged { kind, format, count, sent: places[0], received: places[1], padding })
}

/// Returns the elements that a tensor has after its last one, to fill up the last shard; `None` if it has none.
fn padding(context: &Context<'_>, id: TensorId) -> Result<Option<Padding>, Error> {
    const DAMAGED: Error = Error::Damaged("a tensor has fewer elements than its shards");
    let tensor = context.tensor(id);
    let width = tensor.role.bytes(context.setting.precision);
    let (count, all) = (tensor.unsharded().ok_or(DAMAGED)?, tensor.stored_of_each().ok_or(DAMAGED)?);
    let bytes = all.checked_sub(count).and_then(|more| more.checked_mul(width)).ok_or(DAMAGED)?;
    let at = count.checked_mul(width).ok_or(DAMAGED)?;
    Ok((bytes > 0).then_some(Padding { place: Place { tensor: id, at }, bytes }))
}
