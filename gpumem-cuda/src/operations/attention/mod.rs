//! Launches of scaled dot-product attention: `kernels/attention/attention.cu`, or cuDNN.
//!
//! Every card runs the kernels of this file. `warpgroups` has one more for Hopper, which a session takes in place of the forward pass only after it has
//! compared and timed both: `session/warpgroups.rs`.

pub(in crate::operations) mod cached;
pub(in crate::operations) mod padded_positions;
pub(in crate::operations) mod positions;
pub(in crate::operations) mod relative_bias;
pub(in crate::operations) mod rotary;
pub(in crate::operations) mod segment_positions;
pub(in crate::operations) mod sequence_mask;
pub(in crate::operations) mod sinusoid;
mod warpgroups;
pub(in crate::operations) mod window_mask;

use super::context::{Context, LaunchContext};
use super::elementwise::dropout::{with_draws, with_parts};
use crate::calls::attention::Pass;
use crate::calls::product::{Element, Scratch};
use crate::calls::{self, Call, Kernel, Launch};
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::op::Rule;
use gpumem_core::program::ops::{Attention, Seen};
use gpumem_core::program::{Action, Op, Operation, Slot, TensorId};
use gpumem_core::{Format, Precision};
pub use warpgroups::warpgroup_launches;

/// Queries and keys of a tile, and elements of a head in it: `SIDE` of the kernel.
const SIDE: u64 = 64;

/// The most slices of [`SIDE`] elements of a head that one block writes.
const CHUNKS_OF_A_BLOCK: u64 = 2;

/// Head sizes that the kernels on tensor cores support: multiples of the first number of elements, up to the second.
const TENSOR_CORE_WIDTHS: [u64; 2] = [16, 128];

/// An attention operation with its context and sizes.
struct Heads<'a> {
    context: &'a Context<'a>,
    op: &'a Attention,
    samples: u64,
    saves: bool,
    /// 1 for each gradient, of queries, keys, values and bias, that is added to its tensor; 0 if it overwrites it.
    adds: [u8; 4],
}

