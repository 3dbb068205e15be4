//! Recurrent layers: the fused ones of cuDNN, and those of the CPU.

use super::super::Device;
use super::super::call::{Call, Fault, Outputs, Result, malformed};
use super::super::layout::dense;
use super::super::meta::{Backward, Eager, Tensor};
use crate::model::Dtype;

/// A recurrent layer, as it is called.
struct Layers {
    /// `[T, B, C]`, or `[B, T, C]` if the batch is first.
    input: Tensor,
    states: Vec<Tensor>,
    parameters: Vec<Tensor>,
    layers: usize,
    directions: usize,
    /// The width of a state.
    hidden: u64,
    /// The parameters of one layer and direction.
    each: usize,
    drops: bool,
    is_batch_first: bool,
}

fn read(c: &Call<'_>) -> Result<Layers> {
    let states: Vec<Tensor> = c.tensors("hx")?.into_iter().flatten().collect();
    let parameters: Vec<Tensor> = c.tensors("params")?.into_iter().flatten().collect();
    let directions = if c.flag("bidirectional", false) { 2 } else { 1 };
    let layers = c.int("num_layers").and_then(|layers| usize::try_from(layers).ok()).unwrap_or(1);
    let input = c.tensor("input")?;
    let runs = layers.checked_mul(directions).filter(|&runs| runs > 0 && parameters.len().is_multiple_of(runs));
    let (Some(runs), Some(&hidden), 3) = (runs, states.first().and_then(|state| state.shape.get(2)), input.rank())
    else {
        return malformed("has states or parameters of other shapes than its layers");
    };
    Ok(Layers {
        each: parameters.len() / runs,
        drops: c.flag("train", false) && c.number("dropout").unwrap_or(0.0) > 0.0,
        is_batch_first: c.flag("batch_first", false),
        input,
        states,
        parameters,
        layers,
        directions,
        hidden,
    })
}

/// `lstm`, `gru`, `rnn_tanh`, `rnn_relu`.
pub(super) fn recurrent(c: &Call<'_>) -> Outputs {
    let layers = read(c)?;
    match (c.e.rules.device, &c.node.op[..]) {
        (Device::Cuda, _) => c.e.cudnn(layers, c.node.op == "lstm"),
        (Device::Cpu, "lstm") => c.e.lstm_cpu(layers),
        (Device::Cpu, "gru") => super::cells::gru_cpu(c.e, &layers.by_cells()),
        _ => Err(Fault::Unknown),
    }
}

impl Layers {
    fn by_cells(self) -> super::cells::Cells {
        super::cells::Cells {
            input: self.input,
            states: self.states,
            parameters: self.parameters,
            layers: self.layers,
            directions: self.directions,
            hidden: self.hidden,
            each: self.each,
            drops: self.drops,
            is_batch_first: self.is_batch_first,
        }
    }
}

impl Eager {
    /// Runs all layers as one operation of cuDNN. What it keeps for itself is estimated, since the library does not say.
    fn cudnn(&self, layers: Layers, is_lstm: bool) -> Outputs {
        let mut states = Vec::with_capacity(layers.states.len());
        for state in layers.states {
            states.extend(self.lowered([Some(state)]).into_iter().flatten());
        }
        let [Some(input)] = self.lowered([Some(layers.input)]) else { return malformed("has no input") };
        let input = if layers.is_batch_first { self.transposed(&input, 0, 1) } else { input };
        let &[steps, batch, _] = &input.shape[..] else { return malformed("has an input without time steps") };
        // A copy that is time-major, for as long as the call takes.
        let is_copied = !input.is_contiguous() && !self.rules.tracker;
        let _packed = is_copied.then(|| self.like_contiguous(&input));
        let width = layers.hidden.saturating_mul(layers.directions as u64);
        let output = self.new_tensor(&[steps, batch, width], input.dtype);
        let ends: Vec<Tensor> = states.iter().map(|state| self.new_tensor(&state.shape, input.dtype)).collect();
        let values = if is_lstm { 6 } else { 5 };
        let sizes = [steps, batch, layers.layers as u64, width, values];
        let reserve = (!self.rules.tracker).then(|| self.new_tensor(&sizes, input.dtype));
        let shapes: Vec<Vec<u64>> = layers.parameters.iter().map(|parameter| parameter.shape.clone()).collect();
        let total = layers.parameters.iter().fold(0u64, |sum, parameter| sum.saturating_add(parameter.elements()));
        let state_count = states.len();
        let mut saved = vec![Some(&input), Some(&output), reserve.as_ref()];
        saved.extend(states.iter().map(Some));
        let outputs: Vec<&Tensor> = std::iter::once(&output).chain(&ends).collect();
        let inputs: Vec<Option<&Tensor>> =
            std::iter::once(&input).chain(&states).chain(&layers.parameters).map(Some).collect();
        self.record(&outputs, &inputs, saved, move |b| {
            let (Some(input), Some(output)) = (b.saved(0), b.saved(1)) else { return Vec::new() };
            let is_copied = !input.is_contiguous() && !b.e.rules.tracker;
            let _packed = is_copied.then(|| [b.e.like_contiguous(input), b.e.like_contiguous(output)]);
            let mut gradients = vec![Some(b.e.like_contiguous(input))];
            gradients.extend((3..3 + state_count).map(|index| b.saved(index).map(|state| b.e.like_contiguous(state))));
            // One buffer holds the gradients of all weights.
            let flat = b.e.new_tensor(&[total], input.dtype);
            gradients.extend(shapes.iter().map(|shape| Some(flat.alias(shape.clone(), dense(shape)))));
            gradients
        });
        let output = if layers.is_batch_first { self.transposed(&output, 0, 1) } else { output };
        Ok(std::iter::once(output).chain(ends).collect())
    }

