//! Launches of recurrent layers: `kernels/recurrence/recurrence.cu`, `kernels/recurrence/recurrence_weight.cu` and `kernels/recurrence/recurrence_bias.cu`, with a projection
//! `kernels/recurrence/recurrence_projection.cu`.
//!
//! Each time step of both directions is a launch, and its projection is another one, since a time step needs the results of all blocks of the one
//! before. Consecutive launches are about as fast as a grid barrier, require no support from the card, and may have any number of blocks.

pub(in crate::operations) mod cached;
pub(in crate::operations) mod selective_scan;
pub(crate) mod whole;

use super::context::Context;
use super::grid::{small, tile};
use crate::calls::{Kernel, Launch};
use gpumem_core::error::Error;
use gpumem_core::program::op::Rule;
use gpumem_core::program::ops::{Cell, Recurrence};
use gpumem_core::program::{Slot, TensorId};

/// Units of a block: UNITS of the kernel.
const UNITS: u64 = 8;

/// Checks that the sizes of a layer are possible.
pub(super) fn sound(op: &Recurrence) -> Result<(), Error> {
    let not = "a recurrence has no units or steps, other outputs than its cell, or more than two directions";
    if op.is_sound() { Ok(()) } else { Err(Error::Damaged(not)) }
}

/// Sizes that the launches of an operation share.
struct Plan<'a> {
    context: &'a Context<'a>,
    op: Recurrence,
    samples: u64,
    steps: u32,
}

impl<'a> Plan<'a> {
    fn new(context: &'a Context<'a>, op: Recurrence, y: TensorId) -> Result<Plan<'a>, Error> {
        sound(&op)?;
        let samples = context.samples(y);
        let rows = samples.saturating_mul(op.steps);
        small(rows)?;
        small(op.width())?;
        small(op.output().dims()[1])?;
        let steps = small(op.steps)?;
        Ok(Plan { context, op, samples, steps })
    }

    /// Adds the constants of `recurrence.cuh` to a kernel.
    fn constants(&self, kernel: Kernel) -> Kernel {
        let Recurrence { cell, steps, hidden, outputs, directions, .. } = self.op;
        let kernel = kernel.with("CELL", cell as u8).with("BATCH", format!("{}ull", self.samples));
        let kernel = kernel.with("STEPS", format!("{steps}u")).with("HIDDEN", format!("{hidden}u"));
        kernel.with("OUTPUTS", format!("{outputs}u")).with("DIRECTIONS", directions)
    }

    /// Returns the samples of a block.
    fn tall(&self) -> u64 {
        if self.samples <= 16 { 16 } else { 32 }
    }

    /// Returns a kernel with the constants of `recurrence_steps.cuh`.
    fn kernel_of(&self, file: &'static str, entry: &'static str) -> Kernel {
        self.constants(self.context.kernel(file, entry)).with("SAMPLES", self.tall())
    }

    fn kernel(&self, entry: &'static str) -> Kernel {
        self.kernel_of("recurrence.cu", entry)
    }

    /// Returns the launch for a time step, without its number, for `units` units or outputs of each direction.
    fn step(&self, kernel: &Kernel, units: u64, arguments: Vec<Option<TensorId>>) -> Result<Launch, Error> {
        let tiles = u32::try_from(self.samples.div_ceil(self.tall())).ok().filter(|&tiles| tiles < 1 << 16);
        let tiles = tiles.ok_or(Error::Damaged("a recurrence has more samples than a grid has blocks"))?;
        let grid = [small(units.div_ceil(UNITS))?, tiles, self.op.directions as u32];
        Ok(Launch { kernel: kernel.clone(), grid, block: [256, 1, 1], arguments, numbers: Vec::new() })
    }

    /// Returns the value of `of` for each direction; `None` for a direction that the layer lacks.
    fn each<T>(&self, of: impl Fn(u8) -> Result<Option<T>, Error>) -> Result<[Option<T>; 2], Error> {
        Ok([of(0)?, if self.op.directions == 2 { of(1)? } else { None }])
    }

    /// Returns input number `index` of each direction.
    fn inputs(&self, index: u8) -> Result<[Option<TensorId>; 2], Error> {
        self.each(|direction| self.context.read(Slot::Input(self.op.first_input(direction) + index)).map(Some))
    }

    /// Returns the projection of each direction; `None` without one.
    fn projections(&self) -> Result<[Option<TensorId>; 2], Error> {
        if self.op.is_projected() { self.inputs(self.op.projection()) } else { Ok([None; 2]) }
    }

    /// Returns the launches of the gradients of weight, projection and bias of a direction, from the gradients of the gates' inputs.
    fn sums(&self, direction: u8, dp: TensorId, rows: Option<TensorId>, y: TensorId) -> Result<Vec<Launch>, Error> {
        let Plan { context, ref op, .. } = *self;
        let first = op.first_input(direction);
        let kernel = |kernel, slot| self.constants(kernel).with("DIRECTION", direction).with("ADD", context.adds(slot));
        let of_weight = |slot, entry, [height, width]: [u64; 2], arguments| {
            let [tall, wide] = tile(height, width, 1, 128);
            let blocks = small(height.div_ceil(tall).saturating_mul(width.div_ceil(wide)))?;
            let kernel = kernel(context.product_kernel("recurrence_weight.cu", entry), slot);
            let kernel = kernel.with("TILE_M", tall).with("TILE_N", wide);
            Ok::<_, Error>(Launch { kernel, grid: [blocks, 1, 1], block: [256, 1, 1], arguments, numbers: Vec::new() })
        };
        let mut launches = Vec::new();
        let slot = Slot::InputGradient(first + 1);
        if let Some(dw) = context.operation.written(slot) {
            let arguments = vec![Some(dp), rows, Some(y), Some(dw)];
            launches.push(of_weight(slot, "recurrence_weight", [op.width(), op.outputs], arguments)?);
        }
        let slot = Slot::InputGradient(first + op.projection());
        if let Some(dw) = context.operation.written(slot).filter(|_| op.is_projected()) {
            let sizes = [op.outputs, op.hidden];
            launches.push(of_weight(slot, "recurrence_projection_weight", sizes, vec![rows, Some(dw)])?);
        }
        let slot = Slot::InputGradient(first + 2);
        if let Some(db) = context.operation.written(slot).filter(|_| op.bias) {
            launches.push(Launch {
                kernel: kernel(context.kernel("recurrence_bias.cu", "recurrence_bias"), slot),
                grid: [small(op.width().div_ceil(32))?, 1, 1],
                block: [1024, 1, 1],
                arguments: vec![Some(dp), rows, Some(db)],
                numbers: Vec::new(),
            });
        }
        Ok(launches)
    }
}

