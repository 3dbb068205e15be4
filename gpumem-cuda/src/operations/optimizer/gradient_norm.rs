//! Launches of the norm of all gradients, by which they may be clipped: `kernels/optimizer/norm.cu`.

use crate::calls::{Kernel, Launch};
use crate::operations::context::{Context, LaunchContext, other_layout};
use crate::operations::grid::small;
use crate::operations::optimizer::{many, most, own_distances, with_shards};
use gpumem_core::Format;
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::{Action, Operation, Slot, TensorId};
use gpumem_core::train::Clip;
use gpumem_core::train::ranks::Sharding;

/// Pointers of a launch that squares, and its words for each gradient.
const POINTERS: usize = 3;
const FIELDS: usize = 2;

/// Threads of the block that adds up sums.
const THREADS: u32 = 1024;

/// Returns the launch of the squares of one gradient, whose sums are stored from number `first` on.
pub(in crate::operations) fn squares(context: &Context<'_>, first: u64) -> Result<Vec<Launch>, Error> {
    square(context, std::slice::from_ref(context.operation), first).map(|launch| vec![launch])
}

/// Fuses the squares of the gradients from operation `first` on, as many as a launch takes. Returns the number of operations and the launches: one,
/// or two if some gradients are sharded, whose sums are in memory of their own. `None` if there is only one operation.
///
/// # Errors
/// As for [`squares`].
pub(crate) fn all_squares(
    placed: &Placed,
    first: usize,
    setting: LaunchContext,
) -> Result<Option<(usize, Vec<Launch>)>, Error> {
    let rest = placed.program.operations.get(first..).unwrap_or_default();
    let count = rest.iter().take_while(|it| matches!(it.action, Action::Squares(_))).count();
    let count = count.min(most(POINTERS, FIELDS));
    if count < 2 {
        return Ok(None);
    }
    let mut apart: Vec<Vec<Operation>> = Vec::new();
    for operation in &rest[..count] {
        let shares = |all: &&mut Vec<Operation>| all[0].written(Slot::Workspace) == operation.written(Slot::Workspace);
        match apart.iter_mut().find(shares) {
            Some(all) => all.push(operation.clone()),
            None => apart.push(vec![operation.clone()]),
        }
    }
    let launch = |all: &Vec<Operation>| {
        let Action::Squares(at) = all[0].action else { return Err(Error::Damaged("squares without an index")) };
        square(&Context { placed, operation: &all[0], setting }, all, at)
    };
    Ok(Some((count, apart.iter().map(launch).collect::<Result<_, Error>>()?)))
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
        next = next.saturating_add(context.own(id).div_ceil(Clip::PIECE));
        ids.push(id);
        gradients.push(gradient);
    }
    let rows = rows(context, sums)?;
    if next > rows.own {
        return Err(Error::Damaged("the squares of a gradient have less memory than they need"));
    }
    let format = |&id: &TensorId| context.tensor(id).role.format(context.setting.precision);
    let whole: Vec<bool> = ids.iter().map(|id| format(id) == Format::F32).collect();
    let (base, distances) = own_distances(context, &gradients, 0)?;
    let arguments = vec![base, Some(sums), Some(context.read(Slot::State)?)];
    let names = ["norm.cu", "norm_squares", "norm_squares_many"];
    let mut launch = many(context, names, &ids, (&[distances], &whole), arguments)?;
    launch.numbers[1] = small(context.setting.rank.saturating_mul(rows.pitch).saturating_add(first))?;
    launch.kernel = clipping(launch.kernel, context)?;
    Ok(launch)
}

/// The sums of gradients, in rows of which each rank writes one.
struct Rows {
    /// The number of rows: 1 if all ranks have equal gradients.
    count: u64,
    /// Sums of a row.
    own: u64,
    /// Elements from one row to the next; 0 for one row.
    pitch: u64,
}

/// Returns the rows of a tensor of sums.
fn rows(context: &Context<'_>, sums: TensorId) -> Result<Rows, Error> {
    let tensor = context.tensor(sums);
    if tensor.sharding == Sharding::Replicated {
        return Ok(Rows { count: 1, own: context.elements(sums), pitch: 0 });
    }
    let (&[count, own], Some(pitch)) = (tensor.shape.dims(), tensor.own_shard()) else {
        return Err(Error::Damaged("the squares of shards have no row for each rank"));
    };
    Ok(Rows { count, own, pitch })
}

/// Returns the launch that computes the norm, and the factor that updates multiply gradients with.
pub(in crate::operations) fn total(context: &Context<'_>) -> Result<Vec<Launch>, Error> {
    let sums = context.operation.read(Slot::Workspace);
    let count = sums.map_or(0, |sums| context.elements(sums));
    let mut numbers = vec![small(count)?];
    let mut arguments = vec![sums];
    if let Some(shards) = context.operation.read(Slot::Input(0)) {
        let Rows { count, own, pitch } = rows(context, shards)?;
        numbers.extend([small(count)?, small(own)?, small(pitch)?]);
        arguments.push(Some(shards));
    } else if sums.is_none() {
        return Err(Error::Damaged("a norm of no gradients"));
    }
    arguments.push(Some(context.written(Slot::State)?));
    let entry = if numbers.len() > 1 { "norm_total_of_ranks" } else { "norm_total" };
    let kernel = context.kernel("norm.cu", entry).with("FIELDS", FIELDS).with("MOST", most(POINTERS, FIELDS));
    let kernel = clipping(kernel, context)?;
    Ok(vec![Launch { kernel, grid: [1, 1, 1], block: [THREADS, 1, 1], arguments, numbers }])
}

/// Adds the constants of clipping to a kernel.
fn clipping(kernel: Kernel, context: &Context<'_>) -> Result<Kernel, Error> {
    let descent = context.placed.program.descent;
    if !descent.needs_norm() {
        return Err(Error::Damaged("a program that needs no norm of gradients computes it"));
    }
    let kernel = with_shards(kernel, context);
    let kernel = match descent.clip {
        Some(Clip::GlobalNorm(most)) => kernel.with_float("LARGEST", most),
        _ => kernel,
    };
    Ok(if descent.skips { kernel.with("SKIPS", 1) } else { kernel })
}
