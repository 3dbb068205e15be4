//! Calls of products with a weight: `kernels/matmul/product.cu`, or cuBLASLt ([`library`]).

pub(crate) mod library;

use crate::calls::product::Factor;
use crate::calls::{Call, Kernel, Launch};
use crate::operations::context::Context;
use crate::operations::grid::{small, tile};
use gpumem_core::error::Error;
use gpumem_core::program::ops::Product;
use gpumem_core::program::{Slot, TensorId};

/// Threads of a block of `column_sums`, and the columns that it sums.
const SUM_THREADS: u32 = 1024;
const SUM_COLUMNS: u64 = 32;

fn constants(kernel: Kernel, sizes: [u64; 3], transposed: [bool; 2], bias: bool, add: u8, tile: [u64; 2]) -> Kernel {
    let [rows, columns, depth] = sizes.map(|size| format!("{size}ull"));
    let kernel = kernel.with("ROWS", rows).with("COLUMNS", columns).with("DEPTH", depth);
    let kernel = kernel.with("A_TRANSPOSED", u8::from(transposed[0])).with("B_TRANSPOSED", u8::from(transposed[1]));
    let kernel = kernel.with("BIAS", u8::from(bias)).with("ADD", add);
    kernel.with("TILE_M", tile[0]).with("TILE_N", tile[1])
}

/// Returns the launch of `c[rows, columns] = a[rows, depth] b[depth, columns] + bias`.
fn product(
    context: &Context<'_>,
    [rows, columns, depth]: [u64; 3],
    a: Factor,
    b: Factor,
    bias: Option<TensorId>,
    (c, add): (TensorId, u8),
) -> Result<Launch, Error> {
    let kernel = context.product_kernel("product.cu", "product");
    let transposed = [a.transposed, b.transposed];
    let pitches = [("A_ROW", a.tensor), ("B_ROW", b.tensor), ("C_ROW", c)];
    let kernel = pitches.into_iter().fold(kernel, |kernel, (name, id)| with_pitch(context, kernel, name, id));
    let (kernel, blocks) = tiles(kernel, 1, [rows, columns, depth], transposed, (bias.is_some(), add))?;
    let arguments = vec![Some(a.tensor), Some(b.tensor), bias, Some(c)];
    Ok(Launch { kernel, grid: [blocks, 1, 1], block: [256, 1, 1], arguments, numbers: Vec::new() })
}

/// Adds the pitch of a tensor to a kernel, if its rows have gaps.
pub(in crate::operations) fn with_pitch(
    context: &Context<'_>,
    kernel: Kernel,
    name: &'static str,
    id: TensorId,
) -> Kernel {
    match context.pitch(id) {
        Some(pitch) => kernel.with(name, format!("{pitch}ull")),
        None => kernel,
    }
}

/// Adds the constants of `matrices.cuh` for `count` products to a kernel. Also returns the blocks that they need.
pub(in crate::operations) fn tiles(
    kernel: Kernel,
    count: u64,
    sizes: [u64; 3],
    transposed: [bool; 2],
    (bias, add): (bool, u8),
) -> Result<(Kernel, u32), Error> {
    for size in sizes {
        small(size)?;
    }
    let [rows, columns, _] = sizes;
    let [tall, wide] = tile(rows, columns, count, 128);
    let kernel = constants(kernel, sizes, transposed, bias, add, [tall, wide]);
    Ok((kernel, small(rows.div_ceil(tall).saturating_mul(columns.div_ceil(wide)).saturating_mul(count))?))
}

/// Returns the launch of `sums[columns]` over the rows of `a[rows, columns]`.
fn column_sums(context: &Context<'_>, rows: u64, columns: u64, a: TensorId, sums: TensorId) -> Result<Launch, Error> {
    let adds = context.adds(Slot::InputGradient(2)) == 1;
    column_sums_of(context, [rows, columns], a, (sums, adds))
}

