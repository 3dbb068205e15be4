//! Losses.

use super::super::Loss;
use super::super::call::{Call, Outputs, Result, malformed};
use super::super::layout::elements;
use super::super::meta::{Eager, Tensor};
use crate::model::{Argument, Dtype};

impl Eager {
    /// Cross entropy: the logarithm of a softmax in the logits' type, and the negative log-likelihood in f32.
    pub fn cross_entropy(&self, logits: &Tensor, target: &Tensor, is_reduced: bool) -> Tensor {
        self.label("log_softmax");
        let logarithms = self.softmax(logits);
        self.label("nll_loss");
        let logarithms = if self.autocast().is_some() { self.cast(&logarithms, Dtype::F32) } else { logarithms };
        self.likelihood(&logarithms, target, is_reduced)
    }

    fn likelihood(&self, logarithms: &Tensor, target: &Tensor, is_reduced: bool) -> Tensor {
        let shape: &[u64] = if is_reduced { &[] } else { &target.shape };
        let (output, total) = (self.new_tensor(shape, logarithms.dtype), self.new_tensor(&[], logarithms.dtype));
        let saved = vec![Some(logarithms), Some(target), Some(&total)];
        self.record(&[&output], &[Some(logarithms)], saved, |b| vec![b.saved(0).map(|input| b.e.like(input))]);
        output
    }

    /// The loss of a step on what the network returned.
    pub fn loss(&self, loss: Loss, outputs: &[Tensor], target: Option<&Tensor>) -> Result {
        let Some(first) = outputs.first() else {
            return malformed("returns no floating-point tensor to take a loss of");
        };
        match (loss, target) {
            (Loss::Tokens, Some(target)) => {
                let Some(&classes) = first.shape.last() else { return malformed("returns a number") };
                let rows = elements(first.shape.split_last().map_or(&[][..], |(_, outer)| outer));
                let flat = self.reshape(first, &[rows, classes])?;
                Ok(self.cross_entropy(&flat, target, true))
            }
            (Loss::Classes | Loss::Pixels, Some(target)) => Ok(self.cross_entropy(first, target, true)),
            _ => self.squares(outputs),
        }
    }

    /// The sum over outputs of the mean of their squares.
    fn squares(&self, outputs: &[Tensor]) -> Result {
        let mut total: Option<Tensor> = None;
        for output in outputs {
            self.label("mul");
            let square = self.multiplied(Some(output), Some(output), output.dtype)?;
            self.label("mean");
            let mean = self.averaged(&square, &[]);
            drop(square);
            self.label("add");
            total = Some(match total {
                // `0 + mean`, as Python's `sum` begins.
                None => {
                    let sum = self.like(&mean);
                    self.record(&[&sum], &[Some(&mean)], Vec::new(), super::views::same);
                    sum
                }
                Some(total) => self.added(&mean, &total)?,
            });
        }
        match total {
            Some(total) => Ok(total),
            None => malformed("returns no floating-point tensor to take a loss of"),
        }
    }
}

/// Returns the elements of the target of a loss.
pub(in super::super) fn target_elements(loss: Loss, shape: &[u64]) -> Option<u64> {
    match loss {
        Loss::Classes => shape.first().copied(),
        Loss::Pixels => Some(elements(&[shape.get(..1)?, shape.get(2..)?].concat())),
        Loss::Tokens => shape.split_last().map(|(_, outer)| elements(outer)),
        Loss::Squares => None,
    }
}

/// True if a loss of the model returns one number.
fn is_reduced(c: &Call<'_>) -> bool {
    !matches!(c.argument("reduction"), Some(Argument::Int(0)))
}

/// `cross_entropy_loss(self, target)`.
pub(super) fn cross_entropy(c: &Call<'_>) -> Outputs {
    Ok(vec![c.e.cross_entropy(&c.first()?, &c.tensor("target")?, is_reduced(c))])
}

/// `nll_loss(self, target)`.
pub(super) fn likelihood(c: &Call<'_>) -> Outputs {
    Ok(vec![c.e.likelihood(&c.first()?, &c.tensor("target")?, is_reduced(c))])
}

/// `mse_loss`, `l1_loss`, `smooth_l1_loss`, `binary_cross_entropy`: both operands are kept.
pub(super) fn of_elements(c: &Call<'_>) -> Outputs {
    let (input, target) = (c.first()?, c.tensor("target")?);
    let output = if is_reduced(c) {
        c.e.new_tensor(&[], input.dtype)
    } else {
        c.e.elementwise(&[&input, &target], input.dtype)?
    };
    let is_of_logits = c.node.op.contains("logits");
    let derivative = move |b: &super::super::meta::Backward<'_>| {
        // (input.sigmoid() - target) * grad
        let _sigmoid = is_of_logits.then(|| b.saved(0).map(|input| b.e.like(input)));
        (0..2).map(|index| b.saved(index).filter(|_| b.needs(index)).map(|saved| b.e.like(saved))).collect()
    };
    c.e.record(&[&output], &[Some(&input), Some(&target)], vec![Some(&input), Some(&target)], derivative);
    Ok(vec![output])
}

/// `l1_loss(self, target)`: the mean of the absolute values of a difference, which is kept.
pub(super) fn absolute(c: &Call<'_>) -> Outputs {
    let (input, target) = (c.first()?, c.tensor("target")?);
    let difference = c.e.elementwise(&[&input, &target], input.dtype)?;
    c.e.record(&[&difference], &[Some(&input), Some(&target)], Vec::new(), |b| {
        vec![b.needs(0).then(|| b.gradient.clone()), b.needs(1).then(|| b.e.like(b.gradient))]
    });
    let output = c.e.like(&difference);
    c.e.record(&[&output], &[Some(&difference)], vec![Some(&difference)], |b| {
        let _sign = b.e.like(b.gradient);
        vec![Some(b.e.like(b.gradient))]
    });
    drop(difference);
    Ok(vec![if is_reduced(c) { c.e.averaged(&output, &[]) } else { output }])
}
