//! Normalisation, softmax and dropout.

use super::super::Device;
use super::super::call::{Call, Outputs, Result, malformed};
use super::super::meta::{Backward, Eager, Gradients, Tensor};
use super::elementwise::changed;
use crate::model::Dtype;

/// The input's gradient, and those of the two parameters.
fn with_parameters(b: &Backward<'_>, input: Option<Tensor>, shape: Option<&[u64]>, dtype: Dtype) -> Gradients {
    let parameter = |index: usize| shape.filter(|_| b.needs(index)).map(|shape| b.e.new_tensor(shape, dtype));
    let (first, second) = (parameter(1), parameter(2));
    vec![input, first, second]
}

impl Eager {
    fn batch_norm(&self, input: &Tensor, weight: Option<&Tensor>, bias: Option<&Tensor>, trains: bool) -> Tensor {
        let output = self.like(input);
        let channels = input.shape.get(1).copied().unwrap_or(1);
        let statistic = || trains.then(|| self.new_tensor(&[channels], Dtype::F32));
        let (mean, deviation) = (statistic(), statistic());
        let shape = weight.or(bias).map(|weight| weight.shape.clone());
        let saved = vec![Some(input), mean.as_ref(), deviation.as_ref(), weight];
        self.record(&[&output], &[Some(input), weight, bias], saved, move |b| {
            let input = b.saved(0).filter(|_| b.needs(0)).map(|input| b.e.like_as(input, b.gradient.dtype));
            with_parameters(b, input, shape.as_deref(), Dtype::F32)
        });
        output
    }
}

pub(super) fn batch_norm(c: &Call<'_>) -> Outputs {
    let (input, weight, bias) = (c.first()?, c.optional("weight")?, c.optional("bias")?);
    let trains = c.flag("training", c.flag("train", false));
    let output = c.e.batch_norm(&input, weight.as_ref(), bias.as_ref(), trains);
    let channels = input.shape.get(1).copied().unwrap_or(1);
    let more = c.node.outputs.iter().skip(1).map(|_| c.e.new_tensor(&[channels], Dtype::F32));
    Ok(std::iter::once(output).chain(more).collect())
}

/// `instance_norm`: a batch norm whose channels are those of all samples.
pub(super) fn instance_norm(c: &Call<'_>) -> Outputs {
    let (input, weight, bias) = (c.first()?, c.optional("weight")?, c.optional("bias")?);
    let &[samples, channels, ref rest @ ..] = &input.shape[..] else {
        return malformed(format!("normalises {:?}", input.shape));
    };
    let all = samples.saturating_mul(channels);
    let repeated = |tensor: Option<Tensor>| {
        let tensor = tensor?;
        let copies = c.e.new_tensor(&[all], tensor.dtype);
        c.e.record(&[&copies], &[Some(&tensor)], Vec::new(), super::views::zeros_of(tensor.shape.clone()));
        Some(copies)
    };
    let (weight, bias) = (repeated(weight), repeated(bias));
    let flat = c.e.viewed(&c.e.contiguous(&input), &[&[1, all], rest].concat())?;
    let output = c.e.batch_norm(&flat, weight.as_ref(), bias.as_ref(), true);
    Ok(vec![c.e.viewed(&output, &input.shape)?])
}

pub(super) fn layer_norm(c: &Call<'_>) -> Outputs {
    let (input, weight, bias) = (c.first()?, c.optional("weight")?, c.optional("bias")?);
    let normalised = c.ints("normalized_shape").map_or(1, |shape| shape.len()).min(input.rank());
    // A copy that lives as long as the operation.
    let is_copied = !input.is_contiguous() && !c.e.rules.tracker;
    let _contiguous = is_copied.then(|| c.e.new_tensor(&input.shape, input.dtype));
    let output = c.e.new_tensor(&input.shape, input.dtype);
    let mut rows = input.shape.clone();
    rows.iter_mut().rev().take(normalised).for_each(|size| *size = 1);
    let statistics = [c.e.new_tensor(&rows, Dtype::F32), c.e.new_tensor(&rows, Dtype::F32)];
    let shape = weight.as_ref().or(bias.as_ref()).map(|weight| weight.shape.clone());
    let [mean, deviation] = &statistics;
    let saved = vec![Some(&input), Some(mean), Some(deviation), weight.as_ref(), bias.as_ref()];
    c.e.record(&[&output], &[Some(&input), weight.as_ref(), bias.as_ref()], saved, move |b| {
        let input = b.saved(0).filter(|_| b.needs(0)).map(|input| b.fresh(&input.shape));
        with_parameters(b, input, shape.as_deref(), b.gradient.dtype)
    });
    Ok(vec![output])
}

