//! Recurrent layers of several levels, and of samples first.

use crate::model::{Argument, Model, Node, ValueId};

const LAYERS: [&str; 4] = ["lstm", "gru", "rnn_tanh", "rnn_relu"];

/// Joins levels to one layer, and takes changes of the order of axes into it.
pub(super) fn compose(model: &mut Model) {
    let count = model.nodes.iter().filter(|node| LAYERS.contains(&&node.op[..])).count();
    // Every change removes an operation or a level, so that this ends.
    for _ in 0..3 * count {
        let layers: Vec<usize> =
            (0..model.nodes.len()).filter(|&index| LAYERS.contains(&&model.nodes[index].op[..])).collect();
        let changed = layers.into_iter().any(|index| {
            plain(model, index).or_else(|| joined(model, index)).or_else(|| samples_first(model, index)).is_some()
        });
        if !changed {
            break;
        }
    }
}

/// Returns the only node that reads a value. `None` if there are several, or the model returns it.
fn only_reader(model: &Model, value: ValueId) -> Option<usize> {
    let mut readers = (0..model.nodes.len()).filter(|&index| model.nodes[index].tensors().any(|input| input == value));
    match (readers.next(), readers.next()) {
        (Some(only), None) if !model.outputs.contains(&value) => Some(only),
        _ => None,
    }
}

fn is_read(model: &Model, value: ValueId) -> bool {
    model.outputs.contains(&value) || model.nodes.iter().any(|node| node.tensors().any(|input| input == value))
}

fn permutes(node: &Node, order: &[i64]) -> bool {
    node.op == "permute" && matches!(node.argument("dims"), Some(Argument::Ints(dims)) if dims[..] == *order)
}

/// Makes all that read a value read another one.
fn alias(model: &mut Model, value: ValueId, other: ValueId) {
    let change = |input: &mut ValueId| {
        if *input == value {
            *input = other;
        }
    };
    for node in &mut model.nodes {
        for (_, argument) in &mut node.arguments {
            match argument {
                Argument::Tensor(input) => change(input),
                Argument::Tensors(inputs) => inputs.iter_mut().flatten().for_each(change),
                _ => {}
            }
        }
    }
    model.outputs.iter_mut().for_each(change);
}

/// Removes the axis of directions: it was made for ONNX, and merged again.
fn plain(model: &mut Model, index: usize) -> Option<()> {
    let whole = *model.nodes[index].outputs.first()?;
    let split = only_reader(model, whole).filter(|&at| model.nodes[at].op == "reshape")?;
    let turned =
        only_reader(model, model.nodes[split].outputs[0]).filter(|&at| permutes(&model.nodes[at], &[0, 2, 1, 3]))?;
    let mut last = only_reader(model, model.nodes[turned].outputs[0])?;
    if permutes(&model.nodes[last], &[0, 2, 1, 3]) {
        last = only_reader(model, model.nodes[last].outputs[0])?;
    } else if model.values[model.nodes[turned].outputs[0]].shape.get(1) != Some(&1) {
        return None;
    }
    let result = model.nodes[last].outputs[0];
    let is_merged = matches!(&model.nodes[last].op[..], "reshape" | "squeeze" | "select");
    if !is_merged || model.values[result].shape != model.values[whole].shape {
        return None;
    }
    alias(model, result, whole);
    for at in [last, turned, split] {
        model.nodes[at].arguments.clear();
    }
    Some(())
}

fn set(node: &mut Node, name: &str, value: Argument) {
    if let Some((_, argument)) = node.arguments.iter_mut().find(|(other, _)| other == name) {
        *argument = value;
    }
}

fn int(node: &Node, name: &str) -> Option<i64> {
    match node.argument(name)? {
        Argument::Int(number) => Some(*number),
        _ => None,
    }
}

/// Returns the states before the first step that a layer reads.
fn states(node: &Node) -> Vec<ValueId> {
    match node.argument("hx") {
        Some(Argument::Tensors(states)) => states.iter().copied().flatten().collect(),
        Some(Argument::Tensor(state)) => vec![*state],
        _ => Vec::new(),
    }
}