    fn like_contiguous(&self, other: &Tensor) -> Tensor {
        self.new_tensor(&other.shape, other.dtype)
    }

    /// Runs one operation a layer and direction, as oneDNN does.
    fn lstm_cpu(&self, layers: Layers) -> Outputs {
        let mut input = match layers.is_batch_first {
            true => self.contiguous(&self.transposed(&layers.input, 0, 1)),
            false => layers.input.clone(),
        };
        let &[steps, batch, _] = &input.shape[..] else { return malformed("has an input without time steps") };
        let hidden = layers.hidden;
        let mut ends: Vec<[Tensor; 2]> = Vec::new();
        for layer in 0..layers.layers {
            let mut outputs = Vec::new();
            for direction in 0..layers.directions {
                let first = (layer * layers.directions + direction) * layers.each;
                let Some(weights) = layers.parameters.get(first..first + layers.each) else {
                    return malformed("has too few parameters");
                };
                let output = self.new_tensor(&[steps, batch, hidden], input.dtype);
                let last =
                    [self.new_tensor(&[batch, hidden], input.dtype), self.new_tensor(&[batch, hidden], input.dtype)];
                let shapes: Vec<Vec<u64>> = weights.iter().map(|weight| weight.shape.clone()).collect();
                let mut saved = vec![Some(&input), Some(&output), Some(&last[0]), Some(&last[1])];
                saved.extend(layers.states.iter().map(Some));
                let inputs: Vec<Option<&Tensor>> = std::iter::once(&input).chain(weights).map(Some).collect();
                self.record(&[&output, &last[0], &last[1]], &inputs, saved, move |b| {
                    onednn_gradients(b, &shapes, [batch, hidden])
                });
                outputs.push(output);
                ends.push(last);
            }
            input = match &outputs[..] {
                [only] => only.clone(),
                several => self.joined(several, 2)?,
            };
            if layers.drops && layer + 1 < layers.layers {
                let noise = self.like(&input);
                input = self.multiplied(Some(&input), Some(&noise), input.dtype)?;
            }
        }
        let mut results = vec![if layers.is_batch_first { self.transposed(&input, 0, 1) } else { input }];
        for state in 0..2 {
            let all: Vec<Tensor> = ends.iter().map(|ends| ends[state].clone()).collect();
            results.push(self.stacked(&all, 0)?);
        }
        Ok(results)
    }
}

fn onednn_gradients(b: &Backward<'_>, shapes: &[Vec<u64>], state: [u64; 2]) -> Vec<Option<Tensor>> {
    let Some(input) = b.saved(0) else { return Vec::new() };
    let new = |shape: &[u64], dtype: Dtype| Some(b.e.new_tensor(shape, dtype));
    let mut gradients = vec![new(&input.shape, input.dtype)];
    gradients.extend(shapes.iter().take(3).map(|shape| new(shape, input.dtype)));
    // Both biases have one gradient.
    if shapes.len() == 4 {
        gradients.push(gradients[3].clone());
    }
    // Those of the two states, which nothing reads.
    gradients.extend([new(&state, input.dtype), new(&state, input.dtype)]);
    gradients
}
