//! Launches of losses and of the gradient that the backward pass starts with: `kernels/loss/loss.cu` and `kernels/loss/ctc.cu`.
//!
//! Losses of several values are in `values.rs`, and those of all vectors of a batch in `contrastive.rs` and `mined.rs`.

pub(in crate::operations) mod contrastive;
mod mined;
mod values;

use super::context::Context;

use super::optimizer::prepared;

use crate::calls::{Argument, Kernel, Launch};
use gpumem_core::Role;
use gpumem_core::error::Error;
use gpumem_core::program::criterion::WEIGHTS;
use gpumem_core::program::loss::{Compares, LossOptions, Over, Reduction};
use gpumem_core::program::{Action, Criterion, Measure, Slot, TensorId};

const FILE: &str = "loss.cu";

/// Threads of the blocks that add up terms.
const THREADS: u32 = 256;
/// Threads of a single block that does everything.
const ALL: u64 = 1024;
/// Bytes of a row from which on [`ALL`] threads work on it. On an H100, 50,257 logits of 16 bits took a sixth less time than with 256.
const LONG_ROW: u64 = 32 << 10;

/// The argument of a loss's last launch for words in host memory, to which the loss is sent: a null pointer, unless a session puts their address
/// there.
const RING: Option<Argument> = None;

/// Returns the index of that argument; `None` if the launch has none.
pub(crate) fn ring(launch: &Launch) -> Option<usize> {
    let last = launch.arguments.len().checked_sub(1)?;
    (launch.kernel.file == FILE && launch.arguments[last] == RING).then_some(last)
}

