//! Launches of row norms, LayerNorm and the like: `kernels/norm/normalize.cu`.

use crate::calls::{Kernel, Launch};
use crate::operations::context::Context;
use crate::operations::grid::{Rows, SUMS_OF_BLOCK, norm_real, pack, parts, threads};
use gpumem_core::error::Error;
use gpumem_core::program::ops::Normalize;
use gpumem_core::program::{Slot, TensorId};

/// Returns the columns of a block that sums over all rows. The least is 32 bytes, which is what memory delivers at least, so that there are many
/// blocks; it is more if there are many blocks even so.
fn columns(context: &Context<'_>, features: u64) -> u64 {
    let least = if pack(context, 0) == 4 { 8 } else { 16 };
    if features >= WIDE_COLUMNS * 256 { WIDE_COLUMNS } else { least }
}

/// Columns of a block if there are enough blocks.
const WIDE_COLUMNS: u64 = 32;

/// Sizes and choices that the launches of an operation share.
#[derive(Clone, Copy)]
struct Plan<'a> {
    context: &'a Context<'a>,
    op: &'a Normalize,
    /// Number of rows in all samples.
    count: u64,
    rows: Rows,
    /// Parts that the rows are split into for the gradients of parameters.
    parts: u64,
    columns: u64,
    residual: bool,
    /// True if one pass computes all gradients.
    together: bool,
}

/// Threads of a block that computes all gradients, and the fewest rows of such a block.
const TOGETHER: u32 = 512;
const LEAST_ROWS: u64 = 32;

impl<'a> Plan<'a> {
    fn new(context: &'a Context<'a>, op: &'a Normalize, x: TensorId) -> Result<Plan<'a>, Error> {
        let count = context.samples(x) * op.rows;
        if !op.is_sound() {
            return Err(Error::Damaged("a normalisation's rows are no whole groups"));
        }
        let rows = Rows::new(context, count, op.length)?;
        // Two f32 numbers for each part of each parameter.
        let room = (context.workspace_bytes() / 8 / op.parameters().max(1)).clamp(1, 64);
        let (parts, columns) = if op.shared == 1 {
            let parts = parts(count / op.groups, op.parameters().div_ceil(WIDE_COLUMNS), room, 256);
            (parts, if parts > 1 { WIDE_COLUMNS } else { columns(context, op.parameters()) })
        } else {
            // A block for each parameter, with a few thousand elements or more.
            (parts(count / op.groups, op.parameters(), room, (4096 / op.shared).max(1)), 1)
        };
        Ok(Plan { context, op, count, rows, parts, columns, residual: false, together: false })
    }

    fn kernel(&self, entry: &'static str, add: [u8; 3]) -> Kernel {
        let (context, op) = (self.context, self.op);
        let kernel = context.kernel("normalize.cu", entry).with("ROWS", format!("{}ull", self.count));
        let kernel = kernel.with("STEPS", format!("{}ull", op.rows)).with("FEATURES", format!("{}ull", op.length));
        let kernel = kernel.with("CENTER", u8::from(op.center)).with("GROUPS", format!("{}ull", op.groups));
        let kernel = kernel.with("SHARED", op.shared);
        let kernel = kernel.with("NORM_REAL", norm_real(context)).with("AFFINE", u8::from(op.scale));
        let kernel = kernel.with("BIAS", u8::from(op.shift)).with_float("EPS", op.eps);
        let kernel = kernel.with("WARP_ROWS", self.rows.warp).with("COLUMNS", self.columns);
        let kernel = kernel.with("PARTS", self.parts).with("RESIDUAL", u8::from(self.residual));
        let kernel = kernel.with("PARAMETERS_TOO", u8::from(self.together));
        kernel.with("ADD", add[0]).with("ADD_WEIGHT", add[1]).with("ADD_BIAS", add[2])
    }

    /// Returns the launches of the gradients of scale and shift.
    fn parameters(
        &self,
        add: [u8; 3],
        read: [TensorId; 3],
        written: [Option<TensorId>; 2],
    ) -> Result<Vec<Launch>, Error> {
        let blocks = u32::try_from(self.op.parameters().div_ceil(self.columns))
            .map_err(|_| Error::Damaged("a normalisation has more parameters than a grid has blocks"))?;
        // A power of two of rows at a time, about eight for each thread.
        let rows = (self.count / self.op.groups).div_ceil(self.parts);
        let slices = (rows / 8).next_power_of_two().clamp(64 / self.columns, 1024 / self.columns);
        let threads = match self.op.shared {
            1 => (slices * self.columns) as u32,
            shared => threads(rows.saturating_mul(shared)),
        };
        let workspace = self.context.operation.written(Slot::Workspace);
        let partial = if self.parts > 1 { workspace } else { None };
        let mut arguments = read.map(Some).to_vec();
        arguments.push(partial);
        arguments.extend(written);
        let mut launches = vec![Launch {
            kernel: self.kernel("normalize_parameters", add),
            grid: [blocks, self.parts as u32, 1],
            block: [threads, 1, 1],
            arguments,
            numbers: Vec::new(),
        }];
        if self.parts > 1 {
            launches.push(self.sum(add, partial, written));
        }
        Ok(launches)
    }

    /// Returns the launch that adds up the sums of all parts.
    fn sum(&self, add: [u8; 3], partial: Option<TensorId>, written: [Option<TensorId>; 2]) -> Launch {
        let kernel = self.kernel("normalize_sum", add);
        let blocks = u32::try_from(self.op.parameters().div_ceil(SUMS_OF_BLOCK)).unwrap_or(u32::MAX);
        let arguments = vec![partial, written[0], written[1]];
        Launch { kernel, grid: [blocks, 1, 1], block: [256, 1, 1], arguments, numbers: Vec::new() }
    }

    /// Returns a plan with blocks that compute all gradients at once; `None` unless rows are short enough to keep a warp's sums in registers, and
    /// many enough.
    fn together(&self) -> Option<Plan<'a>> {
        let (context, op) = (self.context, self.op);
        let room = context.workspace_bytes() / 8 / op.parameters().max(1);
        let parts = (self.count / LEAST_ROWS).min(room);
        let is_short = self.rows.warp == 1 && op.groups == 1 && op.shared == 1 && pack(context, op.length) > 1;
        (is_short && parts > 1).then_some(Plan { parts, together: true, ..*self })
    }
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &Normalize) -> Result<Vec<Launch>, Error> {
    forward_of(context, op, context.read(Slot::Input(0))?, None)
}

