//! Updates of parameters, the look at their gradients, and the step counter: `kernels/optimizer.cu`, `kernels/check.cu`,
//! `kernels/state.cu`.

use super::context::{Context, Setting};
use crate::calls::{Argument, Kernel, Launch, place};
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::{Action, Operation, Slot, TensorId};
use gpumem_core::train::optim::Optimizer;
use gpumem_core::{Format, Precision};

/// Elements of a block: `BLOCK` of `many.cuh`.
const BLOCK: u64 = 1024;
/// What stands for a master copy that is not there: `NONE` of `optimizer.cu`.
const NONE: u64 = u32::MAX as u64;
/// Tensors of a launch: the numbers of parameters take 36 bytes each of the 64 KiB that constants have on a card.
const AT_ONCE: usize = 1024;

pub(super) fn update(context: &Context<'_>) -> Result<Vec<Launch>, Error> {
    launch(context, std::slice::from_ref(context.operation)).map(|launch| vec![launch])
}

/// All updates from operation `first` on, up to the first operation that is none: how many, and their launches. `None` where
/// there is a single one.
///
/// # Errors
/// As for [`update`].
pub(crate) fn updates(placed: &Placed, first: usize, setting: Setting) -> Result<Option<(usize, Vec<Launch>)>, Error> {
    together(placed, first, setting, &Action::Update, launch)
}

pub(super) fn check(context: &Context<'_>) -> Result<Vec<Launch>, Error> {
    look(context, std::slice::from_ref(context.operation)).map(|launch| vec![launch])
}

/// The same as [`updates`] for the looks at gradients.
///
/// # Errors
/// As for [`check`].
pub(crate) fn checks(placed: &Placed, first: usize, setting: Setting) -> Result<Option<(usize, Vec<Launch>)>, Error> {
    together(placed, first, setting, &Action::Check, look)
}