pub(super) fn launches(context: &Context<'_>, criterion: &Criterion) -> Result<Vec<Launch>, Error> {
    let x = context.read(Slot::Input(0))?;
    let target = match criterion.compares() {
        Compares::Nothing => None,
        _ => Some(context.read(Slot::Target)?),
    };
    let (loss, terms) = (context.written(Slot::Loss)?, context.written(Slot::Workspace)?);
    let gradient = context.operation.written(Slot::InputGradient(0));
    let state = context.placed.program.state();
    let rows = match criterion.over() {
        Over::Batch => contrastive::terms(context),
        // The terms are followed by flags that say which of them count.
        Over::Mined => context.setting.batch,
        _ => context.elements(terms),
    };
    let count = context.elements(x);
    let divisor = criterion.divisor(context.setting.batch);
    // With micro-batches, the divisor of the whole batch is known before the first of them.
    let given = context.operation.read(Slot::Saved(0)).filter(|_| criterion.counts());
    let counted = match given {
        None if criterion.counts() => Some(context.written(Slot::Saved(0))?),
        given => given,
    };
    let add = context.adds(Slot::InputGradient(0));
    if add == 1 && gradient == Some(x) {
        return Err(Error::Damaged("the loss adds to the gradient that overwrites its logits"));
    }
    let pitch = |id: Option<TensorId>| id.and_then(|id| context.pitch(id)).unwrap_or(criterion.classes);
    let sum = u8::from(context.operation.read(Slot::Loss).is_some());
    let operations = &context.placed.program.operations;
    let updates = operations.iter().any(|operation| operation.action.is_update());
    let is_first = operations.iter().find(|it| matches!(it.action, Action::Loss(_))) == Some(context.operation);
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
        let kernel = with_options(kernel, criterion);
        // The first term of a step prepares its updates.
        if updates && is_first { prepared(kernel, context) } else { kernel }
    };
    let launch = |entry, blocks, threads, arguments| {
        let (kernel, grid, block) = (kernel(entry), [blocks, 1, 1], [threads, 1, 1]);
        Launch { kernel, grid, block, arguments, numbers: Vec::new() }
    };
    let blocks =
        u32::try_from(rows).map_err(|_| Error::Damaged("the loss has more positions than a grid has blocks"))?;
    let own = match criterion.over() {
        Over::Pairs | Over::Triples | Over::Rankings => vec![values::launch(context, criterion, blocks)?],
        Over::Sequences => vec![ctc(context, criterion, blocks)?],
        Over::Batch => contrastive::launches(context, criterion)?,
        Over::Mined => mined::launches(context, criterion, counted)?,
        Over::Elements | Over::Positions => Vec::new(),
    };
    let weights = context.operation.read(WEIGHTS);
    if !own.is_empty() || criterion.weighted().is_some() {
        let is_of_rows = criterion.over() == Over::Positions;
        let own = if own.is_empty() {
            let entry = if is_of_rows { "weighted_rows" } else { "weighted_elements" };
            let threads = if is_of_rows && is_long(context, criterion) { ALL as u32 } else { THREADS };
            vec![launch(entry, blocks, threads, vec![Some(x), target, state, gradient, weights, counted, Some(terms)])]
        } else {
            own
        };
        // The sum of a mask must be known before the first gradient.
        let summed = weights.zip(counted).filter(|_| given.is_none());
        let before = summed.map(|(weights, divisor)| {
            let mut sum = launch("sum_of_numbers", 1, ALL as u32, vec![Some(weights), Some(divisor)]);
            sum.kernel = sum.kernel.with("SUMMED", format!("{}ull", context.count(weights)));
            sum
        });
        let mut ends = vec![Some(terms), Some(loss), state];
        ends.extend(counted.map(Some));
        ends.push(RING);
        let total = if counted.is_some() { "loss_total_counted" } else { "loss_total" };
        let total = launch(total, 1, THREADS, ends);
        return Ok(before.into_iter().chain(own).chain([total]).collect());
    }
    let (alone, entry) = match (criterion.over(), criterion.kind) {
        (Over::Positions, _) => ("cross_entropy", "cross_entropy_rows"),
        (_, Measure::Mse) => ("mse", "mse_partial"),
        (_, Measure::Mean) => ("mean", "mean_partial"),
        (_, Measure::Dot) => ("dot", "dot_partial"),
        (_, _) => ("elements", "elements_partial"),
    };
    let lengths = match criterion.options.counted {
        0 => None,
        _ => Some(context.read(Slot::Input(1))?),
    };
    if given.is_none() && lengths.is_none() && is_small(criterion, rows, count) {
        // A warp for each row, or a thread for each element.
        let threads = if criterion.over() == Over::Positions { rows.saturating_mul(32) } else { count };
        let threads = threads.clamp(1, ALL).next_multiple_of(32) as u32;
        let arguments = vec![Some(x), target, state, gradient, Some(terms), Some(loss), RING];
        return Ok(vec![launch(alone, 1, threads, arguments)]);
    }
    // The divisor of the positions must be known before the first gradient.
    let [entry, total] = match counted {
        Some(_) if lengths.is_some() => [entry, "loss_total_counted"],
        Some(_) => ["cross_entropy_rows_counted", "loss_total_counted"],
        None => [entry, "loss_total"],
    };
    let before = counted.filter(|_| given.is_none()).map(|divisor| match lengths {
        Some(_) => launch("loss_divisor_of_steps", 1, ALL as u32, vec![lengths, Some(divisor)]),
        None => launch("loss_divisor", 1, ALL as u32, vec![target, Some(divisor)]),
    });
    let also = |mut arguments: Vec<Option<TensorId>>| {
        arguments.extend(counted.map(Some));
        arguments
    };
    let mut ends = also(vec![Some(terms), Some(loss), state]);
    ends.push(RING);
    let row_threads = if is_long(context, criterion) { ALL as u32 } else { THREADS };
    let mut measured = also(vec![Some(x), target, state, gradient, Some(terms)]);
    if lengths.is_some() {
        // The null pointer at the end is the one for the words in host memory.
        measured.truncate(5);
        measured.extend([counted, lengths]);
    }
    let all = [launch(entry, blocks, row_threads, measured), launch(total, 1, THREADS, ends)];
    Ok(before.into_iter().chain(all).collect())
}

/// True if a row of logits has work for as many threads as a block can have.
fn is_long(context: &Context<'_>, criterion: &Criterion) -> bool {
    let row = criterion.classes.saturating_mul(Role::Activation.bytes(context.setting.precision));
    criterion.over() == Over::Positions && row >= LONG_ROW
}

/// Adds the constants of a particular loss to a kernel.
fn with_options(mut kernel: Kernel, criterion: &Criterion) -> Kernel {
    let LossOptions { weights, ignored, probabilities, log_target, .. } = &criterion.options;
    if criterion.is_part() {
        let positions = |outer: u64| format!("{}ull", outer.saturating_mul(criterion.inner));
        kernel = kernel.with("PART", positions(criterion.outer)).with("TARGETS", positions(criterion.whole));
        kernel = kernel.with("FIRST", positions(criterion.first));
    }
    let has_entry = matches!(criterion.kind, Measure::Mse | Measure::Mean | Measure::Dot);
    if criterion.over() == Over::Elements && (!has_entry || criterion.weighted().is_some()) {
        kernel = kernel.with("LOSS", criterion.kind.name());
    }
    if criterion.number() != 0.0 {
        kernel = kernel.with_float("NUMBER", criterion.number());
    }
    if !weights.is_empty() {
        let each: Vec<String> = weights.iter().map(|weight| format!("{weight:e}f")).collect();
        kernel = kernel.with("CLASS_WEIGHTS", format!("{{{}}}", each.join(",")));
        kernel = kernel.with_float("WEIGHT_SUM", weights.iter().sum());
    }
    if let Some(terms) = criterion.weighted() {
        kernel = kernel.with("WEIGHTED", format!("{terms}ull"));
    }
    if let Some(ignored) = ignored {
        kernel = kernel.with("IGNORED", format!("{ignored}u"));
    }
    if criterion.options.counted > 0 {
        kernel = kernel.with("COUNTED_STEPS", format!("{}ull", criterion.options.counted));
        kernel = kernel.with("STEP", format!("{}ull", criterion.step()));
    }
    let flags = [
        ("COUNTED", criterion.counts()),
        ("LIKELIHOOD", criterion.kind == Measure::Nll),
        ("PROBABILITIES", *probabilities),
        ("LOG_TARGET", *log_target),
    ];
    flags.into_iter().filter(|(_, is_set)| *is_set).fold(kernel, |kernel, (name, _)| kernel.with(name, 1))
}

