//! The recurrent layers that the CPU runs step by step, as PyTorch composes them.

use super::super::call::{Outputs, Result, malformed};
use super::super::meta::{Backward, Eager, Gradients, Tensor};

/// Recurrent layers, as they are called.
pub(super) struct Cells {
    /// `[T, B, C]`, or `[B, T, C]` if the batch is first.
    pub input: Tensor,
    pub states: Vec<Tensor>,
    pub parameters: Vec<Tensor>,
    pub layers: usize,
    pub directions: usize,
    /// The width of a state.
    pub hidden: u64,
    /// The parameters of one layer and direction.
    pub each: usize,
    pub drops: bool,
    pub is_batch_first: bool,
}

/// The most steps of all layers and directions: each is a dozen operations.
const MOST_STEPS: u64 = 1 << 20;

/// `gru`: the products with the inputs of all steps at once, then one cell a step.
pub(super) fn gru_cpu(e: &Eager, cells: &Cells) -> Outputs {
    let mut input = if cells.is_batch_first { e.transposed(&cells.input, 0, 1) } else { cells.input.clone() };
    let Some(state) = cells.states.first() else { return malformed("has no state") };
    let steps = input.shape.first().copied().unwrap_or(0);
    let runs = (cells.layers as u64).saturating_mul(cells.directions as u64);
    if state.shape.first() != Some(&runs) || steps.saturating_mul(runs) > MOST_STEPS {
        return malformed(format!("has {steps} steps of {runs} layers, and states of shape {:?}", state.shape));
    }
    let states = pieces(e, state, 0, runs, false);
    let mut ends = Vec::new();
    for layer in 0..cells.layers {
        let mut outputs = Vec::new();
        for direction in 0..cells.directions {
            let run = layer * cells.directions + direction;
            let (Some(weights), Some(state)) =
                (cells.parameters.get(run * cells.each..(run + 1) * cells.each), states.get(run))
            else {
                return malformed("has too few parameters");
            };
            let (output, end) = layer_of_cells(e, &input, state, weights, direction == 1, cells.hidden)?;
            outputs.push(output);
            ends.push(end);
        }
        input = match &outputs[..] {
            [only] => only.clone(),
            several => e.joined(several, 2)?,
        };
        if cells.drops && layer + 1 < cells.layers {
            let noise = e.like(&input);
            input = e.multiplied(Some(&input), Some(&noise), input.dtype)?;
        }
    }
    let end = e.stacked(&ends, 0)?;
    Ok(vec![if cells.is_batch_first { e.transposed(&input, 0, 1) } else { input }, end])
}

fn layer_of_cells(
    e: &Eager,
    input: &Tensor,
    state: &Tensor,
    weights: &[Tensor],
    is_reversed: bool,
    hidden: u64,
) -> Result<(Tensor, Tensor)> {
    let (first, second, biases) = match weights {
        [first, second] => (first, second, [None, None]),
        [first, second, a, b, ..] => (first, second, [Some(a), Some(b)]),
        _ => return malformed("has a layer of one parameter"),
    };
    if second.shape.first() != Some(&hidden.saturating_mul(3)) {
        return malformed(format!("has a weight of shape {:?}", second.shape));
    }
    let steps = input.shape.first().copied().unwrap_or(0);
    let products = e.linear(input, first, biases[0])?;
    let mut inputs = pieces(e, &products, 0, steps, false);
    drop(products);
    if is_reversed {
        inputs.reverse();
    }
    let mut state = state.clone();
    let mut outputs = Vec::new();
    for input in &inputs {
        state = cell(e, input, &state, second, biases[1])?;
        outputs.push(state.clone());
    }
    if is_reversed {
        outputs.reverse();
    }
    Ok((e.stacked(&outputs, 0)?, state))
}

/// One step: gates of the input that are already products, and those of the state.
fn cell(e: &Eager, input: &Tensor, state: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result {
    let of_input = pieces(e, input, 1, 3, true);
    let of_state = pieces(e, &e.linear(state, weight, bias)?, 1, 3, true);
    let (Some([a, b, c]), Some([x, y, z])) = (of_input.first_chunk::<3>(), of_state.first_chunk::<3>()) else {
        return malformed("has other than three gates");
    };
    add_to(e, x, a);
    sigmoid(e, x);
    add_to(e, y, b);
    sigmoid(e, y);
    multiply(e, z, x);
    let candidate = e.added(c, z)?;
    sigmoid(e, &candidate);
    let result = e.elementwise(&[state, &candidate], state.dtype)?;
    e.record(&[&result], &[Some(state), Some(&candidate)], Vec::new(), |b| {
        vec![b.needs(0).then(|| b.gradient.clone()), b.needs(1).then(|| b.e.like(b.gradient))]
    });
    multiply(e, &result, y);
    add_to(e, &result, &candidate);
    Ok(result)
}

/// Cuts a tensor along a dimension. The parts are no views in the sense of autograd: they may be changed in place.
fn pieces(e: &Eager, tensor: &Tensor, dim: usize, count: u64, keeps_dim: bool) -> Vec<Tensor> {
    let Some(&size) = tensor.shape.get(dim) else { return Vec::new() };
    let part = |_| {
        if !keeps_dim {
            return tensor.without(dim);
        }
        let mut shape = tensor.shape.clone();
        shape[dim] = size / count.max(1);
        tensor.alias(shape, tensor.strides.clone())
    };
    let parts: Vec<Tensor> = (0..count).map(part).collect();
    let shapes: Vec<Vec<u64>> = parts.iter().map(|part| part.shape.clone()).collect();
    let whole = tensor.shape.clone();
    e.record(&parts.iter().collect::<Vec<_>>(), &[Some(tensor)], Vec::new(), move |b| {
        let missing = shapes.iter().zip(b.gradients).filter(|(_, gradient)| gradient.is_none());
        let _zeros: Vec<Tensor> = missing.map(|(shape, _)| b.fresh(shape)).collect();
        vec![Some(b.fresh(&whole))]
    });
    parts
}

fn add_to(e: &Eager, target: &Tensor, other: &Tensor) {
    e.record(&[target], &[Some(target), Some(other)], Vec::new(), |b| {
        vec![b.needs(0).then(|| b.gradient.clone()), b.needs(1).then(|| b.gradient.clone())]
    });
}

/// `sigmoid_` or `tanh_`: the result is kept.
fn sigmoid(e: &Eager, target: &Tensor) {
    e.record(&[target], &[Some(target)], vec![Some(target)], |b| vec![b.needs(0).then(|| b.e.like(b.gradient))]);
}

/// `mul_`: a copy of the target is kept if the factor needs a gradient.
fn multiply(e: &Eager, target: &Tensor, factor: &Tensor) {
    let copy = (factor.requires_grad() && e.records()).then(|| e.like(target));
    e.record(
        &[target],
        &[Some(target), Some(factor)],
        vec![copy.as_ref(), Some(factor)],
        |b: &Backward<'_>| -> Gradients {
            vec![
                b.needs(0).then(|| b.e.product(b.gradient, b.saved(1))),
                b.needs(1).then(|| b.e.product(b.gradient, b.saved(0))),
            ]
        },
    );
}
