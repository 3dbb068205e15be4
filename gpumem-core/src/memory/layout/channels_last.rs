//! The choice of tensors that are stored channels last.
//!
//! The layout costs no memory: a tensor takes as many bytes in either, so that a backend chooses after the plan is made.

use crate::memory::place::Placed;
use crate::program::{Action, ChannelOrder, Class, Op, Operation, Pass, Program, Slot, Tensor, TensorId};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Stores maps, and the weights of the convolutions between them, channels last, as tensor cores read them. A tensor is stored so if all
/// operations that touch it support that. What the host feeds and fetches keeps its layout, except for weights: those must be converted on their
/// way to and from the host.
///
/// `programs` are all of a network's programs that share an arena: a parameter has one layout in all of them. They stay unchanged if no
/// convolution gains from it, or if a map or weight has another layout than the one that lowering chooses: somebody has chosen already.
pub fn channels_last(programs: &mut [&mut Placed]) {
    let is_chosen = |tensor: &Tensor| {
        let has_channels =
            tensor.batched && tensor.shape.as_map().is_some() || !tensor.batched && tensor.shape.rank() == 4;
        has_channels && !tensor.layout.is_dense()
    };
    if programs.iter().any(|placed| placed.program.tensors.iter().any(is_chosen)) {
        return;
    }
    let inner = |placed: &&mut Placed| tensors(&placed.program, is_inner_map);
    let mut maps: Vec<BTreeSet<TensorId>> = programs.iter().map(inner).collect();
    let mut weights: BTreeSet<u64> = programs.iter().flat_map(|placed| weights(placed)).collect();
    // A tensor that does not fit is changed back, after which others may not fit any more.
    loop {
        let before = (maps.iter().map(BTreeSet::len).sum::<usize>(), weights.len());
        for (placed, maps) in programs.iter_mut().zip(&mut maps) {
            let owners = owners(placed, &weights);
            for (id, tensor) in (0..).zip(&mut placed.program.tensors) {
                let is_last = maps.contains(&id) || owners.contains_key(&id);
                tensor.layout.order = if is_last { ChannelOrder::ChannelsLast } else { ChannelOrder::ChannelsFirst };
            }
            for id in placed.program.operations.iter().flat_map(|operation| unfit(&placed.program, operation)) {
                maps.remove(&id);
                owners.get(&id).map(|weight| weights.remove(weight));
            }
        }
        if before == (maps.iter().map(BTreeSet::len).sum(), weights.len()) {
            break;
        }
    }
    let any_gains = |placed: &&mut Placed| placed.program.operations.iter().any(|it| gains(&placed.program, it));
    if !programs.iter().any(any_gains) {
        let all = programs.iter_mut().flat_map(|placed| &mut placed.program.tensors);
        all.for_each(|tensor| tensor.layout.order = ChannelOrder::ChannelsFirst);
    }
}

/// True if an operation is a convolution all of whose maps are channels last.
fn gains(program: &Program, operation: &Operation) -> bool {
    let is_last = |id: TensorId| program.tensor(id).layout.order == ChannelOrder::ChannelsLast;
    let is_one = convolution(operation).is_some() && operation.tensors().any(is_last);
    is_one && maps(program, operation).all(|id| is_last(id) || program.tensor(id).shape.is_same_in_both_orders())
}

/// Returns the maps that an operation touches.
fn maps(program: &Program, operation: &Operation) -> impl Iterator<Item = TensorId> {
    operation.tensors().filter(|&id| program.tensor(id).batched && program.tensor(id).shape.as_map().is_some())
}

fn tensors(program: &Program, chosen: fn(&Program, TensorId) -> bool) -> BTreeSet<TensorId> {
    (0..program.tensors.len() as TensorId).filter(|&id| chosen(program, id)).collect()
}

/// True for a map that only operations see, and whose two layouts differ.
fn is_inner_map(program: &Program, id: TensorId) -> bool {
    let tensor = program.tensor(id);
    let is_map = tensor.batched && tensor.shape.as_map().is_some() && !tensor.shape.is_same_in_both_orders();
    matches!(tensor.class, Class::Transient | Class::Host)
        && is_map
        && tensor.layout.is_dense()
        && !program.results.contains(&id)
}

/// Returns the pass of a convolution or its transpose; `None` for any other operation.
fn convolution(operation: &Operation) -> Option<Pass> {
    match &operation.action {
        Action::Run { op: Op::Convolution(_), pass } => Some(*pass),
        _ => None,
    }
}

/// Returns the weight that a convolution reads, or whose gradient it computes. `None` if it has none.
fn weight(operation: &Operation) -> Option<TensorId> {
    operation.read(Slot::Input(1)).or(operation.written(Slot::InputGradient(1)))
}

/// Returns the pass of an operation that computes a weight from its parameters, or propagates a gradient to them. `None` for any other operation.
fn reparametrization(operation: &Operation) -> Option<Pass> {
    match &operation.action {
        Action::Run { op: Op::Reparametrize(_), pass } => Some(*pass),
        _ => None,
    }
}