/// True if one block processes all elements in less time than a second launch takes: up to four rows a warp, each in a few passes, or eight
/// elements a thread.
fn is_small(criterion: &Criterion, rows: u64, count: u64) -> bool {
    match criterion.over() {
        Over::Positions => rows <= ALL / 32 * 4 && criterion.classes <= 1024 && count <= 16 * ALL,
        _ => count <= 8 * ALL,
    }
}

/// Returns the gradient of an input, `None` if it is not wanted, and 1 if it is added to its tensor.
pub(super) fn gradient(context: &Context<'_>, number: u8) -> Result<(Option<TensorId>, u8), Error> {
    let slot = Slot::InputGradient(number);
    let (gradient, add) = (context.operation.written(slot), context.adds(slot));
    if add == 1 && gradient == context.operation.read(Slot::Input(number)) {
        return Err(Error::Damaged("the loss adds to the gradient that overwrites its logits"));
    }
    Ok((gradient, add))
}

/// Returns a kernel with the constants that all losses have.
pub(super) fn kernel(context: &Context<'_>, criterion: &Criterion, file: &'static str, entry: &'static str) -> Kernel {
    let divisor = criterion.divisor(context.setting.batch);
    let kernel =
        context.kernel(file, entry).with("DIVISOR", format!("{divisor}ull")).with_float("WEIGHT", criterion.weight);
    match criterion.weighted() {
        Some(terms) => kernel.with("WEIGHTED", format!("{terms}ull")),
        None => kernel,
    }
}

/// Returns the arguments of a kernel whose terms are weighted: the weights, and the sum of a mask. Empty if they are not weighted.
pub(super) fn weights(context: &Context<'_>, criterion: &Criterion) -> Result<Vec<Option<Argument>>, Error> {
    if criterion.weighted().is_none() {
        return Ok(Vec::new());
    }
    let divisor = match (criterion.counts(), context.operation.read(Slot::Saved(0))) {
        (true, None) => Some(context.written(Slot::Saved(0))?),
        (true, given) => given,
        (false, _) => None,
    };
    Ok(vec![Some(context.read(WEIGHTS)?), divisor])
}

/// Returns the threads of a block for `count` numbers, in whole warps.
pub(super) fn threads(count: u64, most: u64) -> u32 {
    count.clamp(1, most).next_multiple_of(32) as u32
}

/// Returns a launch with a block for each sequence.
fn ctc(context: &Context<'_>, criterion: &Criterion, samples: u32) -> Result<Launch, Error> {
    let (dx, add) = gradient(context, 0)?;
    let lengths = context.operation.read(Slot::Input(1));
    let options = &criterion.options;
    let kernel = kernel(context, criterion, "ctc.cu", "ctc")
        .with("STEPS", format!("{}ull", criterion.outer))
        .with("CLASSES", format!("{}ull", criterion.classes))
        .with("LABELS", format!("{}ull", options.target_length))
        .with("BLANK", options.blank)
        .with("LENGTHS", u8::from(lengths.is_some()))
        .with("ZERO_INFINITY", u8::from(options.zero_infinity))
        .with("AVERAGES", u8::from(options.reduction == Reduction::Mean))
        .with("GRADIENT", u8::from(dx.is_some()))
        .with("ADD", add);
    let (x, target) = (context.read(Slot::Input(0))?, context.read(Slot::Target)?);
    let (rows, terms) = (context.written(Slot::Saved(0))?, context.written(Slot::Workspace)?);
    let state = context.placed.program.state();
    let mut arguments = vec![Some(x), Some(target), lengths, state, dx];
    arguments.extend(weights(context, criterion)?);
    arguments.extend([Some(rows), Some(terms)]);
    let block = [threads(criterion.states().max(criterion.classes), 256), 1, 1];
    Ok(Launch { kernel, grid: [samples, 1, 1], block, arguments, numbers: Vec::new() })
}