/// Joins a layer with the one of the same module that reads it.
fn joined(model: &mut Model, index: usize) -> Option<()> {
    let first = model.nodes[index].clone();
    let mut between = *first.outputs.first()?;
    let mut next = only_reader(model, between)?;
    let mut dropout = (Argument::Float(0.0), Argument::Bool(false));
    if let (dropped, Some(value)) = (&model.nodes[next], model.nodes[next].tensor("input"))
        && dropped.op == "dropout"
        && value == between
    {
        dropout = (dropped.argument("p")?.clone(), dropped.argument("train")?.clone());
        between = *dropped.outputs.first()?;
        next = only_reader(model, between)?;
    }
    let second = model.nodes[next].clone();
    // Three levels have one dropout between all of them.
    let inner = first.argument("dropout").filter(|_| int(&first, "num_layers") > Some(1));
    if inner.is_some_and(|inner| *inner != dropout.0) {
        return None;
    }
    let same =
        ["bidirectional", "has_biases", "batch_first"].iter().all(|name| first.argument(name) == second.argument(name));
    let is_alike =
        first.op == second.op && same && first.path() == second.path() && second.tensor("input") == Some(between);
    let ends_are_read = first.outputs[1..].iter().chain(&second.outputs[1..]).any(|&state| is_read(model, state));
    let (Some(Argument::Tensors(a)), Some(Argument::Tensors(b))) =
        (first.argument("params"), second.argument("params"))
    else {
        return None;
    };
    let widths = [a, b].map(|params| params.get(1).copied().flatten().map(|hidden| model.values[hidden].shape.clone()));
    let begins = states(&first);
    let zeros = |value: &ValueId, model: &Model| {
        let maker = model.nodes.iter().position(|node| node.outputs.contains(value) && node.op == "zeros")?;
        only_reader(model, *value).map(|_| maker)
    };
    let makers: Vec<usize> = begins.iter().map(|state| zeros(state, model)).collect::<Option<_>>()?;
    states(&second).iter().map(|state| zeros(state, model)).collect::<Option<Vec<_>>>()?;
    if !is_alike || ends_are_read || widths[0] != widths[1] || begins.is_empty() {
        return None;
    }
    let layers = int(&first, "num_layers")? + int(&second, "num_layers")?;
    for (maker, state) in makers.into_iter().zip(&begins) {
        let shape = &mut model.values[*state].shape;
        let each = shape.first()? / u64::try_from(int(&first, "num_layers")?).ok()?.max(1);
        *shape.first_mut()? = each * layers as u64;
        let sizes = shape.iter().map(|&size| size as i64).collect();
        set(&mut model.nodes[maker], "size", Argument::Ints(sizes));
    }
    let params = a.iter().chain(b).copied().collect();
    let ends = model.values[begins[0]].shape.clone();
    for &state in &second.outputs[1..] {
        model.values[state].shape.clone_from(&ends);
    }
    let node = &mut model.nodes[next];
    set(node, "params", Argument::Tensors(params));
    set(node, "num_layers", Argument::Int(layers));
    set(node, "dropout", dropout.0);
    set(node, "train", dropout.1);
    set(node, "input", Argument::Tensor(first.tensor("input")?));
    set(node, "hx", first.argument("hx")?.clone());
    model.nodes[index].arguments.clear();
    model.nodes[index].op = String::from("joined");
    Some(())
}

/// Takes the exchange of samples and steps before and after a layer into it.
fn samples_first(model: &mut Model, index: usize) -> Option<()> {
    let node = &model.nodes[index];
    let whole = *node.outputs.first()?;
    if node.argument("batch_first") != Some(&Argument::Bool(false)) {
        return None;
    }
    let before = model.nodes.iter().find(|other| other.outputs.first() == node.tensor("input").as_ref())?;
    let source = before.tensor("self").filter(|_| permutes(before, &[1, 0, 2]))?;
    let after = only_reader(model, whole).filter(|&at| permutes(&model.nodes[at], &[1, 0, 2]))?;
    let result = model.nodes[after].outputs[0];
    model.values[whole].shape.swap(0, 1);
    set(&mut model.nodes[index], "input", Argument::Tensor(source));
    set(&mut model.nodes[index], "batch_first", Argument::Bool(true));
    alias(model, result, whole);
    model.nodes[after].arguments.clear();
    Some(())
}
