//! The calls of a whole program, grouped by fusion: operations by themselves, or several as one.

use crate::calls::Call;
pub use crate::calls::OperationCalls;
pub use crate::fuse::Can;
use crate::fuse::{all_can, fused, joined};
use crate::operations::{self, Context, LaunchContext};
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::Program;
use gpumem_core::train::optim::{Extent, Optimizer, has_extent};

/// Returns the calls of a whole program.
///
/// # Errors
/// As for [`operations::calls`].
pub fn steps(placed: &Placed, setting: LaunchContext) -> Result<Vec<OperationCalls>, Error> {
    steps_where(placed, setting, &mut |_| Ok(true))
}

/// Returns the calls of a whole program, with only those library calls that `can` has an algorithm for. If there is none for a fused call, its
/// operations run by themselves; if there is none for those either, gpumem's own kernels run.
///
/// # Errors
/// As for [`operations::calls`], and the errors of `can`.
pub fn steps_where(placed: &Placed, setting: LaunchContext, can: &mut Can<'_>) -> Result<Vec<OperationCalls>, Error> {
    let count = placed.program.tensors.len();
    if [placed.offsets.len(), placed.bytes.len(), placed.masters.len()] != [count; 3] {
        return Err(Error::Damaged("the plan has another number of tensors than the program"));
    }
    if placed.program.operations.iter().any(|operation| operation.action.is_update()) {
        has_rule(&placed.program, &setting.optimizer)?;
    }
    let mut steps: Vec<OperationCalls> = Vec::new();
    let mut first = 0;
    while let Some(operation) = placed.program.operations.get(first) {
        let step = match fused(placed, first, setting, can)? {
            Some((count, calls)) => OperationCalls { first, count: count.max(1), moved: Vec::new(), calls },
            None => {
                let calls = possible(&Context { placed, operation, setting }, can)?;
                OperationCalls { first, count: 1, moved: Vec::new(), calls }
            }
        };
        first += step.count;
        steps.push(step);
    }
    Ok(joined(placed, setting, steps))
}

/// Checks that the optimizer is the program's, if optimizer states are codes: those are for one rule only.
fn has_rule(program: &Program, optimizer: &Optimizer) -> Result<(), Error> {
    let both = [program.moments, optimizer.moments()];
    if both[0] == both[1] || !both.iter().any(|&moments| has_extent(moments, Extent::Codes)) {
        return Ok(());
    }
    let what = "states of 8 bits for another optimizer; name the optimizer in `TRAIN`";
    Err(Error::Unsupported { device: "CUDA", what: what.into() })
}

/// Returns the calls of one operation by itself, without library calls that have no algorithm.
fn possible(context: &Context<'_>, can: &mut Can<'_>) -> Result<Vec<Call>, Error> {
    let calls = operations::calls(context)?;
    if all_can(&calls, can)? {
        return Ok(calls);
    }
    operations::calls(&Context {
        setting: LaunchContext { library: false, cudnn: false, ..context.setting },
        ..*context
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpumem_core::Precision;
    use gpumem_core::operation::Operations;
    use gpumem_core::train::optim::Sgd;

    #[test]
    fn a_plan_of_another_program_is_an_error() {
        let setting = LaunchContext {
            rank: 0,
            batch: 1,
            precision: Precision::F32,
            optimizer: Optimizer::Sgd(Sgd::DEFAULT),
            capability: (8, 0),
            multiprocessors: 132,
            tf32: false,
            deterministic: false,
            library: false,
            cudnn: false,
            operations: &Operations::NONE,
        };
        let program = Program {
            training: false,
            moments: 0,
            holds_gradients: false,
            descent: gpumem_core::train::Descent::PLAIN,
            tensors: Vec::new(),
            operations: Vec::new(),
            paths: Vec::new(),
            results: vec![0],
        };
        let placed = Placed::new(program, vec![0], 1, setting.precision);
        let expected = Error::Damaged("the plan has another number of tensors than the program");
        assert_eq!(steps(&placed, setting), Err(expected));
    }
}
