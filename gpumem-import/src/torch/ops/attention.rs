//! Scaled dot-product attention: fused kernels, and the path of single operations.

use super::super::call::{Call, Outputs, Result, malformed};
use super::super::meta::{Backward, Eager, Tensor};
use super::super::{Attention, Device};
use crate::model::Dtype;

/// The kernels of attention.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kernel {
    /// The fused kernel of the CPU.
    Cpu,
    Flash,
    Efficient,
    /// Products and a softmax.
    Math,
}

fn kernel(e: &Eager, [query, key, value]: [&Tensor; 3], mask: Option<&Tensor>, dropout: f64) -> Kernel {
    let (&[.., inner], &[.., outer]) = (&query.shape[..], &value.shape[..]) else { return Kernel::Math };
    if e.rules.attention == Attention::Math || query.rank() != 4 || key.rank() != 4 || value.rank() != 4 {
        return Kernel::Math;
    }
    if e.rules.device == Device::Cpu {
        let is_fused = dropout == 0.0 && !mask.is_some_and(Tensor::requires_grad) && inner == outer;
        return if is_fused { Kernel::Cpu } else { Kernel::Math };
    }
    let is_half = matches!(query.dtype, Dtype::F16 | Dtype::Bf16);
    if mask.is_none() && is_half && inner <= 256 { Kernel::Flash } else { Kernel::Efficient }
}

pub(super) fn attention(c: &Call<'_>) -> Outputs {
    let all = [Some(c.tensor("query")?), Some(c.tensor("key")?), Some(c.tensor("value")?), c.optional("attn_mask")?];
    let [Some(query), Some(key), Some(value), mask] = c.e.lowered(all) else { return malformed("has no query") };
    let dropout = c.number("dropout_p").unwrap_or(0.0);
    // Heads without a batch are those of one sample.
    let is_sample =
        query.rank() == 3 && key.rank() == 3 && value.rank() == 3 && c.e.rules.attention == Attention::Fused;
    let [query, key, value] =
        [query, key, value].map(|tensor| if is_sample { c.e.unsqueezed(&tensor, 0) } else { tensor });
    let kernel = kernel(c.e, [&query, &key, &value], mask.as_ref(), dropout);
    if kernel == Kernel::Math {
        let options =
            Options { dropout, is_causal: c.flag("is_causal", false), shares_keys: c.flag("enable_gqa", false) };
        let output = c.e.by_products(query, key, value, mask, options)?;
        return Ok(vec![if is_sample { c.e.squeezed(&output, &[0]) } else { output }]);
    }
    let output = c.e.fused(kernel, [&query, &key, &value], mask)?;
    Ok(vec![if is_sample { c.e.squeezed(&output, &[0]) } else { output }])
}

/// Returns the strides of `[B, H, T, D]` that lies in memory as `[B, T, H, D]`.
fn heads_inside(shape: &[u64]) -> Vec<u64> {
    super::super::layout::in_order(shape, &[0, 2, 1, 3])
}

impl Eager {
    fn fused(&self, kernel: Kernel, [query, key, value]: [&Tensor; 3], mask: Option<Tensor>) -> Result {
        let (&[batch, heads, steps, width], &[_, _, _, outer]) = (&query.shape[..], &value.shape[..]) else {
            return malformed("attends to tensors that are not of four dimensions");
        };
        let mask = mask.map(|mask| self.converted_mask(kernel, mask, query.dtype));
        let shape = [batch, heads, steps, outer];
        let output = match kernel {
            Kernel::Efficient => self.strided(&shape, heads_inside(&shape), query.dtype),
            _ if outer == width => self.like(query),
            _ => self.strided(&shape, heads_inside(&shape), query.dtype),
        };
        let rows = if kernel == Kernel::Efficient { steps.div_ceil(32).saturating_mul(32) } else { steps };
        let logarithms = self.new_tensor(&[batch, heads, rows], Dtype::F32);
        let seeds: &[&[u64]] = match kernel {
            Kernel::Efficient => &[&[], &[]],
            Kernel::Flash => &[&[2], &[]],
            _ => &[],
        };
        let seeds: Vec<Tensor> = seeds.iter().map(|shape| self.new_tensor(shape, Dtype::I64)).collect();
        let mut saved = vec![Some(query), Some(key), Some(value), Some(&output), Some(&logarithms), mask.as_ref()];
        saved.extend(seeds.iter().map(Some));
        self.record(&[&output], &[Some(query), Some(key), Some(value)], saved, move |b| fused_gradients(b, kernel));
        Ok(output)
    }

