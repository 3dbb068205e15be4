//! Launches of matrix products of two values: `kernels/matmul/mat_mul.cu`.

use crate::calls::Launch;
use crate::calls::product::Factor;
use crate::operations::context::Context;
use crate::operations::matmul::linear::tiles;
use gpumem_core::error::Error;
use gpumem_core::program::ops::MatMul;
use gpumem_core::program::{Slot, TensorId};

/// Returns the launch of `c = a b` for all products of an operation. `sizes` are the rows, columns and terms of each.
fn launch(
    context: &Context<'_>,
    op: &MatMul,
    sizes: [u64; 3],
    [a, b]: [Factor; 2],
    (c, add): (TensorId, u8),
) -> Result<Launch, Error> {
    let count = op.count.saturating_mul(context.samples(c));
    let [rows, columns, depth] = sizes;
    for (tensor, each) in [(a.tensor, [rows, depth]), (b.tensor, [depth, columns]), (c, [rows, columns])] {
        let all = each.iter().try_fold(count, |product, &size| product.checked_mul(size));
        if all != Some(context.elements(tensor)) {
            return Err(Error::Damaged("a product of matrices has a factor of another size"));
        }
    }
    let kernel = context.product_kernel("mat_mul.cu", "mat_mul");
    let (kernel, blocks) = tiles(kernel, count, sizes, [a.transposed, b.transposed], (false, add))?;
    let arguments = vec![Some(a.tensor), Some(b.tensor), Some(c)];
    Ok(Launch { kernel, grid: [blocks, 1, 1], block: [256, 1, 1], arguments, numbers: Vec::new() })
}

/// Returns a value as a factor, transposed or not.
fn factor(tensor: TensorId, transposed: bool) -> Factor {
    Factor { tensor, transposed }
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &MatMul) -> Result<Vec<Launch>, Error> {
    let [a, b] = [context.read(Slot::Input(0))?, context.read(Slot::Input(1))?];
    let factors = [factor(a, false), factor(b, op.transpose_b)];
    let sizes = [op.rows, op.columns, op.depth];
    Ok(vec![launch(context, op, sizes, factors, (context.written(Slot::Output)?, 0))?])
}

/// Returns the launches of the gradients that the operation writes.
pub(in crate::operations) fn backward(context: &Context<'_>, op: &MatMul) -> Result<Vec<Launch>, Error> {
    let MatMul { rows, depth, columns, transpose_b, .. } = *op;
    let dy = context.read(Slot::Gradient)?;
    let target = |slot: Slot| context.operation.written(slot).map(|tensor| (tensor, context.adds(slot)));
    let mut launches = Vec::new();
    if let Some(da) = target(Slot::InputGradient(0)) {
        let b = factor(context.read(Slot::Input(1))?, !transpose_b);
        launches.push(launch(context, op, [rows, depth, columns], [factor(dy, false), b], da)?);
    }
    if let Some(db) = target(Slot::InputGradient(1)) {
        let a = context.read(Slot::Input(0))?;
        launches.push(if transpose_b {
            launch(context, op, [columns, depth, rows], [factor(dy, true), factor(a, false)], db)?
        } else {
            launch(context, op, [depth, columns, rows], [factor(a, true), factor(dy, false)], db)?
        });
    }
    Ok(launches)
}