pub(super) fn group_norm(c: &Call<'_>) -> Outputs {
    let (input, weight, bias) = (c.first()?, c.optional("weight")?, c.optional("bias")?);
    let keeps_layout = c.e.rules.device == Device::Cpu && input.is_channels_last();
    let input = if keeps_layout { input } else { c.e.contiguous(&input) };
    let output = c.e.like(&input);
    let groups = c.int("num_groups").and_then(|groups| u64::try_from(groups).ok()).unwrap_or(1);
    let rows = [input.shape.first().copied().unwrap_or(1), groups];
    let statistics = [c.e.new_tensor(&rows, Dtype::F32), c.e.new_tensor(&rows, Dtype::F32)];
    let shape = weight.as_ref().or(bias.as_ref()).map(|weight| weight.shape.clone());
    let [mean, deviation] = &statistics;
    let saved = vec![Some(&input), Some(mean), Some(deviation), weight.as_ref()];
    c.e.record(&[&output], &[Some(&input), weight.as_ref(), bias.as_ref()], saved, move |b| {
        let input = b.saved(0).filter(|_| b.needs(0)).map(|input| b.fresh(&input.shape));
        with_parameters(b, input, shape.as_deref(), b.gradient.dtype)
    });
    Ok(vec![output])
}

/// `rms_norm`: one operation on a card, and single ones on the CPU.
pub(super) fn rms_norm(c: &Call<'_>) -> Outputs {
    let (input, weight) = (c.first()?, c.optional("weight")?);
    let normalised = c.ints("normalized_shape").map_or(1, |shape| shape.len()).min(input.rank());
    let mut rows = input.shape.clone();
    rows.iter_mut().rev().take(normalised).for_each(|size| *size = 1);
    if c.e.rules.device == Device::Cpu {
        return Ok(vec![c.e.rms_norm_of_parts(&input, weight.as_ref(), &rows)?]);
    }
    let output = c.e.new_tensor(&input.shape, input.dtype);
    let statistic = c.e.new_tensor(&rows, Dtype::F32);
    let shape = weight.as_ref().map(|weight| weight.shape.clone());
    let saved = vec![Some(&input), Some(&statistic), weight.as_ref()];
    c.e.record(&[&output], &[Some(&input), weight.as_ref()], saved, move |b| {
        let input = b.saved(0).filter(|_| b.needs(0)).map(|input| b.fresh(&input.shape));
        let mut gradients = with_parameters(b, input, shape.as_deref(), b.gradient.dtype);
        gradients.truncate(2);
        gradients
    });
    Ok(vec![output])
}

impl Eager {
    fn rms_norm_of_parts(&self, input: &Tensor, weight: Option<&Tensor>, rows: &[u64]) -> Result {
        let square = self.like(input);
        self.record(&[&square], &[Some(input)], vec![Some(input)], |b| {
            let _temporaries = [b.e.like(b.gradient), b.e.like(b.gradient)];
            vec![Some(b.e.like(b.gradient))]
        });
        let mean = self.averaged(&square, rows);
        let inverse = self.like(&mean);
        self.record(&[&inverse], &[Some(&mean)], vec![Some(&inverse)], |b| {
            let _temporaries = [b.e.like(b.gradient), b.e.like(b.gradient)];
            vec![Some(b.e.like(b.gradient))]
        });
        drop((square, mean));
        let output = self.multiplied(Some(input), Some(&inverse), input.dtype)?;
        match weight {
            Some(weight) => self.multiplied(Some(&output), Some(weight), input.dtype),
            None => Ok(output),
        }
    }
}