/// Returns the launch of column sums, which are added to their tensor if `adds`.
pub(in crate::operations) fn column_sums_of(
    context: &Context<'_>,
    [rows, columns]: [u64; 2],
    a: TensorId,
    (sums, adds): (TensorId, bool),
) -> Result<Launch, Error> {
    small(rows)?;
    let add = u8::from(adds);
    let kernel = context.product_kernel("product.cu", "column_sums");
    let kernel = constants(kernel, [rows, columns, columns], [false, false], false, add, [32, 32]);
    let kernel = with_pitch(context, kernel, "A_ROW", a);
    let grid = [small(columns)?.div_ceil(SUM_COLUMNS as u32), 1, 1];
    Ok(Launch { kernel, grid, block: [SUM_THREADS, 1, 1], arguments: vec![Some(a), Some(sums)], numbers: Vec::new() })
}

/// Returns `c[rows, columns] = a[rows, depth] b[depth, columns] + bias`, added to its tensor if `adds`. The library computes it, or gpumem's own
/// kernel.
pub(in crate::operations) fn product_of(
    context: &Context<'_>,
    sizes: [u64; 3],
    [a, b]: [Factor; 2],
    bias: Option<TensorId>,
    (c, adds): (TensorId, bool),
) -> Result<Call, Error> {
    if context.setting.library {
        return Ok(library::product_of(context, sizes, [a, b], bias, (c, adds))?.into());
    }
    Ok(product(context, sizes, a, b, bias, (c, u8::from(adds)))?.into())
}

/// Returns the weight, read as `[out_features, in_features]`.
fn weight(context: &Context<'_>, op: &Product) -> Result<Factor, Error> {
    Ok(Factor { tensor: context.read(Slot::Input(1))?, transposed: op.transposed })
}

/// Returns the rows in all samples of a tensor with rows of `length` elements.
pub(in crate::operations) fn rows(context: &Context<'_>, tensor: TensorId, length: u64) -> Result<u64, Error> {
    let rows = context.count(tensor).checked_div(length);
    rows.ok_or(Error::Damaged("a product has rows of no elements"))
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &Product) -> Result<Vec<Call>, Error> {
    if context.setting.library {
        return Ok(vec![library::forward(context, op)?.into()]);
    }
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let bias = if op.bias { Some(context.read(Slot::Input(2))?) } else { None };
    let sizes = [rows(context, y, op.out_features)?, op.out_features, op.in_features];
    Ok(vec![product(context, sizes, Factor::plain(x), weight(context, op)?.t(), bias, (y, 0))?.into()])
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &Product) -> Result<Vec<Call>, Error> {
    if context.setting.library {
        return library::backward(context, op);
    }
    let Product { in_features, out_features, .. } = *op;
    let dy = context.read(Slot::Gradient)?;
    let rows = rows(context, dy, out_features)?;
    let mut calls: Vec<Call> = Vec::new();
    if let Some(dx) = context.operation.written(Slot::InputGradient(0)) {
        let sizes = [rows, in_features, out_features];
        let target = (dx, context.adds(Slot::InputGradient(0)));
        calls.push(product(context, sizes, Factor::plain(dy), weight(context, op)?, None, target)?.into());
    }
    if let Some(dw) = context.operation.written(Slot::InputGradient(1)) {
        let (dy, x) = (Factor::plain(dy), Factor::plain(context.read(Slot::Input(0))?));
        let target = (dw, context.adds(Slot::InputGradient(1)));
        let launch = if op.transposed {
            product(context, [in_features, out_features, rows], x.t(), dy, None, target)?
        } else {
            product(context, [out_features, in_features, rows], dy.t(), x, None, target)?
        };
        calls.push(launch.into());
    }
    if let Some(db) = context.operation.written(Slot::InputGradient(2)) {
        calls.push(column_sums(context, rows, out_features, dy, db)?.into());
    }
    Ok(calls)
}