/// Returns the launches of the forward pass from `x`. With a residual and a sum, x plus the residual is normalised, and stored in the sum.
pub(crate) fn forward_of(
    context: &Context<'_>,
    op: &Normalize,
    x: TensorId,
    residual_and_sum: Option<[TensorId; 2]>,
) -> Result<Vec<Launch>, Error> {
    let y = context.written(Slot::Output)?;
    let weight = if op.scale { Some(context.read(Slot::Input(1))?) } else { None };
    let bias = if op.shift { Some(context.read(Slot::Input(2))?) } else { None };
    let saved = context.operation.written(Slot::Saved(0));
    let plan = Plan { residual: residual_and_sum.is_some(), ..Plan::new(context, op, x)? };
    let (residual, sum) = (residual_and_sum.map(|pair| pair[0]), residual_and_sum.map(|pair| pair[1]));
    let arguments = vec![Some(x), residual, sum, weight, bias, Some(y), saved];
    let kernel = plan.kernel("normalize", [0; 3]);
    Ok(vec![Launch { kernel, grid: plan.rows.grid, block: plan.rows.block, arguments, numbers: Vec::new() }])
}

pub(in crate::operations) fn backward(context: &Context<'_>, op: &Normalize) -> Result<Vec<Launch>, Error> {
    let (dy, x, saved) = (context.read(Slot::Gradient)?, context.read(Slot::Input(0))?, context.read(Slot::Saved(0))?);
    let slots = [Slot::InputGradient(0), Slot::InputGradient(1), Slot::InputGradient(2)];
    let [dx, dweight, dbias] = slots.map(|slot| context.operation.written(slot));
    let add = slots.map(|slot| context.adds(slot));
    let plan = Plan::new(context, op, x)?;
    let weight = if op.scale { Some(context.read(Slot::Input(1))?) } else { None };
    let wants_parameters = dweight.is_some() || dbias.is_some();
    if wants_parameters
        && dx.is_some()
        && let Some(plan) = plan.together()
    {
        let partial = context.operation.written(Slot::Workspace);
        let arguments = vec![Some(dy), Some(x), weight, Some(saved), dx, partial];
        let kernel = plan.kernel("normalize_backward", add);
        let all =
            Launch { kernel, grid: [plan.parts as u32, 1, 1], block: [TOGETHER, 1, 1], arguments, numbers: Vec::new() };
        return Ok(vec![all, plan.sum(add, partial, [dweight, dbias])]);
    }
    let mut launches = Vec::new();
    // Sums over rows come first, because the gradient of the input may overwrite the tensors that they read.
    if wants_parameters {
        launches.extend(plan.parameters(add, [dy, x, saved], [dweight, dbias])?);
    }
    if let Some(dx) = dx {
        launches.push(Launch {
            kernel: plan.kernel("normalize_input", add),
            grid: plan.rows.grid,
            block: plan.rows.block,
            arguments: vec![Some(dy), Some(x), weight, Some(saved), Some(dx)],
            numbers: Vec::new(),
        });
    }
    Ok(launches)
}