/// `_weight_norm(v, g)`: the norms are kept.
pub(super) fn weight_norm(c: &Call<'_>) -> Outputs {
    let (v, g) = (c.tensor("v")?, c.tensor("g")?);
    let (output, norms) = (c.e.like(&v), c.e.new_tensor(&g.shape, Dtype::F32));
    c.e.record(&[&output], &[Some(&v), Some(&g)], vec![Some(&v), Some(&g), Some(&norms)], |b| {
        [0, 1].map(|index| b.saved(index).map(|saved| b.e.like(saved))).into()
    });
    Ok(vec![output])
}

impl Eager {
    /// Makes a recorded softmax, or its logarithm. The result is contiguous, and is kept.
    pub fn softmax(&self, input: &Tensor) -> Tensor {
        let output = self.new_tensor(&input.shape, input.dtype);
        self.record(&[&output], &[Some(input)], vec![Some(&output)], |b| vec![Some(b.e.like(b.gradient))]);
        output
    }

    /// Makes a recorded dropout: a new tensor, and a mask of one byte an element.
    pub fn dropout(&self, input: &Tensor) -> Tensor {
        let output = self.like(input);
        let mask = self.mask_of(input);
        self.record(&[&output], &[Some(input)], vec![Some(&mask)], |b| vec![Some(b.e.like(b.gradient))]);
        output
    }
}

pub(super) fn softmax(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let input = match c.dtype("dtype") {
        Some(dtype) => c.e.cast(&input, dtype),
        None => input,
    };
    Ok(vec![c.e.softmax(&input)])
}

/// True if the operation drops something.
fn drops(c: &Call<'_>) -> bool {
    c.flag("train", c.flag("training", false)) && c.number("p").unwrap_or(0.5) > 0.0
}

pub(super) fn dropout(c: &Call<'_>, is_in_place: bool) -> Outputs {
    let input = c.first()?;
    if !drops(c) {
        return Ok(vec![input]);
    }
    if c.e.rules.tracker || (!is_in_place && c.e.rules.device == Device::Cuda) {
        return Ok(vec![c.e.dropout(&input)]);
    }
    let noise = c.e.like(&input);
    if !is_in_place {
        return Ok(vec![c.e.multiplied(Some(&input), Some(&noise), input.dtype)?]);
    }
    changed(c, &[Some(&input)], vec![Some(&noise)], |b| vec![b.needs(0).then(|| b.e.product(b.gradient, b.saved(0)))])
}

/// `feature_dropout`, `alpha_dropout`: the noise of each channel is a tensor of the value's type.
pub(super) fn feature_dropout(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    if !drops(c) {
        return Ok(vec![input]);
    }
    let is_of_channels = c.node.op.contains("feature");
    let mut shape = input.shape.clone();
    if is_of_channels {
        shape.iter_mut().skip(2).for_each(|size| *size = 1);
    }
    let noise = c.e.new_tensor(&shape, input.dtype);
    Ok(vec![c.e.multiplied(Some(&input), Some(&noise), input.dtype)?])
}

/// `prelu(self, weight)`.
pub(super) fn prelu(c: &Call<'_>) -> Outputs {
    let (input, weight) = (c.first()?, c.tensor("weight")?);
    let weight = match (&weight.shape[..], input.rank()) {
        (&[channels], rank) if rank > 1 => {
            let shape: Vec<u64> = (0..rank).map(|dim| if dim == 1 { channels } else { 1 }).collect();
            c.e.viewed(&weight, &shape)?
        }
        _ => weight,
    };
    let output = c.e.like(&input);
    c.e.record(&[&output], &[Some(&input), Some(&weight)], vec![Some(&input), Some(&weight)], |b| {
        let Some(input) = b.saved(0) else { return Vec::new() };
        vec![Some(b.e.like(input)), Some(b.e.like(input))]
    });
    Ok(vec![output])
}

/// `glu(self, dim)`: one half times the sigmoid of the other.
pub(super) fn glu(c: &Call<'_>) -> Outputs {
    let input = c.first()?;
    let dim = c.dim("dim", -1, input.rank())?;
    let mut shape = input.shape.clone();
    match shape.get_mut(dim) {
        Some(size) => *size /= 2,
        None => return malformed("halves a number"),
    }
    let output = c.e.new_tensor(&shape, input.dtype);
    c.e.record(&[&output], &[Some(&input)], vec![Some(&input)], super::views::zeros_of(input.shape.clone()));
    Ok(vec![output])
}