    /// Returns a mask of bools in the query's type. The memory-efficient kernel reads rows of a multiple of 16 elements.
    fn converted_mask(&self, kernel: Kernel, mask: Tensor, dtype: Dtype) -> Tensor {
        let mask = if mask.dtype == Dtype::Bool { self.like_as(&mask, dtype) } else { mask };
        let Some((&last, outer)) = mask.shape.split_last() else { return mask };
        if kernel != Kernel::Efficient || last % 16 == 0 || self.rules.tracker {
            return mask;
        }
        let padded = [outer, &[last.div_ceil(16).saturating_mul(16)]].concat();
        self.new_tensor(&padded, mask.dtype)
    }

    /// Attention by products. Query and key are scaled each by a square root.
    fn by_products(&self, query: Tensor, key: Tensor, value: Tensor, mask: Option<Tensor>, options: Options) -> Result {
        let (rank, key_rank) = (query.rank(), key.rank());
        if rank < 2 || key_rank < 2 || value.rank() < 2 {
            return malformed("attends to tensors of fewer than two dimensions");
        }
        let (key, value) = match (options.shares_keys, query.shape.get(1), key.shape.get(1)) {
            (true, Some(&heads), Some(&groups)) if heads != groups && groups > 0 => {
                (self.repeated_heads(&key, heads / groups)?, self.repeated_heads(&value, heads / groups)?)
            }
            _ => (key, value),
        };
        let mut mask = mask;
        if options.is_causal {
            let ones = self.new_tensor(&[query.shape[rank - 2], key.shape[key_rank - 2]], Dtype::Bool);
            mask = Some(self.mask_of(&ones));
        }
        let mask = mask.map(|mask| if mask.dtype == Dtype::Bool { self.like_as(&mask, query.dtype) } else { mask });
        let dtype = query.dtype;
        let query = self.multiplied(Some(&query), None, dtype)?;
        let turned = self.transposed(&key, key_rank - 2, key_rank - 1);
        let key = self.multiplied(Some(&turned), None, dtype)?;
        let mut scores = self.matmul(&query, &key)?;
        if let Some(mask) = &mask {
            scores = self.biased(scores, mask)?;
        }
        scores = self.softmax(&scores);
        if options.dropout > 0.0 {
            scores = if self.rules.device == Device::Cpu {
                // The CPU has no fused dropout: the noise has the value's type.
                let noise = self.like(&scores);
                self.multiplied(Some(&scores), Some(&noise), scores.dtype)?
            } else {
                self.dropout(&scores)
            };
        }
        self.matmul(&scores, &value)
    }

    /// Repeats the heads of keys or values so that each query has one.
    fn repeated_heads(&self, tensor: &Tensor, count: u64) -> Result {
        let &[batch, heads, steps, width] = &tensor.shape[..] else { return malformed("shares heads that it has not") };
        let wide = self.expanded(&self.unsqueezed(tensor, 2), &[batch, heads, count, steps, width])?;
        self.reshape(&wide, &[batch, heads.saturating_mul(count), steps, width])
    }
}

struct Options {
    dropout: f64,
    is_causal: bool,
    shares_keys: bool,
}

/// The gradients of query, key and value. On a card the kernel takes memory of its own for as long as it runs.
fn fused_gradients(b: &Backward<'_>, kernel: Kernel) -> Vec<Option<Tensor>> {
    let [Some(query), Some(key), Some(value)] = [0, 1, 2].map(|index| b.saved(index)) else { return Vec::new() };
    let &[batch, heads, steps, width] = &query.shape[..] else { return Vec::new() };
    let runs_on_card = kernel != Kernel::Cpu && !b.e.rules.tracker;
    let _delta = runs_on_card.then(|| b.e.new_tensor(&[batch, heads, steps], Dtype::F32));
    let rounded = |size: u64, to: u64| size.div_ceil(to).saturating_mul(to);
    let is_half = query.dtype != Dtype::F32;
    let _sum = (runs_on_card && is_half)
        .then(|| b.e.new_tensor(&[batch, heads, rounded(steps, 128), rounded(width, 32)], Dtype::F32));
    [query, key, value].map(|tensor| Some(b.e.strided(&tensor.shape, heads_inside(&tensor.shape), tensor.dtype))).into()
}
