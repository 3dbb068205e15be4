//! Losses and the gradient that they start from: `kernels/loss.cu`.

use super::context::Context;
use super::optimizer::prepared;
use crate::calls::{Argument, Launch};
use gpumem_core::error::Error;
use gpumem_core::program::{Action, Criterion, Measure, Slot, TensorId};

const FILE: &str = "loss.cu";

/// Threads of the blocks that add up.
const THREADS: u32 = 256;
/// Threads of one block that does all.
const ALL: u64 = 1024;

/// The argument of a launch that ends a loss for the words in the host's memory that it is sent to: a null pointer, unless a session
/// puts their address there.
const RING: Option<Argument> = None;

/// The place of that argument, if a launch has it.
pub(crate) fn ring(launch: &Launch) -> Option<usize> {
    let last = launch.arguments.len().checked_sub(1)?;
    (launch.kernel.file == FILE && launch.arguments[last] == RING).then_some(last)
}

pub(super) fn launches(context: &Context<'_>, criterion: &Criterion) -> Result<Vec<Launch>, Error> {
    let x = context.read(Slot::Input(0))?;
    let target = match criterion.kind {
        Measure::Mean => None,
        Measure::CrossEntropy | Measure::Mse | Measure::Dot => Some(context.read(Slot::Target)?),
    };
    let (loss, terms) = (context.written(Slot::Loss)?, context.written(Slot::Workspace)?);
    let gradient = context.operation.written(Slot::InputGradient(0));
    let state = context.placed.program.of_class(gpumem_core::program::Class::State).next();
    let (count, rows) = (context.elements(x), context.elements(terms));
    let (alone, entry, divisor) = match criterion.kind {
        Measure::CrossEntropy => ("cross_entropy", "cross_entropy_rows", rows),
        Measure::Mse => ("mse", "mse_partial", count),
        Measure::Mean => ("mean", "mean_partial", count),
        Measure::Dot => ("dot", "dot_partial", 1),
    };
    let add = context.adds(Slot::InputGradient(0));
    if add == 1 && gradient == Some(x) {
        return Err(Error::Damaged("the loss adds to the gradient that overwrites its logits"));
    }
    let pitch = |id: Option<TensorId>| id.and_then(|id| context.pitch(id)).unwrap_or(criterion.classes);
    let sum = u8::from(context.operation.read(Slot::Loss).is_some());
    let updates = context.placed.program.operations.iter().any(|operation| operation.action == Action::Update);
    let kernel = |entry| {
        let kernel = context.kernel(FILE, entry).with("ROWS", format!("{rows}ull"));
        let kernel = kernel
            .with("CLASSES", format!("{}ull", criterion.classes))
            .with("INNER", format!("{}ull", criterion.inner));
        let kernel = kernel.with("PITCH", format!("{}ull", pitch(Some(x))));
        let kernel = kernel.with("GRADIENT_PITCH", format!("{}ull", pitch(gradient)));
        let kernel = kernel.with("COUNT", format!("{count}ull")).with("GRADIENT", u8::from(gradient.is_some()));
        let kernel = kernel.with("ADD", add).with("DIVISOR", format!("{divisor}ull"));
        let kernel = kernel.with_float("WEIGHT", criterion.weight).with("SUM", sum);
        // The first term of a step prepares its updates.
        if updates && sum == 0 { prepared(kernel, context.setting.optimizer) } else { kernel }
    };
    let launch = |entry, blocks, threads, arguments| {
        let (kernel, grid, block) = (kernel(entry), [blocks, 1, 1], [threads, 1, 1]);
        Launch { kernel, grid, block, arguments, numbers: Vec::new() }
    };
    if is_small(criterion, rows, count) {
        // A warp for each row, or a thread for each element.
        let threads = if criterion.kind == Measure::CrossEntropy { rows.saturating_mul(32) } else { count };
        let threads = threads.clamp(1, ALL).next_multiple_of(32) as u32;
        let arguments = vec![Some(x), target, state, gradient, Some(terms), Some(loss), RING];
        return Ok(vec![launch(alone, 1, threads, arguments)]);
    }
    let blocks =
        u32::try_from(rows).map_err(|_| Error::Damaged("the loss has more positions than a grid has blocks"))?;
    Ok(vec![
        launch(entry, blocks, THREADS, vec![Some(x), target, state, gradient, Some(terms)]),
        launch("loss_total", 1, THREADS, vec![Some(terms), Some(loss), state, RING]),
    ])
}

/// Whether one block goes through all elements in less time than a second launch takes: four rows a warp, each in a few looks, or eight
/// elements a thread.
fn is_small(criterion: &Criterion, rows: u64, count: u64) -> bool {
    match criterion.kind {
        Measure::CrossEntropy => rows <= ALL / 32 * 4 && criterion.classes <= 1024 && count <= 16 * ALL,
        Measure::Mse | Measure::Mean | Measure::Dot => count <= 8 * ALL,
    }
}
