//! Linear layer over the last axis, `y[r, o] = bias[o] + sum over i of w[o, i] * x[r, i]`. The weight may also be stored as [I, O]. R rows,
//! I input features, O output features.
//!
//! Backward: `dx = dy w`, `dw = dy^T x`, `dbias[o] = sum over r of dy[r, o]`.

use crate::kernels::{Bound, kernel};
use crate::matrix::{Matrix, MatrixMut, is_packed, product_parallel};
use crate::operands::{Gradient, Operands, count};
use crate::packed::Packed;
use crate::parallel;
use crate::simd::wide;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::Product;

/// The most rows for which inference keeps a packed copy of the weight. For more, packing it takes no time beside the product.
const MOST_ROWS: usize = 4096;

#[derive(Clone, Copy)]
pub(in crate::kernels) struct Sizes {
    pub(in crate::kernels) rows: usize,
    pub(in crate::kernels) inputs: usize,
    pub(in crate::kernels) outputs: usize,
    /// True if the weight is [I, O] rather than [O, I].
    pub(in crate::kernels) transposed: bool,
}

impl Sizes {
    pub(in crate::kernels) fn new(op: &Product, batch: u64) -> Sizes {
        let [inputs, outputs] = [op.in_features, op.out_features].map(|features| count(&[features]));
        Sizes { rows: count(&[batch, op.rows]), inputs, outputs, transposed: op.transposed }
    }

    /// Returns the elements of the input, the output and the weight.
    pub(in crate::kernels) fn lengths(&self) -> [usize; 3] {
        let Sizes { rows, inputs, outputs, .. } = *self;
        [rows.saturating_mul(inputs), rows.saturating_mul(outputs), inputs.saturating_mul(outputs)]
    }

    /// Returns the weight as [O, I].
    fn weight<'a>(&self, data: &'a [f32]) -> Matrix<'a> {
        if self.transposed {
            Matrix::new(data, self.inputs, self.outputs, self.outputs).t()
        } else {
            Matrix::new(data, self.outputs, self.inputs, self.inputs)
        }
    }
}

/// Computes `y` from `x`, the weight and the bias.
pub(in crate::kernels) fn forward(op: &Product, operands: &mut Operands<'_>) -> Bound {
    let sizes = Sizes::new(op, operands.batch());
    let [input, output, weight] = sizes.lengths();
    let input = operands.source(Slot::Input(0), input)?;
    let weight = operands.source(Slot::Input(1), weight)?;
    let bias = operands.source_if(op.bias, Slot::Input(2), sizes.outputs)?;
    let mut output = operands.target(Slot::Output, output)?;
    let length = Packed::room(sizes.inputs, sizes.outputs);
    let mut copy = if sizes.rows <= MOST_ROWS { operands.packed_copy(Slot::Input(1), length) } else { None };
    kernel(move |frame| {
        let Sizes { rows, inputs, outputs, .. } = sizes;
        let x = Matrix::new(input.get(), rows, inputs, inputs);
        let y = output.get();
        let (out, weight) = (MatrixMut::new(y, rows, outputs, outputs), sizes.weight(weight.get()).t());
        match &mut copy {
            // The copy changes no bit.
            Some(copy) if is_packed(&out, x, weight) => copy.get(frame.version, weight).multiply(out, x, false),
            _ => product_parallel(out, x, weight, false),
        }
        if let Some(bias) = &bias {
            add_bias(y, bias.get());
        }
    })
}

/// Adds the bias to each row of `y`.
pub(in crate::kernels) fn add_bias(y: &mut [f32], bias: &[f32]) {
    parallel::pieces(None, y, bias.len(), |_, _, row| {
        wide(|| row.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias));
        0.0
    });
}

/// Computes the gradient of the bias from `rows` rows of `dy`.
pub(in crate::kernels) fn sum_rows(out: &mut Gradient, rows: usize, dy: &[f32]) {
    let sums = out.target.get();
    let width = sums.len();
    parallel::column_sums(sums, out.accumulate, rows, |row, first, sums| {
        sums.iter_mut().zip(&dy[row * width + first..]).for_each(|(sum, &dy)| *sum += f64::from(dy));
    });
}

/// Computes the gradients that the operation writes.
pub(in crate::kernels) fn backward(op: &Product, operands: &mut Operands<'_>) -> Bound {
    let sizes = Sizes::new(op, operands.batch());
    let [input, output, weight] = sizes.lengths();
    let gradient = operands.source(Slot::Gradient, output)?;
    let mut input_gradient = operands.gradient(Slot::InputGradient(0), input)?;
    let mut weight_gradient = operands.gradient(Slot::InputGradient(1), weight)?;
    let mut bias_gradient = operands.gradient(Slot::InputGradient(2), sizes.outputs)?;
    let weight = operands.source_if(input_gradient.is_some(), Slot::Input(1), weight)?;
    let input = operands.source_if(weight_gradient.is_some(), Slot::Input(0), input)?;
    kernel(move |_| {
        let Sizes { rows, inputs, outputs, transposed } = sizes;
        let dy = Matrix::new(gradient.get(), rows, outputs, outputs);
        if let (Some(out), Some(weight)) = (&mut input_gradient, &weight) {
            let dx = MatrixMut::new(out.target.get(), rows, inputs, inputs);
            product_parallel(dx, dy, sizes.weight(weight.get()), out.accumulate);
        }
        if let (Some(out), Some(input)) = (&mut weight_gradient, &input) {
            let x = Matrix::new(input.get(), rows, inputs, inputs);
            if transposed {
                let dw = MatrixMut::new(out.target.get(), inputs, outputs, outputs);
                product_parallel(dw, x.t(), dy, out.accumulate);
            } else {
                let dw = MatrixMut::new(out.target.get(), outputs, inputs, inputs);
                product_parallel(dw, dy.t(), x, out.accumulate);
            }
        }
        if let Some(out) = &mut bias_gradient {
            sum_rows(out, rows, gradient.get());
        }
    })
}
