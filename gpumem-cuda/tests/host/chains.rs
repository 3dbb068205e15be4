//! Chains beside the operations that they are made of, each in a launch of its own.

use super::*;
use std::collections::BTreeSet;

/// The steps of a program with each chain as its operations, each in its place in the program.
pub fn apart(placed: &Placed, setting: LaunchContext, steps: Vec<OperationCalls>) -> Vec<OperationCalls> {
    let is_chain = |call: &Call| matches!(call, Call::Kernel(launch) if launch.kernel.file == "chain.cu");
    let parts = |step: OperationCalls| {
        if !step.calls.iter().any(is_chain) {
            return vec![step];
        }
        let one = |first: usize| {
            let operation = &placed.program.operations[first];
            OperationCalls {
                first,
                count: 1,
                moved: Vec::new(),
                calls: calls(&Context { placed, operation, setting }).unwrap(),
            }
        };
        step.operations().into_iter().map(one).collect()
    };
    let mut steps: Vec<OperationCalls> = steps.into_iter().flat_map(parts).collect();
    steps.sort_by_key(|step| step.first);
    steps
}

/// Checks that a step leaves the same bits in every tensor with chains and without: behind each chain too, in those that are read
/// later.
pub fn same_bits(what: &str, program: &Program, batch: u64, format: Format, classes: u32, optimizer: Optimizer) {
    let Job { arena, infer: placed, .. } = job(program, batch, format.0, optimizer);
    same_bits_in(what, &placed, arena, (batch, format, classes, optimizer));
}

/// The same for a program whose tensors have places in an arena of this size.
pub fn same_bits_in(
    what: &str,
    placed: &Placed,
    arena: u64,
    (batch, format, classes, optimizer): (u64, Format, u32, Optimizer),
) {
    let ways = [Products::Own, Products::Apart].map(|products| products.steps(placed, batch, format, optimizer));
    let is_run = filled::capabilities().is_empty() && std::env::var_os("GPUMEM_SKIP_HOST").is_none();
    if ways[0] == ways[1] || !is_run {
        return;
    }
    let tensors = &placed.program.tensors;
    let [chained, apart] = ways.map(|steps| {
        let mut simulated = Simulated::with_steps(placed.clone(), steps, batch, arena, format.0, 0);
        for id in 0..tensors.len() {
            if let Some(words) = beginning(&placed.program, id, batch, classes, optimizer) {
                Tested::put(&mut simulated, id, &words);
            }
        }
        seen(simulated)
    });
    for ((next, id), words) in chained {
        let name = placed.program.tensor_name(&tensors[id]);
        assert_eq!(words, apart[&(next, id)], "{what} in {format:?}: {name} before operation {next}");
    }
}

/// What every tensor holds that is read later, by the operation that comes next. Those are left out that an operation touches which ran
/// earlier than in the program, or has not run yet though its turn was earlier.
fn seen(mut simulated: Simulated) -> BTreeMap<(usize, usize), Vec<u32>> {
    let mut seen = BTreeMap::new();
    simulated.step_seen(|simulated, next, done| {
        let operations = simulated.placed.program.operations.iter().enumerate();
        let out_of_turn = operations.filter(|(index, _)| done[*index] != (*index < next));
        let moved: BTreeSet<usize> = out_of_turn.flat_map(|(_, it)| it.tensors()).map(|id| id as usize).collect();
        for id in 0..simulated.placed.program.tensors.len() {
            let tensor = &simulated.placed.program.tensors[id];
            let lives = (tensor.first as usize) < next && next <= tensor.last as usize;
            if (tensor.class != Class::Transient || lives) && !moved.contains(&id) {
                let words = simulated.read(id);
                seen.insert((next, id), words);
            }
        }
    });
    seen
}