impl<'a> Heads<'a> {
    fn new(context: &'a Context<'a>, op: &'a Attention) -> Result<Heads<'a>, Error> {
        if !op.is_sound() {
            return Err(Error::Damaged("attention has sizes that do not fit each other"));
        }
        let heads =
            Heads { context, op, samples: context.samples(context.read(Slot::Input(0))?), saves: false, adds: [0; 4] };
        for (index, row) in (0..).zip(op.rows()) {
            let steps = if op.apart && index > 0 { op.keys } else { op.steps() };
            heads.check(context.read(Slot::Input(index))?, &[heads.samples, op.sequences(), steps, row])?;
        }
        if let Some(input) = op.added() {
            let bias = context.read(Slot::Input(input))?;
            heads.check(bias, &[context.samples(bias), op.added_elements()])?;
        }
        if let Some(input) = op.seen_by() {
            heads.check(context.read(Slot::Input(input))?, &[heads.samples, op.seen_elements()])?;
        }
        Ok(heads)
    }

    /// Checks that a tensor has the number of elements that the kernels process.
    fn check(&self, tensor: TensorId, sizes: &[u64]) -> Result<(), Error> {
        let all = sizes.iter().try_fold(1u64, |product, &size| product.checked_mul(size));
        if all == Some(self.context.elements(tensor)) {
            return Ok(());
        }
        Err(Error::Damaged("attention has an input of another size"))
    }

    /// Returns the value of the constant `TENSOR_CORES`.
    fn terms(&self) -> u8 {
        let [step, most] = TENSOR_CORE_WIDTHS;
        let Attention { width, values, .. } = *self.op;
        let fits = width == values && width.is_multiple_of(step) && width <= most;
        if fits { self.context.tensor_core_terms() } else { 0 }
    }

    /// Returns the inputs in the kernels' order: queries, keys, values and the bias that is added to scores.
    fn inputs(&self) -> Result<[Option<TensorId>; 4], Error> {
        let input = |index| self.context.read(Slot::Input(index)).map(Some);
        let parts = if self.op.apart { [input(0)?, input(1)?, input(2)?] } else { [input(0)?; 3] };
        let [q, k, v] = parts;
        Ok([q, k, v, self.op.added().map(|index| self.context.read(Slot::Input(index))).transpose()?])
    }

    /// Returns the input that says which keys each query may attend to; `None` if there is none.
    fn seen(&self) -> Result<Option<TensorId>, Error> {
        self.op.seen_by().map(|index| self.context.read(Slot::Input(index))).transpose()
    }

    /// Returns the gradients of the inputs; `None` for those that are not wanted.
    fn gradients(&self) -> [Option<TensorId>; 4] {
        self.slots().map(|slot| self.context.operation.written(slot?))
    }

    /// Returns the slot to which each gradient is written.
    fn slots(&self) -> [Option<Slot>; 4] {
        let parts = if self.op.apart { [0, 1, 2] } else { [0; 3] };
        let [q, k, v] = parts.map(|index| Some(Slot::InputGradient(index)));
        [q, k, v, self.op.added().map(Slot::InputGradient)]
    }

    fn kernel(&self, entry: &'static str, terms: u8) -> Kernel {
        let Heads { context, op, .. } = *self;
        let dropout = if context.placed.program.training { op.dropout } else { 0.0 };
        let per_sample = op.added().and_then(|index| context.operation.read(Slot::Input(index)));
        let per_sample = per_sample.is_some_and(|bias| context.tensor(bias).batched);
        let kernel = context.kernel("attention.cu", entry).with("TENSOR_CORES", terms);
        let kernel = kernel.with("HEADS", op.heads).with("KV_HEADS", op.kv_heads).with("STEPS", op.steps());
        let kernel =
            kernel.with("KEY_STEPS", op.keys).with("CAUSAL", u8::from(op.causal)).with("WINDOW", op.hides_from());
        let kernel = kernel.with("HEAD", op.width).with("VALUE_HEAD", op.values);
        let kernel = kernel.with_float("SCALE", f64::from(op.scale as f32)).with("APART", u8::from(op.apart));
        let kernel = kernel.with("SEQUENCES", op.sequences()).with("MATRICES", op.bias[0]);
        let kernel = kernel.with("SHARING", op.bias[1]).with("PER_SAMPLE", u8::from(per_sample));
        let kernel = if op.bias[0] > 0 { kernel.with("BIAS_ROWS", op.bias_rows) } else { kernel };
        let kernel = match op.seen {
            Seen::All => kernel,
            Seen::Lengths => kernel.with("SEEN", 1u8),
            Seen::Segments => kernel.with("SEEN", 2u8),
        };
        let kernel = kernel.with("SAVES", u8::from(self.saves));
        let names = ["ADD", "ADD_KEYS", "ADD_VALUES", "ADD_BIAS"];
        let kernel = match context.operation.read(Slot::Input(0)) {
            Some(x) if dropout > 0.0 => {
                let draws = [self.samples, op.sequences(), op.heads, op.steps(), op.keys];
                with_parts(kernel, context, x, draws.iter().fold(1, |product, &size| product.saturating_mul(size)))
            }
            _ => kernel,
        };
        let kernel = with_draws(kernel, "KEEP", dropout);
        names.into_iter().zip(self.adds).fold(kernel, |kernel, (name, add)| kernel.with(name, add))
    }

    /// Returns a launch with a block for each tile of [`SIDE`] time steps, each head of each sequence, and each slice of wide heads.
    fn launch(
        &self,
        entry: &'static str,
        [heads, steps]: [u64; 2],
        arguments: Vec<Option<TensorId>>,
    ) -> Result<Launch, Error> {
        let slices = self.op.width.max(self.op.values).div_ceil(SIDE).div_ceil(CHUNKS_OF_A_BLOCK);
        let blocks = [self.samples, self.op.sequences(), heads, steps.div_ceil(SIDE), slices];
        let threads = if self.terms() > 0 { 128 } else { 256 };
        Ok(Launch {
            kernel: self.kernel(entry, self.terms()),
            grid: [grid(&blocks)?, 1, 1],
            block: [threads, 1, 1],
            arguments,
            numbers: vec![self.context.operation.row],
        })
    }

    /// Returns a launch with a block for each tile of each bias matrix or row.
    fn launch_bias(&self, bias: TensorId, arguments: Vec<Option<TensorId>>) -> Result<Launch, Error> {
        let Attention { keys, bias: [matrices, _], bias_rows, .. } = *self.op;
        let blocks = [self.context.samples(bias), matrices, bias_rows.div_ceil(SIDE), keys.div_ceil(SIDE)];
        Ok(Launch {
            kernel: self.kernel("attention_backward_bias", 0).with("SAMPLES", self.samples),
            grid: [grid(&blocks)?, 1, 1],
            block: [256, 1, 1],
            arguments,
            numbers: vec![self.context.operation.row],
        })
    }
}

const MANY: Error = Error::Damaged("attention has more tiles than a grid has blocks");

/// Returns the product of these factors as a number of blocks.
pub(super) fn grid(factors: &[u64]) -> Result<u32, Error> {
    let blocks = factors.iter().try_fold(1u64, |product, &factor| product.checked_mul(factor));
    blocks.and_then(|blocks| i32::try_from(blocks).ok()).map(i32::unsigned_abs).ok_or(MANY)
}

/// Head sizes that the library supports: multiples of the first number of elements, up to the second.
const LIBRARY_WIDTHS: [u64; 2] = [8, 128];

/// The most elements of a tensor for the library, whose offsets are signed 32-bit integers.
const MOST_ELEMENTS: u64 = i32::MAX as u64;

/// True if the library supports such attention: in 16 bits, causal, without dropout.
fn is_for_the_library(op: &Attention, draws: bool) -> bool {
    let [step, most] = LIBRARY_WIDTHS;
    let undropped = Attention { dropout: if draws { op.dropout } else { 0.0 }, ..op.clone() };
    op.is_sound() && undropped.is_for_the_library() && op.width.is_multiple_of(step) && op.width <= most
}

/// True if a program has attention for the library, at this precision and compute capability.
pub(crate) fn any(placed: &Placed, precision: Precision, capability: (i32, i32)) -> bool {
    let training = placed.program.training;
    let is_attention = |operation: &Operation| matches!(&operation.action, Action::Run { op: Op::Attention(op), .. } if is_for_the_library(op, training && op.draws()));
    has_engines(precision, capability) && placed.program.operations.iter().any(is_attention)
}

/// True if the library has engines: they need tensor cores of Ampere or later.
fn has_engines(precision: Precision, capability: (i32, i32)) -> bool {
    precision.narrow() != Format::F32 && capability >= (8, 0)
}

/// Returns the library's call for the operation; `None` if gpumem's own kernels are to compute it.
fn library(context: &Context<'_>, op: &Attention, pass: Pass, logs: Option<TensorId>) -> Result<Option<Call>, Error> {
    let LaunchContext { precision, capability, cudnn, deterministic, .. } = context.setting;
    let draws = context.placed.program.training && op.draws();
    let x = context.read(Slot::Input(0))?;
    let is_countable = context.count(x) <= MOST_ELEMENTS;
    if !(cudnn && !deterministic && has_engines(precision, capability) && is_for_the_library(op, draws) && is_countable)
    {
        return Ok(None);
    }
    let y = if pass == Pass::Forward { context.written(Slot::Output)? } else { context.read(Slot::Output)? };
    let bytes = context.workspace_bytes();
    let scratch = |tensor: TensorId| (bytes > 0).then_some(Scratch { tensor, bytes });
    let attention = calls::Attention {
        pass,
        batch: context.samples(x),
        heads: op.heads,
        kv_heads: op.kv_heads,
        steps: op.steps(),
        width: op.width,
        x,
        y,
        logs,
        element: Element::of(precision),
        workspace: context.operation.written(Slot::Workspace).and_then(scratch),
    };
    Ok(Some(attention.into()))
}

pub(super) fn forward(context: &Context<'_>, op: &Attention) -> Result<Vec<Call>, Error> {
    let logs = context.operation.written(Slot::Saved(0));
    match library(context, op, Pass::Forward, logs)? {
        Some(call) => Ok(vec![call]),
        None => Ok(own_forward(context, op)?.into_iter().map(Call::from).collect()),
    }
}

pub(super) fn backward(context: &Context<'_>, op: &Attention) -> Result<Vec<Call>, Error> {
    let (dy, logs) = (context.read(Slot::Gradient)?, context.read(Slot::Saved(0))?);
    // The gradient of the queries may not be wanted, and the library cannot add to an existing one.
    let dx = context.operation.written(Slot::InputGradient(0)).filter(|_| context.adds(Slot::InputGradient(0)) == 0);
    let call = dx.map(|dx| library(context, op, Pass::Backward { dy, dx }, Some(logs))).transpose()?;
    match call.flatten() {
        Some(call) => Ok(vec![call]),
        None => Ok(own_backward(context, op)?.into_iter().map(Call::from).collect()),
    }
}

fn own_forward(context: &Context<'_>, op: &Attention) -> Result<Vec<Launch>, Error> {
    let y = context.written(Slot::Output)?;
    let lse = context.operation.written(Slot::Saved(0));
    let attention = Heads { saves: lse.is_some(), ..Heads::new(context, op)? };
    let [q, k, v, bias] = attention.inputs()?;
    let seen = attention.seen()?;
    let arguments = vec![q, k, v, bias, seen, context.operation.read(Slot::State), Some(y), lse];
    Ok(vec![attention.launch("attention_forward", [op.heads, op.steps()], arguments)?])
}

fn own_backward(context: &Context<'_>, op: &Attention) -> Result<Vec<Launch>, Error> {
    let (dy, y) = (Some(context.read(Slot::Gradient)?), Some(context.read(Slot::Output)?));
    let lse = Some(context.read(Slot::Saved(0))?);
    let mut attention = Heads { saves: true, ..Heads::new(context, op)? };
    attention.adds = attention.slots().map(|slot| slot.map_or(0, |slot| context.adds(slot)));
    let (state, delta) = (context.operation.read(Slot::State), Some(context.written(Slot::Workspace)?));
    let ([q, k, v, bias], [dq, dk, dv, dbias]) = (attention.inputs()?, attention.gradients());
    if [dq, dk, dv, dbias].iter().all(Option::is_none) {
        return Err(Error::Damaged("a backward operation writes no gradient"));
    }
    let seen = attention.seen()?;
    // This launch also writes `delta`, which the others read, so it runs even if the gradient of the queries is not wanted.
    let of_queries = vec![dy, q, k, v, bias, seen, y, lse, state, delta, dq];
    let mut launches = vec![attention.launch("attention_backward_queries", [op.heads, op.steps()], of_queries)?];
    if dk.is_some() || dv.is_some() {
        let of_keys = vec![dy, q, k, v, bias, seen, lse, delta, state, dk, dv];
        launches.push(attention.launch("attention_backward_keys", [op.kv_heads, op.keys], of_keys)?);
    }
    if let Some(tensor) = dbias {
        launches.push(attention.launch_bias(tensor, vec![dy, q, k, v, bias, seen, lse, delta, state, dbias])?);
    }
    Ok(launches)
}
