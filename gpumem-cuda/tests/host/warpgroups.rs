//! Attention on warpgroup instructions in place of the launches that every card runs.

use gpumem_core::memory::place::Placed;
use gpumem_cuda::operations::{LaunchContext, warpgroup_launches};
use gpumem_cuda::program_calls::OperationCalls;

/// Returns the steps with each counterpart in its place, as if a session had taken all of them.
pub fn on_warpgroups(placed: &Placed, setting: LaunchContext, mut steps: Vec<OperationCalls>) -> Vec<OperationCalls> {
    for step in &mut steps {
        for (at, launch) in warpgroup_launches(placed, setting, step).unwrap() {
            step.calls[at] = launch.into();
        }
    }
    steps
}