/// Returns the parameter that a weight is computed from or gathered from: itself, if it is one.
fn origin(program: &Program, weight: TensorId) -> TensorId {
    let exchanges = program.operations.iter().filter(|operation| operation.action.is_exchange());
    let gathered =
        exchanges.flat_map(Operation::exchanged).find(|&(sent, received)| received == weight && sent != weight);
    if let Some((sent, _)) = gathered {
        return sent;
    }
    let is_made = |operation: &&Operation| {
        reparametrization(operation).is_some_and(|pass| pass != Pass::Backward)
            && operation.written(Slot::Output) == Some(weight)
    };
    let maker = program.operations.iter().filter(|_| program.tensor(weight).class == Class::Transient).find(is_made);
    maker.and_then(|operation| operation.read(Slot::Input(0))).unwrap_or(weight)
}

/// Returns the offsets of the weights of a program's convolutions, if their two layouts differ. A weight that is computed stands for its
/// parameter.
fn weights(placed: &Placed) -> impl Iterator<Item = u64> {
    let forward = placed.program.operations.iter().filter(|operation| convolution(operation) == Some(Pass::Forward));
    forward.filter_map(|operation| operation.read(Slot::Input(1))).filter_map(|id| {
        let id = origin(&placed.program, id);
        let tensor = placed.program.tensor(id);
        let is_of_maps = tensor.class == Class::Parameter && tensor.shape.rank() == 4;
        let has_two = is_of_maps && !tensor.shape.is_same_in_both_orders();
        (has_two && tensor.layout.is_dense()).then(|| placed.offsets[id as usize])
    })
}

/// Returns the tensors that must have the layout of the weights at these offsets. Each comes with the offset of its weight. They are the weights,
/// what is computed from them, their gradients, and what the optimizer keeps for each of their elements.
fn owners(placed: &Placed, weights: &BTreeSet<u64>) -> BTreeMap<TensorId, u64> {
    let program = &placed.program;
    let place = |id: TensorId| {
        let place = placed.offsets[id as usize];
        (program.tensor(id).class == Class::Parameter && weights.contains(&place)).then_some(place)
    };
    let all = 0..program.tensors.len() as TensorId;
    let mut owners: BTreeMap<TensorId, u64> = all.filter_map(|id| Some((id, place(id)?))).collect();
    for update in program.operations.iter().filter(|operation| operation.action.has_companions()) {
        let Some((weight, place)) = update.read(Slot::Parameter).and_then(|id| Some((id, place(id)?))) else {
            continue;
        };
        let shape = program.tensor(weight).shape;
        let operands = update.reads.iter().chain(&update.writes).filter(|operand| operand.slot != Slot::State);
        let alike = operands.map(|operand| operand.tensor).filter(|&id| program.tensor(id).shape == shape);
        owners.extend(alike.map(|id| (id, place)));
    }
    for collect in program.operations.iter().filter(|operation| operation.action == Action::Collect) {
        let pair = collect.read(Slot::Gradient).zip(collect.written(Slot::ParameterGradient));
        if let Some((part, &place)) = pair.and_then(|(part, sum)| Some((part, owners.get(&sum)?))) {
            owners.insert(part, place);
        }
    }
    let exchanges = program.operations.iter().filter(|operation| operation.action.is_exchange());
    for (sent, received) in exchanges.flat_map(Operation::exchanged) {
        let place = owners.get(&sent).or(owners.get(&received)).copied();
        owners.extend([sent, received].into_iter().filter_map(|id| Some((id, place?))));
    }
    for operation in program.operations.iter().filter(|operation| reparametrization(operation).is_some()) {
        let Some(parameter) = operation.read(Slot::Input(0)) else { continue };
        let Some(place) = place(parameter) else { continue };
        let shape = program.tensor(parameter).shape;
        let alike = operation.tensors().filter(|&id| program.tensor(id).shape == shape);
        owners.extend(alike.map(|id| (id, place)));
    }
    owners
}

/// Returns the channels-last tensors of an operation that cannot work on all of them. For a convolution between maps of other layouts, it is the
/// weight.
fn unfit(program: &Program, operation: &Operation) -> Vec<TensorId> {
    let is_last = |id: TensorId| program.tensor(id).layout.order == ChannelOrder::ChannelsLast;
    // A random draw depends on where an element is, and backends that store maps in other layouts must draw equal numbers.
    let draws = matches!(&operation.action, Action::Run { op, .. } if op.draws());
    if draws || !program.takes_layouts(operation) {
        return operation.tensors().filter(|&id| is_last(id)).collect();
    }
    let Some(weight) = weight(operation).filter(|&id| convolution(operation).is_some() && is_last(id)) else {
        return Vec::new();
    };
    if gains(program, operation) { Vec::new() } else { [weight].to_vec() }
}
