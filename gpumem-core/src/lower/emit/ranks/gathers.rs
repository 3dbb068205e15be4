//! Gathers: sharded parameters are whole for as long as a unit of the network needs them.
//!
//! A unit is a repeated block, or a layer outside of one. Where operations of one unit follow each other, its parameters are gathered once, into
//! tensors that end with the last of these operations. The exchange starts when the unit before begins, so that it runs beside that.

use super::Pair;
use crate::program::{Class, Collective, Operation, Part, Phase, Tensor, TensorId};
use crate::train::ranks::{Ranks, Sharding};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

/// The number of units by which an exchange starts early.
const AHEAD: usize = 1;

/// Returns the unit of a parameter: its path up to the innermost repeated block, or up to its layer if there is none.
///
/// `h[3].attn.c_attn.weight` belongs to `h[3]`, `stage[0].block[1].conv2d[0].weight` to `stage[0].block[1]`, and `wte.weight` to `wte`.
fn unit(name: &str) -> &str {
    let layer = name.rsplit_once('.').map_or(name, |(layer, _)| layer);
    let blocks = layer.rsplit_once('.').map_or("", |(blocks, _)| blocks);
    blocks.rfind(']').map_or(layer, |end| &blocks[..=end])
}

/// Operations of one unit that follow each other.
struct Stretch<'n> {
    unit: &'n str,
    first: usize,
    last: usize,
    phase: Phase,
    parameters: Vec<TensorId>,
}

/// Returns the sharded parameters that an operation computes with.
fn parameters<'a>(operation: &'a Operation, tensors: &'a [Tensor]) -> impl Iterator<Item = TensorId> + 'a {
    let computes = !operation.action.has_companions() && !operation.action.is_exchange();
    operation.tensors().filter(move |&id| computes && is_sharded(&tensors[id as usize]))
}

fn is_sharded(tensor: &Tensor) -> bool {
    tensor.class == Class::Parameter && matches!(tensor.sharding, Sharding::Sharded(_))
}

fn stretches<'n>(operations: &[Operation], tensors: &'n [Tensor]) -> Vec<Stretch<'n>> {
    let mut all: Vec<Stretch<'n>> = Vec::new();
    for (at, operation) in operations.iter().enumerate() {
        for id in parameters(operation, tensors) {
            let unit = unit(&tensors[id as usize].name);
            match all.last_mut().filter(|stretch| stretch.unit == unit) {
                Some(stretch) => {
                    stretch.last = at;
                    if !stretch.parameters.contains(&id) {
                        stretch.parameters.push(id);
                    }
                }
                None => {
                    let phase = operation.phase();
                    all.push(Stretch { unit, first: at, last: at, phase, parameters: Vec::from([id]) });
                }
            }
        }
    }
    all
}

/// Adds the exchanges that gather parameters, and lets operations read gathered ones.
pub(super) fn gather(mut operations: Vec<Operation>, tensors: &mut Vec<Tensor>, ranks: Ranks) -> Vec<Operation> {
    let mut starts: BTreeMap<usize, Vec<Operation>> = BTreeMap::new();
    let mut ends: BTreeMap<usize, Vec<Operation>> = BTreeMap::new();
    let mut gathered = Vec::new();
    let stretches = stretches(&operations, tensors);
    for (number, stretch) in stretches.iter().enumerate() {
        let pairs = stretch.parameters.iter().map(|&id| {
            let whole = (tensors.len() + gathered.len()) as TensorId;
            gathered.push(whole_of(&tensors[id as usize], ranks));
            (id, whole)
        });
        let pairs: Vec<(TensorId, TensorId)> = pairs.collect();
        let start = number.checked_sub(AHEAD).map_or(0, |before| stretches[before].first);
        for pairs in pairs.chunks(Ranks::MOST_TENSORS) {
            let row = tensors[pairs[0].0 as usize].row;
            let pair = Pair::new(Collective::Gather, stretch.phase, row, pairs);
            starts.entry(start).or_default().push(pair.begin);
            ends.entry(stretch.first).or_default().push(pair.end);
        }
        let reading = operations[stretch.first..=stretch.last].iter_mut();
        for operation in reading.filter(|it| !it.action.has_companions() && !it.action.is_exchange()) {
            for operand in &mut operation.reads {
                if let Some(&(_, whole)) = pairs.iter().find(|(id, _)| *id == operand.tensor) {
                    operand.tensor = whole;
                }
            }
        }
    }
    tensors.extend(gathered);
    let mut all = Vec::with_capacity(operations.len() + 2 * starts.len());
    for (at, operation) in operations.into_iter().enumerate() {
        // The exchange of this unit has started before, and is awaited before the next one starts.
        let (own, next) = (ends.remove(&at).unwrap_or_default(), starts.remove(&at).unwrap_or_default());
        let is_awaited_here = |begin: &Operation| {
            own.iter().any(|end| end.reads.starts_with(&begin.reads) && end.reads.ends_with(&begin.writes))
        };
        let (now, later): (Vec<Operation>, Vec<Operation>) = next.into_iter().partition(is_awaited_here);
        all.extend(now.into_iter().chain(own).chain(later));
        all.push(operation);
    }
    all
}

/// Returns the tensor in which a sharded parameter is gathered.
fn whole_of(parameter: &Tensor, ranks: Ranks) -> Tensor {
    Tensor {
        class: Class::Transient,
        part: Part::Staging,
        name: format!("{}.gathered", parameter.name),
        sharding: Sharding::Gathered(ranks.count),
        trained: false,
        ..parameter.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::unit;

    #[test]
    fn units_are_repeated_blocks_or_layers() {
        for (name, of) in [
            ("h[3].attn.c_attn.weight", "h[3]"),
            ("stage[0].block[1].conv2d[0].weight", "stage[0].block[1]"),
            ("stage[0].conv2d[1].weight", "stage[0]"),
            ("conv2d[1].weight", "conv2d[1]"),
            ("head.linear.weight", "head.linear"),
            ("wte.weight", "wte"),
            ("scale", "scale"),
        ] {
            assert_eq!(unit(name), of);
        }
    }
}
