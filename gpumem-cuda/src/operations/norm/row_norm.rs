//! Launches of row norms, LayerNorm and the like: `kernels/norm/normalize.cu`.

use crate::calls::{Kernel, Launch, TOGETHER};
use crate::operations::context::Context;
use crate::operations::grid::{Rows, SUMS_OF_BLOCK, norm_real, pack, parts, threads};
use crate::operations::norm::batch_norm::Drop;
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
    /// Kind of the map that is added to x, 0 without one: `RESIDUAL` of the kernel.
    residual: u8,
    /// True if one pass computes all gradients.
    one_pass: bool,
    /// The state tensor, which has a word for the grid barrier, if that pass also adds up its parts; else `None`.
    state: Option<TensorId>,
}

/// Threads of a block that computes all gradients: `THREADS` of the kernel.
const THREADS: u32 = 512;
/// The fewest rows of such a block, if each of its warps has rows of its own.
const LEAST_ROWS: u64 = 32;
/// The most elements of a row in such a pass. A thread then has sums of 16 elements in registers.
const WIDEST: u64 = 16 * THREADS as u64;

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
        Ok(Plan { context, op, count, rows, parts, columns, residual: 0, one_pass: false, state: None })
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
        let kernel = kernel.with("PARTS", self.parts).with("RESIDUAL", self.residual);
        let kernel = kernel.with("PARAMETERS_TOO", u8::from(self.one_pass));
        let kernel = if self.state.is_some() { kernel.with(TOGETHER, 1) } else { kernel };
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

    /// Returns a plan with blocks that compute all gradients in one pass; `None` if several passes are faster.
    ///
    /// A warp keeps the sums of a row of up to 1024 elements in registers. The blocks of longer rows are only worth it if no other launch adds up
    /// their parts, and if they keep at least half of the multiprocessors busy.
    fn one_pass(&self) -> Option<Plan<'a>> {
        let (context, op) = (self.context, self.op);
        let at_once = u64::from(context.setting.multiprocessors);
        let state = context.placed.program.state().filter(|_| at_once > 1);
        let room = context.workspace_bytes() / 8 / op.parameters().max(1);
        let room = if state.is_some() { room.min(at_once) } else { room };
        let (parts, least) = if self.rows.warp == 1 {
            ((self.count / LEAST_ROWS).min(room), 2)
        } else if state.is_some() && op.length <= WIDEST {
            (self.count.min(room), at_once.div_ceil(2).max(2))
        } else {
            return None;
        };
        let is_plain = op.groups == 1 && op.shared == 1 && pack(context, op.length) > 1;
        (is_plain && parts >= least).then_some(Plan { parts, one_pass: true, state, ..*self })
    }

    /// Returns the launches of that pass, which writes `dx`.
    fn gradients(
        &self,
        add: [u8; 3],
        read: [Option<TensorId>; 4],
        [dx, dweight, dbias]: [Option<TensorId>; 3],
    ) -> Vec<Launch> {
        let partial = self.context.operation.written(Slot::Workspace);
        let launch = |entry, written: &[Option<TensorId>]| Launch {
            kernel: self.kernel(entry, add),
            grid: [self.parts as u32, 1, 1],
            block: [THREADS, 1, 1],
            arguments: [&read[..], written].concat(),
            numbers: Vec::new(),
        };
        if self.state.is_some() {
            return vec![launch("normalize_gradients", &[dx, partial, self.state, dweight, dbias])];
        }
        vec![launch("normalize_backward", &[dx, partial]), self.sum(add, partial, [dweight, dbias])]
    }
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &Normalize) -> Result<Vec<Launch>, Error> {
    forward_of(context, op, context.read(Slot::Input(0))?, None)
}

/// A map that is added to x before the norm.
#[derive(Clone, Copy)]
pub(crate) struct Added {
    /// The map. All samples of x may share it.
    pub(crate) residual: TensorId,
    /// The tensor of the sum, which is written too.
    pub(crate) sum: TensorId,
    /// Dropout of x before the sum; `None` if there is none.
    pub(crate) drop: Option<Drop>,
}

/// Returns the launches of the forward pass from `x`, or from the sum of x and another map.
pub(crate) fn forward_of(
    context: &Context<'_>,
    op: &Normalize,
    x: TensorId,
    added: Option<Added>,
) -> Result<Vec<Launch>, Error> {
    let y = context.written(Slot::Output)?;
    let weight = if op.scale { Some(context.read(Slot::Input(1))?) } else { None };
    let bias = if op.shift { Some(context.read(Slot::Input(2))?) } else { None };
    let saved = context.operation.written(Slot::Saved(0));
    let is_shared = |residual| context.tensor(residual).batched != context.tensor(x).batched;
    let residual = added.map_or(0, |added| if is_shared(added.residual) { 2 } else { 1 });
    let plan = Plan { residual, ..Plan::new(context, op, x)? };
    let launch = |entry, read: &[Option<TensorId>], sum| Launch {
        kernel: plan.kernel(entry, [0; 3]),
        grid: plan.rows.grid,
        block: plan.rows.block,
        arguments: [read, &[sum, weight, bias, Some(y), saved]].concat(),
        numbers: Vec::new(),
    };
    Ok(vec![match added {
        None => launch("normalize", &[Some(x), None], None),
        Some(Added { residual, sum, drop: None }) => launch("normalize", &[Some(x), Some(residual)], Some(sum)),
        Some(Added { residual, sum, drop: Some(drop) }) => {
            let read = [x, drop.state, residual].map(Some);
            drop.add_to(launch("normalize_drop", &read, Some(sum)), context, x)
        }
    }])
}

/// True if dropout of rows may be fused with their norm: a draw decides about four adjacent elements, which one thread must have.
pub(crate) fn may_drop(context: &Context<'_>, op: &Normalize) -> bool {
    pack(context, op.length).is_multiple_of(4)
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
        && let Some(plan) = plan.one_pass()
    {
        return Ok(plan.gradients(add, [Some(dy), Some(x), weight, Some(saved)], [dx, dweight, dbias]));
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
