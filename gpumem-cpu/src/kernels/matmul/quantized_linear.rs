//! A linear layer on the last axis with a quantized weight. It computes [`product`](crate::kernels::matmul::linear), and dequantizes one panel of the weight at a
//! time.
//!
//! Backward: `dx = dy w`.

use crate::kernels::matmul::linear::{Sizes, add_bias};
use crate::kernels::{Bound, kernel};
use crate::matrix::{Matrix, MatrixMut, product_parallel};
use crate::operands::{Operands, Source, count};
use crate::parallel::with_scratch;
use crate::simd::{Loop, wide};
use gpumem_core::error::Error;
use gpumem_core::number::Coding;
use gpumem_core::program::Slot;
use gpumem_core::program::ops::CodedProduct;
use std::ops::Range;

/// The most terms of a sum, and columns of a result, in a panel. A thread then has at most 512 KiB of dequantized weight.
///
/// A sum of more terms is added up in parts of equal length.
const PANEL: [usize; 2] = [512, 256];

/// The codes and scales of a quantized weight.
struct Coded {
    coding: Coding,
    codes: Source<u8>,
    scales: Source,
}

impl Coded {
    fn new(op: &CodedProduct, operands: &Operands<'_>) -> Result<Coded, Error> {
        let sizes = op.sizes().ok_or(Error::Damaged("a weight that is kept in codes has no elements"))?;
        let [codes, scales] = sizes.map(|size| count(&[size]));
        let (codes, scales) = (operands.bytes(Slot::Input(1), codes)?, operands.source(Slot::Input(2), scales)?);
        Ok(Coded { coding: op.coding, codes, scales })
    }

    /// Returns the weight as a factor with a row for each term. `length` elements of it are contiguous.
    fn factor(&self, terms_first: bool, length: usize) -> Factor<'_> {
        Factor { coding: self.coding, codes: self.codes.get(), scales: self.scales.get(), terms_first, length }
    }
}

/// The second factor of a product: [terms, columns].
#[derive(Clone, Copy)]
struct Factor<'a> {
    coding: Coding,
    codes: &'a [u8],
    scales: &'a [f32],
    /// True if the columns of a term are contiguous. False if the terms of a column are.
    terms_first: bool,
    /// The number of contiguous elements.
    length: usize,
}

impl Factor<'_> {
    /// Dequantizes a part of the factor into `room`.
    fn panel<'b>(self, terms: Range<usize>, columns: Range<usize>, room: &'b mut [f32]) -> Matrix<'b> {
        let (rows, across) = if self.terms_first { (terms, columns) } else { (columns, terms) };
        wide(Panel { of: self, rows: rows.clone(), across: across.clone(), room: &mut *room });
        let panel = Matrix::new(room, rows.len(), across.len(), across.len());
        if self.terms_first { panel } else { panel.t() }
    }
}

/// Some elements of some rows of the stored weight, and the memory to dequantize them into.
struct Panel<'a, 'b> {
    of: Factor<'a>,
    rows: Range<usize>,
    across: Range<usize>,
    room: &'b mut [f32],
}

impl Loop for Panel<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Factor { coding, codes, scales, length, .. } = self.of;
        for (row, out) in self.rows.zip(self.room.chunks_exact_mut(self.across.len())) {
            coding.dequantize_from(codes, scales, row * length + self.across.start, out);
        }
    }
}

/// Computes `out (+)= a b[.., first..]` on all threads. `a` has `depth` columns. The way in which sums are split depends on sizes only.
fn multiply(out: MatrixMut<'_>, a: Matrix<'_>, b: Factor<'_>, (first, depth): (usize, usize), accumulate: bool) {
    let (height, width) = (out.height(), out.width());
    let [most_terms, most_columns] = PANEL;
    if width > most_columns {
        let at = width.div_ceil(most_columns) / 2 * most_columns;
        let (left, right) = out.split_columns(at);
        rayon::join(
            || multiply(left, a, b, (first, depth), accumulate),
            || multiply(right, a, b, (first + at, depth), accumulate),
        );
        return;
    }
    let (mut out, length) = (out, depth.div_ceil(depth.div_ceil(most_terms).max(1)).max(1));
    with_scratch(length * width, |room| {
        for start in (0..depth).step_by(length) {
            let terms = start..depth.min(start + length);
            let panel = b.panel(terms.clone(), first..first + width, &mut room[..terms.len() * width]);
            product_parallel(out.rows(0..height), a.columns(terms), panel, accumulate || start > 0);
        }
    });
}

/// Computes `y` from `x`, codes, scales and the bias.
pub(in crate::kernels) fn forward(op: &CodedProduct, operands: &mut Operands<'_>) -> Bound {
    let sizes = Sizes::new(&op.product, operands.batch());
    let [input, output, _] = sizes.lengths();
    let input = operands.source(Slot::Input(0), input)?;
    let weight = Coded::new(op, operands)?;
    let bias = operands.source_if(op.product.bias, Slot::Input(CodedProduct::BIAS), sizes.outputs)?;
    let mut output = operands.target(Slot::Output, output)?;
    kernel(move |_| {
        let Sizes { rows, inputs, outputs, transposed } = sizes;
        let x = Matrix::new(input.get(), rows, inputs, inputs);
        let y = output.get();
        let factor = weight.factor(transposed, if transposed { outputs } else { inputs });
        multiply(MatrixMut::new(y, rows, outputs, outputs), x, factor, (0, inputs), false);
        if let Some(bias) = &bias {
            add_bias(y, bias.get());
        }
    })
}

/// Computes the gradient of `x`.
pub(in crate::kernels) fn backward(op: &CodedProduct, operands: &mut Operands<'_>) -> Bound {
    let sizes = Sizes::new(&op.product, operands.batch());
    let [input, output, _] = sizes.lengths();
    let gradient = operands.source(Slot::Gradient, output)?;
    let weight = Coded::new(op, operands)?;
    let accumulate = operands.accumulates(Slot::InputGradient(0));
    let mut input_gradient = operands.target(Slot::InputGradient(0), input)?;
    kernel(move |_| {
        let Sizes { rows, inputs, outputs, transposed } = sizes;
        let dy = Matrix::new(gradient.get(), rows, outputs, outputs);
        let dx = MatrixMut::new(input_gradient.get(), rows, inputs, inputs);
        let factor = weight.factor(!transposed, if transposed { outputs } else { inputs });
        multiply(dx, dy, factor, (0, outputs), accumulate);
    })
}