/// The operations from number `first` on that do the same, if there are several: how many, and their launches.
fn together(
    placed: &Placed,
    first: usize,
    setting: Setting,
    action: &Action,
    launch: impl Fn(&Context<'_>, &[Operation]) -> Result<Launch, Error>,
) -> Result<Option<(usize, Vec<Launch>)>, Error> {
    let rest = placed.program.operations.get(first..).unwrap_or_default();
    let count = rest.iter().take_while(|operation| operation.action == *action).count();
    if count < 2 {
        return Ok(None);
    }
    let launches = rest[..count].chunks(AT_ONCE).map(|group| {
        let context = Context { placed, operation: &group[0], setting };
        launch(&context, group)
    });
    Ok(Some((count, launches.collect::<Result<_, _>>()?)))
}

/// A kernel with the constants of `many.cuh` for these tensors, and the blocks that they take.
fn many(context: &Context<'_>, kernel: Kernel, tensors: &[TensorId]) -> Result<(Kernel, u32), Error> {
    let counts: Vec<u64> = tensors.iter().map(|&id| context.elements(id)).collect();
    let mut blocks = Vec::new();
    let mut grid = 0u64;
    for count in &counts {
        blocks.push(grid);
        grid = grid.saturating_add(count.div_ceil(BLOCK));
    }
    let too_large = || Error::Unsupported { device: "CUDA", what: "an update of 2^41 elements or more".into() };
    let grid = u32::try_from(grid).ok().filter(|&grid| grid < 1 << 31).ok_or_else(too_large)?;
    Ok((kernel.with("BLOCKS", table(&blocks)).with("COUNTS", table(&counts)), grid))
}

/// One launch that looks at gradients. The kernel is given the first of them in the arena, and knows how far behind it the
/// others are.
fn look(context: &Context<'_>, checks: &[Operation]) -> Result<Launch, Error> {
    let gradients: Vec<_> = checks.iter().map(|check| check.read(Slot::ParameterGradient)).collect();
    let missing = Error::Damaged("a look at a gradient lacks the gradient");
    let ids = gradients.iter().copied().collect::<Option<Vec<TensorId>>>().ok_or(missing)?;
    let format = |&id: &TensorId| context.tensor(id).role.format(context.setting.precision);
    let whole: Vec<u64> = ids.iter().map(|id| u64::from(format(id) == Format::F32)).collect();
    let (kernel, grid) = many(context, context.kernel("check.cu", "check"), &ids)?;
    let (base, distances) = distances(context.placed, &gradients, 0)?;
    let kernel = kernel.with("GRADIENTS", table(&distances)).with("WHOLE", table(&whole));
    let arguments = vec![base, Some(context.written(Slot::State)?)];
    Ok(Launch { kernel, grid: [grid, 1, 1], block: [256, 1, 1], arguments })
}

/// One launch for updates. The kernel is given the first tensor of each kind in the arena, and knows how far behind it the
/// others are.
fn launch(context: &Context<'_>, updates: &[Operation]) -> Result<Launch, Error> {
    let missing = Error::Damaged("an update lacks a tensor");
    let all = |find: &dyn Fn(&Operation) -> Option<TensorId>| updates.iter().map(find).collect::<Vec<_>>();
    let parameters = all(&|update| update.written(Slot::Parameter));
    let gradients = all(&|update| update.read(Slot::ParameterGradient));
    let firsts = all(&|update| update.written(Slot::Moment(0)));
    let seconds = all(&|update| update.written(Slot::Moment(1)));
    if parameters.iter().chain(&gradients).any(Option::is_none) {
        return Err(missing);
    }
    let mixed = matches!(context.setting.precision, Precision::Mixed(_));
    let tensors = context.placed.program.tensors.len() as Argument;
    let master = |id: &Option<TensorId>| id.filter(|&id| mixed && context.placed.masters[id as usize].is_some());
    let masters: Vec<_> = parameters.iter().map(|id| master(id).map(|id| tensors + id)).collect();
    let ids: Vec<TensorId> = parameters.iter().flatten().copied().collect();
    let (mut kernel, grid) = many(context, context.kernel("optimizer.cu", "update"), &ids)?;
    let mut arguments = Vec::new();
    for (name, kind) in [
        ("WEIGHTS", &parameters),
        ("MASTERS", &masters),
        ("GRADIENTS", &gradients),
        ("FIRSTS", &firsts),
        ("SECONDS", &seconds),
    ] {
        // What no parameter has is never looked at, but for the copies of some.
        let absent = if name == "MASTERS" { NONE } else { 0 };
        let (base, distances) = distances(context.placed, kind, absent)?;
        kernel = kernel.with(name, table(&distances));
        arguments.push(base);
    }
    arguments.push(Some(context.read(Slot::State)?));
    let kernel = kernel.with("MIXED", u8::from(mixed)).with("MOMENT_REAL", super::grid::norm_real(context));
    let states = [&firsts, &seconds].into_iter().take_while(|kind| kind[0].is_some()).count();
    let kernel = rule(kernel, context.setting.optimizer, states);
    Ok(Launch { kernel, grid: [grid, 1, 1], block: [256, 1, 1], arguments })
}

/// The first of these tensors in the arena, and how far behind it each begins, in units of 256 bytes; `absent` for one that
/// is not there.
fn distances(placed: &Placed, kind: &[Option<Argument>], absent: u64) -> Result<(Option<Argument>, Vec<u64>), Error> {
    let offset = |argument: Argument| place(placed, argument).map(|(offset, _)| offset);
    let offsets = kind.iter().map(|id| id.map(offset).transpose()).collect::<Result<Vec<Option<u64>>, Error>>()?;
    let Some(start) = offsets.iter().flatten().min().copied() else {
        return Ok((None, vec![absent; kind.len()]));
    };
    let at = offsets.iter().position(|&offset| offset == Some(start));
    let distance = |offset: &Option<u64>| match offset.map(|offset| offset - start) {
        None => Ok(absent),
        Some(behind) if behind.is_multiple_of(256) && behind / 256 < NONE => Ok(behind / 256),
        Some(_) => Err(Error::Damaged("a tensor does not begin at a multiple of 256 bytes")),
    };
    Ok((at.and_then(|at| kind[at]), offsets.iter().map(distance).collect::<Result<_, _>>()?))
}

/// Numbers as an initialiser in C++.
fn table(numbers: &[u64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(|number| format!("{number}ull")).collect();
    format!("{{{}}}", numbers.join(","))
}

/// The rule with its numbers, and how many states there are.
fn rule(kernel: Kernel, optimizer: Optimizer, states: usize) -> Kernel {
    let mut values = Vec::new();
    optimizer.for_each_value(|_, value| values.push(format!("{value:e}")));
    let kernel = kernel.with("OPTIMIZER", optimizer.row().name).with("VALUES", format!("{{{}}}", values.join(",")));
    kernel.with("STATES", states)
}

pub(super) fn advance(context: &Context<'_>) -> Result<Vec<Launch>, Error> {
    let state = context.written(Slot::State)?;
    let kernel = context.kernel("state.cu", "advance");
    Ok(vec![Launch { kernel, grid: [1, 1, 1], block: [32, 1, 1], arguments: vec![Some(state)] }])
}
