//! Launches of the norm of all gradients, by which they may be clipped: `kernels/optimizer/norm.cu`.

use crate::calls::{Kernel, Launch};
use crate::operations::context::{Context, LaunchContext, other_layout};
use crate::operations::grid::small;
use crate::operations::optimizer::{distances, many, most};
use gpumem_core::Format;
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::{Action, Operation, Slot, TensorId};
use gpumem_core::train::Clip;

/// Pointers of a launch that squares, and its words for each gradient.
const POINTERS: usize = 3;
const FIELDS: usize = 2;

/// Threads of the block that adds up sums.
const THREADS: u32 = 1024;

/// Returns the launch of the squares of one gradient, whose sums are stored from number `first` on.
pub(in crate::operations) fn squares(context: &Context<'_>, first: u64) -> Result<Vec<Launch>, Error> {
    square(context, std::slice::from_ref(context.operation), first).map(|launch| vec![launch])
}

/// Fuses the squares of the gradients from operation `first` on, as many as a launch takes. Returns the number of operations and the launch; `None`
/// if there is only one.
///
/// # Errors
/// As for [`squares`].
pub(crate) fn all_squares(
    placed: &Placed,
    first: usize,
    setting: LaunchContext,
) -> Result<Option<(usize, Vec<Launch>)>, Error> {
    let rest = placed.program.operations.get(first..).unwrap_or_default();
    let Some(operation) = rest.first() else { return Ok(None) };
    let Action::Squares(at) = operation.action else { return Ok(None) };
    let count = rest.iter().take_while(|it| matches!(it.action, Action::Squares(_))).count();
    let count = count.min(most(POINTERS, FIELDS));
    if count < 2 {
        return Ok(None);
    }
    let context = Context { placed, operation, setting };
    Ok(Some((count, vec![square(&context, &rest[..count], at)?])))
}

/// Returns one launch that squares gradients. The kernel gets the gradient with the lowest address, and the distances of the others from it. Their
/// sums are consecutive.
fn square(context: &Context<'_>, all: &[Operation], first: u64) -> Result<Launch, Error> {
    let sums = context.written(Slot::Workspace)?;
    let mut next = first;
    let (mut ids, mut gradients) = (Vec::new(), Vec::new());
    for operation in all {
        let gradient = operation.read(Slot::ParameterGradient);
        let id = gradient.ok_or(Error::Damaged("the squares of a gradient lack the gradient"))?;
        if context.pitch(id).is_some() {
            return Err(other_layout());
        }
        if operation.action != Action::Squares(next) || operation.written(Slot::Workspace) != Some(sums) {
            return Err(Error::Damaged("the squares of gradients do not lie one after the other"));
        }
        next = next.saturating_add(context.elements(id).div_ceil(Clip::PIECE));
        ids.push(id);
        gradients.push(gradient);
    }
    if next > context.elements(sums) {
        return Err(Error::Damaged("the squares of a gradient have less memory than they need"));
    }
    let format = |&id: &TensorId| context.tensor(id).role.format(context.setting.precision);
    let whole: Vec<bool> = ids.iter().map(|id| format(id) == Format::F32).collect();
    let (base, distances) = distances(context.placed, &gradients, 0)?;
    let arguments = vec![base, Some(sums), Some(context.read(Slot::State)?)];
    let names = ["norm.cu", "norm_squares", "norm_squares_many"];
    let mut launch = many(context, names, &ids, (&[distances], &whole), arguments)?;
    launch.numbers[1] = small(first)?;
    launch.kernel = clipping(launch.kernel, context)?;
    Ok(launch)
}

/// Returns the launch that computes the norm, and the factor that updates multiply gradients with.
pub(in crate::operations) fn total(context: &Context<'_>) -> Result<Vec<Launch>, Error> {
    let sums = context.read(Slot::Workspace)?;
    let numbers = vec![small(context.elements(sums))?];
    let kernel = context.kernel("norm.cu", "norm_total").with("FIELDS", FIELDS).with("MOST", most(POINTERS, FIELDS));
    let kernel = clipping(kernel, context)?;
    let arguments = vec![Some(sums), Some(context.written(Slot::State)?)];
    Ok(vec![Launch { kernel, grid: [1, 1, 1], block: [THREADS, 1, 1], arguments, numbers }])
}

/// Adds the constants of clipping to a kernel.
fn clipping(kernel: Kernel, context: &Context<'_>) -> Result<Kernel, Error> {
    let descent = context.placed.program.descent;
    if !descent.needs_norm() {
        return Err(Error::Damaged("a program that needs no norm of gradients computes it"));
    }
    let kernel = match descent.clip {
        Some(Clip::GlobalNorm(most)) => kernel.with_float("LARGEST", most),
        _ => kernel,
    };
    Ok(if descent.skips { kernel.with("SKIPS", 1) } else { kernel })
}
