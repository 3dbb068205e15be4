//! Matrix products: `kernels/gemm.cu`.

use super::Context;
use crate::launch::{Kernel, Launch};
use crate::product::Factor;
use gpumem_core::error::Error;
use gpumem_core::layers::{Layer, Linear, Tied};
use gpumem_core::program::{Action, Slot, TensorId};

/// Blocks that a device of today runs at once. Tiles are made smaller until a product has as many.
const ENOUGH_BLOCKS: u64 = 128;
/// Threads of a block of `column_sums`, and the columns it adds up.
const SUM_THREADS: u32 = 1024;
const SUM_COLUMNS: u64 = 32;

/// Rows and columns of the tile that a block computes, for `count` products with results of `rows` x `columns`. Large tiles
/// read less, small ones leave fewer multiprocessors idle.
pub(super) fn tile(rows: u64, columns: u64, count: u64, largest: u64) -> [u64; 2] {
    let around = |extent: u64| extent.clamp(32, largest).next_power_of_two();
    let [mut tall, mut wide] = [around(rows), around(columns)];
    let blocks =
        |tall: u64, wide: u64| rows.div_ceil(tall).saturating_mul(columns.div_ceil(wide)).saturating_mul(count);
    while tall.max(wide) > 32 && blocks(tall, wide) < ENOUGH_BLOCKS {
        if tall > wide {
            tall /= 2;
        } else {
            wide /= 2;
        }
    }
    [tall, wide]
}

/// A number that the kernels count in 31 bits.
///
/// # Errors
/// [`Error::Unsupported`] if it has more.
pub(super) fn small(number: u64) -> Result<u32, Error> {
    match u32::try_from(number) {
        Ok(number) if number < 1 << 31 => Ok(number),
        _ => Err(Error::Unsupported { device: "CUDA", what: "a product with a dimension of 2^31 or more".into() }),
    }
}

fn constants(kernel: Kernel, sizes: [u64; 3], transposed: [bool; 2], bias: bool, add: u8, tile: [u64; 2]) -> Kernel {
    let [rows, columns, depth] = sizes.map(|size| format!("{size}ull"));
    let kernel = kernel.with("ROWS", rows).with("COLUMNS", columns).with("DEPTH", depth);
    let kernel = kernel.with("A_TRANSPOSED", u8::from(transposed[0])).with("B_TRANSPOSED", u8::from(transposed[1]));
    let kernel = kernel.with("BIAS", u8::from(bias)).with("ADD", add);
    kernel.with("TILE_M", tile[0]).with("TILE_N", tile[1])
}

/// `c[rows, columns] = a[rows, depth] b[depth, columns] + bias`.
fn product(
    context: &Context<'_>,
    [rows, columns, depth]: [u64; 3],
    a: Factor,
    b: Factor,
    bias: Option<TensorId>,
    (c, add): (TensorId, u8),
) -> Result<Launch, Error> {
    let sizes = [rows, columns, depth];
    for size in sizes {
        small(size)?;
    }
    let [tall, wide] = tile(rows, columns, 1, 128);
    let kernel = context.product_kernel("gemm.cu", "gemm");
    let kernel = constants(kernel, sizes, [a.transposed, b.transposed], bias.is_some(), add, [tall, wide]);
    let blocks = small(rows.div_ceil(tall) * columns.div_ceil(wide))?;
    let arguments = vec![Some(a.tensor), Some(b.tensor), bias, Some(c)];
    Ok(Launch { kernel, grid: [blocks, 1, 1], block: [256, 1, 1], arguments })
}

/// `sums[columns]` of `a[rows, columns]`.
pub(super) fn column_sums(
    context: &Context<'_>,
    rows: u64,
    columns: u64,
    a: TensorId,
    sums: TensorId,
) -> Result<Launch, Error> {
    small(rows)?;
    let add = context.adds(Slot::ParameterGradient(1));
    let kernel = context.product_kernel("gemm.cu", "column_sums");
    let kernel = constants(kernel, [rows, columns, 1], [false, false], false, add, [32, 32]);
    let grid = [small(columns)?.div_ceil(SUM_COLUMNS as u32), 1, 1];
    Ok(Launch { kernel, grid, block: [SUM_THREADS, 1, 1], arguments: vec![Some(a), Some(sums)] })
}