pub(super) fn forward(context: &Context<'_>, op: &Recurrence) -> Result<Vec<Launch>, Error> {
    let y = context.written(Slot::Output)?;
    let plan = Plan::new(context, op.clone(), y)?;
    let ([p0, p1], [w0, w1]) = (plan.inputs(0)?, plan.inputs(1)?);
    let [b0, b1] = if op.bias { plan.inputs(2)? } else { [None; 2] };
    let [kept0, kept1] = plan.each(|direction| Ok(context.operation.written(Slot::Saved(direction))))?;
    let states = if op.cell == Cell::Lstm { Some(context.written(Slot::Workspace)?) } else { None };
    let arguments = vec![p0, w0, b0, p1, w1, b1, kept0, kept1, states, Some(y)];
    let [r0, r1] = plan.projections()?;
    let mut each = vec![plan.step(&plan.kernel("recurrence_forward"), op.hidden, arguments)?];
    if op.is_projected() {
        let kernel = plan.kernel_of("recurrence_projection.cu", "recurrence_project");
        each.push(plan.step(&kernel, op.outputs, vec![r0, r1, states, Some(y)])?);
    }
    Ok(at_steps(0..plan.steps, &each))
}

/// Returns these launches for each of the time steps.
fn at_steps(steps: impl Iterator<Item = u32>, each: &[Launch]) -> Vec<Launch> {
    steps.flat_map(|step| each.iter().map(move |launch| launch.clone().with_numbers(vec![step]))).collect()
}

/// Returns the launches of the backward pass: time steps from the last to the first, then the gradients of weights and biases.
pub(super) fn backward(context: &Context<'_>, op: &Recurrence) -> Result<Vec<Launch>, Error> {
    let (dy, y) = (context.read(Slot::Gradient)?, context.read(Slot::Output)?);
    let plan = Plan::new(context, op.clone(), y)?;
    let [w0, w1] = plan.inputs(1)?;
    let [b0, b1] = if op.bias && op.cell == Cell::Gru { plan.inputs(2)? } else { [None; 2] };
    let is_plain = op.cell.is_plain();
    let saved = |direction| Ok(if is_plain { None } else { Some(context.read(Slot::Saved(direction))?) });
    let [kept0, kept1] = plan.each(saved)?;
    let gradients = plan.each(|direction| {
        let slot = Slot::InputGradient(op.first_input(direction));
        if context.adds(slot) == 1 {
            return Err(Error::Damaged("the gradient of a recurrence's gates is added to another one"));
        }
        context.written(slot).map(Some)
    })?;
    let rows = if is_plain { None } else { Some(context.written(Slot::Workspace)?) };
    let mut launches = Vec::new();
    if op.cell == Cell::Lstm {
        let units = op.directions.saturating_mul(plan.samples).saturating_mul(op.hidden);
        launches.push(Launch::elementwise(plan.kernel("recurrence_states"), units, vec![kept0, kept1, rows]));
    }
    let [dp0, dp1] = gradients;
    let mut each = Vec::new();
    // The cell's gradient passes through the recurrent weight. If there is a projection, an earlier launch computes that product, and the gradient
    // passes through the projection.
    let [v0, v1] = if op.is_projected() { plan.projections()? } else { [w0, w1] };
    if op.is_projected() {
        let kernel = plan.kernel_of("recurrence_projection.cu", "recurrence_hand_on");
        each.push(plan.step(&kernel, op.outputs, vec![Some(dy), w0, w1, dp0, dp1, rows])?);
    }
    let arguments = vec![Some(dy), Some(y), v0, b0, v1, b1, kept0, kept1, dp0, dp1, rows];
    each.push(plan.step(&plan.kernel("recurrence_backward"), op.hidden, arguments)?);
    launches.extend(at_steps((0..plan.steps).rev(), &each));
    for (direction, dp) in (0..).zip(gradients.into_iter().flatten()) {
        launches.extend(plan.sums(direction, dp, rows, y)?);
    }
    Ok(launches)
}
