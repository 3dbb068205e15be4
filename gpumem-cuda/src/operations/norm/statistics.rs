//! Launches that save and restore running statistics, for steps that may be skipped: `kernels/norm/statistics.cu`.

use crate::calls::Launch;
use crate::operations::context::{Context, LaunchContext};
use crate::operations::optimizer::{distances, many, most};
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::{Action, Operation, Slot, TensorId};

/// Pointers of a launch, and its words for each tensor.
const POINTERS: usize = 3;
const FIELDS: usize = 3;

/// f32 elements in 256 bytes.
const UNIT: u64 = 64;

/// Returns the launch of one operation.
pub(in crate::operations) fn launches(context: &Context<'_>) -> Result<Vec<Launch>, Error> {
    launch(context, std::slice::from_ref(context.operation)).map(|launch| vec![launch])
}

/// Fuses the operations from index `first` on that all save, or all restore, as many as a launch takes. Returns their number and the launch; `None`
/// if there is only one.
///
/// # Errors
/// As for [`launches`].
pub(crate) fn all(
    placed: &Placed,
    first: usize,
    setting: LaunchContext,
) -> Result<Option<(usize, Vec<Launch>)>, Error> {
    let rest = placed.program.operations.get(first..).unwrap_or_default();
    let Some(operation) = rest.first().filter(|operation| place(operation).is_some()) else { return Ok(None) };
    let kind = std::mem::discriminant(&operation.action);
    let count = rest.iter().take_while(|it| std::mem::discriminant(&it.action) == kind).count();
    let count = count.min(most(POINTERS, FIELDS));
    if count < 2 {
        return Ok(None);
    }
    let context = Context { placed, operation, setting };
    Ok(Some((count, vec![launch(&context, &rest[..count])?])))
}

/// Returns the index of the first element of the copy that belongs to an operation; `None` for an operation of another kind.
fn place(operation: &Operation) -> Option<u64> {
    match operation.action {
        Action::SaveStatistics(first) | Action::RestoreStatistics(first) => Some(first),
        _ => None,
    }
}

/// Returns one launch for operations that all save, or all restore.
fn launch(context: &Context<'_>, all: &[Operation]) -> Result<Launch, Error> {
    let saves = matches!(context.operation.action, Action::SaveStatistics(_));
    let missing = || Error::Damaged("a copy of running statistics lacks a tensor");
    let tensor = |operation: &Operation, slot| operation.read(slot).or_else(|| operation.written(slot));
    let copy = tensor(context.operation, Slot::Saved(0)).ok_or_else(missing)?;
    let (mut ids, mut copies) = (Vec::new(), Vec::new());
    for operation in all {
        let id: TensorId = tensor(operation, Slot::Buffer(0)).ok_or_else(missing)?;
        let first = place(operation).filter(|_| tensor(operation, Slot::Saved(0)) == Some(copy)).ok_or_else(missing)?;
        let is_inside = first.checked_add(context.elements(id)).is_some_and(|end| end <= context.elements(copy));
        let unit = u32::try_from(first / UNIT).ok().filter(|_| first.is_multiple_of(UNIT) && is_inside);
        copies.push(unit.ok_or(Error::Damaged("running statistics are copied to less memory than they need"))?);
        ids.push(id);
    }
    let statistics: Vec<Option<TensorId>> = ids.iter().copied().map(Some).collect();
    let (base, distances) = distances(context.placed, &statistics, 0)?;
    let arguments = vec![base, Some(copy), Some(context.read(Slot::State)?)];
    let names = match saves {
        true => ["statistics.cu", "statistics_save", "statistics_save_many"],
        false => ["statistics.cu", "statistics_restore", "statistics_restore_many"],
    };
    let mut launch = many(context, names, &ids, (&[distances, copies], &[]), arguments)?;
    let descent = context.placed.program.descent;
    if descent.accumulates() {
        // Parts are counted over all ranks. On one, the first has number 0.
        let parts = if descent.ranks.is_alone() { 1 } else { descent.micro_batches };
        launch.kernel = launch.kernel.with("SPLIT", parts);
    }
    Ok(launch)
}