/// `y = x W^T + b`.
pub(super) struct Affine {
    pub in_features: u64,
    pub out_features: u64,
    pub bias: bool,
    /// Whether W is stored as `[in_features, out_features]`.
    pub transposed: bool,
}

impl Affine {
    /// What the operation's layer computes, if it is affine.
    pub fn of(action: &Action) -> Option<Affine> {
        match action {
            Action::Forward(layer)
            | Action::BackwardInput(layer)
            | Action::BackwardParameters(layer)
            | Action::Backward(layer) => match layer {
                Layer::Linear(layer) => Some(Affine::linear(layer)),
                Layer::Tied(layer) => Some(Affine::tied(layer)),
                _ => None,
            },
            _ => None,
        }
    }

    fn linear(layer: &Linear) -> Affine {
        let Linear { in_features, out_features, bias, .. } = *layer;
        Affine { in_features, out_features, bias, transposed: false }
    }

    fn tied(layer: &Tied) -> Affine {
        let Tied { in_features, out_features, transposed, .. } = *layer;
        Affine { in_features, out_features, bias: false, transposed }
    }

    /// The weight, read as `[out_features, in_features]`.
    pub fn weight(&self, context: &Context<'_>) -> Result<Factor, Error> {
        Ok(Factor { tensor: context.read(Slot::Parameter(0))?, transposed: self.transposed })
    }

    fn forward(&self, context: &Context<'_>) -> Result<Vec<Launch>, Error> {
        let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
        let bias = if self.bias { Some(context.read(Slot::Parameter(1))?) } else { None };
        let rows = context.elements(y) / self.out_features;
        let sizes = [rows, self.out_features, self.in_features];
        Ok(vec![product(context, sizes, Factor::plain(x), self.weight(context)?.t(), bias, (y, 0))?])
    }

    fn backward(&self, context: &Context<'_>) -> Result<Vec<Launch>, Error> {
        let Affine { in_features, out_features, .. } = *self;
        let dy = context.read(Slot::Gradient)?;
        let rows = context.elements(dy) / out_features;
        let mut launches = Vec::new();
        if let Some(dx) = context.operation.written(Slot::InputGradient(0)) {
            let sizes = [rows, in_features, out_features];
            let target = (dx, context.adds(Slot::InputGradient(0)));
            launches.push(product(context, sizes, Factor::plain(dy), self.weight(context)?, None, target)?);
        }
        if let Some(dw) = context.operation.written(Slot::ParameterGradient(0)) {
            let (dy, x) = (Factor::plain(dy), Factor::plain(context.read(Slot::Input(0))?));
            let target = (dw, context.adds(Slot::ParameterGradient(0)));
            launches.push(if self.transposed {
                product(context, [in_features, out_features, rows], x.t(), dy, None, target)?
            } else {
                product(context, [out_features, in_features, rows], dy.t(), x, None, target)?
            });
        }
        if let Some(db) = context.operation.written(Slot::ParameterGradient(1)) {
            launches.push(column_sums(context, rows, out_features, dy, db)?);
        }
        Ok(launches)
    }
}

pub(super) fn forward(context: &Context<'_>, layer: &Linear) -> Result<Vec<Launch>, Error> {
    Affine::linear(layer).forward(context)
}

pub(super) fn backward(context: &Context<'_>, layer: &Linear) -> Result<Vec<Launch>, Error> {
    Affine::linear(layer).backward(context)
}

pub(super) fn forward_tied(context: &Context<'_>, layer: &Tied) -> Result<Vec<Launch>, Error> {
    Affine::tied(layer).forward(context)
}

pub(super) fn backward_tied(context: &Context<'_>, layer: &Tied) -> Result<Vec<Launch>, Error> {
    Affine::tied(layer).backward(context)
}
