//! Scaled dot-product attention: `kernels/attention.cu`, or cuDNN.

use super::context::{Context, Setting};
use super::mask::with_draws;
use crate::calls::attention::Pass;
use crate::calls::product::{Element, Scratch};
use crate::calls::{self, Call, Kernel, Launch};
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::op::Rule;
use gpumem_core::program::ops::Attention;
use gpumem_core::program::{Action, Op, Operation, Slot, TensorId};
use gpumem_core::{Format, Precision};

/// Queries and keys of a tile, and elements of a head in it: SIDE of the kernel.
const SIDE: u64 = 64;

/// Chunks of a head that one block puts out at most.
const CHUNKS_OF_A_BLOCK: u64 = 2;

/// Heads that tensor cores work on: a multiple of the first number of elements, and no more than the second.
const TENSOR_CORE_WIDTHS: [u64; 2] = [16, 128];

/// An operation on all heads of all samples.
struct Heads<'a> {
    context: &'a Context<'a>,
    op: &'a Attention,
    samples: u64,
    saves: bool,
    add: u8,
}

impl<'a> Heads<'a> {
    fn new(context: &'a Context<'a>, op: &'a Attention, x: TensorId) -> Result<Heads<'a>, Error> {
        if !op.is_sound() {
            return Err(Error::Damaged("attention has no heads, or keys that serve no whole number of them"));
        }
        let samples = context.samples(x);
        Ok(Heads { context, op, samples, saves: false, add: 0 })
    }

    /// The constant `TENSOR_CORES`.
    fn terms(&self) -> u8 {
        let [step, most] = TENSOR_CORE_WIDTHS;
        if self.op.width.is_multiple_of(step) && self.op.width <= most { self.context.tensor_core_terms() } else { 0 }
    }

    fn kernel(&self, entry: &'static str) -> Kernel {
        let Heads { context, op, .. } = *self;
        let dropout = if context.placed.program.training { op.dropout } else { 0.0 };
        let scale = (1.0 / (self.op.width as f64).sqrt()) as f32;
        let kernel = context.kernel("attention.cu", entry).with("TENSOR_CORES", self.terms());
        let kernel = kernel.with("HEADS", op.heads).with("KV_HEADS", op.kv_heads).with("STEPS", op.steps);
        let kernel = kernel.with("CAUSAL", u8::from(op.causal));
        let kernel = kernel.with("HEAD", self.op.width).with_float("SCALE", f64::from(scale));
        let kernel = kernel.with("SAVES", u8::from(self.saves));
        with_draws(kernel, "KEEP", dropout).with("ADD", self.add)
    }

    /// A block for each tile of each of so many heads of each sample, and for each slice of wide heads.
    fn launch(&self, entry: &'static str, heads: u64, arguments: Vec<Option<TensorId>>) -> Result<Launch, Error> {
        let slices = self.op.width.div_ceil(SIDE).div_ceil(CHUNKS_OF_A_BLOCK);
        let factors = [self.samples, heads, self.op.steps.div_ceil(SIDE), slices];
        let blocks = factors.into_iter().try_fold(1u64, u64::checked_mul);
        let blocks = blocks.and_then(|blocks| i32::try_from(blocks).ok()).map(i32::unsigned_abs);
        let blocks = blocks.ok_or(Error::Damaged("attention has more tiles than a grid has blocks"))?;
        let threads = if self.terms() > 0 { 128 } else { 256 };
        Ok(Launch {
            kernel: self.kernel(entry),
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            arguments,
            numbers: vec![self.context.operation.row],
        })
    }
}

/// Elements that a head is a multiple of for the library, and the most that it has.
const LIBRARY_WIDTHS: [u64; 2] = [8, 128];

/// Elements of a tensor that the library can count: its offsets are of 32 bits, with a sign.
const MOST_ELEMENTS: u64 = i32::MAX as u64;

/// Whether the library has such attention: in 16 bits, causal, and nothing is dropped.
fn is_for_the_library(op: &Attention, draws: bool) -> bool {
    let [step, most] = LIBRARY_WIDTHS;
    op.is_sound() && op.causal && !draws && op.width.is_multiple_of(step) && op.width <= most
}

/// Whether there is any for the library in a program of this number format, on a card of this compute capability.
pub(crate) fn any(placed: &Placed, precision: Precision, capability: (i32, i32)) -> bool {
    let training = placed.program.training;
    let is_attention = |operation: &Operation| matches!(&operation.action, Action::Run { op: Op::Attention(op), .. } if is_for_the_library(op, training && op.draws()));
    has_engines(precision, capability) && placed.program.operations.iter().any(is_attention)
}

/// The library's engines have tensor cores of Ampere or later.
fn has_engines(precision: Precision, capability: (i32, i32)) -> bool {
    precision.narrow() != Format::F32 && capability >= (8, 0)
}

/// The operation by the library, if that is to be asked.
fn library(context: &Context<'_>, op: &Attention, pass: Pass, logs: Option<TensorId>) -> Result<Option<Call>, Error> {
    let Setting { precision, capability, cudnn, deterministic, .. } = context.setting;
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
        steps: op.steps,
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
    let (dy, dx) = (context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?);
    let logs = context.read(Slot::Saved(0))?;
    let is_added = context.adds(Slot::InputGradient(0)) == 1;
    let call = if is_added { None } else { library(context, op, Pass::Backward { dy, dx }, Some(logs))? };
    match call {
        Some(call) => Ok(vec![call]),
        None => Ok(own_backward(context, op)?.into_iter().map(Call::from).collect()),
    }
}

fn own_forward(context: &Context<'_>, op: &Attention) -> Result<Vec<Launch>, Error> {
    let (x, y) = (context.read(Slot::Input(0))?, context.written(Slot::Output)?);
    let lse = context.operation.written(Slot::Saved(0));
    let attention = Heads { saves: lse.is_some(), ..Heads::new(context, op, x)? };
    let arguments = vec![Some(x), context.operation.read(Slot::State), Some(y), lse];
    Ok(vec![attention.launch("attention_forward", op.heads, arguments)?])
}

fn own_backward(context: &Context<'_>, op: &Attention) -> Result<Vec<Launch>, Error> {
    let (dy, dx) = (context.read(Slot::Gradient)?, context.written(Slot::InputGradient(0))?);
    let (x, y) = (context.read(Slot::Input(0))?, context.read(Slot::Output)?);
    let lse = context.read(Slot::Saved(0))?;
    let add = context.adds(Slot::InputGradient(0));
    let attention = Heads { saves: true, add, ..Heads::new(context, op, x)? };
    let (state, delta) = (context.operation.read(Slot::State), context.written(Slot::Workspace)?);
    let of_queries = vec![Some(dy), Some(x), Some(y), Some(lse), state, Some(delta), Some(dx)];
    let of_keys = vec![Some(dy), Some(x), Some(lse), Some(delta), state, Some(dx)];
    Ok(vec![
        attention.launch("attention_backward_queries", op.heads, of_queries)?,
        attention.launch("attention_backward_keys", op.kv_heads, of_keys)?,
    ])
}
