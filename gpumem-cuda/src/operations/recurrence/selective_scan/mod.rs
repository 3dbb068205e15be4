//! Launches of the selective scan of a state space model: `kernels/recurrence/selective_scan.cu`.

pub(in crate::operations) mod cached;

use crate::calls::{Kernel, Launch};
use crate::operations::context::Context;
use crate::operations::grid::{norm_real, small};
use gpumem_core::error::Error;
use gpumem_core::program::ops::SelectiveScan;
use gpumem_core::program::{Slot, TensorId};

/// Division of channels and their states among threads.
struct Plan<'a> {
    context: &'a Context<'a>,
    op: SelectiveScan,
    samples: u64,
    /// Threads of a channel, and of a block.
    lanes: u64,
    threads: u64,
    /// Gradients that are added to their tensors: a bit for each input.
    adds: u8,
}

impl<'a> Plan<'a> {
    fn new(context: &'a Context<'a>, op: SelectiveScan, wide: TensorId) -> Result<Plan<'a>, Error> {
        if !op.is_sound() {
            return Err(Error::Damaged("a scan has no steps or channels, or a number of states that it cannot have"));
        }
        small(op.channels)?;
        small(op.steps)?;
        // A thread has four states, and a block as many threads as shared memory has space for the states of a chunk.
        let lanes = op.states.div_ceil(4).next_power_of_two();
        let threads = if lanes == 32 { 64 } else { (SelectiveScan::GROUP * lanes).min(128) };
        let adds = (0..6).map(|input| context.adds(Slot::InputGradient(input)) << input).sum();
        Ok(Plan { context, op, samples: context.samples(wide), lanes, threads, adds })
    }

    /// Returns a kernel of the forward or the backward pass.
    fn kernel(&self, entry: &'static str) -> Kernel {
        let room = self.op.rooms().into_iter().fold(0, u64::saturating_add);
        let kernel = self.kernel_of("selective_scan.cu", entry).with("GROUP", format!("{}u", SelectiveScan::GROUP));
        kernel.with("ROOM", format!("{room}ull")).with("ADDS", self.adds)
    }

    /// Returns a kernel with the constants of `kernels/recurrence/selective_scan.cuh`.
    fn kernel_of(&self, file: &'static str, entry: &'static str) -> Kernel {
        let Plan { context, ref op, samples, lanes, threads, .. } = *self;
        let kernel = context.kernel(file, entry).with("NORM", norm_real(context));
        let kernel = kernel.with("SAMPLES", format!("{samples}ull")).with("STEPS", format!("{}u", op.steps));
        let kernel = kernel.with("CHANNELS", format!("{}u", op.channels)).with("STATES", format!("{}u", op.states));
        let kernel = kernel.with("CHUNK", format!("{}u", SelectiveScan::CHUNK)).with("LANES", lanes);
        kernel.with("EACH", op.states.div_ceil(lanes)).with("THREADS", threads)
    }

    /// Returns a launch with a block for each `channels` channels of a sample.
    fn walk(&self, kernel: Kernel, channels: u64, arguments: Vec<Option<TensorId>>) -> Result<Launch, Error> {
        let blocks = small(self.op.channels.div_ceil(channels).saturating_mul(self.samples))?;
        let block = [small(self.threads)?, 1, 1];
        Ok(Launch { kernel, grid: [blocks, 1, 1], block, arguments, numbers: Vec::new() })
    }

    /// Returns the channels that a block works on at a time.
    fn channels(&self) -> u64 {
        self.threads / self.lanes
    }

    /// Returns the inputs: u, delta, A_log, b, c and d.
    fn inputs(&self) -> Result<Vec<Option<TensorId>>, Error> {
        (0..6).map(|input| self.context.read(Slot::Input(input)).map(Some)).collect()
    }
}

pub(in crate::operations) fn forward(context: &Context<'_>, op: &SelectiveScan) -> Result<Vec<Launch>, Error> {
    let y = context.written(Slot::Output)?;
    let plan = Plan::new(context, op.clone(), y)?;
    let mut arguments = plan.inputs()?;
    arguments.push(Some(y));
    Ok(vec![plan.walk(plan.kernel("selective_scan_forward"), plan.channels(), arguments)?])
}

/// Returns the launches of the backward pass: the states before each chunk, the gradients from the last time step to the first, and their sums over
/// groups of channels and over samples.
pub(in crate::operations) fn backward(context: &Context<'_>, op: &SelectiveScan) -> Result<Vec<Launch>, Error> {
    let (dy, rooms) = (context.read(Slot::Gradient)?, Some(context.written(Slot::Workspace)?));
    let plan = Plan::new(context, op.clone(), dy)?;
    let inputs = plan.inputs()?;
    let [du, ddelta, da, db, dc, dd] =
        [0, 1, 2, 3, 4, 5].map(|input| context.operation.written(Slot::InputGradient(input)));
    let before = [&inputs[..4], &[rooms]].concat();
    let back = [&[Some(dy)], &inputs[..], &[du, ddelta, rooms]].concat();
    let mut launches = vec![
        plan.walk(plan.kernel("selective_scan_states"), plan.channels(), before)?,
        plan.walk(plan.kernel("selective_scan_backward"), SelectiveScan::GROUP, back)?,
    ];
    if db.is_some() || dc.is_some() {
        let count = plan.samples.saturating_mul(op.steps).saturating_mul(op.states);
        launches.push(Launch::elementwise(plan.kernel("selective_scan_sums"), count, vec![rooms, db, dc]));
    }
    if da.is_some() || dd.is_some() {
        let count = op.channels.saturating_mul(op.states + 1);
        launches.push(Launch::elementwise(plan.kernel("selective_scan_parameters"), count, vec![rooms, da, dd]));
    }
    Ok(launches)
}
