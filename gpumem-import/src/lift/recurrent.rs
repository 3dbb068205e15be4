//! Recurrent layers.

use super::inputs::of_one;
use super::{Arguments, Layer, Lift, Result, refuse};
use crate::model::{Argument, Node, ValueId};

/// Lifts a recurrent layer, with its last states if something reads them.
pub(super) fn lift(lift: &mut Lift<'_>, index: usize, node: &Node, op: &str) -> Result {
    let kind = match op {
        "lstm" => "Lstm",
        "gru" => "Gru",
        _ => "Rnn",
    };
    let Some(input) = node.tensor("input") else { return refuse("its sequences are packed; use padded ones") };
    // Axes of a sample are the same, whatever comes first; but the batch must be where the layer has it.
    let place = usize::from(!node.is("batch_first", false));
    match lift.batch.axes[input] {
        Some(axis) if axis.dim == place && axis.before * axis.after == 1 => {}
        _ => return refuse("its samples are merged with another axis, or its steps are the batch"),
    }
    let begins_at_zero = match node.argument("hx") {
        Some(Argument::Tensors(states)) => states.iter().flatten().all(|&state| is_zero(lift, state)),
        Some(Argument::Tensor(state)) => is_zero(lift, *state),
        _ => false,
    };
    if !begins_at_zero {
        return refuse("its first states are not zero");
    }
    let Some(Argument::Tensors(parameters)) = node.argument("params") else { return refuse("it has no parameters") };
    let keys: Option<Vec<&str>> =
        parameters.iter().map(|value| lift.state((*value)?).map(|state| &state.key[..])).collect();
    let (Some(keys), Some(Some(first)), Some(Some(second))) = (keys, parameters.first(), parameters.get(1)) else {
        return refuse("its parameters are computed");
    };
    let gates = match op {
        "lstm" => 4,
        "gru" => 3,
        _ => 1,
    };
    let (&[rows, _], &[_, projected]) = (&lift.model.values[*first].shape[..], &lift.model.values[*second].shape[..])
    else {
        return refuse("its weights are no matrices");
    };
    let hidden = rows / gates;
    let layers = node.int("num_layers").unwrap_or(1);
    let is_bidirectional = node.is("bidirectional", false);
    let layer = of_one(lift, node, kind, "input")?
        .with(hidden)
        .option("layers", layers, 1i64)
        .option("bias", node.is("has_biases", true), true)
        .option("dropout", if layers > 1 { node.float("dropout").unwrap_or(0.0) } else { 0.0 }, 0.0)
        .option("bidirectional", is_bidirectional, false);
    let layer = match op {
        "lstm" => layer.option("proj_size", if projected == hidden { 0 } else { projected }, 0u64),
        "rnn_relu" => layer.set("nonlinearity", "relu"),
        _ => layer,
    };
    // The parameters of one layer: the first one names them all.
    let output = layer.output;
    lift.add(index, layer.key("weight_ih_l0", keys.first().copied()));
    let is_read = |state: &ValueId| !lift.readers[*state].is_empty() || lift.model.outputs.contains(state);
    match (node.outputs.get(1).filter(|state| is_read(state)), node.outputs.get(2).filter(|state| is_read(state))) {
        (_, Some(_)) => refuse("its last cells are read; read the last step of its output instead"),
        (Some(&state), None) => last_state(lift, index, [output, state], layers, is_bidirectional),
        (None, None) => Ok(()),
    }
}

fn is_zero(lift: &Lift<'_>, value: ValueId) -> bool {
    lift.origins[value].numbers().is_some_and(|tensor| tensor.numbers().iter().all(|&number| number == 0.0))
}

/// Adds the last states: the last step of the output, and of the reverse direction the first one.
fn last_state(
    lift: &mut Lift<'_>,
    index: usize,
    [output, state]: [ValueId; 2],
    layers: i64,
    is_bidirectional: bool,
) -> Result {
    let &[steps, width] = &lift.sample(output)[..] else { return refuse("its input is no sequence") };
    let directions = if is_bidirectional { 2 } else { 1 };
    // Most models read one state at a time: that is a step of the output.
    let chosen = |&reader: &usize| {
        let node = &lift.model.nodes[reader];
        let at = node
            .int("index")
            .filter(|_| node.op == "select" && crate::batch::index(node.int("dim").unwrap_or(0), 3) == 0)?;
        let states = layers.checked_mul(directions)?;
        let at = if at < 0 { at.checked_add(states)? } else { at };
        let direction = at.checked_sub(states - directions)?;
        (0..directions).contains(&direction).then_some((reader, direction))
    };
    let readers: Option<Vec<(usize, i64)>> = lift.readers[state].iter().map(chosen).collect();
    match readers.filter(|_| !lift.model.outputs.contains(&state)) {
        Some(readers) => {
            for (reader, direction) in readers {
                let selected = lift.model.nodes[reader].outputs[0];
                select_state(lift, index, [output, selected], width, is_bidirectional.then_some(direction));
                lift.taken[reader] = true;
            }
            return Ok(());
        }
        None if layers != 1 => {
            return refuse("its last states of several layers are read; read the last step of its output instead");
        }
        None => {}
    }
    let last = steps.saturating_sub(1);
    if !is_bidirectional {
        lift.add(index, Layer::new("Slice", output, state).with(last));
        return Ok(());
    }
    let half = width / 2;
    let whole = [lift.between(&[1, width]), lift.between(&[1, width])];
    lift.add(index, Layer::new("Slice", output, whole[0]).with(last));
    lift.add(index, Layer::new("Slice", output, whole[1]).with(0i64).with(1i64));
    let own = [lift.between(&[1, half]), lift.between(&[1, half])];
    lift.add(index, Layer::new("Slice", whole[0], own[0]).with(0i64).with(half).set("dim", 2i64));
    lift.add(index, Layer::new("Slice", whole[1], own[1]).with(half).set("dim", 2i64));
    lift.add(index, Layer::join("Concat", own.to_vec(), state).set("dim", 1i64));
    Ok(())
}

/// Adds the last state of one direction. `None` if there is only one.
fn select_state(
    lift: &mut Lift<'_>,
    index: usize,
    [output, selected]: [ValueId; 2],
    width: u64,
    direction: Option<i64>,
) {
    let Some(direction) = direction else {
        return lift.add(index, Layer::new("Select", output, selected).with(-1i64));
    };
    let (step, half) = (lift.between(&[width]), width / 2);
    lift.add(index, Layer::new("Select", output, step).with(if direction == 0 { -1i64 } else { 0 }));
    let layer = Layer::new("Slice", step, selected);
    lift.add(index, if direction == 0 { layer.with(0i64).with(half) } else { layer.with(half) });
}
