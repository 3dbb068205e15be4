//! Calls of 1x1 convolutions by cuBLASLt: a matrix product for each sample.
//!
//! With channels first, a sample of x is a matrix `[in, pixels]` and one of y `[out, pixels]`, both without gaps, and the weight `[out, in]` is
//! shared: `y = W x` and `dx = W^T dy`. All samples are one call. The gradient of the weight, `dW = dy x^T`, is a sum over samples, which such a
//! call cannot express. Unless there is only one sample, gpumem's own kernels compute it.
//!
//! They also compute a forward pass with a bias. The library's bias has an element for each row of D, and its rows are pixels here.

use super::library::channels_last;
use crate::calls::Call;
use crate::calls::product::{Element, Epilogue, Factor, Product, Scratch};
use crate::operations::context::{Context, LaunchContext};
use crate::operations::grid::small;
use gpumem_core::error::Error;
use gpumem_core::program::{Slot, TensorId, ops};
use gpumem_core::{Format, Precision};

/// A 1x1 convolution as one product a sample.
struct Samples<'a> {
    context: &'a Context<'a>,
    count: u64,
    /// Pixels of x and y, which are matrices `[channels, pixels]`.
    pixels: u64,
    channels: [u64; 2],
}

impl<'a> Samples<'a> {
    /// Returns the products of the convolution of x with w to y, or of one of its gradients. `None` if it is not such a product, or if cuDNN
    /// computes it.
    fn of(
        context: &'a Context<'a>,
        op: &ops::Convolution,
        [x, w, y]: [TensorId; 3],
    ) -> Result<Option<Samples<'a>>, Error> {
        let LaunchContext { library, cudnn, precision, .. } = context.setting;
        let ops::Window { kernel_size, stride, padding, .. } = op.window;
        let is_product = kernel_size == [1; 2] && stride == [1; 2] && padding == [0; 2] && op.input == op.output;
        let is_whole = op.groups == 1 && !op.transposed && precision.narrow() == Format::F32;
        if !library || cudnn || !is_product || !is_whole || channels_last(context, [x, w, y]) != Some(false) {
            return Ok(None);
        }
        let pixels = op.input[0].checked_mul(op.input[1]);
        let pixels = pixels.ok_or(Error::Damaged("a map has more pixels than 64 bits count"))?;
        let (count, channels) = (context.samples(y), [op.in_channels, op.out_channels]);
        for size in [count, pixels, channels[0], channels[1]] {
            small(size)?;
        }
        Ok(Some(Samples { context, count, pixels, channels }))
    }

    /// Returns the product `d[rows, columns] = a[rows, depth] b[depth, columns]` of each sample. Factors that are maps come with their channels; a
    /// factor with `None` is shared by all samples.
    fn product(
        &self,
        sizes: [u64; 3],
        [(a, of_a), (b, of_b)]: [(Factor, Option<u64>); 2],
        (d, of_d): (TensorId, u64),
        added: u8,
    ) -> Product {
        let LaunchContext { precision, tf32, deterministic, .. } = self.context.setting;
        let bytes = self.context.workspace_bytes();
        let scratch = |tensor: TensorId| (bytes > 0).then_some(Scratch { tensor, bytes });
        // Sizes have 32 bits, so the product does not overflow.
        let distance = |channels: Option<u64>| channels.unwrap_or(0) * self.pixels;
        Product {
            c: (added == 1).then_some(d),
            tf32: tf32 && precision == Precision::F32,
            workspace: self.context.operation.written(Slot::Workspace).and_then(scratch),
            deterministic,
            ..Product::row_major(sizes, a, b, d, Element::of(precision))
        }
        .times(self.count, [distance(of_a), distance(of_b), distance(Some(of_d))])
    }
}

/// Returns `y = W x`, or `y = max(W x, 0)` with a Relu after it; `None` if it is not such a product, or has a bias.
pub(crate) fn forward(context: &Context<'_>, op: &ops::Convolution, relu: bool) -> Result<Option<Product>, Error> {
    let (x, w, y) = (context.read(Slot::Input(0))?, context.read(Slot::Input(1))?, context.written(Slot::Output)?);
    let Some(samples) = Samples::of(context, op, [x, w, y])?.filter(|_| !op.bias) else { return Ok(None) };
    let [inputs, outputs] = samples.channels;
    let factors = [(Factor::plain(w), None), (Factor::plain(x), Some(inputs))];
    let product = samples.product([outputs, samples.pixels, inputs], factors, (y, outputs), 0);
    let epilogue = if relu { Epilogue::Relu { bias: None } } else { Epilogue::None };
    Ok(Some(Product { epilogue, ..product }))
}

/// Returns the calls of the gradients that the operation writes: products where possible, else gpumem's own kernels. `None` if none of them is a
/// product.
pub(super) fn backward(context: &Context<'_>, op: &ops::Convolution) -> Result<Option<Vec<Call>>, Error> {
    let dy = context.read(Slot::Gradient)?;
    let (filter, data) = (filter(context, op, dy)?, data(context, op, dy)?);
    let is_left = data.is_none() && context.operation.written(Slot::InputGradient(0)).is_some();
    if is_left || (filter.is_none() && data.is_none()) {
        return Ok(None);
    }
    let correlation = super::correlation(context, op, dy)?;
    let own = if filter.is_some() { correlation.bias_gradient(context)? } else { correlation.parameters(context)? };
    let (filter, own) = (filter.map(Call::from), own.into_iter().map(Call::from));
    Ok(Some(filter.into_iter().chain(own).chain(data.map(Call::from)).collect()))
}

/// Returns `dx = W^T dy`, added to its tensor if the operation says so; `None` if it is not wanted or not such a product.
fn data(context: &Context<'_>, op: &ops::Convolution, dy: TensorId) -> Result<Option<Product>, Error> {
    let Some(dx) = context.operation.written(Slot::InputGradient(0)) else { return Ok(None) };
    let w = context.read(Slot::Input(1))?;
    let Some(samples) = Samples::of(context, op, [dx, w, dy])? else { return Ok(None) };
    let [inputs, outputs] = samples.channels;
    let factors = [(Factor::plain(w).t(), None), (Factor::plain(dy), Some(outputs))];
    let added = context.adds(Slot::InputGradient(0));
    Ok(Some(samples.product([inputs, samples.pixels, outputs], factors, (dx, inputs), added)))
}

/// Returns `dW = dy x^T` for a batch of one sample; `None` if it is not wanted or not such a product.
fn filter(context: &Context<'_>, op: &ops::Convolution, dy: TensorId) -> Result<Option<Product>, Error> {
    let Some(dw) = context.operation.written(Slot::InputGradient(1)) else { return Ok(None) };
    let x = context.read(Slot::Input(0))?;
    let Some(samples) = Samples::of(context, op, [x, dw, dy])?.filter(|samples| samples.count == 1) else {
        return Ok(None);
    };
    let [inputs, outputs] = samples.channels;
    let factors = [(Factor::plain(dy), None), (Factor::plain(x).t(), None)];
    let added = context.adds(Slot::InputGradient(1));
    Ok(Some(samples.product([outputs, inputs, samples.pixels], factors, (dw, 0), added)))
}
